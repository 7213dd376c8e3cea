r"""Membership inference: who was in the training data, told from a model's losses.

`loss_threshold` is the attack of Yeom et al. [YGFJ18]_: a record whose loss is small is called a
member. `from_scores` reports on any attack that gives each record a score. Both say how well the
attack does: its advantage (true less false positive rate), the area under its curve, and its true
positive rate where false ones are rare, which is where an attack does harm [CCN22]_.

What (ε, δ)-DP allows follows from :math:`P(E) \le e^\varepsilon P'(E) + \delta` for the event that
the attack says "member", and for its complement [KOV15]_:

.. math:: \mathrm{TPR} \le e^\varepsilon\,\mathrm{FPR} + \delta, \qquad
          \mathrm{TPR} - \mathrm{FPR} \le \frac{e^\varepsilon - 1 + 2\delta}{e^\varepsilon + 1}.

The first gives :math:`\mathrm{TPR} - \mathrm{FPR} \le (e^\varepsilon - 1) \mathrm{FPR} + \delta`,
the second, for the complement, :math:`(e^\varepsilon - 1)(1 - \mathrm{TPR}) + \delta`; their mean
gives the bound. These are about chances, over records and training; a finite sample scatters.

Fresh records are compared with members in whose place they could be. There an add-remove or a
zero-out claim bounds the advantage by way of the data with that place empty. With p the chance of
E then, :math:`1 - \mathrm{TPR} \ge e^{-\varepsilon}(1 - p - \delta)` and :math:`\mathrm{FPR} \ge
e^{-\varepsilon}(p - \delta)`, so

.. math:: \mathrm{TPR} - \mathrm{FPR} \le 1 - e^{-\varepsilon}(1 - 2\delta),

which is less than what the claim gives when restated for replacements.

Notes
-----
Numbers from one model are no proof of an ε, however many records there are: members of one model
are not independent draws of its training. They are one where each record was put in or left out by
a fair coin of its own (`coins=True`, or `tacit.audit.games.play`): then a theorem about guessed
coins holds (`tacit.audit.guesses`). Without coins a report gives an estimate, and refutes nothing.

Members against fresh records of the same law, with n fixed, are replace-one neighbours: one member
is exchanged for the fresh one. An add-remove or zero-out claim is restated, at twice its ε.

References
----------
.. [YGFJ18] Yeom, Giacomelli, Fredrikson, Jha. Privacy risk in machine learning: analyzing the
   connection to overfitting. CSF 2018.
.. [CCN22] Carlini, Chien, Nasr, Song, Terzis, Tramèr. Membership inference attacks from first
   principles. S&P 2022.
.. [KOV15] Kairouz, Oh, Viswanath. The composition theorem for differential privacy. ICML 2015.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.audit import guesses, intervals
from tacit.audit.guesses import Proof
from tacit.audit.intervals import Interval
from tacit.audit.statistical import bound_from_draws
from tacit.privacy import errors
from tacit.privacy.decimals import above, below
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PureDP, Unit
from tacit.privacy.randomness import Randomness

Reals = npt.NDArray[np.float64]
Promise = PureDP | ApproxDP

THRESHOLDS = ("best", "mean")
_RATES = (0.001, 0.01, 0.1)
_FLOOR, _FARTHEST = 1e-12, 1e150
_FEWEST, _USUAL_DELTA = 4, 1e-5


# --- losses ----------------------------------------------------------------------------------


def cross_entropy(confidences: Any, labels: Any, classes: Any) -> Reals:
    """−ln of the probability of the right class, which counts as 1e-12 where it is less.

    Parameters
    ----------
    confidences : array of shape (n, K)
        Probabilities, in the order of `classes`.
    labels : array of shape (n,)
        Each one of `classes`.
    """
    return np.asarray(-np.log(np.maximum(right_class(confidences, labels, classes), _FLOOR)))


def squared(predictions: Any, targets: Any) -> Reals:
    """Squared errors."""
    gaps = np.asarray(predictions, dtype=np.float64) - np.asarray(targets, dtype=np.float64)
    return np.asarray(gaps**2)


def wrong(predictions: Any, labels: Any) -> Reals:
    """1 where the label is not the one predicted: for models that say no more."""
    return np.asarray(np.asarray(predictions) != np.asarray(labels), dtype=np.float64)


def right_class(confidences: Any, labels: Any, classes: Any) -> Reals:
    """The probability that each record's own class was given."""
    table, names = np.asarray(confidences, dtype=np.float64), np.asarray(classes)
    truth = np.asarray(labels)
    if table.shape != (len(truth), len(names)):
        wanted = f"of shape {(len(truth), len(names))}"
        errors.refuse("cross_entropy", "confidences", wanted, table.shape)
    order = np.argsort(names)
    places = np.searchsorted(names, truth, sorter=order)
    places = order[np.minimum(places, len(names) - 1)]
    if not bool(np.all(names[places] == truth)):
        raise errors.InvalidData("cross_entropy: labels must be among the classes. Name them all.")
    return np.asarray(table[np.arange(len(truth)), places])


