"""The figure of many tasks: one set of reports for all, beside reports for one task alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Fill, Look
from tacit_papers.figures.panels import Reference
from tacit_papers.figures.records import Merged, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 4
_APART = 0.09
_KINDS: dict[str, tuple[Any, Fill]] = {
    "clean_accuracy": ("-", "full"),
    "dedicated_accuracy": ((0, (4, 1.5)), "none"),
}
_REPORTS = {"clean_accuracy": "one set for all tasks", "dedicated_accuracy": "made for this task"}


def draw(merged: Merged) -> Figure:
    """Draw one panel per task: shared reports against dedicated ones, at every ε."""
    tasks = list(dict.fromkeys(str(one.get("task")) for one in merged.results))
    columns = min(len(tasks), _COLUMNS)
    rows = -(-len(tasks) // columns)
    figure, axes = panels.grid(rows, columns, 2.8)
    panels.limits(axes.flat, _reaches(merged))
    for panel in axes.flat[len(tasks) :]:
        panel.set_axis_off()
    for panel, task in zip(axes.flat, tasks, strict=False):
        _draw_task(panel, merged, task)
    look.legend(figure, _sections(merged))
    title = f"{merged.name}: one set of private reports, several tasks ({merged.trials})"
    canvas.frame(figure, title, merged.caption())
    return figure


def _sections(merged: Merged) -> list[tuple[str, list[Look]]]:
    shared, dedicated = _KINDS.values()
    kinds = [
        Look(_REPORTS["clean_accuracy"], canvas.GREY, "o", *shared),
        Look(_REPORTS["dedicated_accuracy"], canvas.GREY, "o", *dedicated),
    ]
    return [("mechanism", list(look.mechanisms(merged.results).values())), ("reports", kinds)]


def _draw_task(axes: Axes, merged: Merged, task: str) -> None:
    mine = [one for one in merged.results if str(one.get("task")) == task]
    epsilons = sorted({records.epsilon(one) for one in merged.results})
    series = list(_series(merged, mine))
    for index, (name, results, shown) in enumerate(series):
        aside = _APART * (index - (len(series) - 1) / 2)
        points = [
            (epsilons.index(records.epsilon(one)) + aside, value)
            for one in sorted(results, key=records.epsilon)
            if (value := records.measure(one, name)) is not None
        ]
        if points:
            across, values = zip(*points, strict=True)
            panels.points(axes, across, values, shown)
    axes.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
    axes.set_xlim(-0.5, len(epsilons) - 0.5)
    look.tidy(axes, task, "local ε of a report", f"accuracy on clean {merged.things}")
    chance = next((c for one in mine if (c := records.measure(one, "chance"))), None)
    panels.draw_references(axes, [Reference(panels.CHANCE, chance)] if chance else [])


def _series(merged: Merged, mine: list[Result]) -> Iterator[tuple[str, list[Result], Look]]:
    for key, base in look.mechanisms(merged.results).items():
        results = [one for one in mine if look.key(one) == key]
        for name, (line, fill) in _KINDS.items():
            label = f"{base.label}, {_REPORTS[name]}"
            yield name, results, replace(base, label=label, line=line, fill=fill)


def _reaches(merged: Merged) -> list[tuple[float, float]]:
    values = [records.measure(one, name) for one in merged.results for name in (*_KINDS, "chance")]
    return [value.reach for value in values if value is not None]
