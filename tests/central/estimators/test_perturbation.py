"""Objective and output perturbation: what a record changes, what solving misses, what is drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tacit.central.estimators import perturbation
from tacit.central.estimators.base import Box
from tacit.central.estimators.fourier import Fourier
from tacit.central.estimators.losses import HuberHinge, Logistic, PenalizedObjective
from tacit.central.estimators.minimum import minimum
from tacit.central.estimators.perturbation import (
    LearningProblem,
    OutputPerturbation,
    PerturbedObjective,
)
from tacit.central.estimators.scores import RowScaling
from tacit.privacy import events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded

NUMBERS = st.one_of(st.floats(-5, 5), st.sampled_from([0.0, 3.0, -3.0, 1e300, -1e-300, 2.9999999]))
LOSSES = [Logistic(), HuberHinge(0.5), HuberHinge(1 / 16)]
by_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)


def problem(loss: Any = LOSSES[0], **changes: Any) -> LearningProblem:
    stated = {
        "where": "test", "loss": loss, "dimension": 3, "count": 1, "epsilon": 1.0, "delta": 1e-6,
        "penalty": None, "unit": "record",
    }  # fmt: skip
    return LearningProblem(**{**stated, **changes})


def ball(rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    found = generator.normal(size=(rows, columns))
    found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1.0) * (1 + 2.0**-40)
    return found, generator.choice([-1.0, 1.0], size=rows)


# --- rows and losses ----------------------------------------------------------------------------


def test_a_row_at_the_edge_does_not_depend_on_one_beyond_it():
    """One float above its bound, a row looks like one within: it is held all the same."""
    low, high = -0.22681171498665703, 0.5233523402148308
    frame = RowScaling.of("test", Box.of("test", "bounds", (low, high), 1), None, intercept=True)
    edge = np.array([[np.nextafter(high, np.inf)]])
    beside = np.array([[edge[0, 0]], [1e3]])
    np.testing.assert_array_equal(frame.rows(edge)[0][0], frame.rows(beside)[0][0])


@given(hnp.arrays(np.float64, (5, 4), elements=NUMBERS), st.sampled_from([None, 0.3, 1.5, 9.0]))
@settings(max_examples=60, deadline=None)
def test_rows_are_in_the_ball_and_each_is_its_own(X, norm):
    box = Box.of("test", "bounds", (-3, 3), 4)
    for intercept in (True, False):
        frame = RowScaling.of("test", box, norm, intercept=intercept)
        rows, clipped = frame.rows(X)
        assert max(math.fsum(v * v for v in row) for row in rows.tolist()) <= 1
        assert clipped == int((np.abs(X) > 3).any(axis=1).sum())
        alone = np.concatenate([frame.rows(X[i : i + 1])[0] for i in range(5)])
        np.testing.assert_array_equal(rows, alone)
        solutions = np.arange(2.0 * frame.dimension).reshape(2, -1)
        coef, constant = frame.coefficients(solutions)
        held = np.clip(X, -3, 3)
        inside = np.linalg.norm(held / 3, axis=1) <= frame.norm
        scores = rows @ solutions.T
        np.testing.assert_allclose((held @ coef.T + constant)[inside], scores[inside], atol=1e-9)


def test_fourier_rows_have_norm_one_and_the_kernel():
    box = Box.of("test", "bounds", (-1, 1), 3)
    frame = Fourier.drawn(box, 4000, 0.5, intercept=False, rng=Seeded(1))
    X = np.random.default_rng(0).uniform(-2, 2, size=(6, 3))
    rows, clipped = frame.rows(X)
    assert clipped == (np.abs(X) > 1).any(axis=1).sum() > 0
    norms = np.linalg.norm(rows, axis=1)
    assert (norms <= 1).all()
    np.testing.assert_allclose(norms, 1, atol=1e-9)
    held = np.clip(X, -1, 1)
    apart = ((held[:, None] - held) ** 2).sum(axis=2)
    np.testing.assert_allclose(rows @ rows.T, np.exp(-0.5 * apart), atol=0.06)


@by_loss
def test_slopes_and_curvatures_are_within_what_the_proof_needs(loss):
    s = np.linspace(-9, 9, 20_001)
    slope, value = loss.slope(s), loss.value(s)
    assert slope.min() >= -1
    assert slope.max() <= 0
    np.testing.assert_allclose(np.diff(value) / np.diff(s), (slope[1:] + slope[:-1]) / 2, atol=1e-3)
    curved = loss.curvature(s, slope)
    assert curved.min() >= 0
    assert float(loss.smoothness) >= curved.max() > 0.9 * float(loss.smoothness)
    # Slopes never change faster than that, kinks included.
    assert (np.diff(slope) / np.diff(s)).max() <= float(loss.smoothness) * (1 + 1e-9)


# --- the minimum --------------------------------------------------------------------------------


def exact_gradient(objective: PenalizedObjective, theta: np.ndarray) -> np.ndarray:
    """In extended precision, summed exactly."""
    rows, signs = objective.rows.astype(np.longdouble), objective.signs.astype(np.longdouble)
    score = signs * (rows @ theta.astype(np.longdouble))
    if isinstance(objective.loss, Logistic):
        slope = -1 / (1 + np.exp(np.minimum(score, 10_000)))
    else:
        width = np.longdouble(objective.loss.width)
        slope = -np.clip((1 + width - score) / (2 * width), 0, 1)
    parts = (signs * slope)[:, None] * rows
    total = parts.sum(axis=0) + objective.penalty * theta.astype(np.longdouble) + objective.linear
    return np.asarray(total, dtype=np.float64)


@by_loss
@pytest.mark.parametrize("size", [(0, 2), (1, 3), (3, 8), (500, 5), (6000, 4)])
@pytest.mark.parametrize("penalty", [2.0**-10, 0.9, 50.0])
def test_the_tolerance_is_met(loss, size, penalty):
    rows, signs = ball(*size, seed=size[0])
    linear = np.random.default_rng(3).normal(size=size[1]) * 5
    objective = PenalizedObjective(loss, rows, signs, penalty, linear)
    found = minimum(objective, 2.0**-16)
    exact = exact_gradient(objective, found)
    assert np.linalg.norm(exact) <= 2.0**-16
    off = np.linalg.norm(exact - objective.gradient(found))
    assert off <= objective.rounding(found)


@by_loss
def test_separable_data_constant_columns_and_one_class_have_a_minimum(loss):
    rows = np.column_stack([np.linspace(-1, 1, 400), np.full(400, 0.1)]) / 1.1
    for signs in (np.sign(rows[:, 0]), np.ones(400)):
        found = minimum(PenalizedObjective(loss, rows, signs, 2.0**-10, np.zeros(2)), 2.0**-16)
        assert np.isfinite(found).all()


# --- sensitivity, by brute force ------------------------------------------------------------------


@by_loss
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_output_moves_by_its_sensitivity_at_most(loss, delta, monkeypatch):
    monkeypatch.setattr(perturbation, "_noise", lambda law, scale, shape, stream: np.zeros(shape))
    order, worst = (2 if delta else 1), 0.0
    for seed, penalty in ((0, 0.5), (1, 4.0), (2, 1 / 64)):
        rows, _ = ball(12, 3, seed)
        codes = np.random.default_rng(seed).integers(0, 3, 12)
        solver = OutputPerturbation(problem(loss, count=3, delta=delta, penalty=penalty))
        whole, ran = solver.solve(rows, codes, None)
        assert ran == solver.event
        sensitivity = getattr(ran, "l2_sensitivity" if delta else "l1_sensitivity")
        for out in range(12):
            less, _ = solver.solve(np.delete(rows, out, 0), np.delete(codes, out), None)
            moved = np.linalg.norm(((whole - less) / solver._grid[0]).ravel(), ord=order)
            worst = max(worst, moved / float(sensitivity))
    assert worst <= 1


def test_the_bound_of_output_perturbation_is_reached():
    rows, codes = np.array([[1.0, 0.0, 0.0]]), np.array([1])
    solver = OutputPerturbation(problem(HuberHinge(0.5), penalty=8.0, epsilon=100.0))
    objective = PenalizedObjective(HuberHinge(0.5), rows, np.ones(1), 8.0, np.zeros(3))
    moved = np.linalg.norm(minimum(objective, 1e-9))
    assert moved / solver._grid[0] > 0.99 * float(solver.event.l2_sensitivity)
    assert codes.size == 1


@by_loss
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_one_record_moves_the_gradient_by_its_sensitivity_at_most(loss, delta):
    """Whatever the weights are: the gradient of one record's loss is what the noise must hide."""
    sensitivity = float(PerturbedObjective(problem(loss, delta=delta)).event.sensitivity)
    rows, signs = ball(40, 3, 5)
    box = Box.of("test", "bounds", (-3, 3), 2)
    corners, _ = RowScaling.of("test", box, 9.0, intercept=True).rows(np.array([[3.0, 3], [-3, 3]]))
    rows, signs = np.concatenate([rows, corners]), np.append(signs, [1, 1])
    for theta in np.random.default_rng(0).normal(size=(20, 3)) * 30:
        for row, sign in zip(rows, signs, strict=True):
            one = PenalizedObjective(loss, row[None], np.array([sign]), 0.0, np.zeros(3))
            slope = one.gradient(theta)
            assert np.linalg.norm(slope, ord=2 if delta else 1) <= sensitivity
            assert np.linalg.eigvalsh(one.hessian(theta))[-1] <= float(loss.smoothness) + 1e-12


