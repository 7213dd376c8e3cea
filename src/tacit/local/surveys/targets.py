"""The numbers that answer questions: functions of moments, each with its interval."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.local.surveys import intervals
from tacit.local.surveys.intervals import LINE, Estimate, Interval
from tacit.local.surveys.logistic import Fit
from tacit.local.surveys.moments import Found, Moment
from tacit.local.surveys.questions import Reals

Function = Callable[[Reals, Reals], tuple[float, float]]


@dataclass(frozen=True)
class Target:
    """A number to estimate from moments."""

    label: str
    moments: tuple[Moment, ...]


@dataclass(frozen=True)
class Expectation(Target):
    """The expectation of one function of an answer: a share or a mean."""

    limits: Interval = LINE

    def estimate(self, found: Found, z: float) -> Estimate:
        """Invert the test of a share where scores have two values, else of a normal mean."""
        value = float(found.value[0])
        if found.ends is not None:
            error, ends = intervals.exact(value, found.ends, found.people, z)
        else:
            error, z = math.sqrt(found.covariance[0, 0]), found.quantile(z)
            ends = (value - z * error, value + z * error)
        return _limited(self.label, value, error, ends, self.limits, z)


@dataclass(frozen=True)
class Ratio(Target):
    """A ratio of two functions of moments and their covariance."""

    parts: Function
    limits: Interval = LINE

    def estimate(self, found: Found, z: float) -> Estimate:
        """Invert the test of the ratio."""
        a, b = self.parts(found.value, found.covariance)
        if not b or not math.isfinite(a / b):
            return Estimate(self.label, math.nan, math.inf, self.limits)
        z = found.quantile(z)
        error, ends = intervals.fieller(a, b, self._spread(found), z)
        return _limited(self.label, a / b, error, ends, self.limits, z)

    def _spread(self, found: Found) -> Reals:
        r"""Return the covariance of numerator and denominator, by the delta method.

        Functions with slopes g and curvatures H have :math:`g_i^T C g_j + t_{ij} / 2`, where
        :math:`t_{ij} = \operatorname{tr}(H_i C H_j C)`. With slopes at estimates instead of true
        moments the first term is too large by :math:`t_{ij}`, so half of it is taken off; never
        more than half of what was there.
        """
        slopes, covariance = self._slopes(found), found.covariance
        first = slopes @ covariance @ slopes.T
        if found.degrees is None:  # the moments are not estimates
            return np.asarray(first)
        curved = self._curvatures(found) @ covariance
        second = np.einsum("aij,bji->ab", curved, curved) / 2
        return np.asarray(first - second * min(1.0, 0.5 / max(_share(second, first), 1e-12)))

    def _slopes(self, found: Found) -> Reals:
        """Return the derivatives of numerator and denominator, by central differences."""
        step = np.diag(_steps(found, 1e-4))
        ups, downs = (np.array([self._parts(found, sign * d) for d in step]) for sign in (1, -1))
        return np.asarray((ups - downs).T / (2 * np.diag(step)))

    def _curvatures(self, found: Found) -> Reals:
        """Return the second derivatives of both, by central differences."""
        size, steps = len(found.value), _steps(found, 1e-2)
        curved = np.zeros((2, size, size))
        for i, j in itertools.combinations_with_replacement(range(size), 2):
            one, other = steps * (np.arange(size) == i), steps * (np.arange(size) == j)
            like = self._parts(found, one + other) + self._parts(found, -one - other)
            unlike = self._parts(found, one - other) + self._parts(found, other - one)
            curved[:, i, j] = curved[:, j, i] = (like - unlike) / (4 * steps[i] * steps[j])
        return curved

    def _parts(self, found: Found, shift: Reals) -> Reals:
        return np.array(self.parts(found.value + shift, found.covariance))


def _share(part: Reals, whole: Reals) -> float:
    """Return the largest share of a covariance matrix that another one has in any direction."""
    used = np.flatnonzero(np.diag(whole))  # a denominator may be certain
    scale = np.sqrt(np.diag(whole)[used])
    part, whole = (one[np.ix_(used, used)] / np.outer(scale, scale) for one in (part, whole))
    sizes, axes = np.linalg.eigh(whole)
    axes = axes[:, sizes > 1e-9] / np.sqrt(sizes[sizes > 1e-9])
    return float(np.linalg.eigvalsh(axes.T @ part @ axes).max(initial=0.0))


def _steps(found: Found, share: float) -> Reals:
    """Return steps of this share of the moments' standard errors."""
    spread = np.sqrt(np.diag(found.covariance))
    return np.asarray(share * np.maximum(spread, 1e-9 * np.abs(found.value) + 1e-12))


