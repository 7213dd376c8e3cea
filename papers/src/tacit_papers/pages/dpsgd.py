"""Tables and sentences of the study of DP-SGD."""

from __future__ import annotations

from typing import Any

from tacit_papers.pages.evidence import Missing, Result, StudyEvidence, listed, shown, table

SUFFIX = "_without_privacy"
MARGIN = 2.0
"""Number of standard errors up to which a difference is not reported."""


def accuracy(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate models against ε, the paper's numbers below, no privacy in the last column."""
    models = _models(evidence)
    epsilons = sorted({epsilon for results in models.values() for epsilon in results})
    rows = [
        [
            name,
            *(shown(results[e]["accuracy"]) if e in results else "" for e in epsilons),
            _free(evidence, name),
        ]
        for name, results in models.items()
    ]
    published = _published(evidence)
    if published:
        theirs = [published.get(f"{e:g}") for e in epsilons]
        cells = ["" if one is None else f"{one:.3f}" for one in theirs]
        rows.append(["*Abadi et al.*", *cells, f"{published['inf']:.3f}"])
    return table(["ε", *(f"{e:g}" for e in epsilons), "no privacy"], rows)


def verdict(evidence: StudyEvidence, _: str = "") -> str:
    """Compare each model with the paper's numbers."""
    published = _published(evidence)
    if not published:
        raise Missing("the paper's numbers for these images")
    return "\n".join(
        f"- `{name}`: {_compared(results, published)}"
        for name, results in _models(evidence).items()
    )


def _compared(results: dict[float, Result], published: dict[str, float]) -> str:
    """Say at which ε a model is above, level with or below the paper."""
    gaps = {
        e: one["accuracy"]["mean"] - published[f"{e:g}"]
        for e, one in sorted(results.items())
        if f"{e:g}" in published
    }
    if not gaps:
        return "not run at an ε of the paper."
    within = {e: abs(gap) <= MARGIN * _error(results[e]["accuracy"]) for e, gap in gaps.items()}
    said = {
        "above the paper": [e for e, gap in gaps.items() if gap > 0 and not within[e]],
        "level with it": [e for e in gaps if within[e]],
        "**below it**": [e for e, gap in gaps.items() if gap < 0 and not within[e]],
    }
    parts = [f"{words} at ε = {listed(where)}" for words, where in said.items() if where]
    points = [f"{100 * gap:+.1f}".replace("-", "−") for gap in gaps.values()]
    return f"{', '.join(parts)} (in points {listed(points)})."


def _error(summary: dict[str, Any]) -> float:
    """Return the standard error of a mean over trials."""
    return float(summary["std"] / len(summary["trials"]) ** 0.5)


def best(evidence: StudyEvidence, _: str = "") -> str:
    """Name the best model at every ε, and its distance to the same model without privacy."""
    models = _models(evidence)
    parts = []
    for epsilon in sorted({epsilon for results in models.values() for epsilon in results}):
        there = {name: results[epsilon] for name, results in models.items() if epsilon in results}
        name = max(there, key=lambda one: there[one]["accuracy"]["mean"])
        reached = there[name]["accuracy"]["mean"]
        free = evidence.reference(name + SUFFIX)["mean"]
        parts.append(
            f"- ε = {epsilon:g}: `{name}`, {reached:.2%}; {100 * (free - reached):.1f} points "
            "below the same model without privacy"
        )
    return "\n".join(parts)


def spent(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate noise, steps and sampling, and ε by both accountants."""
    rows = [
        [
            name,
            f"{epsilon:g}",
            f"{one['noise_multiplier']:.3f}",
            f"{one['sampling_probability']:.4f}",
            f"{one['steps']:,}",
            f"{one['epsilon_pld']:.3f}",
            f"{one['epsilon_rdp']:.3f}",
        ]
        for name, results in _models(evidence).items()
        for epsilon, one in sorted(results.items())
    ]
    head = ["model", "ε", "noise multiplier", "q", "steps", "ε by PLD", "ε by Rényi"]
    return table(head, rows)


def saved(evidence: StudyEvidence, _: str = "") -> str:
    """Say what Rényi accounting would state for the same runs."""
    ratios = [one["epsilon_rdp"] / one["epsilon_pld"] for one in evidence.results]
    low, high = min(ratios) - 1, max(ratios) - 1
    return (
        f"Rényi accounting states {low:.0%} to {high:.0%} more for the same runs: the "
        "noise and the models are the same, and only the bound is looser."
    )


def settings(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the hyper-parameters of every model at every ε."""
    networks: dict[str, Any] = {}
    for record in evidence.records:
        networks |= record["parameters"].get("settings", {})
    if not networks:
        raise Missing("settings")
    names = list(dict.fromkeys(name for one in networks.values() for name in one))
    rows = [[key, *(_setting(one.get(name)) for name in names)] for key, one in networks.items()]
    return table(["", *(name.replace("_", " ") for name in names)], rows)


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _models(evidence: StudyEvidence) -> dict[str, dict[float, Result]]:
    models: dict[str, dict[float, Result]] = {}
    for one in evidence.results:
        models.setdefault(one["model"], {})[one["epsilon"]] = one
    return models


def _free(evidence: StudyEvidence, name: str) -> str:
    try:
        return shown(evidence.reference(name + SUFFIX))
    except Missing:
        return ""


def _published(evidence: StudyEvidence) -> dict[str, float]:
    for record in evidence.records:
        if record["data"].get("published"):
            return dict(record["data"]["published"])
    return {}


FIELDS = {
    "accuracy": accuracy,
    "verdict": verdict,
    "best": best,
    "spent": spent,
    "saved": saved,
    "settings": settings,
}
