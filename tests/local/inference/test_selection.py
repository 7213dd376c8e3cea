"""Choosing by votes: assignment, levels, what voters allow, and intervals of a winner that hold."""

import inspect
import math

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import chisquare

from tacit.local.inference.selection import (
    FRESH,
    assign,
    confirm_share_for,
    level,
    part_of,
    precision,
    select,
)
from tacit.local.inference.validation import answers, half_width, unbiased_accuracy, whole_estimate
from tacit.local.inference.votes import Ballot, Votes
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded

# --- who answers for what ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "parts", "fresh"), [(1, 1, 0), (100, 7, 0), (101, 7, 13), (9, 4, 9)]
)
def test_parts_are_of_equal_size(count, parts, fresh):
    mine = assign(count, parts, fresh)
    assert mine.shape == (count,)
    assert (mine == FRESH).sum() == fresh
    sizes = np.bincount(mine[mine != FRESH], minlength=parts)
    assert sizes.sum() == count - fresh
    assert sizes.max() - sizes.min() <= 1


def test_assignment_knows_nothing_of_anybody():
    """Counts and a stream go in: the same stream gives the same parts, whoever they are."""
    assert set(inspect.signature(assign).parameters) == {"count", "parts", "fresh", "rng"}
    np.testing.assert_array_equal(assign(50, 3, 5, Seeded(1)), assign(50, 3, 5, Seeded(1)))
    assert not np.array_equal(assign(50, 3, 5), assign(50, 3, 5))  # the system's entropy


def test_everybody_is_equally_likely_everywhere():
    repeats, rng = 3000, Seeded(2)
    counts = np.zeros((6, 3))
    together = 0
    for _ in range(repeats):
        mine = assign(6, 2, 2, rng)
        counts[np.arange(6), mine + 1] += 1
        together += mine[0] == mine[5]
    assert chisquare(counts, axis=1).pvalue.min() > 1e-4
    assert together / repeats == pytest.approx(1 / 5, abs=0.04)  # two of a part of two: 1 in 5


@pytest.mark.parametrize("wrong", [{"count": 0}, {"parts": 0}, {"fresh": 11}, {"fresh": -1}])
def test_assignments_that_are_refused(wrong):
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        assign(**{"count": 10, "parts": 2, **wrong})


@pytest.mark.parametrize("epsilon", [0.1, 1, 2, math.pi])
@pytest.mark.parametrize("parts", [1, 3, 7, 12])
def test_shares_of_epsilon_never_exceed_it(epsilon, parts):
    from tacit.privacy.accounting.derivation import guarantee_of
    from tacit.privacy.events import Repeated

    share = part_of(epsilon, parts)
    assert 0 <= epsilon - float(parts * share) < 1e-10
    spent = guarantee_of(Repeated(Ballot(epsilon=share).event, parts))
    assert spent.epsilon <= epsilon  # in floats too: a budget of ε pays for it


# --- what voters allow ---------------------------------------------------------------------------


def objective(share, candidates, worse, confidence=0.95):
    z = float(ndtri((1 + confidence) / 2))
    choosing = math.sqrt(2 * worse * math.log(candidates))
    return z / math.sqrt(share) + choosing / math.sqrt(1 - share)


@pytest.mark.parametrize("candidates", [2, 12, 100])
def test_the_share_kept_is_the_best_for_both_errors(candidates):
    grid = np.linspace(0.01, 0.99, 981)
    parallel = confirm_share_for(candidates, 2)
    best = grid[np.argmin([objective(share, candidates, candidates) for share in grid])]
    assert parallel == pytest.approx(best, abs=0.001)
    gaps = [np.subtract(*answers(Ballot(epsilon=e))) for e in (2, 2 / candidates)]
    worse = float(gaps[0] / gaps[1]) ** 2
    best = grid[np.argmin([objective(share, candidates, worse) for share in grid])]
    assert confirm_share_for(candidates, 2, "sequential") == pytest.approx(best, abs=0.001)


def test_a_single_candidate_is_only_confirmed():
    assert confirm_share_for(1, 2) == 1
    plan = precision(1000, 2)
    assert (plan.fresh, plan.for_each) == (1000, 1000)
    assert plan.half_width == plan.compared == half_width(1000, 2)


def test_precision_is_what_the_intervals_will_be():
    plan = precision(15_000, 2, 12)
    assert plan.fresh + 12 * plan.for_each == pytest.approx(15_000, abs=11)
    assert plan.half_width == half_width(plan.fresh, 2)
    assert plan.compared == half_width(plan.for_each, 2, 0.95 ** (1 / 12))
    assert plan.half_width < 0.021
    assert f"{plan.fresh:,} of them kept for the winner" in str(plan)
    sequential = precision(15_000, 2, 12, composition="sequential")
    assert sequential.for_each == 15_000 - sequential.fresh
    assert sequential.compared > plan.compared  # ε/m on each costs more than fewer voters
    together = precision(15_000, 2, 12, confirm="simultaneous")
    assert (together.fresh, together.for_each) == (0, 1250)
    assert together.half_width == together.compared
    assert precision(15_000, 2, 12, confirm_share=0.5).fresh == 7500


