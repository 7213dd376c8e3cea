"""`tacit collect search`: compare a grid of settings by private votes."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.collect.votes import LabelColumn
from tacit.apps.cli.console import accuracy_cells, must_exist, print_json, print_table
from tacit.apps.cli.files import (
    declared_classes,
    described,
    image_size,
    must_be_new,
    opened_ledger,
    read_schema,
    stages_progress,
    warnings_on_stderr,
)
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import (
    Account,
    AsJson,
    CentralDelta,
    Confidence,
    InhousePublic,
    Key,
    LedgerFile,
    Out,
)
from tacit.data.tables import naming, words_of
from tacit.local.inhouse import Target
from tacit.privacy import errors, files

_MECHANISM_SETTINGS = {
    "codebook": ("codewords", "features", "grouping", "subset_size"),
    "vlm": ("latent_dimension", "radius", "pretraining_epsilon", "label_share", "likelihood"),
    "gaussian": (
        *("latent_dimension", "radius", "pretraining_epsilon", "label_share", "likelihood"),
        "delta",
    ),
    "direct": ("label_share",),
}
_LEARNER_SETTINGS = ("prior", "level", "hidden", "output_bias")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app,
        "Private votes",
        "tacit collect search inhouse.parquet --people people.parquet --voters voters.parquet "
        "--label digit --epsilon 2 --classes 10 --grid grid.json --out found",
    )(search)


def search(
    inhouse: Annotated[
        Path, typer.Argument(help="In-house rows: CSV or Parquet.", metavar="INHOUSE")
    ],
    people: Annotated[Path, typer.Option(help="Rows of the people who report.")],
    voters: Annotated[Path, typer.Option(help="Rows of the other people, who vote.")],
    label: LabelColumn,
    epsilon: Annotated[float, typer.Option(help="Local ε of one person, in total.")],
    classes: Annotated[str, typer.Option(help="Number of classes, or their values: no,yes.")],
    grid: Annotated[Path, typer.Option(help="Settings to try (JSON): a list, or lists to cross.")],
    out: Out,
    composition: Annotated[
        str,
        typer.Option(help="parallel (one candidate per person) or sequential (ε/m on each)."),
    ] = "parallel",
    confirm: Annotated[
        str, typer.Option(help="fresh (some voters only judge the winner) or simultaneous.")
    ] = "fresh",
    confirm_share: Annotated[
        float | None,
        typer.Option(help="Share of voters who only judge the winner.", show_default="by rule"),
    ] = None,
    confidence: Confidence = 0.95,
    within: Annotated[
        float | None,
        typer.Option(help="Refuse unless the winner's interval will be ± this or narrower."),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="Public bounds and categories (JSON file).", show_default="read off the rows"
        ),
    ] = None,
    image: Annotated[str | None, typer.Option(help="Size, if rows are images: 28x28.")] = None,
    central_epsilon: Annotated[
        float | None, typer.Option(help="Central ε of all candidates, for the in-house rows.")
    ] = None,
    central_delta: CentralDelta = None,
    inhouse_public: InhousePublic = False,
    ledger: LedgerFile = None,
    account: Account = None,
    key: Key = None,
    seed: Annotated[
        int, typer.Option(help="Seed of what is learned; noise and votes have none.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Fit, collect, learn and vote over a grid of settings within one ε, and keep the best."""
    from tacit.local.inference.search import search as run
    from tacit.local.inference.selection import precision

    must_be_new(out)
    files.must_be_clear(out)
    settings = _grid(grid)
    declared = declared_classes(classes)
    target = Target.of("search", central_epsilon, central_delta)
    declared_schema = _inhouse_schema(inhouse, label, schema, image, target is not None)
    reporting, voting = (_rows(path, label, declared_schema, declared) for path in (people, voters))
    voting_options: dict[str, Any] = {
        "composition": composition,
        "confirm": confirm,
        "confirm_share": confirm_share,
        "confidence": confidence,
        "within": within,
    }
    print(precision(len(voting[1]), epsilon, len(settings), **voting_options), file=sys.stderr)
    common = {"epsilon": epsilon, "classes": declared, "unit": "person"}
    candidates = _candidates(settings, common, target, len(reporting[1]), composition, seed)
    with opened_ledger(ledger, account) as opened, stages_progress() as show, warnings_on_stderr():
        result = run(
            candidates,
            inhouse=_rows(inhouse, label, declared_schema, None)[0],
            fitting={"schema": declared_schema, "seed": seed, "inhouse_public": inhouse_public},
            people=reporting,
            voters=voting,
            epsilon=epsilon,
            ledger=opened,
            account=account,
            key=key,
            progress=show,
            **voting_options,
        )
    _write(result, out)
    _print_found(result, out, as_json)


