r"""Upper bounds on the Rényi curve of Gaussian noise on a Poisson sample.

A record is sampled with probability q, and then shifts a normal variable of standard deviation σ by
1. For x standard normal, let :math:`b(x) = 1 - q + q\,e^{x/\sigma - 1/2\sigma^2}` be the ratio of
the densities with and without the record. Then

.. math:: (\alpha - 1) D_\alpha = \ln E[b(x)^\alpha]

is the larger of the two divergences between them, for every α > 1 [MTZ19]_.

Notes
-----
For integer α the moment is a binomial sum. Since the exponentials of k = 0 and 1 are 1,

.. math:: E[b^\alpha] - 1 = \sum_{k=2}^\alpha \binom\alpha k (1-q)^{\alpha-k} q^k
          \bigl(e^{k(k-1)/2\sigma^2} - 1\bigr),

where all terms are positive, so there is no cancellation, however small q is.

For other α, :math:`E[b^\alpha] - 1 = E[g]` with :math:`g = b^\alpha - 1 - \alpha(b - 1) \ge 0`,
since E[b] = 1. The expectation is computed by the trapezoidal rule with step h. For
:math:`|\operatorname{Im} x| < \pi\sigma` the ratio b is not a negative number, so that
:math:`g\varphi` is analytic there, and :math:`|b(x + iy)| \le b(x)`,
:math:`|\varphi(x + iy)| = e^{y^2/2}\varphi(x)`. So :math:`\int|g\varphi|` along the line at height
y is at most :math:`M = e^{y^2/2}(E[b^\alpha] + 1 + 2\alpha)`, and the error of the rule is at most
:math:`2M/(e^{2\pi y/h} - 1)` [TW14]_, Theorem 5.1. Outside [−r, c + r], with c = α/σ, the sum
is bounded by geometric series: g ≤ α − 1 on the left, where b < 1, and
:math:`g \le b^\alpha \le 2^\alpha(1 + q^\alpha e^{\alpha x/\sigma - \alpha/2\sigma^2})` on the
right.

Where that needs too many points (σ far below 1), the bound is interpolated linearly between integer
orders, which is valid because :math:`(\alpha - 1)D_\alpha` is convex in α, and 0 at α = 1.

References
----------
.. [MTZ19] Mironov, Talwar, Zhang. Rényi differential privacy of the sampled Gaussian. 2019.
.. [TW14] Trefethen, Weideman. The exponentially convergent trapezoidal rule. SIAM Review 2014.
"""

from __future__ import annotations

import math
from functools import lru_cache

import flint
from flint import arb

from tacit.privacy import rounding
from tacit.privacy.rounding import Real, above, high, low

_ENOUGH = 1e-11
_MOST_POINTS = 1_500
_MOST_TERMS = 2**20


@lru_cache(maxsize=64)
def renyi(
    probability: float, noise_multiplier: Real, orders: tuple[float, ...]
) -> tuple[float, ...]:
    """Return the Rényi divergences at these orders, rounded up, for a probability below 1."""
    curve = []
    points = _Points(probability, noise_multiplier)
    for order in orders:
        log_moment = _log_moment(points, order)
        with rounding.precision():
            curve.append(max(above(log_moment / (low(order) - 1)), 0.0))
    return tuple(curve)


def _log_moment(points: _Points, order: float) -> arb:
    """Bound (α − 1) D_α from above."""
    if order == int(order):
        return _whole(points, int(order))
    lower = math.floor(order)
    if points.wanted(order) <= _MOST_POINTS * (4 if order < 2 else 1):
        return points.log_moment(order)
    with rounding.precision():
        left = _whole(points, lower) if lower > 1 else arb(0)
        weight = high(order) - lower
        return left + weight * (_whole(points, lower + 1) - left)


