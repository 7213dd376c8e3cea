"""The plan of a sampled Gaussian: its probability is a number of words over 2^32."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.privacy import events
from tacit.privacy.accounting.plans import WORDS, SampledGaussian, threshold
from tacit.privacy.randomness import Seeded


@given(size=st.integers(1, 10**6), units=st.integers(1, 10**6))
def test_the_probability_is_rounded_down(size: int, units: int) -> None:
    found, wanted = threshold(size, units), min(Fraction(size, units), Fraction(1))
    assert 0 <= wanted - Fraction(found, WORDS) < Fraction(1, WORDS)


def test_a_fraction_of_a_unit_is_a_size_too() -> None:
    assert threshold(Fraction(1, 2), 4) == WORDS // 8
    assert threshold(Fraction(1, WORDS), 2) == 0
    assert threshold(7, 4) == WORDS


def test_the_event_states_what_is_sampled() -> None:
    plan = SampledGaussian(10, 3 * 2**20, 7, Fraction(3, 2))
    noise = events.Gaussian(Fraction(2), Fraction(3), adjacency="zero-out", unit="client")
    expected = events.Repeated(events.PoissonSampled(3 / 2**12, noise), 7)
    assert plan.event(noise.unit, Fraction(2)) == expected
    assert plan.expected_size == 10 * plan.probability


@pytest.mark.parametrize("units", [1, 4, 7])
def test_who_is_below_the_threshold_is_in(units: int) -> None:
    words = Seeded(5).words((units + 1) // 2).view(np.uint32)[:units]
    for one in words.tolist():
        plan = SampledGaussian(units, one, 1, Fraction(1))
        assert plan.sample(Seeded(5)).tolist() == np.flatnonzero(words < one).tolist()
    assert len(SampledGaussian(units, WORDS, 1, Fraction(1)).sample(Seeded(5))) == units
