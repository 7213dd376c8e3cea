"""References and table of the study of accounting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit_papers.engine.tables import Table, trials


def table(record: Mapping[str, Any]) -> Table:
    """Return title, header and lines: one line per model and accountant, one column per ε."""
    parameters, data = record["parameters"], record["data"]
    epsilons = sorted({one["epsilon"] for one in record["results"]})
    lines: list[tuple[str, ...]] = []
    for model in parameters["models"]:
        mine = [one for one in record["results"] if one["task"] == model]
        for name in parameters["accountants"]:
            line = {one["epsilon"]: one for one in mine if one["mechanism"] == name}
            lines.append((f"{model}\n  {name}", *(_cell(line.get(e)) for e in epsilons)))
        plain = record["references"].get(model)
        if plain is not None:
            said = f"{plain['accuracy']['mean']:.3f}"
            lines.append((f"{model}\n  no privacy", said, *[""] * (len(epsilons) - 1)))
    title = (
        f"composition, {parameters['data']}: {data['training']:,} members, "
        f"{data['test']:,} others; δ = {parameters['delta']:g}; {trials(record)}. "
        "Accuracy lost, the advantage of the membership attack, and the ε that is actually spent, "
        "against the claimed ε"
    )
    return title, ("", *(f"ε = {e:g}" for e in epsilons)), lines


def _cell(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    lost, advantage = one["accuracy_loss"]["mean"], one["membership_advantage"]["mean"]
    return f"{lost:.3f}\n{advantage:+.3f}\nε {one['proved_epsilon']:.3g}"