def _whole(points: _Points, order: int) -> arb:
    """Compute the log-moment at an integer order by the binomial sum."""
    if order > _MOST_TERMS:
        return arb("inf")
    with rounding.precision(192):
        q, rate = points.q, points.rate
        term, odds, excess = order * q * (1 - q) ** (order - 1), q / (1 - q), arb(0)
        for k in range(2, order + 1):
            term *= odds * (order - k + 1) / k
            excess += term * (rate * (k * (k - 1)) / 2).expm1()
        return excess.log1p().upper()


class _Points:
    """Points of the trapezoidal rule for one q and σ, shared by all orders."""

    def __init__(self, probability: float, noise_multiplier: Real) -> None:
        self.chance, self.sigma = float(probability), float(noise_multiplier)
        with rounding.precision(512):
            # The divergence grows with q and falls with σ.
            self.q = high(probability)
            self.shift = 1 / low(noise_multiplier)
            self.rate = self.shift**2
        # The rule's error is kept near e^−nats: the moment exceeds 1 by about q²/σ².
        spread = min(self.sigma, 1e6)
        self.nats = 40 + 2 * math.log(max(spread, 1) / self.chance)
        self.known: dict[tuple[float, int, int], tuple[arb, arb, arb]] = {}

    def step(self) -> tuple[float, float]:
        """Return a step h and a height y below πσ with y²/2 − 2πy/h below −nats."""
        height = min(math.sqrt(2 * self.nats), 3.1415 * self.sigma)
        return 2 * math.pi * height / (self.nats + height**2 / 2), height

    def ends(self, order: float) -> tuple[float, float]:
        reach = math.sqrt(2 * (self.nats + order))
        return reach, order / self.sigma + reach

    def wanted(self, order: float) -> float:
        left, right = self.ends(order)
        return (left + right) / self.step()[0]

    def log_moment(self, order: float) -> arb:
        """Increase the precision, which cancellation reduces, until the ball is small."""
        bits = 64 + int(2.9 * self.nats)
        while True:
            with rounding.precision(bits):
                excess = self._excess(high(order), order)
                if excess.rad() < _ENOUGH * excess.mid() or bits > 4096:
                    return excess.log1p().upper()
            bits *= 2
            self.nats *= 1.5

    def _excess(self, alpha: arb, order: float) -> arb:
        h, y = (arb(number) for number in self.step())
        left, right = (math.ceil(end / float(h)) for end in self.ends(order))
        total = arb(0)
        for i in range(-left, right + 1):
            more, log_ratio, density = self._at(i, h)
            total += ((alpha * log_ratio).expm1() - alpha * more) * density
        total *= h / (2 * arb.pi()).sqrt()
        total += arb(0).union(self._tails(alpha, left * h, right * h, h))
        # M contains the moment itself, so |T − E[g]| ≤ w (E[g] + 2 + 2α) is solved for E[g].
        weight = 2 * (y * y / 2).exp() / ((2 * arb.pi() * y / h).exp() - 1)
        wrong = (weight * (total + 2 + 2 * alpha) / (1 - weight)).upper()
        return total + arb(0, wrong)

    def _at(self, i: int, h: arb) -> tuple[arb, arb, arb]:
        """Return what all orders share: b − 1, ln b and the density up to its constant factor."""
        key = (self.nats, flint.ctx.prec, i)
        if key not in self.known:
            x = i * h
            more = self.q * (x * self.shift - self.rate / 2).expm1()
            self.known[key] = more, more.log1p(), (-x * x / 2).exp()
        return self.known[key]

    def _tails(self, alpha: arb, left: arb, right: arb, h: arb) -> arb:
        """Bound the sums beyond both ends by geometric series."""

        def beyond(r: arb) -> arb:
            return h * (-r * r / 2).exp() / (1 - (-h * r).exp())

        centre = alpha * self.shift
        tilt = self.q**alpha * (alpha * (alpha - 1) * self.rate / 2).exp()
        upper = 2**alpha * (beyond(right) + tilt * beyond(right - centre))
        return ((alpha - 1) * beyond(left) + upper).upper()
