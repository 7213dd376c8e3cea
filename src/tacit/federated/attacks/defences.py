r"""Defences: rules that replace the mean if up to f of n clients may send anything.

Norm bounding is implemented here; median, trimmed mean, Krum, Multi-Krum and Bulyan are Flower's
functions. Let D be the largest distance between two honest replies and, in one coordinate, [a, b]
the range of the honest values and w = b − a.

==============  ==========  ===================================================================
rule            needs n ≥   whatever the f attackers send
==============  ==========  ===================================================================
norm-bounding   1           one client moves the mean by at most 2C/n
median          2f + 1      each coordinate lies in [a, b]
trimmed-mean    2f + 1      each coordinate lies in [a, b]
krum            2f + 3      the reply chosen is at most rD from some honest one
multi-krum      2f + 3      each reply averaged is at most rD from some honest one
bulyan          4f + 3      each coordinate lies in [a − w, b + w]
==============  ==========  ===================================================================

with :math:`r^2 = (n - f - 2) / (n - 2f - 1)`.

*Median, trimmed mean.* Of the sorted values of a coordinate the f lowest and the f highest are
dropped (for the median, all but the middle). At most f values are the attackers', so the rest lies
between two honest values. *Krum.* A score is the sum of squared distances to the n − f − 2 nearest
others. Each honest reply has n − f − 1 honest others, so its score is at most (n − f − 2) D². A
hostile one has f − 1 hostile others, so at least n − 2f − 1 of its nearest are honest; if all of
these are further away than rD, its score is larger than any honest one. Multi-Krum takes the
n − f − 2 best, fewer than there are honest ones. *Bulyan.* Of its n − 2f selected replies at most f
are hostile, and n − 2f ≥ 2f + 3, so the median of a coordinate lies in [a, b]. It averages the
n − 4f values nearest to that median; at least n − 3f honest values lie within w of it, so these do
as well.

None of this is a privacy guarantee, and none implies that the model is accurate: if honest clients
differ, D and w are large, and an attacker who stays inside them is not detected.

References
----------
.. [SKSM19] Sun, Kairouz, Suresh, McMahan. Can you really backdoor federated learning? 2019: norm
   bounding.
.. [YCRB18] Yin, Chen, Ramchandran, Bartlett. Byzantine-robust distributed learning. ICML 2018:
   median and trimmed mean.
.. [BMG17] Blanchard et al. Machine learning with adversaries. NeurIPS 2017: Krum, Multi-Krum.
.. [MGR18] El Mhamdi, Guerraoui, Rouault. The hidden vulnerability of distributed learning in
   Byzantium. ICML 2018: Bulyan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.federated.algorithms.registry import Algorithm, Phase
from tacit.federated.algorithms.server_updates import Averaged
from tacit.federated.config import Config
from tacit.federated.coordinator import Coordinator, PlainMean
from tacit.federated.payload import Layout, Payload
from tacit.privacy import errors

Floats = npt.NDArray[np.float64]
Replies = list[tuple[list[Floats], int]]
"""Replies as Flower's functions take them: arrays and a number of rows, which is 1 for all."""


@dataclass(frozen=True)
class DefenceRule:
    """One of Flower's robust rules, which combines replies into one vector.

    It needs per_attacker · f + besides replies.
    """

    combine: Callable[[Any, Replies, int], list[Floats]]
    per_attacker: int
    besides: int

    def least(self, attackers: int) -> int:
        """Return the smallest number of replies for which the table of this module holds."""
        return self.per_attacker * attackers + self.besides


def _median(flower: Any, replies: Replies, attackers: int) -> list[Floats]:
    return flower.aggregate_median(replies)  # type: ignore[no-any-return]


def _trimmed(flower: Any, replies: Replies, attackers: int) -> list[Floats]:
    # Flower rounds share · n down; the additional 0.25 keeps rounding errors from giving f − 1.
    share = (attackers + 0.25) / len(replies)
    return flower.aggregate_trimmed_avg(replies, share)  # type: ignore[no-any-return]


def _krum(flower: Any, replies: Replies, attackers: int) -> list[Floats]:
    return flower.aggregate_krum(replies, attackers, 0)  # type: ignore[no-any-return]


def _multi_krum(flower: Any, replies: Replies, attackers: int) -> list[Floats]:
    keep = len(replies) - attackers - 2
    return flower.aggregate_krum(replies, attackers, keep)  # type: ignore[no-any-return]


def _bulyan(flower: Any, replies: Replies, attackers: int) -> list[Floats]:
    rule = flower.aggregate_krum
    return flower.aggregate_bulyan(replies, attackers, rule, to_keep=0)  # type: ignore[no-any-return]


RULES: Mapping[str, DefenceRule] = MappingProxyType(
    {
        "median": DefenceRule(_median, 2, 1),
        "trimmed-mean": DefenceRule(_trimmed, 2, 1),
        "krum": DefenceRule(_krum, 2, 3),
        "multi-krum": DefenceRule(_multi_krum, 2, 3),
        "bulyan": DefenceRule(_bulyan, 4, 3),
    }
)
"""Rules that read single replies, by name."""


