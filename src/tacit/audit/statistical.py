r"""A lower bound on ε from draws, with confidence.

For an event E, (ε, δ)-DP says :math:`P(E) \le e^\varepsilon P'(E) + \delta`. The event (a score
above a threshold) is chosen on one half of the draws and counted on the other, so that choosing
costs nothing. Scores are the ratio of the stated laws, if there are any, and what the draws
themselves show: a sampler that does not follow its stated law is not judged by that law alone.
One-sided Clopper–Pearson bounds on both counts give

.. math:: \varepsilon \ge \ln\frac{\underline{P}(E) - \delta}{\overline{P'}(E)}

with the stated confidence. If a law is stated, its event and the event of the draws are counted
separately, each at half of the risk, and the larger bound is kept: a law that does well on the
draws that choose, and says nothing about those that are counted, cannot displace the other event.

An audit can only refute: a bound above the claim is a proof that the claim is false, a bound below
it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from tacit.audit import law
from tacit.privacy import errors
from tacit.privacy.mechanisms.base import Channel, Mechanism
from tacit.privacy.randomness import Randomness

Reals = npt.NDArray[np.float64]
Score = Callable[[Any], Reals]

_THRESHOLDS = 400
_QUANTILES = np.linspace(0, 1, 65)[1:-1]


@dataclass(frozen=True)
class Bound:
    """A proved bound: ε is at least `epsilon` at `delta`, with this confidence."""

    epsilon: float
    delta: float
    confidence: float
    samples: int
    events: int = 1
    """Number of events that were counted, each at its share of the risk."""

    @property
    def certifiable(self) -> float:
        """Return the largest ε that this many draws could ever certify."""
        half = self.samples // 2
        level = (1 - self.confidence) / (2 * self.events)
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

    The first quarter of the draws is used to learn scores that tell the two inputs apart
    (`black_box`), the second quarter to choose an event among these scores and, if the mechanism
    states its law, another by the likelihood ratio; the other half is counted.
    """
    errors.whole("lower_bound", "samples", samples, least=100, most=10**9)
    draws = [mechanism.release(law.repeated(raw, samples), rng) for raw in (first, second)]
    quarter, half = samples // 4, samples // 2
    families = [black_box(*(d[:quarter] for d in draws))]
    if isinstance(mechanism, Channel):
        families.append([_in_batches(likelihood_ratio(mechanism, first, second), quarter)])
    choosing, counting = [d[quarter:half] for d in draws], [d[half : 2 * half] for d in draws]
    return _bound(choosing, counting, families, delta=delta, confidence=confidence)


def bound_from_draws(
    first: Any, second: Any, scores: list[Score], *, delta: float = 0.0, confidence: float = 0.99
) -> Bound:
    """Compute the bound from draws at two inputs, with the best threshold of the best score."""
    samples = min(len(first), len(second))
    if samples < 2 or not scores:
        errors.refuse("bound_from_draws", "draws and scores", "given", (samples, len(scores)))
    half = samples // 2
    choosing, counting = (
        [first[:half], second[:half]],
        [d[half : 2 * half] for d in (first, second)],
    )
    bound = _bound(choosing, counting, [scores], delta=delta, confidence=confidence)
    return replace(bound, samples=samples)


def _bound(
    choosing: Sequence[Any],
    counting: Sequence[Any],
    families: Sequence[list[Score]],
    *,
    delta: float,
    confidence: float,
) -> Bound:
    """Choose one event per family of scores on some draws, and count it on the others."""
    delta = errors.probability("bound_from_draws", "delta", delta)
    confidence = errors.probability("bound_from_draws", "confidence", confidence, zero=False)
    level = (1 - confidence) / (2 * len(families))
    bounds = [_counted(choosing, counting, scores, level, delta) for scores in families]
    total = 2 * len(counting[0])
    return Bound(max(0.0, *bounds), delta, confidence, samples=total, events=len(families))


def _counted(
    choosing: Sequence[Any],
    counting: Sequence[Any],
    scores: list[Score],
    level: float,
    delta: float,
) -> float:
    """Compute the bound from the best event of some scores; each of both counts errs at `level`."""
    choices = [_best_event(score, choosing[0], choosing[1], level, delta) for score in scores]
    best = max(range(len(scores)), key=lambda index: choices[index][0])
    score, (_, threshold, swapped) = scores[best], choices[best]
    total = len(counting[0])
    inside, outside = (int((score(draws) >= threshold).sum()) for draws in counting)
    if swapped:
        inside, outside = total - outside, total - inside
    return float(_log_odds(_lower(inside, total, level), _upper(outside, total, level), delta))


