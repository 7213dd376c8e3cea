"""Tables of records, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

_KEYS = ("mechanism", "level", "task", "central_epsilon")
_MEASURES = {
    "clean_accuracy": "clean",
    "clean_auc": "clean, AUC",
    "private_accuracy": "private",
    "semi_private_accuracy": "semi-private",
    "dedicated_accuracy": "dedicated reports",
    "estimated_accuracy": "estimated by votes",
    "test_accuracy": "on test rows",
}


def table(record: Mapping[str, Any]) -> Table:
    """Return title, header and lines: one line per mechanism and measure, one column per ε."""
    results = record["results"]
    epsilons = sorted({result["epsilon"] for result in results})
    keys = [key for key in _KEYS if len({str(result.get(key)) for result in results}) > 1]
    keys = keys or ["mechanism"]
    measures = [name for name in _MEASURES if any(name in result for result in results)]
    groups: dict[tuple[str, ...], dict[float, Any]] = {}
    for result in results:
        name = tuple(_shown(result.get(key)) for key in keys)
        groups.setdefault(name, {})[result["epsilon"]] = result
    lines = [
        (
            f"{', '.join(name)}\n  {_MEASURES[measure]}",
            *(_cell(by.get(e), measure) for e in epsilons),
        )
        for name, by in groups.items()
        for measure in measures
        if any(measure in result for result in by.values())
    ]
    for name, reference in record["references"].items():
        value = f"{reference:.3f}" if isinstance(reference, float) else _summary(reference)
        lines.append((name.replace("_", " "), *[value] * len(epsilons)))
    header = ", ".join(key.replace("_epsilon", " ε") for key in keys)
    return _title(record), (header, *(f"ε = {e:g}" for e in epsilons)), lines


def trials(record: Mapping[str, Any]) -> str:
    """State the number of trials."""
    count = record["parameters"]["trials"]
    return "1 trial" if count == 1 else f"{count} trials"


def _title(record: Mapping[str, Any]) -> str:
    data = record["data"]
    sizes = ", ".join(
        f"{data[name]:,} {words}"
        for name, words in (("inhouse", "in-house"), ("people", "people"), ("test", "test rows"))
        if name in data
    )
    described = "; ".join(filter(None, (sizes, trials(record))))
    return f"{record['study']}, {record['parameters']['data']}: {described}"


def _cell(result: Mapping[str, Any] | None, measure: str) -> str:
    return "" if result is None or measure not in result else _summary(result[measure])


def _summary(measure: Mapping[str, Any]) -> str:
    deviation = f"\n±{measure['std']:.3f}" if len(measure["trials"]) > 1 else ""
    return f"{measure['mean']:.3f}{deviation}"


def _shown(value: Any) -> str:
    return "∞" if value == "inf" else f"{value:g}" if isinstance(value, float) else str(value)
