"""Bounds in integers against Python's own integers, projections against their optimality."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.mechanisms import bounding

settings.register_profile("bounding", deadline=None, max_examples=150)
usual = settings.get_profile("bounding")

entries = st.integers(-(2**62), 2**62) | st.integers(-100, 100) | st.sampled_from([0, 1, -1])
vectors = st.lists(entries, min_size=1, max_size=12)
radii = st.integers(1, 2**24) | st.sampled_from([1, 2, 3, 2**24])


def norm_within(values, radius, order):
    """In Python's integers, without rounding."""
    return sum(abs(int(v)) ** order for v in values) <= radius**order


@usual
@given(values=vectors, radius=radii, order=st.sampled_from([1, 2]))
@example(values=[2**62] * 12, radius=2**24, order=2)
@example(values=[2**62] + [1] * 11, radius=2**24, order=1)
@example(values=[49], radius=1, order=1)
@example(values=[1] * 12, radius=1, order=2)
# Floats put these on a point that is one unit of the squared norm outside.
@example(values=[10**10, 1000], radius=10**7, order=2)
@example(values=[10**10, -1000, 1000, 1000], radius=10**7, order=2)
@example(values=[2**24 * 2**16, 2**16], radius=2**24, order=2)
def test_clip_never_exceeds_the_radius(values, radius, order):
    clip = {1: bounding.clip_l1, 2: bounding.clip_l2}[order]
    clipped = clip(np.array(values, dtype=np.int64), radius)
    assert clipped.dtype == np.int64
    assert norm_within(clipped, radius, order)
    for before, after in zip(values, clipped.tolist(), strict=True):
        assert abs(after) <= abs(before)
        assert after == 0 or (after > 0) == (before > 0)
    if norm_within(values, radius, order):
        assert clipped.tolist() == values


@usual
@given(values=vectors, radius=radii, order=st.sampled_from([1, 2]))
def test_clip_keeps_the_direction(values, radius, order):
    """Each entry is within two units of the real one: a bound that zeroed all would pass above."""
    clip = {1: bounding.clip_l1, 2: bounding.clip_l2}[order]
    if norm_within(values, radius, order):
        return
    total = sum(abs(v) ** order for v in values)
    for before, after in zip(values, clip(np.array(values), radius).tolist(), strict=True):
        norm = Fraction(total) if order == 1 else Fraction(math.isqrt(total << 80), 2**40)
        assert abs(Fraction(before) * radius / norm - after) <= 2


@usual
@given(
    size=st.integers(1, 5),
    at=st.integers(0, 4),
    value=st.integers(1, 2**40),
    radius=st.integers(1, 2**24),
    sign=st.sampled_from([-1, 1]),
    order=st.sampled_from([1, 2]),
)
@example(size=1, at=0, value=49, radius=1, sign=1, order=1)
@example(size=2, at=1, value=49, radius=1, sign=-1, order=2)
def test_vertices_stay_vertices(size, at, value, radius, sign, order):
    """A vector along an axis ends exactly on the sphere: the worst pair is really reached."""
    clip = {1: bounding.clip_l1, 2: bounding.clip_l2}[order]
    vector = np.zeros(size, dtype=np.int64)
    vector[at % size] = sign * value
    expected = np.zeros(size, dtype=np.int64)
    expected[at % size] = sign * min(value, radius)
    assert clip(vector, radius).tolist() == expected.tolist()


def test_clip_works_on_every_row_alone():
    rows = np.array([[3, 4], [30, 40], [0, 0], [-6, 8], [100, -1]])
    for order, clip in ((1, bounding.clip_l1), (2, bounding.clip_l2)):
        together = clip(rows, 5)
        assert together.tolist() == [clip(row, 5).tolist() for row in rows]
        assert all(norm_within(row, 5, order) for row in together)
    stacked = bounding.clip_l2(np.broadcast_to(rows, (2, 5, 2)), 5)
    assert stacked.shape == (2, 5, 2)
    assert bounding.clip_l2(rows, 5)[0].tolist() == [3, 4]


def test_clip_on_the_sphere_is_the_identity():
    """Pythagorean vectors: the norm is the radius, exactly."""
    for a, b, c in ((3, 4, 5), (5, 12, 13), (20, 21, 29), (9999999, 0, 9999999)):
        assert bounding.clip_l2(np.array([a, -b]), c).tolist() == [a, -b]
    for scale in (1, 1000, 3_000_000):
        vector = np.array([3, 4]) * scale
        assert bounding.clip_l2(vector, 5 * scale).tolist() == vector.tolist()


@pytest.mark.parametrize("radius", [0, -1, 2**24 + 1, 1.5, math.nan, None])
def test_clip_refuses_radii_it_is_not_exact_for(radius):
    for clip in (bounding.clip_l1, bounding.clip_l2):
        with pytest.raises(InvalidParameter):
            clip(np.array([1, 2]), radius)


