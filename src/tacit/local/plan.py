"""Planning of a collection: how many people and codewords are needed, and the expected accuracy.

Without in-house rows the answer comes from the model of `tacit.learned.rule`. With them the whole
collection is simulated: a codebook is fitted on one half of the rows, people are drawn from it, a
classifier is learned from their noisy reports and tested on the other half. In-house rows have no
labels, so clusters of the rows stand for the classes; they are computed with other cells than the
codebook's. Real classes may be harder or easier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.data import schema
from tacit.local import proximity
from tacit.local.inference import finite
from tacit.local.inference.finite import Evidence
from tacit.local.learned import codebook, features, quantizer
from tacit.local.learned.rule import codewords_for, expected_error
from tacit.privacy import errors
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

MOST_ROWS = 20_000
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
_SMALLEST, _LARGEST, _LARGEST_SIMULATED = 100, 10**8, 200_000
_DEFAULT_PEOPLE = 10_000
_SIMULATIONS = 3

MODEL = (
    "It assumes classes of equal size, codewords that hold 0.15·(classes/codewords) people of "
    "other classes, and nine in ten of a codeword's people in its main class: "
    "a model, not your data. Always naming the largest class may already be right more often.",
    "Give in-house rows to simulate on their own structure.",
)
SIMULATION = (
    "In-house rows have no labels: their main groups stand for the classes. Labels that follow few "
    "columns may be easier; labels that cut across groups cost much more, or stay out of reach.",
    "People are drawn from the in-house rows: it assumes that they look alike.",
    "The figures vary from run to run; the noise was simulated from a seed and protects nobody.",
)


@dataclass(frozen=True)
class Expectation:
    """The expected accuracy with this many people at this ε."""

    epsilon: float
    people: int
    codewords: int
    accuracy: float


@dataclass(frozen=True)
class Plan:
    """The answer, a table of alternatives, and the assumptions."""

    classes: int
    epsilon: float
    target_accuracy: float | None
    people_needed: int | None
    rows: tuple[Expectation, ...]
    assumptions: tuple[str, ...]
    simulated: bool

    @property
    def title(self) -> str:
        if self.simulated:
            return (
                "Accuracy on clean rows, simulated on the in-house rows; upper bound: labels are "
                "assumed to follow the rows' groups"
            )
        return "Accuracy to expect on clean rows, roughly, by the rule's model"

    @property
    def answer(self) -> str:
        if self.target_accuracy is None:
            (mine,) = (row for row in self.rows if row.epsilon == self.epsilon)
            reached = f"{mine.accuracy:.2f} with {mine.people:,} people"
            return f"Roughly: {reached} at ε = {self.epsilon:g}."
        goal = f"Roughly: {self.target_accuracy:.3g} at ε = {self.epsilon:g}"
        if self.people_needed is None:
            most = _LARGEST_SIMULATED if self.simulated else _LARGEST
            return f"{goal} is not reached with up to {most:,} people."
        return f"{goal} needs about {self.people_needed:,} people."

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {**asdict(self), "answer": self.answer}


def plan(
    *,
    classes: int,
    epsilon: float,
    target_accuracy: float | None = None,
    people: int | None = None,
    inhouse: Any = None,
    image: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Plan:
    """Estimate how many people reach the target, and the accuracy at other ε.

    Without a target, it estimates the accuracy that the given number of people reach.

    Examples
    --------
    >>> made = plan(classes=10, epsilon=1.0, target_accuracy=0.9)
    >>> print(made.answer)
    Roughly: 0.9 at ε = 1 needs about 71,000 people.
    """
    where = "plan"
    classes = errors.whole(where, "classes", classes, least=2, most=1000)
    epsilon = float(errors.epsilon_in_range(where, epsilon))
    if target_accuracy is None and people is None:
        remedy = "Or give the number of people."
        errors.refuse(where, "target_accuracy", "given", None, remedy)
    target = None
    if target_accuracy is not None:
        target = errors.probability(where, "target_accuracy", target_accuracy, zero=False)
    largest = _LARGEST if inhouse is None else _LARGEST_SIMULATED
    if people is not None:
        people = errors.whole(where, "people", people, least=_SMALLEST, most=largest)
    expect: Callable[[float, int], Expectation] = _by_model(classes)
    if inhouse is not None:
        expect = _Simulation(inhouse, image, classes, seed).expect
    needed = None if target is None else _needed(expect, epsilon, target, largest)
    shown = people or needed or _DEFAULT_PEOPLE
    rows = [expect(e, shown) for e in sorted({*EPSILONS, epsilon})]
    return Plan(
        classes,
        epsilon,
        target,
        needed,
        tuple(rows),
        MODEL if inhouse is None else SIMULATION,
        inhouse is not None,
    )


def _needed(
    expect: Callable[[float, int], Expectation], epsilon: float, target: float, largest: int
) -> int | None:
    """Find the smallest number of people who reach the target, if any number does."""
    # If the largest number is not enough, nothing smaller has to be tried.
    if expect(epsilon, largest).accuracy < target:
        return None
    return _fewest(lambda people: expect(epsilon, people).accuracy >= target)


def _fewest(enough: Callable[[int], bool]) -> int:
    """Find the smallest number of people, to two digits."""
    low, high = _SMALLEST, _SMALLEST
    while high < _LARGEST and not enough(high):
        low, high = high, 2 * high
    while high - low > max(high // 16, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    digit: int = 10 ** max(len(str(high)) - 2, 0)
    return -(-high // digit) * digit


def _by_model(classes: int) -> Callable[[float, int], Expectation]:
    def expect(epsilon: float, people: int) -> Expectation:
        codewords = codewords_for(epsilon, people, classes)
        error = expected_error(codewords, epsilon, people, classes)
        return Expectation(epsilon, people, codewords, 1 - error)

    return expect


class _Simulation:
    """A simulated collection; vectors are computed once, and each setting takes about a second."""

    def __init__(
        self, inhouse: Any, image: tuple[int, ...] | None, classes: int, seed: int
    ) -> None:
        given = schema.infer(inhouse, image, "plan")
        rows = given.rows(inhouse, "plan")
        if len(rows) < 40 * classes:
            raise errors.InvalidData(
                f"plan: in-house rows must be at least {40 * classes}, 40 per class. Give more."
            )
        kind = codebook.default_features(given)
        components, damped, self.grouping = codebook.DEFAULTS[kind]
        learned = features.fit(kind, given, rows, seed)
        projection = quantizer.fit_projection(learned, rows, components, damped, seed)
        vectors = quantizer.project(learned, rows, projection)
        self.classes, self.seed = classes, seed
        # With other cells than the codebook's: its own codewords must not be the classes.
        cells, groups = quantizer.fit_cells(vectors, classes, "linked", seed + 1)
        labels = groups[proximity.nearest(vectors, cells)]
        self.train, self.test = vectors[::2], vectors[1::2]
        self.train_labels, self.test_labels = labels[::2], labels[1::2]
        self._codes: dict[int, tuple[Any, Any]] = {}

    def expect(self, epsilon: float, people: int) -> Expectation:
        """Simulate a few collections; the accuracy is at least that of naming the largest group."""
        codewords = min(codewords_for(epsilon, people, self.classes), len(self.train) // 4)
        train, test = self._codewords(codewords)
        count = int(max(train.max(), test.max())) + 1
        streams = np.random.default_rng(self.seed).spawn(_SIMULATIONS)
        accuracies = [self._reached(train, test, count, epsilon, people, rng) for rng in streams]
        largest = np.bincount(self.test_labels).max() / len(self.test_labels)
        return Expectation(epsilon, people, count, max(float(np.mean(accuracies)), float(largest)))

    def _reached(
        self, train: Any, test: Any, count: int, epsilon: float, people: int, rng: Any
    ) -> float:
        """Simulate one collection and return its accuracy."""
        # Two streams: noise that depended on who was drawn would bias the result.
        crowd, noise = rng.spawn(2)
        drawn = crowd.integers(0, len(train), people)
        channel = SubsetSelection(categories=count * self.classes, epsilon=epsilon)
        symbols = train[drawn] * self.classes + self.train_labels[drawn]
        evidence = Evidence(channel.release(symbols, Seeded(noise)), channel, self.classes)
        prior = np.bincount(train, minlength=count).astype(np.float64)
        table = finite.maximum_likelihood(evidence, prior, tolerance=1e-4, steps=200)
        return float(np.mean(table.argmax(axis=1)[test] == self.test_labels))

    def _codewords(self, wanted: int) -> tuple[Any, Any]:
        if wanted not in self._codes:
            cells, groups = quantizer.fit_cells(self.train, wanted, self.grouping, self.seed)
            self._codes[wanted] = (
                groups[proximity.nearest(self.train, cells)],
                groups[proximity.nearest(self.test, cells)],
            )
        return self._codes[wanted]
