"""Panels of accuracy: points with error bars, and reference lines with labels at the right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.apps.plots import canvas
from tacit_papers.figures.look import Look
from tacit_papers.figures.records import Merged, TrialSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT, WIDTH, ALONE = 2.9, 3.6, 4.6
"""Size of a panel with labels, in inches; the last is the width of a single panel."""

_LINE_HEIGHT = 1.25 * canvas.SMALL / 72 / (HEIGHT - 0.9)
"""Height of a line of small text, as a share of the height of the axes."""

_LOG_RATIO = 30.0
_TICK_GAP = 0.07


@dataclass(frozen=True)
class Reference:
    """A level for comparison."""

    label: str
    value: TrialSummary
    line: Any = (0, (1, 2))
    colour: str = canvas.GREY


CHANCE = "chance"


def references(merged: Merged, **names: str) -> list[Reference]:
    """Return the references that were measured, given their names and labels; chance is last."""
    lines: list[Any] = ["-", (0, (5, 2, 1, 2))]
    levels = []
    for index, (name, label) in enumerate(names.items()):
        value = merged.reference(name)
        if value is not None:
            levels.append(Reference(label, value, lines[index]))
    chance = merged.reference(CHANCE)
    return levels if chance is None else [*levels, Reference(CHANCE, chance)]


def grid(rows: int, columns: int, width: float = WIDTH) -> tuple[Figure, Any]:
    """Make a figure and its grid of panels."""
    width = columns * width if columns > 1 else ALONE
    figure = canvas.fitted(width + canvas.LEGEND_WIDTH, rows * HEIGHT + 0.9)
    return figure, figure.subplots(rows, columns, squeeze=False)


def points(
    axes: Axes,
    across: Sequence[float],
    values: Sequence[TrialSummary],
    look: Look,
    aside: float = 0.0,
) -> None:
    """Draw a curve with an error bar of one standard deviation at each point.

    `aside`, in points, keeps the error bars of several curves from covering each other.
    """
    from matplotlib.transforms import ScaledTranslation

    means, deviations = [v.mean for v in values], [v.std for v in values]
    drawn = deviations if any(deviations) else None
    moved = ScaledTranslation(aside / 72, 0, axes.figure.dpi_scale_trans)
    axes.errorbar(
        across,
        means,
        yerr=drawn,
        capsize=look.size / 2,
        elinewidth=1.0,
        label=look.label,
        transform=axes.transData + moved,
        **look.options(),
    )


def limits(panels: Iterable[Axes], reaches: Iterable[tuple[float, float]]) -> None:
    """Set one scale for all panels: from 0 to 1 where accuracies span that much, else less."""
    ends = [end for reach in reaches for end in reach]
    low, high = max(min(ends), 0.0), min(max(ends), 1.0)
    pad = 0.06 * max(high - low, 0.1)
    bottom = -0.02 if low < 0.3 else low - pad
    for axes in panels:
        axes.set_ylim(bottom, high + pad if high + pad < 0.95 else 1.02)


def epsilon_axis(axes: Axes, epsilons: Iterable[float]) -> None:
    """Set the ε axis: from zero, or logarithmic where ε spans much."""
    values = sorted(set(epsilons))
    least, most = values[0], values[-1]
    if most / least < _LOG_RATIO:
        axes.set_xlim(0.0, most * (1.05 if len(values) > 1 else 2.0))
        return
    axes.set_xscale("log")
    kept = [least]
    for value in values[1:]:
        if math.log(value / kept[-1]) > _TICK_GAP * math.log(most / least):
            kept.append(value)
    axes.set_xticks(kept, [f"{value:g}" for value in kept])
    axes.set_xticks([], minor=True)


def draw_references(axes: Axes, shown: Sequence[Reference], ends: Sequence[Reference] = ()) -> None:
    """Draw levels, each with a band of one standard deviation, and labels at the right.

    Call it when the limits are set: names that would touch move apart.
    """
    for one in shown:
        low, high = one.value.reach
        style: Any = {"color": one.colour, "linestyle": one.line, "linewidth": 1.0}
        axes.axhline(one.value.mean, label=one.label, zorder=1, **style)
        if one.value.std:
            axes.axhspan(low, high, color=one.colour, alpha=0.15, linewidth=0, zorder=0)
    named = sorted([*shown, *ends], key=lambda one: one.value.mean)
    bottom, top = axes.get_ylim()
    wanted = [(one.value.mean - bottom) / (top - bottom) for one in named]
    sizes = [_LINE_HEIGHT * (1 + one.label.count("\n")) for one in named]
    for one, height in zip(named, _apart(wanted, sizes), strict=True):
        axes.text(
            1.02, height, one.label, transform=axes.transAxes, va="center", linespacing=1.0,
            size=canvas.SMALL, color=one.colour,
        )  # fmt: skip


def _apart(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Place labels, lowest first: near their lines, without overlap and within the axes."""
    placed = list(wanted)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + (sizes[i] + sizes[i - 1]) / 2)
    ceiling = 1.0 + _LINE_HEIGHT / 2
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], ceiling - sizes[i] / 2)
        ceiling = placed[i] - sizes[i] / 2
    return placed
