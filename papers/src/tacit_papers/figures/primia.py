"""The figure of the hospitals: Matthews' coefficient against ε."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.panels import Reference
from tacit_papers.figures.records import Merged, Result, TrialSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TOGETHER, _ALONE = "three hospitals", "one hospital alone"
_LOOKS = {
    ("pretrained", _TOGETHER): Look("three hospitals,\npretrained on digits", "#0072B2", "o"),
    ("scratch", _TOGETHER): Look("three hospitals,\nfrom scratch", "#D55E00", "s"),
    ("pretrained", _ALONE): Look(
        "one hospital,\npretrained", "#56B4E9", "o", (0, (4, 1.5)), fill="none"
    ),
    ("scratch", _ALONE): Look(
        "one hospital,\nfrom scratch", "#E69F00", "s", (0, (4, 1.5)), fill="none"
    ),
}
_SHORT = {"pretrained": "pretrained,\nno privacy", "scratch": "from scratch,\nno privacy"}
_PAPER = Look("Kaissis et al.,\nnot comparable", canvas.INK, "X", "none", size=7.0)
_PANELS = {"mcc": "Test images", "mcc_validation": "Validation images"}
_ROOM = 1.2
"""Margins before the smallest ε and after the largest, as a factor."""

_NOTE = (
    "Every hospital protects each of its images at (ε, δ = {delta:g}); mean and standard "
    "deviation of pixels are included. Test images come from another collection, with fewer ill. "
    "Kaissis et al. used larger images, a larger network and chest X-rays to pretrain it."
)


@records.results_with("a study of hospitals", "model, task, epsilon, mcc and mcc_validation")
def draw(merged: Merged) -> Figure:
    """Draw one panel for test images and one for validation images."""
    figure, axes = panels.grid(1, len(_PANELS))
    keys = [key for key in _LOOKS if _points(merged, key, "mcc")]
    published = merged.data.get("published")
    every = list(axes[0])
    for panel, (name, title) in zip(every, _PANELS.items(), strict=True):
        look.tidy(panel, title, "ε of every hospital", "Matthews' correlation coefficient")
        for place, key in enumerate(keys):
            across, values = zip(*_points(merged, key, name), strict=True)
            panels.points(panel, across, values, _LOOKS[key], 1.5 * place - 0.75 * len(keys))
        if published and name == "mcc":  # beside ours on validation images it would say too much
            point: Any = [published["epsilon"]], [published["mcc"]]
            panel.plot(*point, zorder=4, label=_PAPER.label, **_PAPER.options())
    _scale(every, merged, published)
    for panel, name in zip(every, _PANELS, strict=True):
        panels.draw_references(panel, _references(merged, name))
    shown = [_LOOKS[key] for key in keys] + ([_PAPER] if published else [])
    look.legend(figure, [("trained by", shown)])
    title = f"{merged.name}: hospitals that protect every image ({merged.trials})"
    canvas.frame(figure, title, merged.caption(_NOTE.format(delta=merged.parameters["delta"])))
    return figure


def _points(merged: Merged, key: tuple[str, str], name: str) -> list[tuple[float, TrialSummary]]:
    mine = (one for one in merged.results if (one["model"], one["task"]) == key)
    return sorted(
        (records.epsilon(one), records.required(one, name))
        for one in mine
        if one["epsilon"] is not None
    )


def _references(merged: Merged, name: str) -> list[Reference]:
    """Return the reference: the federation without privacy."""
    return [
        Reference(
            _SHORT[one["model"]],
            records.required(one, name),
            colour=_LOOKS[one["model"], _TOGETHER].colour,
        )
        for one in _without(merged)
    ]


def _without(merged: Merged) -> list[Result]:
    return [one for one in merged.results if one["epsilon"] is None and one["task"] == _TOGETHER]


def _scale(every: Sequence[Axes], merged: Merged, published: Any) -> None:
    """Set one scale for both panels, from a little below the lowest point."""
    ends = [end for r in merged.results for n in _PANELS for end in records.required(r, n).reach]
    if published:
        ends.append(float(published["mcc"]))
    low, high = min(ends), max(ends)
    pad = 0.06 * max(high - low, 0.05)
    epsilons = {float(r["epsilon"]) for r in merged.results if r["epsilon"] is not None}
    for panel in every:
        panel.set_ylim(low - pad, min(high + pad, 1.0))
        _epsilons(panel, sorted(epsilons) or [math.e])


def _epsilons(panel: Axes, values: list[float]) -> None:
    """Set a logarithmic ε axis, as most happens at small ε."""
    panel.set_xscale("log")
    panel.set_xlim(values[0] / _ROOM, values[-1] * _ROOM)
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.set_xticks([], minor=True)
