"""The records of one study on one data set: their values, and tables of them.

What no record holds raises `Missing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Result = dict[str, Any]
Series = tuple[Any, ...]
Lines = dict[Series, dict[float, Result]]
KEYS = (
    "mechanism",
    "features",
    "level",
    "central_epsilon",
    "task",
    "training",
    "strength",
    "model",
    "estimator",
    "algorithm",
    "library",
    "partition",
    "attack",
    "defence",
)
"""Keys that identify a line of a table; columns are values of ε."""

ORDER: dict[str, tuple[Any, ...]] = {
    "mechanism": ("codebook", "vlm", "vlm-paper", "vlm-tuned", "direct"),
    "features": ("scattering", "quantile", "raw", "random", "autoencoder", "invariant"),
    "level": ("latent", "feature"),
}
"""Order of the lines of tables; all other lines come after."""

MEASURES = {
    "clean_accuracy": "accuracy on clean rows",
    "table_accuracy": "accuracy on clean rows, from the label table without a student",
    "clean_auc": "area under the curve on clean rows",
    "private_accuracy": "accuracy on rows that are themselves reported",
    "semi_private_accuracy": "accuracy with our columns clean and theirs reported",
    "estimated_accuracy": "accuracy as estimated from votes",
    "test_accuracy": "accuracy of the winner on test rows",
    "dedicated_accuracy": "accuracy from reports made for that task alone",
}


class Missing(LookupError):
    """No record holds what a page asks for."""


@dataclass(frozen=True)
class StudyEvidence:
    """All records of one study on one data set (and one column split, or one new class)."""

    records: Sequence[dict[str, Any]]
    results: list[Result] = field(init=False)

    def __post_init__(self) -> None:
        results: dict[Series, Result] = {}
        for record in self.records:
            for result in record["results"]:
                key = (series_of(result), result.get("epsilon"))
                if key in results:
                    named = ", ".join(str(part) for part in key[0] if part is not None)
                    epsilon = "∞" if key[1] is None else f"{key[1]:g}"
                    raise ValueError(
                        f"{record['file']}: {named} at ε = {epsilon} is in another record, too. "
                        "Keep one of them."
                    )
                results[key] = result
        object.__setattr__(self, "results", sorted(results.values(), key=_place))

    def reference(self, name: str) -> Any:
        """Return the first reference of this name in any record."""
        for record in self.records:
            if name in record.get("references", {}):
                return record["references"][name]
        raise Missing(name)

    def lines(self, measure: str) -> Lines:
        """Return the results that have the measure, by series and ε."""
        lines: Lines = {}
        for result in self.results:
            if result.get(measure) is not None:
                lines.setdefault(series_of(result), {})[result["epsilon"]] = result
        if not lines:
            raise Missing(MEASURES.get(measure, measure))
        return lines

    def unprotected(self, measure: str) -> Lines:
        """Return the series without a central guarantee, on which mechanisms are compared."""
        lines = self.lines(measure)
        return {s: line for s, line in lines.items() if s[3] in (None, "inf")} or lines

    def name(self, series: Series, among: Iterable[Series] | None = None) -> str:
        """Name a series by what distinguishes it from others of its mechanism."""
        every = map(series_of, self.results) if among is None else among
        own = [s for s in every if s[0] == series[0]]
        words = [str(series[0])]
        for at, form in enumerate(("{} features", "{} level", "central ε = {}"), start=1):
            if len({s[at] for s in own}) > 1 and series[at] is not None:
                words.append(form.format("∞" if series[at] == "inf" else listed([series[at]])))
        return ", ".join(words + ([f"task: {series[4]}"] if series[4] is not None else []))


def series_of(result: Result) -> Series:
    """Return the series of a result: all its keys but ε."""
    return tuple(result.get(key) for key in KEYS)


def _place(result: Result) -> list[float]:
    """Return the sort key of a result; weaker central guarantees come first."""
    places = [
        order.index(result.get(key)) if result.get(key) in order else len(order)
        for key, order in ORDER.items()
    ]
    return [*places, -float(result.get("central_epsilon") or "inf")]


def shown(value: Any) -> str:
    """Show mean and standard deviation of a measure over its trials, or a plain number."""
    if not isinstance(value, dict):
        return f"{value:.3f}"
    # No line breaks inside of a number.
    deviation = f"\u00a0±\u00a0{value['std']:.3f}" if len(value["trials"]) > 1 else ""
    return f"{value['mean']:.3f}{deviation}"


def signed(change: float) -> str:
    """Show a change with its sign."""
    return f"{change:+.3f}".replace("-", "−")


def listed(items: Iterable[Any]) -> str:
    """Join items as in "1, 2 and 4"."""
    words = [f"{item:g}" if isinstance(item, int | float) else str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def epsilons_of(lines: Lines) -> list[float]:
    """List every ε of some series, in order."""
    return sorted({epsilon for line in lines.values() for epsilon in line})


def measured(evidence: StudyEvidence, measure: str) -> str:
    """Tabulate series against ε; private accuracy with its ceilings."""
    lines = evidence.lines(measure)
    epsilons = epsilons_of(lines)
    rows = [
        [evidence.name(s), *(shown(line[e][measure]) if e in line else "" for e in epsilons)]
        for s, line in lines.items()
    ]
    if measure == "private_accuracy":
        rows += _ceilings(lines, epsilons)
    return table(["local ε", *(f"{e:g}" for e in epsilons)], rows)


def _ceilings(lines: Lines, epsilons: list[float]) -> list[list[str]]:
    """Return ceilings for every share of ε that some series spend on the row itself."""
    shares: dict[float, dict[float, dict[str, float]]] = {}
    for line in lines.values():
        for e, result in line.items():
            if "ceilings" in result:
                share = round(result["ceilings"]["epsilon"] / e, 3)
                shares.setdefault(share, {})[e] = result["ceilings"]
    names = {"laplace": "additive Laplace noise", "universal": "any channel"}
    return [
        [
            f"*ceiling of {name}, {share:g} ε on the row*",
            *(shown(at[e][key]) if e in at and key in at[e] else "" for e in epsilons),
        ]
        for share, at in sorted(shares.items())
        for key, name in names.items()
        if any(key in known for known in at.values())
    ]


def value(evidence: StudyEvidence, wanted: str) -> str:
    """Return a value such as `codebook at 2` or `codebook private_accuracy at 2`."""
    words, _, epsilon = wanted.rpartition(" at ")
    held = [m for m in MEASURES if any(result.get(m) is not None for result in evidence.results)]
    measure = next((m for m in MEASURES if words.endswith(f" {m}")), held[0] if held else "")
    name = words.removesuffix(f" {measure}")
    for lines in (evidence.unprotected(measure), evidence.lines(measure)):
        for series, line in lines.items():
            names = (evidence.name(series), evidence.name(series, lines), series[0])
            if name in names and float(epsilon) in line:
                return shown(line[float(epsilon)][measure])
    raise Missing(wanted)
