"""Attacks on what surveys and memoised answers state, each by a computation of its own.

Laws are written down here again, in rationals, and compared with what the library states of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

import tacit
from tacit.local.shuffling import readers
from tacit.privacy import errors
from tacit.privacy.randomness import Seeded

TOTAL = Fraction(2**64)


# --- memoised answers --------------------------------------------------------------------------


def draws(event):
    """The probabilities of a permanent answer, and of a report, to be true; each other equal."""
    kept, shown = Fraction(event.permanent_keep) / TOTAL, Fraction(event.later_keep) / TOTAL
    others = event.cells - 1
    return (kept, (1 - kept) / others), (shown, (1 - shown) / others)


def law_of(event, rounds, redrawn=False):
    """P(reports | history) by enumerating all permanent answers."""
    (p, q), (s, r) = draws(event)
    cells = range(event.cells)

    @lru_cache(None)
    def chance(reports, history):
        if redrawn:  # the mutant: a permanent answer is drawn at each call
            each = (
                sum((p if m == x else q) * (s if y == m else r) for m in cells)
                for x, y in zip(history, reports, strict=True)
            )
            return math.prod(each, start=Fraction(1))
        total = Fraction(0)
        for permanent in product(cells, repeat=event.cells):
            own = math.prod(
                (p if m == c else q for c, m in enumerate(permanent)), start=Fraction(1)
            )
            for x, y in zip(history, reports, strict=True):
                own *= s if permanent[x] == y else r
            total += own
        return total

    return chance


def losses(event, rounds, redrawn=False):
    """The loss of every report sequence between every two histories.

    Somebody who chooses each next answer after seeing the earlier reports has, for every sequence
    of reports, one of these histories: the largest loss is theirs, too.
    """
    chance = law_of(event, rounds, redrawn)
    every = list(product(range(event.cells), repeat=rounds))
    for first, second in product(every, repeat=2):
        ratio = max(chance(y, first) / chance(y, second) for y in every)
        yield first, second, math.log(ratio)


def pattern(history):
    """When a history returns to an earlier answer."""
    return tuple(history.index(one) for one in history)


@pytest.mark.parametrize(
    ("cells", "rounds", "epsilon", "permanent"),
    [(2, 4, 2.5, 1.0), (2, 4, 6.0, 0.3), (2, 1, 0.4, 0.5), (3, 3, 2.0, 1.0)],
)
def test_no_history_loses_more_than_is_stated(cells, rounds, epsilon, permanent):
    made = tacit.MemoizedResponse(
        categories=cells, epsilon=epsilon, permanent_epsilon=permanent, reports=rounds
    )
    event, worst, same = made.event, 0.0, 0.0
    for first, second, loss in losses(event, rounds):
        worst = max(worst, loss)
        if pattern(first) == pattern(second):
            distinct = len(set(first))
            assert loss <= float(event.same_pattern(distinct)) + 1e-9
            same = max(same, loss if distinct == 1 else 0.0)
    assert worst <= epsilon + 1e-12
    assert worst > 0.7 * epsilon  # the bound is not idle
    assert same <= permanent + 1e-12


def test_permanent_answers_that_are_redrawn_lose_more_than_is_stated():
    made = tacit.MemoizedResponse(categories=2, epsilon=2.5, permanent_epsilon=0.3, reports=4)
    calm = {(0,) * 4, (1,) * 4}
    largest = max(
        loss
        for first, second, loss in losses(made.event, 4, redrawn=True)
        if {first, second} == calm
    )
    assert largest > 0.3 + 0.05


def test_a_device_that_is_set_back_loses_more_than_one_report(tmp_path):
    """Two draws of a round are what the folder prevents; a copy of it does not."""
    made = tacit.MemoizedResponse(categories=2, epsilon=0.5, permanent_epsilon=1.0, reports=1)
    chance = law_of(made.event, 1)
    (p, q), (s, r) = draws(made.event)
    twice = {
        x: sum((p if m == x else q) * (s if m == 0 else r) ** 2 for m in (0, 1)) for x in (0, 1)
    }
    once = math.log(chance((0,), (0,)) / chance((0,), (1,)))
    assert math.log(twice[0] / twice[1]) > once
    device = tacit.Respondent(made, tmp_path / "a")
    first = device.report(0, number=0)
    assert all(tacit.Respondent(made, tmp_path / "a").report(1, number=0) == first for _ in "ab")


# --- several sheets behind one blanket ---------------------------------------------------------


def survey(epsilon=1.0, **changed):
    asked = {"a": tacit.YesNo(), "b": tacit.OneOf(("x", "y", "z"))}
    return tacit.Survey(asked, epsilon=epsilon, **changed)


def rows_of(law):
    """P(symbol | answer) of a sheet with one question whose sets have one symbol."""
    keep, k = Fraction(law.event.inclusion) / TOTAL, law.categories
    assert law.event.size == 1
    return [[keep if x == y else (1 - keep) / (k - 1) for y in range(k)] for x in range(k)]


def counted(laws, people):
    """The law of the counts of everybody's symbols."""
    counts = {(0,) * len(laws[0]): Fraction(1)}
    for x in people:
        after = defaultdict(Fraction)
        for key, chance in counts.items():
            for y, own in enumerate(laws[x]):
                after[(*key[:y], key[y] + 1, *key[y + 1 :])] += chance * own
        counts = after
    return counts


def delta_of(first, second, epsilon):
    odds = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 10**12))
    return sum(max(p - odds * second.get(key, 0), 0) for key, p in first.items())


def both(one, other):
    """The joint law of two independent tables of counts."""
    return {(a, b): p * q for a, p in one.items() for b, q in other.items()}


