"""Reports on membership attacks: intervals that cover, ceilings reached, and no false proof."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.audit import guesses, intervals
from tacit.audit.canaries import OneRun
from tacit.audit.membership import (
    AttackReport,
    advantage_ceiling,
    allowed_advantage,
    cross_entropy,
    from_scores,
    loss_threshold,
    restated,
    squared,
    true_positive_ceiling,
    wrong,
)
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import ZCDP, Adjacency, ApproxDP, Guarantee, PureDP
from tacit.privacy.randomness import Seeded

GENERATOR = np.random.default_rng


def claim(epsilon: float, adjacency: str = "replace-one", unit: str = "record") -> PureDP:
    return PureDP(epsilon=epsilon, adjacency=adjacency, unit=unit)  # type: ignore[arg-type]


# --- losses -------------------------------------------------------------------------------------


def test_losses() -> None:
    table = [[0.25, 0.75], [0.5, 0.5], [0.0, 1.0]]
    found = cross_entropy(table, ["b", "a", "a"], ["a", "b"])
    assert found == pytest.approx([-math.log(0.75), math.log(2), -math.log(1e-12)])
    # Classes in an order of their own.
    turned = [row[::-1] for row in table]
    assert cross_entropy(turned, ["b", "a", "a"], ["b", "a"]) == pytest.approx(found)
    assert list(squared([1, 3], [2, 1])) == [1, 4]
    assert list(wrong(["a", "b"], ["a", "a"])) == [0, 1]
    with pytest.raises(InvalidData, match="labels must be among the classes"):
        cross_entropy(table, ["b", "a", "secret"], ["a", "b"])
    with pytest.raises(InvalidParameter, match=r"confidences must be of shape \(3, 3\)"):
        cross_entropy(table, [0, 1, 2], [0, 1, 2])


# --- intervals ----------------------------------------------------------------------------------


def covered(find: Callable[[np.random.Generator], tuple[intervals.Interval, float]]) -> float:
    generator = GENERATOR(0)
    inside = [one.low <= truth <= one.high for one, truth in (find(generator) for _ in range(400))]
    return float(np.mean(inside))


@pytest.mark.parametrize("rates", [(0.5, 0.45), (0.99, 0.01), (0.02, 0.0)])
def test_intervals_of_shares_cover(rates: tuple[float, float]) -> None:
    def one(generator: np.random.Generator) -> tuple[intervals.Interval, float]:
        first, second = (generator.random(60) < rate for rate in rates)
        return intervals.difference(first, second, 0.9), rates[0] - rates[1]

    assert covered(one) > 0.9
    # A normal interval around the same share would not, where it is rare.
    assert covered(lambda g: (intervals.share(g.random(60) < rates[0], 0.9), rates[0])) > 0.86


def test_intervals_of_areas_cover() -> None:
    def one(generator: np.random.Generator) -> tuple[intervals.Interval, float]:
        members, others = generator.integers(0, 3, 40) + 1.0, generator.integers(0, 3, 70) + 0.0
        return intervals.area(members, others, 0.9), 1 - 1 / 9 - (2 / 9) / 2

    assert covered(one) > 0.9
    exact = intervals.area(np.array([1.0, 2]), np.array([0.0, 2, 3]), 0.9)
    assert exact.value == pytest.approx((1 + 0 + 0 + 1 + 0.5 + 0) / 6)


def test_reported_intervals_cover() -> None:
    # Members at N(1, 1), others at N(0, 1), as independent draws.
    truth, hits = 0.7602, np.zeros(2)  # Φ(1/√2)
    generator = GENERATOR(1)
    for _ in range(200):
        report = from_scores(generator.normal(1, 1, 60), generator.normal(0, 1, 60), confidence=0.9)
        best = 2 * 0.6915 - 1  # the most there is, at a threshold of 1/2
        hits += [report.auc.low <= truth <= report.auc.high, report.advantage.low <= best]
    assert (hits >= 180).all()


def test_rates_where_false_positives_are_rare() -> None:
    generator = GENERATOR(2)
    members, others = generator.normal(3, 1, 20_000), generator.normal(0, 1, 20_000)
    rates = from_scores(members, others).rates
    for rate, true in zip(rates, (0.464, 0.750, 0.957), strict=True):  # Φ(3 − z)
        assert rate.false_positive.low <= rate.target <= rate.false_positive.high
        assert rate.true_positive.value == pytest.approx(true, abs=0.06)
    # Fewer others than the rate can resolve: what was reached is said.
    few = from_scores(members[:100], others[:100]).rates[0]
    assert few.target == 0.001
    assert few.false_positive.high > 0.05


# --- ceilings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_randomized_response_reaches_the_ceilings(epsilon: float, delta: float) -> None:
    # With δ the coin is told, else a flipped one: no (ε, δ)-DP pair is easier to tell apart.
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    right, false = delta + (1 - delta) * keep, (1 - delta) * (1 - keep)
    assert advantage_ceiling(epsilon, delta) == pytest.approx(right - false)
    assert true_positive_ceiling(false, epsilon, delta) == pytest.approx(right)
    assert true_positive_ceiling(0.0, epsilon, delta) == pytest.approx(delta)
    assert true_positive_ceiling(1.0, epsilon, delta) == 1.0


def test_ceilings_by_kind_of_claim() -> None:
    assert allowed_advantage(claim(1.0)) == pytest.approx(math.tanh(0.5))
    assert allowed_advantage(claim(1.0, "add-remove")) == pytest.approx(1 - math.exp(-1))
    assert allowed_advantage(claim(0.1, unit="label")) == 1.0
    assert advantage_ceiling(800.0) == 1.0


def test_claims_are_restated_by_the_theorems() -> None:
    scope: dict[str, Any] = {"adjacency": "add-remove", "unit": "record"}
    found = restated(ApproxDP(epsilon=1.0, delta=1e-6, **scope), Adjacency.REPLACE_ONE)
    assert found is not None
    assert (found.epsilon, found.delta) == pytest.approx((2.0, 1e-6 * (1 + math.e)))
    assert restated(claim(1.0), Adjacency.ADD_REMOVE) is None
    assert restated(None, Adjacency.ADD_REMOVE) is None
    curve: Guarantee = ZCDP(xi=0.0, rho=0.1, **scope)
    found = restated(curve, Adjacency.ADD_REMOVE, 1e-6)
    assert found is not None
    assert found.delta == 1e-6
    # A statement at δ says nothing at a smaller one.
    assert restated(ApproxDP(epsilon=1.0, delta=1e-6, **scope), Adjacency.ADD_REMOVE, 0.0) is None


# --- the attack ---------------------------------------------------------------------------------


def overfitted(seed: int, size: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    generator = GENERATOR(seed)
    return generator.exponential(0.1, size), generator.exponential(1.0, size)


def test_small_losses_give_members_away() -> None:
    members, others = overfitted(3)
    for threshold, level in (("best", 0.6), ("mean", 0.5), (0.25, 0.6)):
        report = loss_threshold(members, others, threshold=threshold, claim=claim(0.1))
        assert report.advantage.low > level - 0.06
        assert report.auc.low > 0.8
        assert report.ceiling == pytest.approx(math.tanh(0.05))
        assert report.estimated_epsilon > 0.5
    assert report.attack == "loss at most a given one"
    # Yeom's: the mean of members' losses, all records counted.
    mean = loss_threshold(members, others, threshold="mean")
    expected = (members <= members.mean()).mean() - (others <= members.mean()).mean()
    assert mean.advantage.value == pytest.approx(expected)


def test_without_coins_nothing_is_proved() -> None:
    # However far the estimate is above the claim.
    report = loss_threshold(*overfitted(4), claim=claim(0.1))
    assert not report.certified
    assert not report.refuted
    assert (report.epsilon, report.certifiable, report.proof) == (0.0, 0.0, None)
    assert report.words.startswith("no proof: members were not chosen by coins")
    assert report.adjacency is Adjacency.REPLACE_ONE


def test_with_coins_a_claim_is_refuted_or_not() -> None:
    members, others = overfitted(5)
    bad, fair = (
        loss_threshold(members, others, claim=claim(e, "add-remove"), coins=True, rng=Seeded(0))
        for e in (0.5, 4.0)
    )
    assert bad.refuted
    assert bad.words.startswith("refuted: ε ≥ ")
    assert not fair.refuted
    assert fair.epsilon == bad.epsilon > 1
    assert fair.certifiable > 4
    # A replace-one claim says nothing about who is there.
    none = loss_threshold(members, others, claim=claim(0.1), coins=True, rng=Seeded(0))
    assert (none.tested, none.ceiling, none.refuted) == (None, None, False)
    assert "says nothing that this could test" in none.words


def test_with_a_blank_in_the_place_claims_about_blanks_are_tested() -> None:
    sides = overfitted(5)
    for kind in ("add-remove", "zero-out", "replace-one"):
        known: Any = {"claim": claim(0.5, kind), "coins": True, "rng": Seeded(0)}
        assert loss_threshold(*sides, **known, blank=True).refuted
        # Where their number varied, only an add-remove claim says anything.
        assert loss_threshold(*sides, **known).refuted == (kind == "add-remove")
    assert allowed_advantage(claim(1.0, "zero-out")) == pytest.approx(1 - math.exp(-1))
    with pytest.raises(InvalidParameter, match="blank must be False without coins"):
        loss_threshold(*sides, blank=True)


def test_ties_go_by_no_order() -> None:
    # Members come first in what is handed in: all scores alike must not look like all known.
    found = [
        loss_threshold(np.zeros(300), np.zeros(300), coins=True, certainty=0.9, rng=Seeded(seed))
        for seed in range(100)
    ]
    assert sum(report.epsilon > 0 for report in found) <= 22  # P(Bin(100, 0.1) > 22) is about 1e-4
    assert found[0].auc.value == 0.5
    assert found[0].advantage.low < 0 < found[0].advantage.high
    # The mutant that breaks ties by that order proves what is not there.
    inside = np.repeat([True, False], 300)
    right = int(inside[:300].sum() + (~inside[300:]).sum())
    assert OneRun.of(600, 600, right, delta=0.0, confidence=0.99).epsilon > 4


def test_a_model_that_knows_nothing_is_left_alone() -> None:
    generator = GENERATOR(6)
    levels = []
    for seed in range(60):
        scores = generator.normal(size=(2, 200))
        report = from_scores(*scores, coins=True, certainty=0.9, rng=Seeded(seed))
        levels.append(report.epsilon)
    assert sum(level > 0 for level in levels) <= 16  # P(Bin(60, 0.1) > 16) < 1e-4


def told(keep: float, seed: int, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Coins, and each of them as randomized response tells it."""
    generator = GENERATOR(seed)
    inside = generator.random(count) < 0.5
    return inside, np.where(generator.random(count) < keep, inside, ~inside).astype(float)


