"""The figure of data collection: clean, private and by-class accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.apps.plots import canvas
from tacit_papers.figures import classes, curves, look, panels, records
from tacit_papers.figures.panels import Reference
from tacit_papers.figures.records import Merged, Result, TrialSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CEILINGS = {
    "universal": ("ceiling of any\nmechanism", "-"),
    "laplace": ("ceiling of\nLaplace", "--"),
}
_NOTE = "Ceilings: at the ε spent on the point (the most of any mechanism)."


def draw(merged: Merged) -> Figure:
    """Draw Figures 1, 4 and 7 of the paper and the accuracy by class, one row per level."""
    levels = curves.levels_of(merged.results)
    spreads = {level: classes.spreads(merged, level) for level in levels}
    private = any(records.measure(one, "private_accuracy") for one in merged.results)
    known = any(spreads.values())
    figure, axes = panels.grid(len(levels), 1 + private + known)
    _set_limits(axes[:, : 1 + private].flat, merged)
    for row, level in zip(axes, levels, strict=True):
        end = curves.suffix(level, levels)
        _draw_clean(row[0], merged, level, end)
        if private:
            _draw_private(row[1], merged, level, end)
        if known:
            classes.draw_classes(row[-1], merged, spreads[level])
    if known:
        shares = [one for few in spreads.values() for spread in few for one in spread.classes]
        panels.limits(axes[:, -1], [one.reach for one in shares])
    shown = next(filter(None, spreads.values()), [])
    grey = [replace(one.look, colour=canvas.GREY, marker="o") for one in shown]
    by_class = [("by class", grey)] if shown else []
    look.legend(figure, [*curves.sections(merged.results), *by_class])
    title = f"{merged.name}: classifiers learned from private reports ({merged.trials})"
    notes = [f"Clean accuracy: {curves.ASIDE.lower()}", *([_NOTE] if private else [])]
    canvas.frame(figure, title, merged.caption(" ".join(notes)))
    return figure


def _set_limits(axes: Iterable[Axes], merged: Merged) -> None:
    names = ["clean_accuracy", "private_accuracy"]
    ends = curves.reaches(merged.results, names, panels.references(merged, no_privacy=""))
    heights = [h for name in _CEILINGS for h in _ceiling(merged.results, name).values()]
    panels.limits(axes, [*ends, *((height, height) for height in heights)])


def _draw_clean(axes: Axes, merged: Merged, level: str, end: str) -> None:
    up = f"accuracy on clean {merged.things}"
    look.tidy(axes, f"Clean accuracy{end}", curves.EPSILON, up)
    curves.draw_curves(axes, merged, "clean_accuracy", level)
    panels.draw_references(axes, panels.references(merged, no_privacy="no privacy"))


def _draw_private(axes: Axes, merged: Merged, level: str, which: str) -> None:
    up = f"accuracy on reported {merged.things}"
    look.tidy(axes, f"Private accuracy{which}", "local ε of a training report", up)
    # Moved aside, a curve could seem to cross its ceiling.
    curves.draw_curves(axes, merged, "private_accuracy", level, apart=0.0)
    levels = panels.references(merged)
    ends: list[Reference] = []
    for name, (label, line) in _CEILINGS.items():
        ceiling = sorted(_ceiling(merged.results, name).items())
        if ceiling:
            end = Reference(label, TrialSummary(ceiling[-1][1], 0.0, 1), line, canvas.INK)
            # One point makes no curve: it is drawn as a level.
            (ends if len(ceiling) > 1 else levels).append(end)
            curve = axes.plot(
                *zip(*ceiling, strict=True), color=end.colour, linestyle=line, linewidth=0.9
            )
            curve[0].set_label(label)
    panels.draw_references(axes, levels, ends)


def _ceiling(results: Sequence[Result], name: str) -> dict[float, float]:
    """Return a ceiling at each ε; where mechanisms spend differently, the highest."""
    ceilings: dict[float, float] = {}
    for one in results:
        height = records.measure(one.get("ceilings") or {}, name)
        if height is not None:
            epsilon = records.epsilon(one)
            ceilings[epsilon] = max(height.mean, ceilings.get(epsilon, 0.0))
    return ceilings
