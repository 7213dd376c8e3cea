"""The exact audit against closed forms, and against every subset of the outputs."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit.audit.exact import Table, profile, smallest_epsilon, tabulate, tabulate_over
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import (
    Exponential,
    Geometric,
    PermuteAndFlip,
    RandomizedResponse,
    SparseVector,
    SubsetSelection,
)

BOTH = ((0, 1), (1, 0))


def table_of(rows: list[list[float]], pairs: tuple[tuple[int, int], ...] = BOTH) -> Table:
    with np.errstate(divide="ignore"):
        return Table(np.log(np.array(rows, dtype=np.float64)), pairs)


# --- closed forms -------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("categories", [2, 3, 10])
def test_randomized_response_has_its_textbook_profile(epsilon: float, categories: int) -> None:
    table = tabulate(RandomizedResponse(categories=categories, epsilon=epsilon))
    total = math.exp(epsilon) + categories - 1
    for share in (0.0, 0.3, 0.9, 1.0):
        known = (math.exp(epsilon) - math.exp(share * epsilon)) / total
        assert profile(table, share * epsilon) == pytest.approx(known, abs=1e-14)
    assert profile(table, epsilon + 0.1) == 0.0
    assert smallest_epsilon(table) == pytest.approx(epsilon, abs=1e-12)
    delta = 0.4 * (math.exp(epsilon) - 1) / total
    known = math.log(math.exp(epsilon) - delta * total)
    assert smallest_epsilon(table, delta) == pytest.approx(known, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5])
@pytest.mark.parametrize("upper", [1, 2, 20])
def test_geometric_has_the_profile_of_two_answers(epsilon: float, upper: int) -> None:
    # The event y ≤ x is worst, clamped or not: P = 1/(1 + r) against r/(1 + r).
    table = tabulate(Geometric(epsilon=epsilon, lower=0, upper=upper, adjacency="replace-one"))
    for share in (0.0, 0.5, 1.0):
        known = (math.exp(epsilon) - math.exp(share * epsilon)) / (1 + math.exp(epsilon))
        assert profile(table, share * epsilon) == pytest.approx(known, abs=1e-13)
    assert smallest_epsilon(table) == pytest.approx(epsilon, abs=1e-12)


def test_geometric_with_sensitivity_two_is_worst_at_distance_two() -> None:
    table = tabulate(
        Geometric(epsilon=1.0, lower=0, upper=9, sensitivity=2, adjacency="replace-one")
    )
    assert smallest_epsilon(table) == pytest.approx(1.0, abs=1e-12)
    near = Table(table.log_prob, tuple((i, j) for i, j in table.pairs if abs(i - j) == 1))
    assert len(near.pairs) < len(table.pairs)
    assert smallest_epsilon(near) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_subset_selection_has_its_closed_form(size: int) -> None:
    categories, epsilon = 6, 1.2
    table = tabulate(SubsetSelection(categories=categories, epsilon=epsilon, size=size))
    p = size * math.exp(epsilon) / (size * math.exp(epsilon) + categories - size)
    held = p / math.comb(categories - 1, size - 1)
    missed = (1 - p) / math.comb(categories - 1, size)
    for at in (0.0, 0.7):
        telling = math.comb(categories - 2, size - 1)  # sets with one of the two inputs
        known = telling * (held - math.exp(at) * missed)
        assert profile(table, at) == pytest.approx(known, abs=1e-13)
    assert smallest_epsilon(table) == pytest.approx(epsilon, abs=1e-12)


def test_exponential_on_two_scores_is_a_logistic() -> None:
    channel = Exponential(epsilon=2.0, sensitivity=1, adjacency="replace-one")
    table = tabulate_over(channel, [[0.0, 0.0], [1.0, -1.0]], range(2), lambda a, b: True)
    # Odds 1 : 1 become e : 1/e.
    first, second = math.log(0.5), -math.log1p(math.exp(2.0))
    assert smallest_epsilon(table) == pytest.approx(first - second, abs=1e-12)


@pytest.mark.parametrize("kind", [Exponential, PermuteAndFlip])
def test_selection_stays_within_epsilon_on_random_scores(kind: type) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        scores = rng.normal(scale=4, size=5)
        other = scores + rng.choice([-1.0, 1.0], size=5)
        table = tabulate_over(
            kind(epsilon=1.0, sensitivity=1, adjacency="replace-one"),
            [scores, other],
            range(5),
            lambda a, b: True,
        )
        assert 0.1 < smallest_epsilon(table) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("positives", "monotonic", "pair"),
    [
        (1, False, ([1, 1, 1, 0], [0, 0, 0, 1])),
        (2, False, ([1, 1, 0, 0], [0, 0, 1, 1])),
        (2, True, ([1, 1, 1, 1], [0, 0, 0, 0])),
    ],
)
def test_sparse_vector_keeps_its_promise(positives: int, monotonic: bool, pair: tuple) -> None:
    channel = SparseVector(
        epsilon=1.0, threshold=0, positives=positives, monotonic=monotonic, adjacency="replace-one"
    )
    table = tabulate_over(channel, list(pair), runs(len(pair[0]), positives), lambda a, b: True)
    assert 0.3 < smallest_epsilon(table) <= 1 + 1e-9


def runs(questions: int, positives: int) -> list[tuple[int, ...]]:
    """Every list of outcomes of a sparse vector: cut off after so many ones."""
    found: set[tuple[int, ...]] = set()
    for bits in range(2**questions):
        run = [bits >> i & 1 for i in range(questions)]
        ones = np.cumsum(run)
        found.add(tuple(-1 if ones[i] - run[i] >= positives else run[i] for i in range(questions)))
    return sorted(found)


# --- all subsets --------------------------------------------------------------------------------


def subsets(outputs: int) -> list[tuple[int, ...]]:
    indices = range(outputs)
    return list(chain.from_iterable(combinations(indices, size) for size in range(outputs + 1)))


@st.composite
def channels(draw: st.DrawFn) -> tuple[list[list[Fraction]], tuple[tuple[int, int], ...]]:
    outputs = draw(st.integers(2, 6))
    inputs = draw(st.integers(2, 3))
    weights = st.lists(st.integers(0, 9), min_size=outputs, max_size=outputs).filter(any)
    rows = []
    for _ in range(inputs):
        row = draw(weights)
        rows.append([Fraction(weight, sum(row)) for weight in row])
    every = [(i, j) for i in range(inputs) for j in range(inputs) if i != j]
    pairs = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    return rows, tuple(pairs)


@settings(max_examples=150, deadline=None)
@given(channels(), st.floats(0, 4))
def test_profile_is_the_worst_subset(drawn: tuple, epsilon: float) -> None:
    rows, pairs = drawn
    worst = max(
        float(sum(rows[i][y] for y in event)) - math.exp(epsilon) * sum(rows[j][y] for y in event)
        for i, j in pairs
        for event in subsets(len(rows[0]))
    )
    found = profile(table_of([[float(p) for p in row] for row in rows], pairs), epsilon)
    assert found == pytest.approx(max(worst, 0.0), abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(channels(), st.integers(0, 96))
def test_smallest_epsilon_is_the_worst_subset(drawn: tuple, step: int) -> None:
    # 97 divides no row's total, so that no event has exactly this mass.
    rows, pairs = drawn
    delta = Fraction(step, 97)
    worst = 0.0
    for i, j in pairs:
        for event in subsets(len(rows[0])):
            held = sum((rows[i][y] for y in event), Fraction(0)) - delta
            other = sum((rows[j][y] for y in event), Fraction(0))
            if held > 0:
                worst = max(worst, math.log(held / other) if other else math.inf)
    table = table_of([[float(p) for p in row] for row in rows], pairs)
    assert smallest_epsilon(table, float(delta)) == pytest.approx(worst, abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(channels(), st.floats(0.001, 0.9))
def test_profile_and_smallest_epsilon_are_inverse(drawn: tuple, delta: float) -> None:
    rows, pairs = drawn
    table = table_of([[float(p) for p in row] for row in rows], pairs)
    epsilon = smallest_epsilon(table, delta)
    assume(epsilon < math.inf)
    if epsilon > 0:
        assert profile(table, epsilon) == pytest.approx(delta, abs=1e-9)
    else:
        assert profile(table, 0.0) <= delta + 1e-12


def test_direction_matters_and_both_are_looked_at() -> None:
    rows = [[0.5, 0.5], [0.9, 0.1]]
    assert smallest_epsilon(table_of(rows, ((0, 1),))) == pytest.approx(math.log(5))
    assert smallest_epsilon(table_of(rows, ((1, 0),))) == pytest.approx(math.log(1.8))
    assert smallest_epsilon(table_of(rows)) == pytest.approx(math.log(5))


# --- infinite, and just not ---------------------------------------------------------------------


def test_an_output_that_rules_an_input_out_is_infinite() -> None:
    table = table_of([[0.75, 0.25], [1.0, 0.0]])
    assert smallest_epsilon(table) == math.inf
    assert smallest_epsilon(table, 0.2) == math.inf
    assert smallest_epsilon(table, 0.3) < math.inf
    assert smallest_epsilon(table_of([[0.75, 0.25], [1.0, 0.0]], ((1, 0),))) < math.inf


@pytest.mark.parametrize("delta", [0.3, 0.2, 0.1, 0.05, 0.01, 0.001, 1e-5])
def test_giving_the_input_away_with_chance_delta_is_zero_delta(delta: float) -> None:
    # The textbook (0, δ) mechanism. Rounding in the last digit may not turn it into infinity.
    table = table_of([[delta, 0.0, 1 - delta], [0.0, delta, 1 - delta]])
    assert profile(table, 0.0) == pytest.approx(delta, rel=1e-12)
    assert smallest_epsilon(table, delta) == pytest.approx(0.0, abs=1e-9)


def test_profile_far_out_is_the_mass_that_gives_the_input_away() -> None:
    table = table_of([[0.75, 0.25], [1.0, 0.0]])
    assert profile(table, 600.0) == 0.25
    assert profile(table, 1000.0) == 0.25
    assert profile(table, math.inf) == 0.25


def test_a_constant_channel_gives_nothing_away() -> None:
    table = table_of([[0.2, 0.3, 0.5]] * 2)
    assert smallest_epsilon(table) == 0.0
    assert profile(table, 0.0) == 0.0


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        [[0.5, 0.4], [0.5, 0.5]],
        [[0.5, 0.5], [0.6, 0.5]],
        [[0.5, 0.5 + 1e-8], [0.5, 0.5]],
        [[math.nan, 1.0], [0.5, 0.5]],
        [[math.inf, 0.0], [0.5, 0.5]],
        [[0.0, 0.0], [0.5, 0.5]],
    ],
)
def test_mass_that_is_not_one_is_refused(rows: list[list[float]]) -> None:
    with pytest.raises(InvalidParameter, match="mass"):
        table_of(rows)


def test_missing_outputs_are_refused() -> None:
    channel = RandomizedResponse(categories=3, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="mass"):
        tabulate_over(channel, [0, 1], [0, 1], channel.adjacent)


def test_no_pairs_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="pair"):
        table_of([[0.5, 0.5], [0.5, 0.5]], ())
    channel = RandomizedResponse(categories=3, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="pair"):
        tabulate_over(channel, [0, 1], range(3), lambda a, b: False)
    with pytest.raises(InvalidParameter, match="pair"):
        tabulate_over(channel, [0], range(3), channel.adjacent)


@pytest.mark.parametrize("delta", [math.nan, -0.1, 1.0, 2.0, math.inf, "x", None])
def test_a_bad_delta_is_refused(delta: object) -> None:
    table = table_of([[0.5, 0.5], [0.6, 0.4]])
    with pytest.raises(InvalidParameter, match="delta"):
        smallest_epsilon(table, delta)  # type: ignore[arg-type]


def test_tabulate_takes_the_adjacency_of_the_channel() -> None:
    table = tabulate(Geometric(epsilon=1.0, lower=0, upper=3, adjacency="replace-one"))
    assert set(table.pairs) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    assert table.log_prob.shape == (4, 4)
    every = tabulate(RandomizedResponse(categories=3, epsilon=1.0))
    assert set(every.pairs) == {(i, j) for i in range(3) for j in range(3) if i != j}
