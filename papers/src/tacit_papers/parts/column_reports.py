r"""A baseline: everyone reports one column, in few bins, together with the label.

The column is drawn uniformly and publicly, and never by the row. Bin and label go jointly through
k-ary randomized response with the whole ε, k = bins × classes. The counts of a column are debiased,
and a naive Bayes classifier is made of them:

.. math:: \log P(c \mid x) = \log \hat p(c) + \sum_j \log \hat p_j(x_j \mid c) + \text{const}

Counts that noise could explain must not decide: every class of a column gets pseudo-counts, spread
over the bins like all people, as many as the standard deviation of its debiased count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.data.datasets.base import Integers
from tacit.data.schema import Rows
from tacit.privacy.mechanisms import RandomizedResponse
from tacit.privacy.randomness import Seeded
from tacit_papers.parts.table_case import Case, Floats, bounds, checked, flat

FEW, MANY = 2, 4
"""Bins of a column below ε = 4 and from there on: of a number by in-house quantiles, of a category
the most frequent values and all others. Chosen on tables that were tuned on."""

ENOUGH = 4.0


@dataclass(frozen=True)
class Bins:
    """How columns are binned: edges of numbers, and the bin of each category."""

    count: int
    edges: Floats
    places: list[Integers]

    @classmethod
    def fit(cls, rows: Rows, count: int) -> Bins:
        """Read quantiles and frequent categories off in-house rows."""
        levels = np.arange(1, count) / count
        edges = np.nanquantile(rows.numbers.astype(np.float64), levels, axis=0).T
        words = [_places(codes, count) for codes in rows.codes.T]
        return cls(count, edges.reshape(-1, count - 1), words)

    def __call__(self, rows: Rows) -> Integers:
        """Return the bin of every column of every row; a missing number is in the first bin."""
        numbers = [
            np.searchsorted(edges, np.nan_to_num(column, nan=-np.inf), side="left")
            for edges, column in zip(self.edges, rows.numbers.T, strict=True)
        ]
        # Code −1, of unseen categories, is the last place.
        words = [known[codes] for known, codes in zip(self.places, rows.codes.T, strict=True)]
        return np.stack([*numbers, *words], axis=1).astype(np.int64)


def _places(codes: Integers, bins: int) -> Integers:
    counts = np.bincount(codes[codes >= 0], minlength=1)
    places = np.full(len(counts) + 1, bins - 1, np.int64)
    frequent = np.argsort(-counts, kind="stable")[: bins - 1]
    places[frequent] = np.arange(len(frequent))
    return places


def probabilities(case: Case, epsilon: float, seed: int) -> Floats:
    """Collect one column and label of each person, and classify the test rows."""
    rng = np.random.default_rng([seed, 1])
    given = bounds(flat(case.inhouse))
    inhouse, people, test = checked(given, case.inhouse, case.people, case.test)
    binned = Bins.fit(inhouse, FEW if epsilon < ENOUGH else MANY)
    seen = binned(people)
    column = rng.integers(seen.shape[1], size=len(seen))
    joint = seen[np.arange(len(seen)), column] * case.classes + case.labels
    values = binned.count * case.classes
    mechanism = RandomizedResponse(epsilon=epsilon, categories=values)
    reports = np.asarray(mechanism.release(joint, Seeded(rng)))
    counts = np.zeros((seen.shape[1], values))
    np.add.at(counts, (column, reports), 1.0)
    return _naive_bayes(*debiased(counts, epsilon), binned(test), case.classes)


def debiased(counts: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Return unbiased counts of every column, and the standard deviation of the noise in each."""
    k, n = counts.shape[1], counts.sum(axis=1, keepdims=True)
    other = 1 / (math.exp(epsilon) + k - 1)
    gap = math.expm1(epsilon) * other
    return (counts - n * other) / gap, np.sqrt(n * other * (1 - other)) / gap


def _naive_bayes(
    counts: Floats, deviation: Floats, bins: Integers, classes: int
) -> npt.NDArray[np.float64]:
    table = counts.reshape(len(counts), -1, classes)
    by_class = np.clip(table.sum(axis=(0, 1)), 1.0, None)
    prior = by_class / by_class.sum()
    spread = np.clip(table.sum(axis=2), 0.0, None) + 1e-9
    spread /= spread.sum(axis=1, keepdims=True)
    pseudo = deviation * math.sqrt(table.shape[1]) + 1.0
    smooth = np.clip(table, 0.0, None) + pseudo[:, :, None] * spread[:, :, None]
    evidence = np.log(np.clip(smooth, 1e-9, None) / smooth.sum(axis=1, keepdims=True))
    evidence -= np.log(spread)[:, :, None]
    scores = np.log(prior) + sum(evidence[j, bins[:, j]] for j in range(len(counts)))
    scores -= scores.max(axis=1, keepdims=True)
    likely = np.exp(scores)
    return np.asarray(likely / likely.sum(axis=1, keepdims=True))
