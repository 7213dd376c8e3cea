"""Mixtures of Betas, and hidden counts without listing them: against sums over everything."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import betaln

from tacit.central.posteriors.beta_mixture import BetaMixture
from tacit.central.posteriors.hidden_counts import Factored, Listed
from tacit.privacy import errors

PRIORS = st.sampled_from([1e-6, 0.01, 0.5, 1.0, 3.0, 200.0, 1e6])


@given(
    st.lists(PRIORS, min_size=2, max_size=4),
    st.integers(1, 7),
    st.sampled_from([1e-3, 0.1, 1.0, 8.0]),
    st.integers(0, 2**32 - 1),
)
def test_factored_counts_are_listed_counts(
    prior: list[float], total: int, epsilon: float, seed: int
) -> None:
    """Any prior, any channel that is a product: convolution gives what the list gives."""
    rng = np.random.default_rng(seed)
    released = rng.integers(-3 * total, 4 * total, len(prior))
    channel = -epsilon * np.abs(np.arange(total + 1) - released[:, None])
    every = np.array([c for c in product(range(total + 1), repeat=len(prior)) if sum(c) == total])
    law = channel[np.arange(len(prior)), every].sum(axis=1)
    listed = Listed.of(np.array(prior), every, law)
    factored = Factored(np.array(prior), channel)
    np.testing.assert_allclose(factored.marginals, listed.marginals, atol=1e-9)
    shares = np.log(rng.dirichlet(np.full(len(prior), 2.0), 3))
    np.testing.assert_allclose(
        factored.log_density(shares), listed.log_density(shares), rtol=1e-9, atol=1e-7
    )


@pytest.mark.parametrize("total", [12, 2000])
def test_draws_of_hidden_counts_have_their_law(total: int) -> None:
    """Both ways of convolving; the counts are drawn together, of sum n."""
    channel = -0.2 * np.abs(np.arange(total + 1) - np.array([[0.2], [0.3], [0.5]]) * total)
    hidden = Factored(np.array([1.0, 2.0, 0.5]), channel)
    np.testing.assert_allclose(hidden.marginals.sum(axis=1), 1)
    drawn = hidden.sample(4000, np.random.default_rng(0))
    assert np.all(drawn.sum(axis=1) == total)
    assert drawn.min() >= 0
    every = np.arange(total + 1)
    means = hidden.marginals @ every
    spreads = np.sqrt(hidden.marginals @ every**2 - means**2)
    assert np.all(np.abs(drawn.mean(axis=0) - means) < 5 * spreads / np.sqrt(4000))
    # A draw that forgot the sum would have independent counts; the last two fall together.
    assert np.corrcoef(drawn.T)[1, 2] < -0.2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((3, 4), (5, 2)),
        ((0.01, 0.5), (2, 0.02)),
        ((1000, 3), (990, 10)),
        ((5000, 5000), (5100, 4900)),
        ((1, 1), (1, 10_001)),
        ((1e-3, 1e-3), (1e-3, 2e-3)),
    ],
)
def test_affinity_of_single_components_is_the_closed_form(
    first: tuple[float, float], second: tuple[float, float]
) -> None:
    (a, b), (c, d) = first, second
    known = np.exp(betaln((a + c) / 2, (b + d) / 2) - (betaln(a, b) + betaln(c, d)) / 2)
    one, other = (BetaMixture.of([1.0], [x], [y]) for x, y in (first, second))
    assert one.affinity(other) == pytest.approx(known, abs=1e-7)
    assert one.affinity(one) == pytest.approx(1, abs=1e-7)


def test_a_mixture_is_the_sum_of_its_parts() -> None:
    mixture = BetaMixture.of([2.0, 1.0, 0.0], [1.0, 40.0, 2.0], [9.0, 2.0, 2.0])
    at = np.array([-0.5, 0.0, 0.03, 0.5, 0.97, 1.0, 1.5])
    one, other = stats.beta(1, 9), stats.beta(40, 2)
    np.testing.assert_allclose(mixture.cdf(at), (2 * one.cdf(at) + other.cdf(at)) / 3)
    np.testing.assert_allclose(mixture.pdf(at), (2 * one.pdf(at) + other.pdf(at)) / 3)
    assert mixture.mean == pytest.approx((2 * one.mean() + other.mean()) / 3)
    square = (2 * one.moment(2) + other.moment(2)) / 3
    assert mixture.variance == pytest.approx(square - mixture.mean**2)
    for level in (0.0, 1e-6, 0.3, 0.999):
        assert mixture.cdf(mixture.quantile(level)) == pytest.approx(level, abs=1e-10)
    other_mixture = BetaMixture.of([1.0, 1.0], [5.0, 6.0], [5.0, 30.0])
    whole, _ = integrate.quad(
        lambda x: float(np.sqrt(mixture.pdf(x) * other_mixture.pdf(x))), 0, 1, limit=200
    )
    assert mixture.affinity(other_mixture) == pytest.approx(whole, abs=1e-7)


def test_ends_of_a_density() -> None:
    assert BetaMixture.of([1.0], [0.5], [2.0]).pdf(0.0) == np.inf
    assert BetaMixture.of([1.0], [2.0], [0.5]).pdf(1.0) == np.inf
    assert BetaMixture.of([1.0], [2.0], [3.0]).pdf([0.0, 1.0]).tolist() == [0, 0]
    assert BetaMixture.of([1.0, 1.0], [1.0, 2.0], [3.0, 2.0]).pdf(0.0) == pytest.approx(1.5)


def test_levels_are_checked() -> None:
    mixture = BetaMixture.of([1.0], [2.0], [3.0])
    for level in (0, 1, float("nan")):
        with pytest.raises(errors.InvalidParameter, match="level must be"):
            mixture.interval(level)
