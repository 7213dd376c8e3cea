"""Shuffled reports: against enumeration in rationals, and against published figures."""

from __future__ import annotations

import time
from collections import defaultdict
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest

import tacit
from tacit.privacy import errors
from tacit.privacy.accounting import blanket, readers
from tacit.privacy.rounding import exp_floor

Laws = list[list[Fraction]]
DELTA = 1e-3


def response(categories: int, epsilon: float) -> tuple[tacit.RandomizedResponse, Laws]:
    law = tacit.RandomizedResponse(categories=categories, epsilon=epsilon)
    keep, other = Fraction(law.event.keep, 2**64), Fraction(law.event.other, 2**64)
    return law, [[keep if x == y else other for y in range(categories)] for x in range(categories)]


def subsets(epsilon: float) -> tuple[tacit.SubsetSelection, Laws]:
    law = tacit.SubsetSelection(categories=4, epsilon=epsilon, size=2)
    p = Fraction(law.event.inclusion, 2**64)
    sets = law.outputs().tolist()
    return law, [[p / 3 if x in one else (1 - p) / 3 for one in sets] for x in range(4)]


def table(epsilon: float) -> tuple[tacit.IntegerTable, Laws]:
    weights = [[20, 10, 10], [9, 20, 11], [10, 15, 15]]
    pairs = [(0, 1), (0, 2), (1, 2)]
    law = tacit.IntegerTable(weights, pairs, epsilon=epsilon, adjacency="any-two-inputs")
    return law, [[Fraction(w, 40) for w in row] for row in weights]


def integers(laws: Laws) -> tuple[list[list[int]], int]:
    """Return the laws over one denominator."""
    scale = int(np.lcm.reduce([p.denominator for row in laws for p in row], dtype=object))
    return [[int(p * scale) for p in row] for row in laws], scale


def add(counts: dict, row: list[int]) -> dict:
    """Add one person's report to the law of the counts of all reports, in integers."""
    after: dict = defaultdict(int)
    for key, weight in counts.items():
        for y, w in enumerate(row):
            if w:
                after[(*key[:y], key[y] + 1, *key[y + 1 :])] += weight * w
    return after


def exact_delta(laws: Laws, others: tuple[int, ...], pair: tuple[int, int], epsilon: float):
    """Compute δ of the multiset of all reports, for one person with either input, exactly."""
    rows, scale = integers(laws)
    counts = {(0,) * len(rows[0]): 1}
    for x in others:
        counts = add(counts, rows[x])
    first, second = (add(counts, rows[x]) for x in pair)
    odds = exp_floor(Fraction(repr(epsilon)), 128)
    excess = sum(
        max((weight << 128) - odds * second.get(key, 0), 0) for key, weight in first.items()
    )
    return Fraction(excess, scale ** (len(others) + 1) << 128)


def worst(laws: Laws, people: int, epsilon: float, step: int = 1) -> Fraction:
    """Compute the largest exact δ over everybody else's inputs (every `step`-th) and all pairs."""
    inputs = range(len(laws))
    everyone = list(combinations_with_replacement(inputs, people - 1))[::step]
    pairs = [(x, y) for x in inputs for y in inputs if x != y]
    return max(exact_delta(laws, o, pair, epsilon) for o in everyone for pair in pairs)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("people", [1, 2, 5, 20, 50])
def test_binary_answers_are_never_below_enumeration(people: int, epsilon: float) -> None:
    law, laws = response(2, epsilon)
    stated = tacit.shuffled(law, people=people, delta=DELTA)
    assert worst(laws, people, stated.epsilon, step=7 if people > 20 else 1) <= DELTA
    assert stated.epsilon <= epsilon


@pytest.mark.parametrize(
    ("made", "people", "step"),
    [
        (response(4, 1.0), 6, 5),
        (response(4, 2.0), 12, 121),
        (subsets(1.0), 6, 9),
        (subsets(2.0), 12, 181),
        (table(1.0), 8, 1),
    ],
    ids=["4-RR 6", "4-RR 12", "subsets 6", "subsets 12", "table 8"],
)
def test_more_symbols_are_never_below_enumeration(made, people: int, step: int) -> None:
    law, laws = made
    stated = tacit.shuffled(law, people=people, delta=0.01)
    assert worst(laws, people, stated.epsilon, step) <= Fraction(1, 100)


