"""What is seen in a panel, in words and numbers, read off its artists.

Artists to be described carry a label; levels are lines across the panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_MOST = 12
"""Series that a description lists; it says how many more there are."""

_ASIDE = 0.15
"""How far a point may stand from its tick on a logarithmic axis, as a share."""


class _Point(NamedTuple):
    across: float
    up: float


def described(axes: Axes) -> str:
    """Describe a panel: what is drawn against what, and the ends of every curve."""
    title = _plain(axes.get_title(loc="left"))
    if axes.images:
        return f"Heat map. {title}. {' '.join(_rows(axes))}"
    across, up = axes.get_xlabel(), axes.get_ylabel()
    if not up:  # one row per category, values across
        return f"{title}: {across}, by row. {' '.join(_by_row(axes))}"
    drawn = [_curve(axes, label, points) for label, points in _curves(axes).items()]
    more = len(drawn) - _MOST
    if more > 1:
        drawn = [*drawn[:_MOST], f"And {more} more curves."]
    return " ".join([f"{title}: {up} against {across}.", *drawn, *_levels(axes)])


def described_legend(legend: Any) -> str:
    """Describe a legend: headings, and the entries below each."""
    sections: dict[str, list[str]] = {}
    for text in legend.get_texts():
        said = _plain(text.get_text())
        if text.get_fontweight() == "bold":
            heading = said
        sections.setdefault(heading, []).extend([said] if said != heading else [])
    return "Legend. " + " ".join(f"{_headed(head, few)}." for head, few in sections.items())


def _headed(heading: str, entries: Sequence[str]) -> str:
    return f"{heading[0].upper()}{heading[1:]}: {'; '.join(entries).rstrip('.')}"


def _plain(text: str) -> str:
    return " ".join(text.split())


def _number(value: float) -> str:
    """Write three significant digits, never with an exponent."""
    rounded = np.format_float_positional(float(f"{value:.3g}"), trim="-")
    return rounded.replace("-", "−")


# --- curves -----------------------------------------------------------------------------------


def _curves(axes: Axes) -> dict[str, list[_Point]]:
    """Return the points of every labelled curve, from left to right."""
    bars = [
        (str(one.get_label()), one.lines[0]) for one in axes.containers if hasattr(one, "lines")
    ]
    lines = [(str(one.get_label()), one) for one in _lines(axes) if not _is_level(axes, one)]
    points_of: dict[str, list[_Point]] = {}
    for label, line in [*bars, *lines]:
        if not label.startswith("_"):
            places = zip(line.get_xdata(), line.get_ydata(), strict=True)
            points = [_Point(float(x), float(y)) for x, y in places]
            points_of.setdefault(_plain(label), []).extend(points)
    return {label: sorted(points) for label, points in points_of.items() if points}


def _curve(axes: Axes, label: str, points: Sequence[_Point]) -> str:
    """Say where a curve begins and ends, or between which values its points lie."""
    heights = sorted(points, key=lambda one: one.up)
    if axes.get_xlabel().startswith("class"):
        low, high = heights[0], heights[-1]
        return f"{label}: {_at(axes, low)} (lowest) to {_at(axes, high)} (highest)."
    named = [_place(axes.xaxis, one.across) for one in points]
    if len(set(named)) < len(named):
        ends = dict.fromkeys(_height(axes, one.up) for one in (heights[0], heights[-1]))
        return f"{label}: {' to '.join(ends)}."
    ends = dict.fromkeys(_at(axes, one) for one in (points[0], points[-1]))
    return f"{label}: {', '.join(ends)}."


def _at(axes: Axes, point: _Point) -> str:
    return f"{_height(axes, point.up)} at {_place(axes.xaxis, point.across)}"


def _height(axes: Axes, value: float) -> str:
    low, high = sorted(axes.get_ylim())
    return "outside of the panel" if not low <= value <= high else _number(value)


def _place(axis: Axis, value: float) -> str:
    """Name a place: by its tick where ticks count categories, else by its number."""
    ticks = np.asarray(axis.get_ticklocs(), dtype=np.float64)
    labels = [_plain(text.get_text()) for text in axis.get_ticklabels()]
    counted = len(ticks) == len(labels) and np.array_equal(ticks, np.arange(len(ticks)))
    if axis.get_scale() == "log":  # where points stand side by side, their tick is meant
        near = [tick for tick in ticks if abs(tick / value - 1) < _ASIDE]
        return _number(near[0] if near else value)
    return labels[int(np.argmin(np.abs(ticks - value)))] if counted else _number(value)


def _lines(axes: Axes) -> list[Any]:
    return list(axes.lines)


def _is_level(axes: Axes, line: Any) -> bool:
    return bool(line.get_transform() != axes.transData and list(line.get_xdata()) == [0, 1])


def _levels(axes: Axes) -> list[str]:
    heights = {
        _plain(str(line.get_label())): float(line.get_ydata()[0])
        for line in _lines(axes)
        if _is_level(axes, line) and not str(line.get_label()).startswith("_")
    }
    return [f"Line “{label}” at {_number(height)}." for label, height in heights.items()]


# --- rows and cells ---------------------------------------------------------------------------


def _by_row(axes: Axes) -> list[str]:
    """Return the ends of each row, from left to right."""
    rows: dict[str, list[Any]] = {}
    lines = [one for one in _lines(axes) if not str(one.get_label()).startswith("_")]
    for line in sorted(lines, key=lambda one: float(one.get_ydata()[0])):
        rows.setdefault(_place(axes.yaxis, float(line.get_ydata()[0])), []).append(line)
    said = []
    for row, few in rows.items():
        few.sort(key=lambda line: float(line.get_xdata()[0]))
        ends = dict.fromkeys(_across(axes, few[at]) for at in (0, -1))
        said.append(f"{row}: {' to '.join(ends)}.")
    return said


def _across(axes: Axes, line: Any) -> str:
    """Name a point of a row: its value, or the words of the tick at which it stands."""
    value = float(line.get_xdata()[0])
    said = _number(value)
    for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
        if tick == value and not label.get_text()[:1].isdigit():
            said = _plain(label.get_text())
    return f"{said} ({line.get_label()})"


def _rows(axes: Axes) -> list[str]:
    """Return the ends of each row of a heat map, with their columns."""
    values = np.asarray(axes.images[0].get_array(), dtype=np.float64)
    columns = [_plain(one.get_text().replace("-\n", "-")) for one in axes.get_xticklabels()]
    said = []
    for label, row in zip(axes.get_yticklabels(), values, strict=True):
        low, high = int(np.nanargmin(row)), int(np.nanargmax(row))
        ends = dict.fromkeys(f"{row[at]:.2f} ({columns[at]})" for at in (low, high))
        said.append(f"{_plain(label.get_text())}: {' to '.join(ends)}.")
    return said
