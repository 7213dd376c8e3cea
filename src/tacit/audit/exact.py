r"""Exact privacy of a finite channel, over all adjacent pairs.

A table contains the log-probability of every output (column) given every input (row).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors
from tacit.privacy.mechanisms.base import Channel, FiniteChannel

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """ln P(output | input) of a finite channel, and which rows are adjacent."""

    log_prob: Reals
    pairs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.pairs:
            errors.refuse("Table", "pairs", "at least one adjacent pair", self.pairs)
        mass = np.exp(self.log_prob).sum(axis=1)
        if not bool(np.all(np.abs(mass - 1) < 1e-9)):
            errors.refuse("Table", "mass of every row", "1", float(mass[np.abs(mass - 1).argmax()]))


def tabulate(channel: FiniteChannel) -> Table:
    """Tabulate a channel that can list its inputs and outputs."""
    return tabulate_over(channel, list(channel.inputs()), list(channel.outputs()), channel.adjacent)


def tabulate_over(
    channel: Channel,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    adjacent: Callable[[Any, Any], bool],
) -> Table:
    """Tabulate a channel over chosen inputs; `outputs` must contain every possible output."""
    released = np.asarray(outputs)
    rows = []
    for raw in inputs:
        repeated = np.broadcast_to(np.asarray(raw), (len(released), *np.shape(raw)))
        rows.append(channel.log_prob(released, repeated))
    pairs = tuple(
        (i, j)
        for i, first in enumerate(inputs)
        for j, second in enumerate(inputs)
        if i != j and adjacent(first, second)
    )
    return Table(np.array(rows), pairs)


def profile(table: Table, epsilon: float) -> float:
    r"""Return the smallest δ at ε: the largest hockey-stick divergence of a pair.

    .. math:: \delta(\varepsilon) = \max_{x \sim x'} \sum_y
              \left(P(y \mid x) - e^\varepsilon P(y \mid x')\right)_+
    """
    mass = np.exp(table.log_prob)
    # Scaled masses above 1 exceed any other mass and can be capped.
    epsilon = min(epsilon, 1e6)
    scaled = np.exp(np.minimum(table.log_prob + epsilon, 1.0))
    return max(float(np.maximum(mass[i] - scaled[j], 0).sum()) for i, j in table.pairs)


def smallest_epsilon(table: Table, delta: float = 0.0) -> float:
    """Return the smallest ε at δ over all pairs; infinite if an output excludes an input."""
    delta = errors.probability("smallest_epsilon", "delta", delta)
    return max(_pair_epsilon(table.log_prob[i], table.log_prob[j], delta) for i, j in table.pairs)


def _pair_epsilon(log_first: Reals, log_second: Reals, delta: float) -> float:
    r"""Return :math:`\max_L \ln\frac{A_L - \delta}{B_L}` over the L outputs of largest ratio."""
    possible = np.isfinite(log_first)
    log_first, log_second = log_first[possible], log_second[possible]
    ratio = log_first - log_second
    if delta == 0:
        return max(float(ratio.max()), 0.0)
    order = np.argsort(-ratio)
    excess = np.cumsum(np.exp(log_first[order]), dtype=np.longdouble) - delta
    above = excess > 1e-15 * delta  # the rounding error of a δ that is used up
    with np.errstate(divide="ignore"):
        other = np.logaddexp.accumulate(log_second[order])
        odds = np.log(excess[above].astype(np.float64)) - other[above]
    return max(float(odds.max(initial=0.0)), 0.0)
