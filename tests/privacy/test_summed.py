"""Sums of discrete Gaussians: the theorem beside the exact law at small numbers, and mutants."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest

from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.outsiders import Outsiders
from tacit.privacy.certificate import Certificate
from tacit.privacy.events.summed import variation
from tacit.privacy.guarantees import ZCDP, ApproxDP

SCOPE = {"adjacency": "zero-out", "unit": "client"}


@cache
def law(variance: Fraction, summands: int) -> list[mpmath.mpf]:
    """The law of a sum, by convolution with 60 digits, centred in the list."""
    with mpmath.workdps(60):
        reach = math.ceil(14 * math.sqrt(variance)) + 2
        one = [mpmath.exp(mpmath.mpf(-k * k) / (2 * variance.numerator) * variance.denominator)
               for k in range(-reach, reach + 1)]  # fmt: skip
        whole = mpmath.fsum(one)
        one = [mass / whole for mass in one]
        found = one
        for _ in range(summands - 1):
            found = [
                mpmath.fsum(
                    found[j] * one[k - j]
                    for j in range(max(k - len(one) + 1, 0), min(k + 1, len(found)))
                )
                for k in range(len(found) + len(one) - 1)
            ]
        return found


def shifted(masses: list[mpmath.mpf], shift: int) -> tuple[list[mpmath.mpf], list[mpmath.mpf]]:
    return [mpmath.mpf(0)] * shift + masses, masses + [mpmath.mpf(0)] * shift


def event(squared: int, variance: Fraction, honest: int, dimension: int = 1):
    return events.SummedDiscreteGaussian(squared, variance, honest, honest, dimension, **SCOPE)


SMALL = [
    (variance, summands, shift)
    for variance, summands, shift in product(
        (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(9, 4)), (1, 2, 3, 5), (1, 2, 3)
    )
]


def _worst(variance: Fraction, summands: int, shift: int, stated: ZCDP) -> float:
    """Largest exact Rényi divergence over the stated one, over orders and both directions."""
    masses = law(variance, summands)
    ratios = []
    with mpmath.workdps(60):
        one, other = shifted(masses, shift)
        # Within twelve deviations: beyond, the convolution itself is cut off.
        middle = (len(one) - 1) / 2
        near = 12 * math.sqrt(variance * summands)
        pairs = [
            (a, b)
            for place, (a, b) in enumerate(zip(one, other, strict=True))
            if a and b and abs(place - middle) <= near
        ]
        for order in (1.01, 1.5, 2, 5, 12):
            moment = mpmath.fsum(a * (a / b) ** (order - 1) for a, b in pairs)
            divergence = mpmath.log(moment) / (order - 1)
            ratios.append(float(divergence) / (stated.xi + stated.rho * order))
    return max(ratios)


@pytest.mark.parametrize(("variance", "summands", "shift"), SMALL)
def test_no_exact_divergence_is_above_the_stated_one(
    variance: Fraction, summands: int, shift: int
) -> None:
    stated = event(shift**2, variance, summands).guarantee_at()
    assert isinstance(stated, ZCDP)
    assert _worst(variance, summands, shift, stated) <= 1


def test_the_divergence_is_not_far_below_the_stated_one() -> None:
    """Else the test above could not fail: at half the honest parties it does."""
    for variance, summands, shift in SMALL:
        if variance < 1 or summands == 1:
            continue
        stated = event(shift**2, variance, summands).guarantee_at()
        mutant = event(shift**2, variance, summands * 2).guarantee_at()
        assert _worst(variance, summands, shift, stated) > 0.99
        assert _worst(variance, summands, shift, mutant) > 1.9


@pytest.mark.parametrize(("variance", "summands"), [(Fraction(1, 4), 2), (Fraction(1), 3)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_the_exact_loss_of_two_entries_is_within_the_stated_one(
    variance: Fraction, summands: int, delta: float
) -> None:
    """By enumeration over both entries: a client that moves the sum by (2, 1)."""
    stated = event(5, variance, summands, 2).guarantee_at(delta)
    assert isinstance(stated, ApproxDP)
    tables = []
    for shift in (2, 1):
        one, other = shifted(law(variance, summands), shift)
        tables.append((np.array(one, dtype=float), np.array(other, dtype=float)))
    (a, b), (c, d) = tables
    with_it, without = np.outer(a, c), np.outer(b, d)
    for first, second in ((with_it, without), (without, with_it)):
        exact = np.maximum(first - math.exp(stated.epsilon) * second, 0).sum()
        assert exact <= delta
        fewer = event(5, variance, summands + 3, 2).guarantee_at(delta)
        assert np.maximum(first - math.exp(0.6 * fewer.epsilon) * second, 0).sum() > delta


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(1), Fraction(4)])
def test_shapes_vary_by_no_more_than_stated(variance: Fraction) -> None:
    """The law over the discrete Gaussian of the summed variance; with two parties it is tight."""
    for summands in (2, 3, 5):
        masses = law(variance, summands)
        with mpmath.workdps(60):
            middle = (len(masses) - 1) // 2
            near = math.ceil(8 * math.sqrt(variance * summands))
            width = 2 * summands * variance
            logs = [
                mpmath.log(masses[middle + k]) + mpmath.mpf(k * k) * width.denominator
                / width.numerator
                for k in range(-near, near + 1)
            ]  # fmt: skip
            spread = float(max(logs) - min(logs))
        assert spread <= variation(variance, summands)
        assert summands > 2 or variation(variance, summands) <= 1.1 * spread


def test_two_steps_a_party_cost_nothing() -> None:
    """KLS21's τ at two steps and 1,000 parties is 7e-17; here it is smaller, and counted."""
    found = variation(Fraction(4), 1000)
    tau = 10 * sum(math.exp(-2 * math.pi**2 * 4 * k / (k + 1)) for k in range(1, 1000))
    assert 0 < found < tau
    assert tau == pytest.approx(7e-17, rel=0.05)
    whole = event(2**24, Fraction(4), 1000, 2**20).guarantee_at()
    assert whole.xi == 0
    assert whole.rho <= 2**24 / (2 * 4 * 1000) + 1e-10
    many = [variation(Fraction(1), n) for n in (2, 50, 64, 65, 200)]
    assert many == sorted(many)
    direct = sum(
        math.log((1 + 2 * r) / (1 - 2 * r))
        for q in (math.exp(-2 * math.pi**2 * k / (k + 1)) for k in range(1, 200))
        for r in (q / (1 - q),)
    )
    assert direct <= many[-1] <= direct * (1 + 1e-2)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ((4, Fraction(1, 5), 3, 3, 1), "variance"),
        ((4, 1, 0, 3, 1), "honest"),
        ((4, 1, 3, 2, 1), "survivors"),
        ((4, 1, 3, 3, 0), "dimension"),
        ((0, 1, 3, 3, 1), "squared_sensitivity"),
    ],
)
def test_events_without_a_theorem_are_refused(told: tuple[int, ...], name: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=name):
        events.SummedDiscreteGaussian(*told, **SCOPE)


