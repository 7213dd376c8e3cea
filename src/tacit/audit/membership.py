r"""Membership inference: telling from a model's losses who was in its training data.

`loss_threshold` is the attack of Yeom et al. [YGFJ18]_: a record with a small loss is called a
member. `from_scores` reports on any attack that gives each record a score. Both report the attack's
advantage (true minus false positive rate), the area under its curve, and its true positive rate at
small false positive rates, which is where an attack does harm [CCN22]_.

What (ε, δ)-DP allows follows from :math:`P(E) \le e^\varepsilon P'(E) + \delta` for the event that
the attack says "member", and for its complement [KOV15]_:

.. math:: \mathrm{TPR} \le e^\varepsilon\,\mathrm{FPR} + \delta, \qquad
          \mathrm{TPR} - \mathrm{FPR} \le \frac{e^\varepsilon - 1 + 2\delta}{e^\varepsilon + 1}.

The first gives :math:`\mathrm{TPR} - \mathrm{FPR} \le (e^\varepsilon - 1) \mathrm{FPR} + \delta`,
the second, for the complement, :math:`(e^\varepsilon - 1)(1 - \mathrm{TPR}) + \delta`; their mean
gives the bound. These are about probabilities, over records and training; a finite sample varies.

Fresh records are compared with members that they could replace. There an add-remove or a zero-out
claim bounds the advantage by way of the data with that place empty. With p the probability of E
then, :math:`1 - \mathrm{TPR} \ge e^{-\varepsilon}(1 - p - \delta)` and :math:`\mathrm{FPR} \ge
e^{-\varepsilon}(p - \delta)`, so

.. math:: \mathrm{TPR} - \mathrm{FPR} \le 1 - e^{-\varepsilon}(1 - 2\delta),

which is less than what the claim gives if restated for replacements.

Notes
-----
Results from one model do not prove an ε, however many records there are: members of one model are
not independent draws of its training. They do if each record was included or left out by a fair
coin of its own (`coins=True`, or `tacit.audit.games.play`): then a theorem about guessed coins
applies (`tacit.audit.guesses`). Without coins a report is an estimate, and refutes nothing.

Members against fresh records of the same distribution, with n fixed, are replace-one neighbours:
one member is exchanged for the fresh record. An add-remove or zero-out claim is restated, at twice
its ε.

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
    """Return −ln of the probability of the right class, which is at least 1e-12.

    Parameters
    ----------
    confidences : array of shape (n, K)
        Probabilities, in the order of `classes`.
    labels : array of shape (n,)
        Labels, each one of `classes`.
    """
    return np.asarray(-np.log(np.maximum(right_class(confidences, labels, classes), _FLOOR)))


def squared(predictions: Any, targets: Any) -> Reals:
    """Return squared errors."""
    gaps = np.asarray(predictions, dtype=np.float64) - np.asarray(targets, dtype=np.float64)
    return np.asarray(gaps**2)


def wrong(predictions: Any, labels: Any) -> Reals:
    """Return 1 where the prediction is wrong, else 0: for models that only predict labels."""
    return np.asarray(np.asarray(predictions) != np.asarray(labels), dtype=np.float64)


def right_class(confidences: Any, labels: Any, classes: Any) -> Reals:
    """Return the probability that the model gives each record's own class."""
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
    r"""Return :math:`(e^\varepsilon - 1 + 2\delta) / (e^\varepsilon + 1)`, at most 1."""
    delta = errors.probability("advantage_ceiling", "delta", delta)
    half = math.exp(-epsilon)
    return min((1 - half + 2 * delta * half) / (1 + half), 1.0)


def true_positive_ceiling(false_positive: float, epsilon: float, delta: float = 0.0) -> float:
    """Bound the true positive rate at this false positive rate, by the event and its complement."""
    rate = float(false_positive)
    if not 0 <= rate <= 1:
        errors.refuse("true_positive_ceiling", "false_positive", "from 0 to 1", false_positive)
    by_event = math.exp(min(epsilon, 700.0)) * rate + delta
    by_complement = 1 - math.exp(-epsilon) * max(1 - rate - delta, 0.0)
    return min(by_event, by_complement, 1.0)


