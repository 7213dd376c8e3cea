"""Tables and sentences of the study of tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tacit_papers.pages.evidence import Missing, StudyEvidence, listed, signed, table
from tacit_papers.parts.table_gains import TODAY, Difference, differences, scores, summary

ORDER = ("codebook", "partitions", "rounds", "column", "privunit", "direct", "none")
WIDE = 50
"""Columns of a table that counts as wide."""

_NAMES = {
    "codebook": "codebook, student",
    "column": "column + label",
    "privunit": "PrivUnit",
    "none": "no privacy",
}
_OURS = {"partitions": "one round", "rounds": "two rounds"}


def described(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the tables: sizes, the measure, and whether settings were chosen on them."""
    known: dict[str, Any] = {}
    for record in evidence.records:
        known |= record["data"].get("tables", {})
    if not known:
        raise Missing("tables")
    rows = [
        [
            f"`{name}`",
            "pictures" if one["pictures"] else "table",
            *(f"{one[key]:,}" for key in ("columns", "classes", "inhouse", "people", "test")),
            "area under the curve" if one["classes"] == 2 else "accuracy",
            "tuned on" if one["tuned"] else "reported",
        ]
        for name, one in known.items()
    ]
    head = ["name", "", "columns", "classes", "in-house", "people", "test", "measure", "settings"]
    return table(head, rows)


def scored(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate methods against tables, one table per ε, with standard errors."""
    methods = [name for name in ORDER if any(r["mechanism"] == name for r in evidence.results)]
    by_cell = {(r["mechanism"], r["task"], r["epsilon"]): r for r in evidence.results}
    parts = []
    for epsilon in _epsilons(evidence):
        rows = []
        for task, tuned in _tasks(evidence).items():
            cells = [by_cell.get((m, task, None if m == "none" else epsilon)) for m in methods]
            shown = ["" if one is None else _shown(summary(scores(one))) for one in cells]
            rows.append([f"`{task}`{' †' if tuned else ''}", *shown])
        head = [f"ε = {epsilon:g}", *(_NAMES.get(name, name) for name in methods)]
        parts.append(table(head, rows))
    return "\n\n".join(parts)


def gained(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the mean gain over the codebook, and on how many tables it is more than noise."""
    tasks = _tasks(evidence)
    rows = []
    for kind, wanted in (("reported", False), ("tuned on", True)):
        for method, words in _OURS.items():
            gains = _those(evidence, method, (t for t, tuned in tasks.items() if tuned is wanted))
            for epsilon in _epsilons(evidence):
                there = [gain for (_, e), gain in gains.items() if e == epsilon]
                if there:
                    rows.append([kind, words, f"{epsilon:g}", *_counted(there)])
    if not rows:
        raise Missing("gain over the codebook")
    head = ["tables", "", "ε", "how many", "mean gain", "better", "worse"]
    return table(head, rows)


def _counted(gains: list[Difference]) -> list[str]:
    mean = signed(float(np.mean([gain.mean for gain in gains])))
    counts = [sum(gain.better for gain in gains), sum(gain.worse for gain in gains)]
    return [str(len(gains)), mean, *map(str, counts)]


def worse(evidence: StudyEvidence, _: str = "") -> str:
    """List the tables on which a collection is worse than the codebook."""
    parts = []
    for method, words in _OURS.items():
        gains = _told(_those(evidence, method, _tasks(evidence)))
        found = [_at(*cell, gain) for cell, gain in gains.items() if gain.worse]
        said = "; ".join(found) if found else "none"
        parts.append(
            f"- {words}: worse than the codebook by more than one standard error in "
            f"{len(found)} of {len(gains)} cases{': ' + said if found else ''}."
        )
    return "\n".join(parts)


def rounds_pay(evidence: StudyEvidence, _: str = "") -> str:
    """Say where two rounds are better than one, and where they are worse."""
    found = _told(differences(evidence.results, "rounds", "partitions"))
    better = [_at(*cell, gain) for cell, gain in found.items() if gain.better]
    lost = [_at(*cell, gain) for cell, gain in found.items() if gain.worse]
    said = [
        f"Of {len(found)} cases, two rounds are better than one by more than one standard error "
        f"in {len(better)}, and worse in {len(lost)}."
    ]
    said += [f"Better: {'; '.join(better)}."] if better else []
    said += [f"Worse: {'; '.join(lost)}."] if lost else []
    return " ".join(said)


def closed(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate how much of the distance to no privacy is closed on wide tables."""
    by_cell = {(r["mechanism"], r["task"], r["epsilon"]): r for r in evidence.results}
    wide = {r["task"] for r in evidence.results if r["columns"] >= WIDE and not r["pictures"]}
    rows = []
    for task in (task for task in _tasks(evidence) if task in wide):
        free = by_cell.get(("none", task, None))
        for epsilon in _epsilons(evidence):
            today = by_cell.get((TODAY, task, epsilon))
            if free is not None and today is not None:
                top, low = (float(np.mean(scores(one))) for one in (free, today))
                ours = (by_cell.get((method, task, epsilon)) for method in _OURS)
                rows.append([f"`{task}`", f"{epsilon:g}", f"{low:.3f}", f"{top:.3f}",
                             *(_share(one, low, top) for one in ours)])  # fmt: skip
    if not rows:
        raise Missing(f"tables of {WIDE} columns or more, with and without privacy")
    return table(["table", "ε", "codebook, student", "no privacy", *_OURS.values()], rows)


def _share(result: Any, low: float, top: float) -> str:
    if result is None:
        return ""
    reached = float(np.mean(scores(result)))
    if top - low < 0.01:
        return f"{reached:.3f}"
    return f"{reached:.3f} ({(reached - low) / (top - low):.0%})".replace("-", "−")


def _shown(found: Difference) -> str:
    error = "" if math.isnan(found.error) else f"\u00a0±\u00a0{found.error:.3f}"
    return f"{found.mean:.3f}{error}"


def _at(task: str, epsilon: float, gain: Difference) -> str:
    return f"`{task}` at ε = {epsilon:g} ({signed(gain.mean)}\u00a0±\u00a0{gain.error:.3f})"


def _told(gains: dict[tuple[str, float], Difference]) -> dict[tuple[str, float], Difference]:
    """Return the differences that have a standard error."""
    told = {cell: gain for cell, gain in gains.items() if not math.isnan(gain.error)}
    if not told:
        raise Missing("standard errors of differences, which need two trials")
    return told


def _those(
    evidence: StudyEvidence, method: str, tasks: Iterable[str]
) -> dict[tuple[str, float], Difference]:
    kept = set(tasks)
    gains = differences(evidence.results, method)
    return {cell: gain for cell, gain in gains.items() if cell[0] in kept}


def _tasks(evidence: StudyEvidence) -> dict[str, bool]:
    """Return the tables in the order of the records, and whether settings were chosen on them."""
    every = [r for record in evidence.records for r in record["results"]]
    return {one["task"]: bool(one["tuned"]) for one in every}


def _epsilons(evidence: StudyEvidence) -> list[float]:
    return sorted({r["epsilon"] for r in evidence.results if r["epsilon"] is not None})


def tuned(evidence: StudyEvidence, _: str = "") -> str:
    """Name the tables on which settings were chosen."""
    names = [f"`{task}`" for task, chosen in _tasks(evidence).items() if chosen]
    return listed(names) if names else "none of these"


FIELDS = {
    "described": described,
    "scored": scored,
    "gained": gained,
    "worse": worse,
    "rounds pay": rounds_pay,
    "closed": closed,
    "tuned": tuned,
}
