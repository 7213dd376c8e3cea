"""What one record changes, before noise: never more than the event says, by brute force.

`before_noise` runs a statistic with its noise left out and keeps what the noise would have been
added to, with the sensitivity and the deviation that it was charged for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tacit.central import statistics as ps
from tacit.central.statistics import clusters, moments, order
from tacit.central.statistics.released import Spending
from tacit.central.statistics.rows import PRODUCT_BITS, SUM_BITS, Ball, gram
from tacit.privacy.mechanisms.bounding import GridBall, clip_l2
from tacit.privacy.randomness import Seeded

NUMBERS = st.one_of(
    st.floats(-3, 3, width=32),
    st.sampled_from([0.0, 1.0, -1.0, 1e-12, 1e30, -1e308, np.inf, -np.inf, np.nan]),
)


@st.composite
def neighbours(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and the same rows without one of them: any place, any order of memory."""
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 5)))
    rows = draw(hnp.arrays(np.float64, shape, elements=NUMBERS))
    index = draw(st.integers(0, shape[0] - 1))
    less = np.delete(rows, index, axis=0)
    if draw(st.booleans()):
        rows, less = np.asfortranarray(rows), np.asfortranarray(less)
    return rows, less


def before_noise(
    run: Callable[[np.ndarray], Any], rows: np.ndarray
) -> list[tuple[np.ndarray, int, float]]:
    """The integers that noise is added to, their sensitivity, their deviation."""
    parts = []

    def add(self: Spending, values: Any, sensitivity: int, share: Any = 1) -> Any:
        parts.append((np.array(values), sensitivity, float(self.sigma(sensitivity, share))))
        self.charge(sensitivity, self.sigma(sensitivity, share), share)
        return values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spending, "add", add)
        patch.setattr(Spending, "draw", lambda self, sigma, shape: np.zeros(shape, np.int64))
        run(rows)
    return parts


def check(run: Callable[[np.ndarray], Any], pair: tuple[np.ndarray, np.ndarray], z: float) -> None:
    """Each part within its sensitivity, and all parts together within the multiplier."""
    more, less = (before_noise(run, rows) for rows in pair)
    assert len(more) == len(less) > 0
    spent = 0.0
    for (first, sensitivity, sigma), (second, same, _) in zip(more, less, strict=True):
        assert sensitivity == same
        changed = float(np.linalg.norm((first - second).astype(np.float64)))
        assert changed <= sensitivity
        spent += (changed / sigma) ** 2
    assert spent <= 1 / z**2 * (1 + 1e-12)


@given(neighbours(), st.sampled_from([0.5, 1.0, 1.7, 300.0]))
@settings(max_examples=60, deadline=None)
def test_sums_and_means(pair, bound):
    check(lambda rows: ps.vector_sum(rows, bound, noise_multiplier=2), pair, 2)
    about = np.full(pair[0].shape[1], 0.3)
    check(lambda rows: ps.mean(rows, bound, about, noise_multiplier=2), pair, 2)


@given(neighbours())
@settings(max_examples=60, deadline=None)
def test_standardisation_counts_and_quantiles(pair):
    check(lambda rows: ps.standardize(rows, -1, 2, noise_multiplier=2), pair, 2)
    check(lambda rows: ps.counts(rows[:, 0], 2, noise_multiplier=2), pair, 2)
    check(lambda rows: ps.quantiles(rows[:, 0], [0.5], -1, 2, cells=9, noise_multiplier=2), pair, 2)


@given(neighbours(), st.sampled_from([0.7, 1.0]))
@settings(max_examples=60, deadline=None)
def test_one_step_of_kmeans(pair, bound):
    start = np.random.default_rng(1).normal(size=(3, pair[0].shape[1])) / 2
    for reach in (None, 0.1, 2 * bound):

        def run(rows: np.ndarray, reach: float | None = reach) -> Any:
            return ps.kmeans(rows, 3, bound, 1, start, reach=reach, noise_multiplier=2)

        check(run, pair, 2)