def allowed_advantage(claim: Guarantee, delta: float | None = None) -> float:
    """Return the advantage that a claim allows over fresh records: 1 if it says nothing."""
    least = 1.0
    if (tested := restated(claim, Adjacency.REPLACE_ONE, delta)) is not None:
        least = advantage_ceiling(tested.epsilon, tested.delta)
    if (tested := restated(claim, Adjacency.ZERO_OUT, delta)) is not None:
        least = min(least, 1 - math.exp(-tested.epsilon) * (1 - 2 * tested.delta))
    return least


def restated(
    claim: Guarantee | None, adjacency: Adjacency, delta: float | None = None
) -> Promise | None:
    """Restate the claim as (ε, δ) about these neighbours; None if it says nothing about them.

    An add-remove or zero-out claim implies (2ε, (1 + e^ε) δ) for replace-one neighbours; both, and
    a replace-one claim, hold unchanged for a blank in a record's place. Only an add-remove claim
    covers the number of records, and a claim about labels says nothing about whole records. `delta`
    is the claim's; if it has none and needs one, 1e-5.
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
    """What a report is compared with, fixed before any score is seen."""

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
        """Build the setting; the δ is that of the claim to test, if there is one."""
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
    """The true positive rate at a target false positive rate."""

    target: float
    false_positive: Interval
    """The rate reached, on records that the threshold was not chosen on."""
    true_positive: Interval


@dataclass(frozen=True)
class AttackReport:
    """How well an attack separates members from others, and what that proves."""

    attack: str
    members: int
    others: int
    confidence: float
    advantage: Interval
    auc: Interval
    rates: tuple[RateAt, ...]
    estimated_epsilon: float
    """The ε that the rates would show if all records were independent draws. Not a proof."""
    delta: float
    certainty: float
    proof: Proof | None
    """What the coins prove; None without coins."""
    adjacency: Adjacency
    claim: Guarantee | None
    tested: Promise | None
    """The claim, restated for `adjacency`."""
    ceiling: float | None
    """The advantage that the claim allows; None without a claim."""

    @property
    def certified(self) -> bool:
        """Return whether coins decided who was a member, so that the bound is a proof."""
        return self.proof is not None

    @property
    def epsilon(self) -> float:
        """Return the proved lower bound on ε, with `certainty`; 0 without coins."""
        return 0.0 if self.proof is None else self.proof.epsilon

    @property
    def certifiable(self) -> float:
        """Return the largest ε that this many guesses could prove; 0 without coins."""
        return 0.0 if self.proof is None else self.proof.certifiable

    @property
    def refuted(self) -> bool:
        """Return whether the claim is false, at a risk of 1 − `certainty`. False without coins."""
        return self.tested is not None and self.epsilon > self.tested.epsilon

    @property
    def words(self) -> str:
        """Return one line: what is proved, next to what is claimed."""
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
        """Return plain values, for JSON."""
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
) -> AttackReport:
    """Run the attack of Yeom et al.: a loss of at most a threshold means a member.

    Parameters
    ----------
    member_losses, other_losses : arrays
        Losses of records that the model was trained on, and of others from the same population.
    threshold : {"best", "mean"} or float
        "mean": the mean loss of the members, which Yeom's attacker knows besides the model. The
        ceiling is not proved for it, though one record of many moves it little. "best": chosen on
        every second record and evaluated on the rest. A number: given by the attacker.
    claim : Guarantee, optional
        The model's guarantee.
    delta : float, optional
        The δ at which ε is bounded and the claim is read; by default the claim's own, or 0.
    confidence : float
        Confidence level of each interval.
    certainty : float
        Certainty of the proof: a true claim is refuted with probability at most 1 − certainty.
    coins : bool
        Assert that every record was included or left out by a fair coin of its own, that all of
        them are given, and that one model was fitted to the included ones. Then ε is proved, for
        add-remove neighbours, and a claim can be refuted. The number of records varies with the
        coins: if a claim takes it as public, use blanks or play in pairs (`tacit.audit.games`).
    blank : bool
        Assert that every record that was left out was replaced by a blank: neighbours are then
        zero-out, and claims about these can be refuted, too.
    rng : Randomness, optional
        Breaks ties among guesses.
    """
    members, others = (
        -_scores("loss_threshold", losses) for losses in (member_losses, other_losses)
    )
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
) -> AttackReport:
    """Report on an attack whose scores are larger where a record seems to be a member.

    The parameters are those of `loss_threshold`; the best threshold is used.
    """
    members, others = (_scores("from_scores", scores) for scores in (member_scores, other_scores))
    adjacency = _adjacency("from_scores", coins, blank)
    setting = Setting.of("from_scores", adjacency, claim, delta, confidence, certainty)
    proof = _proof(members, others, setting, rng) if coins else None
    return described(attack, members, others, setting, proof)


def _adjacency(where: str, coins: bool, blank: bool) -> Adjacency:
    """Return add-remove (or zero-out) with coins; without them, members are replaced by others."""
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
) -> AttackReport:
    """Report on scores, with a threshold at `place` or where it is best."""
    counted = (members, others)
    if place is None:
        place = _best_place(members[::2], others[::2])
        counted = (members[1::2], others[1::2])
    right, false = (scores >= place for scores in counted)
    confidence = setting.confidence
    return AttackReport(
        attack=attack,
        members=len(members),
        others=len(others),
        advantage=intervals.difference(right, false, confidence),
        auc=intervals.area(members, others, confidence),
        rates=tuple(_rate_at(target, members, others, confidence) for target in _RATES),
        estimated_epsilon=_estimate(members, others, setting),
        proof=proof,
        **vars(setting),
    )


def _scores(where: str, raw: Any) -> Reals:
    """Check scores; infinite ones are replaced by large ones in the same order."""
    scores = np.asarray(raw, dtype=np.float64).ravel()
    if len(scores) < _FEWEST:
        errors.refuse(where, "records of each side", f"at least {_FEWEST}", len(scores))
    if bool(np.isnan(scores).any()):
        raise errors.InvalidData(f"{where}: losses and scores must be numbers, without NaN.")
    return np.clip(scores, -_FARTHEST, _FARTHEST)


def _best_place(members: Reals, others: Reals) -> float:
    """Return the threshold of the largest advantage, in the middle of a gap between scores."""
    values = np.unique(np.concatenate([members, others]))
    if len(values) == 1:
        return float(values[0])
    places = values[1:] / 2 + values[:-1] / 2
    above = [
        1 - np.searchsorted(np.sort(scores), places) / len(scores) for scores in (members, others)
    ]
    return float(places[int(np.argmax(above[0] - above[1]))])


def _rate_at(target: float, members: Reals, others: Reals, confidence: float) -> RateAt:
    """Choose the threshold on every second of the others; count all members, and the rest."""
    choosing = np.sort(others[::2])[::-1]
    place = choosing[min(int(target * len(choosing)), len(choosing) - 1)]
    shares = [intervals.share(scores > place, confidence) for scores in (others[1::2], members)]
    return RateAt(target, *shares)


def _estimate(members: Reals, others: Reals, setting: Setting) -> float:
    """Estimate ε as from independent draws, with the event chosen on every second record."""
    size = min(len(members), len(others))
    first, second = (_thinned(scores, size) for scores in (members, others))
    known = {"delta": setting.delta, "confidence": setting.certainty}
    return bound_from_draws(first, second, [np.asarray], **known).epsilon


def _thinned(scores: Reals, size: int) -> Reals:
    """Take this many scores, evenly spread; every second one first."""
    mixed = np.concatenate([scores[::2], scores[1::2]])
    return np.asarray(mixed[np.linspace(0, len(mixed) - 1, size).astype(int)])