def test_clip_does_not_change_its_input():
    values = np.array([[100, 200]])
    bounding.clip_l1(values, 3)
    assert values.tolist() == [[100, 200]]


# --- the grid ------------------------------------------------------------------------------------


@usual
@given(x=st.floats(-1e15, 1e15), power=st.integers(-40, 40))
@example(x=0.5, power=0)
@example(x=1.5, power=0)
@example(x=-0.5, power=0)
@example(x=-1.5, power=0)
@example(x=0.49999999999999994, power=0)
@example(x=-0.49999999999999994, power=0)
@example(x=5e-324, power=40)
@example(x=-5e-324, power=40)
@example(x=4503599627370497.5, power=0)
def test_quantize_is_the_nearest_step(x, power):
    steps = int(bounding.quantize(x, 2.0**power))
    exact = Fraction(x) / Fraction(2) ** power
    held = max(min(exact, Fraction(2**40)), Fraction(-(2**40)))
    assert abs(steps - held) <= Fraction(1, 2)
    assert abs(steps) <= 2**40


@usual
@given(
    x=st.floats(-1e6, 1e6),
    quarters=st.integers(-40, 40),
    power=st.integers(-20, 10),
)
def test_quantize_drives_neighbours_apart_by_less_than_a_step(x, quarters, power):
    """|q(a) − q(b)| < |a − b| / grid + 1: half-way points must all go the same way."""
    grid = 2.0**power
    other = x + quarters * grid / 4
    for a, b in ((x, other), (np.rint(x / grid) * grid + grid / 2, None)):
        b = a + quarters * grid / 4 if b is None else b
        apart = abs(int(bounding.quantize(a, grid)) - int(bounding.quantize(b, grid)))
        assert apart < abs(Fraction(a) - Fraction(b)) / Fraction(grid) + 1


@pytest.mark.parametrize("x", [1e308, -1e308, 1.7e308, 1e300])
@pytest.mark.parametrize("power", [-40, 0, 40])
def test_quantize_saturates_without_a_warning(x, power):
    steps = int(bounding.quantize(x, 2.0**power))
    assert steps == math.copysign(2**40, x)


@pytest.mark.parametrize("raw", [math.nan, math.inf, [1, math.nan], [], "x"])
def test_quantize_refuses_what_is_no_number(raw):
    with pytest.raises(InvalidData):
        bounding.quantize(raw, 1.0)


@pytest.mark.parametrize("power", [-40, -1, 0, 1, 40])
def test_powers_of_two_are_taken(power):
    assert bounding.power_of_two("here", "grid", 2.0**power) == 2.0**power
    assert bounding.power_of_two("here", "grid", Fraction(2) ** power) == 2.0**power


@pytest.mark.parametrize("value", [0.3, 3, 2.0**41, 2.0**-41, 0, -1, -2.0, math.nan, math.inf, "x"])
def test_other_steps_are_refused_with_one_that_is_taken(value):
    with pytest.raises(InvalidParameter) as caught:
        bounding.power_of_two("here", "grid", value)
    message = str(caught.value)
    assert message.startswith("here: grid must be")
    assert "\n" not in message
    if "Try" in message:
        suggested = float(message.rsplit("Try ", 1)[1].rstrip("."))
        assert bounding.power_of_two("here", "grid", suggested) == suggested


@usual
@given(spread=st.floats(1e-9, 1e9))
def test_the_default_grid_is_about_a_thousandth(spread):
    step = bounding.grid_for(spread)
    assert math.frexp(step)[0] == 0.5
    assert 2**10 <= spread / step < 2**11


def test_a_grid_ball_bounds_what_it_is_given():
    for order, clip in ((1, bounding.clip_l1), (2, bounding.clip_l2)):
        ball = bounding.GridBall("here", 1.3, 0.25, order)
        assert ball.radius_steps == 5  # 1.3 / 0.25 = 5.2, rounded down
        raw = np.array([[9.0, -1.0], [0.6, 0.4], [1e308, 0.0]])
        with np.errstate(over="ignore"):
            clipped = ball.clip(raw)
        assert all(norm_within(row, 5, order) for row in clipped)
        assert clipped[1].tolist() == clip(np.array([2, 2]), 5).tolist()


# --- projections ---------------------------------------------------------------------------------

reals = st.lists(st.floats(-50, 50, allow_subnormal=False), min_size=1, max_size=6)


