"""Figures for a report: what the studies found, and one record before and after.

Nothing here loads matplotlib before a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.apps.plots.canvas import check_target, save
from tacit.apps.plots.pictures import picture
from tacit_papers.figures import (
    agnostic,
    anonymize,
    classifiers,
    collect,
    composition,
    curves,
    dpsgd,
    federated,
    posterior,
    primia,
    records,
    search,
    threats,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_target", "draw", "picture", "save"]

_STUDIES = {
    "collect": collect.draw_collect,
    "novel-class": curves.draw_novel_class,
    "join": curves.draw_join,
    "search": search.draw_search,
    "agnostic": agnostic.draw_agnostic,
    "posterior": posterior.draw_posterior,
    "anonymize": anonymize.draw_anonymize,
    "dpsgd": dpsgd.draw_dpsgd,
    "classifiers": classifiers.draw_classifiers,
    "composition": composition.draw_composition,
    "threats": threats.draw_threats,
    "primia": primia.draw_primia,
    "federated": federated.draw_federated,
}


def draw(studied: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the records of one study on one data set, such as one for each central ε.

    Parameters
    ----------
    studied : sequence of dict
        Records as `tacit study` writes them.
    """
    merged = records.merge(studied)
    return _STUDIES[merged.study](merged)
