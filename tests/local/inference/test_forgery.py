"""Forged reports: the laws against every set there is, the rate of false alarms, and the power."""

import math

import numpy as np
import pytest

from tacit.local.inference import forgery
from tacit.local.inference.forgery import Sample, forgery_test
from tacit.local.inference.wagers import group_laws, group_wager, run_wager, uniform_wager
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

SMALL = [
    SubsetSelection(categories=categories, epsilon=epsilon, size=size)
    for categories, size in ((6, 2), (6, 3), (8, 4), (6, 5))
    for epsilon in (0.5, 3)
]
PEOPLE, FORGED = 1000, 50
CLASSES, CODEWORDS = 10, 20
LAWS = [SubsetSelection(categories=CLASSES * CODEWORDS, epsilon=epsilon) for epsilon in (1, 2, 4)]
every_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: f"epsilon={law.epsilon}")


def chances(law, raw):
    outputs = law.outputs()
    return outputs, np.exp(law.log_prob(outputs, np.full(len(outputs), raw)))


@pytest.mark.parametrize("law", SMALL, ids=lambda law: f"{law.categories}-{law.event.size}")
@pytest.mark.parametrize("group", [1, 2, 3])
def test_the_law_of_a_group_is_that_of_all_sets(law, group):
    for raw, stated in zip((group, 0), group_laws(law, group), strict=True):
        outputs, weights = chances(law, raw)
        named = (outputs < group).sum(axis=1)
        counted = np.bincount(named, weights, minlength=len(stated))
        assert counted == pytest.approx(stated, abs=1e-12)


@pytest.mark.parametrize("law", SMALL, ids=lambda law: f"{law.categories}-{law.event.size}")
def test_no_wager_gains_from_an_honest_report_whoever_it_is_of(law):
    """The mean of each factor is at most 1 for every symbol, so also for every mixture of them."""
    for raw in range(law.categories):
        outputs, weights = chances(law, raw)
        for wager, named in (
            (group_wager(law, 2), (outputs < 2).sum(axis=1)),
            (group_wager(law, 3), (outputs < 3).sum(axis=1)),
            (run_wager(law), forgery._neighbours(outputs, law.categories)),
        ):
            if wager is not None:
                means = np.exp(wager.log_factors[..., named]) @ weights
                assert np.all(means <= 1 + 1e-12)
                assert means.max() > 0.99
                assert np.all(wager.scores[:, named] @ weights == pytest.approx(0, abs=1e-9))


def test_a_wager_on_a_law_that_is_not_the_channels_would_gain():
    """The mutant: factors for sets of 4 among 10 gain from honest sets of 4 among 8."""
    wrong = group_wager(SubsetSelection(categories=10, epsilon=0.5, size=4), 3)
    outputs, weights = chances(SubsetSelection(categories=8, epsilon=0.5, size=4), 0)
    means = np.exp(wrong.log_factors[..., (outputs < 3).sum(axis=1)]) @ weights
    assert means.max() > 1.01


def truths(law):
    symbols = law.categories
    spread = np.random.default_rng(1).dirichlet(np.full(symbols, 0.1))
    one_label = np.tile(np.eye(CLASSES)[4], CODEWORDS) / CODEWORDS
    one_codeword = np.repeat(np.eye(CODEWORDS)[2], CLASSES) / CLASSES
    return np.full(symbols, 1 / symbols), np.eye(symbols)[17], one_label, one_codeword, spread


def honest(law, shares, people, seed):
    raw = np.random.default_rng(seed).choice(law.categories, people, p=shares)
    return law.release(raw, Seeded(seed))


@every_law
def test_honest_reports_raise_no_alarm_whoever_the_people_are(law):
    """Of 100 campaigns, more than 5 with a probability below .001 if the rate is .01."""
    runs = [
        forgery_test([Sample(law, honest(law, shares, PEOPLE, seed), CLASSES)])
        for shares in truths(law)
        for seed in range(20)
    ]
    assert sum(one.alarm for one in runs) <= 5
    assert all(one.testable for one in runs)


def filled(law, group, rng):
    """A set with as much of the group as fits."""
    size, others = law.event.size, np.setdiff1d(np.arange(law.categories), group)
    inside = rng.permutation(group)[:size]
    return np.sort(np.append(inside, rng.permutation(others)[: size - len(inside)]))


