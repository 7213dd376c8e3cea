r"""Private selection by score: the exponential mechanism, and permute-and-flip.

References
----------
.. [MT07] McSherry, Talwar. Mechanism design via differential privacy. FOCS 2007.
.. [MS20] McKenna, Sheldon. Permute-and-flip: a new mechanism for differentially private
   selection. NeurIPS 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.randomness import Randomness, bernoulli_exp_each, source, uniform_below
from tacit.privacy.rounding import exp_floor
from tacit.privacy.shown import Shown

_DOUBT = 2.0**-36
_MOST_CANDIDATES = 2**14
_LARGEST_SCORE = 1e150

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, repr=False)
class _Selection(Shown):
    """Abstract base of both mechanisms: parameters, event and guarantee."""

    epsilon: float
    sensitivity: float
    adjacency: Adjacency
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        _ = self.event

    @cached_property
    def event(self) -> events.Exponential:
        where = type(self).__name__
        epsilon = errors.epsilon_in_range(where, self.epsilon)
        sensitivity = errors.positive(where, "sensitivity", self.sensitivity)
        scale = 2 * sensitivity / epsilon
        return events.Exponential(sensitivity, scale, adjacency=self.adjacency, unit=self.unit)

    @property
    def _rate(self) -> Fraction:
        return 1 / self.event.scale

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()


@dataclass(frozen=True, kw_only=True, repr=False)
class Exponential(_Selection):
    r"""A draw of one candidate with weight :math:`e^{\varepsilon u_i / (2\Delta)}` [MT07]_.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one choice.
    sensitivity : float
        The most by which any one score can differ between neighbours.
    adjacency, unit
        The neighbours that the sensitivity was worked out for.

    Notes
    -----
    ε-DP. Data are scores, one per candidate (last axis); the release is the index of a candidate.
    Scores are read exactly as the floats they are, and the draw inverts the exact weights: floats
    decide unless they are too close to call. `PermuteAndFlip` is never worse in expectation.
    """

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """Draw the index of a candidate for each row of scores."""
        scores, stream = _scores("Exponential", raw), source(rng)
        rows = scores.reshape(-1, scores.shape[-1])
        cumulative = np.cumsum(np.exp(-_exponents(self._rate, rows)), axis=-1)
        words = stream.words(len(rows))
        target = (words >> np.uint64(11)) * 2.0**-53 * cumulative[:, -1]
        chosen = (cumulative[:, :-1] <= target[:, None]).sum(axis=-1)
        closest = np.abs(cumulative[:, :-1] - target[:, None]).min(axis=-1, initial=math.inf)
        for row in np.flatnonzero(closest <= _DOUBT * cumulative[:, -1]):
            chosen[row] = _invert(int(words[row]), rows[row], self._rate, stream)
        return np.asarray(chosen.reshape(scores.shape[:-1]))

    def log_prob(self, released: Any, raw: Any) -> Reals:
        scores = _scores("Exponential", raw)
        log_weight = -_exponents(self._rate, scores)
        log_weight -= np.log(np.exp(log_weight).sum(axis=-1, keepdims=True))
        return _pick(log_weight, released)


@dataclass(frozen=True, kw_only=True, repr=False)
class PermuteAndFlip(_Selection):
    r"""The first candidate, in random order, whose coin lands heads [MS20]_.

    .. math:: P(\text{heads}_i) = e^{-\varepsilon(u_* - u_i)/(2\Delta)}

    Parameters are those of `Exponential`.

    Notes
    -----
    ε-DP. The first head in a random order is a uniformly random head, so all coins are flipped and
    one of the heads is drawn: the running time does not depend on the scores.
    """

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """Draw the index of a candidate for each row of scores."""
        scores, stream = _scores("PermuteAndFlip", raw), source(rng)
        rows = scores.reshape(-1, scores.shape[-1])

        def exponent(index: int) -> Fraction:
            row, column = divmod(index, rows.shape[1])
            return self._rate * _exact_gap(rows[row], column)

        approximate = _exponents(self._rate, rows)
        heads = bernoulli_exp_each(approximate.ravel(), exponent, stream).reshape(rows.shape)
        order = np.cumsum(heads, axis=-1) * heads
        chosen = [
            int(np.flatnonzero(row)[uniform_below(int(row.max()), 1, stream)[0]]) for row in order
        ]
        return np.array(chosen, dtype=np.int64).reshape(scores.shape[:-1])

    def log_prob(self, released: Any, raw: Any) -> Reals:
        r"""Return the log of :math:`p_i \int_0^1 \prod_{j \ne i}(1 - p_j + p_j t)\,dt`.

        The integrand is a polynomial, on which the quadrature is exact.
        """
        scores = _scores("PermuteAndFlip", raw)
        log_heads = -_exponents(self._rate, scores)
        heads = np.exp(log_heads)
        nodes, weights = np.polynomial.legendre.leggauss(scores.shape[-1] // 2 + 1)
        at = (nodes + 1) / 2
        factors = 1 - heads[..., None] + heads[..., None] * at
        total = np.prod(factors, axis=-2, keepdims=True)
        others = (total / factors * weights).sum(axis=-1) / 2
        return _pick(log_heads + np.log(others), released)


def _scores(where: str, raw: Any) -> Reals:
    scores = errors.held_reals(where, raw)
    if scores.ndim == 0 or not 2 <= scores.shape[-1] <= _MOST_CANDIDATES:
        raise errors.InvalidData(
            f"{where}: data must be scores of 2 to {_MOST_CANDIDATES} candidates, "
            f"got shape {scores.shape}."
        )
    # Clipped, not refused: a refusal would reveal with certainty which neighbour is beyond.
    return np.clip(scores, -_LARGEST_SCORE, _LARGEST_SCORE)


def _gaps(scores: Reals) -> Reals:
    return np.asarray(scores.max(axis=-1, keepdims=True) - scores)


def _exponents(rate: Fraction, scores: Reals) -> Reals:
    with np.errstate(over="ignore"):  # a probability below the smallest float is 0
        return np.asarray(float(rate) * _gaps(scores))


def _exact_gap(scores: Reals, index: int) -> Fraction:
    return Fraction(float(scores.max())) - Fraction(float(scores[index]))


def _pick(log_prob: Reals, released: Any) -> Reals:
    chosen = errors.integers("log_prob", released, lower=0, upper=log_prob.shape[-1] - 1)
    shape = np.broadcast_shapes(chosen.shape, log_prob.shape[:-1])
    table = np.broadcast_to(log_prob, (*shape, log_prob.shape[-1]))
    index = np.broadcast_to(chosen, shape)[..., None]
    return np.take_along_axis(table, index, axis=-1)[..., 0]


def _invert(prefix: int, scores: Reals, rate: Fraction, rng: Randomness) -> int:
    """Decide a draw that floats could not: enclose the cumulative weights in integers."""
    exponents = [-rate * _exact_gap(scores, index) for index in range(len(scores))]
    bits = 64
    while True:
        weights = [exp_floor(exponent, bits + 64) for exponent in exponents]
        lower = np.cumsum(np.array(weights, dtype=object))
        upper = lower + np.arange(1, len(weights) + 1)
        # U times the total lies between these two.
        least, most = prefix * int(lower[-1]), (prefix + 1) * int(upper[-1])
        first = int(sum(int(edge) << bits <= least for edge in upper[:-1]))
        last = int(sum(int(edge) << bits < most for edge in lower[:-1]))
        if first == last:
            return first
        prefix = prefix << 64 | int(rng.words(1)[0])
        bits += 64
