r"""The in-house rows (D1) that something was learned on: what protects them, and what may leave.

A mechanism is learned on rows that an organisation holds, and parts of it are handed to people,
voters and partners. Whatever is handed out must carry a central guarantee towards those rows,
unless their owner states that they are public.

That guarantee is towards *zero-out* neighbours: the number of in-house rows is public, as sizes and
rates follow from it, and one row is in its place or a blank is. The rows of different people may go
into one thing: each set has a promise of its own, and none stands for another.

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.privacy import errors, events
from tacit.privacy.accounting import gaussian
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Adjacency, Guarantee, NotPrivate, PureDP, Unit, Unproven
from tacit.privacy.randomness import Seeded

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
FITTED = "The in-house rows that the mechanism was fitted on"
TAUGHT = "The in-house rows that the model was taught on"
WHOSE = (FITTED, TAUGHT)
_REMEDIES = {
    FITTED: "Fit the mechanism with central_epsilon and central_delta, or state that the rows are "
    "public.",
    TAUGHT: "Fit a StudentClassifier with central_epsilon and central_delta (no other classifier "
    "that is taught on in-house rows has them), or state that the rows are public.",
}
_SCOPE: dict[str, Any] = {"adjacency": Adjacency.ZERO_OUT, "unit": Unit.RECORD}
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
class Part:
    """What is promised to one set of in-house rows.

    Parameters
    ----------
    certificate : Certificate
        What ran on them, and what follows: central, towards one row in its place or a blank there.
    public : bool
        Whether their owner states that they are public; then nothing needs to be promised.
    whose : str
        Which rows: one of `WHOSE`.
    """

    certificate: Certificate
    public: bool = False
    whose: str = FITTED

    @property
    def guarantee(self) -> Guarantee:
        """Towards these rows."""
        return self.certificate.guarantee

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
        """What a certificate of others says of these rows."""
        if self.public:
            return f"{self.whose}: their owner states that they are public."
        if isinstance(self.guarantee, NotPrivate):
            return f"{self.whose} are not protected: what it knows of them has no noise."
        if not self.learned:
            return f"{self.whose} need no protection: it does not depend on them."
        if isinstance(self.guarantee, Unproven):
            return f"{self.whose}: {self.guarantee}."
        marked = " (seeded, for tests)" if self.certificate.seeded else ""
        return f"{self.whose}, beyond {self.guarantee}{marked}: see the certificate towards them."

    def must_leave(self, what: str) -> None:
        """Refuse to hand out what may not leave the house."""
        if self.may_leave:
            return
        if self.proved:
            raise errors.InvalidParameter(
                f"export: {what} must have noise from the operating system, got a seeded "
                "generator, for tests. Fit again without rng."
            )
        raise errors.InvalidParameter(
            f"export: {what} must carry a central guarantee towards the in-house rows, got "
            f"{self.guarantee}. {_REMEDIES[self.whose]}"
        )

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready."""
        stated = self.certificate.to_json()
        return {"whose": self.whose, "public": self.public, "certificate": stated}

    @classmethod
    def from_plain(cls, body: dict[str, Any], learned: bool) -> Part:
        """Back from `to_plain`; the certificate is verified."""
        stated = Certificate.from_json(body["certificate"])
        stated.verify()
        if body["public"] is not (PUBLIC in stated.not_protected):
            errors.refuse("inhouse", "public", "what the certificate says", body["public"])
        if events.scope_of(stated.event)["adjacency"] is not Adjacency.ZERO_OUT:
            condition = "about one row or a blank in its place"
            errors.refuse("inhouse", "certificate", condition, str(stated.guarantee))
        made = cls(stated, body["public"], errors.choice("inhouse", "whose", body["whose"], WHOSE))
        declared = any(isinstance(one, events.Declared) for one in events.leaves(stated.event))
        if learned and made.proved and declared:
            errors.refuse("inhouse", "guarantee", "that of events", str(stated.guarantee))
        return made