@pytest.mark.parametrize("people", [1, 2, 3, 4, 6, 8, 10, 12])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_four_symbols_are_never_below_enumeration(people: int, epsilon: float) -> None:
    """Everybody else in all ways; of the pairs one, because all are alike up to names."""
    law, laws = response(4, epsilon)
    stated = tacit.shuffled(law, people=people, delta=0.01)
    everyone = combinations_with_replacement(range(4), people - 1)
    others = {one for one in everyone if one.count(2) <= one.count(3)}
    assert max(exact_delta(laws, o, (0, 1), stated.epsilon) for o in others) <= Fraction(1, 100)


def test_pairs_of_four_symbols_are_alike() -> None:
    _, laws = response(4, 1.0)
    one = exact_delta(laws, (0, 1, 2), (0, 1), 0.3)
    assert (
        one
        == exact_delta(laws, (2, 3, 1), (2, 3), 0.3)
        == exact_delta(laws, (0, 1, 3), (0, 1), 0.3)
    )


def test_any_channel_is_never_below_enumeration() -> None:
    _, laws = response(2, 1.0)
    stated = blanket.epsilon_of([blanket.clones(1.0)], 20, DELTA, 1.0)
    assert stated < 1
    assert worst(laws, 20, stated) <= DELTA


def test_too_many_people_or_no_blanket_would_be_caught() -> None:
    law, laws = response(2, 1.0)
    twice = tacit.shuffled(law, people=100, delta=DELTA).epsilon
    assert worst(laws, 50, twice, step=7) > DELTA
    # Without γ everybody is in the blanket.
    honest = readers._of_response(law.event)
    share = sum(mass for mass, _, _ in honest.held)
    dropped = blanket.Hidden(tuple((m / share, a * share, b * share) for m, a, b in honest.held))
    assert worst(laws, 50, blanket.epsilon_of([dropped], 50, DELTA, 1.0), step=7) > DELTA


@pytest.mark.parametrize("people", [1, 3, 30])
def test_the_grid_is_above_and_close_to_the_exact_blanket(people: int) -> None:
    pair = readers._of_response(response(2, 2.0)[0].event)
    epsilon = 0.6
    odds = Fraction(exp_floor(Fraction(repr(epsilon)), 128), 2**128)
    losses = [(mass, a - odds * b) for mass, a, b in pair.held]
    losses.append((1 - sum(mass for mass, _ in losses), Fraction(0)))
    sums = {Fraction(0): Fraction(1)}
    for _ in range(people):
        after: dict = defaultdict(Fraction)
        for total, weight in sums.items():
            for mass, loss in losses:
                after[total + loss] += weight * mass
        sums = after
    exact = sum(max(total, Fraction(0)) * weight for total, weight in sums.items()) / people
    assert exact <= pair.delta_of(epsilon, people, 1e-3) <= exact * Fraction(1002, 1000)


FIGURES = {1.0: (0.026, 0.037, 0.045), 2.0: (0.070, 0.098, 0.132), 4.0: (0.247, 0.349, 0.507)}


@pytest.mark.parametrize("epsilon", FIGURES)
def test_figures_are_at_most_the_published_ones(epsilon: float) -> None:
    selection = tacit.SubsetSelection(categories=256, epsilon=epsilon)
    answer = tacit.RandomizedResponse(categories=2, epsilon=epsilon)
    anything = blanket.epsilon_of([blanket.clones(epsilon)], 13_500, 1e-6, epsilon)
    stated = [tacit.shuffled(one).epsilon for one in (selection, answer)] + [anything]
    for one, most in zip(stated, FIGURES[epsilon], strict=True):
        assert 0.9 * most < one < most + 0.0005
    guarantee = tacit.shuffled(answer)
    assert (guarantee.adjacency, guarantee.delta) == ("replace-one", 1e-6)


