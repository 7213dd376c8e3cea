"""Private posteriors: what they promise, what they say, and that they know of the noise."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tacit.audit import exact
from tacit.central.posteriors import BetaBinomial, DirichletMultinomial
from tacit.central.posteriors.count_channels import MECHANISMS, pairs
from tacit.central.posteriors.models import Prepared
from tacit.privacy import errors
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import ApproxDP, NotPrivate, PureDP, Unit
from tacit.privacy.mechanisms import DiscreteLaplace
from tacit.privacy.mechanisms.bounding import project_counts
from tacit.privacy.randomness import Seeded

UNIFORM = BetaBinomial(prior=(1, 1))
THREE = DirichletMultinomial(prior=(1, 2, 0.5))


def coverage(
    model: Any, prepared: Prepared, trials: int, naive: bool = False, seed: int = 0
) -> np.ndarray:
    """How often central 95 % intervals hold each share, drawn from the prior.

    A share is inside where its own cdf lies between 2.5 % and 97.5 %, which is quicker than ends.
    """
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(model.prior, trials)
    released = prepared.channel.release(rng.multinomial(prepared.total, shares), Seeded(seed))
    draws, which = np.unique(released, axis=0, return_inverse=True)
    hits = []
    for place, draw in enumerate(draws):
        posterior = prepared.posterior(draw, noise_aware=not naive)
        mine = shares[which == place, : len(posterior.shares)]
        levels = np.stack([posterior.cdf(column, i) for i, column in enumerate(mine.T)], axis=1)
        hits.append(np.abs(levels - 0.5) <= 0.475)
    return np.concatenate(hits).mean(axis=0)


def test_intervals_end_where_the_cdf_says() -> None:
    for model, total in ((UNIFORM, 20), (THREE, 20)):
        prepared = model.channel(total, epsilon=0.5)
        found = prepared.release([total, *[0] * (len(model.prior) - 1)], rng=Seeded(2))
        for value, (low, high) in enumerate(np.atleast_2d(found.interval())):
            assert found.cdf(low, value) == pytest.approx(0.025, abs=1e-9)
            assert found.cdf(high, value) == pytest.approx(0.975, abs=1e-9)


@pytest.mark.quick(3)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("total", "epsilon"), [(20, 0.5), (100, 1.0)])
def test_noise_aware_intervals_cover_and_naive_ones_do_not(
    mechanism: str, total: int, epsilon: float
) -> None:
    """10,000 draws: four standard errors are 0.9 %."""
    prepared = UNIFORM.channel(total, epsilon=epsilon, delta=1e-6, mechanism=mechanism)
    assert 0.94 < coverage(UNIFORM, prepared, 10_000) < 0.96
    if epsilon < 1:
        assert coverage(UNIFORM, prepared, 2000, naive=True) < 0.85


@pytest.mark.quick(1)
@pytest.mark.parametrize("mechanism", ["geometric", "laplace"])
def test_every_share_of_a_dirichlet_is_covered(mechanism: str) -> None:
    prepared = THREE.channel(20, epsilon=0.5, mechanism=mechanism)
    assert np.all(np.abs(coverage(THREE, prepared, 700) - 0.95) < 0.035)
    assert coverage(THREE, prepared, 300, naive=True).mean() < 0.85


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("model", [UNIFORM, BetaBinomial(prior=(0.5, 3)), THREE])
def test_the_posterior_is_bayes_rule_over_the_channel(mechanism: str, model: Any) -> None:
    """Against a sum over all counts, with the law as the mechanism itself tells it."""
    total, prior = 6, np.array(model.prior)
    prepared = model.channel(total, epsilon=0.7, delta=1e-3, mechanism=mechanism)
    every = np.array([c for c in product(range(total + 1), repeat=prior.size) if sum(c) == total])
    released = prepared.channel.release(every[3], Seeded(4))
    weights = np.array(
        [
            stats.dirichlet_multinomial.pmf(counts, prior, total)
            * _chance(prepared, released, counts)
            for counts in every
        ]
    )
    weights /= weights.sum()
    posterior = prepared.posterior(released)
    means = (weights[:, None] * (prior + every)).sum(axis=0) / (prior.sum() + total)
    np.testing.assert_allclose(np.atleast_1d(posterior.mean), means[: len(posterior.shares)])
    at = np.array([0.05, 0.3, 0.77])
    for value, _ in enumerate(posterior.shares):
        first, second = prior[value] + every[:, value], (prior + every).sum(axis=1)
        expected = weights @ stats.beta.cdf(at, first[:, None], (second - first)[:, None])
        np.testing.assert_allclose(posterior.cdf(at, value), expected, atol=1e-12)
        slope = weights @ stats.beta.pdf(at, first[:, None], (second - first)[:, None])
        np.testing.assert_allclose(posterior.pdf(at, value), slope, rtol=1e-9)
    shares = np.random.default_rng(0).dirichlet(prior + 1, 4)
    density = [
        sum(w * stats.dirichlet.pdf(row, prior + c) for w, c in zip(weights, every, strict=True))
        for row in shares
    ]
    np.testing.assert_allclose(posterior.log_density(shares), np.log(density), atol=1e-9)


def _chance(prepared: Prepared, released: Any, counts: Any) -> float:
    channel = prepared.channel.mechanism
    if hasattr(channel, "rows"):  # a table: counts by their place
        listed = prepared.channel.listed.tolist()  # type: ignore[attr-defined]
        released, counts = listed.index(released.tolist()), listed.index(counts.tolist())
    elif hasattr(channel, "upper"):
        released, counts = released[0], counts[0]
    return float(np.exp(np.sum(channel.log_prob(released, counts))))


def test_two_values_of_a_dirichlet_are_a_share() -> None:
    """The lattice of two counts is the unclamped geometric: same law inside the range."""
    pair = DirichletMultinomial(prior=(1, 1)).channel(30, epsilon=1)
    one = UNIFORM.channel(30, epsilon=1)
    released = np.array([12, 18])
    assert pair.posterior(released).mean == pytest.approx(one.posterior(released).mean, abs=1e-12)
    assert pair.posterior(released).interval() == pytest.approx(
        one.posterior(released).interval(), abs=1e-9
    )


@pytest.mark.parametrize(
    ("mechanism", "kind"), [("geometric", PureDP), ("laplace", PureDP), ("hellinger", ApproxDP)]
)
def test_the_guarantee_and_the_certificate(mechanism: str, kind: type, tmp_path: Path) -> None:
    posterior = UNIFORM.release(
        (7, 13), epsilon=0.5, delta=1e-6, mechanism=mechanism, unit="person"
    )
    assert isinstance(posterior.guarantee, kind)
    assert posterior.guarantee.unit is Unit.PERSON
    assert posterior.guarantee.epsilon == 0.5  # type: ignore[attr-defined]
    assert 0.499 < posterior.exact_epsilon <= 0.5
    assert posterior.seconds_to_certify >= 0
    certificate = posterior.certificate()
    certificate.verify()
    assert not certificate.seeded
    path = certificate.save(tmp_path / "c.json")
    assert Certificate.load(path).guarantee == posterior.guarantee
    assert "7" not in str(json.loads(path.read_text())["assumptions"])


def test_exact_epsilon_of_the_clamped_count_is_what_an_audit_finds() -> None:
    """And a posterior renormalised on the range, a mutant, would cost more."""
    prepared = UNIFORM.channel(12, epsilon=0.8)
    table = exact.tabulate(prepared.channel.mechanism)  # type: ignore[arg-type]
    assert exact.smallest_epsilon(table) == pytest.approx(prepared.exact_epsilon, abs=1e-12)
    log_weights = -0.8 * np.abs(np.subtract.outer(np.arange(13), np.arange(13)))
    log_weights -= np.log(np.exp(log_weights).sum(axis=1, keepdims=True))
    assert exact.smallest_epsilon(exact.Table(log_weights, table.pairs)) > 0.81


def worst_ratio(channel: Any, values: int) -> float:
    """Over neighbours (one record moves) and every draw of a box around them."""
    box = np.array(list(product(range(-4, 9), repeat=values)))
    first, second = [3, 1, *[0] * (values - 2)], [2, 2, *[0] * (values - 2)]
    laws = [channel.log_prob(box, np.broadcast_to(counts, box.shape)) for counts in (first, second)]
    laws = [law.sum(axis=-1) if law.ndim == 2 else law for law in laws]
    possible = np.isfinite(laws[0])
    return float(np.abs(laws[0][possible] - laws[1][possible]).max())


@pytest.mark.parametrize("values", [2, 3])
def test_noise_on_counts_reaches_its_epsilon_and_no_more(values: int) -> None:
    model = DirichletMultinomial(prior=(1,) * values)
    for mechanism in ("geometric", "laplace"):
        prepared = model.channel(4, epsilon=0.6, mechanism=mechanism)
        found = worst_ratio(prepared.channel.mechanism, values)
        assert found == pytest.approx(prepared.exact_epsilon, abs=1e-12)
    # The mutant that takes a replaced record for a change of one count pays twice.
    mutant = DiscreteLaplace(epsilon=0.6, sensitivity=1, adjacency="replace-one")
    assert worst_ratio(mutant, values) == pytest.approx(1.2, abs=1e-12)


def test_the_papers_parameters_come_with_what_they_are_worth() -> None:
    found = UNIFORM.release(
        (50, 50), epsilon=1, delta=1e-6, mechanism="hellinger", calibration="paper"
    )
    assert found.guarantee.epsilon == pytest.approx(found.exact_epsilon, rel=1e-9)  # type: ignore[attr-defined]
    assert 0.5 < found.exact_epsilon < 0.6
    with pytest.raises(errors.InvalidParameter, match="epsilon/S"):
        UNIFORM.release((50, 50), epsilon=1, mechanism="hellinger", calibration="accuracy")


def test_seeded_and_naive_releases_are_marked() -> None:
    posterior = UNIFORM.release((7, 13), epsilon=1, noise_aware=False, rng=Seeded(1))
    assert not posterior.noise_aware
    assert posterior.certificate().seeded
    assert any("too narrow" in line for line in posterior.certificate().assumptions)
    assert not UNIFORM.release((7, 13), epsilon=1).seeded
    again = UNIFORM.release((7, 13), epsilon=1, noise_aware=False, rng=Seeded(1))
    assert again.to_dict()["released"] == posterior.released.tolist()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_posterior_of_two_shares_agrees_with_itself(mechanism: str) -> None:
    posterior = UNIFORM.release((9, 11), epsilon=1, delta=1e-6, mechanism=mechanism, rng=Seeded(5))
    low, high = posterior.interval(0.9)
    assert posterior.cdf(high) - posterior.cdf(low) == pytest.approx(0.9, abs=1e-9)
    draws = posterior.sample(40_000, 3)
    assert draws.mean() == pytest.approx(posterior.mean, abs=0.005)
    assert np.mean((draws > low) & (draws < high)) == pytest.approx(0.9, abs=0.01)
    grid = (np.arange(4000) + 0.5) / 4000
    assert posterior.pdf(grid).mean() == pytest.approx(1, abs=1e-4)
    truth = UNIFORM.without_privacy((9, 11))
    whole = np.sqrt(1 - np.sqrt(posterior.pdf(grid) * truth.pdf(grid)).mean())
    assert posterior.hellinger(truth) == pytest.approx(whole, abs=1e-4)
    assert posterior.hellinger(posterior) == pytest.approx(0, abs=1e-6)


def test_distance_between_posteriors_of_three_shares() -> None:
    """Simulated against the closed form, and symmetric."""
    first, second = THREE.without_privacy((5, 5, 10)), THREE.without_privacy((8, 2, 10))
    known = first.hellinger(second)
    noisy = THREE.release((5, 5, 10), epsilon=50, mechanism="geometric", rng=Seeded(0))
    assert noisy.released.tolist() == [5, 5, 10]  # next to no noise: the same posterior
    assert noisy.hellinger(second, draws=40_000) == pytest.approx(known, abs=0.01)
    assert noisy.hellinger(first) < 0.01
    draws = noisy.sample(20_000, 1)
    np.testing.assert_allclose(draws.mean(axis=0), noisy.mean, atol=0.005)
    assert np.allclose(draws.sum(axis=1), 1)


def test_without_privacy_says_so() -> None:
    found = UNIFORM.without_privacy((3, 7))
    assert isinstance(found.guarantee, NotPrivate)
    assert found.mean == pytest.approx(4 / 12)
    assert found.interval() == pytest.approx(stats.beta.interval(0.95, 4, 8))


def test_remap_is_the_count_of_least_expected_error() -> None:
    prepared = BetaBinomial(prior=(4, 4)).channel(20, epsilon=0.3)
    naive = prepared.posterior(np.array([20, 0]), noise_aware=False)
    moved = prepared.posterior(np.array([20, 0]), noise_aware=False, remap=True)
    assert naive.counts.tolist() == [20, 0]
    assert 10 < moved.counts[0] < 16  # a strong prior and much noise: hardly further than half
    aware = prepared.posterior(np.array([20, 0]))
    truth = [BetaBinomial(prior=(4, 4)).without_privacy((c, 20 - c)) for c in range(21)]
    weights = aware.hidden.marginals[0]
    losses = [
        sum(w * one.hellinger(other) for w, other in zip(weights, truth, strict=True))
        for one in truth
    ]
    assert int(np.argmin(losses)) == moved.counts[0]


def test_remapped_counts_of_three_values_sum_to_the_total() -> None:
    prepared = THREE.channel(20, epsilon=0.3)
    moved = prepared.posterior(np.array([-9, 4, 25]), remap=True, noise_aware=False)
    assert moved.counts.sum() == 20
    assert moved.counts.min() >= 0


def test_projection_is_the_nearest_point() -> None:
    every = np.array([c for c in product(range(8), repeat=3) if sum(c) == 7])
    for released in np.random.default_rng(0).integers(-6, 12, (300, 3)):
        found = project_counts(released[None], 7)[0]
        assert found.sum() == 7
        assert found.min() >= 0
        best = ((every - released) ** 2).sum(axis=1).min()
        assert ((found - released) ** 2).sum() == best


def test_large_dirichlets_need_no_enumeration() -> None:
    """C(10,009, 9) counts: 10 values, 10,000 records."""
    model = DirichletMultinomial(prior=(0.5,) * 10)
    counts = np.random.default_rng(0).multinomial(10_000, np.arange(1, 11) / 55)
    posterior = model.release(counts, epsilon=0.1, rng=Seeded(0))
    low, high = posterior.interval().T
    assert np.all(np.diff([low, high], axis=0) < 0.03)
    assert posterior.mean.sum() == pytest.approx(1, abs=1e-9)
    expected = (0.5 + posterior.hidden.sample(4000, np.random.default_rng(1)).mean(axis=0)) / 10_005
    np.testing.assert_allclose(posterior.mean, expected, atol=2e-4)
    assert pairs(3).tolist() == [[0, 3], [1, 2], [2, 1], [3, 0]]


@pytest.mark.parametrize(
    ("prior", "counts", "more", "message"),
    [
        ((1,), (1, 2), {}, "prior must be two numbers"),
        ((1, 0), (1, 2), {}, "prior must be above 0"),
        ((1, 1e-9), (1, 2), {}, "prior must be from 1e-6 to 1e9"),
        ((1, float("nan")), (1, 2), {}, "prior must be a number"),
        ((1, 1), (1, 2, 3), {}, "counts must be 2"),
        ((1, 1), (0, 0), {}, "must not all be 0"),
        ((1, 1), (1, 10**7), {}, "total must be an integer from 1 to 10000000"),
        ((1, 1), (-4217, 5000), {}, "must lie in"),
        ((1, 1), (1.5, 2), {}, "whole numbers"),
        ((1, 1), (1, 2), {"epsilon": 0}, "epsilon must be above 0"),
        ((1, 1), (1, 2), {"epsilon": float("nan")}, "epsilon must be"),
        ((1, 1), (1, 2), {"delta": 1}, "delta must be in"),
        ((1, 1), (1, 2), {"mechanism": "gaussian"}, "mechanism must be one of"),
        ((1, 1), (1, 2), {"unit": "house"}, "unit must be one of"),
        ((1, 1), (1, 2), {"mechanism": "hellinger", "sensitivity": "x"}, "sensitivity must be"),
        ((1, 1), (1, 10**6), {"mechanism": "hellinger"}, "Use geometric noise"),
    ],
)
def test_refusals_are_one_line_and_say_no_data(
    prior: Any, counts: Any, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.TacitError, match=message) as caught:
        BetaBinomial(prior=prior).release(counts, **{"epsilon": 1, **more})
    assert "\n" not in str(caught.value)
    assert "4217" not in str(caught.value)


def test_counts_must_be_of_the_prepared_total() -> None:
    with pytest.raises(errors.InvalidData, match="sum to 20"):
        UNIFORM.channel(20, epsilon=1).release((7, 14))
    with pytest.raises(errors.InvalidParameter, match="values must be 2"):
        UNIFORM.without_privacy((1, 2)).hellinger(THREE.without_privacy((1, 2, 3)))
    with pytest.raises(errors.InvalidParameter, match="value must be"):
        UNIFORM.without_privacy((1, 2)).pdf(0.5, 1)
    with pytest.raises(errors.InvalidData, match="sum to 1"):
        THREE.without_privacy((1, 2, 3)).log_density([0.5, 0.5, 0.5])
