"""Sentences about one set of reports that serves many tasks."""

from __future__ import annotations

from tacit_papers.pages.evidence import Missing, StudyEvidence, listed, signed


def generality(evidence: StudyEvidence, measure: str = "dedicated_accuracy") -> str:
    """Say what one set of reports for all tasks costs, against reports for each task."""
    moves: dict[str, list[tuple[float, str]]] = {}
    for series, line in evidence.lines(measure).items():
        for epsilon, r in line.items():
            change = r["clean_accuracy"]["mean"] - r[measure]["mean"]
            moves.setdefault(series[0], []).append((change, f"{series[4]}, ε = {epsilon:g}"))
    parts = [
        f"{mechanism} {signed(min(gaps)[0])} ({min(gaps)[1]}) to {signed(max(gaps)[0])} "
        f"({max(gaps)[1]})"
        for mechanism, gaps in moves.items()
    ]
    return (
        "One set of reports for all tasks, against reports made for that task alone: "
        f"{'; '.join(parts)}."
    )


def above_chance(evidence: StudyEvidence, measure: str = "clean_accuracy") -> str:
    """Say which mechanisms beat chance on every task, and where the others do not."""
    lost: dict[str, list[str]] = {}
    for series, line in evidence.lines(measure).items():
        below = lost.setdefault(series[0], [])
        for epsilon, r in sorted(line.items()):
            if "chance" not in r:
                raise Missing("chance")
            if r[measure]["mean"] <= r["chance"] + r[measure]["std"]:
                below.append(f"{series[4]} at ε = {epsilon:g}")
    parts = [
        f"{mechanism} on every task at every ε"
        if not below
        else f"{mechanism} but for {listed(below)}"
        for mechanism, below in lost.items()
    ]
    return f"Above chance by more than one standard deviation: {'; '.join(parts)}."


FIELDS = {
    "generality": generality,
    "above chance": above_chance,
}