# --- what a claim allows ---------------------------------------------------------------------


def advantage_ceiling(epsilon: float, delta: float = 0.0) -> float:
    r""":math:`(e^\varepsilon - 1 + 2\delta) / (e^\varepsilon + 1)`, at most 1."""
    delta = errors.probability("advantage_ceiling", "delta", delta)
    half = math.exp(-epsilon)
    return min((1 - half + 2 * delta * half) / (1 + half), 1.0)


def true_positive_ceiling(false_positive: float, epsilon: float, delta: float = 0.0) -> float:
    """The most true positives at this rate of false ones: by the event and by its complement."""
    rate = float(false_positive)
    if not 0 <= rate <= 1:
        errors.refuse("true_positive_ceiling", "false_positive", "from 0 to 1", false_positive)
    by_event = math.exp(min(epsilon, 700.0)) * rate + delta
    by_complement = 1 - math.exp(-epsilon) * max(1 - rate - delta, 0.0)
    return min(by_event, by_complement, 1.0)


def allowed_advantage(claim: Guarantee, delta: float | None = None) -> float:
    """The advantage that a claim allows over fresh records: 1 where it says nothing."""
    least = 1.0
    if (tested := restated(claim, Adjacency.REPLACE_ONE, delta)) is not None:
        least = advantage_ceiling(tested.epsilon, tested.delta)
    if (tested := restated(claim, Adjacency.ZERO_OUT, delta)) is not None:
        least = min(least, 1 - math.exp(-tested.epsilon) * (1 - 2 * tested.delta))
    return least


def restated(
    claim: Guarantee | None, adjacency: Adjacency, delta: float | None = None
) -> Promise | None:
    """The claim as (ε, δ) about these neighbours; None where it says nothing about them.

    An add-remove or zero-out claim says (2ε, (1 + e^ε) δ) about replace-one neighbours; both, and
    a replace-one claim, say the same of a blank in a record's place. Only an add-remove claim says
    anything about how many there are, and none about labels about whole records. `delta` is the
    claim's; where it has none and needs one, 1e-5.
    """
    if claim is None or claim.unit is Unit.LABEL:
        return None
    promise = claim
    if delta is not None or not isinstance(claim, PureDP | ApproxDP):
        promise = claim.at_delta(_USUAL_DELTA if delta is None else delta)
    if promise.adjacency is not Adjacency.ANY_TWO_INPUTS:
        try:
            promise = promise.towards(adjacency)
        except errors.IncompatibleGuarantees:
            return None
    elif adjacency is not Adjacency.REPLACE_ONE:
        return None
    return promise if isinstance(promise, PureDP | ApproxDP) else None


# --- reports ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a report is read against, settled before any score is seen."""

    claim: Guarantee | None
    tested: Promise | None
    adjacency: Adjacency
    delta: float
    confidence: float
    certainty: float
    ceiling: float | None
    """The advantage that the claim allows; None without a claim."""

    @classmethod
    def of(
        cls,
        where: str,
        adjacency: Adjacency,
        claim: Guarantee | None,
        delta: float | None,
        confidence: float,
        certainty: float,
    ) -> Setting:
        """The δ is that of the claim to test, where there is one."""
        tested = restated(claim, adjacency, delta)
        at = errors.probability(where, "delta", 0.0 if delta is None else delta)
        ceiling = None if tested is None else advantage_ceiling(tested.epsilon, tested.delta)
        if claim is not None and tested is not None and adjacency is Adjacency.REPLACE_ONE:
            ceiling = allowed_advantage(claim, delta)
        return cls(
            claim=claim,
            tested=tested,
            adjacency=adjacency,
            delta=at if tested is None else tested.delta,
            confidence=errors.probability(where, "confidence", confidence, zero=False),
            certainty=errors.probability(where, "certainty", certainty, zero=False),
            ceiling=ceiling,
        )


@dataclass(frozen=True)
class RateAt:
    """True positives where false ones were asked to be so rare."""

    asked: float
    false_positive: Interval
    """What it came to, on records that the threshold was not chosen by."""
    true_positive: Interval


