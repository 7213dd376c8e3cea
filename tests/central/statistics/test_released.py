"""What every statistic says of itself: event, guarantee, certificate, and how it is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.central import statistics as ps
from tacit.central.statistics.released import Spending
from tacit.privacy import events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import InvalidData, InvalidParameter, TacitError
from tacit.privacy.gaussian import epsilon_of, noise_multiplier_for
from tacit.privacy.guarantees import ZCDP, ApproxDP
from tacit.privacy.randomness import Seeded
from tacit.privacy.rounding import root_above

ROWS = np.random.default_rng(5).normal(size=(300, 4))

FUNCTIONS: dict[str, Callable[..., ps.Released[Any]]] = {
    "counts": lambda **noise: ps.counts(np.arange(300) % 7, 7, **noise),
    "vector_sum": lambda **noise: ps.vector_sum(ROWS, 3, **noise),
    "mean": lambda **noise: ps.mean(ROWS, 3, **noise),
    "covariance": lambda **noise: ps.covariance(ROWS, 3, **noise),
    "pca": lambda **noise: ps.pca(ROWS, 2, 3, **noise),
    "quantiles": lambda **noise: ps.quantiles(ROWS[:, 0], [0.1, 0.5], -4, 4, **noise),
    "standardize": lambda **noise: ps.standardize(ROWS, -4, 4, **noise),
    "kmeans": lambda **noise: ps.kmeans(ROWS, 5, 3, 3, **noise),
    "kmeans, random start": lambda **noise: ps.kmeans(ROWS, 5, 3, 7, "random", **noise),
    "kmeans, public start": lambda **noise: ps.kmeans(ROWS, 5, 3, 1, ROWS[:5] * 0, **noise),
}
everything = pytest.mark.parametrize("name", FUNCTIONS)


def test_every_public_function_is_tried():
    public = {name for name in ps.__all__ if inspect.isfunction(getattr(ps, name))}
    assert {name.partition(",")[0] for name in FUNCTIONS} == public


@everything
@pytest.mark.parametrize("z", [0.3, 1.7, 40.0])
def test_parts_cost_together_what_one_gaussian_costs(name, z):
    """At most, exactly; and nothing of the budget is left lying about."""
    released = FUNCTIONS[name](noise_multiplier=z)
    total = Fraction(0)
    for leaf, count in leaves_of(released.event):
        assert isinstance(leaf, events.Gaussian)
        assert (leaf.adjacency, leaf.unit) == ("add-remove", "record")
        total += count * (leaf.l2_sensitivity / leaf.sigma) ** 2
    allowed = 1 / Fraction(repr(z)) ** 2
    assert total <= allowed
    assert float(total / allowed) == pytest.approx(1, rel=1e-6)


def leaves_of(event: events.Event) -> list[tuple[events.Event, int]]:
    if isinstance(event, events.Composed):
        return [found for part in event.events for found in leaves_of(part)]
    if isinstance(event, events.Repeated):
        return [(leaf, count * event.count) for leaf, count in leaves_of(event.event)]
    return [(event, 1)]


@everything
def test_the_guarantee_is_that_of_the_event_and_what_was_asked_for(name):
    released = FUNCTIONS[name](epsilon=1.5, delta=1e-6)
    assert isinstance(released.guarantee, ApproxDP)
    assert released.guarantee == guarantee_of(released.event, 1e-6)
    assert released.guarantee.epsilon == pytest.approx(1.5, rel=1e-6)
    assert released.guarantee.epsilon <= 1.5 * (1 + 1e-9)
    alone = FUNCTIONS[name](noise_multiplier=2)
    assert isinstance(alone.guarantee, ZCDP)
    assert alone.guarantee.rho == pytest.approx(1 / 8, rel=1e-6)
    at = FUNCTIONS[name](noise_multiplier=2, delta=1e-5).guarantee
    assert isinstance(at, ApproxDP)
    assert at.epsilon == pytest.approx(epsilon_of(2, 1e-5), rel=1e-6)


@everything
def test_certificates_verify_and_mark_seeds(name, tmp_path):
    path = tmp_path / "value.txt"
    for rng, seeded in ((None, False), (Seeded(3), True), (np.random.default_rng(3), True)):
        released = FUNCTIONS[name](epsilon=1, delta=1e-6, unit="person", rng=rng)
        assert released.seeded is seeded
        path.write_text(str(released.value))
        certificate = released.certificate(artifact=path, not_protected=("The weather.",))
        certificate.verify(path)
        assert certificate.seeded is seeded
        assert ("SEEDED" in certificate.explain()) is seeded
        assert certificate.guarantee == released.guarantee
        assert certificate.guarantee.unit == "person"
        assert "The weather." in certificate.not_protected
        assert any(line.startswith("Bounds, centres") for line in certificate.assumptions)
        assert type(certificate).from_json(certificate.to_json()) == certificate


@everything
def test_a_seed_repeats_and_entropy_does_not(name):
    def shown(rng: Any) -> str:
        value = FUNCTIONS[name](noise_multiplier=1, rng=rng).value
        return str(value if isinstance(value, np.ndarray) else vars(value))

    assert shown(Seeded(1)) == shown(Seeded(1))
    assert shown(Seeded(1)) != shown(Seeded(2))
    assert shown(None) != shown(None)


@everything
@pytest.mark.parametrize(
    "noise",
    [
        {},
        {"epsilon": 1},
        {"delta": 1e-6},
        {"noise_multiplier": 1, "epsilon": 1, "delta": 1e-6},
        {"noise_multiplier": 0},
        {"noise_multiplier": -1},
        {"noise_multiplier": float("nan")},
        {"noise_multiplier": 1e9},
        {"epsilon": float("nan"), "delta": 1e-6},
        {"epsilon": 0, "delta": 1e-6},
        {"epsilon": 1, "delta": 0},
        {"epsilon": 1, "delta": 1},
        {"noise_multiplier": 1, "delta": 2},
        {"noise_multiplier": 1, "unit": "house"},
        {"noise_multiplier": 1, "rng": 7},
    ],
)
def test_no_noise_no_release(name, noise):
    with pytest.raises(InvalidParameter) as refusal:
        FUNCTIONS[name](**noise)
    assert "\n" not in str(refusal.value)
    assert " must be " in str(refusal.value)


def test_shares_cannot_be_spent_twice():
    spending = Spending("test", 1.0, None, None, "record", Seeded(1))
    spending.add(np.zeros(1, dtype=np.int64), 1, Fraction(3, 4))
    with pytest.raises(TacitError, match="add up to at most 1"):
        spending.add(np.zeros(1, dtype=np.int64), 1, Fraction(1, 2))
    spending.add(np.zeros(1, dtype=np.int64), 1, Fraction(1, 4))
    with pytest.raises(TacitError, match="add up to at most 1"):
        spending.charge(1, Fraction(1), Fraction(-1, 2))


def test_deviations_are_never_rounded_down():
    for number in (Fraction(2), Fraction(1, 7), Fraction(10**9 + 1), Fraction(9), Fraction(1, 9)):
        root = root_above(number)
        assert number <= root**2 < number * (1 + Fraction(1, 10**8))
    assert root_above(Fraction(9)) == 3
    spending = Spending("test", None, 1.0, 1e-6, "record", None)
    assert float(spending.sigma(10)) == pytest.approx(10 * noise_multiplier_for(1.0, 1e-6))


BAD = {
    "codes must be one column": lambda n: ps.counts(ROWS, 3, **n),
    "categories": lambda n: ps.counts([0, 1], 0, **n),
    "words": lambda n: ps.counts(np.array(["a", "b"]), 2, **n),
    "a column for rows": lambda n: ps.vector_sum(ROWS[:, 0], 1, **n),
    "no columns": lambda n: ps.vector_sum(ROWS[:, :0], 1, **n),
    "words in rows": lambda n: ps.vector_sum(np.array([["a"], ["b"]]), 1, **n),
    "ragged": lambda n: ps.vector_sum([[1.0], [1.0, 2.0]], 1, **n),
    "bound 0": lambda n: ps.mean(ROWS, 0, **n),
    "bound nan": lambda n: ps.mean(ROWS, float("nan"), **n),
    "bound none": lambda n: ps.mean(ROWS, None, **n),
    "bound tiny": lambda n: ps.mean(ROWS, 1e-9, **n),
    "center short": lambda n: ps.mean(ROWS, 1, [0.0], **n),
    "center nan": lambda n: ps.covariance(ROWS, 1, [0, 0, 0, float("nan")], **n),
    "center words": lambda n: ps.covariance(ROWS, 1, "mean", **n),
    "components 0": lambda n: ps.pca(ROWS, 0, 1, **n),
    "components 5": lambda n: ps.pca(ROWS, 5, 1, **n),
    "no levels": lambda n: ps.quantiles(ROWS[:, 0], [], 0, 1, **n),
    "levels": lambda n: ps.quantiles(ROWS[:, 0], [1.5], 0, 1, **n),
    "level nan": lambda n: ps.quantiles(ROWS[:, 0], [float("nan")], 0, 1, **n),
    "levels words": lambda n: ps.quantiles(ROWS[:, 0], "median", 0, 1, **n),
    "bounds swapped": lambda n: ps.quantiles(ROWS[:, 0], [0.5], 1, 0, **n),
    "bounds none": lambda n: ps.quantiles(ROWS[:, 0], [0.5], None, 0, **n),
    "cells": lambda n: ps.quantiles(ROWS[:, 0], [0.5], 0, 1, cells=1, **n),
    "rows for a column": lambda n: ps.quantiles(ROWS, [0.5], 0, 1, **n),
    "no range": lambda n: ps.standardize(ROWS, 1, 1, **n),
    "wrong ranges": lambda n: ps.standardize(ROWS, [0, 0], [1, 1], **n),
    "clusters": lambda n: ps.kmeans(ROWS, 0, 1, **n),
    "steps": lambda n: ps.kmeans(ROWS, 2, 1, 0, **n),
    "start": lambda n: ps.kmeans(ROWS, 2, 1, start="kmeans++", **n),
    "start shape": lambda n: ps.kmeans(ROWS, 2, 1, start=[[0.0]], **n),
    "start words": lambda n: ps.kmeans(ROWS, 2, 1, start=["a", "b"], **n),
    "reach": lambda n: ps.kmeans(ROWS, 2, 1, reach=3, **n),
    "reach 0": lambda n: ps.kmeans(ROWS, 2, 1, reach=0, **n),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line_without_data(name):
    with pytest.raises((InvalidParameter, InvalidData)) as refusal:
        BAD[name]({"noise_multiplier": 1})
    message = str(refusal.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert not any(f"{value:.4f}"[:6] in message for value in ROWS[:20].ravel())
