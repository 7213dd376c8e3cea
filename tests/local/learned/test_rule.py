"""How many codewords: the rule against brute force, simulation, and what it may not look at."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

import tacit
from tacit.local.learned import rule
from tacit.local.learned.rule import codewords_for, expected_error
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import SubsetSelection


def test_only_public_numbers_enter():
    """No rows, no labels: nothing that anybody could be read off from."""
    assert list(inspect.signature(codewords_for).parameters) == ["epsilon", "people", "classes"]


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("people", [500, 60_000])
@pytest.mark.parametrize("classes", [2, 10])
def test_no_other_number_does_much_better(epsilon, people, classes):
    chosen = codewords_for(epsilon, people, classes)
    assert math.ceil(1.2 * classes) <= chosen <= 128 * classes
    assert chosen <= max(people // 10, math.ceil(1.2 * classes))
    grid = np.unique(np.geomspace(1.2 * classes, 128 * classes, 60).astype(int) + 1)
    best = min(expected_error(int(k), epsilon, people, classes) for k in grid if k <= people // 10)
    # The candidates are an eighth of an octave apart, and a thousandth is a tie.
    assert expected_error(chosen, epsilon, people, classes) <= best * 1.03 + 0.001


def test_where_nothing_can_be_learned_codewords_are_few():
    """All are equally bad: many would only make reports longer."""
    assert codewords_for(1e-6, 100_000, 10) == 12
    assert codewords_for(8.0, 10, 10) == 12


def test_more_people_and_more_epsilon_never_call_for_fewer():
    by_people = [codewords_for(1.0, n, 10) for n in (10**3, 10**4, 10**5, 10**6)]
    by_epsilon = [codewords_for(e, 20_000, 10) for e in (0.5, 1.0, 2.0, 4.0)]
    for found in (by_people, by_epsilon):
        assert found == sorted(found)
        assert found[-1] > 2 * found[0]


def test_expected_error_falls_with_people_and_epsilon():
    assert expected_error(20, 1.0, 10**5, 10) < expected_error(20, 1.0, 10**3, 10)
    assert expected_error(20, 4.0, 10**4, 10) < expected_error(20, 0.5, 10**4, 10)
    # With no noise left to speak of, only impurity remains.
    assert expected_error(20, 20.0, 10**8, 10) == pytest.approx(rule.IMPURITY / 2, rel=0.01)


def test_an_error_is_at_most_that_of_guessing():
    assert expected_error(2, 1e-3, 1, 1000) == pytest.approx(1 - 1 / 1000)


def test_misread_codewords_are_as_many_as_in_a_simulation():
    """One codeword of 900 people among 40 of equal size: how often does another class look larger?

    False alarm below 1e-6: five deviations of 800 draws, and a tenth for the normal approximation.
    """
    epsilon, people, codewords, classes = 1.0, 36_000, 40, 5
    count = people / codewords
    predicted = rule._misread(count, codewords, epsilon, people, classes)
    channel = SubsetSelection(categories=codewords * classes, epsilon=epsilon)
    p, q = channel.inclusion
    rng = np.random.default_rng(0)
    share = np.array([rule.PURITY] + [(1 - rule.PURITY) / (classes - 1)] * (classes - 1))
    wrong = 0
    for _ in range(800):
        mine = rng.poisson(count * share)
        held = rng.binomial(mine, p) + rng.binomial(people - mine, q)
        wrong += int(held.argmax() != 0)
    assert 0.02 < predicted < 0.9
    spread = math.sqrt(predicted * (1 - predicted) / 800)
    assert abs(wrong / 800 - predicted) < 5 * spread + 0.1 * predicted


def test_a_mechanism_follows_the_rule_and_a_user_overrides_it():
    rows = np.random.default_rng(0).random((300, 4))
    made = tacit.Codebook(epsilon=2, people=2000, classes=3).fit(rows)
    assert made.codewords_ == codewords_for(2.0, 2000, 3)
    fixed = tacit.Codebook(epsilon=2, people=2000, classes=3, codewords=7).fit(rows)
    assert fixed.codewords_ == 7


@pytest.mark.parametrize(
    ("epsilon", "people", "classes", "name"),
    [
        (0.0, 100, 2, "epsilon"),
        (math.inf, 100, 2, "epsilon"),
        (math.nan, 100, 2, "epsilon"),
        (1.0, 0, 2, "people"),
        (1.0, 10.5, 2, "people"),
        (1.0, 100, 1, "classes"),
        (1.0, 100, 2**13, "classes"),
    ],
)
def test_what_makes_no_sense_is_refused(epsilon, people, classes, name):
    with pytest.raises(InvalidParameter, match=f"{name} must be"):
        codewords_for(epsilon, people, classes)
