"""A part of a sheet: what is measured together, and the law of the symbol that is released.

A number that is measured for its mean, by itself or with options, is released by `GroupedMean`
wherever that has less variance than subset selection: always by itself, and in groups unless there
are too many of them for ε (more than about e^ε). Other parts are released by subset selection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from tacit.local.surveys.laws import Grouped, Law, Sets
from tacit.local.surveys.measures import Measure
from tacit.local.surveys.questions import Integers, Reals
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms.grouped_mean import POINTS, GroupedMean
from tacit.privacy.mechanisms.subset_selection import SubsetSelection
from tacit.privacy.randomness import Randomness

Base = tuple[int, ...]
Bases = Callable[[Fraction, int], Base | None]
"""The base of `GroupedMean` for this ε and so many groups; None where sets are released."""

_SHARE = 1 / 3
"""How much the variance of a group's share counts beside that of a number in it: the mean square of
a group's mean, if all of [−1, 1] is as likely. Around its mean, a number's score needs both."""
_MOST = 1.5
"""With more groups than so many times e^ε, sets of several symbols have less variance."""


@dataclass(frozen=True)
class Part:
    """Measures that are released as one symbol, with this ε.

    With a `base`, the last measure is a number on a grid of 65 points, the others are options, and
    the law is `GroupedMean`; else it is subset selection.
    """

    measures: tuple[Measure, ...]
    epsilon: Fraction
    base: Base | None = None

    @cached_property
    def law(self) -> SubsetSelection | GroupedMean:
        """The mechanism that releases a symbol."""
        if self.base is None:
            categories, unit = math.prod(self.shape), Unit.PERSON
            return SubsetSelection(categories=categories, epsilon=self.epsilon, unit=unit)
        return _grouped(self.groups, self.epsilon, self.base)

    @property
    def groups(self) -> int:
        """The combinations of the options that a number is measured with."""
        return math.prod(self.shape[:-1])

    @cached_property
    def sent(self) -> Law:
        """The law, with the scores of what it releases."""
        law = self.law
        return Sets(law) if isinstance(law, SubsetSelection) else Grouped(law)

    @property
    def event(self) -> Event:
        """The event of one release."""
        return self.law.event

    @property
    def shape(self) -> tuple[int, ...]:
        """The levels of each measure."""
        return tuple(one.levels for one in self.measures)

    @property
    def width(self) -> int:
        """The symbols of a release."""
        return self.sent.width

    def release(self, raw: dict[str, Integers], rng: Randomness) -> Integers:
        """Draw the level of each measure, and release the symbol that joins them."""
        levels = [one.draw(raw[one.variable], rng) for one in self.measures]
        symbols = np.ravel_multi_index(levels, self.shape).astype(np.int64)
        return self.sent.release(symbols, rng)

    def chances(self, rows: Integers, raw: dict[str, Integers]) -> Reals:
        """Return the probability of each release given each person's encoded answers."""
        return self.sent.chances(rows, [one.law(raw[one.variable]) for one in self.measures])


@lru_cache(maxsize=64)
def _grouped(groups: int, epsilon: Fraction, base: Base) -> GroupedMean:
    return GroupedMean(groups=groups, epsilon=epsilon, base=base, unit=Unit.PERSON)


def part_of(measures: tuple[Measure, ...], epsilon: Fraction, bases: Bases) -> Part:
    """Return the part that measures these together."""
    numbers = [one for one in measures if one.kind == "mean"]
    options = tuple(one for one in measures if one.kind == "option")
    if len(numbers) != 1 or len(options) + 1 < len(measures):
        return Part(measures, epsilon)
    base = bases(epsilon, math.prod(one.levels for one in options))
    if base is None:
        return Part(measures, epsilon)
    return Part((*options, replace(numbers[0], size=POINTS)), epsilon, base)


@lru_cache(maxsize=256)
def solved_base(epsilon: Fraction, groups: int) -> Base | None:
    """Compute the base for this ε and so many groups, if it has less variance than sets have."""
    if groups > _MOST * math.exp(min(float(epsilon), 12.0)):
        return None
    law = GroupedMean(groups=groups, epsilon=epsilon)
    p, q = law.inclusion
    share = _of_shares(groups, p, q)
    if groups > 1 and law.worst_variance + _SHARE * share >= _of_sets(epsilon, groups):
        return None
    return tuple(law.base)


def _of_shares(groups: int, p: float, q: float) -> float:
    """Return the mean variance of the score of a group's share, groups being equally large."""
    return (p * (1 - p) + (groups - 1) * q * (1 - q)) / (p - q) ** 2 / groups


def _of_sets(epsilon: Fraction, groups: int) -> float:
    """Return the same sum for subset selection over groups and two or three levels."""
    return min(_of_levels(epsilon, groups, levels) for levels in (2, 3))


def _of_levels(epsilon: Fraction, groups: int, levels: int) -> float:
    sent = Sets(SubsetSelection(categories=groups * levels, epsilon=epsilon))
    grid = np.zeros((2, groups, levels))
    grid[0, 0], grid[1, 0] = np.linspace(-1, 1, levels), 1.0
    values = grid.reshape(2, -1)
    worst = 0.0
    for at in ([1.0], [0.5, 0.5]):  # at a level, and halfway between two
        moments = np.zeros(2)
        for group, times in ((0, 1), (groups - 1, groups - 1)):
            chances = np.zeros((groups, levels))
            chances[group, : len(at)] = at
            mean, second = sent.seconds(values, chances.ravel())
            moments += times * (np.diag(second) - mean**2)
        worst = max(worst, float(moments @ [1, _SHARE]))
    return worst / groups
