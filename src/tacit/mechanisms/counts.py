r"""Unbiased counts from reports in which each category shows up with one of two probabilities.

References
----------
.. [WBLJ17] Wang, Blocki, Li, Jha. Locally differentially private protocols for frequency
   estimation. USENIX Security 2017 ("pure" protocols).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit import errors


@dataclass(frozen=True)
class CountEstimate:
    """Unbiased counts and their estimated variances, one a category.

    The variance is that of the randomisation: the counts are of the people who reported. For a
    population they were drawn from, add the variance of drawing them.
    """

    counts: npt.NDArray[np.float64]
    variances: npt.NDArray[np.float64]
    reports: int

    def interval(self, confidence: float = 0.95) -> npt.NDArray[np.float64]:
        """Normal intervals for the counts, one row of two ends a category."""
        confidence = errors.probability("interval", "confidence", confidence, zero=False)
        reach = float(ndtri((1 + confidence) / 2)) * np.sqrt(self.variances)
        return np.stack([self.counts - reach, self.counts + reach], axis=-1)


def unbiased_counts(
    support: npt.NDArray[np.int64], reports: int, true: float, other: float
) -> CountEstimate:
    r"""With p the chance that a report supports its own category and q any other one:

    .. math:: \hat n_v = \frac{s_v - nq}{p - q}, \qquad
              \mathrm{Var}\,\hat n_v = \frac{n_v\,p(1-p) + (n - n_v)\,q(1-q)}{(p-q)^2}

    The variance plugs in the estimate, held to [0, n].
    """
    counts = (support - reports * other) / (true - other)
    held = np.clip(counts, 0, reports)
    noise = held * true * (1 - true) + (reports - held) * other * (1 - other)
    return CountEstimate(
        counts.astype(np.float64),
        np.asarray(noise / (true - other) ** 2, dtype=np.float64),
        reports,
    )
