r"""Maximum likelihood through a finite channel: the shares of symbols that explain the reports.

A report is a set S of symbols, and P(S | x) depends on x only through whether S holds it, with odds
:math:`e^\lambda` (`SubsetSelection.log_odds`). With shares θ of the symbols,

.. math:: \ell(\theta) = \sum_i \log\Bigl(1 + (e^\lambda - 1) \sum_{x \in S_i} \theta_x\Bigr)
          + \text{const},

which is concave. Expectation-maximisation maximises it within the simplex; squared extrapolation
[VR08]_ speeds it up. Everything is post-processing of reports.

References
----------
.. [DLR77] Dempster, Laird, Rubin. Maximum likelihood from incomplete data via the EM algorithm.
.. [VR08] Varadhan, Roland. Simple and globally convergent methods for accelerating the
   convergence of any EM algorithm. Scand. J. Stat. 2008.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from tacit.local.inference.parts import clopper_pearson, showing
from tacit.local.inference.votes import Law
from tacit.privacy import errors
from tacit.privacy.mechanisms import SubsetSelection

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MAIN_SHARE, LINK_STRENGTH = 0.9, 4.0
"""The share of a codeword that has its main label, and the weight of links: `main_labels`."""

_BLOCK_CELLS = 1 << 22
_MEAN_FIELD_STEPS = 50
_SMALLEST = 1e-300


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """Reports of symbols (codeword · classes + label), and the channel they came through."""

    sets: npt.NDArray[Any]
    channel: SubsetSelection
    classes: int = 1

    def __len__(self) -> int:
        return len(self.sets)

    @property
    def codewords(self) -> int:
        return self.channel.categories // self.classes

    def likelihood(self, shares: Reals) -> tuple[float, Reals]:
        """Compute ℓ(θ) and its gradient, in the shape of the shares."""
        theta, gain = shares.ravel(), math.expm1(self.channel.log_odds)
        total, slope = 0.0, np.zeros(theta.size)
        rows = max(_BLOCK_CELLS // self.sets.shape[1], 1)
        for start in range(0, len(self.sets), rows):
            block = self.sets[start : start + rows].astype(np.intp, copy=False)
            mass = 1 + gain * theta[block].sum(axis=1)
            total += float(np.log(mass).sum())
            weights = np.repeat(gain / mass, block.shape[1])
            slope += np.bincount(block.ravel(), weights, theta.size)
        return total, slope.reshape(shares.shape)

    def resampled(self, rng: np.random.Generator) -> Evidence:
        """Draw equally many reports with replacement."""
        chosen = rng.integers(0, len(self.sets), len(self.sets))
        return Evidence(self.sets[chosen], self.channel, self.classes)


def maximum_likelihood(
    evidence: Evidence,
    prior: Reals,
    *,
    start: Reals | None = None,
    tolerance: float = 1e-6,
    steps: int = 2000,
) -> Reals:
    """Estimate the shares θ, (codewords, classes), with a Dirichlet prior on codeword shares.

    Parameters
    ----------
    evidence : Evidence
        What was reported.
    prior : array, (codewords,)
        Pseudo-counts: as if this many people of each codeword had been seen without noise.
    """
    shape = (evidence.codewords, evidence.classes)
    if start is None:
        base = (prior + 1.0) / (prior + 1.0).sum()
        start = np.repeat(base[:, None] / shape[1], shape[1], axis=1)
    theta, value = start, -math.inf
    for _ in range(steps):
        once, _ = _step(theta, evidence, prior)
        twice, reached = _step(once, evidence, prior)
        leap = _extrapolated(theta, once, twice)
        landed, height = _step(leap, evidence, prior)
        # The extrapolation may overshoot; two plain steps never do.
        new, new_value = (landed, height) if height >= reached else (twice, reached)
        change = float(np.abs(new - theta).sum())
        theta, value = new, max(new_value, value)
        if change < tolerance:
            break
    return theta


def _step(theta: Reals, evidence: Evidence, prior: Reals) -> tuple[Reals, float]:
    """Take one step of EM; return it and the objective at its start."""
    value, slope = evidence.likelihood(theta)
    # Σ_i 1/mass_i from the identity Σ_x θ_x slope_x = Σ_i (mass_i − 1)/mass_i.
    inverse = len(evidence) - float((theta * slope).sum())
    expected = theta * (inverse + slope)
    value += float((prior * np.log(np.maximum(theta.sum(axis=1), _SMALLEST))).sum())
    rows = expected.sum(axis=1) + prior
    within = expected / np.maximum(expected.sum(axis=1, keepdims=True), _SMALLEST)
    return within * (rows / rows.sum())[:, None], value


def _extrapolated(theta: Reals, once: Reals, twice: Reals) -> Reals:
    first, second = once - theta, twice - 2 * once + theta
    norm = float((second**2).sum())
    length = max(1.0, math.sqrt(float((first**2).sum()) / norm)) if norm > 0 else 1.0
    leap = theta + 2 * length * first + length**2 * second
    leap = np.maximum(leap, 1e-3 * twice)  # inside the simplex, so that EM can continue
    return np.asarray(leap / leap.sum())


@dataclass(frozen=True)
class ShiftTest:
    """A test of whether people's codewords are distributed as the in-house ones.

    Parameters
    ----------
    statistic, degrees : float, int
        Wald's statistic of the difference, χ² under "no shift".
    p_value : float
        The probability of a statistic at least this large under "no shift".
    """

    statistic: float
    degrees: int
    p_value: float


def shift_test(
    evidence: Evidence, inhouse: Integers, count_variance: Reals | float = 0.0
) -> ShiftTest:
    """Compare unbiased codeword shares from reports with in-house counts.

    Under "no shift" the covariance of the difference is known from the channel and the shares:
    nothing has to be estimated from the reports, however few they are.

    Parameters
    ----------
    evidence : Evidence
        What was reported.
    inhouse : array, (codewords,)
        In-house counts of the codewords.
    count_variance : float or array, (codewords,)
        The variance of the noise of these counts, 0 without a central guarantee. Raising
        negative counts to 0 only brings them closer to the exact ones.
    """
    k = evidence.codewords
    if not len(evidence) or not inhouse.sum() or k < 2:
        return ShiftTest(0.0, max(k - 1, 1), 1.0)
    p, q = evidence.channel.inclusion
    held = np.bincount(evidence.sets.ravel(), minlength=evidence.channel.categories)
    votes = held.reshape(k, evidence.classes).sum(axis=1) / len(evidence)
    difference = (votes - evidence.classes * q) / (p - q) - inhouse / inhouse.sum()
    share = (inhouse + 0.5) / (inhouse + 0.5).sum()
    covariance = _vote_covariance(evidence, share) / ((p - q) ** 2 * len(evidence))
    covariance += (np.diag(share) - np.outer(share, share)) / inhouse.sum()
    # Noise e on the counts moves their shares by (e − share · Σe) / Σ counts.
    moved = (np.eye(k) - share[:, None]) / inhouse.sum()
    covariance += (moved * count_variance) @ moved.T
    inverse = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    statistic = float(difference @ inverse @ difference)
    return ShiftTest(statistic, k - 1, float(chi2.sf(statistic, k - 1)))


def _vote_covariance(evidence: Evidence, share: Reals) -> Reals:
    r"""Compute the covariance of the numbers of symbols of each codeword in one report.

    Given codeword j, drawn with these shares, the report holds its own symbol with probability p
    and then :math:`m = d - 1` of the other :math:`M = KC - 1` symbols, else :math:`m = d` of them:
    a hypergeometric draw from :math:`g_j = C\,1 - e_j`. All moments are averages over j.
    """
    c, p, size = evidence.classes, evidence.channel.inclusion[0], evidence.channel.event.size
    others, ones, own = evidence.channel.categories - 1, np.ones(len(share)), np.diag(share)
    pool = c * np.diag(ones) - own
    pairs = c**2 * np.outer(ones, ones) - c * (np.outer(ones, share) + np.outer(share, ones)) + own
    mixed = c * (np.outer(ones, share) + np.outer(share, ones)) - 2 * own
    second, mean = np.zeros_like(own), np.zeros(len(share))
    for weight, drawn, held in ((p, size - 1, 1.0), (1 - p, size, 0.0)):
        rate = drawn / others
        spread = drawn * (others - drawn) / max(others - 1, 1)
        within = spread * (pool / others - pairs / others**2)
        second += weight * (within + rate**2 * pairs + held * (rate * mixed + own))
        mean += weight * (rate * (c * ones - share) + held * share)
    return np.asarray(second - np.outer(mean, mean))


def bootstrap(evidence: Evidence, prior: Reals, estimate: Reals, repeats: int, seed: int) -> Reals:
    """Estimate from resampled reports, (repeats, codewords, classes), started at the estimate."""
    repeats = errors.whole("bootstrap", "repeats", repeats, least=20, most=10_000)
    rng = np.random.default_rng(seed)
    start = np.maximum(estimate, 1e-9)
    start = start / start.sum()
    draws = []
    for _ in range(repeats):
        # The in-house rows behind the prior are a sample too.
        counts = rng.poisson(prior).astype(np.float64)
        again = evidence.resampled(rng)
        draws.append(maximum_likelihood(again, counts, start=start, tolerance=1e-4, steps=100))
    return np.stack(draws)


def main_labels(evidence: Evidence, shares: Reals, links: npt.NDArray[Any]) -> Reals:
    r"""Estimate P(main label of each codeword), (codewords, classes).

    The unbiased count of label y in codeword k is taken as normal around :math:`0.9\,n_k` for its
    main label and around an equal share of the rest for the others, with the variance that the
    channel leaves. Codewords that many in-house rows lie between (`links`) tend to share their main
    label: a Potts prior of strength β = 4, in the mean-field approximation,

    .. math:: q_k(y) \propto \exp\Bigl(\frac{n_k\,(0.9 - \frac{0.1}{C-1})}{v_k}\,\hat n_{ky}
              + \beta \sum_l L_{kl}\, q_l(y)\Bigr).

    The prior decides for small codewords, whose own counts are mostly noise; for large ones the
    counts decide.
    """
    counts = evidence.channel.estimate_counts(evidence.sets).counts
    counts = counts.reshape(evidence.codewords, evidence.classes)
    p, q = evidence.channel.inclusion
    people = len(evidence) * shares[:, None]
    variance = len(evidence) * q * (1 - q) / (p - q) ** 2 + people / 2
    contrast = MAIN_SHARE - (1 - MAIN_SHARE) / max(evidence.classes - 1, 1)
    own = counts * people * contrast / variance
    probabilities = _softmax(own)
    for _ in range(_MEAN_FIELD_STEPS):
        probabilities = _softmax(own + LINK_STRENGTH * (links @ probabilities))
    return probabilities


def _softmax(logits: Reals) -> Reals:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def interval(draws: Reals, confidence: float) -> Reals:
    """Compute percentile intervals along the first axis; the last axis holds the two ends."""
    confidence = errors.probability("interval", "confidence", confidence, zero=False)
    ends = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return np.moveaxis(ends, 0, -1)


def label_shares(evidence: Evidence) -> Reals:
    """Estimate the shares of labels: the point of the simplex nearest to the unbiased estimate."""
    counts = evidence.channel.estimate_counts(evidence.sets).counts
    shares = counts.reshape(-1, evidence.classes).sum(axis=0) / len(evidence)
    falling = np.sort(shares)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    return np.asarray(np.maximum(shares - excess[falling > excess][-1], 0.0))


def share_interval(evidence: Evidence, axis: int, confidence: float) -> Reals:
    """Compute exact intervals for shares of codewords (axis 1 summed) or labels (axis 0 summed).

    A report shows a codeword if it names at least a certain number of its symbols, chosen to be
    most informative; the number of such reports is binomial, with probabilities given by the
    channel: see `tacit.inference.parts`. The intervals also hold near 0, where a maximum at the
    edge of the simplex does not vary and a bootstrap shows nothing.
    """
    by_codeword, reports = axis == 1, len(evidence)
    count = evidence.codewords if by_codeword else evidence.classes
    channel = evidence.channel
    law = Law(channel.categories, evidence.sets.shape[1], *channel.inclusion)
    inside, outside, least = showing(law, channel.categories // count)
    shown = np.zeros(count, np.int64)
    rows = max(_BLOCK_CELLS // max(count, evidence.sets.shape[1]), 1)
    for start in range(0, reports, rows):
        block = evidence.sets[start : start + rows].astype(np.int64)
        groups = block // evidence.classes if by_codeword else block % evidence.classes
        places = groups + count * np.arange(len(block))[:, None]
        held = np.bincount(places.ravel(), minlength=count * len(block)).reshape(-1, count)
        shown += (held >= least).sum(axis=0)
    ends = clopper_pearson(shown, reports, 1 - confidence)
    return np.clip((np.stack(ends, axis=-1) - outside) / (inside - outside), 0.0, 1.0)