def _in_batches(score: Score, size: int) -> Score:
    """Ask for the score in batches of one size: the number of draws would tell their purpose."""

    def batched(draws: Any) -> Reals:
        count = len(draws)
        places = np.resize(np.arange(count), -(-count // size) * size).reshape(-1, size)
        return np.concatenate([score(draws[batch]) for batch in places])[:count]

    return batched


def likelihood_ratio(channel: Channel, first: Any, second: Any) -> Score:
    """Return the most powerful score, from the mechanism's own law."""

    def score(released: Any) -> Reals:
        laws = [law.log_chances(channel, released, raw) for raw in (first, second)]
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(laws[0] - laws[1], nan=0.0)

    return score


def black_box(first: Any, second: Any) -> list[Score]:
    """Learn scores that need no law from these draws, to be evaluated on others.

    They are: how often an output was seen at each input; the same with entries sorted into bins,
    for outputs that hardly repeat; the value, whose tails are events; and how fine its binary
    expansion is, which reveals floating-point noise.
    """
    released = np.asarray(first)
    scores: list[Score] = [_table_score(first, second)]
    if released.dtype.kind not in "iuf":
        return scores
    scores.append(_binned_score(first, second))
    if released[0].size == 1:
        values: list[Score] = [_values]
        if released.dtype.kind == "f":
            values.append(lambda draws: fineness(_values(draws)))
        scores += [one for score in values for one in (score, _negative(score))]
    return scores


def fineness(released: Any) -> Reals:
    """Return minus the exponent of the last binary digit: how fine a grid the number lies on."""
    finite = np.nan_to_num(np.asarray(released, dtype=np.float64))
    mantissa, exponent = np.frexp(finite)
    digits = np.abs(mantissa * 2.0**53).astype(np.int64)
    last = digits & -digits
    trailing = np.where(digits == 0, 0, np.log2(np.maximum(last, 1)))
    return np.where(digits == 0, -1100.0, 53 - exponent - trailing)


def _table_score(first: Any, second: Any) -> Score:
    """Score by the log-ratio of how often an output was seen, with one added to each count."""
    both = np.concatenate([np.asarray(first), np.asarray(second)])
    _, kept = np.unique(law.keys(both), return_index=True)
    outputs = both[kept]
    counts = [
        np.bincount(law.places(outputs, side), minlength=len(outputs)) for side in (first, second)
    ]
    ratios = np.append(np.log((1.0 + counts[0]) / (1.0 + counts[1])), 0.0)
    return lambda draws: np.asarray(ratios[law.places(outputs, draws)])


def _binned_score(first: Any, second: Any) -> Score:
    """Sum over entries of the log-ratio of their bins, of equal mass in these draws."""
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    both = np.nan_to_num(np.concatenate(sides))
    edges = [np.unique(np.quantile(column, _QUANTILES)) for column in both.T]

    def binned(rows: Reals) -> list[npt.NDArray[np.int64]]:
        columns = np.nan_to_num(rows).T
        return [np.searchsorted(e, c, side="right") for e, c in zip(edges, columns, strict=True)]

    tables = []
    for edge, mine, theirs in zip(edges, *map(binned, sides), strict=True):
        one, two = (np.bincount(codes, minlength=len(edge) + 1) for codes in (mine, theirs))
        tables.append(np.log((1.0 + one) / (1.0 + two)))

    def score(draws: Any) -> Reals:
        rows = np.asarray(draws, np.float64).reshape(len(draws), -1)
        pairs = zip(tables, binned(rows), strict=True)
        return np.asarray(sum((table[codes] for table, codes in pairs), np.zeros(len(rows))))

    return score


def _values(draws: Any) -> Reals:
    return np.asarray(draws, dtype=np.float64).reshape(len(draws))


def _negative(score: Score) -> Score:
    return lambda draws: -score(draws)


def _best_event(
    score: Score, first: Any, second: Any, level: float, delta: float
) -> tuple[float, float, bool]:
    """Find bound, threshold and direction (swapped: scores below it suggest the second input)."""
    values = [np.sort(score(draws)) for draws in (first, second)]
    both = np.unique(np.concatenate(values))
    thresholds = both[np.linspace(0, both.size - 1, min(both.size, _THRESHOLDS)).astype(int)]
    size = len(first)
    # Stricter than the final bounds, by the number tried: otherwise a lucky rare event is chosen.
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
    """Compute the one-sided Clopper–Pearson lower bound."""
    count = np.asarray(count)
    bound = betaincinv(np.maximum(count, 1), total - count + 1, level)
    return np.where(count == 0, 0.0, bound)


def _upper(count: Any, total: int, level: float) -> Any:
    """Compute the one-sided Clopper–Pearson upper bound."""
    count = np.asarray(count)
    bound = betaincinv(count + 1, np.maximum(total - count, 1), 1 - level)
    return np.where(count == total, 1.0, bound)


def _log_odds(first: Any, second: Any, delta: float) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(np.maximum(first - delta, 0.0) / second)
    return odds if np.ndim(odds) else float(odds)
