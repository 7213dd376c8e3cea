"""Noise on the lattice of counts of one sum: its law, its draws, its projection, its mutants."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tacit
from tacit.audit.exact import Table, smallest_epsilon
from tacit.audit.statistical import lower_bound
from tacit.privacy.errors import InvalidData
from tacit.privacy.events import Declared
from tacit.privacy.guarantees import PureDP
from tacit.privacy.mechanisms import Channel, DiscreteLaplace, LatticeGeometric

SIGNIFICANCE = 1e-6


def shell(k, d):
    """Points at distance d: j entries rise, by d in all, and the others fall by as much."""
    if d == 0:
        return 1
    return sum(
        math.comb(k, j) * math.comb(d - 1, j - 1) * math.comb(d + k - j - 1, k - j - 1)
        for j in range(1, k)
    )


def box(k, reach, total):
    """All lattice points with entries from −reach to reach, but for the last."""
    free = np.array(list(itertools.product(range(-reach, reach + 1), repeat=k - 1)))
    return np.column_stack([free, total - free.sum(axis=1)])


def moves(x):
    for i, j in itertools.permutations(range(len(x)), 2):
        if x[i] > 0:
            moved = list(x)
            moved[i] -= 1
            moved[j] += 1
            yield moved


# --- the law -------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 4])
def test_shells_are_counted_right(k):
    points = box(k, 5, 0)
    distance = np.abs(points).sum(axis=1) // 2
    for d in range(6):
        assert np.count_nonzero(distance == d) == shell(k, d)


@pytest.mark.parametrize("k", [2, 3, 5, 10, 40])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_normaliser_sums_the_shells(k, epsilon):
    mechanism = LatticeGeometric(epsilon=epsilon, categories=k, total=9)
    terms = [
        math.log(shell(k, d)) - epsilon * d for d in range(math.ceil((60 + 12 * k) / epsilon) + 60)
    ]
    largest = max(terms)
    direct = largest + math.log(math.fsum(math.exp(term - largest) for term in terms))
    assert mechanism.log_normaliser == pytest.approx(direct, rel=1e-11)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_no_odds_exceed_epsilon_on_the_whole_lattice(epsilon):
    """Every neighbour, every output within reach: at most ε, and ε is reached."""
    mechanism = LatticeGeometric(epsilon=epsilon, categories=3, total=6)
    points = box(3, 40, 6)
    law = lambda x: mechanism.log_prob(points, np.broadcast_to(x, points.shape))  # noqa: E731
    for x in ([2, 1, 3], [6, 0, 0], [0, 0, 6]):
        for y in moves(x):
            assert mechanism.adjacent(x, y)
            assert np.abs(law(x) - law(y)).max() == pytest.approx(epsilon, abs=1e-9)
    if epsilon >= 1:
        assert math.fsum(np.exp(law([2, 1, 3]))) == pytest.approx(1, abs=1e-9)


def test_two_categories_are_the_geometric_mechanism():
    mechanism = LatticeGeometric(epsilon=0.7, categories=2, total=10)
    counts = DiscreteLaplace(epsilon=0.7, sensitivity=1, adjacency="replace-one")
    for y in (-4, 0, 3, 17):
        assert float(mechanism.log_prob([y, 10 - y], [3, 7])) == pytest.approx(
            float(counts.log_prob(y, 3)), rel=1e-12
        )


def test_another_sum_is_impossible():
    mechanism = LatticeGeometric(epsilon=1.0, categories=3, total=6)
    assert float(mechanism.log_prob([2, 2, 3], [2, 1, 3])) == -math.inf


def test_it_promises_what_was_asked_for():
    mechanism = LatticeGeometric(epsilon=0.1, categories=5, total=50, unit="person")
    assert str(mechanism.guarantee) == "0.1-DP (central, replace-one, unit: person)"
    assert mechanism.event.l1_sensitivity / mechanism.event.scale == Fraction(1, 10)
    assert isinstance(mechanism, Channel)
    tacit.Certificate.issue(mechanism.event).verify()


# --- the bounded lattice is a mutant -------------------------------------------------------------


def bounded_table(k, n, epsilon):
    """The law that is normalised where r ≥ 0: its normaliser depends on the data."""
    points = np.array([p for p in itertools.product(range(n + 1), repeat=k) if sum(p) == n])
    distance = np.abs(points[:, None] - points).sum(axis=-1) // 2
    weights = np.exp(-epsilon * distance)
    laws = np.log(weights / weights.sum(axis=1, keepdims=True))
    pairs = tuple(map(tuple, np.argwhere(distance == 1).tolist()))
    return points, Table(laws, pairs)


def test_normalised_on_the_bounded_lattice_it_is_refuted():
    """178 % of what it claims at k = 3, n = 10, ε = 0.1."""
    _, table = bounded_table(3, 10, 0.1)
    assert smallest_epsilon(table) == pytest.approx(0.178, abs=0.001)


@pytest.mark.heavy
def test_projected_to_the_bounded_lattice_it_is_not():
    """The same range, by projection: draws of the real one, gathered where they land."""
    epsilon, n = 0.5, 4
    mechanism = LatticeGeometric(epsilon=epsilon, categories=3, total=n)
    points, table = bounded_table(3, n, epsilon)
    reach = box(3, 90, n)
    landed = mechanism.projected(reach)
    place = {tuple(point): index for index, point in enumerate(points.tolist())}
    where = np.array([place[tuple(point)] for point in landed.tolist()])
    law = [
        np.bincount(
            where,
            np.exp(mechanism.log_prob(reach, np.broadcast_to(x, reach.shape))),
            minlength=len(points),
        )
        for x in points
    ]
    with np.errstate(divide="raise"):
        found = smallest_epsilon(Table(np.log(np.array(law)), table.pairs))
    assert 0.9 * epsilon < found <= epsilon + 1e-9
    assert smallest_epsilon(table) > epsilon


class Halved:
    """Noise of half the scale."""

    def __init__(self, **arguments: Any) -> None:
        self.guarantee = PureDP(
            epsilon=arguments["epsilon"], adjacency="replace-one", unit="record"
        )
        self.event = Declared(self.guarantee)
        inner = LatticeGeometric(**arguments | {"epsilon": 2 * arguments["epsilon"]})
        self.release, self.log_prob = inner.release, inner.log_prob


def test_the_audit_refutes_half_the_noise_and_not_the_right_amount():
    arguments = {"epsilon": 1.0, "categories": 3, "total": 10}
    found = [
        lower_bound(
            kind(**arguments),
            [5, 5, 0],
            [4, 6, 0],
            samples=40_000,
            confidence=0.999999,
            rng=tacit.Seeded(1),
        ).epsilon
        for kind in (LatticeGeometric, Halved)
    ]
    assert 0.7 < found[0] <= 1.0 < found[1]


# --- draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "epsilon"), [(2, 0.3), (3, 0.5), (5, 1.5)])
def test_draws_follow_the_shells_and_another_epsilon_does_not(k, epsilon):
    mechanism = LatticeGeometric(epsilon=epsilon, categories=k, total=30)
    counts = np.zeros((60_000, k), dtype=int)
    counts[:, 0] = 30
    drawn = mechanism.release(counts)
    assert np.all(drawn.sum(axis=1) == 30)
    distance = np.abs(drawn - counts).sum(axis=1) // 2
    cells = int(np.quantile(distance, 0.995))
    seen = np.bincount(np.minimum(distance, cells), minlength=cells + 1)

    def p_value(rate):
        law = LatticeGeometric(epsilon=rate, categories=k, total=30)
        chances = [shell(k, d) * math.exp(-rate * d - law.log_normaliser) for d in range(cells)]
        chances.append(1 - math.fsum(chances))
        return stats.chisquare(seen, len(drawn) * np.array(chances)).pvalue

    assert p_value(epsilon) > SIGNIFICANCE > p_value(epsilon * 1.06)


def test_draws_are_uniform_on_a_shell():
    mechanism = LatticeGeometric(epsilon=1.0, categories=3, total=9)
    noise = mechanism.release(np.full((90_000, 3), 3)) - 3
    near = noise[np.abs(noise).sum(axis=1) == 4]
    _, seen = np.unique(near, axis=0, return_counts=True)
    assert len(seen) == shell(3, 2)
    assert stats.chisquare(seen).pvalue > SIGNIFICANCE


def test_a_draw_takes_a_few_words_and_no_loop_over_rows():
    mechanism = LatticeGeometric(epsilon=0.1, categories=3, total=1000)
    stream, calls = tacit.Seeded(1), []

    class Counted:
        secure = False

        def words(self, count):
            calls.append(count)
            return stream.words(count)

    mechanism.release(np.tile([0, 0, 1000], (100_000, 1)), Counted())
    assert sum(calls) < 20 * 100_000
    assert len(calls) < 1000


def test_many_categories_and_a_tiny_epsilon_need_no_list():
    mechanism = LatticeGeometric(epsilon=1e-4, categories=200, total=10**6)
    counts = np.full(200, 5000)
    released = mechanism.release(counts)
    assert released.sum() == 10**6
    assert np.abs(released - counts).max() > 1000
    back = mechanism.projected(released)
    assert back.sum() == 10**6
    assert back.min() >= 0


# --- projection ----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(free=st.lists(st.integers(-9, 9), min_size=1, max_size=3), total=st.integers(1, 8))
def test_nothing_is_nearer_than_the_projection(free, total):
    released = np.array([*free, total - sum(free)])
    mechanism = LatticeGeometric(epsilon=1.0, categories=len(released), total=total)
    found = mechanism.projected(released)
    assert found.sum() == total
    assert found.min() >= 0
    every = [
        p for p in itertools.product(range(total + 1), repeat=len(released)) if sum(p) == total
    ]
    nearest = min(sum((a - b) ** 2 for a, b in zip(p, released, strict=True)) for p in every)
    assert int(((found - released) ** 2).sum()) == nearest


def test_counts_stay_where_they_are():
    mechanism = LatticeGeometric(epsilon=1.0, categories=3, total=6)
    counts = np.array([[[2, 1, 3], [6, 0, 0]]])
    assert np.array_equal(mechanism.projected(counts), counts)


# --- refusals ------------------------------------------------------------------------------------


def test_releases_of_another_sum_are_not_projected():
    mechanism = LatticeGeometric(epsilon=1.0, categories=3, total=6)
    for released in ([1, 2, 4], [6, 0], 6):
        with pytest.raises(InvalidData):
            mechanism.projected(released)


def test_a_tiny_epsilon_is_no_refusal():
    LatticeGeometric(epsilon=1e-9, categories=3, total=6)
