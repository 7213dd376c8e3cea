"""`LocalVector`: its law by enumeration in fractions, means, variances, draws, caps, estimates."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

import tacit
from tacit.audit import exact
from tacit.privacy import events, plain
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.mechanisms import LocalMean, LocalVector
from tacit.privacy.mechanisms.sign_caps import best_cap

CAPS = [(1, 1, 1), (2, 1, 1), (3, 3, 2), (4, 3, 3), (5, 4, 1), (6, 2, 2)]
EPSILONS = [1e-9, 0.01, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0]


def made(epsilon: float, dimension: int, **given) -> LocalVector:
    return LocalVector(dimension=dimension, lower=-1, upper=1, epsilon=epsilon, **given)


def law(event: events.SignVector, rounded: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
    """The probability of each report, from the words of the event alone."""
    told, share = event.told, Fraction(event.inclusion, 2**64)
    found = {}
    for report in itertools.product((-1, 0, 1), repeat=event.dimension):
        if np.count_nonzero(report) == told:
            agree = sum(one * other > 0 for one, other in zip(report, rounded, strict=True))
            inside = agree >= event.agreeing
            choices = event.held if inside else 2**told - event.held
            chance = share if inside else 1 - share
            found[report] = chance / choices / math.comb(event.dimension, told)
    return found


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("dimension", "told", "agreeing"), CAPS)
def test_exact_profile_by_enumeration(
    epsilon: float, dimension: int, told: int, agreeing: int
) -> None:
    mechanism = made(epsilon, dimension, told=told, agreeing=agreeing)
    laws = [law(mechanism.event, s) for s in itertools.product((-1, 1), repeat=dimension)]
    assert all(sum(one.values()) == 1 for one in laws)
    worst = max(max(at) / min(at) for at in zip(*(one.values() for one in laws), strict=True))
    with mp.workprec(400):
        ratio = mp.mpf(worst.numerator) / worst.denominator
        assert ratio <= mp.exp(mp.mpf(repr(epsilon)))
        if epsilon >= 0.5:  # and nothing is given away
            assert ratio * (1 + mp.mpf(10) ** -8) > mp.exp(mp.mpf(repr(epsilon)))


@pytest.mark.parametrize("inclusion", [1, -1])
def test_a_mutant_event_is_refused(inclusion: int) -> None:
    """One part in a billion more on either side."""
    event = made(2.0, 4, told=3, agreeing=2).event
    replace(event, inclusion=event.inclusion - 1)
    flipped = 2**64 - event.inclusion  # the other side of e^ε: the cap is half of all
    wrong = (
        event.inclusion + event.inclusion // 10**9 if inclusion > 0 else flipped - flipped // 10**9
    )
    with pytest.raises(InvalidParameter, match="inclusion must be within"):
        replace(event, inclusion=wrong)
    with pytest.raises(InvalidParameter, match="inclusion must be within"):
        replace(event, agreeing=3)  # a smaller cap with the same share


@pytest.mark.parametrize(("dimension", "told", "agreeing"), CAPS)
def test_scores_are_unbiased_and_the_stated_law_is_a_mixture(
    dimension: int, told: int, agreeing: int
) -> None:
    mechanism = made(1.5, dimension, told=told, agreeing=agreeing)
    vector = np.array([0.3, -1.0, 0.77, 0.0, 1.0, -0.2])[:dimension]
    mixed: dict[tuple[int, ...], float] = {}
    for rounded in itertools.product((-1, 1), repeat=dimension):
        weight = float(np.prod((1 + np.array(rounded) * vector) / 2))
        for report, chance in law(mechanism.event, rounded).items():
            mixed[report] = mixed.get(report, 0.0) + weight * float(chance)
    outputs = mechanism.outputs()
    stated = np.exp(mechanism.log_prob(outputs, np.broadcast_to(vector, outputs.shape)))
    assert stated == pytest.approx([mixed[tuple(one)] for one in outputs.tolist()], rel=1e-9)
    scores = mechanism.scores(outputs)
    assert stated @ scores == pytest.approx(vector, abs=1e-9)
    spread = stated @ (scores - vector) ** 2
    assert mechanism.variance(vector) == pytest.approx(spread, rel=1e-9)


def test_every_vector_is_within_the_worst_corners() -> None:
    """The profile of vectors inside is below that of the corners, at every δ."""
    mechanism, rng = made(1.0, 3, told=2, agreeing=2), np.random.default_rng(4)
    corners = list(itertools.product((-1.0, 1.0), repeat=3))
    vectors = rng.uniform(-1.2, 1.2, (12, 3)).tolist()
    worst, inside = (
        exact.tabulate_over(mechanism, given, mechanism.outputs(), lambda a, b: True)
        for given in (corners, vectors)
    )
    assert 1 - 1e-9 < exact.smallest_epsilon(worst) <= 1 + 1e-12
    for epsilon in (0.0, 0.3, 0.9):
        assert exact.profile(inside, epsilon) <= exact.profile(worst, epsilon) + 1e-12


@pytest.mark.parametrize(
    ("dimension", "epsilon"), [(2, 1.0), (4, 2.0), (8, 4.0), (16, 8.0), (32, 8.0)]
)
def test_draws_have_the_stated_mean_and_variance(dimension: int, epsilon: float) -> None:
    mechanism, draws = made(epsilon, dimension), 100_000
    vector = np.linspace(-1, 1, dimension)
    released = mechanism.release(np.tile(vector, (draws, 1)), tacit.Seeded(5))
    scores, variance = mechanism.scores(released), mechanism.variance(vector)
    assert np.all(np.abs(scores.mean(axis=0) - vector) < 5 * np.sqrt(variance / draws))
    total = float(scores.var(axis=0).sum())
    assert total == pytest.approx(float(variance.sum()), rel=0.02)
    cap = {"told": mechanism.event.told, "agreeing": mechanism.event.agreeing}
    mutant = made(1.2 * epsilon, dimension, **cap)  # its reports, with the scores of this one
    reports = mutant.release(np.tile(vector, (draws, 1)), tacit.Seeded(5))
    length, error = vector @ vector, math.sqrt(mechanism.worst_variances[0] / draws)
    off = [
        abs(float(one.mean(axis=0) @ vector) / length - 1) * math.sqrt(length) / error
        for one in (scores, mechanism.scores(reports))
    ]
    assert off[0] < 5 < 10 < off[1]


def test_signs_go_together_only_through_the_cap() -> None:
    """Pairs of signs of a report have the law that is stated, not that of independent signs."""
    mechanism, draws = made(4.0, 4), 200_000
    assert (mechanism.event.told, mechanism.event.agreeing) == (4, 4)
    released = mechanism.release(np.ones((draws, 4)), tacit.Seeded(8))
    outputs = mechanism.outputs()
    expected = draws * np.exp(mechanism.log_prob(outputs, np.ones(outputs.shape)))
    seen = np.array([np.all(released == one, axis=1).sum() for one in outputs])
    assert float(((seen - expected) ** 2 / expected).sum()) < 60  # 15 degrees of freedom
    apart = np.column_stack([np.roll(released[:, j], 7 * j) for j in range(4)])  # the mutant
    seen = np.array([np.all(apart == one, axis=1).sum() for one in outputs])
    assert float(((seen - expected) ** 2 / expected).sum()) > 1000


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 4.0, 8.0])
def test_the_default_cap_is_the_best(epsilon: float) -> None:
    for dimension in (1, 2, 5, 8):
        chosen = made(epsilon, dimension)
        moments = [
            made(epsilon, dimension, told=told, agreeing=agreeing).worst_variances[0]
            for told in range(1, dimension + 1)
            for agreeing in range(1, told + 1)
        ]
        assert chosen.worst_variances[0] == pytest.approx(min(moments), rel=1e-9)
        best = made(epsilon, dimension, told=dimension)
        assert (best.event.told, best.event.agreeing) == best_cap(
            dimension, Fraction(repr(epsilon)), dimension
        )


@pytest.mark.parametrize("dimension", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0, 8.0])
def test_the_largest_error_is_below_that_of_one_number_drawn_at_random(
    epsilon: float, dimension: int
) -> None:
    number = np.linspace(-1, 1, 2001)
    moment = LocalMean(lower=-1, upper=1, epsilon=epsilon).variance(number) + number**2
    sampled = float((dimension * moment - number**2).max())
    ours = float(made(epsilon, dimension).worst_variances[0])
    assert (ours < sampled) == ((epsilon, dimension) != (1.0, 2))


@pytest.mark.parametrize("people", [40, 1000])
def test_intervals_cover_the_population(people: int) -> None:
    mechanism = LocalVector(dimension=3, lower=[0, 0, -5], upper=[10, 1, 5], epsilon=4.0)
    rng, stream, hits, noise = np.random.default_rng(1), tacit.Seeded(7), np.zeros(3), np.zeros(3)
    for _ in range(600):
        numbers = rng.choice([1.0, 9.0], size=(people, 1)) * [1, 0.1, 1] - [0, 0, 5]
        found = mechanism.estimate(mechanism.release(numbers, stream))
        low, high = found.interval(0.9)
        hits += (low <= [5, 0.5, 0]) & (high >= [5, 0.5, 0])
        only = 1.645 * np.sqrt(mechanism.variance(numbers).mean(axis=0) / people)
        noise += np.abs(found.means - [5, 0.5, 0]) <= only
    assert np.all((hits / 600 >= 0.86) & (hits / 600 <= 0.94))
    assert np.all(noise / 600 < 0.86)  # an interval of the noise alone does not


def test_estimates_of_few_reports_are_not_certain() -> None:
    mechanism = LocalVector(dimension=2, lower=0, upper=[1, 10], epsilon=20.0)
    single = mechanism.estimate([1, 1])
    assert single.reports == 1
    assert np.all(single.variances > 0)
    assert np.all(mechanism.estimate([[1, 1], [1, 1]]).variances > 0)
    weak = LocalVector(dimension=2, lower=0, upper=[1, 10], epsilon=1.0)
    assert weak.estimate([[1, 0]]).noise_variances == pytest.approx(weak.worst_variances)


def test_numbers_are_clipped_and_many_shapes_are_taken() -> None:
    mechanism = LocalVector(dimension=3, lower=[0, -2, 5], upper=[1, 2, 6], epsilon=1.0)
    raw = np.array([[[9.0, -1e300, 5.5]], [[1.0, -2.0, 5.5]]])
    released = mechanism.release(raw, tacit.Seeded(1))
    assert released.shape == raw.shape
    laws = mechanism.log_prob(released[0, 0], raw)
    assert laws.shape == (2, 1)
    assert laws[0] == laws[1]
    assert mechanism.scores(released).shape == raw.shape
    for wrong in ([1.0, 2.0], 3.0, [[1.0], [2.0]]):
        with pytest.raises(InvalidData, match="3 numbers in each row"):
            mechanism.release(wrong)
    for report in ([1, 1, 1], [0, 0, 0], [1, 0], 2, [2, 0, 0]):
        with pytest.raises(InvalidData):
            mechanism.log_prob(report, [0.5, 0.0, 5.5])


def test_large_dimensions_and_bounds_of_each_number() -> None:
    mechanism = LocalVector(dimension=1024, lower=0, upper=1, epsilon=8.0)
    assert mechanism.event.told == 32
    assert mechanism.release(np.zeros((3, 1024))).shape == (3, 1024)
    for given in ({"lower": [0.0, 9.0]}, {"upper": [1.0, 0.0]}, {"upper": [1.0, 1.0, 1.0]}):
        with pytest.raises(InvalidParameter, match=r"LocalVector: (upper|lower) must be"):
            LocalVector(**{"dimension": 2, "lower": 0, "upper": 1, "epsilon": 1.0, **given})
    with pytest.raises(InvalidParameter, match="told must be given where agreeing is"):
        made(1.0, 3, agreeing=1)


def test_event_comes_back_from_plain_data_and_readers_learn_less() -> None:
    mechanism = made(2.0, 5)
    assert plain.event_from_plain(plain.to_plain(mechanism.event)) == mechanism.event
    assert replace(mechanism, unit="person").guarantee.unit == "person"
    central = tacit.shuffled(mechanism, people=10_000, delta=1e-6)
    same = tacit.shuffled(LocalMean(lower=0, upper=1, epsilon=2.0), people=10_000, delta=1e-6)
    assert central == replace(same, unit=central.unit)  # that of any channel
    assert central.epsilon < 0.5
