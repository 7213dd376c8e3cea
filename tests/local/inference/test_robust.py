"""Robust shares: unbiased for every person, bounded for every forgery, and intervals that hold."""

import numpy as np
import pytest

from tacit.local.inference import poisoning
from tacit.local.inference.robust import Threshold, robust_shares, threshold_for
from tacit.local.inference.wagers import group_laws
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

SMALL = [
    SubsetSelection(categories=categories, epsilon=epsilon, size=size)
    for categories, size in ((6, 2), (6, 3), (8, 4))
    for epsilon in (0.5, 3)
]
every_small = pytest.mark.parametrize(
    "law", SMALL, ids=lambda law: f"{law.categories}-{law.event.size}-{law.epsilon}"
)
# The case of the issue: 1,056 reports of digits at ε = 4, 50 of which name one label three times.
CLASSES, CODEWORDS, PEOPLE, FORGED = 10, 19, 1056, 50
LAW = SubsetSelection(categories=CLASSES * CODEWORDS, epsilon=4)
LABELS = np.arange(LAW.categories) % CLASSES


def thresholds(law, group):
    outside, inside = (np.cumsum(one[::-1])[::-1] for one in group_laws(law, group))
    return [Threshold(c, outside[c], inside[c]) for c in range(1, len(outside))]


@every_small
def test_every_threshold_is_unbiased_for_every_symbol(law):
    """From the exact law of every set there is."""
    outputs = law.outputs()
    for group in (2, 3):
        named = (outputs < group).sum(axis=1)
        for one in thresholds(law, group):
            if one.inside - one.outside < 1e-9:
                continue
            for raw in range(law.categories):
                weights = np.exp(law.log_prob(outputs, np.full(len(outputs), raw)))
                mean = ((named >= one.least) * weights).sum()
                share = (mean - one.outside) / (one.inside - one.outside)
                assert share == pytest.approx(float(raw < group), abs=1e-9)


@every_small
def test_against_many_forgeries_no_unbiased_count_has_a_smaller_range(law):
    for group in (2, 3):
        outside, inside = group_laws(law, group)
        distance = np.abs(inside - outside).sum() / 2
        one = threshold_for(law, group, 10**6, 10**5)
        assert 1 / (one.inside - one.outside) == pytest.approx(1 / distance, rel=1e-9)
        least, most = poisoning.reach(poisoning.law_of(law), group)
        assert 1 / distance <= most - least + 1e-12


def forged_sets(count, rng):
    """Sets of three symbols of label 4, as the issue's forgers sent them."""
    own = 4 + CLASSES * np.arange(CODEWORDS)
    return np.sort([rng.choice(own, LAW.event.size, replace=False) for _ in range(count)])


def honest(people, seed):
    rng = np.random.default_rng(seed)
    labels = rng.choice(CLASSES, people, p=np.full(CLASSES, 0.1))
    raw = labels + CLASSES * rng.integers(CODEWORDS, size=people)
    return labels, LAW.release(raw, Seeded(seed))


def test_the_case_of_the_issue():
    """50 forged of 1,056 moved a label from 10.7 to 37.2 %: now by a third of that, and said."""
    assert LAW.event.size == 3
    labels, clean = honest(PEOPLE - FORGED, 1)
    sets = np.concatenate([clean, forged_sets(FORGED, np.random.default_rng(2))])
    truth = (labels == 4).mean()
    law = poisoning.law_of(LAW)
    named = (LABELS[sets] == 4).sum(axis=1)
    usual = ((named - CODEWORDS * law.other) / (law.own - law.other)).mean()
    robust = robust_shares(LAW, sets, LABELS, FORGED)
    assert usual - truth > 0.2
    assert robust.shares[4] - truth < 0.5 * (usual - truth)
    assert robust.shift < 0.4 * poisoning.class_shift(LAW, CLASSES, PEOPLE, FORGED).worst
    low, high = robust.intervals[4]
    assert low <= truth <= high
    assert low < 0.1


@pytest.mark.parametrize("forged", [0, 10, 100])
def test_intervals_cover_whatever_the_forgers_name(forged):
    """At 95 %, each on its own; in 300 runs fewer than 261 have a chance below 1e-8."""
    runs, people, covered = 300, 400, {"most": 0, "none": 0}
    for run in range(runs):
        _, clean = honest(people - forged, 10 + run)
        truth = 0.1  # in the population that people are drawn from
        for name, label in (("most", 4), ("none", 5)):
            fakes = np.resize(forged_sets(1, np.random.default_rng(run)), (forged, 3))
            low, high = robust_shares(
                LAW, np.concatenate([clean, fakes]), LABELS, forged
            ).intervals[label]
            covered[name] += low <= truth <= high
    assert min(covered.values()) > 0.87 * runs


def test_an_interval_for_fewer_forgeries_than_there_are_misses():
    """The mutant: what the number of forgeries in the interval is good for."""
    _, clean = honest(1000, 3)
    sets = np.concatenate([clean, forged_sets(100, np.random.default_rng(4))])
    low, _ = robust_shares(LAW, sets, LABELS, 0).intervals[4]
    assert low > 0.1
    assert robust_shares(LAW, sets, LABELS, 100).intervals[4][0] <= 0.1


def test_one_report_moves_the_estimate_by_no_more_than_is_said():
    _, clean = honest(500, 5)
    chosen = robust_shares(LAW, clean, LABELS, 20)
    gap = chosen.threshold.inside - chosen.threshold.outside
    fakes = clean.copy()
    fakes[:20] = forged_sets(20, np.random.default_rng(6))
    moved = robust_shares(LAW, fakes, LABELS, 20).shares - chosen.shares
    assert np.abs(moved).max() <= 20 / 500 / gap + 1e-12


def test_what_it_refuses():
    _, clean = honest(50, 7)
    for forged in (-1, 50, 1.5):
        with pytest.raises(InvalidParameter):
            robust_shares(LAW, clean, LABELS, forged)
    with pytest.raises(InvalidParameter):
        robust_shares(LAW, clean, np.zeros(LAW.categories, int), 5)
    with pytest.raises(InvalidParameter):
        robust_shares(LAW, clean, LABELS, 5, confidence=0)