def test_bounds_hold_for_a_mechanism_of_known_epsilon() -> None:
    # Several numbers of guesses share the risk: a true claim falls once in ten times at most.
    # Coins and ties have equal seeds on purpose: see `guesses.apart`.
    keep = math.e / (1 + math.e)
    bounds = [
        guesses.from_singles(*told(keep, seed), certainty=0.9, rng=Seeded(seed)).epsilon
        for seed in range(100)
    ]
    assert sum(bound > 1 for bound in bounds) <= 22  # P(Bin(100, 0.1) > 22) is about 1e-4
    assert np.median(bounds) > 0.5


def test_equal_seeds_share_no_draw() -> None:
    # Without `apart` ties would be broken by the very words that the coins were made of.
    words = Seeded(3).words(64)
    order = np.argsort(words)
    assert np.array_equal(order, np.argsort(GENERATOR(3).random(64)))  # the trap
    own = guesses.apart(Seeded(3)).words(64)
    assert not np.array_equal(order, np.argsort(own))
    assert np.array_equal(own, guesses.apart(Seeded(3)).words(64))
    assert guesses.apart(None).secure


def test_the_risk_is_shared() -> None:
    # All, a quarter and a sixteenth; the latter two once more with the highest alone.
    found = guesses.from_singles(*told(0.7, 0), certainty=0.9, rng=Seeded(1))
    assert found.tried == (400, 100, 25, 100, 25)
    assert found.confidence == 0.9
    alone = guesses.from_singles(*told(0.7, 0), certainty=0.9, guesses=100, rng=Seeded(1))
    assert (alone.tried, alone.confidence) == ((100,), 0.9)


