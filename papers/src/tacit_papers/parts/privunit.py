r"""A baseline: vector reports by PrivUnit [BDFKR18]_, and a linear classifier made of their mean.

A person's vector is :math:`e_y \otimes \tilde x`, label y and features x with a constant, of
length 1. PrivUnit draws a direction from the cap :math:`\{v : \langle v, u\rangle \ge \gamma\}`
around a unit vector u with probability p, and from the rest of the sphere otherwise, and divides it
by m, which makes it unbiased. Its density is constant on both parts, so with q the share of the cap

.. math:: \varepsilon = \log \frac{p}{1 - p} + \log \frac{1 - q}{q}

exactly; p and γ are chosen for the smallest variance [AFT22]_. The mean report estimates
:math:`E[\tilde x\, 1_{y=c}]`; with second moments of the in-house rows, which need no label, it
gives a ridge regression on the label. Its penalty minimises an unbiased estimate of the risk.

It is computed in floating point: a guarantee as analysed in the paper, and for a study alone.

References
----------
.. [BDFKR18] Bhowmick, Duchi, Freudiger, Kapoor, Rogers. Protection against reconstruction and its
   applications in private federated learning. 2018. PrivUnit2, section 4.1.
.. [AFT22] Asi, Feldman, Talwar. Optimal algorithms for mean estimation under local differential
   privacy. 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from tacit.local.learned import features
from tacit_papers.parts.table_case import Case, Floats, bounds, checked, flat

COMPONENTS = 32
"""Most components of the features that a report holds."""

_PENALTIES = np.geomspace(1e-6, 1e3, 46)
_BLOCK = 2048


@dataclass(frozen=True)
class PrivUnit:
    """The mechanism for unit vectors of this dimension.

    Parameters
    ----------
    dimension : int
        Length of the vectors.
    inside : float
        p, the probability of a direction from the cap.
    cap : float
        q, the share of the sphere that the cap covers.
    """

    dimension: int
    inside: float
    cap: float

    @classmethod
    def best(cls, dimension: int, epsilon: float) -> PrivUnit:
        """Choose p and q of the smallest variance among those with this ε."""

        def made(log_odds: float) -> PrivUnit:
            return cls(
                dimension, float(special.expit(epsilon + log_odds)), float(special.expit(log_odds))
            )

        least = optimize.minimize_scalar(
            lambda log_odds: -made(log_odds).scale, bounds=(-epsilon - 20.0, 0.0), method="bounded"
        )
        return made(float(least.x))

    @property
    def epsilon(self) -> float:
        """ε, from the two densities."""
        return float(special.logit(self.inside) - special.logit(self.cap))

    @property
    def _height(self) -> stats.rv_continuous:
        """Law of (1 + ⟨v, u⟩) / 2 for a uniform direction v."""
        half = (self.dimension - 1) / 2
        return stats.beta(half, half)

    @property
    def scale(self) -> float:
        """m, the mean of ⟨v, u⟩."""
        # E[t; t ≥ γ] = (1 − γ²)^((d − 1) / 2) / ((d − 1) B((d − 1) / 2, 1 / 2)).
        threshold = 2 * float(self._height.isf(self.cap)) - 1
        d = self.dimension
        above = math.exp(
            (d - 1) / 2 * math.log1p(-(threshold**2))
            - math.log(d - 1)
            - float(special.betaln((d - 1) / 2, 0.5))
        )
        return above * (self.inside / self.cap - (1 - self.inside) / (1 - self.cap))

    def release(self, units: Floats, rng: np.random.Generator) -> Floats:
        """Return one unbiased report for each unit vector."""
        count = len(units)
        within = rng.random(count) < self.inside
        share = np.where(within, self.cap * rng.random(count), 0.0)
        share = np.where(within, share, self.cap + (1 - self.cap) * rng.random(count))
        heights = 2 * self._height.isf(share) - 1
        sideways = rng.normal(size=units.shape)
        sideways -= (sideways * units).sum(axis=1, keepdims=True) * units
        sideways /= np.linalg.norm(sideways, axis=1, keepdims=True)
        width = np.sqrt(np.clip(1 - heights**2, 0.0, None))
        return np.asarray((heights[:, None] * units + width[:, None] * sideways) / self.scale)


def probabilities(case: Case, epsilon: float, seed: int) -> Floats:
    """Collect one vector of each person, and classify the test rows."""
    rng = np.random.default_rng([seed, 2])
    inhouse, people, test = _vectors(case, seed)
    size = people.shape[1] * case.classes
    mechanism = PrivUnit.best(size, epsilon)
    total = np.zeros(size)
    for start in range(0, len(people), _BLOCK):
        part = slice(start, start + _BLOCK)
        one_hot = np.eye(case.classes)[case.labels[part]]
        units = np.einsum("nc,nd->ncd", one_hot, people[part]).reshape(len(one_hot), size)
        total += mechanism.release(units, rng).sum(axis=0)
    mean = (total / len(people)).reshape(case.classes, -1).T
    variance = 1 / (mechanism.scale**2 * size * len(people))
    scores = test @ ridge(inhouse.T @ inhouse / len(inhouse), mean, variance)
    likely = np.exp(np.clip((scores - scores.max(axis=1, keepdims=True)) * 4, -50, 0))
    return np.asarray(likely / likely.sum(axis=1, keepdims=True))


def _vectors(case: Case, seed: int) -> list[Floats]:
    """Return the three parts as components of their features with a constant, of length 1."""
    from sklearn.decomposition import PCA

    given = bounds(flat(case.inhouse))
    parts = checked(given, case.inhouse, case.people, case.test)
    learned = features.fit("raw" if case.is_picture else "quantile", given, parts[0], seed)
    seen = [learned.transform(part) for part in parts]
    count = min(COMPONENTS, *seen[0].shape)
    analysis = PCA(count, svd_solver="randomized", random_state=seed).fit(seen[0])
    vectors = []
    for part in seen:
        values = analysis.transform(part).astype(np.float64)
        values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
        constant = np.ones((len(values), 1))
        vectors.append(np.hstack([values, constant]) / math.sqrt(2))
    return vectors


def ridge(moments: Floats, mean: Floats, variance: float) -> Floats:
    r"""Return weights (d, classes); the penalty has the least estimated risk.

    With :math:`W_\lambda = (M + \lambda I)^{-1} \hat b`, the risk is, but for a constant,
    tr(WᵀMW) − 2 tr(Wᵀb); the noise of :math:`\hat b` is taken out of the second term.
    """
    values, directions = np.linalg.eigh(moments)
    seen = directions.T @ mean
    energy = (seen**2).sum(axis=1)
    noise = variance * mean.shape[1]
    shrunk = 1 / (np.clip(values, 0.0, None) + _PENALTIES[:, None])
    risks = (values * shrunk**2 * energy - 2 * shrunk * (energy - noise)).sum(axis=1)
    return np.asarray(directions @ (shrunk[int(risks.argmin())][:, None] * seen))
