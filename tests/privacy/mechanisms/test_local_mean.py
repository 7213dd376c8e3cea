"""`LocalMean`: ratios and means in rationals, variances, draws, estimates; mutants are refused."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

import tacit
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import IntegerTable, LocalMean
from tacit.privacy.mechanisms.mean_design import HALF, TOTAL

EPSILONS = [1e-9, 1e-4, 0.01, 0.05, 0.099, 0.1, 0.3, 0.7, 1.0, 1.5, 2.0, 3.3, 4.0, 6.0, 8.0, 10.0]
EPSILONS += [12.0, 14.0, 50.0]


def made(epsilon: float) -> LocalMean:
    return LocalMean(lower=-1, upper=1, epsilon=epsilon)


def law(mechanism: LocalMean) -> list[list[Fraction]]:
    rows = mechanism.table.rows
    return [[Fraction(w, rows.total(x)) for w in rows.weights(x)] for x in range(len(rows))]


def holds(ratio: Fraction, epsilon: float) -> bool:
    """Whether the ratio is at most e^ε, with 400 bits; ε is its shortest decimal."""
    with mp.workprec(400):
        return bool(mp.mpf(ratio.numerator) / ratio.denominator <= mp.exp(mp.mpf(repr(epsilon))))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_ratios_and_means_in_rationals(epsilon: float) -> None:
    mechanism = made(epsilon)
    columns = list(zip(*law(mechanism), strict=True))
    worst = max(max(column) / min(column) for column in columns)
    assert holds(worst, epsilon)
    if 1e-4 <= epsilon <= 12:  # and nothing is given away
        assert not holds(worst * (1 + Fraction(1, 10**8)), epsilon)
    scores = mechanism._windows.values()
    for point, row in enumerate(law(mechanism)):
        assert sum(p * v for p, v in zip(row, scores, strict=True)) == Fraction(point, HALF) - 1


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0, 12.0])
def test_a_mutant_table_is_refused(epsilon: float) -> None:
    """One part in a billion more on the symbol that decides."""
    mechanism = made(epsilon)
    rows = [list(mechanism.table.rows.weights(x)) for x in range(2 * HALF + 1)]
    rows[-1][-1] += rows[-1][-1] // 10**9
    given = {"epsilon": epsilon, "adjacency": "any-two-inputs"}
    with pytest.raises(InvalidParameter, match="weights must be within"):
        IntegerTable(rows, mechanism.table.pairs, **given)
    with pytest.raises(InvalidParameter, match="weights must be within"):
        IntegerTable(mechanism.table.weights, mechanism.table.pairs, **given | {"epsilon": 0.04})


def test_numbers_between_points_are_mixtures() -> None:
    mechanism = LocalMean(lower=0, upper=64, epsilon=1.0)
    outputs = np.array(mechanism.outputs())
    at = lambda number: np.exp(mechanism.log_prob(outputs, np.full(outputs.shape, number)))  # noqa: E731
    assert at(10.25) == pytest.approx(0.75 * at(10.0) + 0.25 * at(11.0), rel=1e-12)
    assert np.array_equal(at(-1e300), at(0.0))
    assert np.array_equal(at(2**60), at(64.0))
    for number in (0.0, 3.2, 31.99, 64.0):
        assert at(number).sum() == pytest.approx(1, abs=1e-12)
        assert at(number) @ mechanism.values == pytest.approx(number, abs=1e-9)
        spread = at(number) @ (mechanism.values - number) ** 2
        assert mechanism.variance(number) == pytest.approx(spread, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "hybrid"), [(1.0, 4.289), (2.0, 1.042), (4.0, 0.219)])
def test_the_worst_variance_is_below_the_hybrid_mechanism(epsilon: float, hybrid: float) -> None:
    mechanism = made(epsilon)
    fine = float(mechanism.variance(np.linspace(-1, 1, 20_001)).max())
    assert mechanism.worst_variance == pytest.approx(fine, rel=1e-3)
    assert fine <= mechanism.worst_variance * (1 + 1e-9)
    assert mechanism.worst_variance < 0.94 * hybrid


@pytest.mark.parametrize("number", [-1.0, -0.3, 0.0, 0.995])
def test_draws_have_the_stated_mean_and_variance(number: float) -> None:
    mechanism, draws = made(2.0), 400_000
    scores = mechanism.values[mechanism.release(np.full(draws, number), tacit.Seeded(5))]
    variance = float(mechanism.variance(number))
    assert abs(scores.mean() - number) < 5 * math.sqrt(variance / draws)
    assert scores.var() == pytest.approx(variance, rel=0.02)
    wrong = made(2.2)  # a mutant: scores of another table
    shifted = wrong.release(np.full(draws, number), tacit.Seeded(5)) % len(mechanism.values)
    assert mechanism.values[shifted].var() != pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize("people", [40, 1000])
def test_intervals_cover_the_population(people: int) -> None:
    mechanism, rng, stream = LocalMean(lower=0, upper=10, epsilon=2.0), np.random.default_rng(1), 7
    source, hits, narrow = tacit.Seeded(stream), 0, 0
    for _ in range(600):
        numbers = rng.choice([1.0, 9.0], size=people)
        found = mechanism.estimate(mechanism.release(numbers, source))
        low, high = found.interval(0.9)
        hits += low <= 5.0 <= high
        sampling = found.variance - found.noise_variance
        narrow += abs(found.mean - 5.0) <= 1.645 * math.sqrt(max(sampling, 0))
    assert 0.86 <= hits / 600 <= 0.94
    assert narrow / 600 < 0.8  # an interval of the sampling error alone does not


def test_estimates_of_few_reports_are_not_certain() -> None:
    mechanism = LocalMean(lower=0, upper=10, epsilon=1.0)
    alike = mechanism.estimate([3, 3])
    assert alike.variance >= mechanism.variance(mechanism.points).min() / 2 > 0
    single = mechanism.estimate([3])
    assert single.variance == pytest.approx(mechanism.worst_variance + 25)
    assert single.reports == 1


def test_a_stored_base_gives_the_same_table() -> None:
    mechanism = LocalMean(lower=0, upper=10, epsilon=1.0)
    again = LocalMean(lower=0, upper=10, epsilon=1.0, base=iter(list(mechanism.base)))
    assert again == mechanism
    assert again.event == mechanism.event
    assert replace(mechanism, unit="person").guarantee.unit == "person"


def test_any_base_that_is_taken_keeps_the_guarantee() -> None:
    """Whoever writes the base chooses the variance, and nothing else."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        half = (rng.random(HALF + 1) ** 6 * TOTAL / 70).astype(np.int64).tolist()
        base = (*half, *half[-2::-1])
        epsilon = math.log(TOTAL / sum(base)) + 0.5
        mechanism = LocalMean(lower=-1, upper=1, epsilon=epsilon, base=base)
        columns = zip(*law(mechanism), strict=True)
        assert all(holds(max(column) / min(column), epsilon) for column in columns)


@pytest.mark.parametrize(
    "base",
    [
        (1,) * 64,
        (1, *(0,) * 64),  # not symmetric
        (-1, *(1,) * 63, -1),
        (0.5,) * 65,
        (2**50,) * 65,  # more than 2^52 in all
        (1,) * 65,  # e^ε times it does not reach 2^52
        (*(0,) * 32, 2**51, *(0,) * 32),  # one symbol has no mean
    ],
)
def test_other_bases_are_refused(base: tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameter, match="LocalMean: base must be"):
        LocalMean(lower=0, upper=1, epsilon=1.0, base=base)