def test_pairs_are_guessed_where_they_are_furthest_apart() -> None:
    truth = np.array([True, False] * 50)
    ahead = np.where(truth, 1.0, -1.0) * np.linspace(2, 1, 100)
    ahead[-30:] *= -1  # wrong where the lead is small
    found = guesses.from_pairs(truth, ahead, guesses=50)
    assert (found.right, found.guesses, found.canaries) == (50, 50, 100)
    assert guesses.from_pairs(truth, ahead, guesses=100).right == 70
    assert found.certifiable == pytest.approx(found.epsilon)


def test_reports_are_plain_and_say_what_they_are() -> None:
    members, others = overfitted(7, 100)
    for coins in (False, True):
        report = loss_threshold(members, others, claim=claim(1.0, "add-remove"), coins=coins)
        assert isinstance(report, AttackReport)
        plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert plain["certified"] is coins
        assert plain["words"] == report.words
        assert "\n" not in report.words
    assert plain["proof"]["canaries"] == 200


def test_refusals() -> None:
    good = np.arange(10.0)
    with pytest.raises(InvalidParameter, match="records of each side must be at least 4"):
        loss_threshold(good, good[:3])
    with pytest.raises(InvalidData, match="without NaN"):
        from_scores([1, 2, 3, math.nan], good)
    with pytest.raises(InvalidParameter, match="threshold must be one of best, mean"):
        loss_threshold(good, good, threshold="least")
    with pytest.raises(InvalidParameter, match="certainty must be"):
        loss_threshold(good, good, certainty=1.0)
    infinite = from_scores([math.inf] * 5, [-math.inf] * 5)
    assert infinite.auc.value == 1.0