@given(neighbours(), st.sampled_from([0.7, 1.0, 40.0]))
@settings(max_examples=60, deadline=None)
def test_products(pair, bound):
    """(u_i², √2 u_i u_j) of the difference has the norm that the event states, at most."""
    ball = Ball("test", bound, None, pair[0].shape[1], PRODUCT_BITS)
    (more, _), (less, _) = (ball.products(rows) for rows in pair)
    difference = (more - less).astype(np.float64)
    upper = difference[np.triu_indices(len(difference), 1)]
    vector = np.concatenate([np.diag(difference), np.sqrt(2) * upper])
    assert np.linalg.norm(vector) <= ball.radius**2 * (1 + 1e-12)
    released = ps.covariance(pair[0], bound, noise_multiplier=1, rng=Seeded(1))
    assert released.event.events[0].l2_sensitivity == ball.radius**2


def test_the_bounds_are_reached():
    """Else noise is wasted, and the checks above would pass whatever the rows."""
    noise = {"noise_multiplier": 1}
    for run, row in [
        (lambda rows: ps.vector_sum(rows, 1, **noise), [5.0, 0.0]),
        (lambda rows: ps.mean(rows, 1, **noise), [5.0, 0.0]),
        (lambda rows: ps.standardize(rows, -1, 1, **noise), [5.0, -5.0]),
        (lambda rows: ps.quantiles(rows[:, 0], [1], 5, 6, **noise), [5.0, 0.0]),
        (lambda rows: ps.kmeans(rows, 1, 1, 1, [[0, 0]], reach=1, **noise), [5.0, 0.0]),
    ]:
        pair = (np.array([row]), np.zeros((0, 2)))
        parts = zip(*(before_noise(run, rows) for rows in pair), strict=True)
        spent = sum(np.sum((a[0] - b[0]) ** 2.0) / a[2] ** 2 for a, b in parts)
        assert 0.9999 <= spent <= 1


def test_a_mutant_that_clips_before_the_grid_is_caught():
    """Rounding after clipping lengthens a row: half a step a coordinate."""
    row = np.full((1, 400), 1.0)
    unit = 2.0**-12
    shortened = row / np.linalg.norm(row) * 0.9999  # in floats, as it should not be
    wrong = np.rint(shortened / unit + 0.4)
    assert np.linalg.norm(wrong) * unit > 1
    ball = Ball("test", 1, None, 400, 12)
    assert (ball.clipped(row)[0] ** 2).sum() <= ball.radius**2


@given(neighbours(), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_row_is_read_alone(pair, size):
    """In any company, order, block and memory layout it becomes the same integers."""
    rows = pair[0]
    for bits in (SUM_BITS, PRODUCT_BITS):
        ball = Ball("test", 1.3, None, rows.shape[1], bits)
        together, finite = ball.clipped(rows)
        for index in range(len(rows)):
            alone, counts = ball.clipped(rows[index : index + 1])
            assert (alone[0] == together[index]).all()
            assert counts[0] == finite[index] == np.isfinite(rows[index]).all()
        backwards, _ = ball.clipped(np.asfortranarray(rows[::-1]))
        assert (backwards[::-1] == together).all()


def test_wide_rows_are_read_alone_too():
    """Beyond eight columns numpy adds up a norm in an order that depends on the layout."""
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(200, 333)) * generator.uniform(0.01, 10, size=(200, 1))
    ball = Ball("test", 5.0, None, 333, SUM_BITS)
    together, _ = ball.clipped(np.asfortranarray(rows))
    for index in range(len(rows)):
        assert (ball.clipped(rows[index : index + 1])[0][0] == together[index]).all()


