"""The figure of DP-SGD: accuracy against ε, published numbers, and no privacy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.panels import Reference
from tacit_papers.figures.records import Merged

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "scattering": Look("softmax regression on\nscattering features of\n8 views", "#0072B2", "o"),
    "scattering-plain": Look("… of the image alone", "#56B4E9", "^", (0, (4, 1.5))),
    "paper": Look("their network: 60\ncomponents, 1,000 ReLUs", "#D55E00", "s"),
}
_SHORT = {
    "scattering": "8 views,\nno privacy",
    "scattering-plain": "the image,\nno privacy",
    "paper": "their network,\nno privacy",
}
_PAPER = Look("Abadi et al.", canvas.INK, "X", "none", size=7.0)
_ROOM = 1.4
_NOTE = "Noise is calibrated by privacy loss distributions, for δ = {delta:g} and Poisson samples."


@records.results_with("a study of DP-SGD", "model, epsilon and accuracy")
def draw(merged: Merged) -> Figure:
    """Draw one panel; error bars are one standard deviation of trials."""
    figure, axes = panels.grid(1, 1)
    panel = axes[0, 0]
    look.tidy(panel, "Accuracy of a private model", "ε of a model", "accuracy on test images")
    there = [name for name in _LOOKS if any(one["model"] == name for one in merged.results)]
    for place, name in enumerate(there):
        _draw_model(panel, merged, name, 2.0 * place - (len(there) - 1.0))
    published = _published(merged)
    if published:
        points = list(published), list(published.values())
        panel.plot(*points, zorder=4, label=_PAPER.label, **_PAPER.options())
    references = _references(merged)
    levels = [reference.value.reach for reference in references]
    levels += [records.required(one, "accuracy").reach for one in merged.results]
    levels += [(value, value) for value in published.values()]
    _scales(panel, levels, {*map(records.epsilon, merged.results), *published})
    panels.draw_references(panel, references)
    shown = [_LOOKS[name] for name in there] + ([_PAPER] if published else [])
    look.legend(figure, [("model", shown)])
    title = f"{merged.name}: models trained by DP-SGD ({merged.trials})"
    canvas.frame(figure, title, merged.caption(_NOTE.format(delta=merged.parameters["delta"])))
    return figure


def _draw_model(panel: Axes, merged: Merged, name: str, aside: float) -> None:
    points = sorted(
        (records.epsilon(one), records.required(one, "accuracy"))
        for one in merged.results
        if one["model"] == name
    )
    across, values = zip(*points, strict=True)
    panels.points(panel, across, values, _LOOKS[name], aside)


def _published(merged: Merged) -> dict[float, float]:
    accuracies = {float(at): value for at, value in merged.data.get("published", {}).items()}
    return {at: value for at, value in accuracies.items() if at < math.inf}


def _references(merged: Merged) -> list[Reference]:
    baselines = [(name, merged.reference(f"{name}_without_privacy")) for name in _LOOKS]
    return [
        Reference(_SHORT[name], value, _LOOKS[name].line, _LOOKS[name].colour)
        for name, value in baselines
        if value is not None
    ]


def _scales(panel: Axes, levels: list[tuple[float, float]], epsilons: set[float]) -> None:
    """Set a logarithmic ε axis, and accuracies from a little below the lowest point."""
    ends = [end for reach in levels for end in reach]
    low, high = min(ends), max(ends)
    pad = 0.08 * max(high - low, 0.02)
    panel.set_ylim(max(low - pad, 0.0), min(high + pad, 1.0))
    panel.set_xscale("log")
    panel.set_xlim(min(epsilons) / _ROOM, max(epsilons) * _ROOM)
    panel.set_xticks(sorted(epsilons), [f"{epsilon:g}" for epsilon in sorted(epsilons)])
    panel.set_xticks([], minor=True)
