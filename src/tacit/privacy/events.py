"""Events: frozen records of what ran. Accounting composes them; a certificate lists them.

An event contains the numbers that the proof needs and nothing about the data. A constructor refuses
numbers that would invalidate the guarantee. The theorems are in `tacit.accounting.guarantee_of`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from tacit.privacy import errors, guarantees
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.neighbours import Adjacency, Unit, steps_between
from tacit.privacy.randomness.reals import exp_floor

WEIGHT_BITS = 64
"""Finite mechanisms draw one 64-bit word: their probabilities are multiples of 2^-64."""

ONE_OR_NONE = (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT)
"""Adjacencies in which one neighbour has a unit that the other lacks or has blank."""

LAWS = ("gaussian", "laplace")
"""Laws of the linear term in `ObjectivePerturbation`."""


@dataclass(frozen=True)
class Event:
    """Abstract base of all events: use one of the concrete classes."""


@dataclass(frozen=True, kw_only=True)
class Leaf(Event):
    """Abstract base of events that are one draw of one mechanism, for the neighbours it names."""

    adjacency: Adjacency
    unit: Unit

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "adjacency", Adjacency.of(name, self.adjacency))
        object.__setattr__(self, "unit", Unit.of(name, self.unit))

    def _whole(self, name: str, *, least: int, most: int = errors.LARGEST_INTEGER) -> None:
        value = errors.whole(type(self).__name__, name, getattr(self, name), least=least, most=most)
        object.__setattr__(self, name, value)

    def _epsilon(self) -> None:
        raw = self.epsilon  # type: ignore[attr-defined]
        epsilon = errors.epsilon_in_range(type(self).__name__, raw, least=Fraction(0))
        object.__setattr__(self, "epsilon", epsilon)

    def _positive(self, *names: str) -> None:
        for name in names:
            value = errors.positive(type(self).__name__, name, getattr(self, name))
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Laplace(Leaf):
    """Discrete Laplace noise of this scale on integers of this ℓ1 sensitivity."""

    l1_sensitivity: Fraction
    scale: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("l1_sensitivity", "scale")


@dataclass(frozen=True)
class Gaussian(Leaf):
    """Gaussian noise (sigma) on vectors of this ℓ2 sensitivity, possibly post-processed."""

    l2_sensitivity: Fraction
    sigma: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("l2_sensitivity", "sigma")
        if not 1e-6 <= self.sigma / self.l2_sensitivity <= 10**12:
            ratio = float(self.sigma / self.l2_sensitivity)
            errors.refuse("Gaussian", "sigma / l2_sensitivity", "from 1e-6 to 1e12", ratio)

    @property
    def noise_multiplier(self) -> float:
        return float(self.sigma / self.l2_sensitivity)


@dataclass(frozen=True)
class DiscreteGaussian(Leaf):
    """Discrete Gaussian noise on integer vectors; `squared_sensitivity` is for the ℓ2 norm.

    `dimension` is 0 if the number of entries is not fixed.
    """

    squared_sensitivity: Fraction
    variance: Fraction
    dimension: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("squared_sensitivity", "variance")
        self._whole("dimension", least=0)

    @property
    def rho(self) -> float:
        return float(self.squared_sensitivity / (2 * self.variance))


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


@dataclass(frozen=True)
class SmoothLaplace(Leaf):
    r"""Discrete Laplace noise of scale S(x)/α, with S a β-smooth bound of the local sensitivity.

    Sensitivity and scale depend on the data; their ratio is α. ε follows from α, β and δ.
    """

    alpha: Fraction
    beta: Fraction
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("alpha", "beta")
        for name in ("alpha", "beta"):
            errors.epsilon_in_range("SmoothLaplace", getattr(self, name), least=Fraction(0))
        delta = errors.probability("SmoothLaplace", "delta", self.delta, zero=False)
        object.__setattr__(self, "delta", delta)


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


@dataclass(frozen=True)
class ObjectivePerturbation(Leaf):
    r"""Approximate minimisers of convex sums with a random linear term, plus output noise.

    Each of `problems` objectives sums losses of a linear score, one per record. The linear term has
    independent entries of this law and scale; `sensitivity` bounds the gradient of a record's loss
    (ℓ2 for "gaussian", ℓ1 for "laplace"), `smoothness` bounds its only curvature, and `convexity`
    is a lower bound on that of the rest of the objective. The approximate minimisers are off by at
    most `output_sensitivity` / 2 in the same norm, and have noise of `output_scale`.
    """

    law: str
    sensitivity: Fraction
    scale: Fraction
    smoothness: Fraction
    convexity: Fraction
    output_sensitivity: Fraction
    output_scale: Fraction
    problems: int

    def __post_init__(self) -> None:
        super().__post_init__()
        name = "ObjectivePerturbation"
        object.__setattr__(self, "law", errors.choice(name, "law", self.law, LAWS))
        self._positive("sensitivity", "scale", "smoothness", "convexity")
        self._positive("output_sensitivity", "output_scale")
        self._whole("problems", least=1, most=256)
        if self.adjacency not in ONE_OR_NONE:
            remedy = "The proof compares data with one record and without it."
            errors.refuse(name, "adjacency", "add-remove or zero-out", str(self.adjacency), remedy)
        for scale, sensitivity in (
            (self.scale, self.sensitivity),
            (self.output_scale, self.output_sensitivity),
        ):
            if not 1e-6 <= scale / sensitivity <= 10**12:
                ratio = float(scale / sensitivity)
                errors.refuse(name, "scale / sensitivity", "from 1e-6 to 1e12", ratio)
        if not 1e-12 <= self.smoothness / self.convexity <= 10**12:
            ratio = float(self.smoothness / self.convexity)
            errors.refuse(name, "smoothness / convexity", "from 1e-12 to 1e12", ratio)


@dataclass(frozen=True)
class Declared(Event):
    """A guarantee of something outside Tacit, stated by its owner; a certificate says so."""

    guarantee: Guarantee

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee):
            errors.refuse("Declared", "guarantee", "a guarantee", self.guarantee)


@dataclass(frozen=True)
class PoissonSampled(Event):
    """The event on a sample that contains each unit independently with this probability."""

    probability: float
    event: Event

    def __post_init__(self) -> None:
        probability = errors.within("PoissonSampled", "probability", self.probability, "(0, 1]")
        object.__setattr__(self, "probability", probability)
        _must_be_event("PoissonSampled", self.event)
        for leaf in leaves(self.event):
            if scope_of(leaf)["adjacency"] not in ONE_OR_NONE:
                errors.refuse(
                    "PoissonSampled",
                    "adjacency",
                    "add-remove or zero-out",
                    str(scope_of(leaf)["adjacency"]),
                    "Amplification by Poisson sampling is proved for these neighbours.",
                )


@dataclass(frozen=True)
class Repeated(Event):
    """The event, `count` times, each on the whole data."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        _must_be_event("Repeated", self.event)
        count = errors.whole("Repeated", "count", self.count, least=1)
        object.__setattr__(self, "count", count)


