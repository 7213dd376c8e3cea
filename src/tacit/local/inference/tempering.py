r"""Probabilities that are as sure as reports allow: a power for a mixture, chosen without labels.

A mixture averages cautious models, and says 0.6 where it is right 8 times in 10. Its probabilities
are raised to a power and made to sum to 1 again,

.. math:: p_\beta(y \mid x) \propto p(y \mid x)^\beta,

which leaves the most probable class as it is [GPSW17]_. As for the shares of the mixture's members,
the likelihood of reports that a fold did not see decides, which needs no label. :math:`\log \beta`
has a Gaussian prior around 0, and its posterior mean is taken: where reports tell little, it stays
near 0.

References
----------
.. [GPSW17] Guo, Pleiss, Sun, Weinberger. On calibration of modern neural networks. ICML 2017.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tacit.local.inference.finite import Evidence
from tacit.local.inference.mixture import FOLDS, MOST_ROWS, Member, Mixture, PartitionReports

Reals = npt.NDArray[np.float64]

LOGARITHMS = np.linspace(-1.0, 1.0, 17)
"""Values of log β that are compared."""

DEVIATION = 0.5
"""Of log β under the prior."""

_LEAST = 1e-9


def power(
    parts: Sequence[PartitionReports],
    vectors: npt.NDArray[np.float32],
    fitted: Mixture,
    classes: int,
    seed: int,
) -> float:
    """Choose β for a mixture that was fitted to the same reports, vectors and seed."""
    chosen = np.random.default_rng(seed).permutation(len(vectors))[:MOST_ROWS]
    rows, values = vectors[chosen], np.zeros(len(LOGARITHMS))
    for fold in range(FOLDS):
        odds = _of_fold(fitted, fold).predict_proba(rows)
        held = list(_held_out(parts, fold))
        for place, logarithm in enumerate(LOGARITHMS):
            probable = raised(odds, float(np.exp(logarithm)))
            for part, evidence in held:
                shares = _implied(part, part.cells[chosen], probable, classes)
                values[place] += evidence.likelihood(shares)[0]
    values -= (LOGARITHMS / DEVIATION) ** 2 / 2
    weights = np.exp(values - values.max())
    return float(np.exp(weights @ LOGARITHMS / weights.sum()))


def raised(probabilities: Reals, beta: float) -> Reals:
    """Raise probabilities to a power, and make them sum to 1 again."""
    if beta == 1.0:
        return probabilities
    odds = np.maximum(probabilities, _LEAST) ** beta
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _held_out(
    parts: Sequence[PartitionReports], fold: int
) -> Iterator[tuple[PartitionReports, Evidence]]:
    """Yield what a fold of the mixture did not see: whole partitions, or reports of each."""
    for index, part in enumerate(parts):
        evidence = part.evidence
        if len(parts) < FOLDS:
            sets = evidence.sets[np.arange(len(evidence)) % FOLDS == fold]
            evidence = Evidence(sets, evidence.channel, evidence.classes)
        elif index % FOLDS != fold:
            continue
        if len(evidence):
            yield part, evidence


def _implied(
    part: PartitionReports, cells: npt.NDArray[np.int64], probable: Reals, classes: int
) -> Reals:
    """Return the shares of all (cell, label) pairs that the probabilities of rows imply."""
    counts = np.bincount(cells, minlength=len(part.shares))
    weights = (part.shares / np.maximum(counts, 1))[cells]
    columns = [
        np.bincount(cells, weights * probable[:, label], len(part.shares))
        for label in range(classes)
    ]
    return np.asarray(np.stack(columns, axis=1).ravel(), np.float64)


def _of_fold(fitted: Mixture, fold: int) -> Mixture:
    """Return the mixture of the weights that one fold has learned."""
    return Mixture(
        tuple(
            Member(member.inputs, member.weights[fold : fold + 1], member.share)
            for member in fitted.members
        )
    )
