"""`tacit train audit`: attack a model, and compare the result with what it claims."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from tacit.apps.cli.console import REFUSED
from tacit.apps.cli.files import stages_progress
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Confidence
from tacit.apps.cli.train.report import AuditResult
from tacit.apps.cli.wording import spoken
from tacit.privacy import errors
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PureDP, Unit

if TYPE_CHECKING:
    from tacit.apps.cli.train.rows import Records
    from tacit.audit.attributes import AttributeReport
    from tacit.audit.membership import AttackReport

_SHADOWS = 16
_MOST_VALUES, _BINS = 16, 10
_ATTACKS = ("threshold", "shadows", "lira")
_CLAIMS = (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)
_TAKES = {
    "a saved model": ("members", "others", "label", "schema", "attribute", "values", "coins"),
    "--game": ("game", "data", "label", "schema", "shadows", "attacks"),
    "a file of losses": ("label", "coins", "blank", "epsilon", "delta", "adjacency"),
}
_NEEDS = {
    "a saved model": ("members", "others", "label"),
    "--game": ("data", "label"),
    "a file of losses": (),
}
_HOUSE = "These numbers were computed from the raw records: keep them in-house."
_NO_PROOF = (
    "Without coins no ε is certified: members and others may differ in other ways, and a weak "
    "attack proves nothing. For a proof, use --data POOL --game, or --coins if fair coins decided "
    "who was a member."
)
_REPLACED = (
    "Members against others compares data sets with one record replaced: a claim about one record "
    "more or less, or one blank record, is tested there at twice its ε."
)
_SEARCHED = "Ordinary records are not the worst case: a claim that is not refuted is not proved."


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app,
        "Audits",
        "tacit train audit model --members train.csv --others test.csv --label income",
    )(audit)


def audit(
    model: Annotated[
        Path,
        typer.Argument(
            help="Directory that an estimator's save wrote, or a file of losses.", metavar="MODEL"
        ),
    ],
    members: Annotated[
        Path | None, typer.Option(help="Records that the model was fitted on: CSV or Parquet.")
    ] = None,
    others: Annotated[
        Path | None, typer.Option(help="Records of the same population that it never saw.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Pool of records for --game.")] = None,
    label: Annotated[str | None, typer.Option(help="Column that is predicted.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Features, and the categories of text (JSON file).")
    ] = None,
    game: Annotated[
        bool,
        typer.Option("--game", help="Fit again to records that coins choose; can refute a claim."),
    ] = False,
    shadows: Annotated[
        int | None, typer.Option(help="Models that attackers fit in --game.", show_default="16")
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Attacks of --game, some of: threshold,shadows,lira.", show_default="all"
        ),
    ] = None,
    attribute: Annotated[
        str | None, typer.Option(help="Column that an attacker guesses from all others.")
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(help="Values of --attribute: 0,1.", show_default="read off the files"),
    ] = None,
    coins: Annotated[
        bool, typer.Option("--coins", help="Assert that a fair coin put each record in or out.")
    ] = False,
    blank: Annotated[
        bool,
        typer.Option(
            "--blank", help="With --coins: a record that was out was replaced by a blank."
        ),
    ] = False,
    epsilon: Annotated[float | None, typer.Option(help="Claimed ε, for a file of losses.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Claimed δ; goes with --epsilon.", show_default="0")
    ] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="Neighbours of the claim: add-remove, zero-out or replace-one.",
            show_default="add-remove",
        ),
    ] = None,
    confidence: Confidence = 0.95,
    certainty: Annotated[
        float, typer.Option(help="Probability that a true claim is not refuted, at least.")
    ] = 0.99,
    as_json: AsJson = False,
) -> None:
    """Attack a model: infer who was among its records, and compare with what it claims.

    The exit code is 1 if the claim is refuted.
    """
    given = dict(locals())
    mode = "a file of losses" if not model.is_dir() else "--game" if game else "a saved model"
    _must_fit(mode, given)
    for name in ("confidence", "certainty"):
        errors.probability("audit", f"--{name}", given[name], zero=False)
    run = {"a saved model": _saved_model, "--game": _game, "a file of losses": _losses}[mode]
    result = run(given)
    result.show(as_json)
    if result.refuted:
        raise typer.Exit(REFUSED)


# --- a saved model, not fitted again ---------------------------------------------------------


def _saved_model(given: dict[str, Any]) -> AuditResult:
    from tacit.apps.cli.train.rows import ModelFileReader, loaded, losses

    model = loaded(given["model"])
    if given["coins"] and _counts(model):
        remedy = "With coins that number varies. Use --data POOL --game, which plays in pairs."
        reason = "a model whose number of records is public"
        errors.refuse("audit", "--coins", "left out for this model", reason, remedy)
    reader = ModelFileReader.of(model, given["label"], given["schema"])
    members, others = (reader.read(given[side]) for side in ("members", "others"))
    claim = model.guarantee_
    sides = [losses(model, one.rows, one.labels) for one in (members, others)]
    reports = _thresholds(sides, claim, given)
    attribute = None
    if (column := given["attribute"]) is not None:
        attribute = column, _attribute(model, members, others, given)
    name = type(model).__name__
    return AuditResult(name, claim, reports, attribute=attribute, notes=_notes(given))


def _thresholds(
    sides: list[Any], claim: Guarantee | None, given: dict[str, Any]
) -> list[AttackReport]:
    from tacit.audit.membership import loss_threshold

    known = {"claim": claim, "coins": given["coins"], "blank": given["blank"], **_settings(given)}
    # One proof gets the whole certainty; two would have to share it.
    thresholds = ("best",) if given["coins"] else ("best", "mean")
    return [loss_threshold(*sides, threshold=one, **known) for one in thresholds]


def _notes(given: dict[str, Any]) -> tuple[str, ...]:
    return (_SEARCHED, _HOUSE) if given["coins"] else (_NO_PROOF, _REPLACED, _HOUSE)


def _attribute(
    model: Any, members: Records, others: Records, given: dict[str, Any]
) -> AttributeReport:
    from tacit.apps.cli.train.rows import losses
    from tacit.audit.attributes import attribute_inference

    column = given["attribute"]
    places = members.places.get(column)
    if places is None or others.places.get(column) != places:
        errors.refuse("audit", "--attribute", "a column of both files", column)
    # The prior is learned from every second of the others, and judged on the rest: on the rows
    # that it was learned from it would be right too often.
    known = others.rows[::2, places]
    options = _options(given["values"], members.rows[:, places], known)
    gaps = np.abs(known[:, None] - options).sum(axis=2)
    prior = np.bincount(gaps.argmin(axis=1), minlength=len(options)) + 1
    return attribute_inference(
        lambda rows, labels: losses(model, rows, labels),
        members[:2],
        (others.rows[1::2], others.labels[1::2]),
        places,
        options,
        prior=prior,
        kind="cross-entropy" if hasattr(model, "classes_") else "squared",
        claim=model.guarantee_,
        confidence=given["confidence"],
    )


def _options(text: str | None, members: Any, others: Any) -> Any:
    """Return the attribute's values: as given, all categories, all values, or deciles."""
    if others.shape[1] > 1:
        if text is not None:
            remedy = "The schema has its categories."
            errors.refuse("audit", "--values", "left out for a column of text", text, remedy)
        return np.eye(others.shape[1])
    if text is not None:
        try:
            options = np.array([float(word) for word in text.split(",")])
        except ValueError:
            errors.refuse("audit", "--values", "numbers, as in 0,1", text)
    else:
        options = np.unique(np.concatenate([members, others]))
        if len(options) > _MOST_VALUES:
            options = np.unique(np.quantile(others, (np.arange(_BINS) + 0.5) / _BINS))
    if len(options) < 2:
        errors.refuse("audit", "--attribute", "a column of two values or more", len(options))
    return options[:, None]


