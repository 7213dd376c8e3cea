r"""The in-house rows (D1) that something was learned on: what protects them, and what may leave.

A mechanism is learned on rows that an organisation holds, and parts of it are handed to people,
voters and partners. Whatever is handed out must carry a central guarantee towards those rows,
unless their owner states that they are public.

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit import errors, events, wording
from tacit.accounting import gaussian
from tacit.certificate import Certificate
from tacit.events import Event
from tacit.guarantees import Adjacency, Guarantee, NotPrivate, PureDP, Unit, Unproven
from tacit.randomness import Seeded

ENCODER, DECODER, CLASSIFIER = "encoder", "decoder", "classifier"
LEVELS = ("latent", "feature")
_TABLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("collection", "latent"): (ENCODER,),
    ("collection", "feature"): (ENCODER,),
    ("novel-class", "latent"): (ENCODER,),
    ("novel-class", "feature"): (ENCODER,),
    ("join", "latent"): (),
    ("join", "feature"): (DECODER,),
    # Not in the paper's table: its voters receive the classifier, and all that it runs on.
    ("validation", "latent"): (ENCODER, CLASSIFIER),
    ("validation", "feature"): (ENCODER, DECODER, CLASSIFIER),
}
APPLICATIONS = tuple(dict.fromkeys(application for application, _ in _TABLE))

COUNTED = "How many in-house rows there are: sizes, rates and step lengths were set from it."
DECLARED = "Bounds and categories were declared without looking at the in-house rows."
UNFIT = "That an in-house row does not fit what was declared: fitting is then refused."
PUBLIC = "The in-house rows: their owner states that they are public."
_SCOPE: dict[str, Any] = {"adjacency": Adjacency.ADD_REMOVE, "unit": Unit.RECORD}
_LARGEST_DELTA = 0.01
_NOTHING = PureDP(epsilon=0.0, **_SCOPE)


def requirements(application: str, level: str = "latent") -> tuple[str, ...]:
    """The components that leave the house, and so must carry a central guarantee towards D1.

    Table 1 of [000]_, and a row that it lacks: validation, where voters receive the classifier.
    In data collection, feature level needs no decoder outside: latents are decoded in-house.

    Examples
    --------
    >>> requirements("collection", "feature"), requirements("join", "latent")
    (('encoder',), ())
    """
    errors.choice("requirements", "application", application, APPLICATIONS)
    errors.choice("requirements", "level", level, LEVELS)
    return _TABLE[application, level]


@dataclass(frozen=True)
class Protection:
    """What is promised to the in-house rows by everything that was learned from them.

    Parameters
    ----------
    certificate : Certificate
        What ran on them, and what follows: central, towards one row that counts, or does not.
    public : bool
        Whether their owner states that they are public; then nothing needs to be promised.
    """

    certificate: Certificate
    public: bool = False

    @classmethod
    def none(cls, public: bool = False) -> Protection:
        """Nothing is promised: something was computed from the rows without noise."""
        return cls._declared(NotPrivate(**_SCOPE), public)

    @classmethod
    def unproven(cls, reason: str, public: bool = False) -> Protection:
        """Noise was added, and nobody has proved what it gives."""
        return cls._declared(Unproven(reason=reason, **_SCOPE), public)

    @classmethod
    def untouched(cls) -> Protection:
        """No row was looked at: nothing can leak."""
        return cls._declared(_NOTHING, assumptions=(DECLARED,))

    @classmethod
    def _declared(
        cls, guarantee: Guarantee, public: bool = False, assumptions: tuple[str, ...] = ()
    ) -> Protection:
        event, said = events.Declared(guarantee), (PUBLIC,) if public else ()
        return cls(Certificate.issue(event, assumptions=assumptions, not_protected=said), public)

    @classmethod
    def of(
        cls,
        event: Event,
        delta: float,
        *,
        assumptions: Sequence[str] = (),
        not_protected: Sequence[str] = (),
        public: bool = False,
        seeded: bool = False,
    ) -> Protection:
        """What an event on the rows gives at this δ."""
        issued = Certificate.issue(
            event,
            delta=delta,
            assumptions=tuple(dict.fromkeys((DECLARED, *assumptions))),
            not_protected=(COUNTED, UNFIT, *([PUBLIC] if public else []), *not_protected),
            rng=Seeded(0) if seeded else None,
        )
        return cls(issued, public)

    def and_then(
        self,
        event: Event,
        delta: float,
        *,
        assumptions: Sequence[str] = (),
        public: bool = True,
        seeded: bool = False,
    ) -> Protection:
        """The same after one more event on the same rows; the δ of both add up.

        Public only where it was, and the rows of that event are said to be too.
        """
        if not self.proved:
            return self
        spent, earlier = self.certificate.event, self.certificate.assumptions
        composed = events.composed(spent, event) if self.learned else event
        marked = seeded or self.certificate.seeded
        standard = {
            line
            for one in (True, False)
            for part in (spent, event)
            for line in wording.standard_assumptions(part, seeded=one)
        }
        further = [line for line in (*earlier, *assumptions) if line not in standard]
        deltas = [errors.rational("and_then", "delta", one) for one in (self.delta, delta)]
        return Protection.of(
            composed,
            float(sum(deltas)),
            assumptions=list(dict.fromkeys(further)),
            public=self.public and public,
            seeded=marked,
        )

    @property
    def guarantee(self) -> Guarantee:
        """Towards the in-house rows."""
        return self.certificate.guarantee

    @property
    def delta(self) -> float:
        """That of the guarantee; 0 where it has none."""
        return float(getattr(self.guarantee, "delta", 0.0))

    @property
    def proved(self) -> bool:
        """Whether the guarantee is a proved one."""
        return not isinstance(self.guarantee, NotPrivate | Unproven)

    @property
    def learned(self) -> bool:
        """Whether anything was read off the rows."""
        return self.guarantee != _NOTHING

    @property
    def may_leave(self) -> bool:
        """Whether what was learned may be handed out; noise that a seed undoes protects nobody."""
        return self.public or (self.proved and not self.certificate.seeded)

    @property
    def sentence(self) -> str:
        """For the certificates of those who report, under what is not protected."""
        rows = "The in-house rows that the mechanism was fitted on"
        if self.public:
            return f"{rows}: their owner states that they are public."
        if isinstance(self.guarantee, NotPrivate):
            return f"{rows} are not protected: what it knows of them has no noise."
        if not self.learned:
            return f"{rows} need no protection: it does not depend on them."
        if isinstance(self.guarantee, Unproven):
            return f"{rows}: {self.guarantee}."
        marked = " (seeded, for tests)" if self.certificate.seeded else ""
        return f"{rows}, beyond {self.guarantee}{marked}: see the certificate towards them."

    def must_leave(self, what: str) -> None:
        """Refuse to hand out what may not leave the house."""
        if self.proved and not self.may_leave:
            raise errors.InvalidParameter(
                f"export: {what} must have noise from the operating system, got a seeded "
                "generator, for tests. Fit again without rng."
            )
        if not self.may_leave:
            raise errors.InvalidParameter(
                f"export: {what} must carry a central guarantee towards the in-house rows, got "
                f"{self.guarantee}. Fit with central_epsilon and central_delta, or state that the "
                "rows are public."
            )

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"public": self.public, "certificate": self.certificate.to_json()}

    @classmethod
    def from_plain(cls, body: dict[str, Any], *, learned: bool = True) -> Protection:
        """Back from `to_plain`; the certificate is verified.

        Of what was `learned` from rows nobody can declare a guarantee: it follows from events.
        """
        stated = Certificate.from_json(body["certificate"])
        stated.verify()
        if body["public"] is not (PUBLIC in stated.not_protected):
            errors.refuse("inhouse", "public", "what the certificate says", body["public"])
        if events.scope_of(stated.event)["adjacency"] not in events.ONE_OR_NONE:
            errors.refuse(
                "inhouse", "certificate", "about one row more or less", str(stated.guarantee)
            )
        made = cls(stated, body["public"])
        stated_by_hand = any(
            isinstance(one, events.Declared) for one in events.leaves(stated.event)
        )
        if learned and made.proved and stated_by_hand:
            errors.refuse("inhouse", "guarantee", "that of events", str(stated.guarantee))
        return made


def together(protections: Sequence[Protection]) -> Protection:
    """What several things give, all learned on in-house rows: their costs add up.

    Where nothing is proved of one, nothing is of the whole; it may still leave if that one may.
    """
    # Noise that protects rows elsewhere protects nothing of what was learned without: so a part
    # of which nothing is proved decides, and one whose rows are not public before the others.
    unproved = sorted((one for one in protections if not one.proved), key=lambda one: one.public)
    if unproved:
        return unproved[0]
    total = Protection.untouched()
    for one in (one for one in protections if one.learned):
        stated = one.certificate
        total = total.and_then(
            stated.event,
            one.delta,
            assumptions=stated.assumptions,
            public=one.public,
            seeded=stated.seeded,
        )
    return total


@dataclass(frozen=True)
class Target:
    """A central budget: all that is learned from the in-house rows may cost (ε, δ)."""

    epsilon: float
    delta: float

    @classmethod
    def of(cls, where: str, epsilon: Any, delta: Any) -> Target | None:
        """Both or neither."""
        if epsilon is None and delta is None:
            return None
        if epsilon is None or delta is None:
            missing = "central_epsilon" if epsilon is None else "central_delta"
            errors.refuse(where, missing, "given with the other", None, "1e-5 is a usual δ.")
        number = errors.epsilon_in_range(where, epsilon)
        chance = errors.probability(where, "central_delta", delta, zero=False)
        if chance > _LARGEST_DELTA:
            errors.refuse(where, "central_delta", f"at most {_LARGEST_DELTA:g}", delta)
        return cls(float(number), chance)

    def part(self, count: int) -> Target:
        """Of so many equal parts that are Gaussian throughout: together they spend it all."""
        share = self.delta / count
        multiplier = self.noise_multiplier * math.sqrt(count)
        return Target(gaussian.epsilon_of(multiplier, share), share)

    @property
    def noise_multiplier(self) -> float:
        """Of the one Gaussian that spends it all."""
        return gaussian.noise_multiplier_for(self.epsilon, self.delta)
