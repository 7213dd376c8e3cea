"""Validation by votes: unbiased, with intervals that hold; charged first, or not at all."""

import json
import math

import numpy as np
import pytest
from scipy.special import betaincinv, ndtri
from scipy.stats import binom, multinomial

from tacit.local.evaluation import wilson
from tacit.local.inference import parts
from tacit.local.inference.validation import (
    answers,
    estimate,
    exact_interval,
    half_width,
    unbiased_accuracy,
    validate,
)
from tacit.local.inference.votes import Ballot, Votes
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.errors import BudgetExceeded, InvalidData, InvalidParameter, LedgerError
from tacit.privacy.guarantees import PureDP
from tacit.privacy.randomness import Seeded

CASES = [
    (voters, epsilon, accuracy)
    for voters in (1, 2, 5, 20, 100, 1000)
    for epsilon in (0.5, 1, 2, 5)
    for accuracy in (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)
]


def coverage(interval, voters, epsilon, accuracy, confidence=0.95):
    """The exact probability that the interval of the votes holds the accuracy."""
    true, false = answers(Ballot(epsilon=epsilon))
    counts = np.arange(voters + 1)
    mass = binom.pmf(counts, voters, false + accuracy * (true - false))
    ends = [interval(int(count), voters, true, false, confidence) for count in counts]
    return sum(m for m, (low, high) in zip(mass, ends, strict=True) if low <= accuracy <= high)


# --- accuracy in all -----------------------------------------------------------------------------


@pytest.mark.parametrize(("voters", "epsilon", "accuracy"), CASES)
def test_the_interval_covers_exactly(voters, epsilon, accuracy):
    assert coverage(exact_interval, voters, epsilon, accuracy) >= 0.95 - 1e-9
    assert coverage(exact_interval, voters, epsilon, accuracy, 0.8) >= 0.8 - 1e-9


def deaf(right, voters, true, false, confidence):
    """Takes the noisy share for the accuracy."""
    return wilson(right, voters, confidence)


def normal(right, voters, true, false, confidence):
    """Two standard errors to either side, as if votes were many."""
    share = right / voters
    reach = float(ndtri((1 + confidence) / 2)) * math.sqrt(share * (1 - share) / voters)
    return (share - reach - false) / (true - false), (share + reach - false) / (true - false)


def lopsided(right, voters, true, false, confidence):
    """Clopper and Pearson with the whole error on either side."""
    tail = 1 - confidence
    low = betaincinv(right, voters - right + 1, tail) if right else 0.0
    high = betaincinv(right + 1, voters - right, 1 - tail) if right < voters else 1.0
    return (low - false) / (true - false), (high - false) / (true - false)


@pytest.mark.parametrize("mutant", [deaf, normal, lopsided])
def test_intervals_that_promise_too_much_are_caught(mutant):
    assert min(coverage(mutant, *case) for case in CASES if 5 <= case[0] <= 100) < 0.94


def test_the_interval_is_no_wider_than_it_must_be():
    """At a thousand voters the exact coverage is near the nominal one."""
    assert coverage(exact_interval, 1000, 2, 0.5) < 0.965
    assert coverage(exact_interval, 1000, 2, 0.9) < 0.965


def test_the_interval_is_never_a_point():
    """Where chance drives the share beyond what any accuracy gives, it still has a width."""
    true, false = answers(Ballot(epsilon=1))
    for voters in (1, 10, 1000):
        ends = [exact_interval(k, voters, true, false, 0.95) for k in range(voters + 1)]
        assert all(0 <= low < high <= 1 for low, high in ends)
        assert np.all(np.diff(ends, axis=0) >= 0)
    assert exact_interval(0, 1000, true, false, 0.95)[1] == pytest.approx(
        exact_interval(int(1000 * false), 1000, true, false, 0.95)[1]
    )
    assert exact_interval(0, 1, true, false, 0.95) == (0, 1)  # one vote says nothing


@pytest.mark.parametrize("voters", [1, 7, 100, 501])
def test_half_width_is_that_of_the_widest(voters):
    true, false = answers(Ballot(epsilon=2))
    ends = np.array([exact_interval(k, voters, true, false, 0.95) for k in range(voters + 1)])
    assert half_width(voters, 2) == pytest.approx(np.diff(ends, axis=1).max() / 2)


