"""Accuracy against local ε: one curve for each mechanism and central ε."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.panels import Reference
from tacit_papers.figures.records import Merged, Result, TrialSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Section = tuple[str, list[Look]]
_LEVELS = ("latent", "feature")
EPSILON = "local ε of a report"
ASIDE = "Points of the same ε stand side by side."
_APART, _SPREAD = 2.0, 10.0
"""Offset between curves at the same ε, and the largest offset of all, in points."""


def draw_curves(
    axes: Axes, merged: Merged, name: str, level: str | None, apart: float = _APART
) -> None:
    """Draw the curves of a panel, points of one ε side by side; None takes all levels."""
    colours, styles = look.mechanisms(merged.results), look.centrals(merged.results)
    mine = merged.results if level is None else merged.at(level)
    there = {_series(one) for one in merged.results}  # the same places in every panel
    series = [(key, c) for key in colours for c in styles if (key, c) in there]
    apart = min(apart, _SPREAD / len(series))
    for place, (key, central) in enumerate(series):
        points = sorted(
            (records.epsilon(one), value)
            for one in mine
            if _series(one) == (key, central)
            if (value := records.measure(one, name)) is not None
        )
        if points:
            across, values = zip(*points, strict=True)
            line, fill = styles[central]
            label = colours[key].label
            if len(styles) > 1:
                label = f"{label}, central ε = {look.said(central)}"
            shown = replace(colours[key], label=label, line=line, fill=fill)
            panels.points(axes, across, values, shown, apart * (place - (len(series) - 1) / 2))
    panels.epsilon_axis(axes, map(records.epsilon, merged.results))


def _series(result: Result) -> tuple[look.Key, float]:
    return look.key(result), records.central(result)


def sections(results: Sequence[Result]) -> list[Section]:
    """Return the sections of the legend: mechanisms, and central ε where there is one."""
    titled = [("mechanism", list(look.mechanisms(results).values()))]
    styles = look.centrals(results)
    if set(styles) != {math.inf}:
        looks = [
            Look(look.said(value), canvas.GREY, "o", line, fill)
            for value, (line, fill) in styles.items()
        ]
        titled.append(("central ε", looks))
    return titled


def levels_of(results: Iterable[Result]) -> list[str]:
    """List the levels in the order of the paper; "" where results have none."""
    levels = {str(one["level"]) for one in results if one.get("level") is not None}
    known = [level for level in _LEVELS if level in levels]
    return [*known, *sorted(levels.difference(_LEVELS))] or [""]


def suffix(level: str, levels: Sequence[str]) -> str:
    """Return the end of a panel's title, where there are several levels."""
    return f", {level} level" if len(levels) > 1 else ""


def reaches(
    results: Iterable[Result], names: Sequence[str], shown: Iterable[Reference]
) -> list[tuple[float, float]]:
    """Return the lower and upper ends of error bars and reference lines."""
    values: list[TrialSummary | None] = [
        records.measure(one, name) for one in results for name in names
    ]
    return [value.reach for value in [*values, *(one.value for one in shown)] if value is not None]
