"""Selection: draws that floats cannot settle, laws against brute force over permutations."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.privacy.errors import InvalidData
from tacit.privacy.mechanisms import Exponential, PermuteAndFlip, exponential
from tacit.privacy.randomness import bernoulli_exp_each

BOTH = pytest.mark.parametrize("kind", [Exponential, PermuteAndFlip])


class Scripted:
    secure = False

    def __init__(self, words):
        self.left = [int(word) for word in words]

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count, "more words than the decision needs"
        return np.array(taken, dtype=np.uint64)


def edges(scores, rate, bits):
    """⌊2^bits (w_0 + … + w_i) / Σw⌋ by mpmath, for all but the last i."""
    with mp.workprec(bits + 400):
        best = max(map(Fraction, scores))
        gaps = [(best - Fraction(s)) * rate for s in scores]
        weights = [mp.exp(-mp.mpf(g.numerator) / g.denominator) for g in gaps]
        total = mp.fsum(weights)
        sums = [mp.fsum(weights[: i + 1]) for i in range(len(weights) - 1)]
        return [int(mp.floor(mp.ldexp(s / total, bits))) for s in sums]


def exact_choice(words, scores, rate):
    """The number of edges at or below U, from all the words (they are enough to tell)."""
    bits = 64 * len(words)
    prefix = functools.reduce(lambda value, word: value << 64 | word, words, 0)
    found = edges(scores, rate, bits)
    assert prefix not in found, "undecided"
    return sum(edge < prefix for edge in found)


SCORES = [
    [0.0, 1.0, 2.0],
    [3.0, 3.0],
    [0.1, 0.2, 0.3, 0.4],
    [5.0, -100.0, 4.999999999, 5.0],
    [0.0, 1e-300, 1.0],
]


@pytest.mark.parametrize("scores", SCORES, ids=str)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.3])
def test_invert_settles_ties_as_mpmath_does(scores, epsilon):
    """The first word equals an edge in all 64 bits; the second decides, or the third."""
    mechanism = Exponential(epsilon=epsilon, sensitivity=1, adjacency="replace-one")
    rate = Fraction(repr(epsilon)) / 2
    array = np.array(scores)
    for edge in edges(scores, rate, 192):
        first, second, third = edge >> 128, (edge >> 64) % 2**64, edge % 2**64
        scripts = [
            [first, max(second - 9, 0), 2**63],
            [first, min(second + 9, 2**64 - 1), 2**63],
            [first, second, (third - 99) % 2**64],
            [first, second, (third + 99) % 2**64],
        ]
        for words in scripts:
            if first >= 2**64:
                continue
            expected = exact_choice(words, scores, rate)
            extra = [2**63, 2**63]
            found = exponential._invert(words[0], array, rate, Scripted([*words[1:], *extra]))
            assert found == expected, (words, scores)
            released = mechanism.release(array, Scripted([*words, *extra]))
            assert int(released) == expected


@settings(deadline=None, max_examples=150)
@given(
    scores=st.lists(st.floats(-3, 3), min_size=2, max_size=6),
    at=st.integers(0, 5),
    distance=st.sampled_from([3, 2**8, 2**11, 2**20, 2**27, 2**28, 2**30, 2**45]),
    sign=st.sampled_from([-1, 1]),
)
def test_release_is_exact_at_every_distance_from_an_edge(scores, at, distance, sign):
    """Near an edge, where floats guess, and further off, where they must be right."""
    rate = Fraction(1, 2)
    found = edges(scores, rate, 64)
    word = found[at % len(found)] + sign * distance
    if not 0 <= word < 2**64 or word in found:
        return
    mechanism = Exponential(epsilon=1.0, sensitivity=1.0, adjacency="replace-one")
    released = mechanism.release(np.array(scores), Scripted([word, 2**63, 2**63, 2**63]))
    assert int(released) == sum(edge < word for edge in found)


def test_floats_and_exact_path_agree_on_the_same_words(monkeypatch):
    scores = np.random.default_rng(1).normal(size=(200, 5))
    mechanism = Exponential(epsilon=2.0, sensitivity=0.7, adjacency="replace-one")
    fast = mechanism.release(scores, tacit.Seeded(1))
    monkeypatch.setattr(exponential, "_DOUBT", 2.0)
    exact = mechanism.release(scores, tacit.Seeded(1))
    assert np.array_equal(fast, exact)
    assert len(set(fast.tolist())) == 5


def test_coins_of_permute_and_flip_agree_with_the_exact_path(monkeypatch):
    scores = np.random.default_rng(2).normal(size=(150, 4))
    mechanism = PermuteAndFlip(epsilon=2.0, sensitivity=0.7, adjacency="replace-one")
    fast = mechanism.release(scores, tacit.Seeded(2))
    monkeypatch.setattr(
        exponential, "bernoulli_exp_each", functools.partial(bernoulli_exp_each, doubt=1.0)
    )
    exact = mechanism.release(scores, tacit.Seeded(2))
    assert np.array_equal(fast, exact)


def permute_and_flip_by_brute_force(scores, rate):
    """Every order, every coin."""
    with mp.workdps(40):
        heads = [mp.exp(-rate * (max(scores) - s)) for s in scores]
        total = [mp.mpf(0)] * len(scores)
        orders = list(itertools.permutations(range(len(scores))))
        for order in orders:
            tails = mp.mpf(1)
            for index in order:
                total[index] += tails * heads[index]
                tails *= 1 - heads[index]
        return [float(t / len(orders)) for t in total]


@settings(deadline=None, max_examples=40)
@given(
    scores=st.lists(st.floats(-20, 20), min_size=2, max_size=5),
    epsilon=st.floats(0.01, 10),
)
def test_permute_and_flip_against_all_permutations(scores, epsilon):
    mechanism = PermuteAndFlip(epsilon=epsilon, sensitivity=1.0, adjacency="replace-one")
    size = len(scores)
    found = mechanism.log_prob(np.arange(size), np.broadcast_to(scores, (size, size)))
    expected = permute_and_flip_by_brute_force(scores, epsilon / 2)
    assert np.exp(found) == pytest.approx(expected, rel=1e-10, abs=0)


def test_exponential_against_softmax():
    scores = [0.3, -1.7, 2.2]
    found = Exponential(epsilon=0.8, sensitivity=0.25, adjacency="replace-one").log_prob(
        [0, 1, 2], [scores] * 3
    )
    weights = [math.exp(0.8 * s / 0.5) for s in scores]
    assert np.exp(found) == pytest.approx([w / sum(weights) for w in weights], rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(scores=st.lists(st.floats(-20, 20), min_size=2, max_size=8), epsilon=st.floats(0.01, 10))
def test_permute_and_flip_is_never_worse_in_expectation(scores, epsilon):
    size = len(scores)
    rows = np.broadcast_to(scores, (size, size))
    gap = max(scores) - np.array(scores)
    error = [
        float(
            np.exp(
                kind(epsilon=epsilon, sensitivity=1.0, adjacency="replace-one").log_prob(
                    np.arange(size), rows
                )
            )
            @ gap
        )
        for kind in (PermuteAndFlip, Exponential)
    ]
    assert error[0] <= error[1] * (1 + 1e-9) + 1e-12


@BOTH
@pytest.mark.parametrize("gap", [700.0, 2000.0, 1e6])
def test_a_candidate_far_behind_has_a_finite_logarithm(kind, gap):
    """Its chance is no float any more, its logarithm is."""
    mechanism = kind(epsilon=1.0, sensitivity=1.0, adjacency="replace-one")
    found = mechanism.log_prob([0, 1], [[gap, 0.0]] * 2)
    assert found[0] == pytest.approx(0, abs=1e-12)
    correction = 0 if kind is Exponential else math.log(0.5)  # the winner's coin is always heads
    assert found[1] == pytest.approx(-gap / 2 + correction, rel=1e-12)


@BOTH
def test_the_largest_gap_there_is_does_not_warn(kind):
    mechanism = kind(epsilon=1.0, sensitivity=1.0, adjacency="replace-one")
    assert int(mechanism.release([-1e150, 1e150])) == 1
    assert float(mechanism.log_prob(1, [-1e150, 1e150])) == 0.0
    # Their difference is no float: held, as a refusal would tell which neighbour is beyond.
    assert int(mechanism.release([-1e308, 1e308])) == 1
    assert float(mechanism.log_prob(1, [-1e308, 1e308])) == 0.0


@BOTH
def test_gaps_that_overflow_once_scaled_do_not_warn(kind):
    """ε/(2Δ) times the gap is no float; the chance is 0 all the same."""
    mechanism = kind(epsilon=1.0, sensitivity=1e-10, adjacency="replace-one")
    scores = [0.0, 1e150]
    assert int(mechanism.release(scores)) == 1
    assert float(mechanism.log_prob(1, scores)) == pytest.approx(0, abs=1e-12)
    assert float(mechanism.log_prob(0, scores)) < -1e150


@BOTH
def test_equal_scores_are_equally_likely(kind):
    mechanism = kind(epsilon=3.0, sensitivity=1.0, adjacency="replace-one")
    found = np.exp(mechanism.log_prob(np.arange(5), np.full((5, 5), 7.25)))
    assert found == pytest.approx(np.full(5, 0.2), rel=1e-12)


@BOTH
def test_a_constant_added_to_all_scores_changes_nothing(kind):
    mechanism = kind(epsilon=3.0, sensitivity=1.0, adjacency="replace-one")
    scores = np.array([0.0, 1.0, 2.5])
    for shift in (-4096.0, 0.5):
        assert mechanism.log_prob([0, 1, 2], [scores + shift] * 3) == pytest.approx(
            mechanism.log_prob([0, 1, 2], [scores] * 3), rel=1e-12
        )


@BOTH
def test_integer_scores_beyond_floats_may_not_widen_the_sensitivity(kind):
    """As floats, 2^60 + 128 and 2^60 + 129 are 256 apart: a sensitivity of 1 would be 256."""
    mechanism = kind(epsilon=1.0, sensitivity=1, adjacency="replace-one")
    scores, other = np.array([2**60 + 128, 2**60]), np.array([2**60 + 129, 2**60])
    try:
        laws = [mechanism.log_prob([0, 1], [raw] * 2) for raw in (scores, other)]
    except InvalidData:
        return
    assert np.abs(laws[0] - laws[1]).max() <= 1.0 + 1e-9


@BOTH
@pytest.mark.parametrize("size", [2, 100, 400])
def test_many_candidates(kind, size):
    mechanism = kind(epsilon=1.0, sensitivity=1.0, adjacency="replace-one")
    scores = np.random.default_rng(3).normal(size=size)
    found = mechanism.log_prob(np.arange(size), np.broadcast_to(scores, (1, size)))
    assert math.fsum(np.exp(found)) == pytest.approx(1, abs=1e-9)
    assert 0 <= int(mechanism.release(scores)) < size


@BOTH
@pytest.mark.parametrize("released", [[2], [-1], [0.5], [math.nan], ["x"]])
def test_candidates_that_are_not_there_are_refused(kind, released):
    with pytest.raises(InvalidData):
        kind(epsilon=1.0, sensitivity=1.0, adjacency="replace-one").log_prob(released, [[0.0, 1.0]])


@BOTH
def test_rows_are_chosen_for_alone(kind):
    mechanism = kind(epsilon=600.0, sensitivity=1.0, adjacency="replace-one")
    scores = np.zeros((3, 4, 5))
    best = np.random.default_rng(4).integers(0, 5, (3, 4))
    np.put_along_axis(scores, best[..., None], 9.0, axis=-1)
    assert np.array_equal(mechanism.release(scores), best)
