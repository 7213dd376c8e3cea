"""The noise itself: deviations by sampling, and audits, each beside mutants that are refuted."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.audit.statistical import bound_from_draws
from tacit.central import statistics as ps
from tacit.central.statistics import moments
from tacit.central.statistics.released import Spending
from tacit.privacy.gaussian import epsilon_of
from tacit.privacy.randomness import Seeded

LEVEL = 1e-6
"""A right deviation is rejected once in a million seeds."""

MULTIPLIER, DELTA, CONFIDENCE = 2.0, 0.05, 0.9999
EPSILON = epsilon_of(MULTIPLIER, DELTA)
"""A large δ: the events that refute a claim there are not rare, and few draws suffice."""


def deviates(draws: Any, sigma: float) -> bool:
    """Whether a chi-square test rejects this deviation, whichever way."""
    values = np.asarray(draws, dtype=np.float64).ravel()
    statistic = float((values**2).sum()) / sigma**2
    tail = min(chi2.cdf(statistic, values.size), chi2.sf(statistic, values.size))
    return bool(2 * tail < LEVEL)


def second_moments(seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Noise on and off the diagonal: the rows are zero, and so are their products."""
    found = ps.covariance(np.zeros((1000, 250)), 2, noise_multiplier=3, rng=Seeded(seed)).value
    return np.diag(found.matrix), found.matrix[np.triu_indices(250, 1)], found.deviation


def test_noise_of_second_moments():
    diagonal, beside, deviation = second_moments(1)
    assert not deviates(diagonal, deviation)
    assert not deviates(beside, deviation / math.sqrt(2))
    # 250 and 31125 numbers can tell √2 from 1.
    assert deviates(diagonal, deviation / math.sqrt(2))
    assert deviates(beside, deviation)
    released = ps.covariance(np.zeros((1000, 250)), 2, noise_multiplier=3, rng=Seeded(1))
    share = float(1 - moments.product_count_share(250))
    assert released.value.deviation * released.value.count == pytest.approx(
        3 * 4 / math.sqrt(share), rel=1e-3
    )


def without_diagonal(*arguments: Any) -> Any:
    noise = moments_noise(*arguments)
    noise[np.diag_indices(len(noise))] = 0
    return noise


def too_little(self: Spending, sigma: Fraction, shape: tuple[int, ...]) -> Any:
    return spending_draw(self, sigma * Fraction(70710678, 10**8), shape)


moments_noise, spending_draw = moments.symmetric_noise, Spending.draw


@pytest.mark.parametrize(
    ("home", "name", "mutant"),
    [(moments, "symmetric_noise", without_diagonal), (Spending, "draw", too_little)],
)
def test_mutants_of_second_moments(home, name, mutant, monkeypatch):
    monkeypatch.setattr(home, name, mutant)
    diagonal, beside, deviation = second_moments(1)
    assert deviates(diagonal, deviation)
    assert deviates(beside, deviation / math.sqrt(2)) is (name == "draw")


@pytest.mark.parametrize("mutated", [False, True])
def test_noise_of_the_rest(mutated, monkeypatch):
    """Noise too small by √2 is seen in each of them."""
    if mutated:
        monkeypatch.setattr(Spending, "draw", too_little)
    noise = {"noise_multiplier": 5, "rng": Seeded(2)}
    none = np.zeros((0, 400))
    assert deviates(ps.counts(none[:, 0], 400, **noise).value, 5) is mutated
    assert deviates(ps.vector_sum(none, 3, **noise).value, 15) is mutated
    rows = np.zeros((10**4, 400))
    mean = ps.mean(rows, 3, **noise).value
    assert deviates(mean.point, mean.deviation) is mutated
    share = float(1 - ps.sums.count_share(400))
    assert mean.deviation * mean.count == pytest.approx(15 / math.sqrt(share), rel=1e-3)
    # A centre at the origin, all rows there too: it moves by noise alone.
    start = np.zeros((1, 400))
    with pytest.MonkeyPatch.context() as patch:
        totals: list[Any] = []
        patch.setattr(Spending, "add", recorded(totals))
        ps.kmeans(rows, 1, 3, 1, start, reach=1, **noise)
    sums, counts = totals
    assert deviates(sums[0] / 2**18, 5 / math.sqrt(share)) is mutated
    assert abs(counts[0] - 10**4) < 6 * 5 / math.sqrt(1 - share)


def recorded(parts: list[Any]) -> Callable[..., Any]:
    add = Spending.add

    def spy(self: Spending, *arguments: Any) -> Any:
        parts.append(add(self, *arguments))
        return parts[-1]

    return spy


def test_noise_of_cumulative_counts():
    """On no records at all the noisy cumulative counts have the deviation that the page states."""
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ps.order, "_crossings", lambda counts, *_: drawn.append(counts))
        for seed in range(400):
            ps.quantiles(np.zeros(0), [0.5], 0, 1, noise_multiplier=1, rng=Seeded(seed))
    worst = np.std(drawn, axis=0).max()
    assert 3.1 < worst < 3.7


def test_the_noise_level_of_components():
    """Noise alone stays below it in 19 of 20; and it is no larger than it must be."""
    rows = np.zeros((1000, 30))
    found = [ps.pca(rows, 30, 1, noise_multiplier=2, rng=Seeded(s)).value for s in range(200)]
    below = sum(one.above_noise == 0 for one in found)
    assert 175 <= below <= 199
    assert np.median([one.variances[0] / one.noise_level for one in found]) > 0.85


# --- audits -------------------------------------------------------------------------------------


def refuted(release: Callable[[Any, Any], float], samples: int = 1500) -> bool:
    """Whether draws with and without one record prove more than ε at δ."""
    rng = Seeded(7)
    draws = [np.array([release(n, rng) for _ in range(samples)]) for n in (1, 0)]
    bound = bound_from_draws(
        draws[0], draws[1], [lambda values: values], delta=DELTA, confidence=CONFIDENCE
    )
    assert bound.certifiable > EPSILON
    return bound.epsilon > EPSILON


NOISE = {"noise_multiplier": MULTIPLIER}
WORST = np.array([[0.6, 0.8]])


def counted(n: int, rng: Any) -> float:
    return float(ps.counts(np.zeros(n), 1, rng=rng, **NOISE).value[0])


def summed(n: int, rng: Any) -> float:
    return float(ps.vector_sum(WORST[:n], 1, rng=rng, **NOISE).value @ WORST[0])


def multiplied(n: int, rng: Any) -> float:
    """The likelihood ratio of the noisy products: their trace with the record's own."""
    found = ps.covariance(WORST[:n], 1, rng=rng, **NOISE).value
    return float(WORST[0] @ found.matrix @ WORST[0] * found.count)


def diagonal(n: int, rng: Any) -> float:
    found = ps.covariance(WORST[:n], 1, rng=rng, **NOISE).value
    return float(np.trace(found.matrix) * found.count)


def a_third(self: Spending, sigma: Fraction, shape: tuple[int, ...]) -> Any:
    return spending_draw(self, sigma / 3, shape)


@pytest.mark.heavy
@pytest.mark.parametrize("release", [counted, summed, multiplied])
def test_audits(release, monkeypatch):
    assert not refuted(release)
    monkeypatch.setattr(Spending, "draw", a_third)
    assert refuted(release)


@pytest.mark.heavy
def test_an_audit_sees_a_bare_diagonal(monkeypatch):
    assert not refuted(diagonal, 1000)
    monkeypatch.setattr(moments, "symmetric_noise", without_diagonal)
    assert refuted(diagonal, 1000)