@dataclass(frozen=True)
class Composed(Event):
    """Several events on the same data."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        _common_scope("Composed", self.events)


@dataclass(frozen=True)
class Parallel(Event):
    """Several events on disjoint parts of the data, split without looking at the data."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        _common_scope("Parallel", self.events)


def _must_be_event(where: str, event: object) -> None:
    if not isinstance(event, Event):
        errors.refuse(where, "event", "an event", type(event).__name__)


def ratio_within(numerator: int, denominator: int, epsilon: Fraction) -> bool:
    r"""Decide in integers whether numerator/denominator ≤ :math:`e^\varepsilon`."""
    bits = numerator.bit_length() + denominator.bit_length() + 64
    return numerator << bits <= denominator * exp_floor(epsilon, bits)


def leaves(event: Event) -> list[Event]:
    """List the events that are not composed of others, in order."""
    if isinstance(event, PoissonSampled | Repeated):
        return leaves(event.event)
    if isinstance(event, Composed | Parallel):
        return [leaf for part in event.events for leaf in leaves(part)]
    return [event]


def scope_of(event: Event) -> dict[str, Any]:
    """Return adjacency and unit of an event."""
    leaf = leaves(event)[0]
    if isinstance(leaf, Declared):
        return leaf.guarantee.scope
    assert isinstance(leaf, Leaf)
    return {"adjacency": leaf.adjacency, "unit": leaf.unit}


def towards(event: Event, adjacency: Adjacency | str) -> Event:
    """Restate an event for other neighbours that follow from its own at no price.

    That is zero-out, from add-remove or replace-one (`Guarantee.towards` has the reason): a
    sensitivity that bounds all pairs that differ in one unit also bounds those in which one has
    that unit blank. So every leaf keeps its numbers. To a sample, units that it leaves out are
    blank, so `PoissonSampled` keeps its probability; it never contains replace-one events.
    Conversions with a price apply to guarantees, not to events, and raise here.
    """
    match event:
        case PoissonSampled() | Repeated():
            return replace(event, event=towards(event.event, adjacency))
        case Composed() | Parallel():
            return replace(event, events=tuple(towards(part, adjacency) for part in event.events))
    stated = scope_of(event)["adjacency"]
    if steps_between("towards", stated, adjacency) > 1:
        raise errors.IncompatibleGuarantees(
            f"towards: adjacency must follow from {stated} at no price, got {adjacency}. "
            "Restate the guarantee of the event instead: Guarantee.towards pays the price."
        )
    if isinstance(event, Declared):
        return Declared(event.guarantee.towards(adjacency))
    assert isinstance(event, Leaf)
    return replace(event, adjacency=Adjacency(adjacency))


def _common_scope(where: str, events: tuple[Event, ...]) -> None:
    if not events:
        errors.refuse(where, "events", "at least one", events)
    for event in events:
        _must_be_event(where, event)
    placeholders: list[Guarantee] = [
        guarantees.NotPrivate(**scope_of(leaf)) for event in events for leaf in leaves(event)
    ]
    guarantees.same_scope(where, placeholders)


KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        Laplace,
        Gaussian,
        DiscreteGaussian,
        RandomizedResponse,
        SubsetSelection,
        Exponential,
        SparseVector,
        SmoothLaplace,
        CertifiedTable,
        ObjectivePerturbation,
        Declared,
        PoissonSampled,
        Repeated,
        Composed,
        Parallel,
    )
}