def forged(law, kind, rng):
    if kind == "label":
        return [filled(law, np.arange(CODEWORDS) * CLASSES + 4, rng) for _ in range(FORGED)]
    if kind == "cell":
        return [filled(law, np.arange(CLASSES) + 2 * CLASSES, rng) for _ in range(FORGED)]
    if kind == "set":
        return [np.sort(rng.permutation(law.categories)[: law.event.size])] * FORGED
    starts = rng.integers(law.categories, size=(FORGED, 1))
    return np.sort((starts + np.arange(law.event.size)) % law.categories, axis=1)


@every_law
@pytest.mark.parametrize("kind", ["label", "cell", "set", "run"])
def test_one_in_twenty_who_forge_is_noticed_and_named(law, kind):
    rng, shares = np.random.default_rng(0), truths(law)[-1]
    for seed in range(10):
        true = honest(law, shares, PEOPLE - FORGED, seed)
        test = forgery_test([Sample(law, np.concatenate([true, forged(law, kind, rng)]), CLASSES)])
        assert test.alarm
        assert test.pattern.kind == kind
        assert test.pattern.excess == pytest.approx(FORGED, rel=0.25)
        if kind in ("label", "cell"):
            assert test.pattern.about == {"label": 4, "cell": 2}[kind]


def test_as_many_as_stated_are_noticed_and_half_of_them_are_not_often():
    law = SubsetSelection(categories=20, epsilon=1)
    shares, rng, classes = np.full(20, 0.05), np.random.default_rng(0), 2
    group, most = np.arange(0, 20, 2), law.event.size
    stated = forgery_test([Sample(law, honest(law, shares, PEOPLE, 0), classes)]).seen_from["label"]

    def alarms(count):
        found = 0
        for seed in range(40):
            fakes = [np.sort(rng.permutation(group)[:most]) for _ in range(count)]
            sets = np.concatenate([honest(law, shares, PEOPLE - count, seed), fakes])
            found += forgery_test([Sample(law, sets, classes)]).alarm
        return found / 40

    assert alarms(stated) >= 0.75
    assert alarms(stated // 2) <= 0.5


def test_partitions_and_rounds():
    law = SubsetSelection(categories=40, epsilon=1)
    rng = np.random.default_rng(0)

    def sample(seed):
        places = np.random.default_rng(seed).integers(8, size=PEOPLE)
        return Sample(law, honest(law, np.full(40, 1 / 40), PEOPLE, seed), 4, places, 8)

    assert not forgery_test([sample(1), sample(2)]).alarm
    chosen = sample(3)
    chosen.places[:] = np.where(rng.random(PEOPLE) < 0.1, 5, chosen.places)
    test = forgery_test([sample(1), chosen])
    assert test.alarm
    assert (test.pattern.kind, test.pattern.about) == ("partition", 5)
    same = sample(4)
    same.sets[:30], same.places[:30] = same.sets[0], 3
    test = forgery_test([same, sample(2)])
    assert test.alarm
    assert test.pattern.about == same.sets[0].tolist()


def test_single_symbols_tell_nothing():
    """Any law of single symbols within these bounds is some crowd's: the test says so."""
    law = SubsetSelection(categories=20, epsilon=6)
    assert law.event.size == 1
    test = forgery_test([Sample(law, np.full((100, 1), 3), 2)])
    assert (test.testable, test.alarm, test.log_evidence) == (False, False, 0.0)


def test_evidence_of_rounds_is_a_fair_game():
    """A round without news halves nothing of what was found, and adds no evidence."""
    law = LAWS[0]
    sets = honest(law, truths(law)[0], 200, 0)
    one, two = (forgery_test([Sample(law, sets, CLASSES)] * count) for count in (1, 2))
    assert math.exp(one.log_evidence) >= 0.5
    assert math.exp(two.log_evidence) <= 0.5 * math.exp(one.log_evidence) * 4 / 3 + 1 / 2


def test_the_rate_must_be_a_probability():
    with pytest.raises(InvalidParameter, match="false_alarm_rate"):
        forgery_test([], 1.5)
    assert not forgery_test([]).testable
    assert uniform_wager(1) is None