@dataclass(frozen=True)
class NormBounding(Coordinator):
    r"""The mean of replies that are clipped to a norm of at most C [SKSM19]_.

    .. math:: \bar v = \frac1n \sum_k v_k \min(1, C / \lVert v_k \rVert)

    Parameters
    ----------
    bound : float
        C, for the reply of each phase.
    over : PlainMean
        Coordinator that chooses the clients.
    """

    bound: float
    over: Coordinator = PlainMean()  # noqa: RUF009

    def __post_init__(self) -> None:
        errors.positive("NormBounding", "bound", self.bound)
        remedy = "A private coordinator clips every reply itself; a secure sum hides them."
        _require_plain("NormBounding", self.over, remedy)

    def admit(self, algorithm: Algorithm, config: Config, clients: int) -> None:
        """Refuse algorithms that are wrong without the mean."""
        _require_stateless("NormBounding", algorithm)
        self.over.admit(algorithm, config, clients)

    def choose(self, number: int, clients: int) -> list[int]:
        return self.over.choose(number, clients)

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged | None:
        if not taken:
            return None
        return _averaged(taken, lambda replies: bounded_mean(replies, self.bound))


@dataclass(frozen=True)
class Robust(Coordinator):
    """One of Flower's robust rules in place of the mean.

    Parameters
    ----------
    rule : str
        One of `RULES`.
    attackers : int
        f, the number of hostile clients among those that reply.
    over : PlainMean
        Coordinator that chooses the clients.

    Notes
    -----
    All clients have equal weight: a weight is a claim, and an attacker may claim any. A round with
    fewer replies than the rule needs is skipped, since its result has no bound. (Flower's own
    strategies average what Multi-Krum keeps by claimed weights, and check n only for Bulyan.)

    The rule reads single replies. So it cannot run under secure aggregation, which hides them, nor
    over a private coordinator: that noise is calibrated to a sum that one client moves by at most
    C, whereas one client may change which reply Krum selects altogether.
    """

    rule: str
    attackers: int
    over: Coordinator = PlainMean()  # noqa: RUF009

    def __post_init__(self) -> None:
        errors.choice("Robust", "rule", self.rule, list(RULES))
        errors.whole("Robust", "attackers", self.attackers, least=0)
        remedy = (
            f"{self.rule} reads single replies: a secure sum hides them, and noise for a bounded "
            "sum does not cover a choice among them."
        )
        _require_plain("Robust", self.over, remedy)
        _flower()

    @property
    def least(self) -> int:
        """The smallest number of replies that the rule accepts."""
        return RULES[self.rule].least(self.attackers)

    def admit(self, algorithm: Algorithm, config: Config, clients: int) -> None:
        """Refuse too small a cohort, and algorithms that are wrong without the mean."""
        _require_stateless("Robust", algorithm)
        cohort = len(self.over.choose(1, clients))
        if cohort < self.least:
            condition = f"at least {self.least} in a round for {self.rule} and {self.attackers} "
            remedy = "Ask more clients, assume fewer attackers, or use the median."
            errors.refuse("Robust", "clients", condition + "attackers", cohort, remedy)
        self.over.admit(algorithm, config, clients)

    def choose(self, number: int, clients: int) -> list[int]:
        return self.over.choose(number, clients)

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged | None:
        if len(taken) < self.least:
            return None
        return _averaged(taken, lambda replies: combined(self.rule, replies, self.attackers))


def bounded_mean(replies: Floats, bound: float) -> Floats:
    """Clip each row to a norm, and average.

    Examples
    --------
    >>> bounded_mean(np.array([[3.0, 4.0], [0.0, 0.0]]), 1.0)
    array([0.3, 0.4])
    """
    norms = np.linalg.norm(replies, axis=1, keepdims=True)
    factors = np.divide(bound, norms, out=np.ones_like(norms), where=norms > bound)
    return np.asarray((replies * factors).mean(axis=0))


def combined(rule: str, replies: Floats, attackers: int) -> Floats:
    """Combine replies, one per row, by a rule.

    Examples
    --------
    >>> combined("median", np.array([[1.0], [2.0], [1e6]]), 1)
    array([2.])
    """
    (vector,) = RULES[rule].combine(_flower(), [([one], 1) for one in replies], attackers)
    return np.asarray(vector, dtype=np.float64)


def _averaged(taken: Mapping[int, Payload], combine: Callable[[Floats], Floats]) -> Averaged:
    payloads: Sequence[Payload] = list(taken.values())
    parts = {
        name: combine(np.stack([one.parts[name] for one in payloads]).astype(np.float64))
        for name in payloads[0].parts
    }
    return Averaged(parts, float(len(payloads)))


def _require_plain(where: str, over: Coordinator, remedy: str) -> None:
    if not isinstance(over, PlainMean):
        errors.refuse(where, "over", "a plain coordinator", type(over).__name__, remedy)


def _require_stateless(where: str, algorithm: Algorithm) -> None:
    if algorithm.state:
        remedy = "Its clients rely on the mean of what they sent, which a defence replaces."
        condition = "one whose clients keep no state between rounds"
        errors.refuse(where, "algorithm", condition, algorithm.name, remedy)


def _flower() -> Any:
    """Import Flower's aggregation functions, after setting Flower to stay offline."""
    try:
        import_module("tacit.federated.flower")
        return import_module("flwr.server.strategy.aggregate")
    except ImportError:
        raise errors.TacitError(
            "Robust: Flower must be installed. pip install 'tacit[federated]'."
        ) from None
