"""Guarantees and events in plain words, for readers who decide and do not compute."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import arb

from tacit.privacy import events, rounding
from tacit.privacy.decimals import above, below
from tacit.privacy.guarantees import (
    Adjacency,
    ApproxDP,
    Guarantee,
    NotPrivate,
    PureDP,
    Unit,
    Unproven,
)

_PRIORS = (0.01, 0.5)
_USUAL_DELTA = 1e-6


def explain(
    guarantee: Guarantee,
    event: events.Event,
    *,
    title: str,
    assumptions: tuple[str, ...] = (),
    not_protected: tuple[str, ...] = (),
    seeded: bool = False,
) -> str:
    """Explain who is protected from whom, how well, why, and what is not protected."""
    warning = (
        ["MADE WITH A SEEDED GENERATOR, FOR TESTS: whoever knows the seed can undo the noise.", ""]
        if seeded
        else []
    )
    return "\n".join(
        [
            title,
            "",
            *warning,
            "Who is protected, from whom",
            *_bullets(_who(guarantee)),
            "",
            "How well",
            *_bullets(how_well(guarantee)),
            "",
            "Why that is true",
            *_bullets(describe(event)),
            "",
            "Assumptions",
            *_bullets(list(assumptions)),
            "",
            "Not protected",
            *_bullets(list(not_protected)),
            "",
        ]
    )


def posterior(prior: float, epsilon: float) -> float:
    r"""Bound the belief after a release: :math:`p e^\varepsilon / (1 - p + p e^\varepsilon)`.

    The result is rounded up, so the float is a bound, too.
    """
    with rounding.precision():
        return min(rounding.above(_posterior(prior, epsilon)), 1.0)


def _posterior(prior: float, epsilon: float) -> arb:
    odds = rounding.ball(1 / Fraction(repr(prior)) - 1) if prior else arb("inf")
    return 1 / (1 + odds * (-rounding.high(epsilon)).exp())


def how_well(guarantee: Guarantee) -> list[str]:
    """Describe the bounds on odds and beliefs; other notions are converted to (ε, δ) first."""
    if isinstance(guarantee, NotPrivate):
        return ["Not at all: what was released may reveal a person's data."]
    if isinstance(guarantee, Unproven):
        return [f"Unknown: {guarantee.reason}. Treat the data as not protected."]
    if not isinstance(guarantee, PureDP | ApproxDP):
        converted = guarantee.at_delta(_USUAL_DELTA)
        return [f"The guarantee is {guarantee}, which implies {converted}:", *how_well(converted)]
    epsilon, delta = guarantee.epsilon, guarantee.delta
    lines = [f"epsilon = {above(epsilon)}, delta = {above(delta, 3)}."]
    if delta:
        lines.append(
            f"The probability of any conclusion from the release is at most {_number(epsilon)} "
            f"times what it would be {_otherwise(guarantee)}, plus {above(delta, 3)}."
        )
        if not epsilon or delta >= -math.expm1(-epsilon):
            return lines
        # P(loss > ε + a) ≤ δ/(1 − e^{−a}): on that set P ≤ e^ε P' + δ ≤ e^{−a} P + δ.
        room = min(epsilon, math.log(2))
        lines.append(f"Apart from outcomes of total probability at most {_rare(delta, room)}:")
        epsilon = rounding.sum_above([epsilon, room])
    lines.append(
        f"The release changes the odds {_fact(guarantee)} by a factor of at most "
        f"{_number(epsilon)}."
    )
    lines += [
        f"Someone who was {prior:.0%} sure {_fact(guarantee)} can become at most "
        f"{_percent(prior, epsilon)}% sure."
        for prior in _PRIORS
    ]
    if guarantee.adjacency in events.ONE_OR_NONE:
        known = {Adjacency.ADD_REMOVE: "to be there", Adjacency.ZERO_OUT: "not to be blank"}
        which = f"one {guarantee.unit} that is known {known[guarantee.adjacency]}"
        lines.append(f"For statements about the content of {which}, epsilon counts twice.")
    return lines


def _otherwise(guarantee: Guarantee) -> str:
    if guarantee.adjacency is Adjacency.ADD_REMOVE:
        return f"if one {guarantee.unit} were not in the data"
    if guarantee.adjacency is Adjacency.ZERO_OUT:
        return f"if one {guarantee.unit} were blank"
    return f"if one {guarantee.unit} were replaced by any other"


def _fact(guarantee: Guarantee) -> str:
    if guarantee.adjacency is Adjacency.ADD_REMOVE:
        return f"that one {guarantee.unit} is in the data"
    if guarantee.adjacency is Adjacency.ZERO_OUT:
        return f"that one {guarantee.unit} was used rather than a blank"
    return f"of a statement about one {guarantee.unit}"


def describe(event: events.Event, depth: int = 0) -> list[str]:
    """Describe what ran, one line per event."""
    indent = "  " * depth
    match event:
        case events.Composed():
            inner = [line for part in event.events for line in describe(part, depth + 1)]
            return [f"{indent}All of these ran on the same data:", *inner]
        case events.Parallel():
            inner = [line for part in event.events for line in describe(part, depth + 1)]
            return [f"{indent}Each of these ran on a separate part of the data:", *inner]
        case events.Repeated():
            return [f"{indent}{event.count} times:", *describe(event.event, depth + 1)]
        case events.PoissonSampled():
            share = above(event.probability)
            head = f"{indent}On a random sample (each {_unit(event)} with probability {share}):"
            return [head, *describe(event.event, depth + 1)]
    return [indent + _describe_leaf(event)]


def _describe_leaf(event: events.Event) -> str:
    match event:
        case events.Laplace():
            return (
                f"Discrete Laplace noise of scale {below(event.scale)} on whole numbers that "
                f"one {event.unit} can change by at most {above(event.l1_sensitivity)} in total."
            )
        case events.Gaussian():
            return (
                f"Gaussian noise of standard deviation {below(event.sigma)} on numbers that one "
                f"{event.unit} can change by at most {above(event.l2_sensitivity)} (Euclidean "
                f"norm): a noise multiplier of {below(event.sigma / event.l2_sensitivity, 4)}."
            )
        case events.DiscreteGaussian():
            return (
                f"Discrete Gaussian noise of standard deviation {_root(event.variance, below)} on "
                f"whole numbers that one {event.unit} can change by at most "
                f"{_root(event.squared_sensitivity, above)} (Euclidean norm)."
            )
        case events.RandomizedResponse():
            return (
                f"Each answer, one of {event.categories} categories, is kept with probability "
                f"{above(Fraction(event.keep, 2**64))}, and replaced by each other category with "
                f"probability {below(Fraction(event.other, 2**64))}."
            )
        case events.SubsetSelection():
            chance = above(Fraction(event.inclusion, 2**64))
            return (
                f"Each answer, one of {event.categories} categories, becomes a random set of "
                f"{event.size} categories that contains the true one with probability {chance}."
            )
        case events.Exponential():
            return (
                f"One candidate was chosen at random. Its weight grows by a factor of e for each "
                f"{below(event.scale)} of its score, which one {event.unit} can change by at most "
                f"{above(event.sensitivity)}."
            )
        case events.SparseVector():
            numeric = f", {below(event.answer_scale)} on each released answer"
            return (
                f"Answers that one {event.unit} can change by at most {above(event.sensitivity)} "
                f"were compared with a threshold until {event.positives} of them were above it, "
                f"with Laplace noise of scale {below(event.threshold_scale)} on the threshold, "
                f"{below(event.comparison_scale)} on each comparison"
                f"{numeric if event.answer_scale else ''}."
            )
        case events.SmoothLaplace():
            return (
                f"Discrete Laplace noise on a value that one {event.unit} can change, in data like "
                f"these, by at most a smooth bound (smoothness {above(event.beta)}). The scale of "
                f"the noise is this bound divided by {above(event.alpha)}."
            )
        case events.CertifiedTable():
            return (
                f"Drawn from a table of {event.inputs} × {event.outputs} integer weights (SHA-256 "
                f"of the table and its neighbours: {event.sha256}). The issuer states that every "
                "pair of neighbouring rows was compared in whole numbers; that is not checked here."
            )
        case events.ObjectivePerturbation():
            law = {"gaussian": "Gaussian", "laplace": "Laplace"}[event.law]
            return (
                f"{event.problems} convex problem(s) solved with a random linear term ({law} "
                f"noise, {below(event.scale / event.sensitivity, 4)} times the largest gradient "
                f"of one {event.unit}) and a penalty with "
                f"{below(event.convexity / event.smoothness, 4)} times the curvature of one "
                f"{event.unit}. The solutions have {law} noise, "
                f"{below(event.output_scale / event.output_sensitivity, 4)} times what the error "
                "of the solver may add."
            )
        case events.Declared(guarantee=NotPrivate()):
            return "Something was computed from the data without noise."
        case events.Declared(guarantee=Unproven(reason=reason)):
            return f"Something ran for which nothing is proved: {reason}."
        case events.Declared():
            return f"Declared by its owner, not derived here: {event.guarantee}."
    raise AssertionError(f"no words for {type(event).__name__}")


def standard_assumptions(event: events.Event, *, seeded: bool = False) -> tuple[str, ...]:
    """List what every certificate of this kind of event assumes."""
    leaves = events.leaves(event)
    local = events.scope_of(event)["adjacency"] is Adjacency.ANY_TWO_INPUTS
    lines = [
        "Nobody knows the seed of the random generator. Tests do not keep it secret."
        if seeded
        else "The random generator of the operating system cannot be predicted."
    ]
    if local:
        lines.append("The mechanism ran where the raw value was, and only its output left it.")
        lines.append(f"No {_unit(event)} was reported more often than the events state.")
    else:
        lines.append("Whoever holds the raw data is trusted with it, and released nothing else.")
        lines.append("The stated sensitivity is that of what was computed.")
    if any(isinstance(leaf, events.SparseVector) and leaf.monotonic for leaf in leaves):
        lines.append(
            "Between neighbouring data sets, all compared answers move in the same direction."
        )
    if any(isinstance(leaf, events.SmoothLaplace) for leaf in leaves):
        lines.append("The bound that sets the scale of the noise is as smooth as stated.")
    if any(isinstance(leaf, events.CertifiedTable) for leaf in leaves):
        lines.append("The table with that SHA-256 was compared, and is the one that was used.")
    if any(isinstance(leaf, events.Declared) and _promised(leaf.guarantee) for leaf in leaves):
        lines.append("What the owner declared is true.")
    return tuple(lines)


def standard_limits(event: events.Event) -> tuple[str, ...]:
    """List what no certificate of this kind of event covers."""
    unit = _unit(event)
    adjacency = events.scope_of(event)["adjacency"]
    lines = ["What is true of the group as a whole: learning that is the purpose."]
    if adjacency is Adjacency.ANY_TWO_INPUTS:
        lines.append("The fact that someone took part.")
    if adjacency in (Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT):
        lines.append(f"How many {unit}s there are.")
    if unit != "person":
        lines.append(f"A person behind several {unit}s: the protection weakens with each one.")
    return tuple(lines)


def _who(guarantee: Guarantee) -> list[str]:
    if isinstance(guarantee, NotPrivate | Unproven):
        return [f"No {guarantee.unit} is protected, as far as has been proved."]
    unit = guarantee.unit
    each = f"Each {unit} in the data, compared with"
    protected = {
        Adjacency.ANY_TWO_INPUTS: f"Each {unit} behind a report, whatever its content.",
        Adjacency.REPLACE_ONE: f"{each} any other {unit} in its place.",
        Adjacency.ADD_REMOVE: f"{each} the same data without it.",
        Adjacency.ZERO_OUT: f"{each} a blank in its place.",
    }[guarantee.adjacency]
    local = guarantee.adjacency is Adjacency.ANY_TWO_INPUTS
    whom = "including whoever collects it" if local else "but not from whoever holds the raw data"
    if unit is Unit.CLIENT and not local:
        whom = "but not from the server that gathers what clients send"
    return [
        protected,
        f"From anyone who sees what was released, whatever else they know, {whom}.",
    ]


def _promised(guarantee: Guarantee) -> bool:
    return not isinstance(guarantee, NotPrivate | Unproven)


def _unit(event: events.Event) -> str:
    return str(events.scope_of(event)["unit"])


def _number(epsilon: float) -> str:
    with rounding.precision():
        factor = rounding.above(rounding.high(min(epsilon, 700)).exp())
    return above(factor, 3) if factor < 1e6 else "over a million"


def _percent(prior: float, epsilon: float) -> str:
    with rounding.precision():
        return above(min(rounding.above(100 * _posterior(prior, epsilon)), 100.0), 3)


def _rare(delta: float, room: float) -> str:
    with rounding.precision():
        chance = rounding.high(delta) / -(-rounding.low(room)).expm1()
        return above(rounding.above(chance), 3)


def _root(square: Fraction, shown: Callable[[float | Fraction], str]) -> str:
    """Write a square root, rounded as `shown` rounds; a rational root is exact."""
    root = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    if root**2 == square:
        return shown(root)
    with rounding.precision():
        value = rounding.ball(square).sqrt()
        return shown(rounding.above(value) if shown is above else rounding.below(value))


def _bullets(lines: list[str]) -> list[str]:
    return [f"  - {line}" for line in lines] or ["  - none stated"]