def _grid(path: Path) -> list[dict[str, Any]]:
    """Read a list of settings, or all combinations from a dictionary of lists."""
    must_exist(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise errors.InvalidData(f"{path}: it must be JSON.") from None
    if isinstance(content, dict) and all(isinstance(one, list) for one in content.values()):
        crossed = itertools.product(*content.values())
        content = [dict(zip(content, values, strict=True)) for values in crossed]
    if not isinstance(content, list) or not content:
        raise errors.InvalidData(
            f"{path}: it must be a list of settings, or a dictionary of lists."
        )
    return [_checked(settings, path) for settings in content]


def _checked(settings: Any, path: Path) -> dict[str, Any]:
    if not isinstance(settings, dict):
        raise errors.InvalidData(f"{path}: each candidate must be a dictionary of settings.")
    kind = errors.choice(
        "grid", "kind", settings.get("kind", "codebook"), tuple(_MECHANISM_SETTINGS)
    )
    known = (*_MECHANISM_SETTINGS[kind], *_LEARNER_SETTINGS)
    for name in settings:
        if name not in ("kind", "name"):
            errors.choice("grid", f"setting of {kind}", name, known)
    return {**settings, "kind": kind}


def _candidates(
    settings: list[dict[str, Any]],
    common: dict[str, Any],
    target: Target | None,
    people: int,
    composition: str,
    seed: int,
) -> list[Any]:
    """Make the candidates; those that differ only in the classifier share their mechanism."""
    from tacit.local.inference.noise_aware import NoiseAwareClassifier
    from tacit.local.inference.search import Candidate

    wanted = [_part(one, _MECHANISM_SETTINGS[one["kind"]]) for one in settings]
    marks = [
        json.dumps([one["kind"], of], sort_keys=True)
        for one, of in zip(settings, wanted, strict=True)
    ]
    count = len(set(marks))
    each = people // count if composition == "parallel" else people
    if target is not None:
        each_target = _share(target, count, settings)
        shares = {"central_epsilon": each_target.epsilon, "central_delta": each_target.delta}
        common = {**common, **shares}
    mechanisms: dict[str, Any] = {}
    candidates = []
    for one, of, mark in zip(settings, wanted, marks, strict=True):
        if mark not in mechanisms:
            mechanisms[mark] = _mechanism(one["kind"], {**common, **of}, max(each, 1))
        learner = NoiseAwareClassifier(**_part(one, _LEARNER_SETTINGS), seed=seed)
        candidates.append(Candidate(_name(one), mechanisms[mark], learner))
    return candidates


def _share(target: Target, count: int, settings: list[dict[str, Any]]) -> Target:
    """Divide the central budget: by composition of Gaussians if there is no other noise."""
    trained = ("autoencoder", "invariant")
    plain = all(
        one["kind"] in ("codebook", "direct") and one.get("features") not in trained
        for one in settings
    )
    if plain:
        return target.part(count)
    return Target(target.epsilon / count, target.delta / count)


def _mechanism(kind: str, settings: dict[str, Any], people: int) -> Any:
    if kind == "codebook":
        from tacit.local.learned.codebook import Codebook

        return Codebook(**settings, people=people)
    if kind == "direct":
        from tacit.local.learned.direct import Direct

        return Direct(**settings)
    from tacit.local.learned.vlm import VLM

    return VLM(**settings, noise="laplace" if kind == "vlm" else "gaussian")


def _part(settings: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in settings.items()
        if name in names
    }


def _name(settings: dict[str, Any]) -> str:
    if "name" in settings:
        return str(settings["name"])
    rest = [f"{name}={value}" for name, value in settings.items() if name != "kind"]
    return " ".join([settings["kind"], *rest])


def _inhouse_schema(
    path: Path, label: str, schema: Path | None, image: str | None, private: bool
) -> Any:
    from tacit.data import schema_inference, tables

    if schema is not None:
        return read_schema(schema)
    table = _without(_whole(tables.batches(path)), label)
    with naming(path):
        read = schema_inference.of_bytes if private else schema_inference.infer
        return read(table, image_size(image), "search")


def _rows(path: Path, label: str, schema: Any, declared: Any) -> tuple[Any, Any]:
    """Read all rows without the label, and the labels if classes are declared."""
    from tacit.data import labels, tables

    classes = None if declared is None else labels.declare("search", declared)
    words = words_of(classes, label)
    table = _whole(tables.batches(path, schema, words=words))
    if classes is None:
        return _without(table, label), None
    rows, values = tables.split_label(table, label, path)
    with naming(path):
        return rows, tables.as_classes(values, classes, f"column {label!r}")  # type: ignore[arg-type]


def _whole(batches: Iterator[Any]) -> Any:
    import pyarrow as pa

    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def _without(table: Any, label: str) -> Any:
    return table.drop_columns([label]) if label in table.schema.names else table


def _write(searched: Any, out: Path) -> None:
    """Write the winner, the result and its certificate: all of them or nothing."""
    from tacit.privacy import artifact

    with files.folder(out) as partial:
        searched.mechanism.save(partial / "mechanism")
        searched.reports.write(partial / "reports.parquet")
        searched.model.save(partial / "model")
        result = json.dumps(searched.to_dict(), indent=1, ensure_ascii=False)
        (partial / "search.json").write_text(result + "\n", encoding="utf-8")
        searched.certificate.save(partial / "certificate.json")
        for place, stated in enumerate(searched.inhouse_.certificates):
            number = f"-{place + 1}" if len(searched.inhouse_.certificates) > 1 else ""
            artifact.bound(stated, searched.mechanism).save(
                partial / f"inhouse{number}.certificate.json"
            )


def _print_found(result: Any, out: Path, as_json: bool) -> None:
    values = {**result.to_dict(), "written": str(out)}
    if as_json:
        return print_json(values)
    lines = [
        (one["name"], f"{one['reports']:,}", f"{one['votes']:,}", *accuracy_cells(one))
        for one in values["candidates"]
    ]
    columns = ("candidate", "reports", "votes", "accuracy", "simultaneous intervals")
    print_table("Candidates", columns, lines)
    accuracy, interval = accuracy_cells(values)
    whose = "fresh voters" if result.confirm == "fresh" else "the same voters"
    print(f"Winner: {result.winner}. Accuracy {accuracy}, {interval}, by {whose}.")
    print(f"Each person: {result.guarantee}.")
    print(f"In-house rows, all candidates together: {described(result.inhouse_)}. Written: {out}")
