r"""The channel of `LocalMean`: a base weight for each symbol, and a window that moves with input.

Every law with :math:`m_y \le P(y \mid x) \le e^\varepsilon m_y` is ε-private. For a given base m,
the law of an input x that has mean x and the smallest second moment puts the weight beyond m on one
interval of symbols: its Lagrangian is least where :math:`(y - \lambda)^2` is below a constant. The
base is found by a linear program in floats; everything that is drawn is then built from whole
numbers and fractions, so the program's tolerances reach neither the guarantee nor the mean.

With several groups (`GroupedMean`), a symbol stands for a group and a number. Every group has the
same base, and the window lies among the symbols of the input's own group.

References
----------
.. [WXYZ19] Wang, Xiao, Yang, Zhao et al. Collecting and analyzing multidimensional data with local
   differential privacy. ICDE 2019 (piecewise and hybrid mechanisms).
.. [KOV14] Kairouz, Oh, Viswanath. Extremal mechanisms for local differential privacy. NIPS 2014
   (optimal channels as linear programs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

from tacit.privacy import errors
from tacit.privacy.rounding import exp_floor

TOTAL = 2**52
"""Sum of every row of the table, all groups together, before fractions are cleared."""

HALF = 32
"""Symbols stand for −HALF, …, HALF, and so do inputs: 65 of each."""

_TWO_POINTS_BELOW = 0.1  # there the optimum is within 0.1 % of two symbols
_FINEST = 12.0  # beyond, the grid of inputs is what limits the variance
_SMALLEST = 2.0**-20  # a largest weight that small is the solver's tolerance
_BITS = 24  # of a weight: what two machines compute for the same optimum differs far behind them
_WIDE = 6  # with groups, scores reach as far as those of so many symbols per group would


@lru_cache(maxsize=64)
def solve_base(epsilon: float, groups: int = 1) -> tuple[int, ...]:
    """Find the base weights with the smallest worst variance, in units of 2^-52.

    Of several groups, it is the mean over groups of the variance of each one's score.
    """
    if epsilon < _TWO_POINTS_BELOW:
        half = [math.floor(TOTAL / (math.exp(epsilon) + 2 * groups - 1)), *([0] * HALF)]
    else:
        epsilon = min(epsilon, _FINEST)
        most = _linear_program(epsilon, groups)
        base = np.where(most > _SMALLEST, most * math.exp(-epsilon), 0.0)
        half = [_significant(round(weight)) for weight in (base * TOTAL).tolist()]
    return (*half, *half[-2::-1])


def _significant(weight: int) -> int:
    """Round a weight down to its leading bits."""
    shift = max(weight.bit_length() - _BITS, 0)
    return weight >> shift << shift


def _reach(epsilon: float, groups: int) -> float:
    """Return the largest score that the program considers."""
    piecewise = 1 / math.tanh(epsilon / 4)
    if groups == 1:
        return piecewise
    return max(piecewise, (math.exp(epsilon) + _WIDE * groups - 1) / math.expm1(epsilon))


def _linear_program(epsilon: float, groups: int) -> npt.NDArray[np.float64]:
    """Minimise the largest variance over inputs in [0, 1]; return the largest weights, e^ε m.

    Variables: P(y | x) for each x and y of the own group, the largest weight of each pair ±y, and
    the variance. Symbols of another group have their base, and the score there has mean 0.
    """
    symbols = np.arange(-HALF, HALF + 1)
    values, inputs = symbols * _reach(epsilon, groups) / HALF, np.arange(HALF + 1) / HALF
    cells = inputs.size * symbols.size
    law, ones = sparse.eye_array(cells), np.ones((inputs.size, 1))
    pairs = sparse.eye_array(HALF + 1).tocsr()[HALF - np.abs(symbols)]
    most = sparse.vstack([pairs] * len(inputs))
    total, moment = np.ones(symbols.size), values**2
    per_input = [
        sparse.kron(sparse.eye_array(inputs.size), row[None]) for row in (total, values, moment)
    ]
    others = (groups - 1) * math.exp(-epsilon) * pairs.T
    of_others = [sparse.coo_array(ones * (others @ row)) for row in (total, moment)]
    at_most = sparse.block_array(
        [
            [law, -most, sparse.coo_array((cells, 1))],
            [-law, math.exp(-epsilon) * most, None],
            [per_input[2], of_others[1], -ones],
        ]
    )
    equal = sparse.block_array(
        [
            [per_input[0], of_others[0], sparse.coo_array((inputs.size, 1))],
            [per_input[1], None, None],
        ]
    )
    solution = linprog(
        np.append(np.zeros(at_most.shape[1] - 1), 1.0),
        A_ub=at_most.tocsr(),
        b_ub=np.concatenate([np.zeros(2 * cells), inputs**2]),
        A_eq=equal.tocsr(),
        b_eq=np.concatenate([np.ones(inputs.size), inputs]),
        method="highs",
    )
    if solution.x is None:
        errors.refuse("LocalMean", "epsilon", "one that the solver ends for", epsilon, "Give base.")
    return np.asarray(solution.x[cells : cells + HALF + 1])


class Windows:
    """Rows of whole numbers: the base, and a window of further weight whose mean fits the input.

    Parameters
    ----------
    base : sequence of int
        The least weight of symbols −HALF, …, HALF: symmetric, of 2^52 in all at most.
    epsilon : Fraction
        No weight exceeds e^ε times its base.
    groups : int
        How many groups of symbols there are; rows list those of the input's own group.
    """

    def __init__(self, base: Sequence[int], epsilon: Fraction, groups: int = 1) -> None:
        self._base = base
        self._extra = [
            most - least for most, least in zip(largest(base, epsilon), base, strict=True)
        ]
        self._ends = [0, *accumulate(self._extra)]
        self._width = TOTAL - groups * sum(self._base)
        self._most = self._ends[-1] - self._width
        if self._width < 0 or self._most < 0 or not self._moment(self._most) > 0:
            wanted = "base weights below 2^52 in all that reach it times e^epsilon"
            errors.refuse("LocalMean", "base", wanted, groups * sum(self._base))

    def rows(self) -> list[list[int]]:
        """Return one row for each input −1, …, 1, of symbols with a weight."""
        upper = [self._cleared(start) for start in self._starts]
        return [row[::-1] for row in upper[:0:-1]] + upper

    def denominators(self) -> list[int]:
        """Return what each row was multiplied with, so that it is whole."""
        upper = [start.denominator for start in self._starts]
        return upper[:0:-1] + upper

    @cached_property
    def _starts(self) -> list[Fraction]:
        return [self._place(step) for step in range(HALF + 1)]

    def values(self) -> list[Fraction]:
        """Return the score of each symbol with a weight; their mean given x in [−1, 1] is x."""
        unit = Fraction(TOTAL, self._moment(self._most))
        symbols = range(-HALF, HALF + 1)
        return [y * unit for y, weight in zip(symbols, self._base, strict=True) if weight]

    def _cleared(self, start: Fraction) -> list[int]:
        """Multiply a row with the denominator of its window; leave out symbols without a weight."""
        row = zip(self._row(start), self._base, strict=True)
        return [int(weight * start.denominator) for weight, least in row if least]

    def _row(self, start: int | Fraction) -> list[int | Fraction]:
        """Add the part of each symbol's further weight that lies in the window."""
        stop, ends = start + self._width, self._ends
        return [
            weight + max(min(ends[place + 1], stop) - max(ends[place], start), 0)
            for place, weight in enumerate(self._base)
        ]

    def _moment(self, start: int) -> int:
        row = self._row(start)
        return int(sum(weight * (place - HALF) for place, weight in enumerate(row)))

    def _place(self, step: int) -> Fraction:
        """Find where a window must start for a mean of exactly step/HALF.

        The moment of a row grows with the start of its window, and is linear between integers.
        """
        if step == 0:
            return Fraction(self._most, 2)
        target = Fraction(self._moment(self._most) * step, HALF)
        low, high = 0, self._most
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._moment(middle) >= target else (middle + 1, high)
        beyond = self._moment(low) - target
        return (
            low - beyond / (self._moment(low) - self._moment(low - 1)) if beyond else Fraction(low)
        )


def largest(base: Sequence[int], epsilon: Fraction) -> list[int]:
    """Return e^ε times each weight, rounded down."""
    bound = exp_floor(epsilon, 128)
    return [weight * bound >> 128 for weight in base]


def must_be_base(base: Sequence[int]) -> tuple[int, ...]:
    """Return symmetric whole numbers ≥ 0, one for each symbol."""
    try:
        listed = tuple(errors.whole("LocalMean", "base", w, least=0, most=TOTAL) for w in base)
        if len(listed) == 2 * HALF + 1 and listed == listed[::-1]:
            return listed
    except (TypeError, errors.InvalidParameter):
        pass
    wanted = f"{2 * HALF + 1} whole numbers, the same from both ends"
    errors.refuse("LocalMean", "base", wanted, base)
