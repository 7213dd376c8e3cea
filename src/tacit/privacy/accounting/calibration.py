"""Calibration, the inverse of accounting: the noise, or the steps, for a target ε."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from scipy.optimize import brentq

from tacit.privacy import errors, events, gaussian
from tacit.privacy.accounting import privacy_loss
from tacit.privacy.guarantees import ZCDP, Adjacency, ApproxDP, Unit

Accountant = Callable[[events.Event, float], float]

ACCOUNTANTS = ("pld", "rdp")
_LARGEST_LOG_NOISE = math.log(1e7)
_MOST_STEPS = 10**9
_PRECISION = 1e-4


def noise_multiplier_for(
    epsilon: float,
    delta: float,
    *,
    sampling_probability: float = 1.0,
    steps: int = 1,
    accountant: str = "pld",
    beside: events.Event | None = None,
) -> float:
    """Find the noise multiplier at which a subsampled Gaussian spends at most ε at δ.

    The result is exact for the plain Gaussian; otherwise it is the smallest to four digits, rounded
    up. With `beside`, the composition with that event is calibrated.
    """
    where = "noise_multiplier_for"
    epsilon, delta = _target(where, epsilon, delta)
    spent = _accountant(accountant)
    if sampling_probability == 1 and accountant != "rdp" and beside is None:
        privacy_loss.subsampled_gaussian(1, 1, steps)
        # Slightly more than the product, because adding up the draws rounds, too.
        return gaussian.noise_multiplier_for(epsilon, delta) * math.sqrt(steps) * (1 + 1e-14)

    def excess(log_multiplier: float) -> float:
        run = privacy_loss.subsampled_gaussian(
            math.exp(log_multiplier), sampling_probability, steps
        )
        return math.log(max(spent(_with(run, beside), delta), 1e-12) / epsilon)

    lower, upper = math.log(0.05), math.log(4.0)
    while excess(upper) > 0:
        lower, upper = upper, upper + math.log(8)
        if upper > _LARGEST_LOG_NOISE:
            errors.refuse(where, "epsilon", "within reach of some noise", epsilon, "Raise it.")
    if excess(lower) <= 0:
        return math.exp(lower)
    root = float(brentq(excess, lower, upper, xtol=_PRECISION / 2))
    while excess(root) > 0:
        root += _PRECISION / 2
    return math.exp(root)


def _with(run: events.Event, beside: events.Event | None) -> events.Event:
    """Compose both in the scope of `beside`: ε does not depend on what a unit is called."""
    if beside is None:
        return run
    assert isinstance(run, events.Repeated)
    assert isinstance(run.event, events.PoissonSampled)
    beside = events.towards(beside, Adjacency.ZERO_OUT)
    noise = replace(run.event.event, **events.scope_of(beside))
    return events.Composed((beside, replace(run, event=replace(run.event, event=noise))))


def concentration_for(epsilon: float, delta: float) -> float:
    """Find the largest ρ such that ρ-zCDP gives (ε, δ), rounded down."""
    epsilon, delta = _target("concentration_for", epsilon, delta)

    def excess(log_rho: float) -> float:
        rho = math.exp(log_rho)
        loss = ZCDP(0.0, rho, adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD)
        converted = loss.at_delta(delta)
        assert isinstance(converted, ApproxDP)
        return converted.epsilon - epsilon

    # ε²/(4 ln(1/δ) + 4ε) is enough by the simple conversion; half of it leaves room.
    lower = upper = math.log(epsilon**2 / (8 * (math.log(1 / delta) + epsilon)))
    while excess(upper) <= 0:
        lower, upper = upper, upper + 1
    root = float(brentq(excess, lower, upper, xtol=1e-12))
    while excess(root) > 0:
        root -= 1e-12
    return math.exp(root)


def steps_for(
    epsilon: float,
    delta: float,
    *,
    noise_multiplier: float,
    sampling_probability: float = 1.0,
    accountant: str = "pld",
) -> int:
    """Find the largest number of steps that spend at most ε at δ; refuse if one is too many."""
    where = "steps_for"
    epsilon, delta = _target(where, epsilon, delta)
    one_step = privacy_loss.subsampled_gaussian(noise_multiplier, sampling_probability, 1)

    def within(spent: Accountant, steps: int) -> bool:
        return spent(events.Repeated(one_step, steps), delta) <= epsilon

    # Rényi curves only add up, so this count is quick; a tighter accountant starts from it.
    steps = _largest(lambda steps: within(privacy_loss.epsilon_rdp, steps), 0)
    if accountant != "rdp":
        steps = _largest(lambda steps: within(_accountant(accountant), steps), steps)
    if steps == 0:
        errors.refuse(
            where, "epsilon", "enough for one step", epsilon, "Raise it, or the noise multiplier."
        )
    return steps


def _largest(within: Callable[[int], bool], lower: int) -> int:
    """Find the largest number that is within, given that `lower` is; at most a thousand million."""
    stride = max(lower // 8, 1)
    while lower < _MOST_STEPS and within(lower + stride):
        lower, stride = lower + stride, 2 * stride
    upper = lower + stride
    upper = min(upper, _MOST_STEPS + 1)
    lower = min(lower, _MOST_STEPS)
    while upper - lower > 1:
        middle = (lower + upper) // 2
        lower, upper = (middle, upper) if within(middle) else (lower, middle)
    return lower


def _target(where: str, epsilon: float, delta: float) -> tuple[float, float]:
    return (
        float(errors.epsilon_in_range(where, epsilon)),
        errors.probability(where, "delta", delta, zero=False),
    )


def _accountant(name: str) -> Accountant:
    name = errors.choice("calibration", "accountant", name, ACCOUNTANTS)
    return privacy_loss.epsilon_rdp if name == "rdp" else privacy_loss.epsilon_pld_or_rdp
