"""Scores of the Hellinger mechanism: distances of posteriors, divided by a sensitivity.

References
----------
.. [NRS07] Nissim, Raskhodnikova, Smith. Smooth sensitivity. STOC 2007.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.posteriors import hellinger_distance as distance
from tacit.privacy import errors
from tacit.privacy.mechanisms.integer_rows import Symmetry

SENSITIVITIES = ("smooth", "local", "global")
_MOST_COUNTS = 2**15
_MOST_IMAGES = 2**23

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """Distances and sensitivities of all posteriors of n records.

    Attributes
    ----------
    listed : array
        All counts, in the order of rows and columns.
    pairs : array
        Neighbouring rows.
    symmetry : Symmetry
        Exchanges of categories with equal priors: arrays store one row per orbit.
    distances : array
        H(BI(x), r), one stored row per x, one column per r.
    local, sensitivity : array
        LS(x) and the S(x) in use, for every x.
    smoothing : float
        γ; 0 where S is not smooth, or is global.
    """

    listed: Integers
    pairs: Integers
    symmetry: Symmetry
    distances: Reals
    local: Reals
    sensitivity: Reals
    smoothing: float

    def scaled(self) -> Reals:
        """Return F = H / S, one row per orbit."""
        return np.asarray(self.distances / self.sensitivity[self.symmetry.firsts][:, None])

    def both_ways(self) -> list[tuple[int, int]]:
        """Return all neighbours, in both directions, up to symmetry."""
        ways = np.concatenate([self.pairs, self.pairs[:, ::-1]])
        return [(int(x), int(y)) for x, y in self.symmetry.representatives(ways)]

    def spread(self) -> float:
        """Return D of T1: the largest change of any F between neighbours."""
        scaled, row = self.scaled(), self.symmetry.row
        pairs = self.both_ways()
        return max(float((row(scaled, x) - row(scaled, y)).max()) for x, y in pairs)


def gamma(epsilon: float, delta: float, size: int) -> float:
    r"""Return :math:`\ln(1 - \varepsilon / (2 \ln(\delta / (2|R|))))` of Lemma 3.2; 0 at δ = 0."""
    return math.log1p(-epsilon / (2 * math.log(delta / (2 * size)))) if delta else 0.0


def score(
    prior: Sequence[float],
    total: int,
    *,
    epsilon: float | Fraction,
    delta: float = 0.0,
    sensitivity: str = "smooth",
) -> Scores:
    r"""Compute the distances of all posteriors, with a sensitivity S.

    "local": LS(x), the largest distance to a neighbour (by the triangle inequality); "global": its
    maximum; "smooth": :math:`\max_{x'} LS(x') e^{-\gamma d(x, x')}` over all x' [NRS07]_, with γ as
    in Lemma 3.2.
    """
    where = "hellinger"
    alphas = tuple(_component(one) for one in prior)
    size = _size(len(alphas), errors.whole(where, "total", total, least=1))
    epsilon = float(errors.epsilon_in_range(where, epsilon))
    delta = errors.probability(where, "delta", delta)
    errors.choice(where, "sensitivity", sensitivity, SENSITIVITIES)
    listed = distance.counts(len(alphas), total)
    symmetry = _symmetry(alphas, listed)
    tables = [distance.coordinate(alpha, total) for alpha in alphas]
    pairs = distance.neighbouring_counts(listed)
    local = _local(tables, listed, pairs)
    smoothing = gamma(epsilon, delta, size) if sensitivity == "smooth" else 0.0
    chosen = local if sensitivity == "local" else _smooth(local, pairs, smoothing)
    rows = np.empty((len(symmetry.firsts), size))
    for row, first in enumerate(symmetry.firsts):
        rows[row] = distance.distances(tables, listed[first], listed)
    return Scores(listed, pairs, symmetry, rows, local, chosen, smoothing)


def _local(tables: list[Reals], listed: Integers, pairs: Integers) -> Reals:
    between = distance.distances(tables, listed[pairs[:, 0]], listed[pairs[:, 1]])
    local = np.zeros(len(listed))
    for side in (0, 1):
        np.maximum.at(local, pairs[:, side], between)
    return local


def _smooth(local: Reals, pairs: Integers, smoothing: float) -> Reals:
    """Relax over the graph of neighbours; without smoothing, take the maximum."""
    if smoothing == 0:
        return np.full_like(local, local.max())
    smooth, keep = local.copy(), math.exp(-smoothing)
    while True:
        before = smooth.copy()
        for here, there in (pairs.T, pairs.T[::-1]):
            np.maximum.at(smooth, there, keep * before[here])
        if np.array_equal(smooth, before):
            return smooth


def _component(value: Any) -> float:
    number = float(errors.positive("hellinger", "prior", value))
    if not 1e-6 <= number <= 1e9:
        errors.refuse("hellinger", "prior", "from 1e-6 to 1e9", value)
    return number


def _size(categories: int, total: int) -> int:
    """Return |R|, or refuse if its table would be too large."""
    if categories < 2:
        errors.refuse("hellinger", "prior", "two numbers, or more", categories)
    size = math.comb(total + categories - 1, categories - 1)
    if size > _MOST_COUNTS:
        remedy = "Use geometric noise, which needs no table."
        errors.refuse("hellinger", "posteriors", f"at most {_MOST_COUNTS}", size, remedy)
    return size


def _symmetry(prior: tuple[float, ...], listed: Integers) -> Symmetry:
    images = math.prod(math.factorial(prior.count(one)) for one in set(prior)) * len(listed)
    if images > _MOST_IMAGES:
        return Symmetry.none(len(listed))
    return distance.symmetry(prior, listed)
