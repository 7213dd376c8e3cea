"""The figure of attacks against defences: heat maps of accuracy and backdoor success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tacit.apps.plots import canvas
from tacit_papers.figures import records
from tacit_papers.figures.records import Merged

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SPLITS = {"iid": "clients are alike", "dirichlet": "clients differ in their labels"}
_NAMES = {
    "none": "no attack",
    "label-flip": "label flip",
    "sign-flip": "sign flip",
    "model-replacement": "model replacement",
    "sybil": "Sybil clones",
    "norm-bounding": "norm\nbounding",
    "trimmed-mean": "trimmed\nmean",
    "krum": "Krum",
    "multi-krum": "Multi-\nKrum",
    "bulyan": "Bulyan",
}
_PLANTED = ("none", "backdoor", "model-replacement", "sybil")
"""Attacks that plant a backdoor, and the level without one."""

_CELL, _ROW, _MARGIN = 0.56, 0.3, 1.4
_DARK = 0.6
"""Value above which a cell is dark and its number white."""

_NOTE = (
    "Two of twelve clients attack, and the defences know how many; Sybil clones are one attacker "
    "under six names beside ten honest clients. Largest standard deviation of a cell: {spread:.2f}."
)


class _Measure(NamedTuple):
    name: str
    title: str
    colours: str
    attacks: tuple[str, ...]


@records.results_with(
    "a study of threats", "partition, attack, defence, accuracy and backdoor_success"
)
def draw(merged: Merged) -> Figure:
    """Draw one column of panels per split: accuracy above, backdoors below."""
    splits, attacks, kept = (
        list(dict.fromkeys(str(one[key]) for one in merged.results))
        for key in ("partition", "attack", "defence")
    )
    measures = _measures(attacks)
    heights = [len(one.attacks) for one in measures]
    width = len(splits) * (len(kept) * _CELL + _MARGIN)
    figure = canvas.fitted(width, sum(heights) * _ROW + 0.75 * len(measures) + 1.1)
    axes = figure.subplots(len(measures), len(splits), squeeze=False, height_ratios=heights)
    for line, one in zip(axes, measures, strict=True):
        for panel, split in zip(line, splits, strict=True):
            _map(panel, merged, one, split, kept)
            title = f"{one.title}, {_SPLITS.get(split, split)}"
            panel.set_title(title, loc="left", size=canvas.TEXT, color=canvas.INK)
    spread = max(records.required(r, m.name).std for r in merged.results for m in measures)
    title = f"{merged.name}: attacks on federated averaging ({merged.trials})"
    canvas.frame(figure, title, merged.caption(_NOTE.format(spread=spread), bars=False))
    return figure


def _measures(attacks: Sequence[str]) -> list[_Measure]:
    """Return the measures to draw: accuracy, and backdoors where one was planted."""
    planted = tuple(attack for attack in attacks if attack in _PLANTED)
    measures = [_Measure("accuracy", "Accuracy", "Blues", tuple(attacks))]
    if set(planted) - {"none"}:
        words = "Trigger taken for the target"
        measures.append(_Measure("backdoor_success", words, "Oranges", planted))
    return measures


def _map(panel: Axes, merged: Merged, one: _Measure, split: str, kept: Sequence[str]) -> None:
    values = np.full((len(one.attacks), len(kept)), np.nan)
    for result in merged.results:
        if result["partition"] == split and result["attack"] in one.attacks:
            place = one.attacks.index(result["attack"]), kept.index(result["defence"])
            values[place] = records.required(result, one.name).mean
    panel.imshow(values, cmap=one.colours, vmin=0.0, vmax=1.0, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value > _DARK else canvas.INK
            options: Any = {"ha": "center", "va": "center", "color": colour, "size": canvas.SMALL}
            panel.text(column, row, f"{value:.2f}", **options)
    panel.set_xticks(range(len(kept)), [_NAMES.get(name, name) for name in kept])
    panel.set_yticks(range(len(one.attacks)), [_NAMES.get(name, name) for name in one.attacks])
    panel.set_xticks(np.arange(len(kept) - 1) + 0.5, minor=True)
    panel.set_yticks(np.arange(len(one.attacks) - 1) + 0.5, minor=True)
    panel.grid(which="minor", color="white", linewidth=1.2)
    panel.tick_params(which="both", length=0, labelsize=canvas.SMALL, labelcolor=canvas.INK)
    for spine in panel.spines.values():
        spine.set_visible(False)
