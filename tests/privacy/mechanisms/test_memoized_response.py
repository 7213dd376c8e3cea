"""Memoised randomized response: all pairs of histories in rationals, mutants, a year."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import tacit
from tacit.privacy import events
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.events import sequence_loss
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.rounding import above

TOTAL = 2**64
SCOPE = {"adjacency": "any-two-inputs", "unit": "record"}


def chance(reports, history, draws):
    """P(reports | history) in rationals: a sum over all tables of permanent answers."""
    permanent, later = draws
    cells, total = permanent.categories, Fraction(0)
    for table in itertools.product(range(cells), repeat=cells):
        weight = math.prod(
            permanent.keep if cell == answer else permanent.other
            for cell, answer in enumerate(table)
        )
        for report, cell in zip(reports, history, strict=True):
            weight *= later.keep if report == table[cell] else later.other
        total += Fraction(weight, TOTAL ** (cells + len(reports)))
    return total


def pattern(history):
    return tuple(history.index(cell) for cell in history)


@pytest.mark.parametrize(
    ("cells", "epsilon", "permanent"), [(2, 2.0, 1.0), (2, 6.0, 0.5), (2, 0.3, 3.0), (3, 3.0, 1.0)]
)
def test_every_pair_of_histories_of_length_four(cells, epsilon, permanent):
    """Exact loss of all pairs is at most ε; between equal patterns, at most ε∞ per cell."""
    mechanism = tacit.MemoizedResponse(
        categories=cells, epsilon=epsilon, permanent_epsilon=permanent, reports=4
    )
    event = mechanism.event
    draws, histories = (
        (event.permanent, event.later),
        list(itertools.product(range(cells), repeat=4)),
    )
    # By symmetry, a renaming of cells renames reports: all histories, reports up to renaming.
    seen = [one for one in histories if one == tuple(map(list(dict.fromkeys(one)).index, one))]
    worst = 0.0
    for reports in seen:
        law = {history: chance(reports, history, draws) for history in histories}
        found = mechanism.log_prob(np.array([reports] * len(law)), np.array(list(law)))
        assert found == pytest.approx([math.log(one) for one in law.values()], abs=1e-12)
        worst = max(worst, math.log(max(law.values()) / min(law.values())))
        for first, second in itertools.permutations(histories, 2):
            if pattern(first) == pattern(second):
                most = float(event.same_pattern(len(set(first))))
                assert math.log(law[first] / law[second]) <= most + 1e-12
    assert epsilon / 2 < worst <= epsilon


def drawn(first, permanent):
    """Two cells: permanent answers with ε∞, and reports whose first has ε = `first` end to end."""
    p, keep = (1 / (1 + math.exp(-one)) for one in (permanent, first))
    r = (keep - (1 - p)) / (2 * p - 1)
    later = math.log(r / (1 - r))
    return tuple(RandomizedResponse(categories=2, epsilon=e).event for e in (permanent, later))


def test_six_ones_then_six_zeros_against_all_ones():
    """Figures of the literature's design: 1.18 a later report, 6.5 lost over a year, not 2."""
    draws = drawn(0.5, 1.0)
    assert float(draws[1].epsilon) == pytest.approx(1.18, abs=5e-3)
    change, constant, reports = (1,) * 6 + (0,) * 6, (1,) * 12, (1,) * 6 + (0,) * 6
    loss = math.log(chance(reports, change, draws) / chance(reports, constant, draws))
    assert loss == pytest.approx(6.5, abs=0.05)
    stated = above(sequence_loss(*draws, 12))
    assert 2 < loss <= stated == pytest.approx(7.009, abs=1e-3)
    assert stated < 0.5 + 11 * float(draws[1].epsilon) < 14.2


def test_a_price_below_the_loss_is_refused():
    mechanism = tacit.MemoizedResponse(categories=2, epsilon=7.0, permanent_epsilon=1.0, reports=12)
    event = mechanism.event
    given = {name: getattr(event, name) for name in event.__dataclass_fields__}
    with pytest.raises(InvalidParameter, match="epsilon must be that of the whole sequence"):
        events.MemoizedResponse(**{**given, "epsilon": Fraction(699, 100)})
    with pytest.raises(InvalidParameter, match="epsilon must be that of the whole sequence"):
        events.MemoizedResponse(**{**given, "reports": 13})


def test_permanent_answers_that_are_redrawn_are_caught():
    """Two libraries redraw at each call: constant histories then lose T times the first report."""
    mechanism = tacit.MemoizedResponse(categories=2, epsilon=4.0, permanent_epsilon=1.0, reports=4)
    outputs, raw, count = mechanism.outputs(), [1, 1, 1, 1], 40_000
    law = np.exp(mechanism.log_prob(outputs, np.array([raw] * len(outputs))))

    def statistic(rows):
        counts = np.bincount(rows @ [8, 4, 2, 1], minlength=16)
        return float(((counts - count * law) ** 2 / (count * law)).sum())

    stream = tacit.Seeded(1)
    honest = mechanism.release(np.tile(raw, (count, 1)), stream)
    mutant = np.column_stack(
        [mechanism.release(np.tile(raw, (count, 1)), stream)[:, 0] for _ in range(4)]
    )
    assert statistic(honest) < 60 < 1000 < statistic(mutant)  # 15 degrees of freedom
    lost = 4 * mechanism.first_epsilon  # exact: independent reports
    assert lost > float(mechanism.event.same_pattern(1))