# --- what is drawn, and what is charged -----------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 30.0])
def test_epsilon_is_spent_and_not_exceeded(delta, count, epsilon):
    for kind in (PerturbedObjective, OutputPerturbation):
        event = kind(problem(delta=delta, count=count, epsilon=epsilon)).event
        spent = guarantee_of(event, delta or None).epsilon  # type: ignore[union-attr]
        assert 0.999 * epsilon < spent <= epsilon


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_noise_is_as_large_as_the_event_says(delta):
    """With almost no data and a strong penalty the solution is the linear term over the penalty."""
    given = problem(delta=delta, penalty=4.0, dimension=50)
    solver = PerturbedObjective(given)
    rows = np.zeros((1, 50))
    drawn = np.array([solver.solve(rows, np.array([1]), Seeded(seed))[0][0] for seed in range(60)])
    scale = float(solver.event.scale) / 4.0
    expected = scale if delta else scale * math.sqrt(2)
    assert drawn.std() == pytest.approx(expected, rel=0.08)
    quiet = OutputPerturbation(given)
    drawn = np.array([quiet.solve(rows, np.array([1]), Seeded(seed))[0][0] for seed in range(60)])
    stated = quiet.event.sigma if delta else quiet.event.scale * math.sqrt(2)
    assert drawn.std() == pytest.approx(float(stated) * quiet._grid[0], rel=0.08)


def test_noise_on_top_is_drawn_too(monkeypatch):
    solver = PerturbedObjective(problem(dimension=200))
    monkeypatch.setattr(perturbation, "_term", lambda law, size, stream: np.zeros(size))
    found, _ = solver.solve(np.zeros((1, 200)), np.array([0]), Seeded(1))
    assert found.std() == pytest.approx(float(solver.event.output_scale) * solver._grid[0], rel=0.2)


def test_a_penalty_that_costs_more_than_epsilon_is_refused():
    with pytest.raises(InvalidParameter, match=r"test: alpha must be above 0\.1455"):
        _ = PerturbedObjective(problem(penalty=0.1)).event
    with pytest.raises(InvalidParameter, match=r"alpha must be at least 2\^-10"):
        _ = OutputPerturbation(problem(penalty=1e-6)).event


def test_events_name_the_unit_and_one_record_more_or_less():
    for kind in (PerturbedObjective, OutputPerturbation):
        scope = events.scope_of(kind(problem(unit="person")).event)
        assert (scope["adjacency"], scope["unit"]) == ("add-remove", "person")
