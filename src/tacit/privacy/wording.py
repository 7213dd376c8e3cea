"""Guarantees and events in plain words, for readers who decide and do not compute."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import groupby

from flint import arb

from tacit.privacy import events, rounding
from tacit.privacy.decimals import above
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
    readers: Sequence[str] = (),
    about: Sequence[str] = (),
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
            *(["What it is about", *_bullets(list(about)), ""] if about else []),
            "Who is protected, from whom",
            *_bullets(_who(guarantee, event)),
            "",
            "How well",
            *_bullets(how_well(guarantee)),
            "",
            *(["Readers of the result", *_bullets(list(readers)), ""] if readers else []),
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
        who = "who" if guarantee.unit is Unit.PERSON else "that"
        which = f"one {guarantee.unit} {who} is known {known[guarantee.adjacency]}"
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
            return [f"{indent}All of these ran on the same data:", *_each(event.events, depth + 1)]
        case events.Parallel():
            head = f"{indent}Each of these ran on a separate part of the data:"
            return [head, *_each(event.events, depth + 1)]
        case events.Repeated():
            return [f"{indent}{event.count} times:", *describe(event.event, depth + 1)]
        case events.PoissonSampled():
            share = above(event.probability)
            head = f"{indent}On a random sample (each {_unit(event)} with probability {share}):"
            return [head, *describe(event.event, depth + 1)]
    assert isinstance(event, events.Single)
    return [indent + event.words()]


def _each(parts: Iterable[events.Event], depth: int) -> list[str]:
    """Describe events; those that follow each other in the same words are described once."""
    lines: list[str] = []
    for words, same in groupby(describe(part, depth + 1) for part in parts):
        count = len(list(same))
        # Without a heading of its own the description moves to the left.
        lines += [f"{'  ' * depth}{count} times:", *words] if count > 1 else [w[2:] for w in words]
    return lines


def standard_assumptions(event: events.Event, *, seeded: bool = False) -> tuple[str, ...]:
    """List what every certificate of this kind of event assumes."""
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
    special = (leaf.assumption() for leaf in events.leaves(event))
    lines += dict.fromkeys(line for line in special if line is not None)
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


def _who(guarantee: Guarantee, event: events.Event) -> list[str]:
    if isinstance(guarantee, NotPrivate | Unproven):
        return [f"No {guarantee.unit} is protected, as far as has been proved."]
    unit = guarantee.unit
    each = f"Each {unit} in the data, compared with"
    its, it = ("their", "them") if unit is Unit.PERSON else ("its", "it")
    protected = {
        Adjacency.ANY_TWO_INPUTS: f"Each {unit} behind a report, whatever its content.",
        Adjacency.REPLACE_ONE: f"{each} any other {unit} in {its} place.",
        Adjacency.ADD_REMOVE: f"{each} the same data without {it}.",
        Adjacency.ZERO_OUT: f"{each} a blank in {its} place.",
    }[guarantee.adjacency]
    local = guarantee.adjacency is Adjacency.ANY_TWO_INPUTS
    whom = "including whoever collects it" if local else "but not from whoever holds the raw data"
    if unit is Unit.CLIENT and not local:
        whom = "but not from the server that gathers what clients send"
    beyond = {leaf.including() for leaf in events.leaves(event)}
    if len(beyond) == 1 and None not in beyond:
        whom = f"and {beyond.pop()}"
    return [
        protected,
        f"From anyone who sees what was released, whatever else they know, {whom}.",
    ]


def _unit(event: events.Event) -> str:
    return str(events.scope_of(event)["unit"])


def _number(epsilon: float) -> str:
    with rounding.precision():
        factor = rounding.above(rounding.high(min(epsilon, 700)).exp())
    if factor >= 1e6:
        return "over a million"
    return above(factor, 3) if factor < 1000 else str(math.ceil(factor))


def _percent(prior: float, epsilon: float) -> str:
    """Round up to three digits, or to what it takes not to say 100 of a belief short of it."""
    with rounding.precision():
        most = min(rounding.above(100 * _posterior(prior, epsilon)), 100.0)
    nines = math.ceil(-math.log10(100 - most)) if 99 < most < 100 else 0
    return above(most, max(3, 2 + nines))


def _rare(delta: float, room: float) -> str:
    with rounding.precision():
        chance = rounding.high(delta) / -(-rounding.low(room)).expm1()
        return above(rounding.above(chance), 3)


def _bullets(lines: list[str]) -> list[str]:
    return [_bullet(line) for line in lines] or ["  - none stated"]


def _bullet(line: str) -> str:
    """Put the dash after the indentation: a part of what ran is a point below it."""
    return f"  {line[: len(line) - len(line.lstrip())]}- {line.lstrip()}"
