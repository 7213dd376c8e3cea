"""The figure of the study of joining: accuracy against local ε."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.apps.plots import canvas
from tacit_papers.figures import curves, look, panels
from tacit_papers.figures.records import Merged

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(merged: Merged) -> Figure:
    """Draw Figure 3 of the paper: what private columns add to clean ones."""
    figure, axes = panels.grid(1, 1)
    panel, name = axes[0, 0], "semi_private_accuracy"
    shown = panels.references(merged, all_clean="all columns clean", clean_only="clean only")
    panels.limits([panel], curves.reaches(merged.results, [name], shown))
    look.tidy(panel, "Clean columns joined with private ones", curves.EPSILON, "accuracy")
    curves.draw_curves(panel, merged, name, None)
    panels.draw_references(panel, shown)
    look.legend(figure, curves.sections(merged.results))
    split = f"Columns: {merged.parameters['join']}." if merged.parameters.get("join") else ""
    title = f"{merged.name}: joining columns that come as private reports ({merged.trials})"
    canvas.frame(figure, title, merged.caption(f"{curves.ASIDE} {split}".strip()))
    return figure