def test_the_estimate_is_the_papers():
    votes = Ballot(epsilon=2).release(np.arange(1000) < 800, rng=Seeded(1))
    flip, share = 1 / (math.exp(2) + 1), float(votes.symbols.mean())
    assert unbiased_accuracy(votes) == pytest.approx((share - flip) / (1 - 2 * flip))
    found = estimate(votes)
    assert found.accuracy == pytest.approx(unbiased_accuracy(votes))
    assert found.interval[0] < found.accuracy < found.interval[1]
    assert found.voters == 1000
    assert str(found.guarantee).startswith("2-DP (local")


@pytest.mark.parametrize(
    "ballot",
    [
        Ballot(epsilon=1),
        Ballot(epsilon=1, classes=3),
        Ballot(epsilon=1, classes=6),
        Ballot(epsilon=2, classes=2, groups=("a", "b")),
    ],
    ids=["plain", "classes", "sets", "both"],
)
def test_the_estimate_is_unbiased_exactly(ballot):
    """Over all that the channel may say, for someone with any symbol."""
    outputs = np.asarray(list(ballot.channel.outputs()))
    said = np.array(
        [unbiased_accuracy(Votes(ballot, outputs[i : i + 1])) for i in range(len(outputs))]
    )
    for symbol in range(ballot.law.symbols):
        mass = np.exp(ballot.channel.log_prob(outputs, np.full(len(outputs), symbol)))
        assert mass @ said == pytest.approx(symbol % 2, abs=1e-9)


def test_estimates_are_held_to_what_an_accuracy_can_be():
    all_right = Votes(Ballot(epsilon=1), np.ones(50, int))
    assert unbiased_accuracy(all_right) > 1
    assert estimate(all_right).accuracy == 1
    assert estimate(Votes(Ballot(epsilon=1), np.zeros(50, int))).accuracy == 0


# --- by class and group --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ballot", "axis", "each"),
    [
        (Ballot(epsilon=2, classes=4), 0, 1),
        (Ballot(epsilon=1, classes=6), 0, 1),
        (Ballot(epsilon=0.1, classes=2), 0, 1),
        (Ballot(epsilon=0.5, classes=2, groups=("a", "b")), 0, 2),
        (Ballot(epsilon=0.3, classes=3, groups=("a", "b")), 1, 3),
    ],
    ids=["symbols", "sets", "half of all", "two groups", "by group"],
)
def test_the_chances_of_a_part_are_the_channels(ballot, axis, each):
    """Against the sum over everything that a vote may be."""
    chances = parts.chances(ballot.law, each)
    outputs = np.asarray(list(ballot.channel.outputs()))
    symbols, groups = outputs.reshape(len(outputs), -1), ballot.shape[1]
    inside = (symbols // 2 // groups if axis == 0 else symbols // 2 % groups) == 0
    lead = np.where(inside, 2 * (symbols % 2) - 1, 0).sum(axis=1)

    def mass(part, right):
        place = [0, 0, right]
        place[axis] = part
        symbol = np.ravel_multi_index(place, ballot.shape)
        return np.exp(ballot.channel.log_prob(outputs, np.full(len(outputs), symbol)))

    right = [mass(0, 1) @ (lead > 0), mass(0, 0) @ (lead > 0), mass(1, 1) @ (lead > 0)]
    shown = inside.sum(axis=1) >= chances.least
    assert chances[:3] == pytest.approx(right, rel=1e-9)
    assert chances[3:5] == pytest.approx([mass(0, 1) @ shown, mass(1, 0) @ shown], rel=1e-9)
    assert chances.own > chances.opposite
    assert chances.shown > chances.shown_elsewhere


def missed(voters, epsilon, share, accuracy, confidence):
    """The exact chance that a class's interval misses: over all counts there may be."""
    law = parts.chances(Ballot(epsilon=epsilon, classes=2).law, 1)
    right, wrong = (
        law.own * share * r + law.opposite * share * (1 - r) + law.elsewhere * (1 - share)
        for r in (accuracy, 1 - accuracy)
    )
    plus, minus = np.triu_indices(voters + 1)
    minus = voters - minus  # all pairs with a sum of at most `voters`
    chance = multinomial.pmf(
        np.stack([plus, minus, voters - plus - minus], axis=1),
        voters,
        [right, wrong, max(1 - right - wrong, 0.0)],
    )
    kept = chance > 1e-12
    counts = parts.Counts(plus[kept], minus[kept], (plus + minus)[kept])
    low, high = parts.interval(counts, voters, law, confidence)
    return chance[kept][(accuracy < low - 1e-9) | (accuracy > high + 1e-9)].sum()


LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("voters", "epsilon"), [(20, 1), (32, 7), (60, 8), (60, 3)])
def test_class_intervals_cover_exactly_at_every_level(voters, epsilon, level):
    # Ballots for two classes and such ε are one symbol a vote.
    for share in (0.02, 0.5, 1.0):
        for accuracy in (0.0, 0.03, 0.5, 0.9, 1.0):
            risk = missed(voters, epsilon, share, accuracy, level)
            assert risk <= (1 - level) * (1 + 1e-9), (share, accuracy)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("epsilon", [0.5, 2, 5, 10])
