"""Figures of the studies, and of one record before and after release.

Nothing here loads matplotlib before a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.apps.plots.canvas import check_target, save
from tacit.apps.plots.pictures import picture
from tacit_papers.engine import registry
from tacit_papers.figures import records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_target", "draw", "picture", "save"]


def draw(studied: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the records of one study on one data set, such as one for each central ε.

    Parameters
    ----------
    studied : sequence of dict
        Records as `tacit study` writes them.
    """
    merged = records.merge(studied)
    return registry.study(merged.study).draw(merged)  # type: ignore[no-any-return]
