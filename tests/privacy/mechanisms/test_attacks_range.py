"""What a hostile reader found at the limits of central mechanisms, kept: no datum decides there."""

import numpy as np
import pytest

import tacit
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Geometric,
    Laplace,
    PermuteAndFlip,
    SmoothLaplace,
    SparseVector,
)
from tacit.privacy.mechanisms.smooth_sensitivity import median_sensitivities, smooth_bound

SCOPE = {"adjacency": "add-remove", "unit": "person"}
WHOLE = [
    DiscreteLaplace(epsilon=1.0, sensitivity=1, **SCOPE),
    DiscreteGaussian(sensitivity=1, sigma=1.0, **SCOPE),
    Gaussian(sensitivity=1, sigma=1.0, **SCOPE),
    Geometric(epsilon=1.0, lower=0, upper=10, **SCOPE),
    Laplace(epsilon=1.0, sensitivity=1, **SCOPE),
]
CHOICES = [kind(epsilon=1.0, sensitivity=1, **SCOPE) for kind in (Exponential, PermuteAndFlip)]


@pytest.mark.parametrize("mechanism", WHOLE, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("raw", [2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**53) - 1, 10**30])
def test_both_sides_of_a_limit_are_answered(mechanism, raw):
    near = min(max(raw, -(2**53)), 2**53)
    found, same = (mechanism.release(one, tacit.Seeded(2)) for one in (raw, near))
    assert np.array_equal(found, same)


@pytest.mark.parametrize("mechanism", CHOICES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("raw", [2**53 + 1, 2**70, 1e150, np.nextafter(1e150, 2e150), 1e300])
def test_scores_on_both_sides_of_a_limit_are_answered(mechanism, raw):
    assert mechanism.release([raw, 0, 1], tacit.Seeded(2)) == 0


def test_a_stream_of_far_answers_goes_on():
    mechanism = SparseVector(epsilon=1.0, threshold=0, sensitivity=1, positives=2, **SCOPE)
    assert [code for code, _ in mechanism.ask(iter([2**53 + 1, -(2**70), 2**70]))] == [1, 0, 1]


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 100.0])
def test_no_bound_of_the_data_is_refused(epsilon):
    """One person moved the smooth bound beyond what was drawn, and so was told from another."""
    mechanism = SmoothLaplace(epsilon=epsilon, delta=1e-6, adjacency="replace-one")
    upper = 2**53 - 1
    for size in (3, 60, 124, 125, 126, 200):
        data = np.zeros(size, np.int64)
        for last in (0, upper):
            data[-1] = last
            bound = smooth_bound(median_sensitivities(data, 0, upper), beta=mechanism.beta)
            middle = int(np.sort(data)[(size - 1) // 2])
            assert mechanism.release(middle, bound=bound).shape == ()
    for bound in (1e-300, 2.0**54, 2.0**60, 1e300):
        mechanism.release(0, bound=bound)


def test_noise_is_at_least_what_held_values_need():
    """Values are held to R/2 on both sides, and noise of scale R/alpha hides all that is left."""
    mechanism = SmoothLaplace(epsilon=1.0, delta=1e-6, adjacency="replace-one")
    reach = 2**49
    far = mechanism.log_prob(0, [2**53, reach // 2, -(2**53), -reach // 2], bound=1e300)
    assert far[0] == far[1] == far[2] == far[3]
    assert mechanism._scale(1e300) == reach / mechanism.event.alpha == 2**50


def test_a_public_range_that_is_too_wide_is_refused():
    with pytest.raises(InvalidParameter, match=r"at most 2\^53"):
        median_sensitivities([1, 2], -(2**53), 2**53)