# --- the game --------------------------------------------------------------------------------


def _game(given: dict[str, Any]) -> AuditResult:
    from tacit.apps.cli.train.rows import ModelFileReader, loaded, losses
    from tacit.audit.games import play

    attacks = _attacks(given["attacks"])
    model = loaded(given["model"])
    pool = ModelFileReader.of(model, given["label"], given["schema"]).read(given["data"])
    game = "pairs" if _counts(model) else "coins"
    with stages_progress(transient=True) as show, _once():
        played = play(
            _refit(model),
            losses,
            pool.rows,
            pool.labels,
            confidences=_probabilities(model, pool.labels),
            attacks=attacks,
            shadows=_SHADOWS if given["shadows"] is None else given["shadows"],
            game=game,
            claim=model.guarantee_,
            progress=lambda done, fits: show("fits", done, fits),
            **_settings(given),
        )
    notes = (_game_note(game), _SEARCHED, _HOUSE)
    return AuditResult(
        type(model).__name__, model.guarantee_, played.reports, game=game, notes=notes
    )


def _probabilities(model: Any, labels: Any) -> Any:
    """Return a function for the probabilities of the classes that occur; None for a regression."""
    from tacit.apps.cli.train.rows import confidences

    if not hasattr(model, "classes_"):
        return None
    at = np.searchsorted(model.classes_, np.unique(labels))
    return lambda made, rows: confidences(made, rows)[:, at]


