"""The figure of estimators: defaults against ε, then every algorithm of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.panels import Reference
from tacit_papers.figures.records import Merged, Result, TrialSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = dict[float, TrialSummary]

_LOOKS = {
    "LogisticRegression": Look("logistic regression", "#0072B2", "o"),
    "LinearSVC": Look("linear SVM", "#E69F00", "v"),
    "SVC": Look("kernel SVM", "#CC79A7", "D"),
    "RandomForestClassifier": Look("random forest", "#009E73", "s"),
    "MLPClassifier": Look("network", "#D55E00", "^"),
    "LinearRegression": Look("linear regression", "#0072B2", "o"),
    "Ridge": Look("ridge", "#56B4E9", "v"),
    "MLPRegressor": Look("network", "#D55E00", "^"),
    "GaussianNB": Look("naive Bayes", canvas.GREY, "x"),
}
_PEER = Look("diffprivlib", canvas.GREY, "x", (0, (1, 1.2)))
_STYLES: tuple[tuple[Any, str], ...] = (
    ("-", "o"),
    ((0, (4, 1.5)), "s"),
    ((0, (1, 1.2)), "^"),
    ((0, (4, 1.5, 1, 1.5)), "D"),
)
"""Styles of the best algorithm of an estimator, the next one, …"""

_COLUMNS, _WIDTH, _APART, _BELOW, _ROOM = 3, 4.3, 1.6, 0.04, 1.25
_NOTE = (
    "Defaults: every estimator with its defaults. The others: its algorithms, the best over all "
    "ε solid. Grey: without privacy, and diffprivlib with the same public bounds. Points far "
    "below a constant answer are not shown."
)


@records.results_with("a study of classifiers", "library, estimator, algorithm and epsilon")
def draw(merged: Merged) -> Figure:
    """Draw one panel per estimator on one scale; error bars are one standard deviation."""
    names = [name for name in _LOOKS if _of(merged, estimator=name, library="tacit")]
    count = len(names) + 1
    columns = min(_COLUMNS, count) if count != 4 else 2
    rows = math.ceil(count / columns)
    figure = canvas.fitted(columns * _WIDTH, rows * panels.HEIGHT + 0.9)
    axes = figure.subplots(rows, columns, squeeze=False)
    chance = merged.reference("chance")
    accuracy = "accuracy on test rows" if chance else "R² on test rows"
    lines = [(_defaults(merged, names), chance)] + [(_algorithms(merged, n), chance) for n in names]
    free = [None, *(_free(merged, name) for name in names)]
    titles = ["Defaults", *(_headed(_LOOKS[name].label) for name in names)]
    limits = _limits([one for drawn, _ in lines for one in drawn], free, chance)
    for place, panel in enumerate(axes.flat):
        if place >= count:
            panel.set_axis_off()
            continue
        look.tidy(panel, titles[place], "ε of a fit", accuracy)
        panel.set_ylim(*limits)
        _draw_panel(panel, lines[place][0], free[place], chance)
    measured = "accuracy" if chance else "R²"
    title = f"{merged.name}: {measured} of estimators against ε ({merged.trials})"
    canvas.frame(figure, title, merged.caption(_NOTE))
    return figure


def _headed(words: str) -> str:
    return words[0].upper() + words[1:]


def _draw_panel(
    panel: Axes,
    lines: Sequence[tuple[Look, Line]],
    free: TrialSummary | None,
    chance: TrialSummary | None,
) -> None:
    bottom = panel.get_ylim()[0]
    ends = []
    for place, (shown, line) in enumerate(lines):
        across = sorted(line)
        aside = _APART * (place - (len(lines) - 1) / 2)
        # No error bar comes up from below: it may be as long as its point is low.
        seen = [
            line[e] if line[e].mean > bottom else TrialSummary(line[e].mean, 0, 1) for e in across
        ]
        panels.points(panel, across, seen, shown, aside)
        last = line[across[-1]]
        label = f"{shown.label}\n(below)" if last.mean < bottom else shown.label
        ends.append(
            Reference(label, TrialSummary(max(last.mean, bottom), 0, 1), colour=shown.colour)
        )
    levels = [] if free is None else [Reference("no privacy", free, "-")]
    if chance is not None:
        levels.append(Reference("largest class", chance))
    epsilons = {e for _, line in lines for e in line}
    panels.epsilon_axis(panel, epsilons)
    if panel.get_xscale() == "log":
        panel.set_xlim(min(epsilons) / _ROOM, max(epsilons) * _ROOM)
    panels.draw_references(panel, levels, ends)


def _defaults(merged: Merged, names: Iterable[str]) -> list[tuple[Look, Line]]:
    """Draw the default of each of our estimators, and those that only diffprivlib has."""
    lines = [(_LOOKS[n], _line(_of(merged, estimator=n, default=True), merged)) for n in names]
    alone = _of(merged, library="diffprivlib", estimator="GaussianNB")
    look_alone = replace(_PEER, label="naive Bayes of\ndiffprivlib")
    return [(a, b) for a, b in [*lines, (look_alone, _line(alone, merged))] if b]


def _algorithms(merged: Merged, name: str) -> list[tuple[Look, Line]]:
    """Draw our algorithms, the best first, and diffprivlib's estimator of the same name."""
    mine = _of(merged, estimator=name, library="tacit")
    usual = {one["algorithm"] for one in mine if one.get("default")}
    lines = {
        algorithm: _line([one for one in mine if one["algorithm"] == algorithm], merged)
        for algorithm in dict.fromkeys(one["algorithm"] for one in mine)
    }
    best = sorted(lines, key=lambda a: -sum(v.mean for v in lines[a].values()) / len(lines[a]))
    drawn = []
    for place, algorithm in enumerate(best):
        style, marker = _STYLES[place % len(_STYLES)]
        label = f"{algorithm}, default" if algorithm in usual and len(best) > 1 else algorithm
        shown = Look(label, _LOOKS[name].colour, marker, style, "none" if place else "full")
        drawn.append((shown, lines[algorithm]))
    peer = _line(_of(merged, estimator=name, library="diffprivlib"), merged)
    return drawn + ([(_PEER, peer)] if peer else [])


def _of(merged: Merged, **wanted: Any) -> list[Result]:
    """Return the results that match all of this."""
    return [one for one in merged.results if all(one.get(k) == v for k, v in wanted.items())]


def _line(results: Iterable[Result], merged: Merged) -> Line:
    return {
        records.epsilon(one): records.required(one, records.measure_of(merged.study, one))
        for one in results
    }


def _free(merged: Merged, name: str) -> TrialSummary | None:
    for one in _of(merged, estimator=name, library="scikit-learn"):
        return records.required(one, records.measure_of(merged.study, one))
    return None


def _limits(
    lines: Iterable[tuple[Look, Line]],
    free: Iterable[TrialSummary | None],
    chance: TrialSummary | None,
) -> tuple[float, float]:
    """Return the lower end of the axis: the lowest point, but not far below a constant answer."""
    values = [value for _, line in lines for value in line.values()]
    values += [value for value in (*free, chance) if value is not None]
    trivial = 0.0 if chance is None else chance.mean
    low = max(min(v.reach[0] for v in values), trivial - _BELOW)
    high = max(v.reach[1] for v in values if v.mean > low)
    pad = 0.05 * (high - low)
    return low - pad, high + pad
