r"""A lower bound on ε from draws, with confidence.

For an event E, (ε, δ)-DP says :math:`P(E) \le e^\varepsilon P'(E) + \delta`. The event (a score
above a threshold) is chosen on one half of the draws and counted on the other, so that choosing
costs nothing; one-sided Clopper–Pearson bounds on both counts give

.. math:: \varepsilon \ge \ln\frac{\underline{P}(E) - \delta}{\overline{P'}(E)}

with the stated confidence. An audit can only refute: a bound above the claim is a proof that the
claim is false, a bound below it proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from tacit import errors
from tacit.mechanisms.base import Channel, Mechanism
from tacit.randomness import Randomness

Reals = npt.NDArray[np.float64]
Score = Callable[[Any], Reals]

_THRESHOLDS = 400


@dataclass(frozen=True)
class Bound:
    """What the draws prove: ε is at least `epsilon` at `delta`, with this confidence."""

    epsilon: float
    delta: float
    confidence: float
    samples: int

    @property
    def certifiable(self) -> float:
        """The largest ε that so many draws could ever certify."""
        half = self.samples // 2
        level = (1 - self.confidence) / 2
        return float(_log_odds(_lower(half, half, level), _upper(0, half, level), self.delta))


def lower_bound(
    mechanism: Mechanism,
    first: Any,
    second: Any,
    *,
    samples: int,
    delta: float = 0.0,
    confidence: float = 0.99,
    rng: Randomness | None = None,
) -> Bound:
    """Audit a mechanism on one pair of inputs, with `samples` draws of each.

    The scores are the likelihood ratio where the mechanism states its law, and whatever a black
    box shows otherwise.
    """
    errors.whole("lower_bound", "samples", samples, least=100, most=10**9)
    draws = [_repeat(mechanism, raw, samples, rng) for raw in (first, second)]
    if isinstance(mechanism, Channel):
        scores: list[Score] = [likelihood_ratio(mechanism, first, second)]
    else:
        # Scores learned from draws must be judged on others, or the luckiest is chosen.
        learning, draws = [d[: samples // 4] for d in draws], [d[samples // 4 :] for d in draws]
        scores = black_box(*learning)
    return bound_from_draws(draws[0], draws[1], scores, delta=delta, confidence=confidence)


def bound_from_draws(
    first: Any, second: Any, scores: list[Score], *, delta: float = 0.0, confidence: float = 0.99
) -> Bound:
    """The bound from draws at two inputs, with the best threshold of the best score."""
    delta = errors.probability("bound_from_draws", "delta", delta)
    confidence = errors.probability("bound_from_draws", "confidence", confidence, zero=False)
    samples = min(len(first), len(second))
    if samples < 2 or not scores:
        errors.refuse("bound_from_draws", "draws and scores", "given", (samples, len(scores)))
    half, level = samples // 2, (1 - confidence) / 2
    choices = [_best_event(score, first[:half], second[:half], level, delta) for score in scores]
    best = max(range(len(scores)), key=lambda index: choices[index][0])
    score, (_, threshold, swapped) = scores[best], choices[best]
    inside, outside = (
        int((score(draws[half : 2 * half]) >= threshold).sum()) for draws in (first, second)
    )
    if swapped:
        inside, outside = half - outside, half - inside
    epsilon = _log_odds(_lower(inside, half, level), _upper(outside, half, level), delta)
    return Bound(epsilon=max(epsilon, 0.0), delta=delta, confidence=confidence, samples=samples)


def likelihood_ratio(channel: Channel, first: Any, second: Any) -> Score:
    """The most powerful score there is, from the mechanism's own law."""

    def score(released: Any) -> Reals:
        laws = [
            _flat(channel.log_prob(released, _repeated(raw, len(released))))
            for raw in (first, second)
        ]
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(laws[0] - laws[1], nan=0.0)

    return score


