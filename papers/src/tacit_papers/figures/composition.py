"""The figure of accounting: accuracy lost and advantages of attackers, against ε."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.panels import Reference
from tacit_papers.figures.records import Merged, Result, TrialSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "naive": Look("naive composition", "#D55E00", "s"),
    "advanced": Look("advanced composition", "#E69F00", "D", (0, (4, 1.5))),
    "zcdp": Look("zCDP, no sampling", "#009E73", "^", (0, (4, 1.5, 1, 1.5))),
    "rdp": Look("Rényi", "#56B4E9", "v", (0, (1, 1.2))),
    "pld": Look("privacy loss\ndistribution", "#0072B2", "o"),
}
_CEILING = Look("the most that ε allows", canvas.INK, "", (0, (1, 1.2)))
_MODELS = {"logistic": "Logistic regression", "network": "Two layers of 256 ReLUs"}
_ROWS = {
    "accuracy_loss": "accuracy lost",
    "membership_advantage": "membership advantage",
    "attribute_advantage": "attribute advantage",
}
_NOTE = (
    "The same training with the noise that each accountant requires, δ = {delta:g}; every "
    "guarantee is true. Lost: 1 − accuracy / accuracy without privacy. Advantage: members less "
    "others, called members by their loss, or with their {attribute} guessed; its 95 % interval "
    "reaches {reach:.3f} to either side."
)
_ROOM, _PAD = 1.5, 0.1


@records.results_with("a study of composition", "accountant, model and advantages")
def draw(merged: Merged) -> Figure:
    """Draw one column per model: accuracy lost, then both advantages under their ceiling."""
    models = [name for name in _MODELS if any(one["task"] == name for one in merged.results)]
    there = [name for name in _LOOKS if any(one["mechanism"] == name for one in merged.results)]
    figure, axes = panels.grid(len(_ROWS), len(models))
    for row, (measure, label) in zip(axes, _ROWS.items(), strict=True):
        values = [records.required(one, measure) for one in merged.results]
        values += [
            reference for m in models if (reference := _plain(merged, m, measure)) is not None
        ]
        for panel, model in zip(row, models, strict=True):
            mine = [one for one in merged.results if one["task"] == model]
            look.tidy(panel, _MODELS[model], "ε claimed", label)
            _draw(panel, mine, there, measure)
            _scales(panel, merged, values)
            plain = _plain(merged, model, measure)
            if plain is not None:
                panels.draw_references(panel, [Reference("no privacy", plain)])
    look.legend(
        figure, [("accountant", [_LOOKS[name] for name in there]), ("advantage", [_CEILING])]
    )
    title = f"{merged.name}: what each way of accounting costs ({merged.trials})"
    canvas.frame(figure, title, merged.caption(_said(merged)))
    return figure


def _draw(panel: Axes, results: Sequence[Result], there: Sequence[str], measure: str) -> None:
    for place, name in enumerate(there):
        line = sorted(
            (records.epsilon(one), records.required(one, measure))
            for one in results
            if one["mechanism"] == name
        )
        if line:
            across, values = zip(*line, strict=True)
            panels.points(panel, across, values, _LOOKS[name], place - (len(there) - 1) / 2)
    if measure != "accuracy_loss":
        allowed = sorted({(records.epsilon(one), float(one["ceiling"])) for one in results})
        panel.plot(*zip(*allowed, strict=True), label=_CEILING.label, **_CEILING.options())


def _scales(panel: Axes, merged: Merged, values: Sequence[TrialSummary]) -> None:
    """Set a logarithmic ε axis, and a vertical axis that holds all measurements."""
    epsilons = sorted({records.epsilon(one) for one in merged.results})
    panel.set_xscale("log")
    panel.set_xlim(epsilons[0] / _ROOM, epsilons[-1] * _ROOM)
    tens = [e for e in epsilons if math.log10(e).is_integer()] or epsilons
    panel.set_xticks(tens, [f"{e:g}" for e in tens])
    panel.set_xticks([], minor=True)
    ends = [end for value in values for end in value.reach]
    low, high = min(*ends, 0.0), max(*ends, 0.0)
    pad = _PAD * max(high - low, 0.02)
    panel.set_ylim(low - pad, high + pad)


def _plain(merged: Merged, model: str, measure: str) -> TrialSummary | None:
    """Return the measure of the model without privacy, whose accuracy loss is 0."""
    reference: Any = merged.references.get(model)
    return (
        None
        if reference is None or measure not in reference
        else records.measure(reference, measure)
    )


def _said(merged: Merged) -> str:
    names = ("membership_interval", "attribute_interval")
    wide = [one[name]["mean"] for one in merged.results for name in names]
    reach = max((high - low) / 2 for low, high in wide)
    attribute = merged.data.get("attribute", "attribute")
    return _NOTE.format(delta=merged.parameters["delta"], attribute=attribute, reach=reach)
