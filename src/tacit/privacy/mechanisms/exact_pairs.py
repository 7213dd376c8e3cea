r"""Neighbouring rows of integer weights, compared exactly.

A float comparison that is clear beyond its rounding error settles most of the numbers; the rest
is settled in integers of any length, against a rational lower bound of :math:`e^\varepsilon`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tacit.privacy.mechanisms.integer_rows import Integers, Reals, WeightRows
from tacit.privacy.rounding import exp_floor

_BITS = 128
_LARGEST = 700.0  # as in `errors.epsilon_in_range`
_CLEAR = 2.0**-47
"""More than the total rounding error of a float comparison: at most 2^-52 for each weight (53
leading bits), 2^-52 for a total, and 2^-53 for each of four operations."""


class NeighbourPairs:
    """All pairs of neighbours, in both directions."""

    def __init__(self, rows: WeightRows, pairs: Integers) -> None:
        self._rows = rows
        representatives = rows.representatives(np.concatenate([pairs, pairs[:, ::-1]]))
        self._pairs = [(int(x), int(y)) for x, y in representatives]

    def violation(self, epsilon: Fraction, delta: float) -> tuple[int, int] | None:
        r"""Find x, y with :math:`\sum_r (P(r|x) - e^\varepsilon P(r|y))_+ > \delta`, if any."""
        bound = exp_floor(epsilon, _BITS)
        # The float, or the decimal that it prints as, whichever is smaller.
        least = min(Fraction(delta), Fraction(repr(delta)))
        holds = self._approximate if delta else self._pure
        return next((pair for pair in self._pairs if not holds(*pair, bound, least)), None)

    def _pure(self, x: int, y: int, bound: int, delta: Fraction) -> bool:
        """Test that w_x(r) W_y ≤ e^ε w_y(r) W_x for every r."""
        (first, up), (second, down) = self._rows.leading(x), self._rows.leading(y)
        left, right = self._rows.total(y) << _BITS, bound * self._rows.total(x)
        # Scaled so that the bound lies between ½ and 2: numbers that underflow are far below it.
        power = right.bit_length() - left.bit_length()
        most = float(Fraction(right << max(-power, 0), left << max(power, 0)))
        with np.errstate(all="ignore"):
            clear = np.ldexp(first / second, up - down - power) <= most * (1 - _CLEAR)
        unclear = np.flatnonzero(~clear).tolist()
        if not unclear:
            return True
        ours, theirs = self._rows.weights(x), self._rows.weights(y)
        return all(ours[r] * left <= theirs[r] * right for r in unclear)

    def _approximate(self, x: int, y: int, bound: int, delta: Fraction) -> bool:
        """Bound the hockey-stick sum: in floats with their error added, or else in integers."""
        columns, odds = self._rows.columns, float(Fraction(bound, 1 << _BITS))
        total = self._hockey_stick(x, y, odds)
        # A probability below 2^-1022 may be off by 2^-1074, which e^ε raises.
        if total * (1 + columns * 2.0**-52) + _CLEAR + columns * (odds * 2.0**-1074) <= delta:
            return True
        left, right = self._rows.total(y) << _BITS, bound * self._rows.total(x)
        pairs = zip(self._rows.weights(x), self._rows.weights(y), strict=True)
        excess = sum(gap for a, b in pairs if (gap := a * left - b * right) > 0)
        return excess * delta.denominator <= delta.numerator * self._rows.total(x) * left

    def _hockey_stick(self, x: int, y: int, odds: float) -> float:
        with np.errstate(under="ignore", over="ignore"):
            gap = self._rows.law(x) - odds * self._rows.law(y)
        return float(np.maximum(gap, 0.0, out=gap).sum())

    def smallest_epsilon(self, delta: float) -> float:
        """Compute the smallest ε at δ in floats, then raise it until integers confirm it."""
        if self.violation(Fraction(0), delta) is None:
            return 0.0
        estimate = self._estimate(delta)
        slack = 2.0**-44 * max(estimate, 1.0)
        while estimate + slack <= _LARGEST:
            if self.violation(Fraction(repr(estimate + slack)), delta) is None:
                return estimate + slack
            slack *= 4
        return math.inf

    def _estimate(self, delta: float) -> float:
        if delta == 0:
            return max(self._log_odds(x, y) for x, y in self._pairs)
        largest = 0.0
        for x, y in self._pairs:
            # Most pairs hold at the largest ε so far: quicker to check than to compute their own.
            odds = math.exp(min(largest, _LARGEST))
            if self._hockey_stick(x, y, odds) > delta:
                largest = max(largest, _pair_epsilon(self._rows.law(x), self._rows.law(y), delta))
        return largest

    def _log_odds(self, x: int, y: int) -> float:
        """Return the largest ln P(r | x)/P(r | y)."""
        (first, up), (second, down) = self._rows.leading(x), self._rows.leading(y)
        possible = first > 0
        with np.errstate(divide="ignore"):
            logs = np.log(first[possible] / second[possible])
        logs += (up - down)[possible] * math.log(2)
        totals = math.log(self._rows.total(y)) - math.log(self._rows.total(x))
        return float(logs.max()) + totals


def _pair_epsilon(first: Reals, second: Reals, delta: float) -> float:
    r"""Return :math:`\max_L \ln\frac{A_L - \delta}{B_L}` over the L outputs of largest ratio."""
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-first / second)
        held = np.cumsum(first[order]) - delta
        odds = np.log(held[held > 0] / np.cumsum(second[order])[held > 0])
    return max(float(odds.max(initial=0.0)), 0.0)