def test_norms_are_added_up_in_one_order(monkeypatch):
    """Too rare to be seen in integers: a last digit that turns with the layout of the rows."""
    seen = []
    clip = GridBall.clip

    def spy(self: GridBall, raw: np.ndarray) -> np.ndarray:
        seen.append(raw.flags.c_contiguous)
        return clip(self, raw)

    monkeypatch.setattr(GridBall, "clip", spy)
    rows = np.random.default_rng(3).normal(size=(20, 30))
    for layout in (rows, np.asfortranarray(rows), rows[::2, ::-1], rows.astype(np.float32).T):
        ps.vector_sum(layout, 1, noise_multiplier=1)
        ps.kmeans(layout, 2, 1, noise_multiplier=1)
    assert len(seen) > 8
    assert all(seen)


def test_clusters_are_chosen_exactly():
    """Float32 has the products of rows and centres on the coarse grid: compared with int64."""
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(500, 48))
    rows = clip_l2(np.rint(rows * 10**6).astype(np.int64), 2**20)
    centers = clip_l2(np.rint(generator.normal(size=(64, 48)) * 10**6).astype(np.int64), 2**20)
    coarse, near = clusters.toward_zero(rows), clusters.toward_zero(centers)
    assert np.linalg.norm(coarse.astype(np.float64), axis=1).max() <= 2**12
    exact = coarse.astype(np.int64) @ near.astype(np.int64).T
    assert ((coarse @ near.T).astype(np.int64) == exact).all()
    half = (near.astype(np.int64) ** 2).sum(axis=1)
    assert (clusters.nearest_exactly(coarse, near) == (2 * exact - half).argmax(axis=1)).all()
    # The mutant: rows on the fine grid, which float32 cannot multiply exactly.
    fine, beside = rows.astype(np.float32), centers.astype(np.float32)
    assert ((fine @ beside.T).astype(np.int64) != rows @ centers.T).any()


def test_cluster_sums_add_up_row_by_row():
    generator = np.random.default_rng(5)
    rows = clip_l2(generator.integers(-(2**19), 2**19, size=(300, 7)), 2**20).astype(np.int32)
    centers = clip_l2(generator.integers(-(2**19), 2**19, size=(9, 7)), 2**20)
    totals, found = clusters.cluster_sums(rows, centers, 2**18)
    one_by_one = [clusters.cluster_sums(row[None], centers, 2**18) for row in rows]
    assert (sum(total for total, _ in one_by_one) == totals).all()
    assert (sum(count for _, count in one_by_one) == found).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "_TABLE", 64)
        blocked, again = clusters.cluster_sums(rows[::-1], centers, 2**18)
    assert (blocked == totals).all()
    assert (again == found).all()


def test_gram_is_exact_or_refused():
    generator = np.random.default_rng(6)
    steps = generator.integers(-4000, 4000, size=(1000, 5))
    assert (gram(steps, 2**13) == steps.T @ steps).all()
    with pytest.raises(ValueError, match="below 2\\^53"):
        gram(steps, 2**22)


@pytest.mark.parametrize("cells", [2, 3, 64, 1024])
def test_the_factorisation(cells):
    """A C⁻¹ C = A, and the sensitivity is the longest column of C, rounded up."""
    factor, sensitivity, inverse = order.factorisation(cells)
    table = np.random.default_rng(7).integers(0, 50, size=cells)
    counted = np.convolve(factor, table)[:cells]
    assert np.allclose(np.convolve(inverse, counted)[:cells], np.cumsum(table), atol=1e-6)
    columns = [
        sum(int(entry) ** 2 for entry in factor[: cells - start]) for start in range(min(cells, 9))
    ]
    assert max(columns) <= sensitivity**2
    assert (sensitivity - 1) ** 2 < max(columns)