@dataclass(frozen=True)
class Report:
    """How well an attack tells members from others, and what that proves."""

    attack: str
    members: int
    others: int
    confidence: float
    advantage: Interval
    auc: Interval
    rates: tuple[RateAt, ...]
    estimated_epsilon: float
    """What the rates would show if all records were independent draws. No proof."""
    delta: float
    certainty: float
    proof: Proof | None
    """From coins alone; None without them."""
    adjacency: Adjacency
    claim: Guarantee | None
    tested: Promise | None
    """The claim, restated about `adjacency`."""
    ceiling: float | None
    """The advantage that the claim allows; None without a claim."""

    @property
    def certified(self) -> bool:
        """Whether coins decided who was a member, so that the bound is a proof."""
        return self.proof is not None

    @property
    def epsilon(self) -> float:
        """The ε that is proved to be a lower bound, with `certainty`; 0 without coins."""
        return 0.0 if self.proof is None else self.proof.epsilon

    @property
    def certifiable(self) -> float:
        """The largest ε that so many guesses could prove; 0 without coins."""
        return 0.0 if self.proof is None else self.proof.certifiable

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, but for a risk of 1 − `certainty`. Never without coins."""
        return self.tested is not None and self.epsilon > self.tested.epsilon

    @property
    def words(self) -> str:
        """One line: what is proved, beside what is claimed."""
        beside = _beside(self.tested, self.claim)
        if self.proof is None:
            return (
                f"no proof: members were not chosen by coins; the attack suggests ε ≥ "
                f"{self.estimated_epsilon:.3g}{beside}"
            )
        verdict = "proved" if self.tested is None else "refuted" if self.refuted else "not refuted"
        return (
            f"{verdict}: ε ≥ {below(self.epsilon, 3)} at δ = {above(self.delta, 3)} "
            f"({self.adjacency}, certainty {100 * self.certainty:.6g} %, at most "
            f"{above(self.certifiable, 3)} could be shown){beside}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = {k: v for k, v in asdict(self).items() if k not in ("claim", "tested", "rates")}
        claims = {"claim": self.claim, "tested": self.tested}
        return {
            **plain,
            "adjacency": str(self.adjacency),
            "rates": [asdict(rate) for rate in self.rates],
            **{key: None if one is None else str(one) for key, one in claims.items()},
            "certified": self.certified,
            "epsilon": self.epsilon,
            "certifiable": self.certifiable,
            "refuted": self.refuted,
            "words": self.words,
        }


def _beside(tested: Promise | None, claim: Guarantee | None) -> str:
    if claim is None:
        return ""
    if tested is None:
        return f"; {claim} says nothing that this could test"
    return f"; claimed: {tested}" + ("" if tested == claim else f", from {claim}")


def loss_threshold(
    member_losses: Any,
    other_losses: Any,
    *,
    threshold: str | float = "best",
    claim: Guarantee | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    certainty: float = 0.99,
    coins: bool = False,
    blank: bool = False,
    rng: Randomness | None = None,
) -> Report:
    """The attack of Yeom et al.: whose loss is at most a threshold is called a member.

    Parameters
    ----------
    member_losses, other_losses : arrays
        Of records that the model was trained on, and of others from where those came.
    threshold : {"best", "mean"} or float
        "mean": the mean loss of the members, which Yeom's attacker knows beside the model: the
        ceiling is not proved for it, though one record moves it by little where they are many.
        "best": chosen on every second record and counted on the rest. A number: the attacker's own.
    claim : Guarantee, optional
        What the model promises.
    delta : float, optional
        At which ε is bounded, and the claim is read; without it the claim's own, or 0.
    confidence : float
        Of each interval.
    certainty : float
        Of the proof: a true claim is refuted with a chance of 1 − certainty at most.
    coins : bool
        Vouch that every record was put in or left out by a fair coin of its own, that all of them
        are here, and that one model was fitted to those inside. Then ε is proved, for add-remove
        neighbours, and a claim can be refuted. The number of records varies with the coins: where
        a claim takes it as public, leave blanks or play in pairs (`tacit.audit.games`).
    blank : bool
        Vouch that whoever was left out had a blank record in their place: neighbours are then
        zero-out ones, and claims about these can be refuted, too.
    rng : Randomness, optional
        Breaks ties among guesses.
    """
    members, others = (-_scores("loss_threshold", one) for one in (member_losses, other_losses))
    attack, place = "loss at most a given one", None
    if threshold == "mean":
        attack, place = "loss at most the mean of members", float(members.mean())
    elif isinstance(threshold, str):
        attack = "loss threshold"
        errors.choice("loss_threshold", "threshold", threshold, THRESHOLDS)
    else:
        place = -float(errors.rational("loss_threshold", "threshold", threshold))
    adjacency = _adjacency("loss_threshold", coins, blank)
    setting = Setting.of("loss_threshold", adjacency, claim, delta, confidence, certainty)
    proof = _proof(members, others, setting, rng) if coins else None
    return described(attack, members, others, setting, proof, place)


def from_scores(
    member_scores: Any,
    other_scores: Any,
    *,
    attack: str = "scores",
    claim: Guarantee | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    certainty: float = 0.99,
    coins: bool = False,
    blank: bool = False,
    rng: Randomness | None = None,
) -> Report:
    """Report on an attack whose scores are larger where a record seems to be a member.

    The parameters are those of `loss_threshold`; the threshold is the best.
    """
    members, others = (_scores("from_scores", one) for one in (member_scores, other_scores))
    adjacency = _adjacency("from_scores", coins, blank)
    setting = Setting.of("from_scores", adjacency, claim, delta, confidence, certainty)
    proof = _proof(members, others, setting, rng) if coins else None
    return described(attack, members, others, setting, proof)


def _adjacency(where: str, coins: bool, blank: bool) -> Adjacency:
    """Coins add and remove; without them a member is compared with whom it could be replaced by."""
    if blank and not coins:
        errors.refuse(where, "blank", "False without coins", blank)
    if blank:
        return Adjacency.ZERO_OUT
    return Adjacency.ADD_REMOVE if coins else Adjacency.REPLACE_ONE


def _proof(members: Reals, others: Reals, setting: Setting, rng: Randomness | None) -> Proof:
    inside = np.repeat([True, False], [len(members), len(others)])
    scores = np.concatenate([members, others])
    delta, certainty = setting.delta, setting.certainty
    return guesses.from_singles(inside, scores, delta=delta, certainty=certainty, rng=rng)


def described(
    attack: str,
    members: Reals,
    others: Reals,
    setting: Setting,
    proof: Proof | None,
    place: float | None = None,
) -> Report:
    """All that scores say, with a threshold at `place` or where it is best."""
    counted = (members, others)
    if place is None:
        place = _best_place(members[::2], others[::2])
        counted = (members[1::2], others[1::2])
    right, false = (scores >= place for scores in counted)
    confidence = setting.confidence
    return Report(
        attack=attack,
        members=len(members),
        others=len(others),
        advantage=intervals.difference(right, false, confidence),
        auc=intervals.area(members, others, confidence),
        rates=tuple(_rate_at(asked, members, others, confidence) for asked in _RATES),
        estimated_epsilon=_estimate(members, others, setting),
        proof=proof,
        **vars(setting),
    )


def _scores(where: str, raw: Any) -> Reals:
    """Numbers, with infinite ones put far out: they keep their order."""
    scores = np.asarray(raw, dtype=np.float64).ravel()
    if len(scores) < _FEWEST:
        errors.refuse(where, "records of each side", f"at least {_FEWEST}", len(scores))
    if bool(np.isnan(scores).any()):
        raise errors.InvalidData(f"{where}: losses and scores must be numbers, without NaN.")
    return np.clip(scores, -_FARTHEST, _FARTHEST)


def _best_place(members: Reals, others: Reals) -> float:
    """The threshold of the largest advantage; in the middle of a gap, where fresh scores part."""
    values = np.unique(np.concatenate([members, others]))
    if len(values) == 1:
        return float(values[0])
    places = values[1:] / 2 + values[:-1] / 2
    above = [1 - np.searchsorted(np.sort(one), places) / len(one) for one in (members, others)]
    return float(places[int(np.argmax(above[0] - above[1]))])


def _rate_at(asked: float, members: Reals, others: Reals, confidence: float) -> RateAt:
    """The threshold by every second of the others; all members, and the rest, are counted."""
    choosing = np.sort(others[::2])[::-1]
    place = choosing[min(int(asked * len(choosing)), len(choosing) - 1)]
    shares = [intervals.share(one > place, confidence) for one in (others[1::2], members)]
    return RateAt(asked, *shares)


def _estimate(members: Reals, others: Reals, setting: Setting) -> float:
    """As from independent draws, the event chosen on every second record."""
    size = min(len(members), len(others))
    first, second = (_thinned(one, size) for one in (members, others))
    known = {"delta": setting.delta, "confidence": setting.certainty}
    return bound_from_draws(first, second, [np.asarray], **known).epsilon


def _thinned(scores: Reals, size: int) -> Reals:
    """So many of them, from all over; every second one first."""
    mixed = np.concatenate([scores[::2], scores[1::2]])
    return np.asarray(mixed[np.linspace(0, len(mixed) - 1, size).astype(int)])
