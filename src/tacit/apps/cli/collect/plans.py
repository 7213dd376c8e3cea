"""`tacit collect plan`: what to expect of a collection, before anything is collected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import print_json, print_text
from tacit.apps.cli.files import (
    declared_classes,
    image_size,
    read_schema,
    signal_size,
    warnings_on_stderr,
)
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import MOST_ROWS, AsJson, CentralDelta, Seed
from tacit.privacy import errors


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "Mechanisms", "tacit collect plan --classes 2 --epsilon 1 --people 5000")(plan)


def plan(
    epsilon: Annotated[float, typer.Option(help="Local ε of one report.")],
    classes: Annotated[
        str | None,
        typer.Option(
            help="Number of classes (labels 0, 1, …), or their values: no,yes.",
            show_default="those of --pilot or --reports",
        ),
    ] = None,
    target_accuracy: Annotated[
        float | None,
        typer.Option(help="Accuracy to reach, in (0, 1).", show_default="needed without --people"),
    ] = None,
    people: Annotated[
        int | None, typer.Option(help="Number of people, if known: predicts their accuracy.")
    ] = None,
    inhouse: Annotated[
        Path | None, typer.Option(help="In-house rows to simulate on (CSV or Parquet).")
    ] = None,
    pilot: Annotated[
        Path | None, typer.Option(help="Some labelled rows, about 100 (CSV or Parquet).")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The label: a column of --pilot, left out of --inhouse.")
    ] = None,
    reports: Annotated[
        Path | None, typer.Option(help="A first round of reports; needs --inhouse.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of rounds that are planned.")] = 1,
    central_epsilon: Annotated[
        float | None, typer.Option(help="Central ε of the mechanism, for the in-house rows.")
    ] = None,
    central_delta: CentralDelta = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="Public bounds and categories (JSON file).", show_default="read off the rows"
        ),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Size, if rows are images: 28x28, or 32x32x3 in colour.")
    ] = None,
    signal: Annotated[
        str | None, typer.Option(help="Points in time and channels, if rows are signals: 128x9.")
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Predict accuracy, and how many people are needed, before anything is collected."""
    from tacit.local import plan as planning
    from tacit.local.reports import Reports

    if pilot is not None and label is None:
        errors.refuse("plan", "--label", "given with --pilot", None, "Name the column.")
    first = None if reports is None else Reports.read(reports)
    declared: Any = declared_classes(classes) or (first and first.channel.classes)
    bounds = None if schema is None else read_schema(schema)
    given: dict[str, Any] = {"schema": bounds, "rounds": rounds}
    given |= {"central_epsilon": central_epsilon, "central_delta": central_delta}
    if inhouse is not None:
        # The noise of a central guarantee depends on the number of rows.
        most = planning.MOST_ROWS if central_epsilon is None else MOST_ROWS
        given["inhouse"] = _unlabelled(inhouse, label, bounds, most, seed)
    if pilot is not None:
        given["pilot"], given["labels"] = _pilot(pilot, str(label), declared, bounds, seed)
    with warnings_on_stderr():
        planned = planning.plan(
            epsilon=epsilon,
            classes=declared,
            target_accuracy=target_accuracy,
            people=people,
            reports=first,
            image=image_size(image),
            signal=signal_size(signal),
            seed=seed,
            **given,
        )
    if as_json:
        return print_json(planned.to_dict())
    for sentence in (planned.answer, *planned.assumptions):
        print_text(f"- {sentence}")


def _unlabelled(path: Path, label: str | None, schema: Any, most: int, seed: int) -> Any:
    """Read in-house rows for a plan; they need not have the pilot's label column."""
    from tacit.data import tables

    table, _ = tables.sample(path, most, seed, schema)
    return table.drop_columns([label]) if label in table.column_names else table


def _pilot(path: Path, label: str, classes: Any, schema: Any, seed: int) -> tuple[Any, Any]:
    """Read the rows of a pilot and their labels."""
    import numpy as np

    from tacit.data import labels, tables
    from tacit.local.plan import MOST_ROWS as most

    table, _ = tables.sample(path, most, seed, schema)
    rows, values = tables.split_label(table, label, path)
    assert values is not None
    if classes is None:
        whole = all(type(value) is int for value in values)
        return rows, np.array(values if whole else [str(value) for value in values])
    return rows, tables.as_classes(values, labels.declare("plan", classes), str(path))
