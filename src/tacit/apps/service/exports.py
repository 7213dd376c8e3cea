"""Results as files: a table of all estimates (CSV, Parquet), and a picture of them (PNG)."""

from __future__ import annotations

import csv
import io
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tacit.apps import plots

COLUMNS = ("estimate", "of", "value", "low", "high")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MOST_IN_PICTURE = 20
"""Groups in one panel: the largest."""


class Row(NamedTuple):
    """One estimate: what is estimated, of what, and the ends of its interval; None if unknown."""

    estimate: str
    of: str
    value: float | None
    low: float | None
    high: float | None
    first_date: str | None = None


def rows(summary: dict[str, Any]) -> list[Row]:
    """Return all estimates of the owner's results."""
    found = [_row("share of label", one["class"], one["share"], one) for one in summary["classes"]]
    found += [
        _row("share of group", one["codeword"] + 1, one["share"], one)
        for one in summary["codewords"]
    ]
    found += [
        _row(f"share of group, partition {part['partition'] + 1}", one["codeword"] + 1,
             one["share"], one)
        for part in summary.get("partitions", [])
        for one in part["codewords"]
    ]  # fmt: skip
    if accuracy := summary["accuracy"]:
        found.append(_row("accuracy", "model", accuracy["accuracy"], accuracy))
        if (most := baseline(summary)) is not None:
            found.append(_row("accuracy", f"always answering {most['class']}", most["share"], most))
        found += [
            _row("recall of label", one["class"], one["accuracy"], one)
            for one in accuracy["by_class"]
        ]
    for one in summary.get("answers", []):
        found += _answered(one)
    return found


def baseline(summary: dict[str, Any]) -> dict[str, Any] | None:
    """Return the label with the largest share: a model that looks at nothing is right so often."""
    return max(summary["classes"], key=lambda one: one["share"], default=None)


def _row(estimate: str, of: Any, value: Any, one: dict[str, Any]) -> Row:
    return Row(estimate, str(of), value, *one["interval"])


def _answered(one: dict[str, Any]) -> list[Row]:
    if "interval" not in one:  # of a sheet that nobody has answered yet
        return []
    first, ends = one.get("days_after"), one["interval"]
    if "groups" not in one:
        return [Row(one["question"], "", one["value"], ends[0], ends[1], first)]
    return [
        Row(one["question"], name, value, ends[name][0], ends[name][1], first)
        for name, value in one["groups"].items()
    ]


def as_csv(summary: dict[str, Any]) -> bytes:
    """Write the table as CSV; a text that a spreadsheet would take for a formula is marked."""
    text = io.StringIO()
    lines = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC)
    lines.writerow(COLUMNS)
    for one in rows(summary):
        texts = (f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in one[:2])
        lines.writerow([*texts, *("" if end is None else end for end in one[2:5])])
    return text.getvalue().encode()


def as_parquet(summary: dict[str, Any]) -> bytes:
    """Write the table as Parquet, with the numbers of reports and withdrawals in its metadata."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = list(zip(*(one[:5] for one in rows(summary)), strict=True)) or [()] * len(COLUMNS)
    kinds = [pa.string(), pa.string(), *[pa.float64()] * 3]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    gone = summary["withdrawn"]
    said = {
        "reports": str(summary["reports"]),
        "votes": str(summary["votes"]),
        "confidence": repr(summary["confidence"]),
        "withdrawn_reports": str(gone["reports"]),
        "withdrawn_votes": str(gone["votes"]),
    }
    table = pa.table(dict(zip(COLUMNS, arrays, strict=True))).replace_schema_metadata(said)
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


@dataclass(frozen=True)
class _Estimate:
    label: str
    value: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class _Panel:
    """What `plots.answers` draws in one panel."""

    question: str
    estimates: Sequence[_Estimate]
    first_date: str | None

    def said(self, value: float) -> str:
        from tacit.local.surveys.answers import said

        return said(value, self.first_date)


def as_png(summary: dict[str, Any], title: str) -> bytes:
    """Draw all estimates with their intervals, and say below what they are about."""
    figure = plots.answers(_panels(summary), _caption(summary, title))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.png"
        plots.save(figure, path)
        return path.read_bytes()


def _panels(summary: dict[str, Any]) -> list[_Panel]:
    by_estimate: dict[str, list[Row]] = {}
    for one in rows(summary):
        if ", partition " not in one.estimate:
            by_estimate.setdefault(one.estimate, []).append(one)
    found = []
    for name, own in by_estimate.items():
        largest = sorted(own, key=lambda one: -(one.value or 0))[:_MOST_IN_PICTURE]
        shown = own if len(own) <= _MOST_IN_PICTURE else largest
        found.append(
            _Panel(name.capitalize(), [_estimate(one) for one in shown], own[0].first_date)
        )
    return found


def _estimate(one: Row) -> _Estimate:
    value, low, high = (math.nan if end is None else float(end) for end in one[2:5])
    ends = (-math.inf if one.low is None else low, math.inf if one.high is None else high)
    return _Estimate(one.of, value, ends)


def _caption(summary: dict[str, Any], title: str) -> str:
    answers = f"{summary['reports']:,} reports"
    if summary["votes"]:
        answers += f" and {summary['votes']:,} votes"
    return (
        f"{title}. {answers}. Lines are intervals, each with {summary['confidence']:.0%} "
        f"confidence on its own. {summary['withdrawn']['words']}"
    )
