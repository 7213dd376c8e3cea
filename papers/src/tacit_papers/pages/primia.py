"""Tables and sentences of the study of hospitals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tacit_papers.pages.evidence import Missing, Result, StudyEvidence, listed, shown, signed, table

TOGETHER, ALONE = "three hospitals", "one hospital alone"
SCRATCH, PRETRAINED = "scratch", "pretrained"
NAMES = {SCRATCH: "from scratch", PRETRAINED: "pretrained"}
IMAGES = {"mcc": "test images", "mcc_validation": "validation images"}
MARGIN = 2.0
"""Number of standard errors up to which a difference is not reported."""

FREE = math.inf
"""ε without privacy, which comes last."""

Results = dict[float, Result]
Pairs = dict[float, tuple[Result, Result]]


def quality(evidence: StudyEvidence, measure: str) -> str:
    """Tabulate a measure by model and by who trains, against ε."""
    every = [(model, task) for model in NAMES for task in (TOGETHER, ALONE)]
    rows = {key: _results(evidence, *key) for key in every}
    epsilons = sorted({epsilon for results in rows.values() for epsilon in results})
    lines = [
        [
            f"{NAMES[model]}, {task}",
            *(shown(results[e][measure]) if e in results else "" for e in epsilons),
        ]
        for (model, task), results in rows.items()
        if results
    ]
    return table(["ε", *map(_epsilon, epsilons)], lines)


def pretraining(evidence: StudyEvidence, _: str = "") -> str:
    """Say where pretraining on public images helps the federation."""
    pairs = _pairs(_results(evidence, PRETRAINED, TOGETHER), _results(evidence, SCRATCH, TOGETHER))
    if not pairs:
        raise Missing("both models, at three hospitals")
    return _said("pretrained less from scratch", {"": pairs})


def together(evidence: StudyEvidence, _: str = "") -> str:
    """Say where three hospitals beat one, and where they do not."""
    pairs = {
        f"{words}, ": _pairs(_results(evidence, model, TOGETHER), _results(evidence, model, ALONE))
        for model, words in NAMES.items()
    }
    pairs = {words: results for words, results in pairs.items() if results}
    if not pairs:
        raise Missing("one hospital alone")
    return _said("three hospitals less one", pairs)


def worth(evidence: StudyEvidence, _: str = "") -> str:
    """Count the comparisons in which three hospitals beat one under noise."""
    compared = [
        (one, _gap(pair, measure), _error(pair, measure))
        for model in NAMES
        for one, pair in _pairs(
            _results(evidence, model, TOGETHER), _results(evidence, model, ALONE)
        ).items()
        for measure in IMAGES
    ]
    private = [(gap, error) for epsilon, gap, error in compared if epsilon != FREE]
    if not private:
        raise Missing("one hospital alone")
    ahead = sum(gap > MARGIN * error for gap, error in private)
    behind = sum(gap < -MARGIN * error for gap, error in private)
    return (
        f"Of {len(private)} comparisons under noise, a model, an ε and a set of images each, "
        f"three hospitals are ahead of one by more than two standard errors in {ahead}, behind in "
        f"{behind}, and in {len(private) - ahead - behind} the trials cannot tell."
    )


def price(evidence: StudyEvidence, measure: str) -> str:
    """Say what noise costs the federation, against the same network without it."""
    parts = []
    for model, words in NAMES.items():
        results = _results(evidence, model, TOGETHER)
        free = results.pop(FREE, None)
        if free is not None and results:
            lost = {e: one[measure]["mean"] - free[measure]["mean"] for e, one in results.items()}
            said = [f"{signed(gap)} at ε = {e:g}" for e, gap in lost.items()]
            parts.append(f"{words} {listed(said)}")
    if not parts:
        raise Missing("hospitals without privacy")
    return f"Against no privacy, on {IMAGES[measure]}: {'; '.join(parts)}."


def paper(evidence: StudyEvidence, _: str = "") -> str:
    """State the published number, and ours at its ε, which are not comparable."""
    theirs = evidence.records[0]["data"].get("published")
    if not theirs:
        raise Missing("the paper's number")
    parts = [
        f"{NAMES[model]} {shown(one['mcc'])} on test images and {shown(one['mcc_validation'])} on "
        "validation images"
        for model in NAMES
        if (one := _results(evidence, model, TOGETHER).get(theirs["epsilon"])) is not None
    ]
    ours = f" At that ε three hospitals reach here: {'; '.join(parts)}." if parts else ""
    return (
        f"Kaissis et al. report a Matthews' coefficient of {theirs['mcc']:g} at ε = "
        f"{theirs['epsilon']:g}, of a ResNet18 that was pretrained on chest X-rays. "
        "**The two are not comparable.** A survey that cites the number speaks of about 100,000 "
        "radiographs, normal or abnormal; their repository holds 5,163 for training and 624 for "
        "testing, of three classes, most of them from the collection that PneumoniaMNIST is made "
        "from. We could not check which of them the number refers to. Either way their images and "
        "their network are larger, and they pretrained on images nearer to the task: ours is for "
        f"{evidence.records[0]['data']['rows']:,} images of 28 × 28 pixels, and a small network "
        f"that was pretrained on handwritten digits, or not at all.{ours}"
    )


def sizes(evidence: StudyEvidence, _: str = "") -> str:
    """List the numbers of training images of the hospitals."""
    return listed(f"{count:,}" for count in _counts(evidence))


def leak(evidence: StudyEvidence, _: str = "") -> str:
    """Say what δ allows at worst."""
    record = evidence.records[0]
    delta, most = float(record["parameters"]["delta"]), max(_counts(evidence))
    return (
        f"δ = {delta:g} is the paper's. A mechanism that published each image with that "
        f"probability, and nothing otherwise, would be allowed: of {most:,} images that is "
        f"{delta * most:.2f} on average. Choose a smaller one where you can."
    )


def ill(evidence: StudyEvidence, part: str) -> str:
    """Show the share of images with pneumonia, as `62.5 %`."""
    try:
        return f"{evidence.records[0]['data']['ill'][part]:.1%}".replace("%", " %")
    except KeyError:
        raise Missing(f"share of the ill among {part} images") from None


def elsewhere(evidence: StudyEvidence, _: str = "") -> str:
    """Say how much worse models are on test images than on validation images."""
    gaps = [one["mcc_validation"]["mean"] - one["mcc"]["mean"] for one in evidence.results]
    if min(gaps) > 0:
        return (
            "Every model here does worse on them than on the validation images, with privacy or "
            f"without: Matthews' coefficient falls by {min(gaps):.3f} to {max(gaps):.3f}."
        )
    return (
        f"From validation to test images, Matthews' coefficient changes by {signed(-max(gaps))} "
        f"to {signed(-min(gaps))}."
    )


def trivial(evidence: StudyEvidence, _: str = "") -> str:
    """State the accuracy of a constant answer."""
    shares = evidence.records[0]["data"]["ill"]
    return (
        f"Always predicting pneumonia is right on {shares['test']:.1%} of the test images and on "
        f"{shares['validation']:.1%} of the validation images, with a Matthews' coefficient of 0."
    ).replace("%", " %")


def spent(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate noise, steps, sampling, and the resulting ε."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for model, words in NAMES.items():
        for task in (TOGETHER, ALONE):
            for epsilon, one in _results(evidence, model, task).items():
                if epsilon != FREE:
                    rows.setdefault((words, f"{epsilon:g}", *_paid(one)), []).append(task)
    if not rows:
        raise Missing("hospitals with privacy")
    every = {task for tasks in rows.values() for task in tasks}
    lines = [
        [words if len(tasks) == len(every) else f"{words}, {tasks[0]}", *cells]
        for (words, *cells), tasks in rows.items()
    ]
    return table(["", "ε", "noise multiplier", "q", "rounds", "steps", "spent ε"], lines)


def _paid(one: Result) -> tuple[str, ...]:
    return (
        f"{one['noise_multiplier']:.2f}",
        f"{one['sampling_probability']:.3f}",
        str(one["rounds"]),
        str(one["steps"]),
        f"{one['spent_epsilon']:.4f}",
    )


def settings(evidence: StudyEvidence, _: str = "") -> str:
    """Tabulate the settings, with one line where several ε share them."""
    settings = evidence.records[0]["parameters"]["settings"]
    wanted = ("rounds", "learning_rate", "batch_size", "momentum", "normal", "frozen")
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, one in settings.items():
        model, at, epsilon = name.partition(" at ")
        if at:
            cells = (NAMES[model], *(_setting(one[key]) for key in wanted))
            alike.setdefault(cells, []).append(epsilon)
    heads = ("", "ε", "rounds", "η", "batch", "momentum", "weight of a normal image", "frozen")
    rows = [[cells[0], listed(where), *cells[1:]] for cells, where in alike.items()]
    return table(heads, rows)


def _said(difference: str, pairs: dict[str, Pairs]) -> str:
    """Tabulate differences of means, and say which of them are significant."""
    epsilons = sorted({epsilon for results in pairs.values() for epsilon in results})
    lines = [
        (f"{words}{images}", results, measure)
        for words, results in pairs.items()
        for measure, images in IMAGES.items()
    ]
    rows = [
        [name, *(_difference(results[e], measure) if e in results else "" for e in epsilons)]
        for name, results, measure in lines
    ]
    sentences = "\n".join(
        f"- {name}: {_told(results, measure)}." for name, results, measure in lines
    )
    return f"{table([difference, *map(_epsilon, epsilons)], rows)}\n\n{sentences}"


def _told(results: Pairs, measure: str) -> str:
    """Say at which ε the first is ahead, behind, or neither."""

    def where(holds: Callable[[float, float], bool]) -> list[float]:
        return [e for e, p in results.items() if holds(_gap(p, measure), _error(p, measure))]

    said = {
        "ahead": where(lambda gap, error: gap > MARGIN * error),
        "no difference that trials can tell": where(lambda gap, error: abs(gap) <= MARGIN * error),
        "**behind**": where(lambda gap, error: gap < -MARGIN * error),
    }
    return "; ".join(f"{words} {_places(at)}" for words, at in said.items() if at)


def _places(epsilons: Iterable[float]) -> str:
    every = list(epsilons)
    noisy = [epsilon for epsilon in every if epsilon != FREE]
    words = [f"at ε = {listed(noisy)}"] if noisy else []
    return ", and ".join(words + (["without privacy"] if FREE in every else []))


def _difference(pair: tuple[Result, Result], measure: str) -> str:
    error = _error(pair, measure)
    gap = signed(_gap(pair, measure))
    return ("0.000" if gap == "−0.000" else gap) + (
        f"\u00a0±\u00a0{error:.3f}" if math.isfinite(error) else ""
    )


def _gap(pair: tuple[Result, Result], measure: str) -> float:
    return float(pair[0][measure]["mean"] - pair[1][measure]["mean"])


def _error(pair: tuple[Result, Result], measure: str) -> float:
    """Return the standard error of a difference of two means over trials; ∞ for one trial."""
    if any(len(one[measure]["trials"]) < 2 for one in pair):
        return math.inf
    return math.hypot(*(one[measure]["std"] / len(one[measure]["trials"]) ** 0.5 for one in pair))


def _pairs(first: Results, second: Results) -> Pairs:
    return {e: (one, second[e]) for e, one in first.items() if e in second}


def _results(evidence: StudyEvidence, model: str, task: str) -> Results:
    """Return results by ε, without privacy last."""
    mine = (one for one in evidence.results if (one["model"], one["task"]) == (model, task))
    results = {FREE if one["epsilon"] is None else float(one["epsilon"]): one for one in mine}
    return dict(sorted(results.items()))


def _counts(evidence: StudyEvidence) -> list[int]:
    return list(evidence.records[0]["data"]["hospitals"])


def _epsilon(epsilon: float) -> str:
    return "no privacy" if epsilon == FREE else f"{epsilon:g}"


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "all" if value is None else f"{value:g}"


FIELDS = {
    "quality": quality,
    "pretraining": pretraining,
    "together": together,
    "worth": worth,
    "price": price,
    "paper": paper,
    "sizes": sizes,
    "leak": leak,
    "ill": ill,
    "elsewhere": elsewhere,
    "trivial": trivial,
    "spent": spent,
    "settings": settings,
}
