"""Plans of a collection: the accuracy to expect, and the number of people for a target.

A plan rests on what one has, and says which:

- nothing: the range of a record of real tables (`tacit.plan.record`);
- in-house rows: collections simulated with labels that follow the rows' groups, as an upper bound;
- a pilot of labelled rows, or a first round of reports: collections simulated in worlds drawn given
  these (`tacit.plan.worlds`), as an interval (`tacit.plan.intervals`).

Simulations run the pipeline that will run, `Collection`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.data import labels as declared_labels
from tacit.data.schema import Schema
from tacit.local import graphs
from tacit.local.plan import record, worlds
from tacit.local.plan.intervals import BOUND_TAIL, TAIL, Interval, Predicted
from tacit.local.plan.reported import must_be_labelled, reported
from tacit.local.plan.simulation import Pipeline, Simulation, Trial, levels
from tacit.local.reports import Reports
from tacit.privacy import errors

MOST_ROWS = 20_000
"""In-house rows worth reading for a plan."""

NUMBERS = (300, 1200, 5000, 20_000)
"""Numbers of people that are simulated to find how many reach a target."""

DEFAULT_PEOPLE, MOST_PEOPLE = 10_000, 10**8
FEWEST_ROWS, FEWEST_LABELLED = 50, 20
WORLDS, TRIALS = 200, 4

NOTHING = (
    "Nothing is known of your rows and labels: this is the range of the tables in our record, with "
    "{fewest:,} to {most:,} people each. Yours may lie outside.",
    "Give in-house rows, a pilot of about 100 labelled rows, or a first round of reports.",
)
RECORDED = (
    "The record is of collections in one round, without a central guarantee of in-house rows: give "
    "in-house rows to simulate yours."
)
GROUPS = (
    "In-house rows have no labels: their main groups stand for the classes. Real labels are harder "
    "to predict, often much harder, so this is an upper bound and no estimate.",
    "Give a pilot of about 100 labelled rows, or a first round of reports, for an interval.",
)
WORLD = (
    "The interval is meant to hold what is reached in nine of ten cases: it allows "
    "for what is not known of the labels from {known}, and for the noise of reports.",
    "Always naming the largest class would reach {least:.2f} to {most:.2f}: only what is above "
    "that is learned. If a class is rare, recall and the area under the ROC curve say more than "
    "the accuracy; a plan does not predict them.",
)
SIMULATED = (
    "People are simulated by drawing from the in-house rows: it assumes that they look alike.",
    "It is computed from raw rows, and its noise was simulated from a seed, which protects nobody: "
    "keep the plan in-house.",
)


@dataclass(frozen=True)
class Plan:
    """What to expect of a collection, and what that rests on.

    Parameters
    ----------
    basis : str
        "record", "in-house rows", "pilot", "reports" or "pilot and reports".
    classes : int
        How many labels there are.
    epsilon : float
        Local ε of one report.
    at_people : int
        The number of people that `accuracy` is about.
    accuracy : Interval
        Of the model on clean rows; without a pilot or reports the upper end is a bound, and the
        lower end is unknown.
    target_accuracy : float, optional
        The target that `people` is about.
    people : Interval
        How many people reach the target: at least `low`; `high` is None if no simulated number of
        people is sure to.
    assumptions : tuple of str
        What to know before relying on it.
    """

    basis: str
    classes: int
    epsilon: float
    at_people: int
    accuracy: Interval
    target_accuracy: float | None
    people: Interval
    assumptions: tuple[str, ...]

    @property
    def answer(self) -> str:
        """The plan in a sentence or two."""
        parts = [f"{self._accuracy_words()} at ε = {self.epsilon:g}."]
        if self.target_accuracy is not None:
            parts.append(f"An accuracy of {self.target_accuracy:g} {self._people_words()}.")
        return " ".join(parts)

    def _accuracy_words(self) -> str:
        low, high = self.accuracy.low, self.accuracy.high
        if high is None:
            return "Nothing is known about the accuracy"
        if self.basis == "record":
            return f"Comparable tables reached {low:.2f} to {high:.2f}"
        people = f"with {self.at_people:,} people"
        if low is None:
            return f"Upper bound: an accuracy of at most {high:.2f} {people}"
        return f"An accuracy between {low:.2f} and {high:.2f} {people}"

    def _people_words(self) -> str:
        low, high = self.people.low, self.people.high
        if low is None:
            return "was reached by no comparable table in the record"
        if high is None:
            return f"needs at least {low:,} people, perhaps far more, or stays out of reach"
        return f"needs between {low:,} and {high:,} people"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {**asdict(self), "answer": self.answer}


def plan(
    *,
    epsilon: float,
    classes: int | Sequence[Any] | None = None,
    target_accuracy: float | None = None,
    people: int | None = None,
    inhouse: Any = None,
    pilot: Any = None,
    labels: Any = None,
    reports: Reports | None = None,
    rounds: int = 1,
    central_epsilon: float | None = None,
    central_delta: float | None = None,
    schema: Schema | None = None,
    image: tuple[int, ...] | None = None,
    signal: tuple[int, int] | None = None,
    seed: int = 0,
) -> Plan:
    """Predict the accuracy of a collection, and how many people reach a target.

    Parameters
    ----------
    epsilon : float
        Local ε of one report, label included.
    classes : int or sequence, optional
        The labels that people may have; by default those of the pilot or of the reports.
    target_accuracy : float, optional
        Accuracy to reach, in (0, 1).
    people : int, optional
        How many people are expected to report; needed without a target.
    inhouse
        In-house rows without labels, as for `Collection.fit`.
    pilot, labels
        Some rows with their labels, about 100. Without `inhouse` they stand for the in-house rows.
    reports : Reports, optional
        A first round of labelled reports; needs `inhouse`.
    rounds : int
        How many rounds the collection will have.
    central_epsilon, central_delta : float, optional
        What the mechanism will cost the in-house rows in total. The plan itself protects them not.
    schema : Schema, optional
        Public bounds and categories, as for `Collection.fit`.
    image : (int, int) or (int, int, int), optional
        Height, width and, in colour, channels, if flat rows are images.
    signal : (int, int), optional
        Points in time and channels, if rows are signals.
    seed : int
        Of the simulation.

    Notes
    -----
    Whatever is given is used without noise: a plan that was made from rows stays in-house.

    Examples
    --------
    >>> made = plan(classes=2, epsilon=2, people=5000)
    >>> made.basis, made.accuracy.high
    ('record', 0.96)
    """
    where = "plan"
    epsilon = float(errors.epsilon_in_range(where, epsilon))
    if target_accuracy is None and people is None:
        remedy = "Or give the number of people."
        errors.refuse(where, "target_accuracy", "given", None, remedy)
    target = None
    if target_accuracy is not None:
        target = errors.probability(where, "target_accuracy", target_accuracy, zero=False)
    if people is not None:
        people = errors.whole(where, "people", people, least=100, most=MOST_PEOPLE)
    known = _Known(inhouse, pilot, labels, reports)
    values = known.classes(classes)
    pipeline = Pipeline(rounds, central_epsilon, central_delta, schema, image, signal)
    pipeline.collection(epsilon, people or DEFAULT_PEOPLE, len(values))  # refused before rows
    if known.rows is None:
        return _by_record(len(values), epsilon, target, people or DEFAULT_PEOPLE, pipeline)
    simulation = Simulation(known.rows, len(values), epsilon, pipeline, seed)
    if simulation.count < FEWEST_ROWS:
        raise errors.InvalidData(
            f"plan: rows must be at least {FEWEST_ROWS}. Give more in-house rows."
        )
    numbers = [people or DEFAULT_PEOPLE] if target is None else {people or NUMBERS[0], *NUMBERS}
    tried = sorted({min(number, NUMBERS[-1]) for number in numbers})
    predicted = known.predicted(simulation, values, tried, seed)
    return _answered(known, len(values), epsilon, target, people or DEFAULT_PEOPLE, predicted)


class _Known:
    """What there is to plan from; checked, and turned into worlds and trials."""

    def __init__(self, inhouse: Any, pilot: Any, labels: Any, reports: Any) -> None:
        where = "plan"
        if (pilot is None) != (labels is None):
            remedy = "A pilot is rows and their labels."
            errors.refuse(where, "labels", "given with pilot", type(labels).__name__, remedy)
        if reports is not None:
            must_be_labelled(reports)
            if inhouse is None:
                remedy = "Reports say nothing of rows by themselves."
                errors.refuse(where, "inhouse", "given with reports", None, remedy)
        self.rows = pilot if inhouse is None else inhouse
        self.pilot, self.labels, self.reports = pilot, labels, reports

    @property
    def basis(self) -> str:
        given = [("pilot", self.pilot), ("reports", self.reports)]
        names = [name for name, value in given if value is not None]
        return " and ".join(names) or "in-house rows"

    def classes(self, given: Any) -> tuple[Any, ...]:
        """Return the declared classes, or those of the reports or of the pilot."""
        if given is None and self.reports is not None:
            given = self.reports.channel.classes
        if given is None and self.labels is not None:
            given = np.unique(np.asarray(self.labels)).tolist()
        if given is None:
            errors.refuse("plan", "classes", "given", None, "Or give a pilot with labels.")
        return declared_labels.declare("plan", given)

    def predicted(
        self, simulation: Simulation, values: tuple[Any, ...], tried: list[int], seed: int
    ) -> Predicted:
        """Draw worlds, and simulate collections in some of them with each number of people."""
        if self.pilot is None and self.reports is None:
            possible, tail = [_groups(simulation, seed + number) for number in range(2)], BOUND_TAIL
            tries = [("groups", own) for own in possible]
        else:
            possible, tail = self._worlds(simulation, values, seed), TAIL
            tries = _tries(possible, TRIALS if len(tried) == 1 else TRIALS // 2)
        best, largest = np.array([levels(own) for own in possible]).T
        trials: list[Trial] = []
        for people in tried:
            for kind, own in tries:
                trials.append(simulation.trial(own, people, len(trials), kind))
        where = (seed, tail, simulation.clustered)
        return Predicted(best, largest, trials, simulation.classes, *where)

    def _worlds(
        self, simulation: Simulation, values: tuple[Any, ...], seed: int
    ) -> list[worlds.Reals]:
        """Draw worlds given the pilot's labels and the reports; return their probabilities."""
        clustered = simulation.clustered
        inputs = worlds.Inputs.fit(simulation.vectors, simulation.classes, seed, clustered)
        here = inputs(simulation.vectors)
        observed, likelihoods = [], []
        if self.pilot is not None:
            codes = declared_labels.codes("plan", self.labels, values)
            seen = inputs(simulation.vectors_of(self.pilot))
            _must_be_enough(len(codes), len(seen[0]))
            observed.append(seen)
            likelihoods.append(worlds.labelled(codes))
        if self.reports is not None:
            observed.append(here)
            likelihoods.append(reported(self.reports, simulation.rows, seed))
        known = worlds.together(observed, likelihoods)
        return [world(here) for world in worlds.draw(*known, len(values), WORLDS, seed)]


