"""Objective perturbation in one dimension, where the law of the minimiser is a formula.

With rows of one entry the minimiser is an increasing function of the linear term, so its density
can be written down, and divergences of neighbours are integrals.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtr

from tacit.privacy import events, gaussian
from tacit.privacy.accounting import privacy_loss
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.guarantees import ZCDP, ApproxDP, PureDP

SCOPE: dict[str, Any] = {"adjacency": "add-remove", "unit": "record"}


def event_of(law: str, scale: float, penalty: float, problems: int = 1, *, top: float = 1e9):
    return events.ObjectivePerturbation(
        law, 1, Fraction(scale), Fraction(1, 4), Fraction(penalty), 1, Fraction(top), problems,
        **SCOPE,
    )  # fmt: skip


def log_density(signed_rows: np.ndarray, law: str, scale: float, penalty: float, at: np.ndarray):
    """Of the minimiser of logistic losses of x y, the penalty and the linear term."""
    slopes = -expit(-np.outer(at, signed_rows)) * signed_rows
    b = -(slopes.sum(axis=1) + penalty * at)
    curved = expit(np.outer(at, signed_rows)) * expit(-np.outer(at, signed_rows)) * signed_rows**2
    volume = np.log(curved.sum(axis=1) + penalty)
    if law == "laplace":
        return volume - np.abs(b) / scale - math.log(2 * scale)
    return volume - (b / scale) ** 2 / 2 - math.log(scale * math.sqrt(2 * math.pi))


PAIRS = [
    ([], [1.0]),
    ([], [-0.4]),
    ([1.0, -1.0], [1.0]),
    ([0.3, 0.9, 1.0, 1.0], [-1.0]),
    ([1.0] * 30, [-1.0]),
    ([-1.0, 1.0] * 10, [1.0]),
]
SETTINGS = [(4.0, 1.0), (2.0, 0.1), (8.0, 30.0), (1.0, 0.5)]


def both_ways(rows: list[float], more: list[float], law: str, scale: float, penalty: float):
    reach = (len(rows) + 1 + 45 * scale) / penalty
    at = np.sign(np.linspace(-1, 1, 60_001)) * np.linspace(-1, 1, 60_001) ** 2 * reach
    sides = [np.array(rows), np.array([*rows, *more])]
    laws = [log_density(side, law, scale, penalty, at) for side in sides]
    for law_of in laws:  # the grid sees all of it
        assert np.trapezoid(np.exp(law_of), at) == pytest.approx(1, abs=5e-3)
    return at, [(laws[0], laws[1]), (laws[1], laws[0])]


@pytest.mark.parametrize(("rows", "more"), PAIRS)
@pytest.mark.parametrize(("scale", "penalty"), SETTINGS)
def test_the_profile_holds_for_every_pair(rows, more, scale, penalty):
    event = event_of("gaussian", scale, penalty)
    at, ways = both_ways(rows, more, "gaussian", scale, penalty)
    for first, second in ways:
        for epsilon in (0.3, 0.8, 1.5, 3.0):
            excess = -np.expm1(np.minimum(epsilon + second - first, 0))
            lost = np.trapezoid(np.exp(first) * excess, at)
            shifted = epsilon - event.distortion()
            bound = 2 * gaussian.delta_of(scale, shifted) if shifted > 0 else 1.0
            assert lost <= bound + 1e-6
        for order in (1.5, 2.0, 5.0):
            moment = np.trapezoid(np.exp(order * first + (1 - order) * second), at)
            curve = event.renyi(np.array([order]))[0]
            assert math.log(moment) / (order - 1) <= curve + 1e-5


@pytest.mark.parametrize(("rows", "more"), PAIRS)
def test_laplace_is_pure(rows, more):
    event = event_of("laplace", 2.0, 0.5)
    promised = guarantee_of(event)
    assert isinstance(promised, PureDP)
    assert promised.epsilon == pytest.approx(0.5 + math.log1p(0.5), rel=1e-6)
    _, ways = both_ways(rows, more, "laplace", 2.0, 0.5)
    worst = max(float((first - second).max()) for first, second in ways)
    assert worst <= promised.epsilon + 1e-9


def test_the_volume_counts():
    """Without ln(1 + β/λ) both statements would be refuted."""
    scale, penalty, epsilon = 4.0, 0.1, 1.0
    at, ways = both_ways([], [1.0], "gaussian", scale, penalty)
    lost = [
        np.trapezoid(np.exp(first) * -np.expm1(np.minimum(epsilon + second - first, 0)), at)
        for first, second in ways
    ]
    assert max(lost) > 2 * gaussian.delta_of(scale, epsilon)
    pure = max(float((f - s).max()) for f, s in both_ways([], [1.0], "laplace", 4.0, 0.1)[1])
    assert pure > 1 / 4.0 + 0.5


def test_the_stated_epsilon_has_the_stated_profile():
    for problems in (1, 3):
        event = event_of("gaussian", 6.0, 2.0, problems)
        stated = guarantee_of(event, 1e-6)
        assert isinstance(stated, ApproxDP)
        left = stated.epsilon - problems * math.log1p(0.125)
        z = 6.0 / math.sqrt(problems)
        assert 2**problems * gaussian.delta_of(z, left) == pytest.approx(1e-6, rel=1e-6)


def test_two_problems_by_sampling():
    """The loss of a pair, τ²/2 + τ|N| twice, never exceeds the profile of 2² tails."""
    event = event_of("gaussian", 3.0, 1.0, 2)
    draws = np.abs(np.random.default_rng(0).standard_normal((2, 2_000_000))).sum(axis=0)
    tau = 1 / 3.0
    loss = 2 * event.distortion() + tau**2 + tau * draws
    for delta in (1e-3, 1e-4):
        epsilon = guarantee_of(event, delta).epsilon  # type: ignore[union-attr]
        assert np.mean(-np.expm1(np.minimum(epsilon - loss, 0))) <= 1.05 * delta


def test_noise_on_top_is_one_more_gaussian():
    bare, noisy = event_of("gaussian", 4.0, 2.0), event_of("gaussian", 4.0, 2.0, top=10.0)
    merged = event_of("gaussian", 1 / math.sqrt(1 / 16 + 1 / 100), 2.0)
    epsilons = [guarantee_of(one, 1e-6).epsilon for one in (bare, noisy, merged)]  # type: ignore[union-attr]
    assert epsilons[0] < epsilons[1] == pytest.approx(epsilons[2], rel=1e-9)


def test_concentrated_statement_covers_the_curve():
    event = event_of("gaussian", 2.0, 1.0, top=20.0)
    natural = guarantee_of(event)
    assert isinstance(natural, ZCDP)
    orders = np.array([1.001, 1.5, 2, 8, 64.0])
    curve = event.renyi(orders)
    assert (curve <= natural.xi + natural.rho * orders + 1e-12).all()
    tau = 0.5
    folded = 2 * math.exp(tau**2 / 2) * ndtr(tau)  # E exp(τ|N|), the moment at order 2
    exact = math.log1p(0.25) + tau**2 / 2 + math.log(folded) + 1 / 400
    assert curve[2] == pytest.approx(exact, rel=1e-9)


def test_it_composes_with_others():
    event = event_of("gaussian", 6.0, 2.0)
    both = events.Composed((event, events.Gaussian(1, 8, **SCOPE)))
    alone, together = (guarantee_of(one, 1e-6).epsilon for one in (event, both))  # type: ignore[union-attr]
    assert alone < together < alone + gaussian.epsilon_of(8.0, 1e-6) + 0.2
    assert privacy_loss.epsilon_rdp(event, 1e-6) == pytest.approx(alone, rel=0.15)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"adjacency": "replace-one"}, "adjacency must be add-remove"),
        ({"law": "cauchy"}, "law must be one of"),
        ({"problems": 0}, "problems must be"),
        ({"convexity": 0}, "convexity must be"),
        ({"scale": Fraction(1, 10**9)}, "scale / sensitivity must be"),
    ],
)
def test_what_would_void_the_proof_is_refused(change, words):
    stated = {
        "law": "gaussian", "sensitivity": 1, "scale": 4, "smoothness": 1, "convexity": 1,
        "output_sensitivity": 1, "output_scale": 9, "problems": 1, **SCOPE,
    }  # fmt: skip
    with pytest.raises(InvalidParameter, match=words):
        events.ObjectivePerturbation(**{**stated, **change})
