r"""Forgery: whether reports can have come from the channel, whoever the people are.

For honest reports each factor of a wager (`wagers`) has mean 1, whatever the person's symbol is. So
has the product W over all reports, the mean of many such products, and its value after each report
that arrives. By Ville's inequality, the mean of all wagers ever reaches :math:`1/\alpha` with
probability at most :math:`\alpha`: the false-alarm rate holds for all times at which somebody
looks, together. It takes for granted that people do not choose whether to report, or to withdraw,
by what their noise turned out to be.

There is a wager on each label, each codeword or cell, and every set that a report can name, on
symbols that follow one another, and on each partition. Forged reports that have the channel's law,
such as those of people who lie about their row and then run the mechanism, cannot be seen by this
or any other test; nor can any if a report names a single symbol. `poisoning` bounds what they move.

References
----------
.. [Vil39] Ville. Étude critique de la notion de collectif. 1939.
.. [WSR24] Waudby-Smith, Ramdas. Estimating means of bounded random variables by betting.
   JRSS B 2024.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp

from tacit.local.inference.wagers import Wager, group_wager, run_wager, uniform_wager
from tacit.privacy import errors
from tacit.privacy.mechanisms import SubsetSelection

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FALSE_ALARM_RATE = 0.01

_MOST_SETS, _BLOCK_ROWS = 16, 1 << 15
LABEL, CELL, SET, RUN, PARTITION = KINDS = ("label", "cell", "set", "run", "partition")


class Pattern(NamedTuple):
    """What forged reports seem to have in common, and about how many reports show it in excess."""

    kind: str
    about: Any
    excess: float


@dataclass(frozen=True)
class ForgeryTest:
    """The outcome of the test.

    Parameters
    ----------
    log_evidence : float
        Natural logarithm of the mean of all wagers: honest reports have a mean evidence of 1.
    pattern : Pattern or None
        The wager that gained the most; None where nothing can be tested.
    false_alarm_rate : float
        The largest probability of an alarm if all reports are honest.
    seen_from : dict
        For each kind of pattern, about how many forged reports of it raise the alarm with
        probability .9 if people are spread evenly over the symbols; None where all of them do not.
    sample : int
        Which of the samples `pattern` and `seen_from` are about, from 0.
    """

    log_evidence: float
    pattern: Pattern | None
    false_alarm_rate: float = FALSE_ALARM_RATE
    seen_from: dict[str, int | None] = field(default_factory=dict)
    sample: int = 0

    @property
    def testable(self) -> bool:
        """Whether the channel has any law that forged reports could break."""
        return self.pattern is not None

    @property
    def alarm(self) -> bool:
        """Whether the reports are too unlikely to be honest."""
        return self.log_evidence >= -math.log(self.false_alarm_rate)


@dataclass(frozen=True, eq=False)
class Sample:
    """Reports through one channel: sets of symbols, and the partition that each one names."""

    law: SubsetSelection
    sets: npt.NDArray[Any]
    classes: int = 1
    partition: Integers | None = None
    partitions: int = 1

    @cached_property
    def places(self) -> Integers:
        """The partition of each report; all zero where there is only one."""
        none = np.zeros(len(self.sets), np.int64)
        return none if self.partition is None else np.asarray(self.partition, np.int64)


def forgery_test(
    samples: Sequence[Sample], false_alarm_rate: float = FALSE_ALARM_RATE
) -> ForgeryTest:
    """Test whether reports obey the law of their channel, whatever the people's symbols are.

    Parameters
    ----------
    samples : sequence of Sample
        Reports of each round, in order; or of whatever else is told apart in public, such as the
        sheets of a survey, in an order that does not depend on reports.
    false_alarm_rate : float
        The largest probability of an alarm if all reports are honest and independent.
    """
    rate = errors.probability("forgery", "false_alarm_rate", false_alarm_rate, zero=False)
    found = [(*_evidence(sample), number) for number, sample in enumerate(samples, 1)]
    tested = [one for one in found if one[1] is not None]
    if not tested:
        return ForgeryTest(0.0, None, rate)
    # Round r has 1/(r(r + 1)) of the money, and what later rounds have is not wagered yet: the mean
    # stays a fair game when a round opens.
    rest = -math.log(len(found) + 1)
    total = float(logsumexp([rest, *(log + _part(number) for log, _, number in found)]))
    _, pattern, number = max(tested, key=lambda one: one[0] + _part(one[2]))
    goal = -math.log(rate) - _part(number)
    return ForgeryTest(total, pattern, rate, _seen_from(samples[number - 1], goal), number - 1)


def _part(number: int) -> float:
    return -math.log(number * (number + 1))


def _evidence(sample: Sample) -> tuple[float, Pattern | None]:
    """Return the log of the mean wager, and the pattern that gained the most."""
    found = list(_played_wagers(sample))
    if not found:
        return 0.0, None
    kinds = len({pattern.kind for _, pattern in found})
    best = max(found, key=lambda one: one[0])[1]
    return float(logsumexp([log for log, _ in found])) - math.log(kinds), best


def _wagers(sample: Sample) -> dict[str, tuple[Wager, float]]:
    """Return the wager on each kind of pattern, and the log of how many patterns share its money.

    Kinds and patterns are chosen by the channel alone: what was reported must not choose them.
    """
    law, classes, partitions = sample.law, sample.classes, sample.partitions
    k, d = law.categories, law.event.size
    sets = float(gammaln(k + 1) - gammaln(d + 1) - gammaln(k - d + 1))
    possible = {
        LABEL: (group_wager(law, k // classes), math.log(classes)),
        CELL: (group_wager(law, classes), math.log(partitions * (k // classes))),
        SET: (group_wager(law, d), math.log(partitions) + sets),
        RUN: (run_wager(law), 0.0),
        PARTITION: (uniform_wager(partitions), math.log(partitions)),
    }
    return {kind: (wager, price) for kind, (wager, price) in possible.items() if wager}


def _played_wagers(sample: Sample) -> Iterator[tuple[float, Pattern]]:
    """Yield the log of each wager's wealth, times its part of the money of its kind."""
    law, classes = sample.law, sample.classes
    cells = law.categories // classes
    for kind, (wager, price) in _wagers(sample).items():
        if kind == SET:
            yield from _on_repeated_sets(wager, price, sample)
            continue
        if kind == LABEL:
            nowhere = np.zeros(len(sample.sets), np.int64)
            tally = _tally(sample.sets % classes, nowhere, 1, classes, law)
        elif kind == CELL:
            tally = _tally(sample.sets // classes, sample.places, sample.partitions, cells, law)
        elif kind == RUN:
            lengths = _neighbours(sample.sets, law.categories)
            tally = np.bincount(lengths, minlength=law.event.size)[None]
        else:
            per = np.bincount(sample.places, minlength=sample.partitions)
            tally = np.stack([len(sample.sets) - per, per], axis=1)
        for about, row in enumerate(tally):
            log_wealth, excess = _played(wager, row)
            yield log_wealth - price, Pattern(kind, about, excess)


def _on_repeated_sets(
    wager: Wager, price: float, sample: Sample
) -> Iterator[tuple[float, Pattern]]:
    """Wager on every possible set alike, and keep the gains of those that were named most often.

    All wealth is positive, so leaving out the others can only lower the evidence.
    """
    k, d = sample.law.categories, sample.law.event.size
    _, first, repeats = np.unique(_marks(sample), return_index=True, return_counts=True)
    for at in first[np.argsort(-repeats, kind="stable")[:_MOST_SETS]]:
        place, symbols = sample.places[at], np.sort(sample.sets[at])
        named = np.zeros(k, np.int64)
        named[symbols] = 1
        here = named[sample.sets[sample.places == place]].sum(axis=1)
        log_wealth, excess = _played(wager, np.bincount(here, minlength=d + 1))
        yield log_wealth - price, Pattern(SET, symbols.tolist(), excess)


def _marks(sample: Sample) -> npt.NDArray[np.uint64]:
    """Return a number for each report, equal for equal sets of one partition."""
    weights = np.random.default_rng(0).integers(2**63, size=sample.law.categories, dtype=np.uint64)
    marks = np.zeros(len(sample.sets), np.uint64)
    for column in sample.sets.T:
        marks += weights[column]
    return marks + sample.places.astype(np.uint64)


def _played(wager: Wager, tally: Integers) -> tuple[float, float]:
    """Return the log of the mean wealth over all stakes, and how many reports are in excess.

    Each forged report of a pattern adds the score of the largest J that occurs, an honest one
    nothing on average.
    """
    wealth = wager.log_factors @ tally
    best = np.unravel_index(int(np.argmax(wealth)), wealth.shape)[0]
    scores = wager.scores[best]
    excess = float(scores @ tally) / float(scores[-1])
    return float(logsumexp(wealth)) - math.log(wealth.size), min(max(excess, 0.0), tally.sum())


def _seen_from(sample: Sample, goal: float) -> dict[str, int | None]:
    """Return about how many forged reports of each kind raise the alarm with probability .9."""
    wagers = _wagers(sample)
    least = {
        kind: _fewest(wager, goal + price + math.log(len(wagers)), len(sample.sets))
        for kind, (wager, price) in wagers.items()
    }
    return {kind: least.get(kind) for kind in KINDS}


def _fewest(wager: Wager, goal: float, reports: int) -> int | None:
    """Return how many of the reports must be forged for the log of the wealth to reach a goal."""
    factors = wager.log_factors.reshape(-1, wager.log_factors.shape[-1])
    mean = factors @ wager.even
    spread = np.sqrt(np.maximum((factors**2) @ wager.even - mean**2, 0))
    missing = goal + math.log(len(factors)) - reports * mean + 1.28 * math.sqrt(reports) * spread
    with np.errstate(divide="ignore", invalid="ignore"):
        each = missing / (factors[:, -1] - mean)
    enough = each[(factors[:, -1] > mean) & (each <= reports)]
    return None if not enough.size else max(1, math.ceil(float(enough.min())))


def _tally(
    named: Integers, places: Integers, partitions: int, groups: int, law: SubsetSelection
) -> Integers:
    """Count, for each group of each partition, the reports that name 0, 1, … of its symbols."""
    size = law.categories // groups
    most = min(law.event.size, size)
    tally = np.zeros((partitions * groups, most + 1), np.int64)
    for start in range(0, len(named), _BLOCK_ROWS):
        block, place = named[start : start + _BLOCK_ROWS], places[start : start + _BLOCK_ROWS]
        held = np.zeros((len(block), groups), np.int64)
        rows = np.arange(len(block))
        for column in block.T:
            held[rows, column] += 1
        cell = (place[:, None] * groups + np.arange(groups)) * (most + 1) + held
        tally += np.bincount(cell.ravel(), minlength=tally.size).reshape(tally.shape)
    return tally


def _neighbours(sets: npt.NDArray[Any], categories: int) -> Integers:
    """Count the pairs of neighbours in each set, on a circle."""
    order = np.sort(sets.astype(np.int64), axis=1)
    steps = (np.diff(order, axis=1) == 1).sum(axis=1)
    around = (order[:, 0] == 0) & (order[:, -1] == categories - 1)
    return np.asarray(steps + around)
