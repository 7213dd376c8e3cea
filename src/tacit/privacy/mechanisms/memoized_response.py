r"""Memoised randomized response: the same person's answers to the same question, round after round.

References
----------
.. [EPK14] Erlingsson, Pihur, Korolova. RAPPOR: randomized aggregatable privacy-preserving ordinal
   response. CCS 2014.
.. [APC23] Arcolezi, Pinzón, Palamidessi, Gambs. Frequency estimation of evolving data under local
   differential privacy. EDBT 2023 (LOLOHA).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms.counts import (
    CountEstimate,
    ShareChange,
    unbiased_counts,
)
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.randomness import Randomness, source
from tacit.privacy.rounding import low
from tacit.privacy.shown import Shown

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_WHERE = "MemoizedResponse"
_SEED_BITS = 53
_MOST_CATEGORIES = 2**16
_MOST_ENTRIES = 2**24
_MOST_LATER = Fraction(40)
"""Beyond, a report is its permanent answer but once in 10^17."""


@dataclass(frozen=True, kw_only=True, repr=False)
class MemoizedResponse(Shown):
    r"""A channel from a history of categories to as many reports, of answers that are kept.

    For each of g cells a permanent answer is drawn once; every report is a fresh randomized
    response of the permanent answer of the true cell:

    .. math:: M_c \sim \mathrm{RR}_{\varepsilon_\infty}(c), \qquad
              Y_t \sim \mathrm{RR}_{\varepsilon'}(M_{x_t}), \qquad t = 1, …, T

    Parameters
    ----------
    categories : int
        K ≥ 2; raw values are 0, …, K − 1.
    epsilon : float
        Local privacy parameter of all reports of a person together, whatever their history.
    permanent_epsilon : float
        ε∞ of a permanent answer: what somebody whose answer never changes can lose at most,
        however many reports there are.
    reports : int
        T, the largest number of reports of a person.
    cells : int, optional
        g. If smaller than `categories`, each person hashes categories to g cells with a random
        public seed [APC23]_. By default there are as many cells as categories, and no hash.

    Notes
    -----
    ε-DP for any two histories of T categories, also if later categories depend on earlier reports.
    ε' is the largest for which the smaller of two bounds is at most ε: report by report,
    :math:`\varepsilon_1 + (T - 1)\,\varepsilon'`, and all together, about
    :math:`(1 - 1/g)\,T\,\varepsilon'`; the proofs are in `tacit.events`. Between histories that
    change at the same times and return to the same cells, the loss is at most ε∞ per distinct cell
    (`event.same_pattern`). **Changes can be seen**: between arbitrary histories the loss grows with
    T. Probabilities are multiples of 2^-64; one 64-bit word decides a draw.

    A row of released reports is T cells, after the seed if there is one. On a person's own device,
    where reports leave one by one, use `tacit.Respondent`: it keeps the permanent answers.

    Examples
    --------
    >>> monthly = MemoizedResponse(categories=2, epsilon=7.1, permanent_epsilon=1.0, reports=12)
    >>> print(monthly.guarantee)
    7.1-DP (local, any-two-inputs, unit: record)
    >>> f"{monthly.first_epsilon:.2f} in the first report, {monthly.later_epsilon:.2f} later"
    '0.51 in the first report, 1.20 later'
    """

    categories: int
    epsilon: float | Fraction
    permanent_epsilon: float | Fraction
    reports: int
    cells: int | None = None
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        categories = errors.whole(
            _WHERE, "categories", self.categories, least=2, most=_MOST_CATEGORIES
        )
        object.__setattr__(self, "categories", categories)
        most = min(categories, events.MOST_CELLS)
        cells = self.cells
        if cells is None and categories > most:
            errors.refuse(_WHERE, "cells", f"at most {most}", categories, "Hash to fewer cells.")
        if cells is not None:
            cells = errors.whole(_WHERE, "cells", cells, least=2, most=most)
        object.__setattr__(self, "cells", cells)
        reports = errors.whole(_WHERE, "reports", self.reports, least=1, most=events.MOST_REPORTS)
        object.__setattr__(self, "reports", reports)
        _ = self.event  # its checks

    @cached_property
    def event(self) -> events.MemoizedResponse:
        epsilon = errors.epsilon_in_range(_WHERE, self.epsilon)
        permanent = errors.epsilon_in_range(
            _WHERE, self.permanent_epsilon, name="permanent_epsilon"
        )
        later = _largest_later(self._cells, epsilon, permanent, self.reports)
        return events.MemoizedResponse(
            self._cells,
            self.reports,
            epsilon,
            permanent,
            _respond(self._cells, permanent).event.keep,
            later,
            _respond(self._cells, later).event.keep,
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    @property
    def hashed(self) -> bool:
        """Whether a report holds a seed that maps categories to cells."""
        return self._cells < self.categories

    @property
    def first_epsilon(self) -> float:
        """ε of one report alone."""
        keep = self.event.first_keep
        return math.log(keep * (self._cells - 1) / (1 - keep))

    @property
    def later_epsilon(self) -> float:
        """ε of a report given the permanent answers: what each further one can cost."""
        return float(self.event.later_epsilon)

    def release(self, raw: Any, rng: Randomness | None = None) -> Integers:
        """Release all reports of each history: permanent answers are drawn once per row."""
        histories, stream = self._histories(raw), source(rng)
        rows = histories.reshape(-1, self.reports)
        seeds = self.draw_seeds(len(rows), stream)
        cells = self.cells_of(rows, seeds)
        permanent = self.draw_permanent(len(rows), stream)
        released = self.draw_reports(np.take_along_axis(permanent, cells, axis=1), stream)
        if self.hashed:
            released = np.column_stack([seeds, released])
        return released.reshape(*histories.shape[:-1], -1)

    def draw_seeds(self, people: int, rng: Randomness) -> Integers:
        """Draw the public seed of each person; without a hash, 0."""
        if not self.hashed:
            return np.zeros(people, np.int64)
        return (rng.words(people) >> np.uint64(64 - _SEED_BITS)).astype(np.int64)

    def draw_permanent(self, people: int, rng: Randomness) -> Integers:
        """Draw each person's permanent answers, one row of g: once, and never again."""
        own = np.broadcast_to(np.arange(self._cells), (people, self._cells))
        return _respond(self._cells, self.event.permanent_epsilon).release(own, rng)

    def draw_reports(self, permanent: Any, rng: Randomness) -> Integers:
        """Draw a fresh report of each permanent answer."""
        return _respond(self._cells, self.event.later_epsilon).release(permanent, rng)

    def cells_of(self, categories: Any, seeds: Any) -> Integers:
        """Return the cells of rows of categories, one row and seed per person."""
        rows = self._categories(categories)
        if not self.hashed:
            return rows
        return np.stack([self.table(int(seed))[row] for seed, row in zip(seeds, rows, strict=True)])

    def table(self, seed: int) -> Integers:
        """Return the cell of every category under this seed."""
        return _table(seed, self.categories, self._cells)

    def log_prob(self, released: Any, raw: Any) -> Reals:
        histories = self._histories(raw)
        reports, seeds = self._apart(released)
        shape = np.broadcast_shapes(histories.shape[:-1], reports.shape[:-1])
        rows, seen = (
            np.broadcast_to(one, (*shape, self.reports)).reshape(-1, self.reports)
            for one in (histories, reports)
        )
        cells = self.cells_of(rows, np.broadcast_to(seeds, shape).ravel())
        total = sum((self._of_cell(c, seen, cells == c) for c in range(self._cells)), np.float64(0))
        if self.hashed:
            total = total - _SEED_BITS * math.log(2)
        return np.asarray(total).reshape(shape)

    def _of_cell(self, cell: int, seen: Integers, used: npt.NDArray[np.bool_]) -> Reals:
        """Sum over the permanent answer of one cell: the law of the reports that came from it."""
        answers = np.arange(self._cells)
        permanent = _respond(self._cells, self.event.permanent_epsilon)
        report = _respond(self._cells, self.event.later_epsilon)
        terms = [
            permanent.log_prob(answer, cell)
            + np.where(used, report.log_prob(seen, np.full(seen.shape, answer)), 0).sum(axis=1)
            for answer in answers
        ]
        return np.asarray(np.logaddexp.reduce(np.stack(terms), axis=0))

    def in_round(self, released: Any, number: int) -> Integers:
        """Return everybody's report of round 0, …, T − 1 from rows of all rounds."""
        number = errors.whole("in_round", "number", number, least=0, most=self.reports - 1)
        reports, seeds = self._apart(released)
        one = reports[..., number]
        return np.stack([seeds, one], axis=-1) if self.hashed else one

    def estimate_counts(self, reports: Any) -> CountEstimate:
        r"""Estimate how many people are in each category, from the reports of one round.

        A report supports the categories of its cell: the true one with the probability of the true
        cell, any other with the same probability as another cell, or with 1/g under random seeds.
        Estimates of several rounds are not independent: permanent answers stay, so a share that
        was estimated too high in one round tends to be so in the next. Each round's `interval` (of
        the people who reported) and `share_interval` (of the population) holds by itself; for what
        has changed, see `estimate_change`.

        Parameters
        ----------
        reports : array of int
            One per person: a cell, or a seed and a cell if categories are hashed.
        """
        rows = self._reports(reports)
        support = np.zeros(self.categories, np.int64)
        for block in self._blocks(len(rows)):
            support += self._supported(rows[block]).sum(axis=0)
        return unbiased_counts(support, len(rows), *self._chances)

    def estimate_change(self, before: Any, after: Any) -> ShareChange:
        """Estimate by how much each category's share has changed between two rounds.

        Parameters
        ----------
        before, after : array of int
            Reports of the same people in the same order, as for `estimate_counts`.
        """
        first, second = self._reports(before), self._reports(after)
        if first.shape != second.shape or (self.hashed and np.any(first[:, 0] != second[:, 0])):
            raise errors.InvalidData("estimate_change: both rounds must have the same people.")
        gained, lost = np.zeros((2, self.categories), np.int64)
        for block in self._blocks(len(first)):
            old, new = self._supported(first[block]), self._supported(second[block])
            gained += (new & ~old).sum(axis=0)
            lost += (old & ~new).sum(axis=0)
        true, other = self._chances
        return ShareChange(gained, lost, len(first), true - other)

    @property
    def _chances(self) -> tuple[float, float]:
        """Probabilities that a report supports its own category, and another one."""
        true = self.event.first_keep
        other = Fraction(1, self._cells) if self.hashed else (1 - true) / (self._cells - 1)
        return float(true), float(other)

    def _reports(self, reports: Any) -> Integers:
        """Check the reports of one round: a cell each, or a seed and a cell."""
        if not self.hashed:
            return self._whole_cells(reports).ravel()
        pairs = errors.integers("MemoizedResponse", reports, lower=0)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise errors.InvalidData("MemoizedResponse: a report must be a seed and a cell.")
        self._whole_cells(pairs[:, 1])
        return pairs

    def _blocks(self, count: int) -> Iterator[slice]:
        """Divide people so that a table of people by categories stays small."""
        step = max(_MOST_ENTRIES // self.categories, 1)
        return (slice(start, start + step) for start in range(0, count, step))

    def _supported(self, reports: Integers) -> npt.NDArray[np.bool_]:
        """Return which categories each report supports: those of its cell."""
        if not self.hashed:
            return np.asarray(reports[:, None] == np.arange(self.categories))
        return np.stack([self.table(seed) == cell for seed, cell in reports.tolist()])

    def inputs(self) -> Iterable[Any]:
        """List all histories, for audits; refuse if there are more than a million."""
        return self._all(self.categories)

    def outputs(self) -> npt.NDArray[np.int64]:
        """List all sequences of reports, for audits; refuse a hash, or more than a million."""
        if self.hashed:
            errors.refuse("MemoizedResponse.outputs", "cells", "all categories", self.cells)
        return np.array(list(self._all(self._cells)))

    def adjacent(self, first: Any, second: Any) -> bool:
        return bool(np.any(np.asarray(first) != np.asarray(second)))

    @property
    def _cells(self) -> int:
        return self.categories if self.cells is None else self.cells

    def _all(self, values: int) -> Iterable[tuple[int, ...]]:
        if values**self.reports > 10**6:
            condition = "few enough for a million sequences"
            errors.refuse("MemoizedResponse", "reports", condition, self.reports)
        return product(range(values), repeat=self.reports)

    def _categories(self, raw: Any) -> Integers:
        return errors.integers("MemoizedResponse", raw, lower=0, upper=self.categories - 1)

    def _whole_cells(self, raw: Any) -> Integers:
        return errors.integers("MemoizedResponse", raw, lower=0, upper=self._cells - 1)

    def _histories(self, raw: Any) -> Integers:
        histories = self._categories(raw)
        if histories.ndim == 0 or histories.shape[-1] != self.reports:
            raise errors.InvalidData(
                f"MemoizedResponse: a history must be {self.reports} categories."
            )
        return histories

    def _apart(self, released: Any) -> tuple[Integers, Integers]:
        """Split released rows into reports and seeds."""
        rows = errors.integers("MemoizedResponse", released, lower=0)
        if rows.ndim == 0 or rows.shape[-1] != self.reports + self.hashed:
            raise errors.InvalidData(
                f"MemoizedResponse: a released row must be {self.reports + self.hashed} integers."
            )
        return self._whole_cells(rows[..., int(self.hashed) :]), rows[..., 0]


@lru_cache(maxsize=256)
def _respond(cells: int, epsilon: Fraction) -> RandomizedResponse:
    return RandomizedResponse(categories=cells, epsilon=epsilon)


@lru_cache(maxsize=64)
def _largest_later(cells: int, epsilon: Fraction, permanent: Fraction, reports: int) -> Fraction:
    """Bisect for the largest ε of a report given the permanent answers: the loss grows with it."""

    def within(later: Fraction) -> bool:
        kept, report = (_respond(cells, one).event for one in (permanent, later))
        return bool(events.sequence_loss(kept, report, reports) <= low(epsilon))

    # One report alone costs no more than it does given the permanent answers.
    least, most = epsilon / reports, max(_MOST_LATER, epsilon / reports)
    if within(most):
        return most
    for _ in range(60):
        middle = (least + most) / 2
        least, most = (middle, most) if within(middle) else (least, middle)
    return least


@lru_cache(maxsize=2**12)
def _table(seed: int, categories: int, cells: int) -> Integers:
    stream = hashlib.shake_256(seed.to_bytes(8, "big")).digest(8 * categories)
    table = (np.frombuffer(stream, ">u8") % np.uint64(cells)).astype(np.int64)
    table.flags.writeable = False  # it is shared
    return table
