"""Frequent texts: the exact law, what counts of a text, what is found and with what confidence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import tacit
from tacit.local.heavy_hitters import _Test
from tacit.privacy.errors import InvalidData, InvalidParameter

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIGNIFICANCE = 1e-6


def small(**given):
    """Two levels, of one and two characters, and eight cells."""
    made = tacit.HeavyHitters(**{"alphabet": "ab", "length": 2, "epsilon": 1.0, "cells": 8} | given)
    object.__setattr__(made, "lengths", (1, 2))
    return made


def outputs(made):
    points = made.law.event.points
    levels = np.arange(len(made.lengths)).repeat(points)
    return {"level": levels, "point": np.tile(np.arange(points), len(made.lengths))}


def words(count=3000):
    rng = np.random.default_rng(1)
    letters = list(LETTERS)
    made = ("".join(rng.choice(letters, rng.integers(3, 12))) for _ in range(count))
    vocabulary = list(dict.fromkeys(made))
    weights = 1 / np.arange(1, len(vocabulary) + 1) ** 1.5
    return np.array(vocabulary), weights / weights.sum()


# --- the law -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_any_two_texts_have_laws_within_epsilon(epsilon):
    made, texts = small(epsilon=epsilon), ["", "a", "ab", "bb", "b", "ba", 7, None, "zzz", "aab"]
    every = outputs(made)
    size = len(every["level"])
    laws = np.array([made.log_prob(every, [text] * size) for text in texts])
    assert np.exp(laws).sum(axis=1) == pytest.approx(1, abs=1e-9)
    worst = max(np.abs(one - other).max() for one in laws for other in laws)
    assert epsilon - 1e-9 <= worst <= epsilon + 1e-12
    assert made.guarantee.epsilon == epsilon
    assert tacit.guarantee_of(made.event) == made.guarantee
    assert made.certificate.guarantee == made.guarantee
    made.certificate.verify()


def test_draws_follow_the_law_and_a_mutant_does_not():
    made, every, draws = small(), outputs(small()), 60_000
    chances = np.exp(made.log_prob(every, ["ab"] * len(every["level"]))) * draws
    points = made.law.event.points
    for law, right in ((made, True), (small(epsilon=1.2), False)):
        released = law.release(["ab"] * draws, None if right else tacit.Seeded(1))
        found = np.bincount(released["level"] * points + released["point"], minlength=2 * points)
        assert bool(stats.chisquare(found, chances).pvalue > SIGNIFICANCE) is right


def test_the_level_does_not_depend_on_the_text():
    made = tacit.HeavyHitters(alphabet=LETTERS, length=9, epsilon=2)
    released = [made.release([text] * 500, tacit.Seeded(3)) for text in ("", "zebra", 4)]
    assert all(np.array_equal(one["level"], released[0]["level"]) for one in released)


# --- what counts of a text -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("paris", "paris"),
        ("São Paulo", "oaulo"),
        ("constantinople", "constan"),
        ("", ""),
        (None, ""),
        (math.nan, ""),
        (3, ""),
        (["a"], ""),
        ("\0a\ud800\n", "a"),
        (np.str_("rome"), "rome"),
        ("A" * 10**5 + "b", "b"),
    ],
)
def test_every_value_has_a_text(raw, read):
    made = tacit.HeavyHitters(alphabet=LETTERS + "\0", length=7, epsilon=1)
    assert made.read(raw) == read
    both = [made.release([one] * 50, tacit.Seeded(2)) for one in (raw, read)]
    assert np.array_equal(both[0]["point"], both[1]["point"])


def test_an_alphabet_is_a_set():
    first, second = (
        tacit.HeavyHitters(alphabet=one, length=5, epsilon=1) for one in ("cab", "abcc")
    )
    assert first == second
    assert first.lengths == (5,)
    salted = tacit.HeavyHitters(alphabet="abc", length=5, epsilon=1, salt="2026")
    assert salted._cell("a", 0) != first._cell("a", 0) != first._cell("a", 1)


@pytest.mark.parametrize(
    "bad",
    [
        {"alphabet": ""},
        {"alphabet": 5},
        {"alphabet": "\0"},
        {"length": 0},
        {"length": 65},
        {"length": 1.5},
        {"epsilon": 0},
        {"epsilon": math.nan},
        {"cells": 3},
        {"cells": 2**25},
        {"salt": 1},
        {"unit": "x"},
    ],
)
def test_bad_parameters_are_refused(bad):
    with pytest.raises(InvalidParameter, match="must be"):
        tacit.HeavyHitters(**{"alphabet": "ab", "length": 3, "epsilon": 1.0} | bad)


# --- what is found -------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_frequent_texts_are_found_with_intervals(epsilon):
    vocabulary, weights = words()
    made = tacit.HeavyHitters(alphabet=LETTERS, length=9, epsilon=epsilon)
    rng = np.random.default_rng(int(epsilon))
    texts = rng.choice(vocabulary, 30_000, p=weights)
    found = made.estimate(made.release(texts, tacit.Seeded(5)))
    true: dict[str, float] = {}
    for word, weight in zip(vocabulary, weights, strict=True):
        true[word[:9]] = true.get(word[:9], 0) + weight
    above = {word for word, share in true.items() if share >= found.threshold}
    assert found.threshold < {2.0: 0.1, 4.0: 0.05}[epsilon]
    assert len(above) >= 2
    assert above <= set(found.texts) <= set(true)
    assert not found.capped
    z = (found.shares - [true[one] for one in found.texts]) / found.standard_errors
    assert np.abs(z).max() < 5
    assert (np.diff(found.shares) <= 0).all()


def test_texts_of_nobody_are_rarely_found_and_a_mutant_finds_them():
    made = tacit.HeavyHitters(alphabet="abcd", length=3, epsilon=1.0)
    stream, wrong, mutant = tacit.Seeded(6), 0, 0
    for _ in range(60):
        found = made.estimate(made.release(["abc"] * 1000, stream), confidence=0.9)
        wrong += set(found.texts) != {"abc"}
        reports = made.release(["abc"] * 1000, stream)
        test = made._test(reports["point"], list(made._extensions("", 3)), 0, 30.0)
        mutant += len(test.passed) > 1
    assert wrong <= 15
    assert mutant >= 50


def test_intervals_cover_given_that_a_text_was_found():
    """Over all that can be seen, exactly. Near the test a plain interval does not cover."""
    counts, confidence = np.arange(301), 0.9
    test = _Test(counts, 300, 120, 0.6, 0.3)
    found = test.found([""] * len(test.passed), 1.0, confidence, False)
    low, high = found.intervals.T
    plain = 1.645 * found.standard_errors
    for share in (0.05, 0.15, 0.3, 0.4, 0.7, 1.0):
        chance = stats.binom.pmf(counts[test.passed], 300, 0.3 + share * 0.3)
        chance /= chance.sum()
        inside = (low <= share) & (share <= high)
        assert chance[inside].sum() >= confidence - 1e-9
        assert chance[inside].sum() <= (0.94 if 0.3 < share < 1 else 1.0)
        if share == 0.05:
            assert chance[np.abs(found.shares - share) <= plain].sum() < 0.5


def test_the_threshold_is_kept():
    """Texts of exactly that share are found at least as often as stated."""
    made, stream = tacit.HeavyHitters(alphabet="abcd", length=4, epsilon=2.0), tacit.Seeded(8)
    first = made.estimate(made.release(["dad"] * 800, stream), confidence=0.8).threshold
    rng, hits = np.random.default_rng(3), 0
    for _ in range(100):
        texts = np.where(rng.random(800) < first, "dad", "c")
        found = made.estimate(made.release(texts.tolist(), stream), confidence=0.8)
        assert found.threshold == pytest.approx(first)
        hits += "dad" in found.texts
    assert hits >= 80


def test_reports_of_another_form_are_refused():
    made = tacit.HeavyHitters(alphabet=LETTERS, length=9, epsilon=1)
    good = made.release(["paris"] * 30, tacit.Seeded(1))
    for bad in ({"level": good["level"] + 4}, {"level": good["level"][:5]}, {"point": [-1] * 30}):
        with pytest.raises(InvalidData):
            made.estimate({**good, **bad})
    with pytest.raises(InvalidParameter, match="reports of every level"):
        made.estimate({"level": [0], "point": [3]})
    with pytest.raises(InvalidData):
        made.release([])