@pytest.mark.parametrize("voters", [20, 45, 100, 200])
def test_class_intervals_cover_exactly_everywhere(voters, epsilon, level):
    for share in (0.01, 0.05, 0.2, 0.5, 0.9, 1.0):
        for accuracy in (0.0, 0.01, 0.05, 0.2, 0.35, 0.5, 0.7, 0.9, 0.95, 0.99, 1.0):
            assert missed(voters, epsilon, share, accuracy, level) <= (1 - level) * (1 + 1e-9)


@pytest.mark.quick(1)
@pytest.mark.parametrize("level", [0.8, 0.99])
@pytest.mark.parametrize(("epsilon", "voters"), [(0.5, 40), (1, 2000)])
def test_class_intervals_of_sets_cover(epsilon, voters, level):
    """Votes that name several symbols: counts are drawn, 20,000 times."""
    ballot, share, accuracy = Ballot(epsilon=epsilon, classes=6), 0.1, 0.95
    assert ballot.law.size > 1
    outputs = np.asarray(list(ballot.channel.outputs()))
    lead = np.where(outputs < 2, 2 * outputs - 1, 0).sum(axis=1)
    law = parts.chances(ballot.law, 1)
    people = np.array([share * (1 - accuracy), share * accuracy] + [(1 - share) / 10] * 10)
    mass = sum(
        chance * np.exp(ballot.channel.log_prob(outputs, np.full(len(outputs), symbol)))
        for symbol, chance in enumerate(people)
    )
    drawn = np.random.default_rng(1).multinomial(voters, mass / mass.sum(), 20_000)
    shown = drawn @ ((outputs < 2).sum(axis=1) >= law.least)
    counts = parts.Counts(drawn @ (lead > 0), drawn @ (lead < 0), shown)
    low, high = parts.interval(counts, voters, law, level)
    failures = int(((accuracy < low) | (accuracy > high)).sum())
    assert binom.sf(failures - 1, 20_000, 1 - level) > 1e-6


def test_counts_of_sets_are_those_of_votes():
    ballot = Ballot(epsilon=1, classes=6)
    votes = ballot.release(np.arange(50) % 2, classes=np.arange(50) % 6, rng=Seeded(4))
    found = parts.count(votes, 0, 1)
    for part in range(6):
        right = (votes.symbols == 2 * part + 1).any(axis=1)
        wrong = (votes.symbols == 2 * part).any(axis=1)
        assert found.right[part] == (right & ~wrong).sum()
        assert found.wrong[part] == (wrong & ~right).sum()
        assert found.shown[part] == (wrong | right).sum()


