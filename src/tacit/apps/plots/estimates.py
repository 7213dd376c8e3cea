"""Answers of a survey: estimates with their intervals, one panel per question."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.apps.plots import canvas
from tacit.privacy import errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _ROW, _PANEL, _CAPTION = 6.4, 0.28, 0.85, 1.1
"""Inches: the figure, each estimate, the title and axis of a panel, the caption."""
_MOST = 60
"""Estimates in one figure."""


def answers(found: Sequence[Any], caption: str) -> Figure:
    """Draw estimates as points and intervals as lines, in one panel per answer.

    Parameters
    ----------
    found : sequence of Answer
        Answers of `Survey.answer`.
    caption : str
        What is written below: what intervals cover, and the guarantees.
    """
    counts = [len(one.estimates) for one in found]
    if not 0 < sum(counts) <= _MOST:
        errors.refuse("plots", "numbers", f"1 to {_MOST} in one figure", sum(counts), "Ask less.")
    heights = [_ROW * count + _PANEL for count in counts]
    figure = canvas.fitted(_WIDTH, sum(heights) + _CAPTION)
    panels = figure.subplots(len(found), 1, height_ratios=heights, squeeze=False)
    for axes, one in zip(panels[:, 0], found, strict=True):
        _draw(axes, one)
    text = canvas.plain(textwrap.fill(caption, int(_WIDTH * 16)))
    figure.supxlabel(text, x=0.012, ha="left", size=canvas.SMALL, color=canvas.GREY)
    return figure


def _draw(axes: Axes, answer: Any) -> None:
    low, high = _limits(answer.estimates)
    for place, one in enumerate(answer.estimates):
        start, end = (min(max(edge, low), high) for edge in one.interval)
        axes.plot([start, end], [place, place], color=canvas.GREY, linewidth=1.6)
        for edge, shown, mark in ((one.interval[0], start, "<"), (one.interval[1], end, ">")):
            axes.plot(shown, place, mark if edge != shown else "|", color=canvas.GREY, markersize=6)
        if math.isfinite(one.value):
            axes.plot(one.value, place, "o", color=canvas.INK, markersize=4.5)
    names = [canvas.plain(one.label) for one in answer.estimates]
    axes.set_yticks(range(len(names)), names)
    if answer.first_date is not None:
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda days, _: answer.said(days))
    axes.set_ylim(len(answer.estimates) - 0.5, -0.5)
    asked = canvas.plain(answer.question)
    axes.set_title(asked, loc="left", size=canvas.TEXT, weight="bold", color=canvas.INK)
    axes.tick_params(labelsize=canvas.SMALL, colors=canvas.GREY, length=0)
    axes.grid(axis="x", color=canvas.FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _limits(estimates: Sequence[Any]) -> tuple[float, float]:
    """Return the ends of the axis: of finite intervals, and around values without one."""
    ends = [end for one in estimates for end in one.interval if math.isfinite(end)]
    ends += [one.value for one in estimates if math.isfinite(one.value)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    room = (high - low or 1.0) * (0.04 if len(ends) == 3 * len(estimates) else 0.5)
    return low - room, high + room
