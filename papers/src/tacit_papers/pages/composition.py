"""Tables and sentences of the study of accounting."""

from __future__ import annotations

from typing import Any

from tacit_papers.pages.evidence import Missing, Result, StudyEvidence, listed, shown, signed, table

ACCOUNTANTS = {
    "naive": "naive composition",
    "advanced": "advanced composition",
    "zcdp": "zCDP",
    "rdp": "Rényi",
    "pld": "loss distributions",
}
ATTACKS = {"membership": "membership advantage", "attribute": "attribute advantage"}
USEFUL = 0.1
"""Largest share of the accuracy without privacy that a useful model loses."""

Lines = dict[str, dict[float, Result]]


def lost(evidence: StudyEvidence, model: str) -> str:
    """Tabulate the accuracy lost, accountants against ε."""
    lines = _lines(evidence, model)
    epsilons = _epsilons(lines)
    rows = [
        [
            ACCOUNTANTS[name],
            *(shown(line[e]["accuracy_loss"]) if e in line else "" for e in epsilons),
        ]
        for name, line in lines.items()
    ]
    return table(["ε claimed", *(f"{e:g}" for e in epsilons)], rows)


def useful(evidence: StudyEvidence, model: str) -> str:
    """Name the smallest ε at which each accountant leaves a useful model."""
    free = _plain(evidence, model)
    parts = []
    for name, line in _lines(evidence, model).items():
        enough = [e for e, one in sorted(line.items()) if one["accuracy_loss"]["mean"] <= USEFUL]
        said = f"from ε = {enough[0]:g} on" if enough else "at no ε"
        parts.append(f"{ACCOUNTANTS[name]} {said}")
    return (
        f"Without privacy: {shown(free['accuracy'])} on others, "
        f"{shown(free['training_accuracy'])} on members; chance is "
        f"{shown(evidence.reference('chance'))}. At most {USEFUL:.0%} of it is lost with "
        f"{listed(parts)}."
    )


def spent(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the noise and its actual ε, which are the same for every model."""
    lines = _lines(evidence, None)
    epsilons = _epsilons(lines)
    rows = [
        [ACCOUNTANTS[name], *(_short(line[e]) if e in line else "" for e in epsilons)]
        for name, line in lines.items()
    ]
    return table(["ε claimed", *(f"{e:g}" for e in epsilons)], rows)


def wasted(evidence: StudyEvidence, _: str = "") -> str:
    """Say how much of the claimed ε is actually spent, and that none spends more."""
    lines = _lines(evidence, None)
    beyond = [
        f"{name} at ε = {e:g}"
        for name, line in lines.items()
        for e, one in line.items()
        if one["proved_epsilon"] > e * (1 + 1e-9)
    ]
    first = f"**Broken: {listed(beyond)}.**" if beyond else "No claim is broken."
    parts = []
    for name, line in lines.items():
        shares = [one["proved_epsilon"] / one["calibrated_epsilon"] for one in line.values()]
        parts.append(f"{ACCOUNTANTS[name]} {min(shares):.1%} to {max(shares):.1%}")
    spent = f"Share of the claimed ε that is actually spent: {'; '.join(parts)}."
    return f"{first} {spent}{_limits(lines)}"


def _limits(lines: Lines) -> str:
    """Say where another accountant was used, and where ε was too large to calibrate."""
    text = ""
    results = [one for line in lines.values() for one in line.values()]
    without = {one["epsilon"] for one in results if one["pld_epsilon"] is None}
    if without:
        some = listed(sorted(without))
        text += f" At ε = {some} some noise is so small that Rényi accounting is used instead."
    capped = {
        one["epsilon"]: one["calibrated_epsilon"]
        for one in results
        if one["calibrated_epsilon"] < one["epsilon"]
    }
    for epsilon, used in sorted(capped.items()):
        most = f"that of {used:g}, the largest ε that the library calibrates."
        text += f" At ε = {epsilon:g} the noise is {most}"
    return text


def attacks(evidence: StudyEvidence, model: str) -> str:
    """Tabulate both advantages with their ceilings at every ε, for the tightest accountant."""
    lines = _lines(evidence, model)
    name = "pld" if "pld" in lines else list(lines)[-1]
    line = lines[name]
    rows = []
    for kind, words in ATTACKS.items():
        rows.append(
            [
                words,
                *(_between(line[e], kind) for e in sorted(line)),
                _between(_plain(evidence, model), kind),
            ]
        )
    ceilings = (f"{line[e]['ceiling']:.3f}" for e in sorted(line))
    rows.append(["*at most, by ε*", *ceilings, "1"])
    return table([ACCOUNTANTS[name], *(f"{e:g}" for e in sorted(line)), "no privacy"], rows)


def gained(evidence: StudyEvidence, model: str) -> str:
    """Say whether an attack gained anything, and whether any passed its ceiling."""
    results = [one for line in _lines(evidence, model).values() for one in line.values()]
    parts = []
    for kind, words in ATTACKS.items():
        plain = _plain(evidence, model)
        seen = [r for r in results if r[f"{kind}_interval"]["mean"][0] > 0]
        above = [r for r in results if r[f"{kind}_interval"]["mean"][0] > r["ceiling"]]
        least = f" (least ε: {min(r['epsilon'] for r in seen):g})" if seen else ""
        parts.append(
            f"{words.capitalize()}: without privacy {_between(plain, kind, ' (', ')')}; with "
            f"privacy the 95 % interval is above 0 in {len(seen)} of {len(results)} "
            f"settings{least}, and above its ceiling in {len(above)}."
        )
    return " ".join(parts)


def attribute(evidence: StudyEvidence, _: str = "") -> str:
    """Name the attribute that the second attacker guesses."""
    names = dict.fromkeys(str(record["data"].get("attribute")) for record in evidence.records)
    return " or ".join(names)


def _lines(evidence: StudyEvidence, model: str | None) -> Lines:
    """Return the results of one model, or of the first, by accountant and ε."""
    results = evidence.results
    first = model or next((one["task"] for one in results), None)
    lines: Lines = {name: {} for name in ACCOUNTANTS}
    for one in results:
        if one["task"] == first:
            lines[one["mechanism"]][one["epsilon"]] = one
    lines = {name: line for name, line in lines.items() if line}
    if not lines:
        raise Missing(f"{model or 'any'} model")
    return lines


def _epsilons(lines: Lines) -> list[float]:
    return sorted({e for line in lines.values() for e in line})


def _plain(evidence: StudyEvidence, model: str) -> dict[str, Any]:
    return dict(evidence.reference(model))


def _short(one: Result) -> str:
    return f"{one['proved_epsilon']:.3g}<br>z\u00a0=\u00a0{one['noise_multiplier']:.3g}"


def _between(one: Any, kind: str, opening: str = "<br>", closing: str = "") -> str:
    """Show an advantage and its interval."""
    ends = one[f"{kind}_interval"]["mean"]
    value, low, high = map(signed, (one[f"{kind}_advantage"]["mean"], *ends))
    return f"{value}{opening}{low} to {high}{closing}"


FIELDS = {
    "lost": lost,
    "useful": useful,
    "spent": spent,
    "wasted": wasted,
    "attacks": attacks,
    "gained": gained,
    "attribute": attribute,
}