def test_records_that_cannot_be_read_change_nothing():
    rows = np.random.default_rng(8).normal(size=(50, 3))
    dirty = np.insert(rows, [3, 20], [[np.nan, 1, 1], [2, np.inf, 0]], axis=0)
    for run in (
        lambda data: ps.vector_sum(data, 2, noise_multiplier=1, rng=Seeded(1)).value,
        lambda data: ps.mean(data, 2, noise_multiplier=1, rng=Seeded(1)).value.point,
        lambda data: ps.covariance(data, 2, noise_multiplier=1, rng=Seeded(1)).value.matrix,
        lambda data: ps.standardize(data, -2, 2, noise_multiplier=1, rng=Seeded(1)).value.mean,
        lambda data: ps.kmeans(data, 4, 2, noise_multiplier=1, rng=Seeded(1)).value.centers,
    ):
        assert (run(rows) == run(dirty)).all()
    codes = np.array([0.0, 1, 1, 2])
    for run in (
        lambda data: ps.counts(data, 3, noise_multiplier=1, rng=Seeded(1)).value,
        lambda data: ps.quantiles(data, [0.5], 0, 2, noise_multiplier=1, rng=Seeded(1)).value,
    ):
        assert (run(codes) == run(np.append(codes, np.nan))).all()
    more = np.append(codes, [-1, 3, 0.5, np.inf])
    few = [ps.counts(data, 3, noise_multiplier=1, rng=Seeded(1)).value for data in (codes, more)]
    assert (few[0] == few[1]).all()


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.full((4, 3), np.nan), np.zeros((1, 3))])
@pytest.mark.parametrize("z", [0.01, 1, 1000])
def test_hardly_any_data_is_data(rows, z):
    """An error that depends on one record would give it away."""
    noise = {"noise_multiplier": z, "rng": Seeded(1)}
    assert np.isfinite(ps.vector_sum(rows, 2, **noise).value).all()
    assert np.isfinite(ps.mean(rows, 2, **noise).value.point).all()
    assert np.isfinite(ps.pca(rows, 3, 2, **noise).value.directions).all()
    assert (ps.standardize(rows, 0, 1, **noise).value.deviation > 0).all()
    assert np.isfinite(ps.kmeans(rows, 5, 2, **noise).value.centers).all()
    found = ps.quantiles(rows[:, 0], [0, 0.5, 1], -1, 3, **noise).value
    assert ((found >= -1) & (found <= 3)).all()
    assert ps.counts(rows[:, 0], 2, **noise).value.shape == (2,)


def test_numbers_of_every_type_are_read_alike():
    rows = np.random.default_rng(9).integers(-3, 4, size=(40, 2))
    expected = ps.vector_sum(rows, 9, noise_multiplier=1, rng=Seeded(1)).value
    for kind in (np.int8, np.float16, np.float32, np.float64, np.longdouble):
        found = ps.vector_sum(rows.astype(kind), 9, noise_multiplier=1, rng=Seeded(1)).value
        assert (found == expected).all()
    huge = rows.astype(np.longdouble) * np.longdouble("1e4000")
    assert ps.vector_sum(huge, 9, noise_multiplier=1, rng=Seeded(1)).value.shape == (2,)


def test_second_moments_keep_their_share_of_the_count():
    assert moments.product_count_share(1) * 2 == 1
    assert float(moments.product_count_share(48)) == pytest.approx(1 / 49, rel=1e-2)


class Unfloatable:
    def __float__(self) -> float:
        raise RuntimeError("a row")


ODD = [np.nan, None, 10**400, -(10**400), "x", 1j, Unfloatable(), {}]


@pytest.mark.parametrize("odd", ODD, ids=[type(one).__name__ for one in ODD])
@pytest.mark.parametrize("form", [list, lambda rows: np.array(rows, object)])
def test_no_entry_of_a_list_decides_about_a_refusal(odd: Any, form: Any) -> None:
    """One that has no float counts nowhere, as NaN does; it was refused, and NaN was not."""
    for run, wrap in (
        (lambda rows: ps.mean(rows, 1.0, noise_multiplier=1.0), lambda x: [x]),
        (lambda rows: ps.quantiles(rows, [0.5], 0, 1, noise_multiplier=1.0), lambda x: x),
        (lambda rows: ps.counts(rows, 2, noise_multiplier=1.0), lambda x: x),
    ):
        whole = [wrap(1), wrap(0.1), wrap(2**60)]
        one, other = before_noise(run, form(whole)), before_noise(run, form([*whole, wrap(odd)]))
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left[0], right[0])
