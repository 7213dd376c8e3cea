"""Poisoning: the formulas against every set there is, and against reports that were made up."""

import numpy as np
import pytest

from tacit.local.inference import poisoning
from tacit.local.inference.validation import unbiased_accuracy
from tacit.local.inference.votes import Ballot, Votes
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import RandomizedResponse, SubsetSelection

CHANNELS = [
    SubsetSelection(categories=categories, epsilon=epsilon, size=size)
    for categories, size in ((2, 1), (5, 2), (6, 3), (6, 5), (7, 4))
    for epsilon in (0.5, 3)
]
every_channel = pytest.mark.parametrize(
    "channel", CHANNELS, ids=lambda c: f"{c.categories}-{c.event.size}-{c.epsilon}"
)


def contributions(channel, group):
    """What every possible report says of the first symbols, written out."""
    p, q = channel.inclusion
    held = (channel.outputs() < group).sum(axis=1)
    return (held - group * q) / (p - q)


@every_channel
def test_reach_is_the_extreme_over_all_sets(channel):
    law = poisoning.law_of(channel)
    for group in range(1, channel.categories):
        said = contributions(channel, group)
        assert poisoning.reach(law, group) == pytest.approx((said.min(), said.max()))


@every_channel
def test_those_who_run_the_channel_say_0_or_1_on_average(channel):
    """So a liar moves a mean of n by at most 1/n, and a fake by at least as much."""
    for group in range(1, channel.categories):
        said = contributions(channel, group)
        mean = [
            float(np.exp(channel.log_prob(channel.outputs(), np.full(len(said), x))) @ said)
            for x in range(channel.categories)
        ]
        inside = np.arange(channel.categories) < group
        np.testing.assert_allclose(mean, inside, atol=1e-12)
        fake = poisoning.share_shift(poisoning.law_of(channel), group, 50, 3)
        liar = poisoning.lying_shift(50, 3)
        assert liar == (-3 / 50, 3 / 50)
        assert fake.down <= liar.down + 1e-12
        assert fake.up >= liar.up - 1e-12


def crowd(channel, symbols):
    """Reports whose unbiased estimate is exactly the truth: each set as often as expected."""
    p, size, k = channel.inclusion[0], channel.event.size, channel.categories
    weights = np.zeros(k)
    for symbol in symbols:
        chance = np.full(k, (size - p) / (k - 1))
        chance[symbol] = p
        weights += chance
    return weights


@pytest.mark.parametrize(("codewords", "classes"), [(3, 2), (2, 4), (8, 10)])
@pytest.mark.parametrize("epsilon", [0.5, 2, 4])
@pytest.mark.parametrize("upwards", [True, False])
def test_the_worst_fakes_attain_class_and_codeword_shifts(codewords, classes, epsilon, upwards):
    channel = SubsetSelection(categories=codewords * classes, epsilon=epsilon)
    law, people, fakes = poisoning.law_of(channel), 200, 7
    symbols = np.arange(channel.categories)
    groups = {"class": symbols % classes == 1, "codeword": symbols // classes == 1}
    shifts = {
        "class": poisoning.class_shift(channel, classes, people, fakes),
        "codeword": poisoning.codeword_shift(channel, classes, people, fakes),
    }
    for name, group in groups.items():
        # Everybody is outside of the group, or everybody is in it.
        honest = symbols[~group if upwards else group]
        truth = np.resize(honest, people)
        first = symbols[group] if upwards else symbols[~group]
        rest = symbols[~group] if upwards else symbols[group]
        fake = np.concatenate([first, rest])[: law.size]
        support = crowd(channel, truth[fakes:]) + fakes * np.isin(symbols, fake)
        share = (support[group].sum() / people - group.sum() * law.other) / (law.own - law.other)
        expected = shifts[name].up if upwards else shifts[name].down
        assert share - float(not upwards) == pytest.approx(expected)


@pytest.mark.parametrize("upwards", [True, False])
def test_the_worst_fakes_attain_the_label_shift(upwards):
    flip, people, fakes = RandomizedResponse(categories=5, epsilon=1.5), 400, 30
    truth, said = (0, 1) if upwards else (1, 0)
    support = (people - fakes) * flip.matrix[truth]
    support[said] += fakes
    keep, other = flip.matrix[1, 1], flip.matrix[0, 1]
    share = (support[1] / people - other) / (keep - other)
    shift = poisoning.label_shift(flip, people, fakes)
    assert share - float(not upwards) == pytest.approx(shift.up if upwards else shift.down)


BALLOTS = [
    Ballot(epsilon=2),
    Ballot(epsilon=1, classes=10),
    Ballot(epsilon=4, classes=10),
    Ballot(epsilon=1, classes=3, groups=("a", "b")),
]


@pytest.mark.parametrize("ballot", BALLOTS, ids=lambda b: f"{b.epsilon}-{b.parts}")
@pytest.mark.parametrize("upwards", [True, False])
def test_the_worst_voters_attain_the_accuracy_shift(ballot, upwards):
    """Votes replaced in a real count move it by what the bound says of two made-up crowds."""
    law, voters, fakes = ballot.law, 60, 9
    answers = np.arange(law.symbols) % 2 == 1
    ordered = np.concatenate([np.flatnonzero(answers), np.flatnonzero(~answers)])
    best, worst = np.sort(ordered[: law.size]), np.sort(ordered[-law.size :])
    shape = (voters,) if law.size == 1 else (voters, law.size)
    symbols = np.empty(shape, np.int64)
    symbols[:] = worst if law.size > 1 else worst[0]
    before = unbiased_accuracy(Votes(ballot, symbols))
    symbols[:fakes] = best if law.size > 1 else best[0]
    after = unbiased_accuracy(Votes(ballot, symbols))
    shift = poisoning.accuracy_shift(ballot, voters, fakes)
    # From the worst votes to the best: both ways at once, less what honest people would have said.
    assert after - before == pytest.approx(shift.up - shift.down - fakes / voters)
    least, most = poisoning.reach(law, ballot.parts)
    single = unbiased_accuracy(Votes(ballot, symbols[:1] if upwards else symbols[-1:]))
    assert single == pytest.approx(most if upwards else least)


def test_warners_coin_in_numbers():
    """At ε = 2 one fake is worth 1/(1 − 2/(e² + 1))·(1 − 1/(e² + 1)) ≈ 1.16 liars, either way."""
    p = 1 / (np.exp(2) + 1)
    shift = poisoning.accuracy_shift(Ballot(epsilon=2), 1000, 10)
    assert shift.up == pytest.approx(0.01 * (1 - p) / (1 - 2 * p))
    assert shift.down == pytest.approx(-shift.up)
    assert shift.worst == shift.up


def test_noise_is_what_makes_fakes_strong():
    worths = [
        poisoning.accuracy_shift(Ballot(epsilon=epsilon), 100, 1).worst * 100
        for epsilon in (0.1, 0.5, 1, 2, 4, 8)
    ]
    assert worths == sorted(worths, reverse=True)
    assert worths[0] > 10
    assert worths[-1] == pytest.approx(1, abs=1e-3)


def test_nobody_and_everybody():
    flip = RandomizedResponse(categories=3, epsilon=1)
    assert poisoning.label_shift(flip, 10, 0).worst == 0
    with pytest.raises(InvalidParameter, match="fakes must be"):
        poisoning.label_shift(flip, 10, 11)
    with pytest.raises(InvalidParameter, match="reports must be"):
        poisoning.lying_shift(0, 0)
    with pytest.raises(InvalidParameter, match="group must be"):
        poisoning.reach(poisoning.law_of(flip), 3)
