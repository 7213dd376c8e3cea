"""The figure of federated algorithms: rounds, bytes and accuracies by partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tacit.apps.plots import canvas
from tacit_papers.figures import look, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.records import Merged, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "fedsgd": Look("FedSGD", canvas.INK, "X", "none", size=5.5),
    "fedavg": Look("FedAvg", "#0072B2", "o", "none"),
    "fedprox": Look("FedProx", "#56B4E9", "^", "none"),
    "fsvrg": Look("FSVRG", "#009E73", "D", "none", size=4.5),
    "feddyn": Look("FedDyn", "#D55E00", "s", "none"),
    "subfedavg": Look("Sub-FedAvg", "#CC79A7", "P", "none", size=5.5),
}
_SPLITS = {
    "iid": "clients are alike",
    "unbalanced": "unequal numbers\nof images",
    "covariate-shift": "covariate shift:\nother images",
    "dirichlet": "prior shift: other\nshares of labels",
    "shards": "prior shift: two\nshards of labels",
    "concept-drift": "concept drift: classes\nlook different",
    "concept-shift": "concept shift: classes\nhave other names",
}
_LANE, _ROW, _WIDTH, _MARGIN = 0.135, 0.5, 4.2, 2.2
_BEYOND, _ROOM = 1.55, 1.3
"""Factors on a logarithmic axis: the place of "not reached", and the margins."""

_STEPS = (1, 2, 5)
_NOTE = (
    "{clients} clients, {taking} in every round; a network {model}. Points are medians of "
    "{trials}, lines are ranges over trials. The global model is tested on images as they "
    "are. A client's own test images are moved and renamed like its training images; they test "
    "the client's own model under Sub-FedAvg, else the global one. Nothing here is private."
)


class _Panel(NamedTuple):
    """A panel: values by trial, their median, and whether its axis is logarithmic."""

    title: str
    across: str
    values: Callable[[Result], list[float]]
    middle: Callable[[Result], float]
    last: float | None = None


@records.results_with(
    "a federated study", "algorithm, partition, rounds_to, bytes_to, best_accuracy and by_trial"
)
def draw(merged: Merged) -> Figure:
    """Draw four panels with one row per partition, and in it one line per algorithm."""
    names = [one for one in _LOOKS if any(r["algorithm"] == one for r in merged.results)]
    splits = [one for one in _SPLITS if any(r["partition"] == one for r in merged.results)]
    height = max(len(splits) * len(names) * _LANE * 0.62, 0.8)
    figure = canvas.fitted(2 * _WIDTH + _MARGIN, 2 * (height + 0.7) + 1.3)
    axes = figure.subplots(2, 2, squeeze=False)
    for panel, one in zip(axes.flat, _panels(merged), strict=True):
        _draw(panel, one, merged.results, names, splits)
    look.legend(figure, [("algorithm", [_LOOKS[name] for name in names])])
    goal = _percent(_goal(merged))
    title = f"{merged.name}: federated algorithms, rounds and bytes to {goal} ({_trials(merged)})"
    canvas.frame(figure, title, merged.caption(_note(merged), bars=False))
    return figure


def _panels(merged: Merged) -> list[_Panel]:
    goal = _goal(merged)
    words, most = _percent(goal), float(merged.parameters["rounds"])
    sizes = [b for r in merged.results for b in r["by_trial"]["bytes_to"][goal] if b]
    largest = max(sizes, default=1e6) / 1e6
    return [
        _Panel(f"Rounds to {words}", "rounds", *_reached("rounds_to", goal, 1.0), most),
        _Panel(f"Data sent to {words}", "megabytes, up and down, all clients",
               *_reached("bytes_to", goal, 1e-6), largest),
        _Panel("Best accuracy of the global model", "accuracy on all test images",
               *_accuracy("best_accuracy")),
        _Panel("Accuracy where it is used, last round", "accuracy on a client's own test images",
               *_accuracy("own_accuracy")),
    ]  # fmt: skip


def _reached(name: str, goal: str, unit: float) -> tuple[Any, Any]:
    def number(value: float | None) -> float:
        return math.inf if value is None else float(value) * unit

    def values(one: Result) -> list[float]:
        return [number(value) for value in one["by_trial"][name][goal]]

    return values, lambda one: number(one[name][goal])


def _accuracy(name: str) -> tuple[Any, Any]:
    def values(one: Result) -> list[float]:
        return [float(value) for value in one["by_trial"][name]]

    return values, lambda one: float(one[name])


def _draw(
    panel: Axes, one: _Panel, results: Sequence[Result], names: list[str], splits: list[str]
) -> None:
    look.tidy(panel, one.title, one.across, "")
    ends: list[float] = []
    never = math.inf if one.last is None else one.last * _BEYOND
    for result in results:
        shown = _LOOKS[result["algorithm"]]
        lane = names.index(result["algorithm"]) - (len(names) - 1) / 2
        at = splits.index(result["partition"]) + lane * _LANE
        reached = [min(value, never) for value in one.values(result)]
        middle = one.middle(result)
        ends += [value for value in reached if value < never]
        panel.plot([min(reached), max(reached)], [at, at], color=shown.colour, linewidth=1.0)
        options = shown.options() | ({"markerfacecolor": "white"} if middle == math.inf else {})
        panel.plot(
            [min(middle, never)], [at], label=shown.label, zorder=3, clip_on=False, **options
        )
    for row in range(0, len(splits), 2):
        panel.axhspan(row - 0.5, row + 0.5, color=canvas.FAINT, alpha=0.35, linewidth=0, zorder=0)
    panel.set_ylim(len(splits) - 0.5, -0.5)
    panel.set_yticks(range(len(splits)), [_SPLITS[split] for split in splits])
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", color=canvas.FAINT, linewidth=0.6)
    _scale(panel, one, ends)


def _scale(panel: Axes, one: _Panel, ends: list[float]) -> None:
    """Set the axis: logarithmic for rounds and bytes, linear for accuracies."""
    if one.last is None:
        low = min(ends)
        panel.set_xlim(max(low - 0.05, 0.0), 1.0)
        return
    least = min(ends, default=one.last)
    panel.set_xscale("log")
    panel.set_xlim(least / _ROOM, one.last * _BEYOND * _ROOM)
    panel.axvline(one.last * math.sqrt(_BEYOND), color=canvas.GREY, linewidth=0.8, linestyle=":")
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(one.last)) + 1)
    ticks = [step * 10.0**power for power in powers for step in _STEPS]
    kept = [tick for tick in ticks if least / _ROOM <= tick <= one.last]
    panel.set_xticks([*kept, one.last * _BEYOND], [*(f"{tick:g}" for tick in kept), "not\nreached"])
    panel.set_xticks([], minor=True)


def _goal(merged: Merged) -> str:
    return str(merged.data["targets"][-1])


def _percent(share: float | str) -> str:
    return f"{float(share):.0%}".replace("%", " %")


def _trials(merged: Merged) -> str:
    counts = sorted({int(one["trials"]) for one in merged.results})
    words = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return "1 trial" if words == "1" else f"{words} trials"


def _note(merged: Merged) -> str:
    parameters = merged.parameters
    share = float(parameters["participation"])
    return _NOTE.format(
        clients=parameters["clients"],
        taking="all" if share == 1 else f"{_percent(share)} of them",
        model=merged.results[0]["model"],
        trials=_trials(merged),
    )
