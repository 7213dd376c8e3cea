"""Sentences about the study of joining."""

from __future__ import annotations

import math
from typing import Any

from tacit_papers.pages.evidence import StudyEvidence, listed, shown


def joining(evidence: StudyEvidence, measure: str = "semi_private_accuracy") -> str:
    """Say what the other party's columns would add, and what reports of them add."""
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


FIELDS = {
    "joining": joining,
}
