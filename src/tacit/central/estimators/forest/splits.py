r"""Choice of splits: from noisy counts, or by scores of known sensitivity.

References
----------
.. [FS10] Friedman, Schuster. Data mining with differential privacy. KDD 2010 (sensitivity of the
   information gain).
.. [HLM19] Hou, Li, Meng, Ni, Chen, Liu. DPRF: a differential privacy protection random forest.
   IEEE Access 2019.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

LEAST_ENTROPY = 0.5
"""Lower limit, in bits, of the entropy of a split that divides its gain."""

_DOUBT = 2.0
"""Multiple of the noise that is subtracted from a gain, because the best of many is biased."""

_ROUNDING = 2.0**-10  # far above the rounding error of scores up to 2^36
MOST_RECORDS = 2**31


def consistent(histograms: Reals) -> tuple[Reals, Reals]:
    r"""Make noisy histograms (nodes, m, b, K) agree on their sums, and return these (nodes, K).

    All m columns count the same records, so the mean of their sums is more accurate than each. The
    difference from a column's sum is subtracted from its b counts in equal parts. The noise of a
    sum over k bins then has variance :math:`\sigma^2 k (1 - k/b)`, at most a quarter of b, plus
    that of the total. All of this is post-processing.
    """
    sums = histograms.sum(axis=2)
    totals = sums.mean(axis=1)
    excess = (sums - totals[:, None]) / histograms.shape[2]
    return histograms - excess[:, :, None], totals


def gains(histograms: Reals, totals: Reals, deviation: float) -> Reals:
    r"""Compute Gini gains (nodes, m, b − 1) of noisy histograms, less the expected effect of noise.

    With L the class counts left of a cut, R those right of it, T their sum:

    .. math:: g = \sum_c \left[\left(L_c - T_c \tfrac{|L|}{|T|}\right)^2
                  - 2\sigma^2 k\left(1 - \tfrac{k}{b}\right)\right]
                  \frac{|T|}{\max(|L|, f)\,\max(|R|, f)}, \qquad f = 2\sigma\sqrt{b}.

    Without noise this is the decrease of Gini impurity times \|T\|. The floor f keeps sides that
    are smaller than their noise from winning.
    """
    bins = histograms.shape[2]
    left = np.cumsum(histograms, axis=2)[:, :, :-1]
    total = np.maximum(totals.sum(axis=1), 1.0)[:, None, None]
    inside = left.sum(axis=3)
    apart = left - totals[:, None, None] * (inside / total)[..., None]
    k = np.arange(1, bins)
    noise = _DOUBT * totals.shape[1] * deviation**2 * k * (1 - k / bins)
    floor = max(2 * deviation * math.sqrt(bins), 1.0)
    sides = np.maximum(inside, floor) * np.maximum(total - inside, floor)
    return np.asarray(((apart**2).sum(axis=3) - noise) * total / sides)


def blended(histograms: Integers, blend: float) -> Reals:
    r"""Score exact counts by information gain and gain ratio, mixed (nodes, m, b − 1) [HLM19]_.

    .. math:: u = n\,\mathrm{IG} \left(\lambda + \frac{1 - \lambda}{\max(\mathrm{IV}, \tau)}\right)

    with IG = H(class) − H(class | side) and IV = H(side), in bits. See `blended_sensitivity`.
    """
    left = np.cumsum(histograms, axis=2)[:, :, :-1].astype(np.float64)
    total = histograms.sum(axis=2, keepdims=True).astype(np.float64)
    sides = np.stack([left.sum(axis=3), (total - left).sum(axis=3)], axis=-1)
    gain = _disorder(total) - _disorder(left) - _disorder(total - left)
    entropy = _disorder(sides) / np.maximum(sides.sum(axis=-1), 1.0)
    return np.asarray(gain * (blend + (1 - blend) / np.maximum(entropy, LEAST_ENTROPY)))


def blended_sensitivity(records: int, blend: float) -> float:
    r"""Bound the change of any score of `blended` by one of at most this many records.

    .. math:: \Delta \le s\left(\lambda + \frac{2(1 - \lambda)}{\tau}\right), \qquad
              s = \log_2(N + 1) + \frac{1}{\ln 2}

    Notes
    -----
    Proof. Let :math:`g(x) = x\log_2 x`: its increments g(x + 1) − g(x) grow with x from 0 and are
    at most s for x ≤ N. For counts c with sum n, :math:`nH = g(n) - \sum_c g(c)`, so one record
    more changes nH by g's increment at n less that at its own count: something in [0, s]. (i) The
    gain nIG = nH(class) − Σ nH(class within a side) changes by one such term at the node less one
    at the record's side: by s at most [FS10]_. (ii) IV changes by (x − IV)/(n + 1) with x in [0, s]
    and IV ≤ 1 ≤ s, so n·|ΔIV| ≤ s. (iii) With V = max(IV, τ) and V' that of the neighbour,
    :math:`|nIG/V - (nIG)'/V'| \le |ΔnIG|/V' + (nIG/V)\,|V - V'|/V' \le s/τ + n|ΔIV|/τ \le 2s/τ`,
    because IG ≤ IV ≤ V.

    The gain ratio as published has τ = 0. Its sensitivity is its whole range, [0, n]: take one
    record of its class, alone on its side, and the ratio falls from 1 to 0. No ε can be stated for
    noise smaller than that, so the entropy in the divisor is at least τ = 1/2 bit: splits more
    uneven than 11 : 89 are not favoured further.
    """
    most = math.log2(records + 1) + 1 / math.log(2)
    return most * (blend + 2 * (1 - blend) / LEAST_ENTROPY) + _ROUNDING


def _disorder(counts: Reals) -> Reals:
    """Return n H of counts along the last axis, in bits."""
    total = counts.sum(axis=-1)
    return np.asarray((xlogy(total, total) - xlogy(counts, counts).sum(axis=-1)) / math.log(2))
