"""`tacit collect vote`, `tally`, `validate`: accuracy, or mean error, by private votes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import (
    accuracy_cells,
    error_cells,
    print_json,
    print_table,
    print_values,
)
from tacit.apps.cli.files import (
    must_be_new,
    must_have,
    opened_ledger,
    rows_progress,
    warnings_on_stderr,
)
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import Account, AsJson, Confidence, Data, Key, LedgerFile, Out
from tacit.data.tables import naming, words_of
from tacit.privacy import errors

Model = Annotated[Path, typer.Argument(help="Directory that learn wrote.", metavar="MODEL")]
LabelColumn = Annotated[str, typer.Option(help="Column of the label or outcome.")]
VoteEpsilon = Annotated[float, typer.Option(help="Local ε of one vote.")]
ByClass = Annotated[
    bool, typer.Option("--by-class", help="Include the voter's class in the noised vote.")
]
Group = Annotated[str | None, typer.Option(help="Column of the voters' groups.")]
PrivateGroup = Annotated[
    bool, typer.Option("--private-group", help="Include the group in the noised vote.")
]
Groups = Annotated[
    str | None,
    typer.Option(
        help="All private groups there may be: north,south.", show_default="as in the schema"
    ),
]
Limit = Annotated[
    float | None,
    typer.Option(
        help="Absolute errors of a regressor beyond this count as this.",
        show_default="the distance between the bounds of the outcome",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    panel = "Private votes"
    command(
        app, panel, "tacit collect vote model me.csv --label digit --epsilon 2 --out vote.json"
    )(vote)
    command(app, panel, "tacit collect tally votes/*.json")(tally)
    command(
        app,
        panel,
        "tacit collect validate model voters.parquet --label digit --epsilon 2 --by-class",
    )(validate)


def vote(
    model: Model,
    data: Data,
    label: LabelColumn,
    epsilon: VoteEpsilon,
    out: Out,
    by_class: ByClass = False,
    group: Group = None,
    private_group: PrivateGroup = False,
    groups: Groups = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Try a model on your own rows, and write one noised vote per row."""
    must_be_new(out)
    poll = _poll(model, epsilon, by_class, group, private_group, groups, limit)
    votes = poll.release(poll.outcomes(data, label))
    votes.write(out)
    values = {"votes": len(votes), "guarantee": str(votes.guarantee), "written": str(out)}
    print_values(values, as_json, "Voted")


def tally(
    votes: Annotated[list[Path], typer.Argument(help="Files that vote wrote.", metavar="VOTES")],
    confidence: Confidence = 0.95,
    as_json: AsJson = False,
) -> None:
    """Estimate accuracy, or the mean error of a regressor, from votes, with intervals."""
    from tacit.local.inference.votes import Votes

    errors.probability("tally", "--confidence", confidence, zero=False)
    if len({path.resolve() for path in votes}) != len(votes):
        errors.refuse("tally", "VOTES", "different files", len(votes), "A vote counts once.")
    counted = Votes.concatenate([Votes.read(path) for path in votes])
    _print(counted, confidence, as_json)