def black_box(first: Any, second: Any) -> list[Score]:
    """Scores for a mechanism that does not state its law.

    The value; how fine its binary expansion is (floating-point noise gives itself away there); and
    for outputs that repeat, their frequencies among the draws given here.
    """
    released = np.asarray(first)
    scores: list[Score] = [_table_score(first, second)]
    if released.ndim == 1 and released.dtype.kind in "iuf":
        scores += [lambda draws: np.asarray(draws, dtype=np.float64)]
        scores += [lambda draws: -np.asarray(draws, dtype=np.float64)]
    if released.ndim == 1 and released.dtype.kind == "f":
        scores += [fineness, lambda draws: -fineness(draws)]
    return scores


def fineness(released: Any) -> Reals:
    """Minus the exponent of the last binary digit: how fine a grid the number lies on."""
    finite = np.nan_to_num(np.asarray(released, dtype=np.float64))
    mantissa, exponent = np.frexp(finite)
    digits = np.abs(mantissa * 2.0**53).astype(np.int64)
    last = digits & -digits
    trailing = np.where(digits == 0, 0, np.log2(np.maximum(last, 1)))
    return np.where(digits == 0, -1100.0, 53 - exponent - trailing)


def _table_score(first: Any, second: Any) -> Score:
    """Log-ratio of how often an output was seen, one added to each count."""
    counts: dict[Any, list[int]] = {}
    for side, draws in enumerate((first, second)):
        for key in map(_key, np.asarray(draws)):
            counts.setdefault(key, [1, 1])[side] += 1
    table = {key: math.log(a / b) for key, (a, b) in counts.items()}
    return lambda draws: np.array([table.get(key, 0.0) for key in map(_key, np.asarray(draws))])


def _key(row: Any) -> Any:
    return row.tobytes() if isinstance(row, np.ndarray) else row


def _best_event(
    score: Score, first: Any, second: Any, level: float, delta: float
) -> tuple[float, float, bool]:
    """Bound, threshold and direction (swapped: scores below it speak for the second input)."""
    values = [np.sort(score(draws)) for draws in (first, second)]
    both = np.unique(np.concatenate(values))
    thresholds = both[np.linspace(0, both.size - 1, min(both.size, _THRESHOLDS)).astype(int)]
    size = len(first)
    # Stricter than the final bounds, by the number tried: else a lucky rare event is chosen.
    strict = level / thresholds.size
    inside, outside = (size - np.searchsorted(v, thresholds, side="left") for v in values)
    choices = []
    for swapped in (False, True):
        if swapped:
            inside, outside = size - outside, size - inside
        odds = _log_odds(_lower(inside, size, strict), _upper(outside, size, strict), delta)
        best = int(np.argmax(odds))
        choices.append((float(odds[best]), float(thresholds[best]), swapped))
    return max(choices)


def _lower(count: Any, total: int, level: float) -> Any:
    """One-sided Clopper–Pearson lower bound."""
    count = np.asarray(count)
    bound = betaincinv(np.maximum(count, 1), total - count + 1, level)
    return np.where(count == 0, 0.0, bound)


def _upper(count: Any, total: int, level: float) -> Any:
    """One-sided Clopper–Pearson upper bound."""
    count = np.asarray(count)
    bound = betaincinv(count + 1, np.maximum(total - count, 1), 1 - level)
    return np.where(count == total, 1.0, bound)


def _log_odds(first: Any, second: Any, delta: float) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(np.maximum(first - delta, 0.0) / second)
    return odds if np.ndim(odds) else float(odds)


def _repeat(mechanism: Mechanism, raw: Any, samples: int, rng: Randomness | None) -> Any:
    return mechanism.release(_repeated(raw, samples), rng)


def _repeated(raw: Any, count: int) -> Any:
    return np.broadcast_to(np.asarray(raw), (count, *np.shape(raw)))


def _flat(log_prob: Any) -> Reals:
    array = np.asarray(log_prob, dtype=np.float64)
    return np.asarray(array.reshape(len(array), -1).sum(axis=1))
