"""`tacit collect fit`, `adapt`, `export`: the mechanism that runs on people's devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import print_values
from tacit.apps.cli.files import (
    declared_classes,
    declared_outcome,
    described,
    image_size,
    must_be_new,
    read_schema,
    signal_size,
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
from tacit.data.tables import naming
from tacit.privacy import errors

KINDS = ("collection", "codebook", "partitions", "vlm", "gaussian", "direct")
"""Mechanisms by name; "collection" is what `tacit.Collection` chooses for the rows."""

_BY_CELLS = ("collection", "partitions")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app,
        "Mechanisms",
        "tacit collect fit inhouse.parquet --epsilon 2 --people 10000 --classes 10 "
        "--image 28x28 --label digit --out mechanism",
    )(fit)
    command(
        app, "Mechanisms", "tacit collect adapt model --inhouse inhouse.csv --out second-round"
    )(adapt)
    command(app, "Mechanisms", "tacit collect export mechanism --out for-people")(export)


def fit(
    data: Data,
    epsilon: Annotated[float, typer.Option(help="Local ε of one report, label included.")],
    out: Out,
    kind: Annotated[
        str, typer.Option(help=f"Mechanism: {', '.join(KINDS)}. A collection chooses.")
    ] = "collection",
    people: Annotated[
        int | None, typer.Option(help="Number of people who are expected to report.")
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Number of classes (labels 0, 1, …), or their values: no,yes."),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            help="Public bounds of a number that people report in place of a label: 0:80 "
            "(collection, codebook, partitions).",
            metavar="LOWER:UPPER",
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column to leave out: the label or outcome.")
    ] = None,
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
        str | None,
        typer.Option(
            help="Points in time and channels, if rows are signals: 128x9 (collection, partitions)."
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Features of the codebook: scattering, quantile, raw, random, autoencoder or "
            "invariant.",
            show_default="scattering for images, quantile for tables, else raw",
        ),
    ] = None,
    codewords: Annotated[
        int | None,
        typer.Option(
            help="Number of codewords (codebook), or of cells in a partition (partitions).",
            show_default="chosen for ε, people and classes",
        ),
    ] = None,
    latent_dimension: Annotated[
        int, typer.Option(help="Dimension of the latents (vlm, gaussian).")
    ] = 8,
    radius: Annotated[
        float, typer.Option(help="Norm to which latents are clipped (vlm, gaussian).")
    ] = 5.0,
    pretraining_epsilon: Annotated[
        str, typer.Option(help="ε of the noise in training, or 'learned' (vlm, gaussian).")
    ] = "15",
    delta: Annotated[float | None, typer.Option(help="Local δ of one report (gaussian).")] = None,
    unit: Annotated[
        str, typer.Option(help="record, or person if everyone reports one row once.")
    ] = "record",
    central_epsilon: Annotated[
        float | None, typer.Option(help="Central ε of everything learned, for the in-house rows.")
    ] = None,
    central_delta: CentralDelta = None,
    inhouse_public: InhousePublic = False,
    rows: Annotated[
        int, typer.Option(help="Largest number of rows to learn from, drawn at random.")
    ] = MOST_ROWS,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn a mechanism from in-house rows without labels, and write it as a directory."""
    from tacit.data import tables
    from tacit.local.learned.features import TRAINED
    from tacit.privacy import devices

    errors.choice("fit", "--kind", kind, KINDS)
    must_be_new(out)
    trains = kind in ("vlm", "gaussian") or features in TRAINED
    device = devices.resolve("fit", device, used=trains)
    declared = None if schema is None else read_schema(schema)
    made = _mechanism(kind, locals())  # a wrong parameter is refused before data are read
    table, total = tables.sample(data, rows, seed, declared)
    must_take_all("fit", total, rows, central_epsilon)
    table = tables.without_label(table, label, data)
    if declared is None and central_epsilon is None:
        # A schema names the features itself; under a guarantee values must not decide a refusal.
        _no_label_among_features(table, declared_classes(classes), data)
    given: dict[str, Any] = {"schema": declared, "seed": seed, "inhouse_public": inhouse_public}
    given["image"] = image_size(image)
    given |= {"signal": signal_size(signal)} if kind in _BY_CELLS else {"device": device}
    with naming(data), warnings_on_stderr():
        made.fit(table, **given)
    mechanism = made.mechanism_ if kind == "collection" else made
    kind = mechanism.kind if kind == "collection" else kind
    mechanism.save(out)
    rows_used = {"rows": table.num_rows, "rows_in_file": total}
    values = {"kind": kind, **rows_used, **_fitted(mechanism, kind), "written": str(out)}
    print_values(values, as_json, "Fitted")


