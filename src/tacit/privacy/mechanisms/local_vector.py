r"""The means of several bounded numbers a person under local privacy, by one report.

References
----------
.. [DJW18] Duchi, Jordan, Wainwright. Minimax optimal procedures for locally private estimation.
   JASA 2018.
.. [BDFKR18] Bhowmick, Duchi, Freudiger, Kapoor, Rogers. Protection against reconstruction and its
   applications in private federated learning. 2018 (PrivUnit).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events
from tacit.privacy.events import MOST_ENTRIES, MOST_SIGNS, agreeing_signs
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms.sign_caps import best_cap, count_law, sign_reports, surplus
from tacit.privacy.randomness import Randomness, bernoulli, source, subsets, uniform_below
from tacit.privacy.rounding import exp_floor
from tacit.privacy.shown import Shown

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_NAME = "LocalVector"
_TOTAL = 2**events.WEIGHT_BITS
_PARTS = 2**40
"""Parts of a range that a number is read to."""
_BLOCK_CELLS = 1 << 20
_MOST_OUTPUTS = 10**6


@dataclass(frozen=True, kw_only=True, repr=False)
class LocalVector(Shown):
    r"""A channel from several bounded numbers to signs of some of them, for all of their means.

    .. math:: P(v \mid s) = \binom{d}{k}^{-1} \begin{cases}
              p / C & v \text{ agrees with } s \text{ in } a \text{ places or more} \\
              (1 - p) / (2^k - C) & \text{otherwise} \end{cases}

    Parameters
    ----------
    dimension : int
        d, how many numbers each person has: 1,024 at most.
    lower, upper : float or sequence of float
        Public bounds: the same for all numbers, or one for each. Numbers beyond are clipped.
    epsilon : float
        Local privacy parameter of one report, which covers all numbers together.
    told : int, optional
        k, how many numbers a report tells about: 32 at most. By default k and a are those with the
        smallest worst-case variance.
    agreeing : int, optional
        a, by default the best for k.

    Notes
    -----
    ε-DP for any two vectors. Each number is rounded at random to an end of its range without bias,
    which gives signs s. A report v is −1, 0 or 1 for each number: k places drawn uniformly are not
    0. C of the :math:`2^k` choices of their signs agree with s in a places or more. p is a multiple
    of 2^-64, rounded down: the odds of a report are compared with e^ε in integers. The law of a
    vector is a mixture over its roundings, and stays within e^ε of any other mixture.

    Numbers are read to 2^-40 of their range. In units of half the range, the score of a report has
    the same second moment M for every vector, so that its variance is :math:`M - x^2`.

    One report about d numbers has a smaller largest mean squared error than one number drawn at
    random and reported by `LocalMean`, except for d = 2 or 3 between ε = 0.25 and 2, where it is up
    to 10 % larger. `LocalMean` for each number at ε/d is better where ε/d is 2 or more, and one
    number at random where people hardly differ (`benchmarks/local_vectors.py`, up to d = 32 and
    ε = 8).

    Examples
    --------
    >>> week = LocalVector(dimension=7, lower=0, upper=24, epsilon=4.0)
    >>> print(week.guarantee)
    4-DP (local, any-two-inputs, unit: record)
    >>> week.event.told, week.event.agreeing
    (4, 4)
    """

    dimension: int
    lower: Any
    upper: Any
    epsilon: float | Fraction
    told: int | None = None
    agreeing: int | None = None
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimension", self.event.dimension)
        for name in ("lower", "upper"):
            object.__setattr__(self, name, _bounds(name, getattr(self, name), self.dimension))
        for low, high in zip(self.lower, self.upper, strict=True):
            if not high - low >= 2.0**-40 * max(abs(low), abs(high), 2.0**-40):
                errors.refuse(_NAME, "upper", "clearly above lower", [low, high])
        if not self._advantage > 0:
            errors.refuse(_NAME, "epsilon", "large enough for weights of 64 bits", self.epsilon)

    @cached_property
    def event(self) -> events.SignVector:
        dimension = errors.whole(_NAME, "dimension", self.dimension, least=1, most=MOST_ENTRIES)
        epsilon = errors.epsilon_in_range(_NAME, self.epsilon)
        told, agreeing = self._cap(min(dimension, MOST_SIGNS), epsilon)
        held = agreeing_signs(told, agreeing)
        odds = held * Fraction(exp_floor(epsilon, 128), 2**128)
        inclusion = math.floor(_TOTAL * odds / (odds + 2**told - held))
        return events.SignVector(
            dimension,
            told,
            agreeing,
            epsilon,
            min(inclusion, _TOTAL - 1),
            adjacency=Adjacency.ANY_TWO_INPUTS,
            unit=self.unit,
        )

    def _cap(self, most: int, epsilon: Fraction) -> tuple[int, int]:
        told = self.told
        if told is not None:
            told = errors.whole(_NAME, "told", told, least=1, most=most)
        if self.agreeing is None:
            return best_cap(most, epsilon, told)
        if told is None:
            remedy = "Leave both to their defaults, or give both."
            errors.refuse(_NAME, "told", "given where agreeing is", told, remedy)
        return told, errors.whole(_NAME, "agreeing", self.agreeing, least=1, most=told)

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    @cached_property
    def _advantage(self) -> Fraction:
        """The mean number of signs that agree with the rounded ones, less that of the others."""
        event = self.event
        share = Fraction(event.inclusion, _TOTAL)
        held, rest = event.held, 2**event.told - event.held
        apart: Fraction = share / held - (1 - share) / rest
        return surplus(event.told, event.agreeing) * apart

    @cached_property
    def scale(self) -> float:
        """The score of a sign, in units of half the range: it makes scores unbiased."""
        return float(self.dimension / self._advantage)

    @cached_property
    def worst_variances(self) -> Reals:
        """The largest variance of the score of each number: that of its middle."""
        moment = self.scale**2 * self.event.told / self.dimension
        return np.asarray(self._half**2 * moment)

    @property
    def _half(self) -> Reals:
        return np.asarray((np.array(self.upper) - np.array(self.lower)) / 2)

    @property
    def _middle(self) -> Reals:
        return np.asarray((np.array(self.upper) + np.array(self.lower)) / 2)

    def release(self, raw: Any, rng: Randomness | None = None) -> Integers:
        """Release −1, 0 or 1 for each number of each vector."""
        parts, stream = self._read(raw), source(rng)
        flat = parts.reshape(-1, self.dimension)
        rows = max(_BLOCK_CELLS // self.dimension, 1)
        blocks = [
            self._release_block(flat[start : start + rows], stream)
            for start in range(0, len(flat), rows)
        ]
        return np.concatenate(blocks).reshape(parts.shape)

    def _release_block(self, parts: Integers, rng: Randomness) -> Integers:
        shape = len(parts), self.event.told
        told = subsets(self.dimension, self.event.told, len(parts), rng)
        words = rng.words(shape[0] * shape[1]) >> np.uint64(24)
        up = words.astype(np.int64) < parts[told]
        agrees = self._agreement(len(parts), rng)
        released = np.zeros(parts.shape, np.int64)
        released[told] = np.where(up == agrees.ravel(), 1, -1)
        return released

    def _agreement(self, rows: int, rng: Randomness) -> npt.NDArray[np.bool_]:
        """Draw which signs of each report agree with the rounded ones."""
        told, least = self.event.told, self.event.agreeing
        inside = bernoulli(Fraction(self.event.inclusion, _TOTAL), rows, rng)
        agrees = np.zeros((rows, told), np.bool_)
        for held, counts in ((True, range(least, told + 1)), (False, range(least))):
            places = np.flatnonzero(inside == held)
            ends = list(accumulate(math.comb(told, count) for count in counts))
            drawn = uniform_below(ends[-1], places.size, rng)
            number = counts[0] + np.searchsorted(ends, drawn, side="right")
            for count in counts:
                chosen = places[number == count]
                agrees[chosen] = subsets(told, count, chosen.size, rng)
        return agrees

    def log_prob(self, released: Any, raw: Any) -> Reals:
        signs, parts = np.broadcast_arrays(self.must_be_signs(released), self._read(raw))
        at = signs != 0
        shape = (*signs.shape[:-1], self.event.told)
        up = parts[at].reshape(shape) / _PARTS
        agrees = np.where(signs[at].reshape(shape) > 0, up, 1 - up)
        counts = count_law(agrees)
        event, least = self.event, self.event.agreeing
        held = event.inclusion / _TOTAL / event.held
        rest = (_TOTAL - event.inclusion) / _TOTAL / (2**event.told - event.held)
        law = counts[..., least:].sum(axis=-1) * held + counts[..., :least].sum(axis=-1) * rest
        return np.asarray(np.log(law) - math.log(math.comb(self.dimension, event.told)))

    def scores(self, released: Any) -> Reals:
        """Return unbiased scores: their mean given a vector is that vector."""
        return self._middle + self._half * self.scale * self.must_be_signs(released)

    def variance(self, raw: Any) -> Reals:
        """Compute the variance of each score of one report of a vector, rounding included."""
        number = self._half * (2 * self._read(raw) / _PARTS - 1)
        return np.asarray(self.worst_variances - number**2)

    def estimate(self, released: Any) -> VectorEstimate:
        """Estimate the means of numbers, clipped to the bounds, without bias."""
        signs = self.must_be_signs(released).reshape(-1, self.dimension)
        reports, half = len(signs), self._half
        means = half * self.scale * signs.mean(axis=0)
        # Given its mean, the variance of a score is known: only the mean is estimated.
        spread = self.worst_variances - np.minimum(means**2, half**2)
        return VectorEstimate(
            self._middle + means,
            spread / max(reports - 1, 1),
            self.worst_variances / reports,
            reports,
        )

    def outputs(self) -> Integers:
        """List all reports, for audits; refuse if there are more than a million."""
        told, dimension = self.event.told, self.dimension
        count = math.comb(dimension, told) * 2**told
        if count > _MOST_OUTPUTS:
            errors.refuse(f"{_NAME}.outputs", "reports", "at most a million", count)
        return np.array(list(sign_reports(dimension, told)))

    def must_be_signs(self, released: Any) -> Integers:
        """Return reports as integers; refuse what is not −1, 0 or 1 with `told` signs."""
        signs = errors.integers(_NAME, released, lower=-1, upper=1)
        wrong = signs.ndim == 0 or signs.shape[-1] != self.dimension
        if wrong or bool(np.any(np.count_nonzero(signs, axis=-1) != self.event.told)):
            wanted = f"{self.dimension} entries, {self.event.told} of them not 0"
            raise errors.InvalidData(f"{_NAME}: a report must have {wanted}.")
        return signs

    def _read(self, raw: Any) -> Integers:
        """Clip; return how many parts of 2^40 of its range each number is above its bound."""
        held = errors.held_reals(_NAME, raw)
        if held.ndim == 0 or held.shape[-1] != self.dimension:
            wanted = f"{self.dimension} numbers in each row"
            raise errors.InvalidData(f"{_NAME}: data must have {wanted}.")
        low, high = np.array(self.lower), np.array(self.upper)
        share = (np.clip(held, low, high) - low) / (high - low)
        return np.asarray(np.rint(np.clip(share, 0, 1) * float(_PARTS)).astype(np.int64))


@dataclass(frozen=True, eq=False)
class VectorEstimate:
    """Unbiased means with their variances: those of noise and those of who was asked.

    Parameters
    ----------
    means : array
        The mean of the scores of each number.
    variances : array
        Of `means` as estimates for the population that people were sampled from: noise and sampling
        together. Estimates of different numbers are not independent.
    noise_variances : array
        The most that noise and rounding contribute to them, whatever the numbers are.
    reports : int
        Number of reports.
    """

    means: Reals
    variances: Reals
    noise_variances: Reals
    reports: int

    @property
    def standard_errors(self) -> Reals:
        """The square roots of `variances`."""
        return np.sqrt(self.variances)

    def interval(self, confidence: float = 0.95) -> tuple[Reals, Reals]:
        """Compute normal intervals for the means of the population: noise and sampling.

        They are approximations that need some dozens of reports, each for one mean.
        """
        confidence = errors.probability("interval", "confidence", confidence, zero=False)
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * self.standard_errors
        return self.means - reach, self.means + reach


def _bounds(name: str, given: Any, dimension: int) -> tuple[float, ...]:
    """Return one bound for each number."""
    listed = list(given) if isinstance(given, list | tuple | np.ndarray) else [given] * dimension
    if len(listed) != dimension:
        errors.refuse(_NAME, name, f"one number, or {dimension}", given)
    bounds = tuple(float(errors.rational(_NAME, name, bound)) for bound in listed)
    if max(map(abs, bounds)) > 2.0**53:
        errors.refuse(_NAME, name, "within 2^53", given, "Scale it.")
    return bounds
