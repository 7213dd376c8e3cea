"""Calibration of the Hellinger mechanism: exponents by theorem, and per instance."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.central.posteriors.hellinger_scores import Scores
from tacit.privacy import errors
from tacit.privacy.mechanisms.integer_rows import Symmetry

CALIBRATIONS = ("instance", "theorem", "paper")
_REFUSED = ("accuracy", "epsilon/S")
_ACTIVE = 32
_ROUNDS = 40
_SMALLEST_DELTA = 1e-12

Reals = npt.NDArray[np.float64]


def repaired_epsilon(exponent: float, smoothing: float, size: int, delta: float) -> float:
    """Return the ε of T2."""
    return 2 * exponent + math.log(size / delta) * math.expm1(smoothing) - math.log1p(-delta)


def exponent(
    scores: Scores, *, epsilon: float | Fraction, delta: float = 0.0, calibration: str = "instance"
) -> float:
    """Return the c of `tacit.posteriors.hellinger`; a weight is e^(−c F).

    "instance": the largest c that the table allows; "theorem": the larger of those that T1 and T2
    prove; "paper": ε/2, as stated. The ε/S of the accuracy section ("accuracy") is refused by name.
    """
    epsilon = float(epsilon)
    if calibration in _REFUSED:
        errors.refuse(
            "hellinger",
            "calibration",
            "one of " + ", ".join(CALIBRATIONS),
            calibration,
            "The exponent epsilon/S of the accuracy section is not (epsilon, delta)-private.",
        )
    errors.choice("hellinger", "calibration", calibration, CALIBRATIONS)
    if calibration == "paper":
        return epsilon / 2
    proved = epsilon / (2 * scores.spread())
    if scores.smoothing > 0:
        spent = repaired_epsilon(0.0, scores.smoothing, len(scores.listed), delta)
        proved = max(proved, (epsilon - spent) / 2)
    return proved if calibration == "theorem" else _largest(scores, proved, epsilon, delta)


def _largest(scores: Scores, proved: float, epsilon: float, delta: float) -> float:
    """Find the largest exponent within (ε, δ) in floats, on the pairs that come near the limit."""
    if delta < _SMALLEST_DELTA:  # too small to add up in floats: treated as pure
        delta = 0.0
    target = 1 - 1e-9 - (1e-14 / delta if delta else 0.0)
    pairs, scaled = scores.both_ways(), scores.scaled()
    active: list[tuple[int, int]] = []  # grows in place

    def shares(exponent: float, chosen: list[tuple[int, int]]) -> Reals:
        return _shares(scores.symmetry, scaled, exponent, chosen, epsilon, delta)

    def beyond(exponent: float) -> bool:
        return bool(shares(exponent, active).max() > target)

    current = proved
    for _ in range(_ROUNDS):
        used = shares(current, pairs)
        if active and used.max() <= target:
            return current
        worst = np.argsort(-used)[:_ACTIVE]
        active.extend([pairs[one] for one in worst if not active or used[one] > target])
        current = _crossing(beyond, proved)
    return proved


def _crossing(beyond: Callable[[float], bool], least: float) -> float:
    """Bisect from an exponent that is allowed to the first that is not."""
    low, high = least, 2 * least
    while not beyond(high) and high < 2**20 * least:
        low, high = high, 2 * high
    while high - low > 1e-10 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return low


def _shares(
    symmetry: Symmetry,
    scaled: Reals,
    exponent: float,
    pairs: list[tuple[int, int]],
    epsilon: float,
    delta: float,
) -> Reals:
    """Return the part of ε (where δ = 0) or of δ that each pair uses, in floats."""
    laws: dict[int, Reals] = {}
    for row in {symmetry.stored(row) for pair in pairs for row in pair}:
        law = -exponent * scaled[row]
        law -= math.log(np.exp(law).sum())
        laws[row] = np.exp(law) if delta else law
    shares = np.empty(len(pairs))
    odds = math.exp(epsilon)
    for place, (x, y) in enumerate(pairs):
        first, second = symmetry.row(laws, x), symmetry.row(laws, y)
        if delta:
            shares[place] = np.maximum(first - odds * second, 0).sum() / delta
        else:
            shares[place] = (first - second).max() / epsilon
    return shares
