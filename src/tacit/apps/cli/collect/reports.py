"""`tacit collect privatize`, `learn`, `evaluate`: reports, and a classifier learned from them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.collect.mechanisms import must_take_all
from tacit.apps.cli.console import print_json, print_table, print_values
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
    Data,
    Device,
    InhousePublic,
    Out,
    Seed,
)
from tacit.data.tables import naming, words_of
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
    command(app, panel, "tacit collect evaluate model test.parquet --label digit")(evaluate)


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
        str | None, typer.Option(help="Column of the label, to report it too.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local, or ray: the workers of a Ray cluster share the parts.")
    ] = "local",
    as_json: AsJson = False,
) -> None:
    """Release one report per row, in batches; on a person's own device, a file of one row."""
    from tacit.local import distributed
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
    parts, channel = distributed.parts(data), local.channel(label is not None)
    with (
        closing(distributed.release(engine, local, parts, label)) as released,
        ReportsWriter(out, local, channel) as writer,
        rows_progress(distributed.count(parts)) as advance,
    ):
        for reports in released:
            writer.add(reports)
            advance(len(reports))
    result = {
        "reports": writer.count,
        "guarantee": str(channel.guarantee),
        "labelled": label is not None,
        "written": str(out),
    }
    print_values(result, as_json, "Released")


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
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn a classifier from reports, through the known noise."""
    from tacit.data import tables
    from tacit.local.channels import PartitionedChannel
    from tacit.local.inference.noise_aware import NoiseAwareClassifier
    from tacit.local.inference.proportions_classifier import ProportionsClassifier
    from tacit.local.inference.student import StudentClassifier
    from tacit.local.reports import Reports
    from tacit.privacy import devices

    must_be_new(out)
    devices.resolve("learn", device, used=False)  # refused before anything is read
    read = [Reports.read(path) for path in reports]
    by_partitions = isinstance(read[0].channel, PartitionedChannel)
    # Rounds of partitions have cells of their own; other files must be of one mechanism.
    released: Any = read if by_partitions else Reports.concatenate(read)
    model: Any = NoiseAwareClassifier(seed=seed, device=device)
    if by_partitions:
        known = inhouse is not None or read[-1].mechanism.synthetic_ is not None
        _must_suit_partitions(known, central_epsilon, central_delta)
        model = ProportionsClassifier(seed=seed)
    if inhouse is not None:
        table, total = tables.sample(inhouse, rows, seed, read[0].schema)
        must_take_all("learn", total, rows, central_epsilon)
        table = tables.without_label(table, label, inhouse)
        taught: dict[str, Any] = {"inhouse": table, "seed": seed, "inhouse_public": inhouse_public}
        central: dict[str, Any] = {
            "central_epsilon": central_epsilon,
            "central_delta": central_delta,
        }
        model = (
            ProportionsClassifier(**taught)
            if by_partitions
            else StudentClassifier(**taught, **central, device=device)
        )
    elif central_epsilon is not None or central_delta is not None:
        errors.refuse("learn", "--inhouse", "given with --central-epsilon", None)
    with naming(inhouse or reports[0]), warnings_on_stderr():
        if not all(one.labelled for one in read):
            raise errors.InvalidData("reports must hold labels. Privatize with --label.")
        model.fit(released)
    model.save(out)
    values = {
        "reports": sum(map(len, read)),
        "classes": [str(value) for value in model.classes_],
        "guarantee": str(model.guarantee_),
        "in_house_rows": described(model.inhouse_),
        "written": str(out),
    }
    print_values(values, as_json, "Learned")


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


def evaluate(
    model: Annotated[Path, typer.Argument(help="Directory that learn wrote.", metavar="MODEL")],
    data: Data,
    label: Annotated[
        str | None,
        typer.Option(help="Column of the label.", show_default="the one column that is no feature"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the accuracy of a model on clean, labelled rows, overall and by class."""
    from tacit.data import tables
    from tacit.local.evaluation import Tally
    from tacit.privacy import artifact

    classifier = must_have(artifact.load(model), "predict", model)
    declared = classifier.mechanism_.schema
    tally = Tally(tuple(classifier.classes_.tolist()))
    label = label or _surplus(next(tables.batches(data, declared)), declared.names, data)
    with rows_progress(tables.count(data)) as advance:
        for batch in tables.batches(data, declared, words=words_of(tally.classes, label)):
            rows, values = tables.split_label(batch, label, data)
            with naming(data):
                truth = tables.as_classes(values, tally.classes, f"column {label!r}")  # type: ignore[arg-type]
                tally.add(truth, classifier.predict(rows))
            advance(batch.num_rows)
    result = tally.to_dict()
    if as_json:
        return print_json(result)
    lines = [("all", *_line(result)), ("always the largest", "", f"{result['largest']:.4f}", "")]
    lines += [(str(one["class"]), *_line(one)) for one in result["by_class"]]
    print_table("Accuracy on clean rows", ("class", "rows", "accuracy", "95 % interval"), lines)


def _surplus(batch: Any, names: tuple[str, ...], path: Path) -> str:
    surplus = [name for name in batch.schema.names if name not in names]
    if len(surplus) != 1:
        reason = f"{path.name} has {len(surplus)} columns beside the mechanism's"
        errors.refuse("evaluate", "--label", f"given: {reason}", None)
    return str(surplus[0])


def _line(part: dict[str, Any]) -> tuple[str, str, str]:
    low, high = part["interval"]
    return f"{part['rows']:,}", f"{part['accuracy']:.4f}", f"{low:.4f} to {high:.4f}"