@dataclass(frozen=True)
class Protection:
    """What is promised to in-house rows by everything that was learned from them.

    Rows of different people may have been used for different things, such as a codebook and the
    student of it. Each set is one part with a promise of its own, and parts are never merged:
    nothing leaves while any of them forbids it.
    """

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            errors.refuse("inhouse", "parts", "at least one", 0)

    @classmethod
    def none(cls, public: bool = False, whose: str = FITTED) -> Protection:
        """Nothing is promised: something was computed from the rows without noise."""
        return cls._declared(NotPrivate(**_SCOPE), public, whose)

    @classmethod
    def unproven(cls, reason: str, public: bool = False, whose: str = FITTED) -> Protection:
        """Noise was added, and nobody has proved what it gives."""
        return cls._declared(Unproven(reason=reason, **_SCOPE), public, whose)

    @classmethod
    def untouched(cls) -> Protection:
        """No row was looked at: nothing can leak."""
        return cls._declared(_NOTHING, assumptions=(DECLARED,))

    @classmethod
    def _declared(
        cls,
        guarantee: Guarantee,
        public: bool = False,
        whose: str = FITTED,
        assumptions: tuple[str, ...] = (),
    ) -> Protection:
        event, said = events.Declared(guarantee), (PUBLIC,) if public else ()
        issued = Certificate.issue(event, assumptions=assumptions, not_protected=said)
        return cls((Part(issued, public, whose),))

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
        whose: str = FITTED,
    ) -> Protection:
        """What an event on the rows gives at this δ.

        Their number is public: sizes and rates were set from it. So what is stated is towards
        neighbours of the same number, one of which has a blank in the place of a row.
        """
        issued = Certificate.issue(
            events.towards(event, Adjacency.ZERO_OUT),
            delta=delta,
            assumptions=tuple(dict.fromkeys((DECLARED, *assumptions))),
            not_protected=(COUNTED, UNFIT, *([PUBLIC] if public else []), *not_protected),
            rng=Seeded(0) if seeded else None,
        )
        return cls((Part(issued, public, whose),))

    def beside(self, *others: Protection) -> Protection:
        """All parts of both: the same part is said once, and one that read no row not at all."""
        every = [part for one in (self, *others) for part in one.parts]
        learned = [part for part in every if part.learned] or every[:1]
        # The same object, and not an equal one: two equal releases are two.
        return Protection(tuple({id(part): part for part in learned}.values()))

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """One for each part."""
        return tuple(part.certificate for part in self.parts)

    @property
    def certificate(self) -> Certificate:
        """That of the only part."""
        if len(self.parts) > 1:
            remedy = "Each set of in-house rows has its own: see certificates."
            errors.refuse("inhouse", "certificate", "of one part", len(self.parts), remedy)
        return self.parts[0].certificate

    @property
    def guarantee(self) -> Guarantee:
        """For someone with a row in every part that is not public: costs add up, and δ does.

        Those with rows in some of them have no less. Where nothing is proved of one of these
        parts, nothing is of the whole.
        """
        held = [part for part in self.parts if not part.public] or list(self.parts)
        weakest = next((part for kind in _WORST for part in held if kind(part)), None)
        if weakest is not None or len(held) == 1:
            return (weakest or held[0]).guarantee
        deltas = [Fraction(str(getattr(part.guarantee, "delta", 0.0))) for part in held]
        every = tuple(part.certificate.event for part in held)
        return guarantee_of(events.Composed(every), float(sum(deltas)))

    @property
    def delta(self) -> float:
        """That of the guarantee; 0 where it has none."""
        return float(getattr(self.guarantee, "delta", 0.0))

    @property
    def proved(self) -> bool:
        """Whether the guarantee of every part is a proved one."""
        return all(part.proved for part in self.parts)

    @property
    def learned(self) -> bool:
        """Whether anything was read off the rows."""
        return any(part.learned for part in self.parts)

    @property
    def public(self) -> bool:
        """Whether all of the rows are public."""
        return all(part.public for part in self.parts)

    @property
    def seeded(self) -> bool:
        """Whether any of the noise came from a reproducible generator."""
        return any(part.certificate.seeded for part in self.parts)

    @property
    def may_leave(self) -> bool:
        """Whether every part may."""
        return all(part.may_leave for part in self.parts)

    @property
    def sentence(self) -> str:
        """For the certificates of those who report, under what is not protected."""
        said = [part.sentence for part in self.parts]
        if self.proved and sum(not part.public for part in self.parts) > 1:
            said.append(f"Whoever has rows in all of these sets has {self.guarantee} in all.")
        return " ".join(said)

    def must_leave(self, what: str) -> None:
        """Refuse to hand out what may not leave the house."""
        for part in self.parts:
            part.must_leave(what)

    def must_hold(self, other: Protection) -> None:
        """Refuse a protection that leaves out a part of what it was built on."""
        mine = [part.to_plain() for part in self.parts]
        if any(part.learned and part.to_plain() not in mine for part in other.parts):
            raise errors.InvalidData("inhouse: parts must include those of the mechanism.")

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"parts": [part.to_plain() for part in self.parts]}

    @classmethod
    def from_plain(cls, body: dict[str, Any], *, learned: bool = True) -> Protection:
        """Back from `to_plain`; certificates are verified.

        Of what was `learned` from rows nobody can declare a guarantee: it follows from events.
        """
        return cls(tuple(Part.from_plain(one, learned) for one in body["parts"]))


_WORST: tuple[Callable[[Part], bool], ...] = (
    lambda part: isinstance(part.guarantee, NotPrivate),
    lambda part: isinstance(part.guarantee, Unproven),
)


def together(protections: Sequence[Protection]) -> Protection:
    """What several things give, all learned on in-house rows: every part of each."""
    return Protection.untouched().beside(*protections)


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
