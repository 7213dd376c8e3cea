"""Votes on regressors: the exact law of a rounded error, intervals that cover, and no refusals."""

import json
import math
import warnings
from decimal import Decimal

import numpy as np
import pytest
from scipy.stats import binom, binomtest
from sklearn.dummy import DummyRegressor

import tacit
from tacit.data.outcomes import STEPS
from tacit.local.inference.error_votes import as_error, estimate_error, validate_error
from tacit.local.inference.losses import losses
from tacit.local.inference.search import Candidate, search
from tacit.local.inference.selection import assign, select
from tacit.local.inference.validation import (
    HANDED_OUT,
    answers,
    exact_interval,
    unbiased_accuracy,
    whole_estimate,
)
from tacit.local.inference.votes import Ballot, Votes, cast
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.errors import BudgetExceeded, InvalidData, InvalidParameter
from tacit.privacy.guarantees import PureDP
from tacit.privacy.randomness import Seeded

PLACES = (0, 1, STEPS // 3, STEPS // 2, STEPS - 1, STEPS)
BALLOTS = {
    "plain": Ballot(epsilon=1.5, limit=10),
    "groups": Ballot(epsilon=1.5, limit=10, groups=("a", "b", "c")),
    "sets": Ballot(epsilon=0.5, limit=10, groups=tuple("abcdefgh")),
}
every_ballot = pytest.mark.parametrize("ballot", BALLOTS.values(), ids=BALLOTS)


class Constant:
    """Predicts what its rows hold."""

    def predict(self, rows):
        return np.asarray(rows)[:, 0]


def laws(ballot):
    """The law of a vote, one row for each error and group."""
    outputs = np.asarray(list(ballot.channel.outputs()))
    rows = [
        ballot.log_prob(
            outputs,
            np.full(len(outputs), place),
            groups=None if group is None else np.full(len(outputs), group),
        )
        for place in PLACES
        for group in ballot.groups or (None,)
    ]
    return outputs, np.exp(rows)


# --- the law -------------------------------------------------------------------------------------


@every_ballot
def test_the_law_sums_to_one_and_keeps_epsilon(ballot):
    _, matrix = laws(ballot)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
    worst = np.log(matrix.max(axis=0) / matrix.min(axis=0)).max()
    assert worst == pytest.approx(1.5 if ballot.epsilon == 1.5 else 0.5, abs=1e-9)


@pytest.mark.parametrize("ballot", [BALLOTS["plain"], BALLOTS["groups"]], ids=["plain", "groups"])
def test_draws_follow_the_law(ballot):
    outputs, matrix = laws(ballot)
    drawn = 20_000
    given = {} if ballot.groups is None else {"groups": ["b"] * drawn}
    at = 2 * len(ballot.groups or (None,)) + (0 if ballot.groups is None else 1)
    votes = ballot.release([PLACES[2]] * drawn, **given, rng=Seeded(1)).symbols
    for output, chance in zip(outputs, matrix[at], strict=True):
        hits = int(np.all(output == np.atleast_2d(votes.T).T, axis=1).sum())
        assert binomtest(hits, drawn, chance).pvalue > 1e-6


@every_ballot
def test_the_estimate_is_unbiased_exactly(ballot):
    outputs, matrix = laws(ballot)
    said = [unbiased_accuracy(Votes(ballot, outputs[i : i + 1])) for i in range(len(outputs))]
    wanted = 1 - np.repeat(PLACES, len(ballot.groups or (None,))) / STEPS
    np.testing.assert_allclose(matrix @ said, wanted, atol=1e-9)


# --- intervals -----------------------------------------------------------------------------------


def covered(ballot, voters, places, level, interval=exact_interval):
    """The exact probability that the interval holds the mean error of a population."""
    chance = np.exp(ballot.log_prob(np.ones(len(places), int), places)).mean()
    mass = binom.pmf(np.arange(voters + 1), voters, chance)
    true = 1 - np.mean(places) / STEPS
    ends = [interval(k, voters, *answers(ballot), level) for k in range(voters + 1)]
    return sum(m for m, (low, high) in zip(mass, ends, strict=True) if low <= true <= high)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("epsilon", [0.5, 2, 8])
@pytest.mark.parametrize("voters", [1, 20, 300])
def test_intervals_cover_at_every_level(voters, epsilon, level):
    """Noise, rounding and the sampling of people together, for errors of any distribution."""
    ballot = Ballot(epsilon=epsilon, limit=1)
    draw = np.random.default_rng(0)
    for errors in (draw.exponential(0.05, 500), draw.random(500), np.zeros(1), np.ones(1)):
        places = np.rint(errors.clip(0, 1) * STEPS).astype(int)
        assert covered(ballot, voters, places, level) >= level - 1e-9


def test_an_interval_that_forgets_noise_or_rounding_is_caught():
    ballot, places = Ballot(epsilon=2, limit=1), np.full(10, STEPS // 10)

    def noiseless(right, voters, true, false, confidence):
        return exact_interval(right, voters, 1.0, 0.0, confidence)

    def noise_alone(right, voters, true, false, confidence):
        middle = (right / voters - false) / (true - false)
        reach = 1.96 * math.sqrt(true * false / voters) / (true - false)
        return middle - reach, middle + reach

    assert covered(ballot, 300, places, 0.95) >= 0.95
    assert covered(ballot, 300, places, 0.95, noiseless) < 0.1
    assert covered(ballot, 300, places, 0.95, noise_alone) < 0.93


def test_the_error_is_in_the_unit_of_the_outcome_and_its_interval_holds():
    draw = np.random.default_rng(1)
    rows = draw.uniform(0, 80, (4_000, 1))
    truth = rows[:, 0] + draw.laplace(0, 6, 4_000)
    for limit in (80, 20):
        found = validate_error(Constant(), rows, truth, epsilon=3, limit=limit, rng=Seeded(2))
        real = np.minimum(np.abs(rows[:, 0] - truth), limit).mean()
        low, high = found.interval
        assert low < real < high
        assert low < found.error < high
        assert (high - low) / limit < 0.05
        assert found.to_dict()["limit"] == limit
        assert str(found.guarantee).startswith("3-DP (local")


def test_errors_by_group():
    draw = np.random.default_rng(1)
    rows, group = np.zeros((6_000, 1)), np.where(np.arange(6_000) % 3, "far", "near")
    truth = np.where(group == "far", 8.0, 1.0) + draw.uniform(-1, 1, 6_000)
    asked = {"epsilon": 4, "limit": 10, "groups": group, "rng": Seeded(3)}
    for private in (None, ("far", "near", "none")):
        found = validate_error(Constant(), rows, truth, private_groups=private, **asked).by_group
        assert found["far"].interval[0] < 8 < found["far"].interval[1]
        assert found["near"].interval[0] < 1 < found["near"].interval[1]
    assert found["none"].interval == pytest.approx((0, 10), abs=1)


# --- totality ------------------------------------------------------------------------------------

STRANGE = (math.nan, math.inf, -math.inf, None, "", "word", Decimal("NaN"), 1e308, 10**400, b"x")


@pytest.mark.parametrize("value", STRANGE, ids=str)
def test_strange_outcomes_and_predictions_count_as_the_largest_error(value):
    rows, truth = np.zeros((3, 1)), [1.0, value, 4.0]

    class Odd:
        def predict(self, given):
            return np.array([1.0, value, 4.0], dtype=object)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert losses(Constant(), rows, truth, 4.0).tolist() == [STEPS // 4, STEPS, STEPS]
        assert losses(Odd(), rows, np.zeros(3), 4.0).tolist() == [STEPS // 4, STEPS, STEPS]


def test_numbers_near_the_ends_of_floats_do_not_overflow():
    class Huge:
        def predict(self, given):
            return np.full(len(given), -1.7e308)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert losses(Huge(), np.zeros((1, 1)), [1.7e308], 2.0**-80).tolist() == [STEPS]
        assert losses(Constant(), np.zeros((1, 1)), [5e-324], 2.0**54).tolist() == [0]


def test_an_error_depends_on_its_own_row_alone():
    rows = np.random.default_rng(0).normal(size=(50, 1))
    truth = np.zeros(50)
    before = losses(Constant(), rows, truth, 1.0)
    truth[7] = np.nan
    assert np.flatnonzero(losses(Constant(), rows, truth, 1.0) != before).tolist() == [7]


def test_what_is_declared_is_checked():
    for limit in (0, -1, math.nan, math.inf, 1e300):
        with pytest.raises(InvalidParameter, match="limit"):
            Ballot(epsilon=1, limit=limit)
    with pytest.raises(InvalidParameter, match="classes must be None with a limit"):
        Ballot(epsilon=1, limit=1, classes=2)
    with pytest.raises(InvalidParameter, match="limit must be given"):
        validate_error(Constant(), np.zeros((2, 1)), [0, 0], epsilon=1)
    with pytest.raises(InvalidData, match="one per row"):
        cast(Constant(), np.zeros((2, 1)), [0.0], Ballot(epsilon=1, limit=1))
    with pytest.raises(InvalidParameter, match="on a regressor"):
        estimate_error(Ballot(epsilon=1).release([1]))


# --- files, cost, choice -------------------------------------------------------------------------


def test_files_keep_the_limit_and_different_limits_do_not_mix(tmp_path):
    made = [
        cast(Constant(), np.zeros((5, 1)), np.arange(5.0), Ballot(epsilon=2, limit=limit))
        for limit in (4.5, 5)
    ]
    read = Votes.read(made[0].write(tmp_path / "votes.json"))
    assert read.ballot == made[0].ballot
    assert estimate_error(read).error == estimate_error(made[0]).error
    with pytest.raises(InvalidData, match="equal ballots"):
        Votes.concatenate([read, made[1]])
    body = json.loads((tmp_path / "votes.json").read_text())
    body["ballot"]["limit"] = 5.0
    (tmp_path / "other.json").write_text(json.dumps(body))
    with pytest.raises(InvalidData, match="unchanged"):
        Votes.read(tmp_path / "other.json")


def test_votes_are_charged_first(tmp_path):
    asked = {"epsilon": 2, "limit": 5, "account": "voters"}
    given = Constant(), np.zeros((5, 1)), np.arange(5.0)
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("voters", PureDP(3, adjacency="any-two-inputs", unit="person"))
        validate_error(*given, **asked, ledger=ledger)
        with pytest.raises(BudgetExceeded):
            validate_error(*given, **asked, ledger=ledger)
        assert len(ledger.show("voters").charges) == 1


def linear(count, seed):
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(count, 2))
    return rows, 5 + rows[:, 0] + draw.normal(0, 0.3, count)


def test_a_regressor_beside_naming_one_number():
    """The baseline is a candidate like others: voters are divided among them."""
    collection = tacit.Collection(epsilon=4, people=3_000, outcome=tacit.Numeric(0, 10))
    collection.fit(linear(1_000, 0)[0])
    model = collection.learn(collection.release(*linear(3_000, 1), rng=Seeded(0)))
    middle = DummyRegressor(strategy="constant", constant=5.0).fit([[0.0]], [5.0])
    rows, truth = linear(6_000, 2)
    part, ballot = assign(6_000, 2, rng=Seeded(4)), Ballot(epsilon=2, limit=3)
    votes = [
        cast(one, rows[part == i], truth[part == i], ballot, rng=Seeded(i))
        for i, one in enumerate((middle, model))
    ]
    chosen = select(votes, independent=True)
    assert chosen.winner == 1
    alone, learned = (as_error(one, 3) for one in chosen.estimates)
    assert learned.interval[1] < alone.interval[0]
    found = validate_error(model, rows, truth, epsilon=2, rng=Seeded(0))
    assert found.limit == 10
    assert HANDED_OUT in found.certificate.not_protected


@pytest.mark.filterwarnings("ignore::tacit.local.inference.noise_aware.ShiftWarning")
@pytest.mark.parametrize("composition", ["parallel", "sequential"])
def test_a_search_among_regressors(composition):
    spent = 3 if composition == "parallel" else 1.5
    settings = {"epsilon": spent, "outcome": tacit.Numeric(0, 10), "unit": "person"}
    candidates = [
        Candidate(f"{k} codewords", tacit.Codebook(codewords=k, **settings)) for k in (2, 12)
    ]
    voters = linear(6_000, 2)
    found = search(
        candidates,
        inhouse=linear(1_000, 0)[0],
        people=linear(8_000, 1),
        voters=voters,
        epsilon=3,
        limit=3,
        composition=composition,
        rng=Seeded(5),
    )
    assert composition == "sequential" or found.winner == "12 codewords"
    real = np.minimum(np.abs(found.model.predict(voters[0]) - voters[1]), 3).mean()
    assert found.error.interval[0] - 0.05 < real < found.error.interval[1] + 0.05
    said = found.to_dict()
    assert said["mean_absolute_error"] == found.error.error
    assert all("mean_absolute_error" in one for one in said["candidates"])
    assert found.guarantee.epsilon == pytest.approx(3)


def test_a_search_answers_one_question():
    with pytest.raises(InvalidParameter, match="outcome must be that of all candidates"):
        search(
            [
                Candidate("a", tacit.Codebook(epsilon=2, codewords=2, outcome=tacit.Numeric(0, 1))),
                Candidate("b", tacit.Codebook(epsilon=2, codewords=2, outcome=tacit.Numeric(0, 2))),
            ],
            inhouse=linear(100, 0)[0],
            people=linear(100, 0),
            voters=linear(1_000, 0),
            epsilon=2,
        )


def test_the_share_of_a_regressor_is_one_minus_its_error():
    votes = Ballot(epsilon=20, limit=8).release([STEPS // 4] * 3_000, rng=Seeded(0))
    assert as_error(whole_estimate(votes, 0.95), 8).error == pytest.approx(2, abs=0.2)
