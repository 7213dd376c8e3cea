r"""Sparse vector: many threshold questions, paid for by the few that are answered "above".

References
----------
.. [LSL17] Lyu, Su, Li. Understanding the sparse vector technique for differential privacy.
   VLDB 2017. Algorithm 7 is implemented; Algorithms 3 to 6 of that paper are not private.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.mechanisms.laplace import log_mass, log_tail
from tacit.privacy.randomness import Randomness, discrete_laplace, source
from tacit.privacy.shown import Shown

ABOVE, BELOW, NOT_ASKED = 1, 0, -1
_BLOCK, _LONGEST_SUM = 2**16, 2**28


@dataclass(frozen=True, kw_only=True, repr=False)
class SparseVector(Shown):
    r"""Comparisons of answers with a threshold, until `positives` of them are "above" [LSL17]_.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of the whole run, however many questions are asked.
    threshold : int
        A public number.
    sensitivity : int
        The most by which any one answer can differ between neighbours.
    positives : int
        c: how many times "above" may be said.
    numeric : bool
        Also release a noisy value for each answer that is above, with half of ε.
    monotonic : bool
        State that for any two neighbours all answers move in the same direction (counts under
        add-remove do): less noise is then enough.

    Notes
    -----
    With shares ε = ε₁ + ε₂ + ε₃ the threshold gets discrete Laplace noise of scale Δ/ε₁ once, every
    comparison 2cΔ/ε₂ (cΔ/ε₂ if monotonic), every numeric value fresh noise of scale cΔ/ε₃. ε-DP.
    Released are 1 (above), 0 (below), −1 (not asked any more); if numeric, a second column holds
    the values (0 where there is none).
    """

    epsilon: float
    threshold: int
    sensitivity: int = 1
    positives: int = 1
    numeric: bool = False
    monotonic: bool = False
    adjacency: Adjacency
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        threshold = errors.whole("SparseVector", "threshold", self.threshold, least=-(2**53))
        object.__setattr__(self, "threshold", threshold)
        for name in ("numeric", "monotonic"):
            if not isinstance(getattr(self, name), bool):
                errors.refuse("SparseVector", name, "True or False", getattr(self, name))
        if max(self.scales) > 2**50:
            errors.refuse("SparseVector", "noise scale", "at most 2^50", float(max(self.scales)))

    @cached_property
    def event(self) -> events.SparseVector:
        epsilon = errors.epsilon_in_range("SparseVector", self.epsilon)
        count = errors.whole("SparseVector", "positives", self.positives, least=1, most=2**20)
        answers = epsilon / 2 if self.numeric else Fraction(0)
        # ε₁ : ε₂ as 1 : (2c)^⅔ has the least variance of a comparison [LSL17], section 4.2.
        ratio = Fraction((count if self.monotonic else 2 * count) ** (2 / 3)).limit_denominator(100)
        threshold = (epsilon - answers) / (1 + ratio)
        most = 2**40
        one = errors.whole("SparseVector", "sensitivity", self.sensitivity, least=1, most=most)
        factor = 1 if self.monotonic else 2
        return events.SparseVector(
            Fraction(one),
            one / threshold,
            factor * count * one / (epsilon - answers - threshold),
            count * one / answers if self.numeric else Fraction(0),
            count,
            self.monotonic,
            adjacency=self.adjacency,
            unit=self.unit,
        )

    @property
    def guarantee(self) -> Guarantee:
        return self.event.guarantee_at()

    @property
    def scales(self) -> tuple[Fraction, Fraction, Fraction]:
        """Noise scales of threshold, comparisons and numeric values (0 if there are none)."""
        event = self.event
        return event.threshold_scale, event.comparison_scale, event.answer_scale

    def ask(
        self, answers: Iterator[int], rng: Randomness | None = None
    ) -> Iterator[tuple[int, int]]:
        """Answer questions one at a time, so that later ones may depend on earlier outcomes."""
        stream = source(rng)
        threshold_scale, comparison_scale, answer_scale = self.scales
        bar = self.threshold + int(discrete_laplace(threshold_scale, 1, stream)[0])
        remaining = self.event.positives
        for answer in answers:
            checked = errors.held_integers("SparseVector", answer)
            if checked.size != 1:
                raise errors.InvalidData("SparseVector: data must be one answer at a time.")
            value = int(checked.item())
            if value + int(discrete_laplace(comparison_scale, 1, stream)[0]) < bar:
                yield BELOW, 0
                continue
            noise = int(discrete_laplace(answer_scale, 1, stream)[0]) if self.numeric else 0
            yield ABOVE, value + noise if self.numeric else 0
            remaining -= 1
            if remaining == 0:
                return

    def release(self, raw: Any, rng: Randomness | None = None) -> npt.NDArray[np.int64]:
        """Release outcomes for the answers along the last axis; other axes are independent runs."""
        answers = errors.held_integers("SparseVector", raw)
        if answers.ndim == 0:
            raise errors.InvalidData("SparseVector: data must be a sequence of answers.")
        runs = answers.reshape(-1, answers.shape[-1])
        outcomes, values = self._run(runs, source(rng))
        if self.numeric:
            return np.stack([outcomes, values], axis=-1).reshape(*answers.shape, 2)
        return outcomes.reshape(answers.shape)

    def _run(
        self, runs: npt.NDArray[np.int64], rng: Randomness
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Do the same as `ask` for many runs at once."""
        threshold_scale, comparison_scale, answer_scale = self.scales
        bar = self.threshold + discrete_laplace(threshold_scale, len(runs), rng)[:, None]
        noise = discrete_laplace(comparison_scale, runs.size, rng).reshape(runs.shape)
        above = runs + noise >= bar
        before: npt.NDArray[np.int64] = np.cumsum(above, axis=1) - above
        outcomes = np.where(before < self.event.positives, above.astype(np.int64), NOT_ASKED)
        values = np.zeros_like(outcomes)
        if self.numeric:
            positive = outcomes == ABOVE
            values[positive] = runs[positive] + discrete_laplace(
                answer_scale, int(positive.sum()), rng
            )
        return outcomes, values

    def log_prob(self, released: Any, raw: Any) -> npt.NDArray[np.float64]:
        """Compute the log-probability of each run, summed over the threshold's noise."""
        answers = errors.held_integers("SparseVector", raw)
        outcomes = errors.integers("SparseVector", released, lower=-(2**62), upper=2**62)
        values = np.zeros_like(outcomes)
        if self.numeric:
            outcomes, values = outcomes[..., 0], outcomes[..., 1]
        shape = np.broadcast_shapes(outcomes.shape, answers.shape)
        triples = np.stack([np.broadcast_to(a, shape) for a in (outcomes, values, answers)], -1)
        known: dict[bytes, float] = {}  # few runs differ, and each needs a sum

        def log_prob_of(run: npt.NDArray[np.int64]) -> float:
            key = run.tobytes()
            if key not in known:
                known[key] = self._log_prob_of_run(*run.T)
            return known[key]

        runs = triples.reshape(-1, *triples.shape[-2:])
        return np.array([log_prob_of(run) for run in runs]).reshape(shape[:-1])

    def _log_prob_of_run(
        self,
        outcomes: npt.NDArray[np.int64],
        values: npt.NDArray[np.int64],
        answers: npt.NDArray[np.int64],
    ) -> float:
        asked = outcomes != NOT_ASKED
        positives = int((outcomes == ABOVE).sum())
        stop = int(np.argmin(asked)) if not asked.all() else len(asked)
        if asked[stop:].any() or not np.isin(outcomes, (ABOVE, BELOW, NOT_ASKED)).all():
            return -math.inf
        finished = positives == self.event.positives and stop > 0 and outcomes[stop - 1] == ABOVE
        if not finished and (stop < len(asked) or positives >= self.event.positives):
            return -math.inf
        at = outcomes == ABOVE
        if np.any(values[~at]):
            return -math.inf
        total = self._log_prob_of_comparisons(at[:stop], answers[:stop] - self.threshold)
        if self.numeric:
            total += float(log_mass(self.scales[2], values[at] - answers[at]).sum())
        return total

    def _log_prob_of_comparisons(
        self, above: npt.NDArray[np.bool_], answers: npt.NDArray[np.int64]
    ) -> float:
        """Sum over the noise of the threshold, out to where every comparison is decided."""
        threshold_scale, comparison_scale, _ = self.scales
        margin = math.ceil(45 * (threshold_scale + comparison_scale))
        start = min(int(answers.min()), 0) - margin
        stop = max(int(answers.max()), 0) + margin + 1
        if stop - start > _LONGEST_SUM:
            # The length of the sum depends on the answers: the error must not state it.
            raise errors.InvalidData("SparseVector: the noise is too wide to sum its law.")
        total = -math.inf
        for first in range(start, stop, _BLOCK):
            bar = np.arange(first, min(first + _BLOCK, stop))
            needed = bar[:, None] - answers[None, :]
            said_above = log_tail(comparison_scale, needed)
            passed = np.where(above, said_above, log_tail(comparison_scale, 1 - needed))
            part = log_mass(threshold_scale, bar) + passed.sum(axis=1)
            total = float(np.logaddexp(total, logsumexp(part)))
        return total
