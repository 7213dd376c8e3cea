"""What a hostile reader found in posteriors and their tables, kept."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

from tacit import BetaBinomial, Certificate, IntegerTable
from tacit.central.posteriors import hellinger
from tacit.central.posteriors.accuracy import expected_error
from tacit.central.posteriors.count_law import distances
from tacit.privacy import errors
from tacit.privacy.events import CertifiedTable
from tacit.privacy.mechanisms.integer_rows import ScaledRows, Symmetry


def test_any_two_inputs_are_compared_any_two():
    rows = [[2, 1, 0], [1, 2, 0], [0, 0, 1]]
    with pytest.raises(errors.InvalidParameter, match="every two rows"):
        IntegerTable(rows, [(0, 1)], epsilon=0.7, adjacency="any-two-inputs")
    alike = [[2, 1], [1, 2], [1, 1]]
    IntegerTable(alike, [(0, 1), (2, 1), (0, 2)], epsilon=0.7, adjacency="any-two-inputs")


@pytest.mark.parametrize("actions", [[[0, 1, 2], [1, 2, 0]], [[0, 1], [0, 0]]])
def test_what_is_no_group_is_no_symmetry(actions):
    """With one, a table of infinite ε was certified at 1: the pairs compared settled nothing."""
    with pytest.raises(errors.InvalidParameter, match="group of permutations"):
        Symmetry(actions)


def test_tiny_probabilities_do_not_hide_delta():
    """Rounded up below 2^-1022 and raised by e^700, they were more than the filter's margin."""
    size, two = 2**20, math.log(2)
    x = np.full(size + 1, 700 - 1074 * two - 1e-9)
    y = np.full(size + 1, -1074.999 * two)
    x[0] = y[0] = 0
    with pytest.raises(errors.InvalidParameter, match="further apart"):
        IntegerTable(
            ScaledRows(np.array([x, y])),
            [(0, 1)],
            epsilon=700,
            delta=2.0**-46.9,
            adjacency="replace-one",
        )


def test_the_error_of_laplace_noise_is_exact_where_noise_is_large():
    n, x, q = 10, 5, np.exp(-0.01 / 2)
    noise = (1 - q) / (1 + q) * q ** np.abs(np.arange(-9000, 9001))
    moved = 2 * x + np.arange(-18000, 18001)
    released = np.clip(np.where(moved >= n, moved // 2, -(-moved // 2)), 0, n)
    far = distances((1.0, 1.0), n, np.full(released.shape, x), released)
    true = float(np.convolve(noise, noise) @ far)
    found = expected_error((1, 1), n, count=x, epsilon=0.01, mechanism="laplace")
    assert found == pytest.approx(true, abs=1e-9)


def test_what_an_event_assumes_cannot_be_left_out():
    event = CertifiedTable(
        Fraction(1, 10**6), 0.0, 101, 101, "0" * 64, adjacency="replace-one", unit="person"
    )
    issued = Certificate.issue(event)
    issued.verify()
    assert "states that" in issued.explain()
    for forged in (
        dataclasses.replace(issued, assumptions=()),
        dataclasses.replace(issued, not_protected=()),
    ):
        with pytest.raises(errors.CertificateError, match="leaves out"):
            Certificate.from_json(forged.to_json()).verify()


def test_an_exact_epsilon_is_rounded_up():
    found = BetaBinomial(prior=(1, 1)).channel(7, epsilon=Fraction(1, 3))
    assert Fraction(repr(found.exact_epsilon)) >= Fraction(1, 3)


def test_a_delta_of_numpy_is_a_number():
    hellinger.build((1, 1), 10, epsilon=1, delta=np.float64(1e-6), calibration="paper")


def test_the_hash_of_a_table_tells_which_rows_were_compared():
    rows = [[2, 1], [1, 2], [4, 1]]
    some, every = (
        IntegerTable(rows, pairs, epsilon=2, adjacency="replace-one")
        for pairs in ([(0, 1)], [(0, 1), (1, 2), (0, 2)])
    )
    assert some.event.sha256 != every.event.sha256
