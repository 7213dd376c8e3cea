"""`tacit collect privatize`, `learn`: reports, and a model learned from them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.answers import Costs, Priors, Threshold, decision
from tacit.apps.cli.collect.mechanisms import must_take_all
from tacit.apps.cli.console import print_values
from tacit.apps.cli.files import (
    described,
    must_be_new,
    must_have,
    rows_progress,
    warnings_on_stderr,
)
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import (
    MOST_ROWS,
    AsJson,
    CentralDelta,
    Device,
    InhousePublic,
    MostOfPerson,
    OneRowEach,
    Out,
    Person,
    Seed,
)
from tacit.data.tables import naming
from tacit.privacy import errors


def register(app: typer.Typer) -> None:
    """Add the commands."""
    panel = "Reports"
    command(
        app,
        panel,
        "tacit collect privatize mechanism person.csv --label digit --out reports.parquet",
    )(privatize)
    command(app, panel, "tacit collect learn reports.parquet --out model")(learn)


def privatize(
    mechanism: Annotated[
        Path, typer.Argument(help="Directory that fit or export wrote.", metavar="DIR")
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="CSV (with a header), Parquet, or a folder of Parquet parts.", metavar="DATA"
        ),
    ],
    out: Out,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Local ε of one report.", show_default="as it was fitted"),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of the label or outcome, to report it too.")
    ] = None,
    person: Person = None,
    most: MostOfPerson = 1,
    one_row_each: OneRowEach = False,
    engine: Annotated[
        str, typer.Option(help="local, or ray: the workers of a Ray cluster share the parts.")
    ] = "local",
    as_json: AsJson = False,
) -> None:
    """Release one report per row, in batches; on a person's own device, a file of one row.

    With --person, rows of a person are drawn at random, and the guarantee is for all their reports
    together. A mechanism for persons needs --person or --one-row-each.
    """
    from tacit.local import distributed
    from tacit.local.persons import ASSUMED_ONE
    from tacit.local.reports import ReportsWriter
    from tacit.privacy import artifact

    errors.choice("privatize", "--engine", engine, distributed.ENGINES)
    must_be_new(out)
    local = must_have(artifact.load(mechanism), "release", mechanism)
    if epsilon is not None:
        local = local.at(epsilon)
    if label is not None and label in local.schema.names:
        remedy = f"Fit again with --label {label}."
        errors.refuse("privatize", "--label", "no column that it was fitted on", label, remedy)
    local = _for_whom(local, label, person, most, one_row_each)
    parts, channel = distributed.parts(data), local.channel(label is not None)
    named, limit = None, ASSUMED_ONE
    if person is not None:
        limit = local.per_person(most)
        named = distributed.Persons.drawn(parts, local.schema, person, limit)
    with (
        closing(distributed.release(engine, local, parts, label, named)) as released,
        ReportsWriter(out, local, channel, per_person=limit) as writer,
        rows_progress(distributed.count(parts) if named is None else named.count) as advance,
        warnings_on_stderr(),
    ):
        for reports in released:
            writer.add(reports)
            advance(len(reports))
    result = {
        "reports": writer.count,
        "guarantee": str(limit.guarantee(channel)),
        "labelled": label is not None,
        "written": str(out),
    }
    print_values(result, as_json, "Released")


def _for_whom(
    local: Any, label: str | None, person: str | None, most: int, one_row_each: bool
) -> Any:
    """Return the mechanism for persons or rows; for persons, names or a statement must say so."""
    from tacit.privacy.guarantees import Unit

    if person is not None:
        if one_row_each:
            remedy = "Names enforce it."
            errors.refuse("privatize", "--one-row-each", "left out with --person", True, remedy)
        if person in (*local.schema.names, label):
            condition = "no column that is reported"
            errors.refuse("privatize", "--person", condition, person, "Fit again without it.")
        return local.for_persons()
    if most != 1:
        errors.refuse("privatize", "--person", "given with --most", None)
    if local.unit is Unit.PERSON and not one_row_each:
        remedy = "If each row is another person's, say so with --one-row-each."
        condition = "the column that names people: the mechanism is for persons"
        errors.refuse("privatize", "--person", condition, None, remedy)
    return local


def learn(
    reports: Annotated[
        list[Path], typer.Argument(help="Files that privatize wrote.", metavar="REPORTS")
    ],
    out: Out,
    inhouse: Annotated[
        Path | None, typer.Option(help="In-house rows to train a student on; it stays in-house.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of --inhouse to leave out: the label.")
    ] = None,
    rows: Annotated[
        int, typer.Option(help="Largest number of rows of --inhouse to use.")
    ] = MOST_ROWS,
    central_epsilon: Annotated[
        float | None,
        typer.Option(help="Central ε for the rows of --inhouse: train the student with DP-Adam."),
    ] = None,
    central_delta: CentralDelta = None,
    inhouse_public: InhousePublic = False,
    priors: Priors = None,
    costs: Costs = None,
    threshold: Threshold = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn a classifier, or a regressor of outcomes, from reports, through the known noise.

    With --inhouse it is a student of these rows. Without, it is a student of the codebook's cells
    for two classes in a table, and else a table of labels, or mean outcomes, by codeword.
    """
    from tacit.data import tables
    from tacit.local.inference.default import model_for
    from tacit.local.reports import Reports
    from tacit.privacy import devices

    must_be_new(out)
    devices.resolve("learn", device, used=False)  # refused before anything is read
    read = [Reports.read(path) for path in reports]
    mechanism = read[0].mechanism
    outcome = getattr(mechanism, "outcome", None)
    by_partitions = mechanism.kind == "partitions"
    # Rounds of partitions have cells of their own; other files must be of one mechanism.
    released: Any = read if by_partitions else Reports.concatenate(read)
    taught: dict[str, Any] = {"seed": seed, "device": device}
    if (classes := mechanism.classes) is not None:
        taught |= decision("learn", classes, priors, costs, threshold)
    if outcome is not None:
        _must_suit_outcomes(priors, costs, threshold, central_epsilon)
    if by_partitions:
        known = inhouse is not None or read[-1].mechanism.synthetic_ is not None
        _must_suit_partitions(known, central_epsilon, central_delta)
    if inhouse is not None:
        table, total = tables.sample(inhouse, rows, seed, read[0].schema)
        must_take_all("learn", total, rows, central_epsilon)
        table = tables.without_label(table, label, inhouse)
        central = {"central_epsilon": central_epsilon, "central_delta": central_delta}
        taught |= {"inhouse": table, "inhouse_public": inhouse_public, "central": central}
    elif central_epsilon is not None or central_delta is not None:
        errors.refuse("learn", "--inhouse", "given with --central-epsilon", None)
    model = model_for(mechanism, **taught)
    with naming(inhouse or reports[0]), warnings_on_stderr():
        if not all(one.labelled for one in read):
            told = "labels" if outcome is None else "outcomes"
            raise errors.InvalidData(f"reports must hold {told}. Privatize with --label.")
        model.fit(released)
    model.save(out)
    values = {
        "model": model.kind,
        "reports": sum(map(len, read)),
        **_learned(model),
        "guarantee": str(model.guarantee_),
        "in_house_rows": described(model.inhouse_),
        "written": str(out),
    }
    print_values(values, as_json, "Learned")


def _learned(model: Any) -> dict[str, Any]:
    if hasattr(model, "outcome_"):
        return {"outcome": [model.outcome_.lower, model.outcome_.upper]}
    return {"classes": [str(value) for value in model.classes_]}


def _must_suit_outcomes(priors: Any, costs: Any, threshold: Any, central_epsilon: Any) -> None:
    """Refuse options that are about classes."""
    options = {"--priors": priors, "--costs": costs, "--threshold": threshold}
    options["--central-epsilon"] = central_epsilon
    for option, value in options.items():
        if value is not None:
            errors.refuse("learn", option, "absent for numeric outcomes", value)


def _must_suit_partitions(
    known: bool, central_epsilon: float | None, central_delta: float | None
) -> None:
    """Refuse options that models of partitions do not have, and reports without any rows."""
    if not known:
        condition = "given: reports of partitions are learned with in-house rows"
        errors.refuse("learn", "--inhouse", condition, None, "Pass the file that fit read.")
    options = {"--central-epsilon": central_epsilon, "--central-delta": central_delta}
    for option, value in options.items():
        if value is not None:
            remedy = "Fit the partitions with it, and learn without --inhouse."
            errors.refuse("learn", option, "absent for reports of partitions", value, remedy)