def _refit(model: Any) -> Any:
    """Return a function that fits with the saved parameters and fresh noise."""
    from sklearn.base import clone

    alike = clone(model)
    if "classes" in alike.get_params():
        alike.set_params(classes=model.classes_)  # coins may leave a rare class out
    stated = model.guarantee_
    # Calibration to another number of records changes ε a little, far less than pairs double it.
    room = 1e-2 if _counts(model) else 1e-9

    def fit(rows: Any, labels: Any) -> Any:
        made = clone(alike).fit(rows, labels)
        if not _same(made.guarantee_, stated, room):
            remedy = "They were set after the fit: fit and save the model again."
            condition = "those that its certificate is about"
            errors.refuse("audit", "parameters", condition, str(made.guarantee_), remedy)
        return made

    return fit


def _same(fitted: Guarantee, stated: Guarantee, room: float) -> bool:
    """Check whether two fits have the same guarantee, up to this share of ε."""
    if not (isinstance(fitted, PureDP | ApproxDP) and isinstance(stated, PureDP | ApproxDP)):
        return fitted == stated
    near = abs(fitted.epsilon - stated.epsilon) <= room * stated.epsilon
    return near and fitted.delta == stated.delta and fitted.scope == stated.scope


def _counts(model: Any) -> bool:
    """Check whether the guarantee takes the number of records as public."""
    return bool(model.guarantee_.adjacency is not Adjacency.ADD_REMOVE)


def _game_note(game: str) -> str:
    if game == "coins":
        return "A coin put each record in or out: neighbours have one record more or less."
    return (
        "This model takes the number of records as public, so a coin chose one of each pair: "
        "neighbours have one record replaced, for which the claim is twice as large."
    )


def _attacks(text: str | None) -> list[str]:
    words = _ATTACKS if text is None else [word.strip() for word in text.split(",")]
    return [errors.choice("audit", "--attacks", one, _ATTACKS) for one in words]


@contextmanager
def _once() -> Iterator[None]:
    """Print one warning of each kind from all fits, as lines of the command."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in {one.category: one for one in reversed(caught)}.values():
        print(f"tacit: {spoken(warning.message)}", file=sys.stderr)


# --- losses of any model ---------------------------------------------------------------------


def _losses(given: dict[str, Any]) -> AuditResult:
    from tacit.apps.cli.train.rows import read_losses

    path: Path = given["model"]
    if not path.is_file():
        needed = "a directory that save wrote, or a file of losses"
        errors.refuse("command line", "MODEL", needed, str(path), "Check the path.")
    claim = _claim(given["epsilon"], given["delta"], given["adjacency"])
    inside, losses = read_losses(path, given["label"] or "label")
    reports = _thresholds([losses[inside], losses[~inside]], claim, given)
    return AuditResult(path.name, claim, reports, notes=_notes(given))


def _claim(epsilon: Any, delta: Any, adjacency: Any) -> Guarantee | None:
    if epsilon is None:
        if delta is not None or adjacency is not None:
            errors.refuse("audit", "--epsilon", "given with --delta and --adjacency", None)
        return None
    errors.epsilon_in_range("audit", epsilon)
    words = [str(one) for one in _CLAIMS]
    whose = Adjacency.ADD_REMOVE
    if adjacency is not None:
        whose = Adjacency(errors.choice("audit", "--adjacency", adjacency, words))
    if not delta:
        return PureDP(epsilon=epsilon, adjacency=whose, unit=Unit.RECORD)
    return ApproxDP(epsilon=epsilon, delta=delta, adjacency=whose, unit=Unit.RECORD)


# --- options ---------------------------------------------------------------------------------


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("confidence", "certainty")}


def _must_fit(mode: str, given: dict[str, Any]) -> None:
    """Refuse options of another mode, and options that are missing."""
    always = ("model", "confidence", "certainty", "as_json")
    if given["values"] is not None and given["attribute"] is None:
        errors.refuse("command line", "--attribute", "given with --values", None)
    for name, value in given.items():
        if name in always or value is None or value is False or name in _TAKES[mode]:
            continue
        remedy = f"Use {', '.join(f'--{one}' for one in _TAKES[mode])}."
        if mode == "a saved model" and name in _TAKES["--game"]:
            remedy = "It goes with --game."
        shown = True if value is True else str(value)
        errors.refuse("command line", f"--{name}", f"left out with {mode}", shown, remedy)
    for name in _NEEDS[mode]:
        if given[name] is None:
            errors.refuse("command line", f"--{name}", f"given with {mode}", None)
