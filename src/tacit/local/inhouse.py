r"""Protection of the in-house rows that a model was learned on, and what may be exported.

A mechanism is learned on rows that an organisation holds, and parts of it are handed to people,
voters and partners. Everything that is handed out must carry a central guarantee towards them,
unless their owner states that they are public.

That guarantee holds for *zero-out* neighbours: the number of in-house rows is public, as sizes and
rates follow from it, and neighbours differ in one row, which is blank in one of them. One model may
use the rows of different people: each set has its own guarantee, and none covers another.

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

from tacit.privacy import errors, events, gaussian
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
    # Missing from the paper's table: voters receive the classifier, and all that it needs to run.
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
    TAUGHT: "Fit a StudentClassifier with central_epsilon and central_delta, or learn from reports "
    "of partitions with central_epsilon without the in-house rows, or state that the rows are "
    "public.",
}
_SCOPE: dict[str, Any] = {"adjacency": Adjacency.ZERO_OUT, "unit": Unit.RECORD}
_LARGEST_DELTA = 0.01
_NOTHING = PureDP(epsilon=0.0, **_SCOPE)


def requirements(application: str, level: str = "latent") -> tuple[str, ...]:
    """List the components that are handed out, and so need a central guarantee towards the rows.

    These are Table 1 of [000]_ and a row that it lacks: validation, where voters receive the
    classifier. In data collection at feature level no decoder leaves: latents are decoded in-house.

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
    """The protection of one set of in-house rows.

    Parameters
    ----------
    certificate : Certificate
        The events that ran on them, and the central guarantee, for one row or a blank in its place.
    public : bool
        Whether their owner states that they are public; then no guarantee is needed.
    whose : str
        Which rows: one of `WHOSE`.
    """

    certificate: Certificate
    public: bool = False
    whose: str = FITTED

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee towards these rows."""
        return self.certificate.guarantee

    @property
    def proved(self) -> bool:
        """Whether the guarantee is proved."""
        return not isinstance(self.guarantee, NotPrivate | Unproven)

    @property
    def learned(self) -> bool:
        """Whether anything was read off the rows."""
        return self.guarantee != _NOTHING

    @property
    def bare(self) -> bool:
        """Whether it was read without noise off rows that are not public."""
        return not self.public and isinstance(self.guarantee, NotPrivate)

    @property
    def may_leave(self) -> bool:
        """Whether what was learned may be handed out; seeded noise protects nobody."""
        return self.public or (self.proved and not self.certificate.seeded)

    @property
    def sentence(self) -> str:
        """The sentence about these rows in certificates for other people."""
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
        """Raise an error if `what` may not be handed out."""
        if self.may_leave:
            return
        if self.proved:
            raise errors.InvalidParameter(
                f"export: {what} must have noise from the operating system, got a seeded "
                "generator, for tests. Fit again without rng."
            )
        known = "would" if isinstance(self.guarantee, NotPrivate) else "may"
        raise errors.InvalidParameter(
            f"export: this {known} reveal the in-house rows to everyone who gets it; "
            f"{what} must carry a central guarantee towards the in-house rows, got "
            f"{self.guarantee}. {_REMEDIES[self.whose]}"
        )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        stated = self.certificate.to_json()
        return {"whose": self.whose, "public": self.public, "certificate": stated}

    @classmethod
    def from_plain(cls, body: dict[str, Any], learned: bool) -> Part:
        """Read what `to_plain` wrote, and verify the certificate."""
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
    """The protection of all in-house rows that something was learned from.

    Rows of different people may have been used for different models, such as a codebook and its
    student. Each set is one part with its own guarantee, and parts are never merged: nothing may be
    handed out while one of them forbids it.
    """

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            errors.refuse("inhouse", "parts", "at least one", 0)

    @classmethod
    def none(cls, public: bool = False, whose: str = FITTED) -> Protection:
        """Make a protection that promises nothing: something was computed without noise."""
        return cls._declared(NotPrivate(**_SCOPE), public, whose)

    @classmethod
    def unproven(cls, reason: str, public: bool = False, whose: str = FITTED) -> Protection:
        """Make an unproven protection: noise was added, and no proof is known."""
        return cls._declared(Unproven(reason=reason, **_SCOPE), public, whose)

    @classmethod
    def untouched(cls) -> Protection:
        """Make the protection of rows that were never read: nothing can leak."""
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
        """Derive the protection that an event on the rows gives at this δ.

        The number of rows is public, as sizes and rates were set from it. So the guarantee is for
        neighbours with equally many rows, one of which has a blank in the place of a row.
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
        """Join the parts of both: shared parts once, without those that read no row."""
        every = [part for one in (self, *others) for part in one.parts]
        learned = [part for part in every if part.learned] or every[:1]
        # Compared by identity: two equal releases are still two.
        return Protection(tuple({id(part): part for part in learned}.values()))

    def sharing(self, other: Protection) -> Protection:
        """Return the same parts; those that are known to be parts of the other are its objects.

        Two files may hold one release: read back, it must not count twice in `beside`. Each part of
        the other stands for one part at most.
        """
        theirs = [(part.to_plain(), part) for part in other.parts]
        mine = []
        for part in self.parts:
            plain = part.to_plain()
            at = next((i for i, (body, _) in enumerate(theirs) if body == plain), None)
            mine.append(part if at is None else theirs.pop(at)[1])
        return Protection(tuple(mine))

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificate of each part."""
        return tuple(part.certificate for part in self.parts)

    @property
    def certificate(self) -> Certificate:
        """The certificate of the only part."""
        if len(self.parts) > 1:
            remedy = "Each set of in-house rows has its own: see certificates."
            errors.refuse("inhouse", "certificate", "of one part", len(self.parts), remedy)
        return self.parts[0].certificate

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for someone with a row in every part that is not public: ε and δ add up.

        It also holds for people with rows in only some of these parts. If one part is unproven, so
        is the whole.
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
        """The δ of the guarantee; 0 if it has none."""
        return float(getattr(self.guarantee, "delta", 0.0))

    @property
    def proved(self) -> bool:
        """Whether the guarantee of every part is proved."""
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
        """Whether every part may be handed out."""
        return all(part.may_leave for part in self.parts)

    @property
    def sentence(self) -> str:
        """The sentence for certificates of reports, among what is not protected."""
        # Public and bare rows are named once, however many things were learned from them.
        public = dict.fromkeys(part.sentence for part in self.parts if part.public)
        bare = dict.fromkeys(part.sentence for part in self.parts if part.bare)
        noised = (part.sentence for part in self.parts if not (part.public or part.bare))
        said = [*public, *bare, *noised]
        if self.proved and sum(not part.public for part in self.parts) > 1:
            said.append(f"Whoever has rows in all of these sets has {self.guarantee} in all.")
        return " ".join(said)

    @property
    def shown(self) -> tuple[Part, ...]:
        """The parts to explain: of rows that were read without noise, one for each set."""
        first: dict[str | int, Part] = {}
        for part in self.parts:
            first.setdefault(part.whose if part.bare else id(part), part)
        return tuple(first.values())

    def must_leave(self, what: str) -> None:
        """Raise an error if `what` may not be handed out."""
        for part in self.parts:
            part.must_leave(what)

    def must_hold(self, other: Protection) -> None:
        """Refuse a protection that lacks a part of the mechanism that it was built on."""
        mine = [part.to_plain() for part in self.parts]
        if any(part.learned and part.to_plain() not in mine for part in other.parts):
            raise errors.InvalidData("inhouse: parts must include those of the mechanism.")

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {"parts": [part.to_plain() for part in self.parts]}

    @classmethod
    def from_plain(cls, body: dict[str, Any], *, learned: bool = True) -> Protection:
        """Read what `to_plain` wrote, and verify the certificates.

        A guarantee of something `learned` from rows cannot be declared: it follows from events.
        """
        return cls(tuple(Part.from_plain(one, learned) for one in body["parts"]))


_WORST: tuple[Callable[[Part], bool], ...] = (
    lambda part: isinstance(part.guarantee, NotPrivate),
    lambda part: isinstance(part.guarantee, Unproven),
)


def together(protections: Sequence[Protection]) -> Protection:
    """Join the protections of several models that were learned on in-house rows."""
    return Protection.untouched().beside(*protections)


@dataclass(frozen=True)
class Target:
    """A central budget: the total cost (ε, δ) of all that is learned from the in-house rows."""

    epsilon: float
    delta: float

    @classmethod
    def of(cls, where: str, epsilon: Any, delta: Any) -> Target | None:
        """Make a budget if both ε and δ are given, None if neither is."""
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
        """Return one of `count` equal parts for Gaussian noise; together they spend the budget."""
        share = self.delta / count
        multiplier = self.noise_multiplier * math.sqrt(count)
        return Target(gaussian.epsilon_of(multiplier, share), share)

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier of a single Gaussian that spends the budget."""
        return gaussian.noise_multiplier_for(self.epsilon, self.delta)
