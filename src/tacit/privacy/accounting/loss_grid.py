r"""Privacy loss distributions on a grid: upper bounds on the δ of a long composition.

The losses of one draw are moved to nodes kΔ, the composition is a convolution, and the result is an
upper bound by construction, rounding included.

Notes
-----
*One draw.* Let :math:`H_\varepsilon(p) = p(\infty) + \int (1 - e^{\varepsilon - L})_+ dp(L)`, which
for the law p of the loss of P against Q is their δ at ε, for every real ε. The losses of an
interval :math:`(e_1, e_2]`, with mass m under P and n under Q, are moved to its ends,

.. math:: b = \frac{m - n e^{e_1}}{1 - e^{e_1 - e_2}} \text{ to } e_2, \qquad a = m - b
          \text{ to } e_1,

which keeps both masses; :math:`(1 - e^\varepsilon t)_+` is convex in :math:`t = e^{-L}`, so H can
only grow [DGKKM22]_. Nodes need not be neighbours on the grid. Masses come from balls and are
rounded up, which also increases H: it then belongs to a measure, not to a probability law.

*Composition.* For a product, :math:`H_\varepsilon(P_1 \times P_2) = \int H_{\varepsilon -
L}(P_1)\,dp_2(L)`, so a larger H for each factor, at every real ε, gives a larger H for the product;
this does not need probability laws, only masses ≥ 0.

*Tilting.* With :math:`p_\theta(L) = p(L)\,e^{\theta L - c}` of mass about 1, the T-fold convolution
of p is :math:`e^{Tc - \theta L}` times that of :math:`p_\theta`, whatever the number c. Errors of a
Fourier transform are then multiplied by :math:`e^{Tc - \theta\varepsilon}`, Chernoff's bound on
the requested δ, and hence small relative to δ instead of 1.

*Wrapping.* Transforms of length N take losses modulo NΔ. What lies below the window reappears at
its top, and is overcounted. What lies above reappears below: its mass is at most
:math:`e^{Tc - \theta\,top}` times that of :math:`p_\theta^{*T}`, and is added to δ.

*Rounding.* With :math:`u = 2^{-53}`, a transform of length N = 2^t by Cooley and Tukey's algorithm
has a relative error of at most :math:`\kappa u` in the ℓ2 norm, :math:`\kappa \approx 6.7 t` with
twiddle factors accurate to a unit in the last place [Hig02]_, Theorem 24.2; 8 (t + 1) is used. A
product of complex numbers is within :math:`\sqrt5 u` [BPZ07]_. So the coefficients
:math:`\hat p_\theta`, at most S = the mass of :math:`p_\theta` in size, are off by :math:`e`,
:math:`\lVert e\rVert_2 \le \kappa u \sqrt N \lVert p_\theta\rVert_2`; their T-th power by at most
:math:`T (S + \lVert e\rVert_2)^{T-1} e`, and by :math:`\sqrt5 u T` of itself; and the convolution
in the ℓ2 norm by

.. math:: E = \Bigl(\sum_i T_i \kappa u \lVert p_i\rVert_2 \prod_i (S_i + \lVert e_i\rVert_2)^{T_i}
          + (\sqrt5 \textstyle\sum_i T_i + \kappa) u \lVert y\rVert_2\Bigr) \cdot 1.1.

By Cauchy and Schwarz δ is off by at most E times the ℓ2 norm of the weights that y is summed with.
Everything else is computed in balls, or in floats with a margin for every operation.

References
----------
.. [DGKKM22] Doroshenko et al. Connect the dots: tighter discrete approximations of privacy loss
   distributions. PETS 2022.
.. [Hig02] Higham. Accuracy and stability of numerical algorithms. SIAM 2002.
.. [BPZ07] Brent, Percival, Zimmermann. Error bounds on complex floating-point multiplication.
   Mathematics of Computation 2007.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from flint import arb
from scipy.optimize import brentq, minimize_scalar

from tacit.privacy import rounding
from tacit.privacy.rounding import above, below, high, low, normal_below

Reals = npt.NDArray[np.float64]

_REACH = 12.7
"""Standard deviations; the probability beyond them, 1e-36, counts as an infinite loss."""

_LONGEST = 2**19
_FINENESS = 200
_MOST_NODES = 3000
_TINY = 1e-290  # more than everything that underflows
_RARE = 1e-250
_U = 2.0**-53


class TooWide(Exception):
    """Raised where no grid of this length gives a useful bound."""


@dataclass
class Measure:
    """Masses at nodes of the grid, none below the true value."""

    masses: dict[int, float] = field(default_factory=dict)
    infinite: float = 0.0

    def add(self, node: int, mass: arb) -> None:
        if not mass <= 0:
            # A single rounded sum: its float is at worst one unit below.
            total = self.masses.get(node, 0.0) + above(mass)
            self.masses[node] = math.nextafter(total, math.inf)

    def spread(self, nodes: tuple[int, int], step: arb, mass: arb, other: arb) -> None:
        """Move the losses between two nodes, with these masses under P and Q, to the nodes."""
        start = (nodes[0] * step).exp()
        upper = (mass - other * start) / -((nodes[0] - nodes[1]) * step).expm1()
        self.add(nodes[1], upper)
        self.add(nodes[0], mass - upper)

    def first(self, node: int, masses: tuple[arb, arb], removed: bool) -> None:
        """Add what lies below the first node, with masses under the mixture and the noise."""
        if removed:
            self.add(node, masses[0])
        else:
            self.infinite = above(masses[1])

    def last(self, node: int, masses: tuple[arb, arb], removed: bool) -> None:
        """Add what lies above the last node."""
        if removed:
            self.infinite = above(masses[0])
        else:
            self.add(-node, masses[1])


@dataclass(frozen=True)
class Response:
    """Randomized response with loss ±ε that fails with probability δ: the worst (ε, δ) pair."""

    epsilon: float
    delta: float

    def sketch(self, removed: bool) -> tuple[Reals, Reals]:
        losses = np.array([-self.epsilon, self.epsilon])
        return -np.logaddexp(0, -losses), losses

    def measure(self, step: float, tilt: float, removed: bool) -> Measure:
        measure = Measure(infinite=above(high(self.delta)))
        loss, width = high(self.epsilon), arb(step)
        whole = 1 / (1 + (-loss).exp())
        for sign in (1, -1):
            mass = whole * (-loss).exp() if sign < 0 else whole
            node = math.floor(sign * rounding.most(self.epsilon) / Fraction(step))
            measure.spread((node, node + 1), width, mass, mass * (-sign * loss).exp())
        return measure


@dataclass(frozen=True)
class Normal:
    """Gaussian noise of standard deviation z for a sensitivity of 1, on a Poisson sample."""

    probability: float
    multiplier: Fraction

    def sketch(self, removed: bool) -> tuple[Reals, Reals]:
        """Return log-masses and losses at some points, in floats."""
        x = np.linspace(-_REACH, _REACH + float(1 / self.multiplier), 1500)
        losses = self.losses(x)
        density = -(x**2) / 2 + math.log((x[1] - x[0]) / math.sqrt(2 * math.pi))
        return (density + losses, losses) if removed else (density, -losses)

    def losses(self, x: Reals) -> Reals:
        """Return ln(1 − q + q e^{x/z − 1/2z²}), in floats."""
        shift = float(1 / self.multiplier)
        return np.log1p(self.probability * np.expm1(np.minimum(x * shift - shift**2 / 2, 700.0)))

    def measure(self, step: float, tilt: float, removed: bool) -> Measure:
        """Measure the mixture against the noise alone, or the other way round."""
        measure, before = Measure(), (arb(0), arb(0))
        q, shift, width = high(self.probability), 1 / low(self.multiplier), arb(step)
        last = None
        for node in self._nodes(step, tilt if removed else -1 - tilt):
            inside = (node * width).expm1() + q
            if not inside > 0:
                # No loss is that small; a node that may or may not be is left out.
                last = node if inside <= 0 else last
                continue
            x = ((inside / q).log() + shift**2 / 2) / shift
            without = normal_below(x)
            now = (1 - q) * without + q * normal_below(x - shift), without
            masses = now[0] - before[0], now[1] - before[1]
            if last is None:  # only the farthest losses lie below
                measure.first(node, masses, removed)
            elif removed:
                measure.spread((last, node), width, *masses)
            else:
                measure.spread((-node, -last), width, *reversed(masses))
            last, before = node, now
        assert last is not None
        measure.last(last, (1 - before[0], 1 - before[1]), removed)
        return measure

    def _nodes(self, step: float, power: float) -> list[int]:
        """Return every node where losses are likely, tilted or not, and fewer elsewhere."""
        x = np.linspace(-_REACH, _REACH + float(1 / self.multiplier), 4001)
        losses = self.losses(x)
        logs = -(x**2) / 2 + np.array([[0.0], [1.0 + power]]) * losses
        likely = (logs - logs.max(axis=1, keepdims=True)).max(axis=0)
        strides = np.exp(np.minimum(-likely / 4, 40.0))
        wanted = float((np.diff(losses) / (step * strides[1:])).sum())
        strides *= max(wanted / _MOST_NODES, 1.0)
        least = losses[0] if self.probability == 1 else math.log1p(-self.probability)
        ends = math.floor(least / step) - 1, math.ceil(losses[-1] / step)
        start = round(float(losses[likely.argmax()]) / step)

        def outwards(end: int) -> list[int]:
            """Walk from the likeliest loss outwards, in strides that grow slowly."""
            node, stride, sign, nodes = start, 1.0, 1 if end > start else -1, []
            while node != end:
                places = np.array([float(node), float(node) + sign * stride]) * step
                allowed = float(np.interp(places, losses, strides).min())
                stride = max(1.0, min(1.2 * stride + 1, allowed))
                node += sign * min(int(stride), abs(end - node))
                nodes.append(node)
            return nodes

        return [*reversed(outwards(ends[0])), start, *outwards(ends[1])]


Part = Response | Normal
Parts = list[tuple[Part, int]]


def epsilon_of(parts: Parts, delta: float) -> float:
    """Return the smallest ε at δ that the grid proves for these draws, in both directions."""
    return max(_one_way(parts, delta, removed) for removed in (True, False))


def _one_way(parts: Parts, delta: float, removed: bool) -> float:
    tilt = _tilt(parts, delta, removed)
    step = _step(parts, delta, tilt, removed)
    with rounding.precision(160):
        drawn = [(part.measure(step, tilt, removed), count) for part, count in parts]
    return Composition(drawn, step, tilt, delta).epsilon_of(delta)


def _moments(parts: Parts, tilt: float, removed: bool) -> tuple[float, float, float]:
    """Return, in floats, the log-moment and the tilted mean and variance of all draws."""
    log_moment = mean = variance = 0.0
    for part, count in parts:
        logs, losses = part.sketch(removed)
        tilted = logs + tilt * losses
        top = tilted.max()
        weights = np.exp(tilted - top)
        total = weights.sum()
        middle = float(weights @ losses / total)
        log_moment += count * (float(top) + math.log(total))
        mean += count * middle
        variance += count * float(weights @ (losses - middle) ** 2 / total)
    return log_moment, mean, variance


def _tilt(parts: Parts, delta: float, removed: bool) -> float:
    """Return the θ of the smallest Chernoff bound at δ."""
    spread = math.sqrt(max(_moments(parts, 0.0, removed)[2], 1e-300))

    def bound(log_tilt: float) -> float:
        tilt = math.exp(log_tilt)
        return (_moments(parts, tilt, removed)[0] - math.log(delta)) / tilt

    middle = math.log(1 / spread)
    # Losses of small samples are rare and large: their θ is near 1, even if the spread is small.
    bounds = (min(middle - 3, -1.0), middle + 12)
    return math.exp(float(minimize_scalar(bound, bounds=bounds, method="bounded").x))


def _step(parts: Parts, delta: float, tilt: float, removed: bool) -> float:
    """Return a step as fine as the spread of one draw requires and the transform allows."""
    log_moment, mean, variance = _moments(parts, tilt, removed)
    draws = sum(count for _, count in parts)
    top = (log_moment - math.log(delta) + 40) / tilt
    bottom = mean - 12 * math.sqrt(variance)
    fine = math.sqrt(variance / draws) / _FINENESS
    # Nodes are counted in 64 bits, from the rarest losses on.
    farthest = max(float(np.abs(part.sketch(removed)[1]).max()) for part, _ in parts)
    return max(fine, 1.05 * (top - bottom) / _LONGEST, farthest * 2.0**-50, 1e-300)


class Composition:
    """All draws in one direction: the tilted convolution, and a bound on its error."""

    def __init__(
        self, drawn: list[tuple[Measure, int]], step: float, tilt: float, delta: float
    ) -> None:
        self.step, self.tilt = step, tilt
        tilted = [_Tilted(measure, count, step, tilt) for measure, count in drawn]
        with rounding.precision():
            self.scale = sum((part.count * arb(part.shift) for part in tilted), arb(0))
            self.growth = _growth([(part.mass, part.count) for part in tilted])
            totals = [(part.total, part.count) for part in tilted]
            failing = sum((part.count * arb(part.infinite) for part in tilted), arb(0))
            self.failing = above(failing * _growth(totals))
        mean = sum(part.count * part.mean for part in tilted)
        deviation = math.sqrt(sum(part.count * part.variance for part in tilted))
        top = (float(self.scale) - math.log(delta) + 30) / tilt
        self.bottom = math.floor((mean - 12 * deviation) / step)
        wanted = max(math.ceil(top / step) - self.bottom, 64)
        self.length = 1 << (wanted - 1).bit_length()
        if not 0 < self.length <= 4 * _LONGEST:
            raise TooWide("privacy loss too wide for a grid")
        self.top = self.bottom + self.length
        self._convolve(tilted)

    def _convolve(self, tilted: list[_Tilted]) -> None:
        kappa = 8 * (math.log2(self.length) + 1) * _U
        product = np.ones(self.length // 2 + 1, dtype=np.complex128)
        wrong, sizes = 0.0, []
        for part in tilted:
            masses = part.wrapped(self.length)
            norm = 1.01 * float(np.linalg.norm(masses))
            wrong += part.count * kappa * norm
            sizes.append((part.mass + kappa * math.sqrt(self.length) * norm, part.count))
            product *= _power(np.fft.rfft(masses), part.count)
        with rounding.precision():
            largest = above(_growth(sizes))
        if not largest < 2:
            raise TooWide("more draws than floats can multiply")
        convolved = np.fft.irfft(product, self.length)
        draws = sum(part.count for part in tilted)
        rounded = (math.sqrt(5) * (draws + len(tilted)) * _U + kappa) * np.linalg.norm(convolved)
        self.wrong = 1.1 * (wrong * largest + float(rounded)) + _TINY
        # From the bottom of the window up.
        self.convolution = np.roll(convolved, -(self.bottom % self.length))

    def delta_of(self, epsilon: float) -> float:
        """Bound δ from above at an ε in the window."""
        lowest_epsilon = rounding.least(epsilon)
        first = math.floor(lowest_epsilon / Fraction(self.step)) + 1
        count = self.top - first
        with rounding.precision():
            width, tilt = arb(self.step), arb(self.tilt)
            chernoff = above((self.scale - tilt * first * width).exp())
            falls = above((-tilt * width).exp())
            taken = below((low(lowest_epsilon) - first * width).exp())
            shrinks = below((-width).exp())
            beyond = above((self.scale - tilt * (self.top - 1) * width).exp() * self.growth)
        room = 1 + 4 * count * _U
        weights = _geometric(chernoff, falls, count) * (
            1 - _geometric(taken, shrinks, count) / room
        )
        return room**2 * (self._integral(first, weights) + beyond + self.failing) + _TINY

    def excess(self) -> float:
        """Bound the expectation of the positive part of the sum of all draws from above."""
        if self.bottom >= 0 or self.failing > _TINY:
            raise TooWide("the sum of all draws is not within the grid")
        with rounding.precision():
            width, tilt = arb(self.step), arb(self.tilt)
            chernoff = above((self.scale - tilt * width).exp() * width)
            falls = above((-tilt * width).exp())
            last = arb(self.top - 1) * width
            if not last > 1 / tilt:  # s e^{-θs} is largest at 1/θ
                last = 1 / tilt
            beyond = above(last * (self.scale - tilt * last).exp() * self.growth)
        count = self.top - 1
        if count < 1:
            return beyond
        weights = _geometric(chernoff, falls, count) * np.arange(1, self.top)
        room = 1 + 4 * count * _U
        return room**2 * (self._integral(1, weights) + beyond) + _TINY

    def _integral(self, first: int, weights: Reals) -> float:
        """Sum the convolution from a node on with these weights, and add what may be wrong."""
        count = len(weights)
        values = self.convolution[first - self.bottom :]
        sizes = np.abs(values) * weights
        total = float(values @ weights) + (1 + 4 * count * _U) * count * _U * float(sizes.sum())
        total += 1.01 * self.wrong * float(np.linalg.norm(weights))
        return max(total, 0.0)

    def epsilon_of(self, delta: float) -> float:
        lower = max(0.0, math.nextafter((self.bottom + 1) * self.step, math.inf))
        upper = (self.top - 2) * self.step
        if upper <= lower or self.delta_of(upper) > delta:
            raise TooWide("delta is below what the grid can show")
        if self.delta_of(lower) <= delta:
            return lower
        return _least(self.delta_of, delta, lower, upper)


def _least(profile: Callable[[float], float], delta: float, lower: float, upper: float) -> float:
    target = math.log(delta)
    root = brentq(lambda x: math.log(max(profile(x), 1e-320)) - target, lower, upper, rtol=1e-10)
    epsilon = float(root)
    gap = 1e-10 * upper
    while profile(epsilon) > delta:
        epsilon = min(epsilon + gap, upper)
        gap *= 2
    return epsilon


class _Tilted:
    """One part's measure, tilted to a mass of about 1, at most one float above its true value."""

    def __init__(self, measure: Measure, count: int, step: float, tilt: float) -> None:
        self.count = count
        # Negligible masses would be rounded up to the smallest float, and tilting would magnify
        # them: such losses count as infinite.
        rare = sum(mass for mass in measure.masses.values() if mass < _RARE)
        self.infinite = math.nextafter(measure.infinite + rare * 1.01, math.inf)
        nodes = sorted(node for node, mass in measure.masses.items() if mass >= _RARE)
        self.nodes = np.array(nodes, dtype=np.int64)
        masses = [measure.masses[int(node)] for node in self.nodes]
        exponents = np.log(masses) + tilt * step * self.nodes
        self.shift = float(exponents.max() + math.log(np.exp(exponents - exponents.max()).sum()))
        with rounding.precision():
            width, angle, shift = arb(step), arb(tilt), arb(self.shift)
            self.values = np.array(
                [
                    above(arb(mass) * (angle * int(node) * width - shift).exp())
                    for node, mass in zip(self.nodes, masses, strict=True)
                ]
            )
            self.total = above(sum(map(arb, [*masses, self.infinite]), arb(0)))
            self.mass = above(sum(map(arb, self.values.tolist()), arb(0)))
        losses = step * self.nodes
        self.mean = float(self.values @ losses)
        self.variance = float(self.values @ (losses - self.mean) ** 2)

    def wrapped(self, length: int) -> Reals:
        masses = np.zeros(length)
        np.add.at(masses, self.nodes % length, self.values)
        # As many sums as nodes share a place; their rounding error is added back.
        shared = math.ceil((int(self.nodes[-1]) - int(self.nodes[0]) + 1) / length)
        return masses if shared == 1 else rounding.inflated(masses, shared)


def _growth(sizes: list[tuple[float, int]]) -> arb:
    """Return the product of powers of numbers near 1."""
    return math.prod((arb(size) ** count for size, count in sizes), start=arb(1))


def _power(values: npt.NDArray[np.complex128], count: int) -> npt.NDArray[np.complex128]:
    """Raise to a power by squaring: in effect `count` products of rounded numbers."""
    result = None
    while True:
        if count & 1:
            result = values.copy() if result is None else result * values
        count >>= 1
        if not count:
            assert result is not None
            return result
        values = values * values


def _geometric(start: float, ratio: float, count: int) -> Reals:
    """Return start times powers of the ratio, by `count` products, each rounded once."""
    factors = np.full(count, ratio)
    factors[0] = start
    return np.asarray(np.multiply.accumulate(factors))
