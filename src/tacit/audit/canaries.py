r"""Audits of a whole fit by canaries: records that an insecure fit would reveal.

There are two ways. `canary_bound` fits many times with the canary and without; each release is a
draw, and `tacit.audit.statistical` bounds ε from the draws of the two neighbours. `one_run_bound`
fits once, with many canaries that were each included or left out by a coin. Under (ε, δ)-DP, the
number of coins guessed right from the release is bounded by a binomial variable [SNJ23]_:

.. math:: P(V \ge v) \le P(W \ge v) + \delta\,\max_{1 \le i \le v} \frac{2m}{i}\,
          P(v > W \ge v - i), \qquad
          W \sim \mathrm{Bin}\!\left(r, \frac{e^\varepsilon}{1 + e^\varepsilon}\right)

for V right guesses out of r about m canaries.

Notes
-----
An audit can only refute, and only if the canary is a worst case: at the clipping bound, in a
direction that no other record has. Neighbours here differ by one record more or less. If the number
of records is public (it sets a sampling probability, or a divisor), they must not differ in it:
`absent` is a record that contributes nothing, and takes the canary's place.

The vector that a fit returns must contain everything that is released, and may contain what is
computed from that. These functions compute with the records at hand: use synthetic records.

References
----------
.. [SNJ23] Steinke, Nasr, Jagielski. Privacy auditing with one (1) training run. NeurIPS 2023
   (Theorem 5.2, Corollary 5.4).
.. [JUO20] Jagielski, Ullman, Oprea. Auditing differentially private machine learning. NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, gammaln, xlog1py, xlogy

from tacit.audit.coins import apart, coins
from tacit.audit.statistical import Bound, Score, bound_from_draws
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness

Reals = npt.NDArray[np.float64]
Fit = Callable[[Any], Any]
"""Maps rows to the vector of everything that was released."""

_FEW = 8
_FLOOR = 1e-9  # relative to a coordinate's size: prevents division by zero without noise
_FINEST, _WIDEST = 0.05, 50.0


def canary_bound(
    fit: Fit,
    data: Any,
    canary: Any,
    *,
    runs: int,
    absent: Any = None,
    delta: float = 0.0,
    confidence: float = 0.99,
    scores: Sequence[Score] | None = None,
) -> Bound:
    """Compute a lower bound on ε at δ, from `runs` fits with the canary and as many without.

    Parameters
    ----------
    fit : callable
        `fit(rows)` gives the vector of everything that was released. It must draw fresh noise at
        every call. Vectors of unequal length are padded, and the length is appended as one more
        number. Of millions of weights, return the thousands that the canary moves most.
    data : array of shape (n, …)
        The other records.
    canary : array
        One record: a worst case for what is audited.
    runs : int
        At least 40. `Bound.certifiable` says what this many runs could show.
    absent : array, optional
        A record that contributes nothing, in the canary's place, if the number of records is
        public. By default, the neighbour has one record fewer.
    scores : sequence of callables, optional
        Functions that tell the two apart, if known: `matched_filter`, or a likelihood ratio. Each
        takes draws, one per row, and gives one number per draw. By default a quarter of the runs is
        used to learn some: see `learned_scores`.

    Notes
    -----
    Scores are learned on a first part of the runs, one of them and a threshold are chosen on a
    second, and the third is counted: the confidence is that of the last part alone. A `Bound` above
    the claim refutes it.
    """
    runs = errors.whole("canary_bound", "runs", runs, least=40, most=10**9)
    rows = np.asarray(data)
    without = _with(rows, None if absent is None else np.asarray(absent)[None])
    draws = [
        [fit(data_set) for _ in range(runs)] for data_set in (_with(rows, _one(canary)), without)
    ]
    stacked = _stacked([*draws[0], *draws[1]])
    first, second = stacked[:runs], stacked[runs:]
    if scores is None:
        learning = runs // 4
        scores = learned_scores(first[:learning], second[:learning])
        first, second = first[learning:], second[learning:]
    return bound_from_draws(first, second, list(scores), delta=delta, confidence=confidence)


def matched_filter(direction: Any) -> Score:
    """Score released vectors by their projection on a direction: best for equal Gaussian noise."""
    known = np.asarray(direction, dtype=np.float64).ravel()
    return lambda draws: np.asarray(draws[:, : len(known)] @ known)


def learned_scores(first: Reals, second: Reals) -> list[Score]:
    r"""Learn scores for draws of unknown laws, to be evaluated on other draws.

    They are: the coordinate that separates the two best (by Mann and Whitney's statistic); linear
    discriminants with a variance for each coordinate, over those that differ most and over all; the
    ratio of two normal laws, for changes of spread; and how often a coordinate had exactly this
    value, over all coordinates and for the most informative one. Each comes twice, first
    thresholded where it separates these draws best: in the middle of a gap, where fresh draws are
    unlikely.

    .. math:: s(x) = \sum_j \frac{m_j - m'_j}{v_j}\,x_j, \qquad
              s(x) = \sum_j \ln\frac{1 + \#\{i : x_{ij} = x_j\}}{1 + \#\{i : x'_{ij} = x_j\}}
    """
    size = np.maximum(np.abs(first).max(axis=0), np.abs(second).max(axis=0))
    floor = (_FLOOR * np.where(size > 0, size, 1.0)) ** 2
    means = [side.mean(axis=0) for side in (first, second)]
    variances = [side.var(axis=0) + floor for side in (first, second)]
    middle, apart = (means[0] + means[1]) / 2, means[0] - means[1]
    pooled = (variances[0] + variances[1]) / 2
    best = int(np.argmax(_ordered(first, second)))
    most = np.argsort(-np.abs(apart) / np.sqrt(pooled), kind="stable")[:_FEW]
    scores: list[Score] = [
        lambda draws: np.asarray(draws[:, best]),
        _linear(middle, apart / pooled, most),
        _linear(middle, apart / pooled, slice(None)),
        _normal_ratio(means, variances),
        *_repetitions(first, second),
    ]
    return [*(_cut(score, first, second) for score in scores), *scores]


def _cut(score: Score, first: Reals, second: Reals) -> Score:
    """Return 1 above the value that separates the draws best, 0 below."""
    sides = [np.sort(score(side)) for side in (first, second)]
    values = np.unique(np.concatenate(sides))
    middles = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    shares = [np.searchsorted(side, middles) / len(side) for side in sides]
    place = middles[int(np.argmax(np.abs(shares[0] - shares[1])))]
    return lambda draws: np.asarray(score(draws) > place, dtype=np.float64)


def _ordered(first: Reals, second: Reals) -> Reals:
    """Return how well each coordinate separates the two: 0 to 1/2, independent of its scale."""
    distances = []
    for mine, other in zip(first.T, np.sort(second, axis=0).T, strict=True):
        below = [np.searchsorted(other, mine, side=side).mean() for side in ("left", "right")]
        distances.append(abs(sum(below) / (2 * len(other)) - 0.5))
    return np.array(distances)


def _linear(middle: Reals, weights: Reals, kept: Any) -> Score:
    return lambda draws: np.asarray((draws[:, kept] - middle[kept]) @ weights[kept])


def _normal_ratio(means: list[Reals], variances: list[Reals]) -> Score:
    def score(draws: Reals) -> Reals:
        first, second = (
            ((draws - mean) ** 2 / variance + np.log(variance)).sum(axis=1)
            for mean, variance in zip(means, variances, strict=True)
        )
        return np.asarray(second - first)

    return score


def _repetitions(first: Reals, second: Reals) -> list[Score]:
    """Score by log-ratios of how often each coordinate's value was seen, plus one."""
    ordered = np.sort(np.concatenate([first, second]), axis=0)
    # If no value occurred twice there is nothing to learn, and there are many weights.
    places = np.flatnonzero((np.diff(ordered, axis=0) == 0).any(axis=0))
    if not places.size:
        return []
    tables: list[dict[float, float]] = []
    for columns in zip(first[:, places].T, second[:, places].T, strict=True):
        seen = [dict(zip(*np.unique(c, return_counts=True), strict=True)) for c in columns]
        values = seen[0].keys() | seen[1].keys()
        ratios = {v: math.log((1 + seen[0].get(v, 0)) / (1 + seen[1].get(v, 0))) for v in values}
        tables.append(ratios)

    def ratios_of(draws: Reals) -> Reals:
        rows = (
            [t.get(v, 0.0) for t, v in zip(tables, row, strict=True)] for row in draws[:, places]
        )
        return np.array(list(rows))

    def strongest(draws: Reals) -> Reals:
        ratios = ratios_of(draws)
        return np.asarray(ratios[np.arange(len(ratios)), np.abs(ratios).argmax(axis=1)])

    return [lambda draws: np.asarray(ratios_of(draws).sum(axis=1)), strongest]


# --- one run, many canaries ------------------------------------------------------------------


@dataclass(frozen=True)
class OneRun:
    """The result of one fit: ε is at least `epsilon` at `delta`, with this confidence."""

    epsilon: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    right: int

    @classmethod
    def of(
        cls, canaries: int, guesses: int, right: int, *, delta: float, confidence: float
    ) -> OneRun:
        """Return what this many right guesses prove; `guesses` is fixed before any result."""
        epsilon = _largest_refuted(canaries, guesses, right, delta, 1 - confidence)
        return cls(epsilon, delta, confidence, canaries, guesses, right)

    @property
    def certifiable(self) -> float:
        """Return the largest ε that this many guesses could ever certify."""
        known = (self.canaries, self.guesses, self.guesses)
        return _largest_refuted(*known, self.delta, 1 - self.confidence)


def one_run_bound(
    fit: Fit,
    data: Any,
    canaries: Any,
    score: Callable[[Any], Any],
    *,
    guesses: int,
    absent: Any = None,
    delta: float = 0.0,
    confidence: float = 0.99,
    rng: Randomness | None = None,
) -> OneRun:
    """Compute a lower bound on ε at δ from one fit, with a coin for each canary.

    Parameters
    ----------
    fit, data, absent, delta, confidence
        As in `canary_bound`; `absent` takes the place of every canary that is left out.
    canaries : array of shape (m, …)
        Records that do not interfere: each in a direction of its own.
    score : callable
        `score(released)` gives one number per canary, larger where it seems to be included.
    guesses : int
        r, even, fixed beforehand: the highest half of these scores are guessed in, the lowest out.
    rng : Randomness, optional
        Randomness of the coins; by default the operating system's. It may be the same seed or
        generator as the fit's: coins are drawn from a separate stream.
    """
    records = np.asarray(canaries)
    count = errors.whole("one_run_bound", "canaries", len(records), least=2, most=10**7)
    guesses = errors.whole("one_run_bound", "guesses", guesses, least=2, most=count)
    delta = errors.probability("one_run_bound", "delta", delta)
    confidence = errors.probability("one_run_bound", "confidence", confidence, zero=False)
    if guesses % 2:
        errors.refuse("one_run_bound", "guesses", "even", guesses)
    inside = coins(count, apart(rng))
    if absent is None:
        put = records[inside]
    else:
        mask = inside.reshape(-1, *[1] * (records.ndim - 1))
        put = np.where(mask, records, np.asarray(absent)[None]).astype(records.dtype)
    seen = np.asarray(score(fit(_with(np.asarray(data), put))), dtype=np.float64)
    if seen.shape != (count,):
        errors.refuse("one_run_bound", "score", f"of {count} numbers", seen.shape)
    order = np.argsort(-np.nan_to_num(seen), kind="stable")
    half = guesses // 2
    right = int(inside[order[:half]].sum() + (~inside[order[-half:]]).sum())
    return OneRun.of(count, guesses, right, delta=delta, confidence=confidence)


def chance_of(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    r"""Bound the probability, under (ε, δ)-DP, of this many right guesses or more.

    .. math:: P(W \ge v) + \delta\,\max_i \frac{2m}{i} P(v > W \ge v - i)
    """
    if right == 0:
        return 1.0
    odds = 1 / (1 + math.exp(-epsilon))
    tail = float(betainc(right, guesses - right + 1, odds))
    below = np.arange(right - 1, -1, -1)
    ways = gammaln(guesses + 1) - gammaln(below + 1) - gammaln(guesses - below + 1)
    mass = np.exp(ways + xlogy(below, odds) + xlog1py(guesses - below, -odds))
    worst = float((np.cumsum(mass) / np.arange(1, right + 1)).max())
    return min(tail + 2 * canaries * delta * worst, 1.0)


def _largest_refuted(
    canaries: int, guesses: int, right: int, delta: float, significance: float
) -> float:
    """Return the ε up to which every value is refuted, searching from below to skip no gap."""

    def refuted(epsilon: float) -> bool:
        return chance_of(canaries, guesses, right, epsilon, delta) < significance

    if not refuted(0.0):
        return 0.0
    lower = 0.0
    while lower < _WIDEST and refuted(lower + _FINEST):
        lower += _FINEST
    upper = lower + _FINEST
    for _ in range(40):
        middle = (lower + upper) / 2
        lower, upper = (middle, upper) if refuted(middle) else (lower, middle)
    return lower


# --- rows and draws --------------------------------------------------------------------------


def _one(record: Any) -> npt.NDArray[Any]:
    return np.asarray(record)[None]


def _with(rows: npt.NDArray[Any], more: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """Append more rows."""
    if more is None:
        return rows
    if more.shape[1:] != rows.shape[1:]:
        errors.refuse("canaries", "canary", f"of shape {rows.shape[1:]}", more.shape[1:])
    return np.concatenate([rows, more.astype(rows.dtype, copy=False)])


def _stacked(draws: list[Any]) -> Reals:
    """Stack one draw per row, padded to the longest, with the length if lengths differ."""
    flat = [np.asarray(draw, dtype=np.float64).ravel() for draw in draws]
    lengths = np.array([len(one) for one in flat])
    stacked = np.zeros((len(flat), int(lengths.max()) + 1))
    for row, one in zip(stacked, flat, strict=True):
        row[: len(one)] = one
    stacked[:, -1] = lengths
    return np.nan_to_num(stacked)
