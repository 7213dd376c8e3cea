"""Trials of the study of composition put together, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit_papers.engine.record import summary
from tacit_papers.engine.tables import Table


def measured(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the trials of one cell found.

    An interval is the mean of those of the trials: wider than one of their mean would be.
    """
    names = runs[0]["values"]
    return {name: summary([run["values"][name] for run in runs]) for name in names}


def references(every: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A number for chance, all that was measured of the models without privacy."""
    return {
        name: found["accuracy"]["mean"]
        if name == "chance"
        else {key: value for key, value in found.items() if key != "reference"}
        for name, found in every.items()
    }


def table(record: Mapping[str, Any]) -> Table:
    """Title, header and lines: a line for each model and accountant, a column for each ε."""
    given, data = record["parameters"], record["data"]
    epsilons = sorted({one["epsilon"] for one in record["results"]})
    lines: list[tuple[str, ...]] = []
    for model in given["models"]:
        mine = [one for one in record["results"] if one["task"] == model]
        for name in given["accountants"]:
            line = {one["epsilon"]: one for one in mine if one["mechanism"] == name}
            lines.append((f"{model}\n  {name}", *(_cell(line.get(e)) for e in epsilons)))
        plain = record["references"].get(model)
        if plain is not None:
            said = f"{plain['accuracy']['mean']:.3f}"
            lines.append((f"{model}\n  no privacy", said, *[""] * (len(epsilons) - 1)))
    trials = "1 trial" if given["trials"] == 1 else f"{given['trials']} trials"
    title = (
        f"composition, {given['data']}: {data['training']:,} members, {data['test']:,} others; "
        f"δ = {given['delta']:g}; {trials}. Accuracy lost, the advantage of the membership "
        "attack, and the ε that is really spent, against the ε claimed"
    )
    return title, ("", *(f"ε = {e:g}" for e in epsilons)), lines


def _cell(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    lost, told = one["accuracy_loss"]["mean"], one["membership_advantage"]["mean"]
    return f"{lost:.3f}\n{told:+.3f}\nε {one['proved_epsilon']:.3g}"
