"""Sentences and tables about the private search."""

from __future__ import annotations

import json
from typing import Any

from tacit_papers.pages.evidence import StudyEvidence, table


def covered(evidence: StudyEvidence, measure: str = "interval") -> str:
    """Count the winners' intervals that hold the accuracy on test rows."""
    pairs = [
        (low <= truth <= high, abs(estimate - truth))
        for line in evidence.lines(measure).values()
        for r in line.values()
        for (low, high), truth, estimate in zip(
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


def _trials(measure: Any) -> Any:
    return measure["trials"] if isinstance(measure, dict) else measure


def regret(evidence: StudyEvidence, measure: str = "candidates") -> str:
    """Say how far the winner is below the candidate that is best on test rows."""
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
        f"{least:.3f} to {most:.3f} on average over trials (most: {where}). Part of this is "
        "chance: the best was chosen on the same test rows."
    )


def winners(evidence: StudyEvidence, measure: str = "winner") -> str:
    """Tabulate the settings that won in each trial, beside the paper's."""
    rows = []
    for series, line in evidence.lines(measure).items():
        for epsilon, result in sorted(line.items()):
            won = dict.fromkeys(_settings(w) for w in result[measure])
            paper = _settings(result["paper"]) if result.get("paper") else ""
            rows.append([evidence.name(series), f"{epsilon:g}", "<br>".join(won), paper])
    return table(["mechanism", "ε", "won", "the paper's"], rows)


def _settings(settings: Any) -> str:
    if not isinstance(settings, dict):
        return str(settings)
    return ", ".join(
        f"{k} {v if isinstance(v, str) else json.dumps(v)}" for k, v in settings.items()
    )


FIELDS = {
    "covered": covered,
    "regret": regret,
    "winners": winners,
}
