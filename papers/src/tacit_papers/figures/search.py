"""The figure of the private search: estimates from votes, and accuracy on test rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.apps.plots import canvas
from tacit.privacy import errors
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.records import Merged, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ASIDE, _BETWEEN, _CANDIDATES = 0.14, 0.09, 0.32
"""Offsets within an ε: of the winner, between trials, of the candidates."""


def draw(merged: Merged) -> Figure:
    """Draw, at each ε, the winner's estimate with its interval beside its accuracy on test rows."""
    looks = look.mechanisms(merged.results)
    figure, axes = panels.grid(1, len(looks))
    shown = panels.references(merged, no_privacy="no privacy")
    panels.limits(axes.flat, [*_reaches(merged.results), *(one.value.reach for one in shown)])
    for panel, (key, base) in zip(axes[0], looks.items(), strict=True):
        mine = sorted((one for one in merged.results if look.key(one) == key), key=records.epsilon)
        for place, result in enumerate(mine):
            _draw_result(panel, place, result, base)
        panel.set_xticks(range(len(mine)), [f"{records.epsilon(one):g}" for one in mine])
        panel.set_xlim(-0.6, len(mine) - 0.4)
        look.tidy(panel, base.label, "local ε of a report", "accuracy")
        panels.draw_references(panel, shown)
    look.legend(figure, _sections(merged.results))
    title = f"{merged.name}: settings chosen by people's private votes ({merged.trials})"
    note = "Left of each ε: every trial's estimate, with its 95 % interval; right: on test data."
    canvas.frame(figure, title, merged.caption(note, bars=False))
    return figure


_OTHERS = Look("all", "#9a9a9a", ".", "none")
_PAPER = Look("the paper's settings", canvas.INK, "D", "none", "none")


def _sections(results: Sequence[Result]) -> list[tuple[str, list[Look]]]:
    winner = [
        Look("estimate from votes", canvas.GREY, "o", "none", "none"),
        Look("on test data", canvas.GREY, "o", "none"),
    ]
    tried = any(_named(one.get("paper")) in _candidates(one, "estimated") for one in results)
    papers = [_PAPER] if tried else []
    return [("winner", winner), ("candidates", [_OTHERS, *papers])]


def _draw_result(axes: Axes, place: int, result: Result, base: Look) -> None:
    for across, name in ((place - _CANDIDATES, "estimated"), (place + _CANDIDATES, "test")):
        for settings, value in _candidates(result, name).items():
            shown = _PAPER if settings == _named(result.get("paper")) else _OTHERS
            axes.plot([across], [value], **shown.options())
    values = result["estimated_accuracy"]["trials"]
    won = replace(base, line="none", fill="none")
    for trial, (value, (low, high)) in enumerate(zip(values, _intervals(result), strict=True)):
        across = place - _ASIDE + _BETWEEN * (trial - (len(values) - 1) / 2)
        axes.vlines(across, low, high, color=base.colour, linewidth=1.0)
        axes.plot([across], [value], label="winner, estimated from votes", **won.options())
    tested = records.required(result, "test_accuracy")
    on_test = replace(won, label="winner, on test data", fill="full")
    panels.points(axes, [place + _ASIDE], [tested], on_test)


def _candidates(result: Result, name: str) -> dict[str, float]:
    """Return estimates or test accuracies of the candidates, as means over trials."""
    scores: dict[str, list[float]] = {}
    for one in result.get("candidates", ()):
        # A list for each trial, or a candidate with a list over the trials.
        for candidate in one if isinstance(one, list) else [one]:
            values = np.ravel(candidate.get(name, [])).tolist()
            scores.setdefault(_named(candidate["settings"]), []).extend(values)
    return {settings: float(np.mean(values)) for settings, values in scores.items() if values}


def _named(settings: Any) -> str:
    return json.dumps(settings, sort_keys=True)


def _intervals(result: Result) -> list[Any]:
    interval = result.get("interval")
    return list(interval["trials"] if isinstance(interval, dict) else interval or [])


def _reaches(results: Sequence[Result]) -> list[tuple[float, float]]:
    """Return what a panel must hold, and refuse a record that does not have it."""
    ends: list[tuple[float, float]] = []
    try:
        for one in results:
            ends += [records.required(one, "test_accuracy").reach]
            ends += [(float(low), float(high)) for low, high in _intervals(one)]
            values = [v for n in ("estimated", "test") for v in _candidates(one, n).values()]
            ends += [(value, value) for value in values]
            if len(_intervals(one)) != len(one["estimated_accuracy"]["trials"]):
                raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise errors.InvalidData(
            "plots: a search must have an interval for each estimate, and numbers of candidates. "
            "Give records that `tacit study` wrote."
        ) from None
    return ends
