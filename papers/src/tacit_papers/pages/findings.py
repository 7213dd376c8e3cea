"""Sentences about one study on one data set.

A sentence that claims an order is derived from the numbers, and has another form where the order
does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tacit_papers.pages.evidence import (
    Missing,
    Result,
    StudyEvidence,
    epsilons_of,
    listed,
    shown,
    signed,
    table,
)


def best(evidence: StudyEvidence, measure: str) -> str:
    """Say which series has the highest mean, and at which ε."""
    lines = evidence.unprotected(measure)
    if len(lines) == 1:
        return f"Only {evidence.name(next(iter(lines)), lines)} was run."
    wins: dict[str, list[float]] = {}
    leads = []
    for epsilon in epsilons_of(lines):
        ranked = sorted(
            ((line[epsilon][measure], s) for s, line in lines.items() if epsilon in line),
            key=lambda pair: -pair[0]["mean"],
        )
        if len(ranked) > 1:
            (first, winner), (second, other) = ranked[:2]
            wins.setdefault(evidence.name(winner, lines), []).append(epsilon)
            spread = math.hypot(first["std"], second["std"])
            lead = first["mean"] - second["mean"]
            leads.append((lead, epsilon, evidence.name(other, lines), lead <= spread))
    if not leads:
        raise Missing("two mechanisms at the same ε")
    return _who_wins(wins, leads)


def _who_wins(wins: dict[str, list[float]], leads: Sequence[tuple[float, float, str, bool]]) -> str:
    if len(wins) > 1:
        parts = [f"**{name}** at ε = {listed(at)}" for name, at in wins.items()]
        text = f"No mechanism is best throughout. The highest mean has {'; '.join(parts)}."
    else:
        (name, at), (lead, epsilon, other, _) = next(iter(wins.items())), min(leads)
        text = (
            f"**{name}** has the highest mean at every ε ({listed(at)}); its smallest lead is "
            f"{lead:.3f}, over {other} at ε = {epsilon:g}."
        )
    near = [epsilon for _, epsilon, _, within in leads if within]
    if near:
        text += f" At ε = {listed(near)} the lead is within one standard deviation of the trials."
    return text


def by_chance(evidence: StudyEvidence, measure: str) -> str:
    """Say which series are not above chance, and at which ε."""
    chance = evidence.reference("chance")
    lines = evidence.unprotected(measure)
    lost = {}
    for series, line in lines.items():
        at = [
            e for e, r in sorted(line.items()) if r[measure]["mean"] <= chance + r[measure]["std"]
        ]
        if at:
            lost[evidence.name(series, lines)] = at
    trials = [len(r[measure]["trials"]) for line in lines.values() for r in line.values()]
    margin = " by more than one standard deviation" if min(trials) > 1 else ", in one trial"
    if not lost:
        return f"Everything is above chance ({chance:.3f}){margin}."
    parts = [f"{name} at ε = {listed(at)}" for name, at in lost.items()]
    return f"Not above chance ({chance:.3f}){margin}: {'; '.join(parts)}."


def price(evidence: StudyEvidence, measure: str) -> str:
    """Say what privacy costs each series, at the smallest and the largest ε."""
    free = evidence.reference("no_privacy")
    lines = evidence.unprotected(measure)
    parts = []
    for series, line in lines.items():
        gaps = {e: line[e][measure]["mean"] - free["mean"] for e in (min(line), max(line))}
        points = listed([f"{signed(gap)} at ε = {e:g}" for e, gap in gaps.items()])
        parts.append(f"{evidence.name(series, lines)} {points}")
    return f"Without privacy: {shown(free)}. Against that: {'; '.join(parts)}."


def _changes(
    evidence: StudyEvidence, measure: str, at: int, base: Any, of: Callable[[Any], bool] = bool
) -> list[str]:
    """List how a measure changes when one key of a series leaves its base."""
    lines, parts = evidence.lines(measure), []
    for series, line in lines.items():
        plain = lines.get((*series[:at], base, *series[at + 1 :]), {})
        moves = [
            (line[e][measure]["mean"] - plain[e][measure]["mean"], e) for e in line if e in plain
        ]
        if series[at] != base and moves and of(series):
            (low, low_at), (high, high_at) = min(moves), max(moves)
            parts.append(
                f"{evidence.name(series)}: {signed(low)} (ε = {low_at:g}) to {signed(high)} "
                f"(ε = {high_at:g})"
            )
    return parts


def central(evidence: StudyEvidence, measure: str) -> str:
    """Say what a central ε towards the in-house rows costs, where proved and where not."""
    proved = {s for s, line in evidence.lines(measure).items() if _proved(line)}
    parts = [_changes(evidence, measure, 3, "inf", lambda s: s in proved)]
    parts += [_changes(evidence, measure, 3, "inf", lambda s: s not in proved)]
    if not any(parts):
        raise Missing("a central ε")
    heads = ("Against the same without a central guarantee", "With a central ε that is not proved")
    said = zip(heads, parts, strict=True)
    return " ".join(f"{head}: {'; '.join(sentences)}." for head, sentences in said if sentences)


def _proved(line: dict[float, Result]) -> bool:
    return all(result.get("central_proved", False) for result in line.values())


def levels(evidence: StudyEvidence, measure: str) -> str:
    """Say what learning from decoded rows changes."""
    parts = _changes(evidence, measure, 2, "latent")
    if not parts:
        raise Missing("the feature level")
    return f"At feature level, against latent level: {'; '.join(parts)}."


def under_ceilings(evidence: StudyEvidence, measure: str = "private_accuracy") -> str:
    """Say which series are above the ceilings of additive noise and of any channel."""
    sentences, above = [], []
    lines = evidence.unprotected(measure)
    for series, line in lines.items():
        name = evidence.name(series, lines)
        known = {e: r for e, r in sorted(line.items()) if "ceilings" in r}
        if not known:
            raise Missing("ceilings")
        bounded = {
            e: r["ceilings"]["laplace"] for e, r in known.items() if "laplace" in r["ceilings"]
        }
        passed = [e for e, most in bounded.items() if known[e][measure]["mean"] > most]
        where = f"at ε = {listed(passed)}" if passed else "nowhere"
        sentences += [f"{name} {where}"] * bool(bounded)
        excess = {e: r[measure]["mean"] - r["ceilings"]["universal"] for e, r in known.items()}
        above += [f"{name} at ε = {e:g}" for e, x in excess.items() if x > 0]
    text = f"Above the ceiling of additive Laplace noise: {'; '.join(sentences)}. "
    text = text if sentences else ""  # it is known only for classes of equal size
    if not above:
        return text + "Nothing is above the ceiling of any channel."
    return (
        text + f"Above the ceiling of any channel: {'; '.join(above)}. That ceiling "
        "holds in expectation; the accuracy is measured on finitely many test rows."
    )


def _of_classes(evidence: StudyEvidence) -> tuple[str, dict[float, Result], list[str]]:
    lines = evidence.unprotected("by_class")
    series, line = next(iter(lines.items()))
    classes = [str(c) for c in evidence.records[0]["data"]["classes"]]
    return evidence.name(series, lines), dict(sorted(line.items())), classes


def by_class(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the accuracy of each class against ε, for the first series."""
    name, line, classes = _of_classes(evidence)
    rows = [
        [label, *(f"{r['by_class']['mean'][at]:.3f}" for r in line.values())]
        for at, label in enumerate(classes)
    ]
    return table([f"{name}, class", *(f"ε = {e:g}" for e in line)], rows)


def hurt(evidence: StudyEvidence, _: str = "") -> str:
    """Say which class the noise hurts most, at the smallest and the largest ε."""
    name, line, classes = _of_classes(evidence)
    gaps, parts = [], []
    for epsilon in sorted({min(line), max(line)}):
        means = line[epsilon]["by_class"]["mean"]
        low, high = means.index(min(means)), means.index(max(means))
        gaps.append(means[high] - means[low])
        parts.append(
            f"At ε = {epsilon:g}, {name} does worst on class {classes[low]} ({means[low]:.3f}) and "
            f"best on class {classes[high]} ({means[high]:.3f}), {gaps[-1]:.3f} apart."
        )
    if len(gaps) == 2:
        verdict = "less" if gaps[1] < gaps[0] else "no less"
        parts.append(f"Classes are {verdict} unequal at the larger ε.")
    return " ".join(parts)