def test_readers_of_all_sheets_learn_no_more_than_is_stated():
    """Whoever sees the counts of both sheets, and knows everybody else, in all ways."""
    made, people, delta = survey(), 6, 0.02
    stated = tacit.shuffled(made, people=people, delta=delta).epsilon
    assert stated < 1
    for parts in made.channel().sheets:
        laws = rows_of(parts[0].law)
        answers = range(len(laws))
        for others in combinations_with_replacement(answers, people - 1):
            for x, y in product(answers, repeat=2):
                first, second = (counted(laws, (*others, one)) for one in (x, y))
                # The other sheet's counts do not depend on this person: they cancel.
                assert delta_of(first, second, stated) <= delta


def test_a_person_on_two_sheets_loses_more_and_is_certified_so():
    made, people, delta = survey(), 6, 0.02
    stated = tacit.shuffled(made, people=people, delta=delta).epsilon
    tables = [rows_of(parts[0].law) for parts in made.channel().sheets]
    first, second = (
        both(*(counted(laws, ((0,) * (people - 1)) + (x,)) for laws in tables)) for x in (0, 1)
    )
    assert delta_of(first, second, stated) > delta
    rows = {"a": [True] * 24, "b": ["x"] * 24}
    names = [*map(str, range(12))] * 2
    reports = made.release(rows, assigned=["a", "b"] * 12, persons=names, most=2)
    towards = reports.readers().guarantee
    assert towards.epsilon == 2
    assert towards.delta == 0


def test_people_of_another_sheet_hide_nobody():
    """The mutant that counts all people: its bound is refuted by the small sheet's counts."""
    made, delta = survey(), 0.02
    pooled = tacit.shuffled(made, people=60, delta=delta).epsilon
    laws = rows_of(made.channel().sheets[0][0].law)
    first, second = (counted(laws, (0, 0, 0, 0, 0, x)) for x in (0, 1))
    assert delta_of(first, second, pooled) > delta
    rows = {"a": [True] * 60, "b": ["x"] * 60}
    reports = made.release(rows, rng=Seeded(1), assigned=["a"] * 6 + ["b"] * 54)
    assert reports.readers(delta).people == 6
    assert reports.readers(delta).guarantee.epsilon > pooled


@pytest.mark.parametrize("fake", [1, 3, 5])
def test_made_up_reports_do_not_hide(fake):
    """Fakes are known to whoever made them: the others have the counts of honest people alone."""
    made, people, delta = survey(), 7, 0.02
    stated = tacit.shuffled(made, people=people, fake=fake, delta=delta)
    assert stated == tacit.shuffled(made, people=people - fake, delta=delta)
    laws = rows_of(made.channel().sheets[0][0].law)
    honest = people - fake - 1
    for others in combinations_with_replacement((0, 1), honest):
        first, second = (counted(laws, (*others, x)) for x in (0, 1))
        assert delta_of(first, second, stated.epsilon) <= delta


# --- batches -----------------------------------------------------------------------------------


def test_results_before_and_after_one_report_give_it_away():
    """Why a statement towards readers takes one closed batch: the library compares no such two."""
    made = survey()
    rows = {"a": [True] * 400, "b": ["x"] * 400}
    reports = made.release(rows)
    earlier = reports[:-1]
    counts = [
        np.bincount(one.columns["sheet"] * 4 + one.columns["symbols"][:, 0], minlength=8)
        for one in (earlier, reports)
    ]
    (place,) = np.flatnonzero(counts[1] - counts[0])
    last = reports[-1:].columns
    assert place == last["sheet"][0] * 4 + last["symbols"][0, 0]
    for ask in (
        lambda: made.change(earlier, reports, "share of a"),
        lambda: made.answer([earlier, reports], "trend of share of a"),
        lambda: tacit.Reports.concatenate([earlier, reports]),
    ):
        with pytest.raises(errors.InvalidData, match="occur once"):
            ask()


def test_a_withdrawn_report_is_not_a_round_of_its_own():
    made = survey()
    reports = made.release({"a": [True] * 400, "b": ["x"] * 400})
    kept = reports[np.arange(400) != 17]
    with pytest.raises(errors.InvalidData, match="occur once"):
        made.change(reports, kept, "share of a")


def test_empty_batches_promise_nothing_and_answer_nothing():
    made = survey()
    full = made.release({"a": [True] * 400, "b": ["x"] * 400})
    empty = full[:0]
    with pytest.raises(errors.InvalidParameter, match="at least one"):
        readers([empty])
    for ask in (
        lambda: made.answer(empty, "share of a"),
        lambda: made.answer([full, empty], "trend of share of a"),
        lambda: made.change(empty, full, "share of a"),
    ):
        with pytest.raises(errors.InvalidParameter, match="two reports or more"):
            ask()
    assert readers([full, empty]) == readers([full])


def test_a_sheet_with_one_person_decides_for_all():
    made = survey()
    rows = {"a": [True] * 400, "b": ["x"] * 400}
    reports = made.release(rows, assigned=["a"] * 399 + ["b"])
    found = made.answer(reports, "share of a")
    assert found.certificate.readers.people == 1
    assert found.certificate.readers.guarantee.epsilon == 1


def test_rounds_that_were_chosen_after_results_do_not_pool():
    """A second round, on whatever the first one showed: its people are not behind the first."""
    made = survey()
    rows = {"a": [True] * 400, "b": ["x"] * 400}
    first, second = (made.release(rows, rng=Seeded(seed)) for seed in (1, 2))
    found = made.answer([first, second], "trend of share of a")
    smallest = min(np.bincount(one.columns["sheet"]).min() for one in (first, second))
    assert found.certificate.readers.people == smallest
    alone = max(made.answer(one, "share of a").certificate.readers.guarantee.epsilon
                for one in (first, second))  # fmt: skip
    assert found.certificate.readers.guarantee.epsilon >= alone
