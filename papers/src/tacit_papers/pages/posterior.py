"""Tables and sentences of the study of private posteriors."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from tacit_papers.pages.evidence import Missing, Result, StudyEvidence, listed, table

CALIBRATED = ("hellinger-smooth", "hellinger-local", "hellinger-global")
WHERE = {
    "error": "over the prior",
    "error_half": "half of the records hold it",
    "error_tenth": "a tenth do",
    "error_none": "none do",
}
PRIOR, EPSILON = "1:1", 1.0
"""Setting that a table shows where it cannot show all."""


def errors(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate errors at one prior and ε: mechanisms against n, four numbers each."""
    results = [r for r in evidence.results if (r["prior"], r["epsilon"]) == (PRIOR, EPSILON)]
    sizes = sorted({r["records"] for r in results})
    rows = []
    for mechanism in _mechanisms(results):
        by_size = {r["records"]: r for r in results if r["mechanism"] == mechanism}
        cells = [" / ".join(_short(by_size[n][name]["mean"]) for name in WHERE) for n in sizes]
        rows.append([mechanism, *cells])
    if not rows:
        raise Missing("errors at the uniform prior and ε = 1")
    return table(["", *(f"n = {n}" for n in sizes)], rows)


def wins(evidence: StudyEvidence, _: str = "") -> str:
    """Say where the best calibrated Hellinger mechanism has a smaller error than noise."""
    lines = []
    for noise, words in (
        ("geometric", "clamped geometric noise"),
        ("geometric-remap", "geometric noise with a Bayes remap"),
    ):
        for name, where in WHERE.items():
            pairs = _pairs(evidence, noise, name)
            won = {key: best / other for key, (best, other) in pairs.items() if best < other}
            text = f"- against {words}, {where}: {len(won)} of {len(pairs)} settings"
            if won:
                reach = max(n * epsilon for _, n, epsilon in won)
                text += f", all with nε ≤ {reach:g}; the smallest ratio is {min(won.values()):.2f}"
            lines.append(text)
    return "\n".join(lines)


def verdict(evidence: StudyEvidence, _: str = "") -> str:
    """Compare the errors averaged over the prior."""
    ahead = {}
    for noise in ("geometric", "geometric-remap"):
        pairs = _pairs(evidence, noise, "error")
        ahead[noise] = [n * e for (_, n, e), (best, other) in pairs.items() if best < other]
    if not pairs:
        raise Missing("errors of noise and of Hellinger mechanisms")
    plain = (
        f"ahead of plain clamped noise only up to nε = {max(ahead['geometric']):g}"
        if ahead["geometric"]
        else "never ahead of plain clamped noise"
    )
    remap = (
        f"ahead of noise with a remap in {len(ahead['geometric-remap'])} settings"
        if ahead["geometric-remap"]
        else "never ahead of noise with a remap, which costs nothing"
    )
    return f"Averaged over the prior, the family is {plain}, and {remap}."


def privacy(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate exact over claimed ε, by mechanism."""
    rows = []
    for mechanism, ratios in _ratios(evidence).items():
        numbers = [f"{min(ratios):.2f}", f"{median(ratios):.2f}", f"{max(ratios):.2f}"]
        rows.append([mechanism, *numbers, f"{_beyond(ratios)} of {len(ratios)}"])
    return table(["", "least", "median", "largest", "beyond the claim"], rows)


def claims(evidence: StudyEvidence, _: str = "") -> str:
    """Say which mechanisms stay within their claim, and which do not."""
    ratios = _ratios(evidence)
    broken = {name: factors for name, factors in ratios.items() if _beyond(factors)}
    kept = [name for name in ratios if name not in broken]
    parts = [f"Within the claim at every setting: {listed(kept)}."]
    parts += [
        f"**{name}** spends more than it claims in {_beyond(factors)} of {len(factors)} settings, "
        f"up to {max(factors):.2f} ε."
        for name, factors in broken.items()
    ]
    if "hellinger-stated" in kept:
        used = median(ratios["hellinger-stated"])
        parts.append(
            "The exponent that the paper states keeps the claim in all of these, though the proof "
            f"does not hold, and uses {used:.0%} of it (median)."
        )
    return " ".join(parts)


def _ratios(evidence: StudyEvidence) -> dict[str, list[float]]:
    ratios: dict[str, list[float]] = {}
    for r in evidence.results:
        ratios.setdefault(r["mechanism"], []).append(r["exact_over_claimed"]["mean"])
    return ratios


def _beyond(ratios: Iterable[float]) -> int:
    return sum(ratio > 1 + 1e-6 for ratio in ratios)


def coverage(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the coverage of naive and noise-aware intervals at one prior, by n and ε."""
    simulated = [r for r in evidence.results if "aware_coverage" in r]
    if not simulated:
        raise Missing("simulated coverage")
    settings = sorted({(r["records"], r["epsilon"]) for r in simulated})
    rows = []
    for mechanism in _mechanisms(simulated):
        mine = {(r["records"], r["epsilon"]): r for r in simulated if r["mechanism"] == mechanism}
        cells = [
            f"{mine[key]['naive_coverage']['mean']:.3f} / {mine[key]['aware_coverage']['mean']:.3f}"
            for key in settings
        ]
        rows.append([mechanism, *cells])
    return table(["", *(f"n = {n}, ε = {epsilon:g}" for n, epsilon in settings)], rows)


def extremes(evidence: StudyEvidence, _: str = "") -> str:
    """State the range of the coverage of both kinds of intervals."""
    aware = [r["aware_coverage"]["mean"] for r in evidence.results if "aware_coverage" in r]
    naive = [r["naive_coverage"]["mean"] for r in evidence.results if "naive_coverage" in r]
    if not aware or not naive:
        raise Missing("coverage")
    draws = listed(dict.fromkeys(r["parameters"]["draws"] for r in evidence.records))
    return (
        f"Noise-aware intervals cover {min(aware):.1%} to {max(aware):.1%} in {len(aware)} "
        f"simulations of {int(draws):,} releases; naive ones {min(naive):.1%} to {max(naive):.1%}."
    )


def _pairs(evidence: StudyEvidence, noise: str, name: str) -> dict[Any, tuple[float, float]]:
    """Return the error of the best Hellinger mechanism and that of noise, at every setting."""
    settings: dict[Any, dict[str, float]] = {}
    for r in evidence.results:
        key = (r["prior"], r["records"], r["epsilon"])
        settings.setdefault(key, {})[r["mechanism"]] = r[name]["mean"]
    return {
        key: (min(errors[one] for one in CALIBRATED if one in errors), errors[noise])
        for key, errors in settings.items()
        if noise in errors and set(errors) & set(CALIBRATED)
    }


def _mechanisms(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(r["mechanism"] for r in results))


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


FIELDS = {
    "errors": errors,
    "wins": wins,
    "verdict": verdict,
    "privacy": privacy,
    "claims": claims,
    "coverage": coverage,
    "extremes": extremes,
}