def simulate(ballot, shares, accuracies, voters, repeats, seed):
    """Validations of voters drawn anew each time; classes and their accuracies are given."""
    rng = np.random.default_rng(seed)
    stream = Seeded(rng)
    for _ in range(repeats):
        mine = rng.choice(len(shares), voters, p=shares)
        right = rng.random(voters) < np.asarray(accuracies)[mine]
        yield ballot.release(right, classes=mine, rng=stream)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("epsilon", "voters", "shares", "accuracies"),
    [
        (1, 20, (0.5, 0.5), (1.0, 0.02)),
        (3, 20, (0.9, 0.1), (0.9, 1.0)),
        (2, 100, (0.4, 0.4, 0.2), (0.95, 0.5, 1.0)),
        (2, 2000, (0.1,) * 10, (1.0, 0.99, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3, 0.1, 0.0)),
        (1, 2000, (0.3, 0.7), (0.6, 0.9)),
    ],
)
def test_class_intervals_cover(epsilon, voters, shares, accuracies):
    """Through ballots and votes, 300 repeats each."""
    ballot, repeats = Ballot(epsilon=epsilon, classes=len(shares)), 300
    held = np.zeros(len(shares))
    whole = 0
    overall = float(np.dot(shares, accuracies))
    for votes in simulate(ballot, shares, accuracies, voters, repeats, voters):
        found = estimate(votes)
        ends = [found.by_class[c].interval for c in range(len(shares))]
        held += [low <= a <= high for (low, high), a in zip(ends, accuracies, strict=True)]
        whole += found.interval[0] <= overall <= found.interval[1]
    assert held.min() / repeats >= 0.925
    assert held.mean() / repeats >= 0.95
    assert whole / repeats >= 0.925


def test_class_intervals_that_forget_the_noise_are_caught():
    ballot, held = Ballot(epsilon=2, classes=3), 0
    for votes in simulate(ballot, (0.4, 0.4, 0.2), (0.95, 0.5, 0.7), 1000, 100, 1):
        part = estimate(votes).by_class[1]
        low, high = wilson(round(part.accuracy * part.voters), max(round(part.voters), 1))
        held += low <= 0.5 <= high
    assert held < 85


def test_class_intervals_shrink_with_voters():
    ballot = Ballot(epsilon=3, classes=2)
    widths = []
    for voters in (100, 1000, 10_000):
        (votes,) = simulate(ballot, (0.5, 0.5), (0.9, 0.7), voters, 1, 3)
        widths.append(np.diff(estimate(votes).by_class[0].interval)[0])
    assert widths[0] > 2 * widths[1] > 4 * widths[2]
    assert estimate(votes).by_class[0].voters == pytest.approx(5000, rel=0.1)


def test_a_class_that_nobody_shows():
    """Where votes name neither of its symbols, nothing is known of it."""
    ballot = Ballot(epsilon=5, classes=2)
    found = estimate(Votes(ballot, np.ones(5, int))).by_class[1]
    assert math.isnan(found.accuracy)
    assert found.interval == (0, 1)
    assert found.to_dict() == {"voters": 0.0, "accuracy": None, "interval": [0.0, 1.0]}


