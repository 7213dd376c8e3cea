"""The figure of the study of a new class: accuracy against local ε."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.apps.plots import canvas
from tacit_papers.figures import curves, look, panels
from tacit_papers.figures.records import Merged

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(merged: Merged) -> Figure:
    """Draw Figure 2 of the paper: whether a row is of the class that in-house data lack."""
    levels = curves.levels_of(merged.results)
    figure, axes = panels.grid(1, len(levels))
    shown = panels.references(merged, no_privacy="no privacy")
    panels.limits(axes.flat, curves.reaches(merged.results, ["clean_accuracy"], shown))
    for panel, level in zip(axes[0], levels, strict=True):
        title = "New class or not" + curves.suffix(level, levels)
        look.tidy(panel, title, curves.EPSILON, f"accuracy on clean {merged.things}")
        curves.draw_curves(panel, merged, "clean_accuracy", level)
        panels.draw_references(panel, shown)
    look.legend(figure, curves.sections(merged.results))
    new = f" {merged.parameters['new']}" if merged.parameters.get("new") is not None else ""
    title = f"{merged.name}: finding the new class{new} from private reports ({merged.trials})"
    canvas.frame(figure, title, merged.caption(curves.ASIDE))
    return figure