def adapt(
    model: Annotated[
        Path,
        typer.Argument(help="Directory that learn wrote, from partitions.", metavar="MODEL"),
    ],
    out: Out,
    inhouse: Annotated[
        Path | None,
        typer.Option(
            help="In-house rows, as for fit.",
            show_default="synthetic rows, if the mechanism was fitted with --central-epsilon",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column to leave out: the label.")] = None,
    rows: Annotated[
        int, typer.Option(help="Largest number of rows of --inhouse to use.")
    ] = MOST_ROWS,
    inhouse_public: InhousePublic = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Write the mechanism of the next round, whose cells follow what a model has learned."""
    from tacit.data import tables
    from tacit.privacy import artifact

    must_be_new(out)
    learned = artifact.load(model)
    if learned.kind not in ("proportions", "moments"):
        remedy = "Fit a collection or partitions, and learn with --inhouse."
        errors.refuse("adapt", "MODEL", "learned from partitions", learned.kind, remedy)
    table = None
    if inhouse is not None:
        table, _ = tables.sample(inhouse, rows, seed, learned.mechanism_.schema)
        table = tables.without_label(table, label, inhouse)
    with naming(inhouse or model), warnings_on_stderr():
        mechanism = learned.next_round(table, inhouse_public=inhouse_public, seed=seed)
    mechanism.save(out)
    values = {"kind": "partitions", **_fitted(mechanism, "partitions"), "written": str(out)}
    print_values(values, as_json, "Adapted")


def export(
    directory: Annotated[
        Path, typer.Argument(help="Directory of a mechanism, an encoder or a model.", metavar="DIR")
    ],
    out: Out,
    application: Annotated[
        str, typer.Option(help="Use: collection, novel-class, join or validation.")
    ] = "collection",
    level: Annotated[
        str, typer.Option(help="Level of the classifier: latent or feature.")
    ] = "latent",
    as_json: AsJson = False,
) -> None:
    """Write what people, voters or partners receive, unless it would carry in-house rows out."""
    from tacit.local import inhouse
    from tacit.privacy import artifact

    must_be_new(out)
    thing = artifact.load(directory)
    if thing.kind == "estimator":
        remedy = "What save wrote may leave as it is, as far as its certificate goes."
        wanted = "a mechanism, an encoder or a model of reports"
        errors.refuse("command line", "directory", wanted, str(directory), remedy)
    values: dict[str, Any] = {}
    needed = inhouse.requirements(application, level)
    if thing.kind == "anonymizing-encoder":
        thing.export(out)
        values["needed_outside"] = ["encoder"]
    elif hasattr(thing, "release"):
        thing.export(out, application, level)
        values["needed_outside"] = list(needed) or "only the channel of reports"
    else:
        thing.export(out)
        values["needed_outside"] = ["classifier", "the mechanism that it runs on"]
    alone = not thing.inhouse_.may_leave
    values |= {
        "in_house_rows": "not in the file, but reports made with it depend on them"
        if alone
        else described(thing.inhouse_),
        "written": str(out),
    }
    print_values(values, as_json, "Exported")


def _fitted(mechanism: Any, kind: str) -> dict[str, Any]:
    """Describe a fitted mechanism."""
    channel = mechanism.channel()
    sent = {} if channel.report_bytes is None else {"bytes_per_report": channel.report_bytes}
    if kind == "partitions":
        cells = {"partitions": mechanism.partitions, "cells_per_partition": mechanism.codewords_}
    else:
        cells = {"codewords": getattr(mechanism, "codewords_", None)}
    return {
        "columns": len(mechanism.schema.names),
        **_reported(mechanism, channel),
        **cells,
        **sent,
        "guarantee": str(channel.guarantee),
        "in_house_rows": described(mechanism.inhouse_),
    }


def _reported(mechanism: Any, channel: Any) -> dict[str, Any]:
    """Describe what a report holds besides the row."""
    if mechanism.outcome is not None:
        return {"outcome": [mechanism.outcome.lower, mechanism.outcome.upper]}
    if not channel.labelled:
        return {"labels": "none: reports hold no label"}
    return {"labels": [str(value) for value in mechanism.classes]}


def _mechanism(kind: str, options: dict[str, Any]) -> Any:
    shared = ("epsilon", "unit", "central_epsilon", "central_delta")
    common = {name: options[name] for name in shared}
    common["classes"] = declared_classes(options["classes"])
    outcome = declared_outcome(options["outcome"])
    if kind in ("codebook", *_BY_CELLS):
        common["outcome"] = outcome
    elif outcome is not None:
        errors.refuse("fit", "--outcome", f"absent with --kind {kind}", options["outcome"])
    if kind not in _BY_CELLS and options["signal"] is not None:
        errors.refuse("fit", "--signal", f"absent with --kind {kind}", options["signal"])
    if kind == "codebook":
        from tacit.local.learned.codebook import Codebook

        wanted = ("people", "codewords", "features")
        return Codebook(**common, **{name: options[name] for name in wanted})
    if kind == "collection":
        from tacit.local.collection import Collection

        _must_suit_collection(options)
        return Collection(**common, people=options["people"])
    if kind == "partitions":
        from tacit.local.learned.partitions import Partitions

        if options["features"] is not None:
            condition = "absent with --kind partitions"
            errors.refuse("fit", "--features", condition, options["features"])
        return Partitions(**common, **{name: options[name] for name in ("people", "codewords")})
    if kind == "direct":
        from tacit.local.learned.direct import Direct

        return Direct(**common)
    from tacit.local.learned.vlm import VLM

    pretraining = options["pretraining_epsilon"]
    if pretraining != "learned":
        pretraining = errors.positive("fit", "pretraining_epsilon", pretraining)
    return VLM(
        **common,
        latent_dimension=options["latent_dimension"],
        radius=options["radius"],
        pretraining_epsilon=pretraining if pretraining == "learned" else float(pretraining),
        noise="laplace" if kind == "vlm" else "gaussian",
        delta=options["delta"],
    )


def _must_suit_collection(options: dict[str, Any]) -> None:
    """Refuse what a collection chooses itself, and reports without labels."""
    for name in ("codewords", "features"):
        if options[name] is not None:
            remedy = "A collection chooses it. Pass --kind codebook to choose it yourself."
            condition = "absent with --kind collection"
            errors.refuse("fit", f"--{name}", condition, options[name], remedy)
    if options["classes"] is None and options["outcome"] is None:
        remedy = "For reports without labels pass --kind codebook."
        errors.refuse("fit", "--classes", "given, or --outcome", None, remedy)
    if options["people"] is None:
        remedy = "A collection is chosen for a number of people."
        errors.refuse("fit", "--people", "given", None, remedy)


def _no_label_among_features(table: Any, classes: int | list[str] | None, path: Path) -> None:
    """Refuse a label among the in-house columns: it would become a feature, unnoticed."""
    if not isinstance(classes, list):
        return
    for name in table.column_names:
        values = table.column(name).unique().to_pylist()
        if {str(value) for value in values} == set(classes):
            remedy = f"Pass --label {name} to leave it out."
            errors.refuse(
                "fit",
                "column",
                f"another than that of the declared classes in {path}",
                name,
                remedy,
            )


def must_take_all(where: str, total: int, rows: int, central_epsilon: float | None) -> None:
    """Refuse to sample rows under a central guarantee.

    In a sample of fixed size another row takes the place of one that is missing: twice the change
    that the noise is calibrated to.
    """
    if central_epsilon is not None and total > rows:
        remedy = "Under a central guarantee all rows are used: raise it, or shorten the file."
        errors.refuse(where, "--rows", f"at least the {total} rows of the file", rows, remedy)
