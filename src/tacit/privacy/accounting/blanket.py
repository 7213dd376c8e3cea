r"""The privacy blanket: what the multiset of many people's reports reveals about one of them.

Notes
-----
For a channel R and :math:`\mu(y) = \min_x R(y \mid x)` every report is drawn, with probability
:math:`\gamma = \sum_y \mu(y)`, from the *blanket* :math:`\mu/\gamma`, which is the same for
everybody. Reveal who is outside the blanket and what they sent: the others hide one person. With n
people in all, that person included, [BBGN19]_ (Lemma 5.3, summed over a binomial number of people
in the blanket) gives for two inputs x, x'

.. math:: \delta(\varepsilon) \le \frac1n\, E\Bigl[\Bigl(\sum_{i \le n} Z_i\Bigr)_+\Bigr] +
          \sum_{y: \mu(y) = 0} \bigl(R(y \mid x) - e^\varepsilon R(y \mid x')\bigr)_+, \qquad
          Z = \frac{R(y \mid x) - e^\varepsilon R(y \mid x')}{\mu(y)}
          \text{ with probability } \mu(y), \text{ else } 0.

The second sum, over reports that the blanket never holds, is 0 where every report is possible for
everyone.

*Any channel.* If all that is known is ε₀-DP for any two inputs, everyone's report has the law of
the person's own under x or x', as if sent in their place, with probability :math:`e^{-\varepsilon_0
}`, half each [FMT21]_. That is the bound above for a blanket of two equal halves with
:math:`\gamma = e^{-\varepsilon_0}` and randomized response in front of it (`clones`).

*Rounding.* Z takes rational values for a rational lower bound of :math:`e^\varepsilon`. Each is
split between the two nearest nodes of a grid so that its mean stays: the positive part is convex,
so the expectation can only grow, for sums as well. The n-fold convolution is that of
`tacit.accounting.loss_grid`, with a proved bound on its error.

References
----------
.. [BBGN19] Balle, Bell, Gascón, Nissim. The privacy blanket of the shuffle model. CRYPTO 2019.
.. [FMT21] Feldman, McMillan, Talwar. Hiding among the clones: a simple and nearly optimal analysis
   of privacy amplification by shuffling. FOCS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from tacit.privacy import rounding
from tacit.privacy.accounting.loss_grid import Composition, Measure, TooWide

_BITS = 128
_LONGEST = 2**18
_FINENESS = 200
_CLOSE = 1e-4
"""How close, relatively, the stated ε is to the smallest that the grid proves."""
_SHARES = (0.125, 0.25, 0.5, 0.75, 0.9, 0.99)
"""Where the search for ε begins, as shares of the local ε; above the last, nothing is gained."""
_LARGEST = 20.0
"""Local ε beyond which floats cannot hold the losses, and e^-20 of 10^9 people hide nobody."""


@dataclass(frozen=True)
class Hidden:
    """Two inputs of a channel behind its blanket.

    Parameters
    ----------
    held : tuple of (Fraction, Fraction, Fraction)
        For each kind of report μ, R(· | x)/μ and R(· | x')/μ.
    beyond : tuple of (Fraction, Fraction)
        R(· | x) and R(· | x') of reports that the blanket does not hold.
    """

    held: tuple[tuple[Fraction, Fraction, Fraction], ...]
    beyond: tuple[tuple[Fraction, Fraction], ...] = ()

    def delta_of(self, epsilon: float, people: int, delta: float) -> float:
        """Bound δ at ε from above; `delta` says where the bound must be good."""
        odds = _exp_low(epsilon)
        outside = sum((max(p - odds * q, Fraction(0)) for p, q in self.beyond), Fraction(0))
        losses = [(mass, first - odds * second) for mass, first, second in self.held]
        if all(loss <= 0 for _, loss in losses):
            return _up(outside)
        rest = 1 - sum((mass for mass, _ in losses), Fraction(0))
        if rest:
            losses.append((rest, Fraction(0)))
        return _up(Fraction(_excess(losses, people, delta)) / people + outside)


def pairs_of(laws: Sequence[Sequence[Fraction]]) -> set[Hidden]:
    """List what differs between any two rows of a finite channel, in both directions."""
    least = [min(column) for column in zip(*laws, strict=True)]
    return {_hidden(x, y, least) for x in laws for y in laws if x is not y}


def _hidden(x: Sequence[Fraction], y: Sequence[Fraction], least: list[Fraction]) -> Hidden:
    held: dict[tuple[Fraction, Fraction], Fraction] = {}
    beyond = []
    for first, second, mass in zip(x, y, least, strict=True):
        if mass:
            key = first / mass, second / mass
            held[key] = held.get(key, Fraction(0)) + mass
        elif first:
            beyond.append((first, second))
    return Hidden(tuple(sorted((mass, *key) for key, mass in held.items())), tuple(sorted(beyond)))


def clones(epsilon: float) -> Hidden:
    """Return the worst pair of any channel that is ε-DP for any two inputs."""
    odds = _exp_high(epsilon)
    likely, unlikely = 2 * odds**2 / (1 + odds), 2 * odds / (1 + odds)
    half = 1 / (2 * odds)
    return Hidden(((half, likely, unlikely), (half, unlikely, likely)))


def epsilon_of(pairs: Iterable[Hidden], people: int, delta: float, local: float) -> float:
    """Return an ε that holds at δ for all pairs; `local`, the ε of one report, if none is less."""
    if local > _LARGEST:
        return local
    epsilon, least = 0.0, rounding.float_below(rounding.least(delta))
    for pair in pairs:
        # Most pairs hold at the ε of those before.
        if not _delta(pair, epsilon, people, least) <= least:
            epsilon = _smallest(pair, people, least, epsilon, local)
        if epsilon >= local:
            return local
    return epsilon


def _smallest(pair: Hidden, people: int, delta: float, lower: float, local: float) -> float:
    def above_target(epsilon: float) -> float:
        return max(math.log(max(_delta(pair, epsilon, people, delta), 1e-320) / delta), -50.0)

    tried = (share * local for share in _SHARES if share * local > lower)
    upper = next((epsilon for epsilon in tried if above_target(epsilon) <= 0), None)
    if upper is None:
        return math.inf
    epsilon = float(brentq(above_target, lower, upper, xtol=1e-12, rtol=_CLOSE))
    while epsilon < upper and above_target(epsilon) > 0:
        epsilon *= 1 + _CLOSE / 2
    return min(epsilon, upper)


def _delta(pair: Hidden, epsilon: float, people: int, delta: float) -> float:
    try:
        return pair.delta_of(epsilon, people, delta)
    except TooWide:
        return 1.0


def _excess(losses: list[tuple[Fraction, Fraction]], people: int, delta: float) -> float:
    """Bound the expectation of the positive part of a sum of independent losses."""
    step, tilt = _grid(losses, people, delta)
    width, measure = Fraction(step), Measure()
    with rounding.precision():
        for mass, loss in losses:
            node = math.floor(loss / width)
            upper = mass * (loss / width - node)
            if upper:
                measure.add(node + 1, rounding.ball(upper))
            measure.add(node, rounding.ball(mass - upper))
    return Composition([(measure, people)], step, tilt, delta).excess()


def _grid(
    losses: list[tuple[Fraction, Fraction]], people: int, delta: float
) -> tuple[float, float]:
    """Choose step and tilt, in floats: any choice gives a bound."""
    masses, values = (np.array([float(part[i]) for part in losses]) for i in (0, 1))
    largest = float(values.max())

    def mean(tilt: float) -> float:
        weights = masses * np.exp(tilt * (values - largest))
        return float(weights @ values / weights.sum())

    high = 1 / largest
    while mean(high) < 0 and high < 1e15 / largest:
        high *= 2
    tilt = brentq(mean, 0.0, high) if mean(0.0) < 0 < mean(high) else 0.0
    tilt = max(float(tilt), 1 / math.sqrt(people * float(masses @ values**2)))
    weights: npt.NDArray[np.float64] = masses * np.exp(tilt * (values - largest))
    moment = people * (math.log(weights.sum()) + tilt * largest)
    weights /= weights.sum()
    variance = float(weights @ (values - weights @ values) ** 2)
    top = (moment - math.log(delta) + 30) / tilt
    window = top + 12 * math.sqrt(people * variance)
    step = max(math.sqrt(variance) / _FINENESS, 1.05 * window / _LONGEST)
    # The largest loss at a node: where there are few losses, the others are then near nodes.
    return largest / max(math.floor(largest / step), 1), tilt


def _exp_low(epsilon: float) -> Fraction:
    return Fraction(rounding.exp_floor(rounding.least(epsilon), _BITS), 2**_BITS)


def _exp_high(epsilon: float) -> Fraction:
    return Fraction(rounding.exp_floor(rounding.most(epsilon), _BITS) + 1, 2**_BITS)


def _up(number: Fraction) -> float:
    with rounding.precision():
        return rounding.above(rounding.ball(number))
