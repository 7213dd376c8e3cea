"""Tables and sentences of the study of estimators."""

from __future__ import annotations

import math
from statistics import stdev
from typing import Any

from tacit_papers.pages.evidence import Missing, Result, StudyEvidence, listed, shown, signed, table

Lines = dict[tuple[str, str, str], dict[float, Result]]
"""Results by library, estimator and algorithm, then by ε."""

OURS, PEER, PLAIN = "tacit", "diffprivlib", "scikit-learn"
LOST = -10.0
"""R² below which only the failure is reported."""


def scores(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate every estimator and algorithm against ε, with the best at each ε in bold."""
    lines, measure = _lines(evidence), _measure(evidence)
    epsilons = sorted({e for line in lines.values() for e in line})
    best = {
        e: max(_mean(line[e], measure) for line in lines.values() if e in line) for e in epsilons
    }
    free = {r["estimator"]: r[measure] for r in evidence.results if r["library"] == PLAIN}
    rows = []
    for (library, estimator, algorithm), line in lines.items():
        cells = [_cell(line.get(e), measure, best[e]) for e in epsilons]
        default = " (default)" if next(iter(line.values())).get("default") else ""
        said = f"{algorithm}{default}" if library == OURS else f"*{library}*"
        rows.append([estimator, said, *cells, _shown(free[estimator]) if estimator in free else ""])
    return table(["estimator", "algorithm", *(f"ε = {e:g}" for e in epsilons), "no privacy"], rows)


def best(evidence: StudyEvidence, _: str = "") -> str:
    """Name the highest mean at each ε, and its lead over the next estimator."""
    lines, measure = _lines(evidence), _measure(evidence)
    parts = []
    for epsilon in sorted({e for line in lines.values() for e in line}):
        ranked = sorted(
            ((line[epsilon], key) for key, line in lines.items() if epsilon in line),
            key=lambda pair: -_mean(pair[0], measure),
        )
        first, winner = ranked[0]
        others = [(r, key) for r, key in ranked if key[1] != winner[1] or key[0] != winner[0]]
        text = f"- ε = {epsilon:g}: **{_named(winner)}**, {_shown(first[measure])}"
        if others:
            second, other = others[0]
            lead = _mean(first, measure) - _mean(second, measure)
            near = (
                ", within one standard deviation"
                if lead <= _deviation(first, second, measure)
                else ""
            )
            text += f"; the next estimator is {_named(other)}, {signed(-lead)}{near}"
        parts.append(text)
    return "\n".join(parts)


def defaults(evidence: StudyEvidence, _: str = "") -> str:
    """Say where the default algorithm of an estimator is not the best of its algorithms."""
    lines, measure = _lines(evidence), _measure(evidence)
    parts = []
    for estimator in dict.fromkeys(key[1] for key in lines if key[0] == OURS):
        mine = {key[2]: line for key, line in lines.items() if key[:2] == (OURS, estimator)}
        usual = [a for a, line in mine.items() if next(iter(line.values())).get("default")]
        if len(mine) > 1 and usual:
            behind = _behind(mine, usual[0], measure)
            if behind:
                parts.append(f"- {estimator}: {usual[0]} is behind {'; '.join(behind)}.")
            else:
                parts.append(f"- {estimator}: {usual[0]} has the highest mean at every ε.")
    if not parts:
        raise Missing("two algorithms of one estimator")
    return "\n".join(parts)


def _behind(mine: dict[str, dict[float, Result]], usual: str, measure: str) -> list[str]:
    leads = []
    for epsilon, result in sorted(mine[usual].items()):
        rivals = {a: line[epsilon] for a, line in mine.items() if a != usual and epsilon in line}
        rival = max(rivals, key=lambda a: _mean(rivals[a], measure), default=None)
        if rival is None:
            continue
        gap = _mean(rivals[rival], measure) - _mean(result, measure)
        if gap > 0:
            near = gap <= _deviation(rivals[rival], result, measure)
            extent = (
                "within one standard deviation" if near else "**more than one standard deviation**"
            )
            leads.append(f"{rival} at ε = {epsilon:g} by {gap:.3f} ({extent})")
    return leads


def price(evidence: StudyEvidence, _: str = "") -> str:
    """Say what privacy costs each default, against scikit-learn's counterpart."""
    measure = _measure(evidence)
    free = {r["estimator"]: r for r in evidence.results if r["library"] == PLAIN}
    parts = []
    for (library, estimator, _algorithm), line in _lines(evidence).items():
        if library == OURS and estimator in free and next(iter(line.values())).get("default"):
            base = _mean(free[estimator], measure)
            points = [
                f"{signed(_mean(r, measure) - base)} at ε = {e:g}" for e, r in sorted(line.items())
            ]
            parts.append(f"- {estimator}: {listed(points)}")
    if not parts:
        raise Missing("scikit-learn's estimators")
    return "\n".join(parts)


def peer(evidence: StudyEvidence, _: str = "") -> str:
    """Compare our defaults with diffprivlib's estimators of the same name."""
    lines, measure = _lines(evidence), _measure(evidence)
    parts = []
    for (library, estimator, _algorithm), theirs in lines.items():
        if library != PEER:
            continue
        ours = [
            line
            for key, line in lines.items()
            if key[:2] == (OURS, estimator) and next(iter(line.values())).get("default")
        ]
        parts.append(f"- {estimator}: {_against(ours, theirs, measure)}")
    if not parts:
        raise Missing("diffprivlib")
    return "\n".join(parts)


def _against(ours: list[dict[float, Result]], theirs: dict[float, Result], measure: str) -> str:
    if not ours:
        points = [f"{_shown(r[measure])} at ε = {e:g}" for e, r in sorted(theirs.items())]
        return f"we have none; theirs reaches {listed(points)}."
    leads = {
        e: _mean(ours[0][e], measure) - _mean(r, measure)
        for e, r in sorted(theirs.items())
        if e in ours[0]
    }
    lost = [e for e in leads if _mean(theirs[e], measure) < LOST]
    points = [f"{signed(lead)} at ε = {e:g}" for e, lead in leads.items() if e not in lost]
    parts = [f"ours less theirs: {listed(points)}"] if points else []
    parts += [f"theirs is below −{-LOST:g} at ε = {listed(lost)}"] if lost else []
    return "; ".join(parts) + "."


def trivial(evidence: StudyEvidence, _: str = "") -> str:
    """List what is no better than a constant answer, and whether `fit` warned."""
    measure = _measure(evidence)
    level = evidence.reference("chance") if measure == "accuracy" else 0.0
    named = (
        f"naming the largest class ({level:.3f})"
        if measure == "accuracy"
        else "predicting the mean"
    )
    lost, silent = [], []
    for key, line in _lines(evidence).items():
        at = [e for e, r in sorted(line.items()) if _mean(r, measure) <= level + r[measure]["std"]]
        if at:
            lost.append(f"{_named(key)} at ε = {listed(at)}")
        unsaid = [e for e in at if key[0] == OURS and not any(line[e].get("mostly_noise", ()))]
        if unsaid:
            silent.append(f"{_named(key)} at ε = {listed(unsaid)}")
    if not lost:
        return f"Everything is better than {named} by more than one standard deviation."
    text = f"Not better than {named} by more than one standard deviation: {'; '.join(lost)}."
    if silent:
        text += f" Our `fit` did not warn in these cases: {'; '.join(silent)}."
    return text


def _lines(evidence: StudyEvidence) -> Lines:
    """Order private results by estimator, ours first."""
    lines: Lines = {}
    order = list(dict.fromkeys(r["estimator"] for r in evidence.results if r["library"] == OURS))
    for r in evidence.results:
        if r["epsilon"] is not None:
            key = (r["library"], r["estimator"], r["algorithm"] or "")
            lines.setdefault(key, {})[r["epsilon"]] = r
    if not lines:
        raise Missing("a private estimator")
    place = {name: at for at, name in enumerate(order)}
    return dict(
        sorted(
            lines.items(), key=lambda pair: (place.get(pair[0][1], len(place)), pair[0][0] == PEER)
        )
    )


def _measure(evidence: StudyEvidence) -> str:
    return str(evidence.records[0]["data"]["measure"])


def _mean(result: Result, measure: str) -> float:
    return float(result[measure]["mean"])


def _deviation(first: Result, second: Result, measure: str) -> float:
    """Return the standard deviation of the difference: trials of one number share their split."""
    mine, theirs = first[measure]["trials"], second[measure]["trials"]
    if len(mine) == len(theirs) > 1:
        return float(stdev(a - b for a, b in zip(mine, theirs, strict=True)))
    return math.hypot(first[measure]["std"], second[measure]["std"])


def _named(key: tuple[str, str, str]) -> str:
    library, estimator, algorithm = key
    if library == PEER:
        return f"{PEER}'s {estimator}"
    return f"{estimator} ({algorithm})"


def _cell(result: Result | None, measure: str, best: float) -> str:
    if result is None:
        return ""
    text = _shown(result[measure])
    return f"**{text}**" if _mean(result, measure) == best else text


def _shown(value: Any) -> str:
    return f"below −{-LOST:g}" if value["mean"] < LOST else shown(value).replace("-", "−")


FIELDS = {
    "scores": scores,
    "best": best,
    "defaults": defaults,
    "price": price,
    "peer": peer,
    "trivial": trivial,
}
