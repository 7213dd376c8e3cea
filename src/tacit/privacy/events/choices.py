"""Draws from weights: randomized response and its kin, choices by score, tables.

References
----------
.. [War65] Warner. Randomized response. JASA 1965; K-ary: Kairouz, Oh, Viswanath. NIPS 2014.
.. [YB18] Ye, Barg. Optimal schemes for discrete distribution estimation under locally
   differential privacy. IEEE Trans. IT 2018 (subset selection).
.. [MT07] McSherry, Talwar. Mechanism design via differential privacy. FOCS 2007.
.. [MS20] McKenna, Sheldon. Permute-and-flip. NeurIPS 2020.
.. [LSL17] Lyu, Su, Li. Understanding the sparse vector technique. VLDB 2017 (Algorithm 7).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from tacit.privacy import errors
from tacit.privacy.decimals import above, below
from tacit.privacy.events.base import WEIGHT_BITS, Leaf, ratio_within
from tacit.privacy.guarantees import ApproxDP, Guarantee, PureDP
from tacit.privacy.rounding import float_above

__all__ = [
    "CertifiedTable",
    "Exponential",
    "RandomizedResponse",
    "SparseVector",
    "SubsetSelection",
]


@dataclass(frozen=True)
class RandomizedResponse(Leaf):
    """K-ary randomized response: true category with keep/2^64, each other with other/2^64."""

    categories: int
    epsilon: Fraction
    keep: int
    other: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epsilon()
        name = "RandomizedResponse"
        self._whole("categories", least=2)
        self._whole("keep", least=1, most=2**WEIGHT_BITS)
        self._whole("other", least=0, most=2**WEIGHT_BITS)
        if self.keep + (self.categories - 1) * self.other != 2**WEIGHT_BITS:
            errors.refuse(name, "weights", "2^64 in all", (self.keep, self.other))
        if not ratio_within(self.other, self.keep, self.epsilon):
            errors.refuse(name, "other / keep", "at most e^epsilon", (self.keep, self.other))
        if not ratio_within(self.keep, self.other, self.epsilon):
            errors.refuse(name, "keep / other", "at most e^epsilon", (self.keep, self.other))

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        # The constructor has compared the odds with e^ε in integers [War65].
        return PureDP(epsilon=float_above(self.epsilon), **self.scope)

    def words(self) -> str:
        return (
            f"Each answer, one of {self.categories} categories, is kept with probability "
            f"{above(Fraction(self.keep, 2**64))}, and replaced by each other category with "
            f"probability {below(Fraction(self.other, 2**64))}."
        )


@dataclass(frozen=True)
class SubsetSelection(Leaf):
    """A subset of `size` categories that contains the true one with probability inclusion/2^64."""

    categories: int
    size: int
    epsilon: Fraction
    inclusion: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epsilon()
        name = "SubsetSelection"
        self._whole("categories", least=2)
        self._whole("size", least=1, most=self.categories - 1)
        self._whole("inclusion", least=1, most=2**WEIGHT_BITS - 1)
        weight = self.inclusion * (self.categories - self.size)
        missed = (2**WEIGHT_BITS - self.inclusion) * self.size
        if not ratio_within(weight, missed, self.epsilon) or not ratio_within(
            missed, weight, self.epsilon
        ):
            errors.refuse(name, "inclusion", "within e^epsilon of the rest", self.inclusion)

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        # The constructor has compared the odds with e^ε in integers [YB18].
        return PureDP(epsilon=float_above(self.epsilon), **self.scope)

    def words(self) -> str:
        chance = above(Fraction(self.inclusion, 2**64))
        answer = f"Each answer, one of {self.categories} categories,"
        if self.size == 1:
            return f"{answer} becomes a random one, the true one with probability {chance}."
        return (
            f"{answer} becomes a random set of {self.size} categories that contains the true one "
            f"with probability {chance}."
        )


@dataclass(frozen=True)
class Exponential(Leaf):
    """Exponential mechanism or permute-and-flip: weight e^{score / scale}.

    A unit changes every score by at most `sensitivity`; ε is 2 · sensitivity / scale.
    """

    sensitivity: Fraction
    scale: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("sensitivity", "scale")
        errors.epsilon_in_range("Exponential", self.epsilon, least=Fraction(0))

    @property
    def epsilon(self) -> Fraction:
        return 2 * self.sensitivity / self.scale

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        # A score changes a weight by a factor of at most e^{Δ/t}, and so the normaliser: 2Δ/t
        # [MT07]; permute-and-flip: [MS20].
        return PureDP(epsilon=float_above(self.epsilon), **self.scope)

    def words(self) -> str:
        return (
            f"One candidate was chosen at random. Its weight grows by a factor of e for each "
            f"{below(self.scale)} of its score, which one {self.unit} can change by at most "
            f"{above(self.sensitivity)}."
        )


@dataclass(frozen=True)
class SparseVector(Leaf):
    """Sparse vector: Laplace noise on the threshold, on comparisons and on any numeric answers.

    A unit changes every answer by at most `sensitivity`, and at most `positives` are reported above
    the threshold. `answer_scale` is 0 if there are no numeric answers. The shares of ε are Δ over
    the scale of the threshold, 2cΔ (cΔ if monotonic) over that of comparisons, and cΔ over that of
    answers.
    """

    sensitivity: Fraction
    threshold_scale: Fraction
    comparison_scale: Fraction
    answer_scale: Fraction
    positives: int
    monotonic: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("sensitivity", "threshold_scale", "comparison_scale")
        answers = errors.rational("SparseVector", "answer_scale", self.answer_scale)
        if answers < 0:
            errors.refuse("SparseVector", "answer_scale", "at least 0", self.answer_scale)
        object.__setattr__(self, "answer_scale", answers)
        self._whole("positives", least=1)
        if not isinstance(self.monotonic, bool):
            errors.refuse("SparseVector", "monotonic", "true or false", self.monotonic)
        errors.epsilon_in_range("SparseVector", sum(self.shares), least=Fraction(0))

    @property
    def shares(self) -> tuple[Fraction, Fraction, Fraction]:
        """Return the shares of ε: threshold, comparisons, numeric answers."""
        product = self.positives * self.sensitivity
        compared = (1 if self.monotonic else 2) * product / self.comparison_scale
        answered = product / self.answer_scale if self.answer_scale else Fraction(0)
        return self.sensitivity / self.threshold_scale, compared, answered

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        # Algorithm 7 of [LSL17], with the scales that were used.
        return PureDP(epsilon=float_above(sum(self.shares, Fraction(0))), **self.scope)

    def words(self) -> str:
        numeric = f", {below(self.answer_scale)} on each released answer"
        return (
            f"Answers that one {self.unit} can change by at most {above(self.sensitivity)} "
            f"were compared with a threshold until {self.positives} of them were above it, "
            f"with Laplace noise of scale {below(self.threshold_scale)} on the threshold, "
            f"{below(self.comparison_scale)} on each comparison"
            f"{numeric if self.answer_scale else ''}."
        )

    def assumption(self) -> str | None:
        if not self.monotonic:
            return None
        return "Between neighbouring data sets, all compared answers move in the same direction."


@dataclass(frozen=True)
class CertifiedTable(Leaf):
    """A table of integer weights, all neighbouring rows of which were compared exactly.

    `sha256` identifies the table and its neighbours; with both, the rows can be compared again.
    """

    epsilon: Fraction
    delta: float
    inputs: int
    outputs: int
    sha256: str

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epsilon()
        delta = errors.probability("CertifiedTable", "delta", self.delta)
        object.__setattr__(self, "delta", delta)
        self._whole("inputs", least=2)
        self._whole("outputs", least=1)
        if not isinstance(self.sha256, str) or not re.fullmatch("[0-9a-f]{64}", self.sha256):
            errors.refuse("CertifiedTable", "sha256", "64 hexadecimal digits", self.sha256)

    def guarantee_at(self, delta: float | None = None) -> Guarantee:
        # The definition itself, checked: a finite channel is (ε, δ)-DP if and only if
        # Σ_r (P(r | x) − e^ε P(r | x'))₊ ≤ δ for all neighbours, and no pair is left out.
        epsilon = float_above(self.epsilon)
        if self.delta == 0:
            return PureDP(epsilon=epsilon, **self.scope)
        return ApproxDP(epsilon=epsilon, delta=self.delta, **self.scope)

    def words(self) -> str:
        return (
            f"Drawn from a table of {self.inputs} × {self.outputs} integer weights (SHA-256 "
            f"of the table and its neighbours: {self.sha256}). The issuer states that every "
            "pair of neighbouring rows was compared in whole numbers; that is not checked here."
        )

    def assumption(self) -> str:
        return "The table with that SHA-256 was compared, and is the one that was used."
