"""Tables and sentences of the federated study."""

from __future__ import annotations

from collections.abc import Callable

from tacit_papers.pages.evidence import Missing, Result, StudyEvidence, listed, table

NAMES = {
    "fedsgd": "FedSGD",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fsvrg": "FSVRG",
    "feddyn": "FedDyn",
    "subfedavg": "Sub-FedAvg",
}
KINDS = {
    "rows": "P(x)",
    "labels": "P(y)",
    "rows_given_label": "P(x given y)",
    "labels_given_row": "P(y given x)",
    "sizes": "numbers of rows",
}
MEGA = 1e6
NEVER = float("inf")


def rounds(evidence: StudyEvidence, goal: str) -> str:
    """Tabulate the rounds to a target, with the range over trials."""
    return _reached(evidence, "rounds_to", goal, 1.0)


def sent(evidence: StudyEvidence, goal: str) -> str:
    """Tabulate the megabytes to a target."""
    return _reached(evidence, "bytes_to", goal, MEGA)


def accuracy(evidence: StudyEvidence, measure: str) -> str:
    """Tabulate the medians of an accuracy."""
    return _matrix(evidence, lambda one: f"{one[measure]:.3f}")


def differences(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate how far the clients of each partition differ, in each way."""
    first = {one["partition"]: one["divergence"] for one in evidence.results}
    rows = [[split, *(_small(of[kind]) for kind in KINDS)] for split, of in first.items()]
    return table(["", *KINDS.values()], rows)


def fewest(evidence: StudyEvidence, goal: str) -> str:
    """Name the algorithms with the fewest rounds and bytes, partition by partition."""
    lines = []
    for split in _splits(evidence):
        results = _of(evidence, split)
        parts = [
            _least(results, measure, goal, words)
            for measure, words in (("rounds_to", "fewest rounds"), ("bytes_to", "fewest bytes"))
        ]
        said = "; ".join(parts) if all(parts) else f"nobody in {_most(evidence)} rounds"
        lines.append(f"- {split}: {said}")
    return f"To {_percent(goal)}:\n\n" + "\n".join(lines)


def price(evidence: StudyEvidence, goal: str) -> str:
    """Compare the rounds of each algorithm with those where clients are alike."""
    alike = {one["algorithm"]: one for one in _of(evidence, "iid")}
    lines = []
    for name, usual in alike.items():
        base = usual["rounds_to"].get(goal)
        if base is None:
            lines.append(f"- {NAMES[name]}: not reached even where clients are alike")
            continue
        parts = []
        for split in _splits(evidence):
            at = {one["algorithm"]: one for one in _of(evidence, split)}.get(name)
            if split != "iid" and at is not None:
                needed = at["rounds_to"].get(goal)
                parts.append(f"{split} {'–' if needed is None else f'× {needed / base:.1f}'}")
        many = "1 round" if base == 1 else f"{base:g} rounds"
        lines.append(f"- {NAMES[name]}, {many} where clients are alike: {', '.join(parts)}")
    return f"Rounds to {_percent(goal)}, against clients that are alike:\n\n" + "\n".join(lines)


def personal(evidence: StudyEvidence, _: str = "") -> str:
    """Say where a client's own model is better than a global one."""
    better: list[str] = []
    worse: list[str] = []
    for split in _splits(evidence):
        results = {one["algorithm"]: one["own_accuracy"] for one in _of(evidence, split)}
        mine = results.pop("subfedavg", None)
        if mine is None or not results:
            continue
        best = max(results, key=lambda name: results[name])
        words = f"{split} ({mine:.3f}, {NAMES[best]} {results[best]:.3f})"
        (better if mine > results[best] else worse).append(words)
    if not better and not worse:
        raise Missing("Sub-FedAvg beside other algorithms")
    if not better:
        said = f"behind the best global model throughout: {listed(worse)}"
    else:
        rest = f", and behind the best of them on {listed(worse)}" if worse else ""
        said = f"ahead of every global model on {listed(better)}{rest}"
    return f"A client's own model of Sub-FedAvg is {said}."


def settings(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the settings in which algorithms differ."""
    settings = evidence.records[0]["parameters"]["settings"]["algorithms"]
    there = {one["algorithm"] for one in evidence.results}
    wanted = ("learning_rate", "step_size", "epochs", "batch_size", "proximal", "alpha")
    rows = [
        [NAMES[name], *(f"{of[key]:g}" if of.get(key) is not None else "" for key in wanted)]
        for name, of in settings.items()
        if name in there
    ]
    heads = ("η", "h", "epochs", "batch", "μ", "α")
    return table(["", *heads], rows)


def _least(results: list[Result], measure: str, goal: str, words: str) -> str:
    values = {one["algorithm"]: _value(one, measure, goal) for one in results}
    least = min(values.values())
    if least == NEVER:
        return ""
    first = [NAMES[name] for name, value in values.items() if value == least]
    shown = f"{least:g}" if measure == "rounds_to" else f"{least / MEGA:.3g} MB"
    return f"{words} {listed(first)} ({shown})"


def _reached(evidence: StudyEvidence, measure: str, goal: str, unit: float) -> str:
    def cell(one: Result) -> str:
        value = _value(one, measure, goal)
        trials = one["by_trial"][measure][goal]
        ends = sorted(NEVER if trial is None else trial for trial in trials)
        if value == NEVER:
            return "–"
        # A range where trials differ: its end is "…" where some trial never got there.
        last = "…" if ends[-1] == NEVER else f"{ends[-1] / unit:.3g}"
        extent = f" ({ends[0] / unit:.3g} to {last})" if ends[0] != ends[-1] else ""
        return f"{value / unit:.3g}{extent}".replace(" ", "\u00a0")

    if all(goal not in one[measure] for one in evidence.results):
        raise Missing(f"runs to {_percent(goal)}")
    return _matrix(evidence, cell)


def _matrix(evidence: StudyEvidence, cell: Callable[[Result], str]) -> str:
    splits = _splits(evidence)
    names = list(dict.fromkeys(one["algorithm"] for one in evidence.results))
    results = {(one["algorithm"], one["partition"]): one for one in evidence.results}
    rows = [
        [NAMES[name], *(cell(results[name, s]) if (name, s) in results else "" for s in splits)]
        for name in NAMES
        if name in names
    ]
    return table(["", *splits], rows)


def _value(one: Result, measure: str, goal: str) -> float:
    value = one[measure].get(goal)
    return NEVER if value is None else float(value)


def _of(evidence: StudyEvidence, split: str) -> list[Result]:
    results = [one for one in evidence.results if one["partition"] == split]
    if not results:
        raise Missing(f"clients that are split by {split}")
    return results


def _splits(evidence: StudyEvidence) -> list[str]:
    return list(dict.fromkeys(one["partition"] for one in evidence.results))


def _most(evidence: StudyEvidence) -> int:
    return int(evidence.records[0]["parameters"]["rounds"])


def _percent(goal: str) -> str:
    return f"{float(goal):.0%}".replace("%", " %")


def _small(value: float) -> str:
    """Show a number with two digits, and 0 without a sign."""
    shown = f"{value:.2f}".replace("-", "−")
    return "0.00" if shown == "−0.00" else shown


FIELDS = {
    "rounds": rounds,
    "sent": sent,
    "accuracy": accuracy,
    "differences": differences,
    "fewest": fewest,
    "price": price,
    "personal": personal,
    "settings": settings,
}