def validate(
    model: Model,
    data: Data,
    label: LabelColumn,
    epsilon: VoteEpsilon,
    by_class: ByClass = False,
    group: Group = None,
    private_group: PrivateGroup = False,
    groups: Groups = None,
    limit: Limit = None,
    confidence: Confidence = 0.95,
    ledger: LedgerFile = None,
    account: Account = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Estimate accuracy, or the mean error of a regressor, by votes: each row is a person."""
    from tacit.privacy.accounting.ledger import pay

    errors.probability("validate", "--confidence", confidence, zero=False)
    poll = _poll(model, epsilon, by_class, group, private_group, groups, limit)
    with opened_ledger(ledger, account) as opened:
        tried = poll.outcomes(data, label)  # data that do not fit cost nothing
        pay("validate", opened, account, poll.ballot.event, key=key)
        votes = poll.release(tried)
    _print(votes, confidence, as_json)


@dataclass(frozen=True)
class _Tried:
    """Raw outcomes of the model on each row, for the ballot only."""

    right: Any
    classes: Any
    groups: Any


@dataclass(frozen=True)
class _Poll:
    """A model, the ballot on it, and the column of groups."""

    model: Any
    ballot: Any
    group: str | None

    @property
    def numeric(self) -> bool:
        """Whether the model is a regressor."""
        return self.ballot.limit is not None

    def outcomes(self, data: Path, label: str) -> _Tried:
        import numpy as np

        from tacit.data import tables

        classes = None if self.numeric else tuple(self.model.classes_.tolist())
        parts: list[tuple[Any, Any, Any]] = []
        schema, words = self.model.mechanism_.schema, words_of(classes, label)
        with rows_progress(tables.count(data)) as advance, warnings_on_stderr():
            for batch in tables.batches(data, schema, words=words):
                parts.append(self._try(batch, data, label, classes))
                advance(batch.num_rows)
        right, mine, groups = (np.concatenate(part) for part in zip(*parts, strict=True))
        return _Tried(right, mine, groups if self.group is not None else None)

    def _try(self, batch: Any, data: Path, label: str, classes: tuple[Any, ...] | None) -> Any:
        from tacit.data import tables

        if self.group is not None and self.group not in batch.schema.names:
            errors.refuse("data", "--group", f"a column of {data}", self.group, "Check its header.")
        rest, groups = tables.split_label(batch, self.group, data)
        if self.group in self.model.mechanism_.schema.names:
            rest = batch  # the group is a feature too
        right, mine = self._answers(rest, data, label, classes)
        return right, mine, [] if groups is None else [_text(value) for value in groups]

    def _answers(
        self, batch: Any, data: Path, label: str, classes: tuple[Any, ...] | None
    ) -> tuple[Any, Any]:
        from tacit.data import tables
        from tacit.local.inference.losses import losses
        from tacit.local.inference.votes import outcomes

        with naming(data):
            if classes is None:
                rows, told = tables.split_outcome(batch, label, data)
                return losses(self.model, rows, told, self.ballot.limit), []
            rows, values = tables.split_label(batch, label, data)
            truth = tables.as_classes(values, classes, f"column {label!r}")  # type: ignore[arg-type]
            return outcomes(self.model, rows, truth)

    def release(self, tried: _Tried) -> Any:
        from tacit.local.inference.votes import fingerprint

        private = tried.groups if self.ballot.groups is not None else None
        voted_classes = tried.classes if self.ballot.classes is not None else None
        votes = self.ballot.release(tried.right, classes=voted_classes, groups=private)
        known = tried.groups if self.ballot.groups is None else None
        return replace(votes, groups=known, about=fingerprint(self.model))


def _poll(
    model: Path,
    epsilon: float,
    by_class: bool,
    group: str | None,
    private_group: bool,
    groups: str | None,
    limit: float | None,
) -> _Poll:
    from tacit.local.inference.losses import limit_of
    from tacit.local.inference.votes import Ballot
    from tacit.privacy import artifact

    if private_group and group is None:
        errors.refuse("command line", "--group", "given with --private-group", None)
    if groups is not None and not private_group:
        remedy = "Groups that are public need no declaration."
        errors.refuse("command line", "--groups", "given with --private-group", groups, remedy)
    loaded = must_have(artifact.load(model), "predict", model)
    declared = _declared_groups(loaded, group, groups) if private_group else None
    asked: dict[str, Any] = {"epsilon": epsilon, "groups": declared}
    if hasattr(loaded, "outcome_"):
        if by_class:
            errors.refuse("command line", "--by-class", "absent for numeric outcomes", by_class)
        asked["limit"] = limit_of("command line", loaded, limit)
    elif limit is not None:
        errors.refuse("command line", "--limit", "absent for a classifier", limit)
    elif by_class:
        asked["classes"] = tuple(loaded.classes_.tolist())
    return _Poll(loaded, Ballot(**asked), group)


def _declared_groups(model: Any, group: str | None, groups: str | None) -> list[str]:
    """Return the groups as given, or the schema's categories: never those of the voters' rows."""
    if groups is not None:
        return [value.strip() for value in groups.split(",")]
    for column in getattr(model.mechanism_.schema, "columns", None) or ():
        if getattr(column, "name", None) == group and hasattr(column, "categories"):
            return list(column.categories)
    remedy = "Declare all groups there may be, as in --groups north,south."
    errors.refuse("command line", "--groups", "given with --private-group", None, remedy)


def _text(value: Any) -> str:
    """Write a group as text: a column of whole numbers may arrive as floats."""
    whole = isinstance(value, float) and value == int(value)
    return str(int(value)) if whole else str(value)


def _print(votes: Any, confidence: float, as_json: bool) -> None:
    from tacit.local.inference.error_votes import estimate_error
    from tacit.local.inference.validation import estimate

    if votes.ballot.limit is None:
        return _print_validation(estimate(votes, confidence), as_json)
    return _print_errors(estimate_error(votes, confidence), as_json)


def _print_errors(validation: Any, as_json: bool) -> None:
    result = validation.to_dict()
    if as_json:
        return print_json(result)
    lines = [("all", f"{result['voters']:,}", *error_cells(result))]
    lines += [
        (f"group {one['group']}", f"{one['voters']:,.0f}", *error_cells(one))
        for one in result["by_group"]
    ]
    columns = ("", "voters", "mean absolute error", f"{validation.confidence:.0%} interval")
    print_table("Errors by votes", columns, lines)
    print(f"Errors beyond {validation.limit:g} count as {validation.limit:g}.")
    print(f"Each voter: {validation.guarantee}")


def _print_validation(validation: Any, as_json: bool) -> None:
    result = validation.to_dict()
    if as_json:
        return print_json(result)
    lines = [("all", f"{result['voters']:,}", *accuracy_cells(result))]
    if result["balanced_accuracy"] is not None:
        lines.append(("balanced", "", *accuracy_cells(result["balanced_accuracy"])))
    for name in ("class", "group"):
        lines += [
            (f"{name} {one[name]}", f"{one['voters']:,.0f}", *accuracy_cells(one))
            for one in result[f"by_{name}"]
        ]
    columns = ("", "voters", "accuracy", f"{validation.confidence:.0%} interval")
    print_table("Accuracy by votes", columns, lines)
    print(f"Each voter: {validation.guarantee}")