def test_a_year_of_monthly_reports():
    mechanism = tacit.MemoizedResponse(
        categories=4, epsilon=40.0, permanent_epsilon=4.0, reports=12
    )
    generator, people = np.random.default_rng(3), 2000
    months = [generator.choice(4, people, p=[0.5, 0.25, 0.15, 0.1])]
    for _ in range(11):
        moved = generator.random(people) < 0.1
        months.append(np.where(moved, generator.integers(0, 4, people), months[-1]))
    raw = np.column_stack(months)
    released = mechanism.release(raw, tacit.Seeded(4))
    held = []
    for month in range(12):
        estimate = mechanism.estimate_counts(mechanism.in_round(released, month))
        truth = np.bincount(raw[:, month], minlength=4)
        low, high = estimate.interval(0.99).T
        held.extend((low <= truth) & (truth <= high))
        assert np.all(np.abs(estimate.shares - truth / people) < 5 * estimate.standard_errors)
    assert np.mean(held) >= 0.95
    swapped = (raw + 1) % 4
    losses = np.abs(mechanism.log_prob(released, raw) - mechanism.log_prob(released, swapped))
    assert losses.max() <= mechanism.guarantee.epsilon == 40.0


def test_hashed_categories_have_unbiased_shares():
    mechanism = tacit.MemoizedResponse(
        categories=30, cells=2, epsilon=6.0, permanent_epsilon=3.0, reports=2
    )
    people = 20_000
    raw = np.repeat([[3, 7]], people, axis=0)
    released = mechanism.release(raw, tacit.Seeded(5))
    for month, own in enumerate((3, 7)):
        estimate = mechanism.estimate_counts(mechanism.in_round(released, month))
        truth = np.eye(30)[own]
        assert np.all(np.abs(estimate.shares - truth) < 5 * estimate.standard_errors)
        assert estimate.standard_errors.max() < 0.02
    laws = mechanism.log_prob(released[:5], raw[:5])
    assert np.all(laws < -53 * math.log(2))


# --- shares of a population, and what has changed ----------------------------------------------


def year_of(people, generator, moved=0.1, share=0.2, months=12):
    """Draw histories of 0 and 1: each month 10 % change their answer."""
    first = generator.random(people) < share
    changes = generator.random((people, months)) < moved
    changes[:, 0] = False
    return (first[:, None] ^ (np.cumsum(changes, axis=1) % 2 == 1)).astype(np.int64)


def test_intervals_of_shares_cover_noise_and_sampling():
    """Coverage over 400 years of 500 people; the interval of noise alone is the mutant."""
    mechanism = tacit.MemoizedResponse(categories=2, epsilon=7.1, permanent_epsilon=1.0, reports=12)
    generator, stream, people, years = np.random.default_rng(8), tacit.Seeded(9), 500, 400
    shares = [0.2]
    for _ in range(11):
        shares.append(0.9 * shares[-1] + 0.1 * (1 - shares[-1]))
    raw = year_of(people * years, generator).reshape(years, people, 12)
    released = mechanism.release(raw, stream)
    held, changed, naive = [], [], []
    for year in range(years):
        rounds = [mechanism.in_round(released[year], month) for month in range(12)]
        for month in (0, 5, 11):
            low, high = mechanism.estimate_counts(rounds[month]).share_interval()[1]
            held.append(low <= shares[month] <= high)
        for before, after in ((0, 1), (0, 11)):
            change = mechanism.estimate_change(rounds[before], rounds[after])
            low, high = change.interval()[1]
            changed.append(low <= shares[after] - shares[before] <= high)
        single = [mechanism.estimate_counts(rounds[month]).standard_errors[1] for month in (0, 1)]
        naive.append(
            math.hypot(*single) / mechanism.estimate_change(*rounds[:2]).standard_errors[1]
        )
    assert 0.93 <= np.mean(held) <= 0.985
    assert 0.93 <= np.mean(changed) <= 0.975
    # As if rounds were independent: too wide, because a person's two reports share an answer.
    assert np.mean(naive) > 1.1


def test_noise_alone_does_not_cover_a_population():
    mechanism = tacit.MemoizedResponse(categories=2, epsilon=40, permanent_epsilon=9.0, reports=2)
    generator, people, held = np.random.default_rng(1), 400, []
    for year in range(120):
        raw = (generator.random((people, 1)) < 0.3).astype(int).repeat(2, axis=1)
        estimate = mechanism.estimate_counts(
            mechanism.in_round(mechanism.release(raw, tacit.Seeded(year)), 0)
        )
        ends = np.stack([estimate.interval()[1] / people, estimate.share_interval()[1]])
        held.append((ends[:, 0] <= 0.3) & (ends[:, 1] >= 0.3))
    noise, both = np.mean(held, axis=0)
    assert noise < 0.7
    assert both >= 0.93


def test_changes_are_unbiased_with_a_hash_and_zero_without_change():
    mechanism = tacit.MemoizedResponse(
        categories=30, cells=4, epsilon=12.0, permanent_epsilon=4.0, reports=2
    )
    people = 30_000
    raw = np.repeat([[3, 7], [5, 5]], people // 2, axis=0)
    released = mechanism.release(raw, tacit.Seeded(5))
    rounds = [mechanism.in_round(released, number) for number in range(2)]
    change = mechanism.estimate_change(*rounds)
    truth = np.zeros(30)
    truth[[3, 7]] = -0.5, 0.5
    assert np.all(np.abs(change.values - truth) < 5 * change.standard_errors)
    assert change.people == people
    with pytest.raises(tacit.errors.InvalidData, match="same people"):
        mechanism.estimate_change(rounds[0], rounds[1][::-1])


@pytest.mark.parametrize("seen", [0, 1, 50, 100])
def test_intervals_at_the_ends_stay_within_shares(seen):
    mechanism = tacit.RandomizedResponse(categories=2, epsilon=1)
    reports = np.repeat([1, 0], [seen, 100 - seen])
    for low, high in mechanism.estimate_counts(reports).share_interval():
        assert 0 <= low <= high <= 1
