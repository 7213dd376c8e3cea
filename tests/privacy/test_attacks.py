"""Attacks of a hostile review that once broke a stated guarantee. None may work again."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

import tacit
from tacit.audit import exact
from tacit.privacy import errors, events, gaussian
from tacit.privacy.accounting import composition
from tacit.privacy.mechanisms.smooth_sensitivity import smooth_bound
from tacit.privacy.randomness import rounded_gaussian

CENTRAL = {"adjacency": "replace-one", "unit": "record"}
ADDED = {"adjacency": "add-remove", "unit": "record"}
LOCAL = {"adjacency": "any-two-inputs", "unit": "person"}


@pytest.mark.parametrize("delta", [1e-13, 1e-11, 1e-9])
def test_the_error_of_the_fourier_transform_does_not_lower_epsilon(delta):
    """A run that is as good as unsampled, so that its exact profile is known."""
    step = events.PoissonSampled(1 - 2**-53, events.Gaussian(1, 300, **ADDED))
    stated = tacit.guarantee_of(events.Repeated(step, 100_000), delta)
    assert gaussian.delta_of(300 / math.sqrt(100_000), stated.epsilon) <= delta


def test_odds_are_compared_both_ways():
    with pytest.raises(errors.InvalidParameter):
        events.RandomizedResponse(2, Fraction(1, 10), keep=0, other=2**64, **LOCAL)
    with pytest.raises(errors.InvalidParameter):
        events.SubsetSelection(3, 1, Fraction(1, 10), inclusion=1, **LOCAL)


def test_neighbouring_profiles_do_not_differ_in_being_refused():
    """A bound that underflows to zero on one data set and not on its neighbour gives it away."""
    median = tacit.SmoothLaplace(epsilon=1.0, delta=1e-6, adjacency="replace-one")
    bounds = [smooth_bound(np.r_[np.zeros(n), 120.0], median.beta) for n in (21_992, 21_993)]
    assert bounds[0] == bounds[1] > 0
    for bound in bounds:
        median.release(50, bound=bound)


def test_numbers_wider_than_float64_are_refused():
    wide = np.longdouble(0.5) - np.longdouble(2) ** -54
    for mechanism, raw in (
        (tacit.Laplace(epsilon=1, sensitivity=1, grid=1, adjacency="replace-one"), wide),
        (
            tacit.Exponential(epsilon=1, sensitivity=1, adjacency="replace-one"),
            np.array([wide, wide + 1]),
        ),
    ):
        with pytest.raises(errors.InvalidData):
            mechanism.release(raw)
    # Whole numbers that no float holds are held to 2^53, not rounded: neighbours move no further.
    choice = tacit.Exponential(epsilon=1, sensitivity=1, adjacency="replace-one")
    for far in ([2**60 + 1, 2**60], [2**53 + 1, 2**53], [2**53 + 2, 2**53 + 1]):
        assert choice.log_prob(0, far) == choice.log_prob(0, [2**53, 2**53])
        assert int(choice.release(far)) in (0, 1)


def test_half_steps_do_not_part():
    """Rounding halves to even sent neighbours at distance 1 to integers at distance 2."""
    laplace = tacit.Laplace(epsilon=1.0, sensitivity=1.0, grid=1.0, adjacency="replace-one")
    released = np.arange(-20, 20)
    for x in (0.5, 1.5, -0.5, -1.5):
        ratio = [
            laplace.log_prob([float(y)], [x]) - laplace.log_prob([float(y)], [x + 1])
            for y in released
        ]
        assert np.max(np.abs(ratio)) <= 1 + 1e-12


def test_renyi_divergence_near_order_one_is_not_lost():
    near = tacit.PureDP(1.0, **CENTRAL).renyi((1 + 2**-52,)).epsilons[0]
    assert near == pytest.approx(math.tanh(0.5), rel=1e-6)
    assert tacit.PureDP(8e-9, **CENTRAL).renyi((2.0,)).epsilons[0] > 0


def test_the_far_tail_of_small_noise_is_drawn():
    class Zeros:
        """The word 0 first: whatever it means, it is not settled by its first bits."""

        secure = False

        def __init__(self):
            self.asked = 0

        def words(self, count):
            self.asked += 1
            return np.full(count, 0 if self.asked == 1 else 2**63, dtype=np.uint64)

    stream = Zeros()
    rounded_gaussian(Fraction(1, 100), 1, stream)
    assert stream.asked > 1


def test_an_understated_certificate_does_not_verify():
    issued = tacit.Certificate.issue(
        tacit.DiscreteLaplace(epsilon=1.0, sensitivity=1, adjacency="replace-one").event
    )
    data = json.loads(issued.to_json())
    data["guarantee"]["epsilon"] = 1 - 0.99e-8
    forged = tacit.Certificate(
        **{
            **{name: getattr(issued, name) for name in issued.__dataclass_fields__},
            "guarantee": tacit.PureDP(data["guarantee"]["epsilon"], **CENTRAL),
        }
    )
    with pytest.raises(errors.CertificateError):
        forged.verify()


def test_thirds_do_not_fit_into_less_than_one(tmp_path):
    with tacit.Ledger(tmp_path / "ledger") as ledger:
        ledger.open("a", tacit.PureDP(0.9999999999999999, **CENTRAL))
        third = events.Exponential(1, 6, **CENTRAL)
        ledger.charge("a", third)
        ledger.charge("a", third)
        with pytest.raises(errors.BudgetExceeded):
            ledger.charge("a", third)
    tenths = events.Repeated(events.Laplace(7, 10, **CENTRAL), 3)
    assert Fraction(repr(tacit.guarantee_of(tenths).epsilon)) >= Fraction(21, 10)


def test_a_rare_output_that_gives_the_input_away_is_not_overlooked():
    rare = 1e-13
    first = np.append(np.full(999, (1 - rare) / 999), rare)
    second = np.append(np.full(999, 1 / 999), 0.0)
    with np.errstate(divide="ignore"):
        table = exact.Table(np.log([first, second]), ((0, 1),))
    assert exact.smallest_epsilon(table, delta=5e-14) == math.inf


def test_epsilon_does_not_change_after_construction():
    epsilon = np.array(1.0)
    mechanism = tacit.Gaussian(sensitivity=1, epsilon=epsilon, delta=1e-5, adjacency="replace-one")
    epsilon[...] = 0.001
    assert mechanism.guarantee.epsilon == 1.0


def test_amplification_is_for_add_remove_neighbours_only():
    for scope in (CENTRAL, LOCAL):
        with pytest.raises(errors.InvalidParameter):
            composition.amplified(tacit.PureDP(1.0, **scope), 0.1)


def test_noise_that_would_wrap_around_is_refused():
    with pytest.raises(errors.InvalidParameter):
        tacit.SparseVector(
            epsilon=0.126, threshold=0, sensitivity=2**40, positives=2**20, adjacency="replace-one"
        )


def test_hostile_sizes_are_answered_quickly():
    tacit.guarantee_of(events.Repeated(events.Laplace(1, 10**7, **CENTRAL), 10**14), 1e-6)
    step = events.PoissonSampled(1e-9, events.Gaussian(1, 1000, **ADDED))
    tacit.guarantee_of(events.Repeated(step, 2), 0.1)
    tacit.DiscreteLaplace(epsilon=30, sensitivity=1, adjacency="replace-one").release(
        np.zeros(10, dtype=int)
    )
    with pytest.raises(errors.InvalidParameter):
        events.Laplace("1e99999999", 1, **CENTRAL)


def test_errors_do_not_show_how_long_a_text_was():
    with pytest.raises(errors.InvalidData) as caught:
        tacit.RandomizedResponse(categories=3, epsilon=1).release(["a very secret diagnosis"])
    assert "23" not in str(caught.value)