@pytest.mark.parametrize("composition", ["parallel", "sequential"])
@pytest.mark.parametrize("confirm", ["fresh", "simultaneous"])
@pytest.mark.parametrize("within", [None, 0.05])
def test_too_few_voters_are_told_how_many_it_takes(composition, confirm, within):
    asked = {"composition": composition, "confirm": confirm, "within": within}
    with pytest.raises(InvalidParameter, match="voters must be at least") as error:
        precision(30, 2, 12, **asked)
    least = int(str(error.value).partition("at least ")[2].partition(" ")[0].replace(",", ""))
    assert str(error.value).count("\n") == 0
    assert str(error.value).endswith("Invite more, raise epsilon, or try fewer candidates.")
    plan = precision(least, 2, 12, **asked)
    assert plan.for_each >= 1
    assert max(plan.half_width, plan.compared) < 0.5
    assert within is None or plan.half_width <= within
    with pytest.raises(InvalidParameter, match=f"at least {least:,}"):
        precision(least - 1, 2, 12, **asked)


@pytest.mark.parametrize(
    "wrong",
    [
        {"voters": 0},
        {"candidates": 0},
        {"composition": "both"},
        {"confirm": "never"},
        {"confidence": 1},
        {"confirm_share": 0},
        {"confirm_share": 1},
        {"within": 0},
    ],
)
def test_plans_that_are_refused(wrong):
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        precision(**{"voters": 1000, "epsilon": 2, "candidates": 3, **wrong})


# --- the choice ----------------------------------------------------------------------------------


def test_levels():
    assert level(0.95, 12, True) ** 12 == pytest.approx(0.95)
    assert 12 * (1 - level(0.95, 12, False)) == pytest.approx(0.05)
    assert level(0.95, 1, True) == level(0.95, 1, False) == 0.95
    assert level(0.95, 12, False) > level(0.95, 12, True)


def counted(right, voters=100, epsilon=2):
    return Votes(Ballot(epsilon=epsilon), (np.arange(voters) < right).astype(int))


def test_the_best_estimate_wins_and_the_first_of_equals():
    chosen = select([counted(50), counted(80), counted(80), counted(70)], independent=True)
    assert chosen.winner == 1
    each = level(0.95, 4, True)
    assert chosen.estimates[3].interval == whole_estimate(counted(70), each).interval
    assert chosen.estimates[3].confidence == chosen.confidence == 0.95
    assert select([counted(3)], independent=False).winner == 0
    with pytest.raises(InvalidParameter, match="at least one candidate"):
        select([], independent=True)
    with pytest.raises(InvalidParameter, match="confidence"):
        select([counted(3)], confidence=0, independent=True)


def test_beyond_one_the_better_one_still_wins():
    """Estimates are compared before they are held to [0, 1]."""
    votes = [counted(95), counted(99)]
    assert min(map(unbiased_accuracy, votes)) > 1
    assert select(votes, independent=True).winner == 1


def repeated(truths, voters, composition, repeats, seed, confirm="fresh"):
    """Searches by simulated voters: winner's truth, fresh, all and reused intervals held."""
    parallel, rng = composition == "parallel", np.random.default_rng(seed)
    stream, count = Seeded(rng), len(truths)
    plan = precision(voters, 2, count, composition=composition, confirm=confirm)
    ballot = Ballot(epsilon=2 if parallel else part_of(2, count))
    for _ in range(repeats):
        draws = rng.random(voters)
        mine = assign(voters, count if parallel else 1, plan.fresh, stream)
        votes = [
            ballot.release(draws[mine == (place if parallel else 0)] < truth, rng=stream)
            for place, truth in enumerate(truths)
        ]
        chosen = select(votes, independent=parallel)
        truth = truths[chosen.winner]
        fresh = (
            Ballot(epsilon=2).release(draws[mine == FRESH] < truth, rng=stream)
            if plan.fresh
            else None
        )
        yield (
            truth,
            fresh is not None and inside(whole_estimate(fresh, 0.95), truth),
            all(map(inside, chosen.estimates, truths)),
            inside(whole_estimate(votes[chosen.winner], 0.95), truth),
        )


def inside(found, truth):
    return found.interval[0] <= truth <= found.interval[1]


@pytest.mark.heavy
@pytest.mark.parametrize("composition", ["parallel", "sequential"])
def test_the_winners_interval_holds_and_that_of_those_who_chose_it_does_not(composition):
    """Twelve equals: the winner is whoever chance favours, and its own votes flatter it.

    Of 600 repeats at 95 %, fewer than 93 % hold by chance once in fifty; `test_validation` has the
    exact coverage of the same interval.
    """
    found = np.array(list(repeated([0.5] * 12, 3000, composition, 600, 7)), float)
    _, fresh, together, reused = found.mean(axis=0)
    assert fresh >= 0.93
    assert together >= 0.93
    assert reused < 0.85  # the mutant: the interval of the votes that chose


def test_a_winner_is_near_the_best():
    truths = np.linspace(0.5, 0.9, 12)
    found = np.array(list(repeated(truths, 15_000, "parallel", 40, 8)), float)
    assert 0.9 - found[:, 0].mean() < 0.03
    assert found[:, 1].mean() >= 0.85


def test_all_at_once_is_not_each_on_its_own():
    """The mutant: plain intervals for each candidate, read as if they held together."""
    rng = np.random.default_rng(9)
    ballot, held = Ballot(epsilon=2), 0
    for _ in range(200):
        votes = [ballot.release(rng.random(200) < 0.7, rng=Seeded(rng)) for _ in range(12)]
        held += all(inside(whole_estimate(one, 0.95), 0.7) for one in votes)
    assert held < 150
