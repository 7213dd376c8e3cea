r"""Intervals from an estimate and its covariance, by inverting tests.

References
----------
.. [CP34] Clopper, Pearson. The use of confidence or fiducial limits illustrated in the case of the
   binomial. Biometrika 1934.
.. [Fie54] Fieller. Some problems in interval estimation. JRSS B 1954.
.. [ZD08] Zou, Donner. Construction of confidence limits about effect measures: a general approach.
   Statistics in Medicine 2008.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression
from scipy.stats import norm

from tacit.local.surveys.questions import Reals
from tacit.privacy.mechanisms.counts import clopper_pearson

Interval = tuple[float, float]
LINE = (-math.inf, math.inf)
_POINTS = 64
"""Points per bin at which a curve between the edges of bins is looked up."""


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error and interval."""

    label: str
    value: float
    standard_error: float
    interval: Interval


def fieller(a: float, b: float, spread: Reals, z: float) -> tuple[float, Interval]:
    r"""Return the standard error and interval of a / b, given the covariance of both [Fie54]_.

    The interval holds all θ with :math:`(a - \theta b)^2 \le z^2 \operatorname{Var}(a - \theta b)`,
    which needs no division by an uncertain number. Where that set is not bounded, it is two rays;
    one of them belongs to denominators below 0, which do not exist (see `_ray`).
    """
    (va, cab), (_, vb) = spread
    ratio = a / b
    error = math.sqrt(max(va - 2 * ratio * cab + ratio**2 * vb, 0.0)) / abs(b)
    square, linear, constant = b * b - z * z * vb, a * b - z * z * cab, a * a - z * z * va
    root = math.sqrt(max(linear**2 - square * constant, 0.0))
    determinant = va * vb - cab * cab
    if not square or not determinant > 1e-12 * va * vb:
        certain = square > 0
        return error, (((linear - root) / square, (linear + root) / square) if certain else LINE)
    ends = sorted(((linear - root) / square, (linear + root) / square))
    return error, _ray(a, b, spread, z, (ends[0], ends[1]), square > 0)


def _ray(a: float, b: float, spread: Reals, z: float, ends: Interval, inside: bool) -> Interval:
    r"""Return the interval of a ratio whose denominator is not negative.

    θ stands for the ray of all :math:`(\theta t, t)` with t ≥ 0. It is rejected if (a, b) is
    nearest to t > 0 and further than z standard errors from the line, or nearest to t = 0 and
    further from there than the quantile of that distance. Given a true t, the coordinates along and
    across the ray are independent and normal; at t = 0 the second case rejects as often as the
    first, and with a larger t less often, so the level holds for every t. `ends` are those of the
    test of the line, which does not reject between them (`inside`), or beyond them.
    """
    (va, cab), (_, vb) = spread
    determinant = va * vb - cab * cab
    toward, height = (vb * a - cab * b) / determinant, (va * b - cab * a) / determinant
    length = a * toward + b * height  # squared, in standard errors
    if length <= z * z or not toward:
        return LINE
    low, high = ends
    kept = length <= -2 * math.log(2 * float(norm.sf(z)))  # rays at more than a right angle
    if inside:
        ahead = toward * low + height > 0
        if not ahead or kept:
            return LINE if not ahead else (-math.inf, high) if toward > 0 else (low, math.inf)
        return ends
    if kept:
        return LINE
    return (high, math.inf) if toward > 0 else (-math.inf, low)


def exact(value: float, ends: Interval, people: int, z: float) -> tuple[float, Interval]:
    """Return the standard error and interval of a mean of scores with two values [CP34]_.

    How many scores have the larger one is binomial: the interval misses with at most the risk of z,
    for every number of people, share and risk.
    """
    low, high = ends
    share = (value - low) / (high - low)
    larger = np.array(round(share * people))
    bottom, top = clopper_pearson(larger, people, float(norm.sf(z)))
    error = math.sqrt(max(share * (1 - share), 0.0) / max(people - 1, 1)) * (high - low)
    return error, (low + float(bottom) * (high - low), low + float(top) * (high - low))


def difference(first: Estimate, second: Estimate, label: str) -> Estimate:
    """Return second − first of two samples, from the interval of each [ZD08]_."""
    value = second.value - first.value
    (a, b), (c, d) = first.interval, second.interval
    below = math.hypot(second.value - c, b - first.value)
    above = math.hypot(d - second.value, first.value - a)
    error = math.hypot(first.standard_error, second.standard_error)
    return Estimate(label, value, error, (value - below, value + above))


def crossing(edges: Reals, gaps: Reals, errors: Reals, z: float) -> tuple[float, float, Interval]:
    """Return where a rising curve crosses zero, with standard error and interval.

    The curve is known at the edges of bins, with these standard errors, and smooth in between. The
    interval holds all places at which a test does not find it different from zero.
    """
    places = np.linspace(edges[0], edges[-1], _POINTS * (len(edges) - 1) + 1)

    def curve(at_edges: Reals) -> Reals:
        return np.asarray(PchipInterpolator(edges, at_edges)(places))

    rising = isotonic_regression(gaps).x
    value = _root(places, curve(rising))
    low = _root(places, np.maximum.accumulate(curve(gaps + z * errors)))
    falling = np.maximum.accumulate(-curve(gaps - z * errors)[::-1])
    high = -_root(-places[::-1], falling)
    low, high = min(low, value), max(high, value)
    return value, (high - low) / (2 * z), (low, high)


def within(interval: Interval, limits: Interval, least: float) -> Interval:
    """Return the part within the limits; where there is none, `least` at the nearer limit."""
    (low, high), (bottom, top) = interval, limits
    inner = (max(low, bottom), min(high, top))
    if inner[0] <= inner[1]:
        return inner
    return (bottom, min(bottom + least, top)) if high < bottom else (max(top - least, bottom), top)


def _root(places: Reals, rising: Reals) -> float:
    """Return the first place at which a rising curve reaches zero."""
    after = int(np.searchsorted(rising, 0.0))
    if after in (0, len(places)):
        return float(places[min(after, len(places) - 1)])
    part = -rising[after - 1] / (rising[after] - rising[after - 1])
    return float(places[after - 1] + part * (places[after] - places[after - 1]))
