"""`tacit collect evaluate`: how good a model is on clean, labelled rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.answers import Costs, Priors, Threshold, decision
from tacit.apps.cli.console import print_json, print_table
from tacit.apps.cli.files import must_have, rows_progress, warnings_on_stderr
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Data
from tacit.data.tables import naming, words_of
from tacit.privacy import errors


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "Reports", "tacit collect evaluate model test.parquet --label digit")(evaluate)


def evaluate(
    model: Annotated[Path, typer.Argument(help="Directory that learn wrote.", metavar="MODEL")],
    data: Data,
    label: Annotated[
        str | None,
        typer.Option(help="Column of the label.", show_default="the one column that is no feature"),
    ] = None,
    priors: Priors = None,
    costs: Costs = None,
    threshold: Threshold = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model on clean, labelled rows: accuracy, recall, precision, area under the curve.

    With --priors, --costs or --threshold it is measured as if it had been learned with them. For a
    regressor: R² and the mean absolute error.
    """
    from tacit.data import tables
    from tacit.local.evaluation import Tally
    from tacit.privacy import artifact

    classifier = must_have(artifact.load(model), "predict", model)
    declared = classifier.mechanism_.schema
    label = label or _surplus(tables.names(data), declared.names, data)
    if hasattr(classifier, "outcome_"):
        _must_be_absent(priors, costs, threshold)
        return _of_outcomes(classifier, data, label, as_json)
    tally = Tally(tuple(classifier.classes_.tolist()))
    classifier = _decided(classifier, decision("evaluate", tally.classes, priors, costs, threshold))
    with rows_progress(tables.count(data)) as advance, warnings_on_stderr():
        for batch in tables.batches(data, declared, words=words_of(tally.classes, label)):
            rows, values = tables.split_label(batch, label, data)
            with naming(data):
                truth = tables.as_classes(values, tally.classes, f"column {label!r}")  # type: ignore[arg-type]
                tally.add(truth, *_answered(classifier, rows))
            advance(batch.num_rows)
    if tally.constant is not None:
        print(f"tacit: Every answer is {str(tally.constant)!r}.", file=sys.stderr)
    result = tally.to_dict()
    return print_json(result) if as_json else _print(result)


def _must_be_absent(priors: Any, costs: Any, threshold: Any) -> None:
    options = {"--priors": priors, "--costs": costs, "--threshold": threshold}
    for option, value in options.items():
        if value is not None:
            errors.refuse("evaluate", option, "absent for numeric outcomes", value)


def _of_outcomes(regressor: Any, data: Path, label: str, as_json: bool) -> None:
    """Measure a regressor."""
    from tacit.data import tables
    from tacit.local.evaluation import NumericTally

    tally = NumericTally()
    with rows_progress(tables.count(data)) as advance, warnings_on_stderr():
        for batch in tables.batches(data, regressor.mechanism_.schema):
            rows, values = tables.split_label(batch, label, data)
            with naming(data):
                truth = tables.as_numbers(values, f"column {label!r}")  # type: ignore[arg-type]
                tally.add(truth, regressor.predict(rows))
            advance(batch.num_rows)
    result = tally.to_dict()
    if as_json:
        return print_json(result)
    lines = [
        ("rows", f"{result['rows']:,}", ""),
        ("R²", *_measure(result["r2"])),
        ("mean absolute error", *_measure(result["mean_absolute_error"])),
        ("that of the mean of these rows", f"{result['mean_absolute_error_of_mean']:.4f}", ""),
    ]
    return print_table("On clean rows", ("", "", "95 % interval"), lines)


def _decided(classifier: Any, given: dict[str, Any]) -> Any:
    if given and not hasattr(classifier, "deciding"):
        option = f"--{next(iter(given))}"
        errors.refuse("evaluate", option, "absent for this kind of model", classifier.kind)
    return classifier.deciding(**given) if given else classifier


def _answered(classifier: Any, rows: Any) -> tuple[Any, Any]:
    """Return answers and probabilities; the rows are read once where the model allows it."""
    scores = classifier.predict_proba(rows)
    if not hasattr(classifier, "rule"):
        return classifier.predict(rows), scores
    return classifier.classes_[classifier.rule.places(scores)], scores


def _surplus(present: list[str], names: tuple[str, ...], path: Path) -> str:
    surplus = [name for name in present if name not in names]
    if len(surplus) != 1:
        reason = f"{path.name} has {len(surplus)} columns beside the mechanism's"
        errors.refuse("evaluate", "--label", f"given: {reason}", None)
    return str(surplus[0])


def _print(result: dict[str, Any]) -> None:
    auc, calibration = result["auc"], result["calibration"]
    kind = "area under the ROC curve" if len(result["by_class"]) == 2 else "mean area, each to rest"
    lines = [
        ("rows", f"{result['rows']:,}", ""),
        ("accuracy", f"{result['accuracy']:.4f}", _ends(result["interval"])),
        ("always the largest class", f"{result['largest']:.4f}", ""),
        ("balanced accuracy", *_measure(result["balanced_accuracy"])),
        (kind, *_measure(auc)),
        ("Brier score", f"{calibration['brier']:.4f}", _base(calibration["brier_of_shares"])),
        ("log loss", f"{calibration['log_loss']:.4f}", _base(calibration["log_loss_of_shares"])),
    ]
    print_table("On clean rows", ("", "", "95 % interval"), lines)
    columns = ("class", "rows", "recall", "95 % interval", "answers", "precision", "95 % interval")
    by_class = [
        (
            *(str(one["class"]), f"{one['rows']:,}"),
            *(_number(one["recall"]), _ends(one["interval"]), f"{one['answers']:,}"),
            *(_number(one["precision"]), _ends(one["precision_interval"])),
        )
        for one in result["by_class"]
    ]
    print_table("By class", columns, by_class)


def _measure(part: dict[str, Any]) -> tuple[str, str]:
    return _number(part["value"]), _ends(part["interval"])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _ends(interval: list[float]) -> str:
    if None in interval:
        return "–"
    low, high = interval
    return f"{low:.4f} to {high:.4f}"


def _base(value: float) -> str:
    return f"(class shares alone: {value:.4f})"