def test_a_million_people_take_less_than_a_second() -> None:
    start = time.process_time()
    stated = tacit.shuffled(tacit.SubsetSelection(categories=256, epsilon=4.0), people=10**6)
    assert stated.epsilon < 0.03
    assert time.process_time() - start < 1


def test_never_worse_than_a_report() -> None:
    law = tacit.RandomizedResponse(categories=2, epsilon=8.0)
    stated = tacit.shuffled(law, people=3)
    assert isinstance(stated, tacit.PureDP)
    assert stated.epsilon == 8.0
    assert stated.adjacency == "replace-one"


@pytest.mark.parametrize("epsilon", [16.0, 20.0, 24.0, 100.0])
@pytest.mark.parametrize("people", [1, 2000, 10**9])
def test_almost_no_noise_gains_at_most_nothing(epsilon: float, people: int) -> None:
    """Losses overflowed here once."""
    laws = (
        tacit.RandomizedResponse(categories=2, epsilon=epsilon),
        tacit.SubsetSelection(categories=256, epsilon=epsilon),
    )
    for law in laws:
        assert 0 < tacit.shuffled(law, people=people).epsilon <= epsilon


def test_fake_people_hide_nobody() -> None:
    law = tacit.RandomizedResponse(categories=2, epsilon=1.0)
    assert tacit.shuffled(law, people=1500, fake=500) == tacit.shuffled(law, people=1000)
    with pytest.raises(errors.InvalidParameter, match="fake"):
        tacit.shuffled(law, people=10, fake=10)


def test_subset_selection_law_adds_up() -> None:
    for categories in (2, 4, 10, 256):
        for epsilon in (0.1, 1.0, 4.0):
            law = tacit.SubsetSelection(categories=categories, epsilon=epsilon)
            held = readers._of_subsets(law.event).held
            assert sum(m * a for m, a, _ in held) == 1 == sum(m * b for m, _, b in held)


def test_the_law_of_points_is_that_of_the_channel() -> None:
    for order in (2, 3, 11):
        law = tacit.ProjectiveGeometryResponse(categories=12, epsilon=1.0, order=order)
        outputs = np.array(law.outputs())
        chances = np.exp([law.log_prob(outputs, np.full(outputs.shape, x)) for x in range(12)])
        least = chances.min(axis=0)
        held = readers._of_points(law.event).held
        found = sorted((float(m), float(a), float(b)) for m, a, b in held)
        kinds: dict[tuple[float, float], float] = {}
        for mass, a, b in zip(least, chances[3] / least, chances[8] / least, strict=True):
            key = (round(float(a), 9), round(float(b), 9))
            kinds[key] = kinds.get(key, 0.0) + float(mass)
        listed = sorted((mass, *key) for key, mass in kinds.items())
        assert np.array(found) == pytest.approx(np.array(listed), rel=1e-8)


def test_a_central_mechanism_is_refused() -> None:
    with pytest.raises(errors.InvalidParameter, match="own data"):
        tacit.shuffled(tacit.Laplace(epsilon=1.0, sensitivity=1.0, adjacency="replace-one"))


@pytest.mark.parametrize("delta", [0.5, 0.6, 1.0, -0.1, float("nan")])
def test_a_delta_that_protects_nobody_is_refused(delta: float) -> None:
    """With one half or more, (0, δ)-DP was stated of any channel."""
    survey = tacit.Survey({"smoker": tacit.YesNo()}, epsilon=1)
    reports = survey.release({"smoker": ["yes", "no"] * 200})
    for state in (
        lambda: tacit.shuffled(survey, people=400, delta=delta),
        lambda: survey.answer(reports, "share of smoker", delta=delta),
    ):
        with pytest.raises(errors.InvalidParameter, match="delta must be"):
            state()
    with pytest.warns(errors.LargeDelta):
        tacit.shuffled(survey, people=400, delta=0.01)
