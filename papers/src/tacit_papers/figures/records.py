"""Records of one study, merged and checked for a figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tacit.privacy import errors
from tacit_papers.engine import registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = Mapping[str, Any]

_NAMES = {
    "mnist": "MNIST",
    "digits": "Digits",
    "lending_club": "Lending Club",
    "adult": "Adult",
    "pendigits": "Pen digits",
    "diabetes": "Diabetes",
    "pneumoniamnist": "PneumoniaMNIST",
}
_IMAGES = ("mnist", "digits", "pendigits", "pneumoniamnist")
_SIZES = {
    "training": "training",
    "validation": "validation",
    "inhouse": "in-house",
    "heldout": "held out in-house",
    "people": "people",
    "voters": "voters",
    "test": "test",
}
_SAME_PARAMETERS = ("data", "join", "new")
_LEVELLED = ("vlm", "vlm-paper", "vlm-tuned")
"""Mechanisms whose results belong to one level."""

_CELL = (
    *("mechanism", "features", "level", "central_epsilon", "epsilon", "task"),
    *("training", "strength", "model", "estimator", "algorithm", "library"),
    *("partition", "attack", "defence"),
)
_REMEDY = "Give records that `tacit study` wrote."


class TrialSummary(NamedTuple):
    """Mean and standard deviation over a number of trials."""

    mean: float
    std: float
    trials: int

    @property
    def reach(self) -> tuple[float, float]:
        """Lower and upper end of the error bar."""
        return self.mean - self.std, self.mean + self.std


_NONE = TrialSummary(0.0, 0.0, 0)
_BANDS = ("no_privacy", "all_clean", "clean_only")
"""References that are measured, and so have a standard deviation."""


@dataclass(frozen=True)
class Merged:
    """Results of one study on one data set."""

    study: str
    parameters: Mapping[str, Any]
    data: Mapping[str, Any]
    references: Mapping[str, Any]
    results: Sequence[Result]

    @property
    def name(self) -> str:
        """Name of the data set; that of a file is without folders."""
        data = str(self.parameters["data"])
        return _NAMES.get(data, Path(data).name)

    @property
    def things(self) -> str:
        """Word for its rows."""
        return "images" if self.parameters["data"] in _IMAGES else "records"

    @property
    def trials(self) -> str:
        """Number of trials, in words."""
        counts = {required(one, measure_of(self.study, one)).trials for one in self.results}
        least, most = min(counts), max(counts)
        if most == 1:
            return "1 trial"
        return f"{most} trials" if least == most else f"{least} to {most} trials"

    def caption(self, more: str = "", bars: bool = True) -> str:
        """Return the caption: sizes, what error bars are, and further notes."""
        sizes = [f"{self.data[k]:,} {words}" for k, words in _SIZES.items() if self.data.get(k)]
        spread = "No error bars: 1 trial."
        if self.trials != "1 trial":
            bands = any((self.reference(name) or _NONE).std for name in _BANDS)
            named = "Error bars and bands" if bands else "Error bars"
            spread = f"{named}: one standard deviation of {self.trials}."
        quick = "Quick run." if self.parameters.get("quick") else ""
        said = f"Sizes: {', '.join(sizes)}." if sizes else ""
        return " ".join(filter(None, [said, spread if bars else "", more, quick]))

    def at(self, level: str) -> list[Result]:
        """Return the results of one level; mechanisms without levels appear at every level."""
        mine = [one for one in self.results if one.get("level") in (None, level)]
        there = {one.get("mechanism") for one in mine}.union(_LEVELLED)
        return mine + [one for one in self.results if one.get("mechanism") not in there]

    def reference(self, name: str) -> TrialSummary | None:
        """Return a reference, or None where it was not measured."""
        return measure(self.references, name)


def merge(records: Iterable[Mapping[str, Any]]) -> Merged:
    """Merge records of one study on one data set; references are those of the first record."""
    checked = [_checked(record) for record in records]
    if not checked:
        errors.refuse("plots", "records", "at least one", len(checked), _REMEDY)
    first = checked[0]
    for other in checked[1:]:
        _same("study", first.study, other.study)
        for name in _SAME_PARAMETERS:
            _same(name, first.parameters.get(name), other.parameters.get(name))
        for name in (*_SIZES, "classes"):
            _same(name, first.data.get(name), other.data.get(name))
    results = [result for record in checked for result in record.results]
    cells = {tuple(str(result.get(name)) for name in _CELL) for result in results}
    if len(cells) < len(results):
        raise errors.InvalidData("plots: records must not hold the same point twice. Drop one.")
    references = {k: v for record in reversed(checked) for k, v in record.references.items()}
    return Merged(first.study, first.parameters, first.data, references, results)


def measure_of(study: str, result: Result) -> str:
    """Name the measure that a result must have."""
    first, *others = registry.study(study).measures
    return next((name for name in (first, *others) if name in result), first)


def results_with(
    study: str, names: str
) -> Callable[[Callable[[Merged], Figure]], Callable[[Merged], Figure]]:
    """Make a drawing refuse, in one line, records whose results lack what it reads."""

    def refusing(draw: Callable[[Merged], Figure]) -> Callable[[Merged], Figure]:
        @wraps(draw)
        def drawn(merged: Merged) -> Figure:
            try:
                return draw(merged)
            except (KeyError, TypeError, IndexError, ValueError, AttributeError):
                raise errors.InvalidData(
                    f"plots: {study} must have {names} of every result. {_REMEDY}"
                ) from None

        return drawn

    return refusing


def measure(result: Mapping[str, Any], name: str) -> TrialSummary | None:
    """Read a measure; a plain number has standard deviation 0, a missing one is None."""
    value = result.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, Mapping):
            read = TrialSummary(float(value["mean"]), float(value["std"]), len(value["trials"]))
        else:
            read = TrialSummary(float(value), 0.0, 1)
    except (TypeError, ValueError, KeyError):
        _refuse_number(name)
    return read if math.isfinite(read.mean) and 0 <= read.std < math.inf else _refuse_number(name)


def required(result: Mapping[str, Any], name: str) -> TrialSummary:
    """Read a measure that must be there."""
    return measure(result, name) or _refuse_number(name)


def by_class(result: Result) -> list[TrialSummary]:
    """Read the accuracy of each class."""
    try:
        accuracies = result["by_class"]
        pairs = zip(accuracies["mean"], accuracies["std"], strict=True)
        return [
            TrialSummary(float(mean), float(std), len(accuracies["trials"])) for mean, std in pairs
        ]
    except (TypeError, ValueError, KeyError):
        _refuse_number("by_class")


def central(result: Result) -> float:
    """Read the central ε; ∞ where there is none."""
    return _number("central_epsilon", result.get("central_epsilon", "inf"))


def epsilon(result: Result) -> float:
    """Read the local ε."""
    return _number("epsilon", result.get("epsilon"))


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        _refuse_number(name)
    return number if number > 0 else _refuse_number(name)


def _refuse_number(name: str) -> NoReturn:
    raise errors.InvalidData(f"plots: {name} of every result must be a number. {_REMEDY}")


def _same(name: str, first: Any, other: Any) -> None:
    if first != other:
        errors.refuse("plots", name, f"{first!r} in every record", other, "Draw two figures.")


def _checked(record: Any) -> Merged:
    try:
        merged = Merged(
            str(record["study"]),
            {"data": record["parameters"]["data"], **record["parameters"]},
            dict(record.get("data", {})),
            dict(record.get("references", {})),
            [dict(result) for result in record["results"]],
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise errors.InvalidData(
            f"plots: a record must have study, parameters and results. {_REMEDY}"
        ) from None
    errors.choice("plots", "study", merged.study, registry.names())
    if not merged.results:
        raise errors.InvalidData("plots: a record must have at least one result. Run the study.")
    for result in merged.results:
        required(result, measure_of(merged.study, result))
        if "by_class" in result and len(by_class(result)) != len(merged.data.get("classes", ())):
            raise errors.InvalidData(f"plots: by_class must have one number per class. {_REMEDY}")
        optional = registry.study(merged.study).epsilon_optional and result.get("epsilon") is None
        if not optional and not math.isfinite(epsilon(result)):
            errors.refuse("plots", "epsilon", "finite", result["epsilon"], _REMEDY)
        central(result)
    return merged