# --- certificates --------------------------------------------------------------------------------

ROUNDS = events.Repeated(events.SummedDiscreteGaussian(900, Fraction(40), 90, 100, 50, **SCOPE), 8)


def issued() -> Certificate:
    certificate = Certificate.issue(ROUNDS, delta=1e-5)
    return replace(certificate, readers=Outsiders.of(ROUNDS, 1e-5))


def test_certificates_have_both_readers() -> None:
    certificate = issued()
    again = Certificate.from_json(certificate.to_json())
    again.verify()
    assert again == certificate
    assert again.readers is not None
    assert again.guarantee.epsilon > again.readers.guarantee.epsilon > 0
    said = " ".join(again.explain().split())
    assert "from the server too, as long as at least 90 of those who answered are honest" in said
    assert "but not from the server" not in said
    assert "from those who see results alone" in said
    assert "In every sum at least 90 parties followed the protocol" in said


def test_certificates_state_no_more_towards_readers_than_events_give() -> None:
    certificate = issued()
    stated = certificate.readers.guarantee
    less = Outsiders(replace(stated, epsilon=stated.epsilon * 0.99))
    with pytest.raises(errors.CertificateError, match="towards those who see results"):
        replace(certificate, readers=less).verify()
    other = Certificate.issue(events.Gaussian(1, 2, **SCOPE), delta=1e-5)
    with pytest.raises(errors.CertificateError, match="not such sums"):
        replace(other, readers=certificate.readers).verify()
    body = json.loads(certificate.to_json())
    body["readers"]["of"] = "reports"
    with pytest.raises(errors.CertificateError):
        Certificate.from_json(json.dumps(body))


def test_certificates_assume_honest_parties() -> None:
    certificate = issued()
    kept = tuple(line for line in certificate.assumptions if "followed the protocol" not in line)
    with pytest.raises(errors.CertificateError, match="omits a sentence"):
        replace(certificate, assumptions=kept).verify()


def test_rounds_are_accounted_as_the_sum_of_their_divergences() -> None:
    one = ROUNDS.event.guarantee_at()
    by_hand = ZCDP(8 * one.xi * (1 + 1e-12), 8 * one.rho * (1 + 1e-12), **one.scope).at_delta(1e-5)
    found = guarantee_of(ROUNDS, 1e-5)
    assert found.epsilon == pytest.approx(by_hand.epsilon, rel=1e-6)
