r"""The number of codewords, chosen before anybody reports, from ε, people and classes alone.

With few codewords, several classes share one and the table cannot distinguish them; with many, each
is reported by few people and the noise hides its class. The rule maximises

.. math:: \frac1C + \Bigl(1 - \frac1C\Bigr) \Bigl(1 - \frac{C}{C-1} A(K)\Bigr)
          \Bigl(1 - \frac{C}{C-1} E(K)\Bigr), \qquad A(K) = a\,\frac{C}{K}, \qquad
          E(K) = \sum_k m_k\, P\bigl(\hat n_{k, y} > \hat n_{k, y_k}
          \text{ for some } y \ne y_k\bigr).

E follows from the variance of counts under subset selection over K·C symbols: a codeword is
misread if the noisy count of another class exceeds that of its own. Its people are
n·m_k, of whom nine in ten have its main class; the shares m_k are spread like a Gamma variable of
shape 2, as codewords of real data are never equal. A is a model, not a measurement: the constant
is that of codebooks on the 8 × 8 digits that come with scikit-learn (`benchmarks/rule.py`), and is
the same for every data set. No label and no row is used.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtr
from scipy.stats import gamma

from tacit.privacy import errors
from tacit.privacy.mechanisms.subset_selection import SubsetSelection

IMPURITY = 0.15
"""a: the share of people whose class is not their codeword's, at one codeword per class."""

PURITY = 0.9
_FEWEST_PER_CLASS, _MOST_PER_CLASS = 1.2, 128
_LEAST_PEOPLE, _TIE = 10, 0.001
_SHAPE, _SHARES = 2.0, 16


@lru_cache(maxsize=256)
def codewords_for(epsilon: float, people: int, classes: int) -> int:
    """Return the number of codewords that minimises the expected error."""
    errors.epsilon_in_range("codewords_for", epsilon)
    people = errors.whole("codewords_for", "people", people, least=1)
    classes = errors.whole("codewords_for", "classes", classes, least=2, most=2**12)
    steps = np.arange(0, math.log2(_MOST_PER_CLASS / _FEWEST_PER_CLASS), 0.125)
    candidates = np.unique(np.ceil(classes * _FEWEST_PER_CLASS * 2**steps).astype(int))
    candidates = candidates[: max(int((candidates <= people // _LEAST_PEOPLE).sum()), 1)]
    expected = [expected_error(int(k), epsilon, people, classes) for k in candidates]
    # If nothing can be learned all are equally bad: choose the fewest among the best.
    return int(candidates[np.flatnonzero(np.array(expected) <= min(expected) + _TIE)[0]])


def expected_error(codewords: int, epsilon: float, people: int, classes: int) -> float:
    """Compute one minus the accuracy above; 1 − 1/C if the noise hides everything."""
    shares = gamma.ppf((np.arange(_SHARES) + 0.5) / _SHARES, _SHAPE)
    shares = shares / shares.sum()
    counts = people * shares * _SHARES / codewords
    misread = sum(
        share * _misread(count, codewords, epsilon, people, classes)
        for share, count in zip(shares, counts, strict=True)
    )
    guessing = 1 / classes
    pure, seen = (
        max(1 - float(error) / (1 - guessing), 0.0)
        for error in (IMPURITY * classes / codewords, misread)
    )
    return 1 - (guessing + (1 - guessing) * pure * seen)


def _misread(count: float, codewords: int, epsilon: float, people: int, classes: int) -> float:
    """Compute the probability that another class looks larger in a codeword of `count` people."""
    main, other = count * PURITY, count * (1 - PURITY) / (classes - 1)
    own, rest = _deviations(main, other, codewords * classes, epsilon, people)
    x = np.linspace(-5.0, 5.0, 101)
    weight = np.exp(-(x**2) / 2)
    highest = ndtr((main - other + own * x) / rest) ** (classes - 1)
    return float(1 - (weight * highest).sum() / weight.sum())


@lru_cache(maxsize=4096)
def _law(symbols: int, epsilon: float) -> tuple[float, float]:
    """Return the probability that a report holds its own symbol, and any other one."""
    channel = SubsetSelection(categories=symbols, epsilon=epsilon)
    return channel.inclusion


def _deviations(
    main: float, other: float, symbols: int, epsilon: float, people: int
) -> tuple[float, float]:
    p, q = _law(symbols, epsilon)
    noise = people * q * (1 - q)
    # Besides the noise, the people of a codeword are themselves a sample.
    spread = [
        math.sqrt((noise + mean * (p * (1 - p) - q * (1 - q))) / (p - q) ** 2 + mean)
        for mean in (main, other)
    ]
    return spread[0], spread[1]
