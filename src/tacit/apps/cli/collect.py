"""`tacit fit`, `export`, `privatize`, `learn`, `evaluate`, `plan`: from rows to a classifier."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import AsJson, print_json, print_table, print_text, print_values
from tacit.apps.cli.files import (
    CentralDelta,
    Data,
    InhousePublic,
    Out,
    declared_classes,
    described,
    image_size,
    must_be_new,
    must_have,
    read_schema,
    rows_progress,
    warnings_on_stderr,
)
from tacit.data.tables import naming, words_of
from tacit.privacy import errors

KINDS = ("codebook", "vlm", "gaussian", "direct")
_MOST_ROWS = 200_000

Label = Annotated[str | None, typer.Option(help="The column that holds the label.")]
Classes = Annotated[
    str | None, typer.Option(help="How many labels there are (0, 1, …), or their values: no,yes.")
]
Device = Annotated[
    str, typer.Option(help="Where networks are trained: cpu, cuda, or auto for a GPU if any.")
]
Seed = Annotated[int, typer.Option(help="Of what is learned in-house; the noise has none.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (fit, export, privatize, learn, evaluate, plan):
        app.command()(command)


def fit(
    data: Data,
    epsilon: Annotated[float, typer.Option(help="What one report, label included, may cost.")],
    out: Out,
    kind: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}.")] = "codebook",
    people: Annotated[int | None, typer.Option(help="How many are expected to report.")] = None,
    classes: Classes = None,
    label: Annotated[str | None, typer.Option(help="A column to leave out.")] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="Public bounds and categories (JSON), else read off the rows."),
    ] = None,
    image: Annotated[str | None, typer.Option(help="Rows are images, e.g. 28x28.")] = None,
    features: Annotated[
        str | None,
        typer.Option(help="scattering, quantile, raw, random, autoencoder or invariant."),
    ] = None,
    codewords: Annotated[int | None, typer.Option(help="Instead of the rule's choice.")] = None,
    latent_dimension: Annotated[int, typer.Option(help="Of vlm and gaussian.")] = 8,
    radius: Annotated[float, typer.Option(help="Of vlm and gaussian: latents are clipped.")] = 5.0,
    pretraining_epsilon: Annotated[
        str, typer.Option(help="Of vlm and gaussian: noise while training, or 'learned'.")
    ] = "15",
    delta: Annotated[float | None, typer.Option(help="Of gaussian.")] = None,
    unit: Annotated[
        str, typer.Option(help="record, or person where everyone reports one row once.")
    ] = "record",
    central_epsilon: Annotated[
        float | None, typer.Option(help="What all that is learned may cost the in-house rows.")
    ] = None,
    central_delta: CentralDelta = None,
    inhouse_public: InhousePublic = False,
    rows: Annotated[
        int, typer.Option(help="Learn from at most so many rows, drawn at random.")
    ] = _MOST_ROWS,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn a mechanism from in-house rows, without labels, and write it as a directory.

    Example: tacit fit inhouse.parquet --epsilon 2 --people 10000 --classes 10 --image 28x28
    --label digit --out mechanism
    """
    from tacit.data import tables
    from tacit.local.learned.features import TRAINED
    from tacit.privacy import devices

    errors.choice("fit", "kind", kind, KINDS)
    must_be_new(out)
    trains = kind in ("vlm", "gaussian") or features in TRAINED
    device = devices.resolve("fit", device, used=trains)
    given = None if schema is None else read_schema(schema)
    mechanism = _mechanism(kind, locals())  # a wrong parameter is refused before data is read
    table, total = tables.sample(data, rows, seed, given)
    _all_rows("fit", total, rows, central_epsilon)
    table = tables.without_label(table, label, data)
    if given is None and central_epsilon is None:
        # A schema names the features itself; under a guarantee values must not decide a refusal.
        _no_label_among_features(table, mechanism.classes, data)
    with naming(data):
        mechanism.fit(
            table,
            schema=given,
            image=image_size(image),
            seed=seed,
            device=device,
            inhouse_public=inhouse_public,
        )
    mechanism.save(out)
    channel = mechanism.channel()
    values = {
        "kind": kind,
        "rows": table.num_rows,
        "rows_in_file": total,
        "columns": len(mechanism.schema.names),
        "labels": [str(c) for c in mechanism.classes]
        if channel.labelled
        else "none: reports hold no label",
        "codewords": getattr(mechanism, "codewords_", None),
        "bytes_a_report": channel.report_bytes,
        "guarantee": str(channel.guarantee),
        "in_house_rows": described(mechanism.inhouse_),
        "written": str(out),
    }
    print_values(values, as_json, "Fitted")