def test_private_groups_beside_classes():
    rng = np.random.default_rng(5)
    ballot, voters = Ballot(epsilon=4, classes=2, groups=("a", "b")), 40_000
    mine, group = rng.integers(0, 2, voters), rng.integers(0, 2, voters)
    right = rng.random(voters) < 0.5 + 0.2 * mine + 0.2 * group
    votes = ballot.release(right, classes=mine, groups=np.array(["a", "b"])[group], rng=Seeded(6))
    found = estimate(votes, 0.999)
    for value in (0, 1):
        low, high = found.by_class[value].interval
        assert low <= 0.6 + 0.2 * value <= high
        low, high = found.by_group["ab"[value]].interval
        assert low <= 0.6 + 0.2 * value <= high
        assert high - low < 0.08
    assert found.interval[0] <= 0.7 <= found.interval[1]
    (_, right), (_, other) = (
        np.unique((votes.symbols // 4)[votes.symbols % 2 == one], return_counts=True)
        for one in (1, 0)
    )
    counts = parts.count(votes, 0, 1)  # many: numpy 2.4 takes long columns apart wrongly
    assert (counts.right.tolist(), counts.wrong.tolist()) == (right.tolist(), other.tolist())


def test_known_groups_are_counted_apart_and_cost_nothing():
    votes = Ballot(epsilon=2).release(np.arange(300) < 200, rng=Seeded(3))
    known = Votes(votes.ballot, votes.symbols, tuple("ab"[i % 2] for i in range(300)))
    found = estimate(known)
    assert list(found.by_group) == ["a", "b"]
    alone = estimate(votes[np.arange(300) % 2 == 0])
    assert (found.by_group["a"].accuracy, found.by_group["a"].interval) == (
        alone.accuracy,
        alone.interval,
    )
    assert found.guarantee == estimate(votes).guarantee
    assert found.interval == estimate(votes).interval


# --- the whole way -------------------------------------------------------------------------------


class Model:
    classes_ = np.array([0, 1, 2])

    def predict(self, rows):
        return np.asarray(rows)[:, 0]


def people(count=2000, accuracy=0.8, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, count)
    said = np.where(rng.random(count) < accuracy, truth, (truth + 1) % 3)
    return said[:, None], truth


class Watched:
    """A stream that says whether anything was drawn from it."""

    secure = False

    def __init__(self):
        self.drawn = 0
        self._seeded = Seeded(0)

    def words(self, count):
        self.drawn += count
        return self._seeded.words(count)


def test_validate():
    rows, truth = people()
    found = validate(Model(), rows, truth, epsilon=3, by_class=True, groups=truth % 2)
    assert found.interval[0] - 0.05 < 0.8 < found.interval[1] + 0.05
    assert list(found.by_class) == [0, 1, 2]
    assert list(found.by_group) == ["0", "1"]
    assert not found.certificate.seeded
    found.certificate.verify()
    plain = found.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["guarantee"] == "3-DP (local, any-two-inputs, unit: person)"
    names = np.array(["x", "y"])[truth % 2]
    private = validate(
        Model(), rows, truth, epsilon=3, groups=names, private_groups=("x", "y", "z"), rng=Seeded(1)
    )
    assert list(private.by_group) == ["x", "y", "z"]
    assert private.certificate.seeded


def test_the_ledger_is_charged_once_and_first(tmp_path):
    rows, truth = people(100)
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("voters", PureDP(3, adjacency="any-two-inputs", unit="person"))
        given = {"ledger": ledger, "account": "voters"}
        found = validate(Model(), rows, truth, epsilon=2, **given, key="first")
        assert [charge.event for charge in ledger.show("voters").charges] == [found.event]
        watched = Watched()
        with pytest.raises(BudgetExceeded):
            validate(Model(), rows, truth, epsilon=2, **given, rng=watched)
        assert watched.drawn == 0
        with pytest.raises(InvalidData):  # rows that do not fit cost nothing
            validate(Model(), rows, truth + 1, epsilon=1, **given, rng=watched)
        assert watched.drawn == 0
        assert len(ledger.show("voters").charges) == 1
        with pytest.raises(LedgerError, match="key must be new"):  # it would draw anew, for nothing
            validate(Model(), rows, truth, epsilon=2, **given, key="first", rng=watched)
        assert watched.drawn == 0
        assert float(ledger.show("voters").remaining["epsilon"]) == 1
        with pytest.raises(InvalidParameter, match="given together"):
            validate(Model(), rows, truth, epsilon=1, ledger=ledger)


def test_refusals():
    rows, truth = people(10)
    with pytest.raises(InvalidParameter, match="confidence must be"):
        validate(Model(), rows, truth, epsilon=1, confidence=1)
    with pytest.raises(InvalidParameter, match="groups must be given"):
        validate(Model(), rows, truth, epsilon=1, private_groups=("a", "b"))
    with pytest.raises(InvalidParameter, match="epsilon must be"):
        validate(Model(), rows, truth, epsilon=-1)
    with pytest.raises(InvalidParameter, match="confidence must be"):
        estimate(Ballot(epsilon=1).release(np.ones(3, bool)), 0)


def test_balanced_accuracy_is_the_mean_recall_and_its_interval_covers():
    """Shares of .9 and .1 with recalls of .95 and .3: the accuracy hides the second."""
    rng, missed, ballot = np.random.default_rng(0), 0, Ballot(epsilon=2, classes=2)
    for seed in range(150):
        classes = (rng.random(1500) < 0.1).astype(int)
        right = rng.random(1500) < np.array([0.95, 0.3])[classes]
        found = estimate(ballot.release(right, classes=classes, rng=Seeded(seed)), 0.9)
        low, high = found.balanced.interval
        missed += not low <= 0.625 <= high
        each = [one.accuracy for one in found.by_class.values()]
        assert found.balanced.accuracy == pytest.approx(np.mean(each))
        assert low <= found.balanced.accuracy <= high
    assert missed <= 15
    assert found.accuracy > found.balanced.accuracy + 0.1
    assert estimate(Ballot(epsilon=2).release(right, rng=Seeded(0))).balanced is None
