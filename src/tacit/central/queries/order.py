r"""Quantiles and the most frequent keys, chosen by score.

*Quantiles* come from counts in public cells. For a level q, the target rank is qn. Cell j contains
the ranks from :math:`b_j` (rows below it) to :math:`b_{j+1}`; its score is minus its distance from
the rank :math:`qn + \kappa`:

.. math:: u_j = -\max(b_j - qn - \kappa,\; 0,\; qn + \kappa - b_{j+1}),

where the first cell extends to −∞ and the last to ∞, so the best score is 0. A unit with at most m
rows changes :math:`b - qn = (1 - q)b - q(n - b)` by at most :math:`m\max(q, 1 - q)` if it is added
or removed, and by at most m if it is replaced; a maximum of such functions changes no more. The
exponential mechanism [MT07]_ picks a cell.

*Interval.* With κ = 0 the pick is the value. Two more picks, at κ = ∓w, are the ends: the
probability that a pick scores −w or less is at most :math:`m_c e^{-\varepsilon w/(2\Delta)}` for
m_c cells, which is 2.5 % for :math:`w = (2\Delta/\varepsilon)\ln(m_c/0.025)`. If it scores more,
the cell picked at rank qn − w has :math:`b_j < qn`, so its left edge is not above the quantile; the
upper end is symmetric. Half of ε is for the value, a quarter for each end.

*Top k* runs permute-and-flip [MS20]_ k times with ε/k, each time among the remaining keys.

References
----------
.. [MT07] McSherry, Talwar. Mechanism design via differential privacy. FOCS 2007.
.. [MS20] McKenna, Sheldon. Permute-and-flip. NeurIPS 2020.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.central.queries.contribution import Contribution
from tacit.central.queries.estimates import LEVEL, NoisyValue
from tacit.central.queries.grid import Grid
from tacit.central.queries.model import Quantile, TopK
from tacit.privacy import events
from tacit.privacy.mechanisms import Exponential, PermuteAndFlip
from tacit.privacy.randomness import Randomness

Reals = npt.NDArray[np.float64]

SHARES = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))
_FAR = 2**52
"""Limit of scores: integers up to it are exact in floats, and clipping raises no sensitivity."""


def cells_of(query: Quantile, grid: Grid) -> int:
    """Return the number of cells: that of the query, or one per integer if that is fewer."""
    return grid.top + 1 if grid.whole and grid.top < query.cells else query.cells


def edges_of(grid: Grid, cells: int, cell: int) -> tuple[float, float]:
    """Return the left and right end of a cell; both are equal if a cell is one integer."""
    if grid.whole and cells == grid.top + 1:
        return grid.lower + cell, grid.lower + cell
    width = grid.upper - grid.lower
    return grid.lower + width * cell / cells, grid.lower + width * (cell + 1) / cells


def rank_sensitivity(query: Quantile, contribution: Contribution) -> int:
    """Return the sensitivity of the scores, times the denominator of the level."""
    level = Fraction(query.level)
    top = level.numerator, level.denominator - level.numerator
    most = sum(top) if contribution.replaced else max(top)
    return contribution.rows * most


def quantile_events(query: Quantile, contribution: Contribution, epsilon: Fraction) -> events.Event:
    """Return the event of three picks per group, in the groups where neighbours differ."""
    sensitivity = rank_sensitivity(query, contribution)
    picks = tuple(
        _pick(sensitivity, share * epsilon / contribution.touched, contribution) for share in SHARES
    )
    whole = events.Composed(picks)
    return events.Repeated(whole, contribution.touched) if contribution.touched > 1 else whole


def quantile(
    query: Quantile,
    grid: Grid,
    counts: dict[int, int],
    contribution: Contribution,
    epsilon: Fraction,
    rng: Randomness,
) -> NoisyValue:
    """Pick the value and the ends of the interval for one group."""
    cells = cells_of(query, grid)
    table = [counts.get(cell, 0) for cell in range(cells)]
    sensitivity = rank_sensitivity(query, contribution)
    picks = []
    for share, side in zip(SHARES, (0, -1, 1), strict=True):
        mechanism = Exponential(
            epsilon=share * epsilon / contribution.touched,  # type: ignore[arg-type]
            sensitivity=sensitivity,
            **contribution.scope,
        )
        reach = _reach(mechanism, sensitivity, cells)
        scores = rank_scores(table, Fraction(query.level), side * reach)
        picks.append(int(mechanism.release(scores, rng)))
    value, low, high = (edges_of(grid, cells, pick) for pick in picks)
    ends = (min(low[0], high[1]), max(low[0], high[1]))
    middle = (value[0] + value[1]) / 2
    return NoisyValue(min(max(middle, ends[0]), ends[1]), ends)


def rank_scores(table: list[int], level: Fraction, shift: int) -> Reals:
    """Return the scores of the cells, times the denominator of the level, in exact integers."""
    target = level.numerator * sum(table) + shift
    scores, below = [], 0
    for cell, count in enumerate(table):
        above = below + count
        before = 0 if cell == 0 else level.denominator * below - target
        beyond = 0 if cell == len(table) - 1 else target - level.denominator * above
        scores.append(-min(max(before, 0, beyond), _FAR))
        below = above
    return np.array(scores, dtype=np.float64)


def _reach(mechanism: Exponential, sensitivity: int, cells: int) -> int:
    """Return w, times the denominator of the level, rounded up."""
    tail = (1 - LEVEL) / 2
    return math.ceil(2 * sensitivity / float(mechanism.event.epsilon) * math.log(cells / tail))


def top_k_event(query: TopK, contribution: Contribution, epsilon: Fraction) -> events.Event:
    """Return the event of k picks."""
    return events.Repeated(_pick(contribution.rows, epsilon / query.k, contribution), query.k)


def _pick(sensitivity: int, epsilon: Fraction, contribution: Contribution) -> events.Exponential:
    """Return the event of one pick, as its mechanism states it."""
    one = Fraction(sensitivity)
    return events.Exponential(one, 2 * one / epsilon, **contribution.scope)


def top_k(
    query: TopK, counts: list[int], contribution: Contribution, epsilon: Fraction, rng: Randomness
) -> list[int]:
    """Choose the positions of k keys, the most frequent first.

    A unit changes each count by at most its number of rows.
    """
    mechanism = PermuteAndFlip(
        epsilon=epsilon / query.k,  # type: ignore[arg-type]
        sensitivity=contribution.rows,
        **contribution.scope,
    )
    remaining = list(range(len(counts)))
    chosen = []
    for _ in range(query.k):
        if len(remaining) == 1:
            chosen.append(remaining.pop())
            continue
        scores = np.array([float(min(counts[place], _FAR)) for place in remaining])
        chosen.append(remaining.pop(int(mechanism.release(scores, rng))))
    return chosen
