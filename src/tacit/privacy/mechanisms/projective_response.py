r"""Projective geometry response: the error of subset selection in a report of a few bytes.

References
----------
.. [FNNT22] Feldman, Nelson, Nguyen, Talwar. Private frequency estimation via projective geometry.
   ICML 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events
from tacit.privacy.events import MOST_ORDER, MOST_POINTS, is_prime, points_of
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms import projective_geometry as geometry
from tacit.privacy.mechanisms.counts import CountEstimate, unbiased_counts
from tacit.privacy.randomness import Randomness, bernoulli, source, uniform_below
from tacit.privacy.rounding import exp_floor
from tacit.privacy.shown import Shown

Integers = npt.NDArray[np.int64]

_NAME = "ProjectiveGeometryResponse"
_TOTAL = 2**events.WEIGHT_BITS
_MOST = 2**24
_CLOSE = 1.01
"""Among spaces within 1 % of the smallest variance, the one with the fewest points is taken."""
_BLOCK = 1 << 18


@dataclass(frozen=True, kw_only=True, repr=False)
class ProjectiveGeometryResponse(Shown):
    r"""A channel from one of very many categories to a point of a finite projective space.

    .. math:: P(s \mid x) = \frac{p}{h}\;(s \in H_x), \qquad \frac{1-p}{n-h}\;(s \notin H_x),
              \qquad p = \frac{h\,e^\varepsilon}{h\,e^\varepsilon + n - h}

    Parameters
    ----------
    categories : int
        K ≥ 2; raw values are 0, …, K − 1.
    epsilon : float
        Local privacy parameter of one report.
    order : int, optional
        q, a prime. By default the one near e^ε + 1 with a small variance of estimated counts.

    Notes
    -----
    ε-DP for any two inputs. The n points are those of the projective space over :math:`F_q^t` for
    the smallest t with n ≥ K; category x has the hyperplane :math:`H_x` of h points, and two
    hyperplanes share the same number of points, whichever they are [FNNT22]_. p is a multiple of
    2^-64, rounded down: the odds of a point are compared with e^ε in integers.

    From 1,000 categories on and up to ε = 4, the variance of a rare category's count is that of
    subset selection or up to 3.5 % more, because q is a prime; elsewhere fewer spaces fit. A report
    is one point: two or three bytes, where a set takes hundreds.

    References
    ----------
    .. [FNNT22] Feldman, Nelson, Nguyen, Talwar. Private frequency estimation via projective
       geometry. ICML 2022.

    Examples
    --------
    >>> words = ProjectiveGeometryResponse(categories=10_000, epsilon=4.0)
    >>> print(words.guarantee)
    4-DP (local, any-two-inputs, unit: record)
    >>> words.report_bytes
    3
    """

    categories: int
    epsilon: float | Fraction
    order: int | None = None
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", self.event.categories)

    @cached_property
    def event(self) -> events.ProjectiveGeometryResponse:
        categories = errors.whole(_NAME, "categories", self.categories, least=2, most=_MOST)
        epsilon = errors.epsilon_in_range(_NAME, self.epsilon)
        order, dimension = self._space(categories, float(epsilon))
        points, held = (points_of(order, size) for size in (dimension, dimension - 1))
        odds = held * Fraction(exp_floor(epsilon, 128), 2**128)
        inclusion = math.floor(_TOTAL * odds / (odds + points - held))
        return events.ProjectiveGeometryResponse(
            categories,
            order,
            dimension,
            epsilon,
            min(inclusion, _TOTAL - 1),
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    def _space(self, categories: int, epsilon: float) -> tuple[int, int]:
        if self.order is None:
            return best_space(categories, epsilon)
        order = errors.whole(_NAME, "order", self.order, least=2, most=MOST_ORDER)
        dimension = 2
        while points_of(order, dimension) < categories:
            dimension += 1
        if not is_prime(order) or points_of(order, dimension) > MOST_POINTS:
            errors.refuse(_NAME, "order", f"a prime with {MOST_POINTS} points at most", order)
        return order, dimension

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    @property
    def inclusion(self) -> tuple[float, float]:
        """The probability that a report is on its own hyperplane, and on that of another one."""
        p = self.event.inclusion / _TOTAL
        return p, _other(self.event.order, self.event.dimension, p)

    def release(self, raw: Any, rng: Randomness | None = None) -> Integers:
        """Release one point for each raw category."""
        values, stream = self._categories(raw), source(rng)
        flat = values.ravel()
        blocks = [
            self._release_block(flat[start : start + _BLOCK], stream)
            for start in range(0, flat.size, _BLOCK)
        ]
        return np.concatenate(blocks).reshape(values.shape)

    def _release_block(self, raw: Integers, rng: Randomness) -> Integers:
        event, (order, size) = self.event, self._field
        inside = bernoulli(Fraction(event.inclusion, _TOTAL), raw.size, rng)
        free = np.empty((raw.size, size - 1), np.int64)
        on, off = (int(np.count_nonzero(one)) for one in (inside, ~inside))
        held = uniform_below(event.held, on, rng)
        free[inside] = geometry.coordinates(held, order, size - 1)
        rest = uniform_below(event.points - event.held, off, rng)
        free[~inside] = geometry.entries(rest, order, size - 1)
        of = geometry.coordinates(raw, order, size)
        return geometry.with_product(of, free, (~inside).astype(np.int64), order)

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        points, categories = np.broadcast_arrays(self._points(released), self._categories(raw))
        order, size = self._field
        report = geometry.coordinates(points.ravel(), order, size)
        facing = geometry.coordinates(categories.ravel(), order, size)[:, ::-1]
        held = ((report * facing).sum(axis=1) % order == 0).reshape(points.shape)
        event = self.event
        log_held = math.log(event.inclusion / _TOTAL) - math.log(event.held)
        log_missed = math.log((_TOTAL - event.inclusion) / _TOTAL)
        return np.where(held, log_held, log_missed - math.log(event.points - event.held))

    def estimate_counts(self, released: Any, categories: Any = None) -> CountEstimate:
        """Estimate how many people are in each category, or in some of them, without bias."""
        reports, (order, size) = self._points(released).ravel(), self._field
        if categories is None:
            histogram = np.bincount(reports, minlength=self.event.points)
            support = geometry.on_hyperplanes(histogram, order, size)[: self.categories]
        else:
            support = geometry.held_counts(reports, self._categories(categories), order, size)
        return unbiased_counts(support, reports.size, *self.inclusion)

    @property
    def report_bytes(self) -> int:
        """Bytes of one report in compact form."""
        return -(-(self.event.points - 1).bit_length() // 8)

    def to_bytes(self, released: Any) -> npt.NDArray[np.uint8]:
        """Encode each point in `report_bytes` bytes, the highest first."""
        points = self._points(released).ravel().astype(">i8")
        return points[:, None].view(np.uint8)[:, -self.report_bytes :]

    def from_bytes(self, wire: Any) -> Integers:
        """Decode the compact form; refuse bytes that are not a report."""
        packed = np.asarray(wire)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != self.report_bytes:
            raise errors.InvalidData(f"{_NAME}: a report must be {self.report_bytes} bytes.")
        powers = 256 ** np.arange(self.report_bytes)[::-1]
        return self._points(packed.astype(np.int64) @ powers)

    def inputs(self) -> range:
        return range(self.categories)

    def outputs(self) -> range:
        return range(self.event.points)

    def adjacent(self, first: int, second: int) -> bool:
        return first != second

    @property
    def _field(self) -> tuple[int, int]:
        return self.event.order, self.event.dimension

    def _categories(self, raw: Any) -> Integers:
        return errors.integers(_NAME, raw, lower=0, upper=self.categories - 1)

    def _points(self, released: Any) -> Integers:
        return errors.integers(_NAME, released, lower=0, upper=self.event.points - 1)


def best_space(categories: int, epsilon: float) -> tuple[int, int]:
    """Return q and t of a space with a small variance of a rare category's count."""
    variances = {space: _variance(*space, epsilon) for space in _spaces(categories, epsilon)}
    least = min(variances.values())
    close = [space for space, variance in variances.items() if variance <= _CLOSE * least]
    return min(close, key=lambda space: (points_of(*space), space))


