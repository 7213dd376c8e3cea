"""Sentences and tables of single studies: joining, searching, one set of reports for many tasks."""

from __future__ import annotations

import json
import math
from typing import Any

from tacit_papers.pages.evidence import Evidence, Missing, listed, shown, signed, table


def joining(evidence: Evidence, measure: str = "semi_private_accuracy") -> str:
    """What the other party's columns would add, and what reports of them do add."""
    ours, everything = evidence.reference("clean_only"), evidence.reference("all_clean")
    room = everything["mean"] - ours["mean"]
    text = f"Our columns alone: {shown(ours)}. All columns clean: {shown(everything)}. "
    if room <= math.hypot(ours["std"], everything["std"]):
        text += "That is within one standard deviation: there is next to nothing to gain. "
    parts = []
    for series, line in evidence.lines(measure).items():
        above = [
            e
            for e, r in sorted(line.items())
            if r[measure]["mean"] - ours["mean"] > math.hypot(r[measure]["std"], ours["std"])
        ]
        where = f"at ε = {listed(above)}" if above else "at no ε"
        parts.append(f"{evidence.name(series)} {where}{_regained(line, measure, ours, room)}")
    return (
        text + f"Above our columns alone by more than one standard deviation: {'; '.join(parts)}."
    )


def _regained(line: dict[float, Any], measure: str, ours: dict[str, Any], room: float) -> str:
    if room <= 0:
        return ""
    share = (line[max(line)][measure]["mean"] - ours["mean"]) / room
    return f" ({share:.0%} of what there is to gain, at ε = {max(line):g})"


def covered(evidence: Evidence, measure: str = "interval") -> str:
    """How many of the winners' intervals hold the accuracy on test rows."""
    pairs = [
        (low <= truth <= high, abs(told - truth))
        for line in evidence.lines(measure).values()
        for r in line.values()
        for (low, high), truth, told in zip(
            _trials(r["interval"]),
            r["test_accuracy"]["trials"],
            r["estimated_accuracy"]["trials"],
            strict=True,
        )
    ]
    inside = sum(hit for hit, _ in pairs)
    return (
        f"{inside} of {len(pairs)} intervals hold the accuracy on test rows; the estimate is "
        f"{sum(error for _, error in pairs) / len(pairs):.3f} from it on average."
    )


def _trials(given: Any) -> Any:
    return given["trials"] if isinstance(given, dict) else given


def regret(evidence: Evidence, measure: str = "candidates") -> str:
    """How far the winner is below the candidate that is best on test rows."""
    parts = []
    for series, line in evidence.lines(measure).items():
        for epsilon, result in sorted(line.items()):
            top = [max(t) for t in zip(*(c["test"] for c in result[measure]), strict=True)]
            won = result["test_accuracy"]["trials"]
            lost = sum(a - b for a, b in zip(top, won, strict=True)) / len(won)
            parts.append((lost, f"{evidence.name(series)} at ε = {epsilon:g}"))
    (least, _), (most, where) = min(parts), max(parts)
    return (
        "The winner is below the candidate that is best on test rows by "
        f"{least:.3f} to {most:.3f} on average over trials (most: {where}). Part of it is luck of "
        "the best on test rows."
    )


def winners(evidence: Evidence, measure: str = "winner") -> str:
    """Settings that won, a trial each, beside the paper's."""
    rows = []
    for series, line in evidence.lines(measure).items():
        for epsilon, result in sorted(line.items()):
            won = dict.fromkeys(_settings(w) for w in result[measure])
            paper = _settings(result["paper"]) if result.get("paper") else ""
            rows.append([evidence.name(series), f"{epsilon:g}", "<br>".join(won), paper])
    return table(["mechanism", "ε", "won", "the paper's"], rows)


def _settings(given: Any) -> str:
    if not isinstance(given, dict):
        return str(given)
    return ", ".join(f"{k} {v if isinstance(v, str) else json.dumps(v)}" for k, v in given.items())


def generality(evidence: Evidence, measure: str = "dedicated_accuracy") -> str:
    """What one set of reports for all tasks costs against reports made for each."""
    moves: dict[str, list[tuple[float, str]]] = {}
    for series, line in evidence.lines(measure).items():
        for epsilon, r in line.items():
            change = r["clean_accuracy"]["mean"] - r[measure]["mean"]
            moves.setdefault(series[0], []).append((change, f"{series[4]}, ε = {epsilon:g}"))
    parts = [
        f"{mechanism} {signed(min(found)[0])} ({min(found)[1]}) to {signed(max(found)[0])} "
        f"({max(found)[1]})"
        for mechanism, found in moves.items()
    ]
    return (
        "One set of reports for all tasks, against reports made for that task alone: "
        f"{'; '.join(parts)}."
    )


def above_chance(evidence: Evidence, measure: str = "clean_accuracy") -> str:
    """Which mechanisms beat chance on every task, and where the others do not."""
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
