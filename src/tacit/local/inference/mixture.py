r"""Models of the label on in-house rows, fitted to reports through every partition and channel.

The reports of partition p tell how many people have each (cell, label) pair; the in-house rows tell
what rows of a cell look like. A model of the label implies the shares

.. math:: \theta^p_{k,y}(w) = \pi^p_k \, \frac{1}{|D^p_k|} \sum_{x \in D^p_k} p_w(y \mid x),
          \qquad \max_w \; \sum_p \ell_p(\theta^p(w)) - \frac{\lambda}{2} \lVert w \rVert^2,

with D the in-house rows of a cell, π the cells' shares among people and ℓ the likelihood of
`tacit.inference.finite`. One model is fitted through all partitions at once.

Candidates are linear models (of all components, or of the first few), Gaussian kernels of two
widths, and diffusions of two lengths (`tacit.inference.views`), in each block of the vectors, over
a grid of penalties. They are judged by the likelihood of reports from partitions that were held
out, which needs no label: a model that explains cells it was not fitted to has learned about rows.
What remains is the mean of the models of the folds, weighted by
:math:`e^{(\ell - \max \ell) / T}`: at small ε many explain the reports about equally well, and
their mean is better than the luckiest one. Unless classes are expected to be clusters, two
cautious candidates are preferred, which are linear in the first few components: few weights are
learned before much is known.

References
----------
.. [QSCL09] Quadrianto, Smola, Caetano, Le. Estimating labels from label proportions. JMLR 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from tacit.local.inference.finite import Evidence
from tacit.local.inference.views import Inputs

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FOLDS, TEMPERATURE = 4, 3.0
DOUBT, CAUTION = 5.0, 12.0
"""Log-likelihood that others than linear candidates, and others than cautious ones, lose."""

LINEAR_PENALTIES = (100.0, 30.0, 10.0, 3.0, 1.0)
KERNEL_PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
WIDTHS = (0.7, 1.4)
"""Widths of the kernels, times the median distance of in-house rows."""

WALKS = (4.0, 32.0)
"""Steps of the diffusions: short walks tell small clusters apart, long ones join them."""

FEW_COMPONENTS, MOST_ROWS = 16, 4_000

CAUTIOUS_PENALTIES = (60.0, 20.0)
"""Of cautious candidates, times the mean variance of the components."""

_STEPS, _GIVE_UP, _LEAST_WEIGHT, _FREE = 50, 3.0, 0.02, 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class Member:
    """One candidate in the mixture.

    Parameters
    ----------
    inputs : Inputs
        What it sees.
    weights : array, (folds, inputs, classes)
        Of each fold's model; the last row is the constant.
    share : float
        Its share of the mixture.
    """

    inputs: Inputs
    weights: Floats
    share: float

    def predict_proba(self, vectors: Floats) -> Reals:
        """Average the folds' probabilities."""
        seen = self.inputs(vectors)
        odds = [_softmax(seen @ weights) for weights in self.weights]
        return np.asarray(np.mean(odds, axis=0), np.float64)


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """A weighted mean of models: what is predicted, and what is stored.

    Parameters
    ----------
    members : tuple of Member
        Their shares sum to 1. The best linear candidate is among them with share 0 if no linear
        one has earned a share: later rounds divide people by linear scores.
    """

    members: tuple[Member, ...]

    def predict_proba(self, vectors: Floats) -> Reals:
        """Compute the probability of every class for every row."""
        blocks = [
            np.sum([m.share * m.predict_proba(block) for m in self.members if m.share], axis=0)
            for block in np.array_split(vectors, max(len(vectors) // 4096, 1))
        ]
        return np.concatenate(blocks)

    def linear_scores(self, width: int) -> list[Floats]:
        """Return the linear members' scores of a whole vector, best first; see `adapted`."""
        ordered = sorted(self.members, key=lambda member: -member.share)
        scores = []
        for member in ordered:
            if member.inputs.linear:
                for weights in member.weights:
                    whole = np.zeros((width + 1, weights.shape[1]), np.float32)
                    whole[member.inputs.start : member.inputs.stop] = weights[:-1]
                    whole[-1] = weights[-1]
                    scores.append(whole)
        return scores

    def parts(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """Return JSON-ready parameters, and arrays by name."""
        described: list[dict[str, Any]] = []
        arrays: dict[str, Floats] = {}
        for index, member in enumerate(self.members):
            plain, own = member.inputs.parts()
            described.append({**plain, "share": member.share})
            own = {**own, "weights": member.weights}
            arrays |= {f"{index}.{name}": array for name, array in own.items()}
        return {"members": described}, arrays

    @classmethod
    def from_parts(
        cls, parameters: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Mixture:
        """Rebuild what `parts` took apart."""
        members = []
        for index, told in enumerate(parameters["members"]):
            own = {
                name: np.asarray(arrays[f"{index}.{name}"], np.float32)
                for name in ("landmarks", "mixing", "weights")
                if f"{index}.{name}" in arrays
            }
            seen, weights = Inputs.from_parts(told, own), own["weights"]
            if weights.ndim != 3 or weights.shape[1] != seen.width:
                raise ValueError("mixture: weights must fit their inputs")
            members.append(Member(seen, weights, float(told["share"])))
        return cls(tuple(members))


@dataclass(frozen=True, eq=False, repr=False)
class PartitionReports:
    """The reports of one partition, and the cells of in-house rows in it.

    Parameters
    ----------
    evidence : Evidence
        Its reports.
    cells : array of int, (N,)
        The cell of each in-house row.
    shares : array, (K,)
        π, the shares of the cells among people.
    """

    evidence: Evidence
    cells: Integers
    shares: Reals


class FittedCandidate(NamedTuple):
    """A fitted candidate, and the log-likelihood of the reports that its folds held out."""

    value: float
    inputs: Inputs
    weights: Floats

    def doubted(self, doubt: float) -> FittedCandidate:
        """Return the candidate with less likelihood."""
        return self._replace(value=self.value - doubt)


def fit(
    parts: Sequence[PartitionReports],
    vectors: Floats,
    blocks: Sequence[slice],
    classes: int,
    seed: int,
    *,
    clustered: bool = False,
) -> Mixture:
    """Fit all candidates to the reports of all partitions, and weigh them.

    Unless classes are expected to be clusters (`clustered`), cautious models are preferred to other
    linear ones, and these to the rest: what is preferred less must explain held-out reports better.
    """
    chosen = np.random.default_rng(seed).permutation(len(vectors))[:MOST_ROWS]
    rows = vectors[chosen]
    evidence = _Everything([_limited(part, chosen) for part in parts], len(chosen), classes)
    fitted: list[FittedCandidate] = []
    for seen, penalties in _candidates(rows, blocks, seed):
        fitted += evidence.tried(seen, seen(rows), penalties)
    if not clustered:
        fitted = [c.doubted(CAUTION if c.inputs.linear else CAUTION + DOUBT) for c in fitted]
        fitted += evidence.cautious(rows, blocks[0])
    best = max(candidate.value for candidate in fitted)
    odds = [math.exp((candidate.value - best) / TEMPERATURE) for candidate in fitted]
    odds = [odd if odd >= _LEAST_WEIGHT else 0.0 for odd in odds]
    linear = [odd if c.inputs.linear else -1.0 for c, odd in zip(fitted, odds, strict=True)]
    if max(linear) == 0.0:
        values = [c.value if c.inputs.linear else -math.inf for c in fitted]
        linear[values.index(max(values))] = 1.0
    members = [
        Member(candidate.inputs, candidate.weights, odd / sum(odds))
        for candidate, odd, line in zip(fitted, odds, linear, strict=True)
        if odd or line > 0
    ]
    return Mixture(tuple(members))


def _limited(part: PartitionReports, chosen: Integers) -> PartitionReports:
    return PartitionReports(part.evidence, part.cells[chosen], part.shares)


def _candidates(
    vectors: Floats, blocks: Sequence[slice], seed: int
) -> Iterator[tuple[Inputs, tuple[float, ...]]]:
    for block in blocks:
        yield Inputs(block.start, block.stop), LINEAR_PENALTIES
        if block.stop - block.start > FEW_COMPONENTS:
            yield Inputs(block.start, block.start + FEW_COMPONENTS), LINEAR_PENALTIES
        for width in WIDTHS:
            yield Inputs.kernels(vectors, block, width, seed), KERNEL_PENALTIES
        for steps in WALKS:
            yield Inputs.diffusion(vectors, block, steps, seed), KERNEL_PENALTIES


class _Everything:
    """All reports, as sets of symbols that are numbered across partitions."""

    def __init__(self, parts: Sequence[PartitionReports], rows: int, classes: int) -> None:
        from scipy.sparse import csr_array, vstack

        self.classes = classes
        stacked, self.sets, self.gains = [], [], []
        start = 0
        for part in parts:
            cells = part.evidence.codewords
            counts = np.bincount(part.cells, minlength=cells)
            weight = (part.shares / np.maximum(counts, 1))[part.cells].astype(np.float32)
            places = (part.cells, np.arange(rows))
            stacked.append(csr_array((weight, places), shape=(cells, rows)))
            self.sets.append(part.evidence.sets.astype(np.int64) + start)
            self.gains.append(math.expm1(part.evidence.channel.log_odds))
            start += cells * classes
        self.average = vstack(stacked, format="csr")
        self.spread = self.average.T.tocsr()
        self.folds = self._divided()

    def _divided(self) -> list[list[Any]]:
        """Choose what each fold holds out: whole partitions, or reports where those are few."""
        whole = len(self.sets) >= FOLDS
        return [
            [
                np.full(len(sets), index % FOLDS == fold)
                if whole
                else np.arange(len(sets)) % FOLDS == fold
                for index, sets in enumerate(self.sets)
            ]
            for fold in range(FOLDS)
        ]

    def tried(
        self, seen: Inputs, inputs: Floats, penalties: Sequence[float]
    ) -> list[FittedCandidate]:
        """Fit one candidate with each penalty; stop where held-out reports get less likely."""
        results: list[FittedCandidate] = []
        before = -math.inf
        for penalty in penalties:
            value, weights = 0.0, []
            for held in self.folds:
                fitted = self._fitted(inputs, penalty, self._chosen([~h for h in held]))
                value += self._likelihood(self._shares(inputs, fitted)[1], self._chosen(held))[0]
                weights.append(fitted.astype(np.float32))
            results.append(FittedCandidate(value, seen, np.stack(weights)))
            if value < before - _GIVE_UP:
                break
            before = value
        return results

    def cautious(self, vectors: Floats, block: slice) -> list[FittedCandidate]:
        """Fit linear models of a block's first components."""
        seen = Inputs(block.start, min(block.stop, block.start + FEW_COMPONENTS))
        inputs = seen(vectors)
        variance = float(inputs[:, :-1].std(axis=0).mean()) ** 2
        return self.tried(seen, inputs, [one * variance for one in CAUTIOUS_PENALTIES])

    def _fitted(self, inputs: Floats, penalty: float, reports: list[Any]) -> Reals:
        shape = (inputs.shape[1], self.classes)
        weight = np.full((shape[0], 1), penalty)
        weight[-1] = _FREE  # the constant is next to free

        def loss(flat: Reals) -> tuple[float, Reals]:
            weights = flat.reshape(shape)
            odds, theta = self._shares(inputs, weights)
            value, slope = self._likelihood(theta, reports)
            pull = self.spread @ slope.reshape(-1, self.classes).astype(np.float32)
            pull = odds * (pull - (odds * pull).sum(axis=1, keepdims=True))
            gradient = weight * weights - inputs.T @ pull
            penalized = float((weight * weights**2).sum()) / 2 - value
            return penalized, gradient.ravel().astype(np.float64)

        start = np.zeros(shape[0] * shape[1])
        settings: dict[str, Any] = {"maxiter": _STEPS, "ftol": 1e-7}
        solution = minimize(loss, start, jac=True, method="L-BFGS-B", options=settings)
        return np.asarray(solution.x.reshape(shape))

    def _shares(self, inputs: Floats, weights: Reals) -> tuple[Floats, Reals]:
        """Return each row's probabilities, and the shares θ of all symbols that they imply."""
        odds = _softmax(inputs @ weights.astype(np.float32))
        return odds, (self.average @ odds).ravel()

    def _chosen(self, used: list[Any]) -> list[Any]:
        return [sets[chosen] for sets, chosen in zip(self.sets, used, strict=True)]

    def _likelihood(self, theta: Reals, reports: list[Any]) -> tuple[float, Reals]:
        """Compute the log-likelihood of reports, and its slope in θ."""
        total, slope = 0.0, np.zeros(theta.size)
        for own, gain in zip(reports, self.gains, strict=True):
            if len(own):
                mass = 1 + gain * theta[own].sum(axis=1)
                total += float(np.log(mass).sum())
                slope += np.bincount(own.ravel(), np.repeat(gain / mass, own.shape[1]), theta.size)
        return total, slope


def _softmax(logits: npt.NDArray[Any]) -> Floats:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True), np.float32)