def privatize(
    mechanism: Annotated[Path, typer.Argument(help="The directory that fit wrote.", metavar="DIR")],
    data: Annotated[
        Path,
        typer.Argument(
            help="CSV (with a header), Parquet, or a folder of Parquet parts.", metavar="DATA"
        ),
    ],
    out: Out,
    epsilon: Annotated[float | None, typer.Option(help="Another ε than it was fitted for.")] = None,
    label: Label = None,
    engine: Annotated[
        str, typer.Option(help="local, or ray: the workers of a Ray cluster share the parts.")
    ] = "local",
    as_json: AsJson = False,
) -> None:
    """Release one report a row, batch by batch. On a person's own device: a file of one row.

    Example: tacit privatize mechanism person.csv --label digit --out reports.parquet
    """
    from tacit.local import distributed
    from tacit.local.reports import ReportsWriter
    from tacit.privacy import artifact

    errors.choice("privatize", "engine", engine, distributed.ENGINES)
    must_be_new(out)
    local = must_have(artifact.load(mechanism), "release", mechanism)
    if epsilon is not None:
        local = local.at(epsilon)
    if label is not None and label in local.schema.names:
        remedy = f"Fit again with --label {label}."
        errors.refuse("privatize", "label", "no column that it was fitted on", label, remedy)
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
    reports: Annotated[list[Path], typer.Argument(help="What privatize wrote, in any number.")],
    out: Out,
    inhouse: Annotated[
        Path | None, typer.Option(help="In-house rows for a student; the model must stay inside.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="A column of --inhouse to leave out.")] = None,
    rows: Annotated[int, typer.Option(help="Of --inhouse, at most so many.")] = _MOST_ROWS,
    central_epsilon: Annotated[
        float | None,
        typer.Option(help="Teach the student with DP-Adam, at this price to --inhouse."),
    ] = None,
    central_delta: CentralDelta = None,
    inhouse_public: InhousePublic = False,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn a classifier from reports, through the known noise.

    Example: tacit learn reports.parquet --out model
    """
    from tacit.data import tables
    from tacit.local.inference.noise_aware import NoiseAwareClassifier
    from tacit.local.inference.student import StudentClassifier
    from tacit.local.reports import Reports
    from tacit.privacy import devices

    must_be_new(out)
    devices.resolve("learn", device, used=False)  # refused before anything is read
    released = Reports.concatenate([Reports.read(path) for path in reports])
    model: Any = NoiseAwareClassifier(seed=seed, device=device)
    if inhouse is not None:
        table, total = tables.sample(inhouse, rows, seed, released.schema)
        _all_rows("learn", total, rows, central_epsilon)
        table = tables.without_label(table, label, inhouse)
        model = StudentClassifier(
            inhouse=table,
            seed=seed,
            central_epsilon=central_epsilon,
            central_delta=central_delta,
            inhouse_public=inhouse_public,
            device=device,
        )
    elif central_epsilon is not None or central_delta is not None:
        errors.refuse("learn", "--inhouse", "given with --central-epsilon", None)
    with naming(inhouse or reports[0]), warnings_on_stderr():
        if not released.labelled:
            raise errors.InvalidData("reports must hold labels. Privatize with --label.")
        model.fit(released)
    model.save(out)
    values = {
        "reports": len(released),
        "classes": [str(value) for value in model.classes_],
        "guarantee": str(model.guarantee_),
        "in_house_rows": described(model.inhouse_),
        "written": str(out),
    }
    print_values(values, as_json, "Learned")


def evaluate(
    model: Annotated[Path, typer.Argument(help="The directory that learn wrote.", metavar="MODEL")],
    data: Data,
    label: Annotated[
        str | None,
        typer.Option(help="The column that holds the label; the surplus one if left out."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Accuracy of a model on clean, labelled rows, in all and by class.

    Example: tacit evaluate model test.parquet --label digit
    """
    from tacit.data import tables
    from tacit.local.evaluation import Tally
    from tacit.privacy import artifact

    classifier = must_have(artifact.load(model), "predict", model)
    given = classifier.mechanism_.schema
    tally = Tally(tuple(classifier.classes_.tolist()))
    label = label or _surplus(next(tables.batches(data, given)), given.names, data)
    with rows_progress(tables.count(data)) as advance:
        for batch in tables.batches(data, given, words=words_of(tally.classes, label)):
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


def export(
    directory: Annotated[
        Path, typer.Argument(help="A mechanism or a model, as written in-house.", metavar="DIR")
    ],
    out: Out,
    application: Annotated[
        str, typer.Option(help="collection, novel-class, join or validation.")
    ] = "collection",
    level: Annotated[str, typer.Option(help="latent or feature.")] = "latent",
    as_json: AsJson = False,
) -> None:
    """Write what people, voters or partners get; refused where in-house rows would go with it.

    Example: tacit export mechanism --out for-people
    """
    from tacit.local import inhouse
    from tacit.privacy import artifact

    must_be_new(out)
    thing = artifact.load(directory)
    if thing.kind == "estimator":
        remedy = "What save wrote may leave as it is, if its certificate says enough."
        wanted = "a mechanism, an encoder or a model of reports"
        errors.refuse("command line", "directory", wanted, str(directory), remedy)
    values: dict[str, Any] = {}
    needed = inhouse.requirements(application, level)
    if thing.kind == "anonymizing-encoder":
        thing.export(out)
        values["needed_outside"] = ["encoder"]
    elif hasattr(thing, "release"):
        thing.export(out, application, level)
        values["needed_outside"] = list(needed) or "the channel of reports alone"
    else:
        thing.export(out)
        values["needed_outside"] = ["classifier", "the mechanism that it runs on"]
    alone = not thing.inhouse_.may_leave
    values |= {
        "in_house_rows": "not in the file; reports made with it tell of them"
        if alone
        else described(thing.inhouse_),
        "written": str(out),
    }
    print_values(values, as_json, "Exported")


def plan(
    classes: Annotated[int, typer.Option(help="How many labels there are.")],
    epsilon: Annotated[float, typer.Option(help="What one report may cost.")],
    target_accuracy: Annotated[float, typer.Option(help="What the classifier should reach.")],
    people: Annotated[int | None, typer.Option(help="If known: what to expect of them.")] = None,
    inhouse: Annotated[
        Path | None, typer.Option(help="In-house rows: simulate on their own structure.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="A column of --inhouse to leave out.")] = None,
    image: Annotated[str | None, typer.Option(help="Rows are images, e.g. 28x28.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """How many people are needed, and what to expect, before anything is collected.

    Example: tacit plan --classes 10 --epsilon 1 --target-accuracy .9
    """
    from tacit.data import tables
    from tacit.local import plan as planning

    table = None
    if inhouse is not None:
        table, _ = tables.sample(inhouse, planning.MOST_ROWS, seed)
        table = tables.without_label(table, label, inhouse)
    made = planning.plan(
        classes=classes,
        epsilon=epsilon,
        target_accuracy=target_accuracy,
        people=people,
        inhouse=table,
        image=image_size(image),
        seed=seed,
    )
    if as_json:
        return print_json(made.to_dict())
    lines = [
        (f"{row.epsilon:g}", f"{row.people:,}", str(row.codewords), f"{row.accuracy:.3f}")
        for row in made.rows
    ]
    print_table(made.title, ("ε", "people", "codewords", "accuracy"), lines)
    for sentence in (made.answer, *made.assumptions):
        print_text(f"- {sentence}")


def _all_rows(where: str, total: int, rows: int, central_epsilon: float | None) -> None:
    """A sample of fixed size would swap rows where one is missing: twice what noise counts on."""
    if central_epsilon is not None and total > rows:
        remedy = "With a central budget all rows are taken: raise it, or shorten the file."
        errors.refuse(where, "--rows", f"at least the {total} of the file", rows, remedy)


def _mechanism(kind: str, given: dict[str, Any]) -> Any:
    shared = ("epsilon", "unit", "central_epsilon", "central_delta")
    common = {name: given[name] for name in shared}
    common["classes"] = declared_classes(given["classes"])
    if kind == "codebook":
        from tacit.local.learned.codebook import Codebook

        wanted = ("people", "codewords", "features")
        return Codebook(**common, **{name: given[name] for name in wanted})
    if kind == "direct":
        from tacit.local.learned.direct import Direct

        return Direct(**common)
    from tacit.local.learned.vlm import VLM

    pretraining = given["pretraining_epsilon"]
    if pretraining != "learned":
        pretraining = errors.positive("fit", "pretraining-epsilon", pretraining)
    return VLM(
        **common,
        latent_dimension=given["latent_dimension"],
        radius=given["radius"],
        pretraining_epsilon=pretraining if pretraining == "learned" else float(pretraining),
        noise="laplace" if kind == "vlm" else "gaussian",
        delta=given["delta"],
    )


def _no_label_among_features(table: Any, classes: tuple[Any, ...] | None, path: Path) -> None:
    """A label left among the in-house columns would become a feature, unnoticed."""
    if not classes or isinstance(classes[0], int):
        return
    for name in table.column_names:
        values = table.column(name).unique().to_pylist()
        if {str(value) for value in values} == set(classes):
            remedy = f"Pass --label {name} to leave it out."
            errors.refuse(
                "fit", "column", f"no holder of the declared classes in {path}", name, remedy
            )


def _surplus(batch: Any, names: tuple[str, ...], path: Path) -> str:
    surplus = [name for name in batch.schema.names if name not in names]
    if len(surplus) != 1:
        found = f"{path.name} has {len(surplus)} columns beside the mechanism's"
        errors.refuse("evaluate", "--label", f"given: {found}", None)
    return str(surplus[0])


def _line(part: dict[str, Any]) -> tuple[str, str, str]:
    low, high = part["interval"]
    return f"{part['rows']:,}", f"{part['accuracy']:.4f}", f"{low:.4f} to {high:.4f}"