@usual
@given(x=reals, total=st.floats(0.01, 100))
@example(x=[0.0, 0.0, 0.0, 0.0, 0.0, 26.0], total=25.76367076257354)
def test_project_simplex_satisfies_its_optimality_conditions(x, total):
    """The answer is (x − τ)₊ with Σp = total for one τ: necessary, sufficient, and unique."""
    p = bounding.project_simplex(x, total)
    assert (p >= 0).all()
    assert math.fsum(p) == pytest.approx(total, rel=1e-9)
    x = np.array(x)
    tau = (x - p)[p > 0]
    assert np.ptp(tau) <= 1e-9 * (1 + np.abs(x).max())
    assert (x[p == 0] <= tau.min() + 1e-9 * (1 + np.abs(x).max())).all()


@usual
@given(x=reals, radius=st.floats(0.01, 100))
def test_project_l1_satisfies_its_optimality_conditions(x, radius):
    p = bounding.project_l1(x, radius)
    x = np.array(x)
    assert np.abs(p).sum() <= radius * (1 + 1e-9)
    if np.abs(x).sum() <= radius:
        assert p.tolist() == x.tolist()
        return
    assert np.abs(p).sum() == pytest.approx(radius, rel=1e-9)
    # ⟨x − p, v − p⟩ ≤ 0 for every vertex v of the ball.
    for vertex in radius * np.concatenate([np.eye(x.size), -np.eye(x.size)]):
        assert (x - p) @ (vertex - p) <= 1e-7 * (1 + np.abs(x).max()) * (1 + radius)


@usual
@given(x=reals, radius=st.floats(0.01, 100))
def test_project_l2_is_radial(x, radius):
    p = bounding.project_l2(x, radius)
    x = np.array(x)
    norm = math.sqrt(math.fsum(x**2))
    assert math.sqrt(math.fsum(p**2)) <= radius * (1 + 1e-12)
    expected = x if norm <= radius else x * radius / norm
    assert p == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_projections_against_an_optimiser(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=4) * 3

    def near(constraint):
        return minimize(
            lambda p: ((p - x) ** 2).sum(),
            np.full(4, 0.1),
            jac=lambda p: 2 * (p - x),
            constraints=constraint,
            method="SLSQP",
            bounds=[(0, None)] * 4 if constraint[0]["type"] == "eq" else None,
            options={"ftol": 1e-14, "maxiter": 500},
        ).x

    simplex = near([{"type": "eq", "fun": lambda p: p.sum() - 1.5}])
    assert bounding.project_simplex(x, 1.5) == pytest.approx(simplex, abs=1e-5)
    ball = near([{"type": "ineq", "fun": lambda p: 1.5**2 - (p**2).sum()}])
    assert bounding.project_l2(x, 1.5) == pytest.approx(ball, abs=1e-5)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T
    diamond = near([{"type": "ineq", "fun": lambda p: 1.5 - signs @ p}])
    assert bounding.project_l1(x, 1.5) == pytest.approx(diamond, abs=1e-5)


@pytest.mark.parametrize(
    ("x", "expected"),
    [([1e20], [1.0]), ([1e20, 0.0], [1.0, 0.0]), ([0.0, -1e17, 3e16], [0.0, 0.0, 1.0])],
)
def test_projections_of_vectors_that_dwarf_the_radius(x, expected):
    """1e20 − 1 is 1e20 in floats: the answer is a vertex all the same."""
    signs = np.sign(x)
    assert bounding.project_simplex(np.abs(x) * (signs > 0), 1.0).sum() == pytest.approx(1)
    assert bounding.project_simplex(x, 1.0) == pytest.approx(expected)


def test_projection_l1_of_a_vector_that_dwarfs_the_radius():
    assert bounding.project_l1([3.0, -1e17], 5.0) == pytest.approx([0.0, -5.0])


def test_projection_l2_of_a_vector_whose_square_overflows():
    found = bounding.project_l2([1e200, 1e200], 1.0)
    assert found == pytest.approx([math.sqrt(0.5)] * 2)


def test_projections_of_the_largest_floats():
    assert bounding.project_simplex([1e308, -1e308], 1.0) == pytest.approx([1.0, 0.0])
    assert bounding.project_l1([1.5e308, -1.5e308], 1.0) == pytest.approx([0.5, -0.5])
    assert bounding.project_l2([1.5e308, -1.5e308], 1.0) == pytest.approx(
        [math.sqrt(0.5), -math.sqrt(0.5)]
    )


@pytest.mark.parametrize("radius", [0, -1, math.nan, math.inf, None, "x"])
def test_projections_refuse_bad_radii(radius):
    for project in (bounding.project_l1, bounding.project_l2, bounding.project_simplex):
        with pytest.raises(InvalidParameter):
            project([1.0, 2.0], radius)


@pytest.mark.parametrize("vector", [[math.nan, 1], [math.inf], [], ["x"], [[1], [1, 2]]])
def test_projections_refuse_bad_vectors(vector):
    for project in (bounding.project_l1, bounding.project_l2, bounding.project_simplex):
        with pytest.raises(InvalidData):
            project(vector, 1.0)