def _tries(possible: list[worlds.Reals], count: int) -> list[tuple[str, worlds.Reals]]:
    """Choose worlds to simulate collections in: some that were drawn, some like their mean."""
    best = [levels(own)[0] for own in possible]
    ordered, half = np.argsort(best, kind="stable"), max(count // 2, 1)
    places = [ordered[int((number + 0.5) / half * len(ordered))] for number in range(half)]
    drawn = [("drawn", possible[place]) for place in places]
    return [*drawn, *(("mean", worlds.smoothed(possible, best[place])) for place in places)]


def _must_be_enough(codes: int, rows: int) -> None:
    if codes != rows:
        raise errors.InvalidData("plan: labels must be one per row of the pilot.")
    if codes < FEWEST_LABELLED:
        raise errors.InvalidData(
            f"plan: pilot must have at least {FEWEST_LABELLED} rows. Label about 100."
        )


def _groups(simulation: Simulation, seed: int) -> worlds.Reals:
    """Return a world whose labels are the main groups of the in-house rows."""
    vectors, classes = simulation.vectors, simulation.classes
    centres, groups = worlds.grouped(vectors, classes, seed, simulation.clustered)
    return np.asarray(np.eye(classes)[groups[graphs.nearest(vectors, centres)]])


def _by_record(
    classes: int, epsilon: float, target: float | None, people: int, pipeline: Pipeline
) -> Plan:
    range_ = record.accuracies(classes, epsilon) or (None, None)
    fewest = None if target is None else record.fewest_people(classes, epsilon, target)
    counts = [one.people for one in record.comparable(classes)]
    other = () if pipeline.usual else (RECORDED,)
    said = (NOTHING[0].format(fewest=min(counts), most=max(counts)), *other, *NOTHING[1:])
    return Plan(
        "record", classes, epsilon, people, Interval(*range_), target, Interval(fewest, None), said
    )


def _answered(
    known: _Known, classes: int, epsilon: float, target: float | None, people: int, found: Predicted
) -> Plan:
    low, high = found.accuracy(people)
    bounded = known.basis == "in-house rows"
    needed = Interval(None, None)
    if target is not None:
        fewest, enough = found.people(target)
        needed = Interval(fewest, None if bounded else enough)
    least, most = np.quantile(found.largest, (TAIL, 1 - TAIL))
    words = {"known": f"the {known.basis}", "least": least, "most": most}
    said = GROUPS if bounded else tuple(line.format(**words) for line in WORLD)
    accuracy = Interval(None if bounded else low, high)
    return Plan(
        known.basis, classes, epsilon, people, accuracy, target, needed, (*said, *SIMULATED)
    )
