"""Tables and sentences of the study of anonymized representations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tacit_papers.pages.evidence import Missing, Result, StudyEvidence, listed, table

TASK, OWN, FRESH = 0.97, 0.06, 0.12
"""Targets: least accuracy on the task, largest of the training's adversary and of any fresh one."""


def frontier(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate task, attackers and bounds for every training and λ."""
    rows = []
    for one in _clean(evidence):
        violated = ", violated" if one["bound_violated"] else ""
        rows.append(
            [
                one["training"],
                f"{one['strength']:g}",
                _percent(one["regular_accuracy"]),
                _percent(one["adversary_accuracy"]),
                _strongest(one),
                _nats(one["information"]),
                f"{one['bound_accuracy']:.1%}{violated}",
                f"{one['code_ceiling']:.1%}" if "code_ceiling" in one else "–",
            ]
        )
    task, _person = _labels(evidence)
    head = ["training", "λ", task, "its own adversary", "strongest fresh attacker"]
    return table([*head, "nats, at least", "(14)", "ceiling of the codes"], rows)


def attackers(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the accuracy of every fresh attacker."""
    results = _clean(evidence)
    names = list(results[0]["probes"])
    rows = [
        [
            one["training"],
            f"{one['strength']:g}",
            *(f"{one['probes'][name]['mean']:.1%}" for name in names),
        ]
        for one in results
    ]
    return table(["training", "λ", *names], rows)


def references(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the references."""
    task, person = _labels(evidence)
    rows = []
    reference = {
        name: evidence.reference(name) for name in ("dedicated", "raw", "trivial", "chance")
    }
    dedicated, raw, trivial = reference["dedicated"], reference["raw"], reference["trivial"]
    rows.append([f"a network for the {person} alone", "", _percent(dedicated["accuracy"]), "", ""])
    rows.append(["fresh attackers on the rows themselves", "", _strongest(raw), *_errors(raw)])
    label = f"the predicted {task} alone"
    known = _percent(trivial["regular_accuracy"])
    rows.append([label, known, _strongest(trivial), *_errors(trivial)])
    rows.append(["naming the most frequent one", "", f"{reference['chance']:.1%}", "", ""])
    return table(["", task, person, *_second_heads(evidence)], rows)


def verdict(evidence: StudyEvidence, _: str = "") -> str:
    """Say which representations reach all targets."""
    task, _person = _labels(evidence)
    aim = (
        f"Targets: {task} at least {TASK:.0%}, the training's adversary at most {OWN:.0%}, the "
        f"strongest fresh attacker at most {FRESH:.0%}, and a smaller error at the second task "
        f"than the predicted {task} alone, with the interval of the difference above 0."
    )
    reaching = [one for one in _clean(evidence) if _reaches(one)]
    if not reaching:
        return f"{aim} No representation reaches all of them."
    named = listed(f"{one['training']} at λ = {one['strength']:g}" for one in reaching)
    return f"{aim} **Reached by {named}.**"


def _reaches(one: Result) -> bool:
    own, fresh = one["adversary_accuracy"]["mean"], one["strongest_probe"]["accuracy"]
    hidden = own <= OWN and fresh <= FRESH
    return hidden and one["regular_accuracy"]["mean"] >= TASK and _gain(one, "gain_low") > 0


def toggled(evidence: StudyEvidence, _: str = "") -> str:
    """Compare toggled with simultaneous training at every λ above 0, for both attackers."""
    by = {(one["training"], one["strength"]): one for one in _clean(evidence)}
    strengths = [s for (name, s) in by if name == "toggled" and s > 0]
    pairs = [
        (strength, by["toggled", strength], by["simultaneous", strength])
        for strength in strengths
        if ("simultaneous", strength) in by
    ]
    if not pairs:
        raise Missing("toggled and simultaneous training at the same λ")
    fresh = {s: _apart(a, b) for s, a, b in pairs}
    less = [s for s, sign in fresh.items() if sign < 0]
    more = [s for s, sign in fresh.items() if sign > 0]
    own = [
        s for s, a, b in pairs if a["adversary_accuracy"]["mean"] < b["adversary_accuracy"]["mean"]
    ]
    return (
        f"To its own adversary toggled training hides more than simultaneous training at "
        f"{len(own)} of {len(pairs)} values of λ above 0. To the strongest fresh attacker, where "
        f"the intervals do not overlap, it hides more at {_at(less)} and less at {_at(more)}."
    )


def _apart(first: Result, second: Result) -> int:
    """Return −1 where the first is lower, 1 where it is higher, 0 where intervals overlap."""
    (low, high), (low2, high2) = (one["strongest_probe"]["interval"] for one in (first, second))
    return -1 if high < low2 else 1 if low > high2 else 0


def _at(strengths: list[float]) -> str:
    return f"λ = {listed(strengths)}" if strengths else "no λ"


def bound(evidence: StudyEvidence, _: str = "") -> str:
    """Say where a fresh attacker is right more often than (14) allows."""
    parts = []
    for training in dict.fromkeys(one["training"] for one in _clean(evidence)):
        mine = [one for one in _clean(evidence) if one["training"] == training]
        broken = [one for one in mine if one["bound_violated"]]
        if not broken:
            parts.append(f"{training} at none of {len(mine)} values of λ")
            continue
        worst = max(broken, key=lambda one: _over(one))
        parts.append(
            f"{training} at {_at([one['strength'] for one in broken])} (most at "
            f"λ = {worst['strength']:g}: {worst['strongest_probe']['accuracy']:.1%} where "
            f"{worst['bound_accuracy']:.1%} is allowed)"
        )
    return (
        "Violated by the strongest fresh attacker, with its whole interval above the bound: "
        f"{'; '.join(parts)}."
    )


def _over(one: Result) -> float:
    return float(one["strongest_probe"]["accuracy"] - one["bound_accuracy"])


def second(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the second task at every λ, beside the predicted label alone."""
    rows = [
        [one["training"], f"{one['strength']:g}", *_errors(one), _difference(one)]
        for one in _clean(evidence)
        if "second_task" in one
    ]
    if not rows:
        raise Missing("a second task")
    return table(["training", "λ", *_second_heads(evidence), "gain"], rows)


def linkage(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate linkage by reference rows."""
    rows = [
        [
            one["training"],
            f"{one['strength']:g}",
            *(
                _percent(one["linkage"][name]) if name in one["linkage"] else "–"
                for name in ("top1", "top5", "together_top1")
            ),
        ]
        for one in _clean(evidence)
        if "linkage" in one
    ]
    if not rows:
        raise Missing("linkage")
    head = ["one row: first", "among the first five", "ten rows of one person: first"]
    return table(["training", "λ", *head], rows)


def with_epsilon(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate task, attackers and ceiling against ε."""
    results = _private(evidence)
    task, _person = _labels(evidence)
    rows = [
        [
            one["training"],
            f"{one['epsilon']:g}",
            _percent(one["regular_accuracy"]),
            _percent(one["adversary_accuracy"]),
            _strongest(one),
            f"{one['ceiling']:.1%}",
            *_errors(one),
        ]
        for one in results
    ]
    head = ["training", "ε", task, "its own adversary", "strongest fresh attacker"]
    return table([*head, "proved ceiling", *_second_heads(evidence)], rows)


def ceilings(evidence: StudyEvidence, _: str = "") -> str:
    """Say whether any attacker is above the ceiling that ε proves."""
    above = [
        f"{one['training']} at ε = {one['epsilon']:g}"
        for one in _private(evidence)
        if one["strongest_probe"]["interval"][0] > one["ceiling"]
    ]
    if above:
        return f"Above the proved ceiling: {listed(above)}."
    return "No attacker is above the proved ceiling."


# --- parts ------------------------------------------------------------------------------------


def _clean(evidence: StudyEvidence) -> list[Result]:
    results = [one for one in evidence.results if one["epsilon"] is None]
    if not results:
        raise Missing("representations without ε")
    return results


def _private(evidence: StudyEvidence) -> list[Result]:
    results = [one for one in evidence.results if one["epsilon"] is not None]
    if not results:
        raise Missing("representations with a local ε")
    return results


def _labels(evidence: StudyEvidence) -> tuple[str, str]:
    parameters = evidence.records[0]["parameters"]
    return parameters["regular"], parameters["private"]


def _percent(summary: dict[str, Any]) -> str:
    """Show mean and standard deviation, without line breaks."""
    deviation = f"\u00a0±\u00a0{100 * summary['std']:.1f}" if len(summary["trials"]) > 1 else ""
    return f"{100 * summary['mean']:.1f}{deviation}\u00a0%"


def _nats(information: dict[str, Any]) -> str:
    value, low, high = (information[word]["mean"] for word in ("nats", "low", "high"))
    return f"{value:.2f} ({low:.2f} to {high:.2f})".replace("-", "−")


def _strongest(one: Result) -> str:
    best = one["strongest_probe"]
    low, high = (f"{100 * end:.1f}" for end in best["interval"])
    return f"{best['accuracy']:.1%} ({low} to {high}), {best['name']}"


def _errors(one: Result) -> list[str]:
    return [
        f"{summary['mean']:.4f}" if name.endswith("_rmse") else f"{summary['mean']:.1%}"
        for name, summary in one.get("second_task", {}).items()
        if name.endswith(("_rmse", "_accuracy"))
    ]


def _second_heads(evidence: StudyEvidence) -> list[str]:
    every: Iterable[str] = evidence.results[0].get("second_task", {})
    return [
        f"{name.removesuffix('_rmse')}, RMSE"
        if name.endswith("_rmse")
        else f"{name.removesuffix('_accuracy').replace('_', ' ')} right"
        for name in every
        if name.endswith(("_rmse", "_accuracy"))
    ]


def _gain(one: Result, word: str) -> float:
    """Return the gain on the first task that is measured in errors; 0 where there is none."""
    scores = one.get("second_task", {})
    return next((float(v["mean"]) for name, v in scores.items() if name.endswith(f"_{word}")), 0.0)


def _difference(one: Result) -> str:
    value, low, high = (_gain(one, word) for word in ("gain", "gain_low", "gain_high"))
    return f"{value:+.4f} ({low:+.4f} to {high:+.4f})".replace("-", "−")


FIELDS = {
    "frontier": frontier,
    "attackers": attackers,
    "references": references,
    "verdict": verdict,
    "toggled": toggled,
    "bound": bound,
    "second": second,
    "linkage": linkage,
    "epsilon": with_epsilon,
    "ceilings": ceilings,
}
