"""A budget that is raised after every look, by someone who stops when the loss is large."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tacit.privacy.accounting import odometer
from tacit.privacy.guarantees import ZCDP

SCOPE = {"adjacency": "add-remove", "unit": "record"}
DELTA = 0.05


def zcdp(rho):
    return ZCDP(0.0, rho, **SCOPE)


def looks(runs, steps, rho, seed=1):
    """Losses after each of the steps, Gaussian noise with this ρ each."""
    generator = np.random.default_rng(seed)
    each = rho + math.sqrt(2 * rho) * generator.standard_normal((runs, steps))
    return each.cumsum(axis=1)


def raised_at_every_look(steps, rho):
    history = []
    for step in range(1, steps + 1):
        history += [zcdp(step * rho), {"rho": Fraction(repr(rho))}]
    return history


def test_the_sum_is_exceeded_and_the_odometer_is_not():
    steps, rho, runs = 40, 0.1, 20_000
    losses = looks(runs, steps, rho)
    sums = [zcdp(k * rho).at_delta(DELTA).epsilon for k in range(1, steps + 1)]
    # P(S) - e^ε P'(S) over the runs that stop where the loss exceeds what is stated there.
    assert _excess(losses, np.array(sums)) > DELTA
    history = raised_at_every_look(steps, rho)
    stated = [
        odometer.at_delta(zcdp(k * rho), {"rho": k * rho}, history[: 2 * k], DELTA).epsilon
        for k in range(1, steps + 1)
    ]
    assert _excess(losses, np.array(stated)) <= DELTA
    # Nor by a lump at the end, for which the whole of what is allowed was kept.
    assert stated == sorted(stated)


def _excess(losses, stated):
    """E[(1 - e^{ε - L})₊] at the first look where L > ε: what δ must cover."""
    above = losses > stated
    first = above.argmax(axis=1)
    found = above.any(axis=1)
    loss = losses[np.arange(len(losses)), first]
    return float(np.where(found, -np.expm1(stated[first] - loss), 0).mean())


def test_a_stretch_counts_with_what_it_could_have_spent():
    history = [zcdp(1.0), {"rho": Fraction(1, 4)}, zcdp(2.0), {"rho": Fraction(1, 2)}, zcdp(3.0)]
    assert odometer.stretches(history) == [zcdp(1.0), zcdp(1.75), zcdp(2.25)]
    # A raise before anything else is charged replaces the one before.
    assert odometer.stretches([*history, zcdp(4.0)])[-1] == zcdp(3.25)
    # A mark costs nothing, so nothing was seen.
    assert odometer.stretches([zcdp(1.0), {"rho": Fraction(0)}, zcdp(2.0)]) == [zcdp(2.0)]
    with pytest.raises(Exception, match="delta must be"):
        odometer.at_delta(zcdp(3.0), {}, history, 0.0)