@dataclass(frozen=True)
class Quantile(Target):
    """Where the distribution function reaches a level, in all people or in a group.

    Moments are the shares of the bins (within the group), and then that of the group.
    """

    variable: str
    level: float
    edges: tuple[float, ...]
    group: tuple[str, int] | None = None

    def estimate(self, found: Found, z: float) -> Estimate:
        """Invert the test that the distribution function is the level here."""
        bins, z = len(self.edges) - 1, found.quantile(z)
        sums = np.tri(bins + 1, bins, -1)  # shares below each edge
        if self.group is None:
            gaps, spread = sums @ found.value[:bins] - self.level, sums
        else:
            spread = np.hstack([sums, np.full((bins + 1, 1), -self.level)])
            gaps = spread @ found.value
        covariance = found.covariance[: spread.shape[1], : spread.shape[1]]
        errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", spread, covariance, spread), 0.0))
        if self.group is None:  # the shares of all bins sum to one, and their noise must not tell
            gaps[-1], errors[-1] = 1 - self.level, 0.0
        value, error, ends = intervals.crossing(np.array(self.edges), gaps, errors, z)
        return Estimate(self.label, value, error, ends)

    def exact(self, values: Reals, z: float) -> Estimate:
        """Return the quantile of values without noise; the interval is of order statistics."""
        people = len(values)
        if not people:
            return Estimate(self.label, math.nan, math.inf, (self.edges[0], self.edges[-1]))
        half = z * math.sqrt(self.level * (1 - self.level) / people)
        levels = np.clip([self.level, self.level - half, self.level + half], 0, 1)
        value, low, high = np.quantile(values, levels).tolist()
        return Estimate(self.label, value, (high - low) / (2 * z), (low, high))


@dataclass(frozen=True)
class Logistic(Target):
    r"""One coefficient of a logistic regression on cells.

    Moments are the shares of the cells without, then with the outcome. The coefficients solve
    :math:`\sum_c x_c (m_{c1} - (m_{c0} + m_{c1})\,\sigma(x_c \cdot \beta)) = 0`.
    """

    design: tuple[tuple[float, ...], ...]
    place: int

    def estimate(self, found: Found, z: float) -> Estimate:
        """Solve the equation; the interval inverts the score test of each coefficient."""
        fit = Fit(np.array(self.design), found)
        solved = fit.solve(np.zeros(len(self.design[0])), range(len(self.design[0])))
        if solved is None:
            return Estimate(self.label, math.nan, math.inf, LINE)
        value, error = float(solved[self.place]), fit.error(solved, self.place)
        z = found.quantile(z)
        ends = (
            fit.end(solved, self.place, -error, z),
            fit.end(solved, self.place, error, z),
        )
        return Estimate(self.label, value, error, ends)


def _limited(
    label: str, value: float, error: float, ends: Interval, limits: Interval, z: float
) -> Estimate:
    low, high = intervals.within(ends, limits, z * error)
    # With a denominator below 0, the ratio lies on the ray that the interval leaves out.
    return Estimate(label, min(max(value, low), high), error, (low, high))