def _spaces(categories: int, epsilon: float) -> Iterator[tuple[int, int]]:
    """List spaces of each dimension: the smallest that fits, and those with q near e^ε + 1."""
    wanted = round(min(math.exp(min(epsilon, 50)), categories)) + 1
    for dimension in range(2, categories.bit_length() + 2):
        smallest = 2
        while points_of(smallest, dimension) < categories:
            # From below: q^{t−1} + 2 q^{t−2} + … is more than the points of the space.
            root = math.floor(categories ** (1 / (dimension - 1))) - dimension
            smallest = max(smallest + 1, root)
        near = {_next_prime(max(start, smallest)) for start in (smallest, wanted)}
        below = (one for one in range(wanted, smallest - 1, -1) if is_prime(one))
        for order in sorted(near.union(islice(below, 1))):
            if order <= MOST_ORDER and points_of(order, dimension) <= MOST_POINTS:
                yield order, dimension


def _next_prime(least: int) -> int:
    while not is_prime(least):
        least += 1
    return least


def _variance(order: int, dimension: int, epsilon: float) -> float:
    """Compute the variance of one report's estimate of a category that nobody is in."""
    points, held = points_of(order, dimension), points_of(order, dimension - 1)
    p = 1 / (1 + (points - held) / held * math.exp(-epsilon))
    q = _other(order, dimension, p)
    return q * (1 - q) / (p - q) ** 2


def _other(order: int, dimension: int, inclusion: float) -> float:
    """Return the probability that a report is on another category's hyperplane."""
    points, held, shared = (points_of(order, dimension - less) for less in range(3))
    return inclusion * shared / held + (1 - inclusion) * (held - shared) / (points - held)
