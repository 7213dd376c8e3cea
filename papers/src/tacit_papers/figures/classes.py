"""Panels of accuracy by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Fill, Look
from tacit_papers.figures.records import Merged, Result, TrialSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_NAME, _LETTERS_ACROSS, _MOST_NAMES = 16, 26, 24


@dataclass(frozen=True)
class ClassAccuracies:
    """Accuracy of each class at one ε."""

    who: str
    look: Look
    classes: list[TrialSummary]

    @property
    def means(self) -> npt.NDArray[np.float64]:
        """Mean accuracy of each class."""
        return np.array([one.mean for one in self.classes])


def spreads(merged: Merged, level: str) -> list[ClassAccuracies]:
    """Return the accuracies by class of the first mechanism, at its smallest and largest ε."""
    colours = look.mechanisms(merged.results)
    known = [
        one
        for one in merged.results
        if one.get("by_class") is not None and one.get("level") in (None, level)
    ]
    if not known:
        return []
    first = min(map(look.key, known), key=list(colours).index)
    mine = [one for one in known if look.key(one) == first]
    most = max(map(records.central, mine))
    mine = [one for one in mine if records.central(one) == most]
    few, many = min(mine, key=records.epsilon), max(mine, key=records.epsilon)
    levels = {one.get("level") for one in merged.results if look.key(one) == first}
    who = colours[first].label + (f", {level} level" if len(levels) > 1 else "")
    last = _spread(who, many, colours[first], "full")
    return [last] if few is many else [_spread(who, few, colours[first], "none"), last]


def _spread(who: str, result: Result, base: Look, fill: Fill) -> ClassAccuracies:
    label = f"ε = {records.epsilon(result):g}"
    accuracies = records.by_class(result)
    size = base.size if len(accuracies) <= _MOST_NAMES else base.size / 2
    shown = replace(base, label=label, line="none", fill=fill, size=size)
    return ClassAccuracies(who, shown, accuracies)


def draw_classes(axes: Axes, merged: Merged, shown: Sequence[ClassAccuracies]) -> None:
    """Draw one dot per class and ε, and a line between both ε: its length is the harm."""
    if not shown:
        axes.set_axis_off()
        return
    few, many = shown[0], shown[-1]
    names = [str(name) for name in merged.data["classes"]]
    places = list(range(len(names)))
    for one in shown:
        panels.points(axes, places, one.classes, one.look)
    axes.vlines(places, few.means, many.means, color=canvas.GREY, linewidth=0.8, zorder=1)
    _name_classes(axes, names)
    title, up = f"By class, {few.who}", f"accuracy on clean {merged.things}"
    look.tidy(axes, title, f"class{_worst(few, many, names)}", up)


def _worst(few: ClassAccuracies, many: ClassAccuracies, names: Sequence[str]) -> str:
    """Name the class that the noise hurts most, if any."""
    losses = many.means - few.means
    if few is many:
        return f" (lowest: {_short(names[int(np.argmin(few.means))])})"
    hurt = f" ({_short(names[int(np.argmax(losses))])} loses most to the noise)"
    return hurt if losses.max() > 0 else ""


def _name_classes(axes: Axes, names: Sequence[str]) -> None:
    """Label all classes where they fit, vertically if need be, else every k-th."""
    step = -(-len(names) // _MOST_NAMES)
    kept = [_short(name) for name in names[::step]]
    upright = sum(map(len, kept)) > _LETTERS_ACROSS
    axes.set_xticks(range(0, len(names), step), kept, rotation=90 if upright else 0)
    axes.set_xlim(-0.6, len(names) - 0.4)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
