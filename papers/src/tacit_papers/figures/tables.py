"""The figure of tables: gain over one codebook against ε, a line for each table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.records import Merged
from tacit_papers.parts.table_gains import TODAY, differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OURS = {"partitions": "Partitions, one round", "rounds": "Partitions, two rounds"}
_OTHERS = {
    "column": "One column and label by k-RR",
    "privunit": "Vector reports by PrivUnit",
    "direct": "Noise on every column",
}
_PANELS = {**_OURS, **_OTHERS}
_MEAN = Look("mean of reported tables", canvas.INK, "D", size=6.0)
_KINDS = {
    (False, False): Look("table, reported", "#0072B2", "o", fill="full", size=4.0),
    (False, True): Look("pictures, reported", "#D55E00", "s", fill="full", size=4.5),
    (True, False): Look("table, tuned on", "#0072B2", "o", (0, (1, 1.2)), "none", 4.0),
    (True, True): Look("pictures, tuned on", "#D55E00", "s", (0, (1, 1.2)), "none", 4.5),
}
"""By whether settings were chosen on it, and whether it holds pictures."""

_ROOM = 1.15
_WIDTH = 3.1
_NOTE = (
    "Each line is a table, the mean over its trials; the page lists them with standard errors. "
    "Settings were chosen on the tables that are called tuned on. Panels of other "
    "reports have a scale of their own."
)


@records.results_with("a study of tables", "task, mechanism, epsilon, measure and its trials")
def draw(merged: Merged) -> Figure:
    """Draw one panel per method: its gain over the codebook on every table."""
    methods = [name for name in _PANELS if differences(merged.results, name)]
    figure, grid = panels.grid(1, max(len(methods), 1), _WIDTH)
    axes = dict(zip(methods, grid[0], strict=False))
    for method, panel in axes.items():
        look.tidy(panel, _PANELS[method], "local ε of a report", "gain over one codebook")
        _lines(panel, merged, method)
    for group in (_OURS, _OTHERS):
        _scale([axes[name] for name in group if name in axes])
    shown = [_KINDS[kind] for kind in _KINDS if kind in set(_kinds(merged).values())]
    look.legend(figure, [("gain on", [_MEAN, *shown])])
    title = f"Collections on tables: gain in accuracy or area under the curve ({merged.trials})"
    canvas.frame(figure, title, merged.caption(_NOTE, bars=False))
    return figure


def _kinds(merged: Merged) -> dict[str, tuple[bool, bool]]:
    return {one["task"]: (bool(one["tuned"]), bool(one["pictures"])) for one in merged.results}


def _lines(panel: Axes, merged: Merged, method: str) -> None:
    """Draw the mean, then each table; the codebook is the line at 0."""
    gains, kinds = differences(merged.results, method), _kinds(merged)
    epsilons = sorted({epsilon for _, epsilon in gains})
    reported = {task for task, (tuned, _) in kinds.items() if not tuned}
    means = [_mean(gains, reported, epsilon) for epsilon in epsilons]
    panel.axhline(0.0, color=canvas.GREY, linewidth=1.0, zorder=1, label=TODAY)
    if reported & {task for task, _ in gains}:
        options = {**_MEAN.options(), "linewidth": 2.2}
        panel.plot(epsilons, means, zorder=4, label=_MEAN.label, **options)
    for task in dict.fromkeys(task for task, _ in gains):
        mine = [(e, gains[task, e].mean) for e in epsilons if (task, e) in gains]
        options = {**_KINDS[kinds[task]].options(), "linewidth": 0.8}
        across: Any = list(zip(*mine, strict=True))
        panel.plot(*across, zorder=2, alpha=0.65, label=task, **options)
    panel.set_xscale("log")
    panel.set_xlim(epsilons[0] / _ROOM, epsilons[-1] * _ROOM)
    panel.set_xticks(epsilons, [f"{value:g}" for value in epsilons])
    panel.set_xticks([], minor=True)


def _mean(gains: dict[tuple[str, float], Any], tasks: set[str], epsilon: float) -> float:
    there = [gain.mean for (task, e), gain in gains.items() if task in tasks and e == epsilon]
    return float(np.mean(there)) if there else float("nan")


def _scale(group: Sequence[Axes]) -> None:
    """Set one vertical scale for a group of panels."""
    if group:
        ends = [end for panel in group for end in panel.get_ylim()]
        for panel in group:
            panel.set_ylim(min(ends), max(ends))
