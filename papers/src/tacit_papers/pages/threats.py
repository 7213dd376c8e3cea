"""Tables and sentences of the study of threats."""

from __future__ import annotations

from typing import Any

from tacit_papers.pages.evidence import Missing, Result, StudyEvidence, listed, shown, signed, table

BACKDOORS = ("backdoor", "model-replacement", "sybil")
WORKS = 0.5
"""Success rate above which a backdoor is said to work."""


def accuracy(evidence: StudyEvidence, split: str) -> str:
    """Tabulate the accuracy of attacks against defences."""
    return _matrix(evidence, split, "accuracy", None)


def backdoors(evidence: StudyEvidence, split: str) -> str:
    """Tabulate how often images with the trigger are classified as the target."""
    return _matrix(evidence, split, "backdoor_success", ("none", *BACKDOORS))


def price(evidence: StudyEvidence, split: str) -> str:
    """Say what each defence costs where nobody attacks."""
    results = _results(evidence, split)
    usual = _mean(results, "none", "mean", "accuracy")
    parts = [
        f"{defence} {signed(_mean(results, 'none', defence, 'accuracy') - usual)}"
        for defence in _names(results, 1)
        if defence != "mean"
    ]
    return f"Where nobody attacks, accuracy against the plain mean: {', '.join(parts)}."


def harm(evidence: StudyEvidence, split: str) -> str:
    """Say what each attack costs under the plain mean, and which defence keeps most accuracy."""
    results = _results(evidence, split)
    usual = _mean(results, "none", "mean", "accuracy")
    lines = ["Change of accuracy under attack:", ""]
    for attack in _names(results, 0):
        if attack == "none":
            continue
        lost = signed(_mean(results, attack, "mean", "accuracy") - usual)
        kept = {one: _mean(results, attack, one, "accuracy") for one in _names(results, 1)}
        best = max(kept, key=lambda one: kept[one])
        # Accuracy does not say whether a backdoor was kept out.
        more = (
            ""
            if attack in BACKDOORS
            else f"; the highest accuracy is {kept[best]:.3f}, with {best}"
        )
        lines.append(f"- {attack}: {lost} under the mean{more}")
    return "\n".join(lines)


def broken(evidence: StudyEvidence, split: str) -> str:
    """List the defences under which a backdoor works."""
    results = _results(evidence, split)
    lines = []
    for attack in _names(results, 0):
        if attack in BACKDOORS:
            rates = {
                one: _mean(results, attack, one, "backdoor_success") for one in _names(results, 1)
            }
            works = [f"{one} ({rate:.2f})" for one, rate in rates.items() if rate > WORKS]
            lines.append(f"- {attack}: {listed(works) if works else 'under none of them'}")
    if not lines:
        raise Missing("attacks with a backdoor")
    return f"Classified as the target more often than {WORKS:.0%}:\n\n" + "\n".join(lines)


def _matrix(evidence: StudyEvidence, split: str, measure: str, wanted: Any) -> str:
    results = _results(evidence, split)
    kept = _names(results, 1)
    rows = [
        [attack, *(shown(results[attack, one][measure]) for one in kept)]
        for attack in _names(results, 0)
        if wanted is None or attack in wanted
    ]
    return table(["", *kept], rows)


def _results(evidence: StudyEvidence, split: str) -> dict[tuple[str, str], Result]:
    results = {
        (one["attack"], one["defence"]): one
        for one in evidence.results
        if one["partition"] == split
    }
    if not results:
        raise Missing(f"runs of clients that are split by {split}")
    return results


def _names(results: dict[tuple[str, str], Result], at: int) -> list[str]:
    return list(dict.fromkeys(key[at] for key in results))


def _mean(results: dict[tuple[str, str], Result], attack: str, defence: str, measure: str) -> float:
    if (attack, defence) not in results:
        raise Missing(f"{attack} against {defence}")
    return float(results[attack, defence][measure]["mean"])


FIELDS = {
    "accuracy": accuracy,
    "backdoors": backdoors,
    "price": price,
    "harm": harm,
    "broken": broken,
}
