"""Summary of the trials of the study of anonymized representations, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.local.inference.validation import exact_interval
from tacit_papers.engine.record import summary
from tacit_papers.engine.tables import Table, trials

CONFIDENCE = 0.95
_SINGLE = ("bound_accuracy", "code_ceiling", "ceiling")
"""Numbers that are computed, not measured: their means are kept."""


def measured(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize the trials of one cell."""
    trials = [run["values"] for run in runs]
    summaries: dict[str, Any] = {}
    for name, first in trials[0].items():
        same = [values[name] for values in trials]
        if name == "probes":
            summaries |= _attackers(same)
        elif isinstance(first, dict):
            summaries[name] = {key: summary([one[key] for one in same]) for key in first}
        elif name in _SINGLE:
            summaries[name] = summary(same)["mean"]
        else:
            summaries[name] = summary(same)
    if "bound_accuracy" in summaries:
        low = summaries["strongest_probe"]["interval"][0]
        summaries["bound_violated"] = bool(low > summaries["bound_accuracy"])
    return summaries


def _attackers(trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the attacker that was right most often over all trials, and the accuracy of each.

    Its interval is that of Clopper and Pearson on all rows together, at a level at which those of
    all attackers hold at once, because the attacker was chosen on the same rows.
    """
    rows = sum(one["rows"] for one in trials)
    names = list(trials[0]["right"])
    right = {name: sum(one["right"][name] for one in trials) for name in names}
    best = max(right, key=lambda name: right[name])
    at_once = 1 - (1 - CONFIDENCE) / len(names)
    strongest = {
        "name": best,
        "accuracy": right[best] / rows,
        "interval": list(exact_interval(right[best], rows, 1.0, 0.0, at_once)),
        "rows": rows,
    }
    shares = {name: summary([one["right"][name] / one["rows"] for one in trials]) for name in names}
    return {"strongest_probe": strongest, "probes": shares}


def table(record: Mapping[str, Any]) -> Table:
    """Return title, header and lines: one line per training, λ and ε, and the references."""
    parameters, data, others = record["parameters"], record["data"], record["references"]
    lines = [(_named(one), *_shown(one), *_second(one)) for one in record["results"]]
    if "trivial" in others:
        alone = others["trivial"]
        lines.append((f"{parameters['regular']}\nalone", *_shown(alone), *_second(alone)))
    if "raw" in others:
        lines.append(("raw rows", "", "", _strongest(others["raw"]), "", *_second(others["raw"])))
    if "dedicated" in others:
        said = f"{others['dedicated']['accuracy']['mean']:.1%}"
        lines.append(("dedicated\nnetwork", "", said, *[""] * (len(lines[0]) - 3)))
    title = (
        f"anonymize, {parameters['data']}: {data['training']:,} training, {data['validation']:,} "
        f"validation, {data['test']:,} test rows of {data['private_classes']} "
        f"({parameters['private']}); chance {others.get('chance', float('nan')):.1%}; "
        f"{trials(record)}"
    )
    header = ("", parameters["regular"], "own\nadversary", "strongest\nprobe", "bound\n(14)")
    return title, (*header, *_second_names(record["results"])), lines


def _named(one: Mapping[str, Any]) -> str:
    epsilon = "" if one["epsilon"] is None else f"\n  ε = {one['epsilon']:g}"
    return f"{one['training']}\n  λ = {one['strength']:g}{epsilon}"


def _shown(one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    accuracies = (one[name]["mean"] for name in ("regular_accuracy", "adversary_accuracy"))
    first, second = (f"{accuracy:.1%}" for accuracy in accuracies)
    violated = "\nviolated" if one["bound_violated"] else ""
    return first, second, _strongest(one), f"{one['bound_accuracy']:.1%}{violated}"


def _strongest(one: Mapping[str, Any]) -> str:
    best = one["strongest_probe"]
    low, high = (f"{100 * end:.1f}" for end in best["interval"])
    return f"{best['accuracy']:.1%}\n{low}–{high}\n{best['name']}"


def _second(one: Mapping[str, Any]) -> list[str]:
    return [
        f"{value['mean']:.4f}" if name.endswith("_rmse") else f"{value['mean']:.1%}"
        for name, value in one.get("second_task", {}).items()
        if name.endswith(("_rmse", "_accuracy"))
    ]


def _second_names(results: Sequence[Mapping[str, Any]]) -> list[str]:
    every = results[0].get("second_task", {}) if results else {}
    return [
        name.replace("_rmse", "\nRMSE").removesuffix("_accuracy").replace("_", "\n")
        for name in every
        if name.endswith(("_rmse", "_accuracy"))
    ]
