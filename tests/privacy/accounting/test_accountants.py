"""The noise that each accountant asks for: its own statement inverted, and true by another."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from tacit.privacy import errors, gaussian
from tacit.privacy.accounting import privacy_loss
from tacit.privacy.accounting.accountants import LARGEST, NAMES, _before_sampling, noise_by

DELTA = 1e-5
SAMPLED = {"sampling_probability": 0.05, "steps": 400}


def spent(noise: float, sampling_probability: float = 0.05, steps: int = 400) -> float:
    """ε of the very run by its privacy loss distribution, whatever the noise was made for."""
    run = privacy_loss.subsampled_gaussian(noise, sampling_probability, steps)
    return privacy_loss.epsilon_pld(run, DELTA)


@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_noise_is_that_at_which_the_accountant_comes_to_epsilon(epsilon: float) -> None:
    for name in NAMES[:3]:
        noise = noise_by(name, epsilon, DELTA, **SAMPLED)
        found = privacy_loss.compare(noise, 0.05, 400, DELTA).epsilons()[name]
        assert found <= epsilon
        assert found == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.heavy
def test_every_claim_holds_by_the_loss_distribution() -> None:
    for epsilon, name in itertools.product((0.1, 1.0), NAMES):
        assert spent(noise_by(name, epsilon, DELTA, **SAMPLED)) <= epsilon, name
    whole: Any = {"sampling_probability": 1.0, "steps": 3}
    for epsilon, name in itertools.product((0.01, 1.0, 100.0), NAMES):
        assert spent(noise_by(name, epsilon, DELTA, **whole), **whole) <= epsilon, name


def test_noise_of_wrong_theorems_is_refuted() -> None:
    """No sum over the steps; amplification by more than sampling gives; a little less noise."""
    share = DELTA / (2 * 0.05 * 400)
    unsummed = gaussian.noise_multiplier_for(_before_sampling(1.0, 0.05), share)
    assert spent(unsummed) > 1
    twice_amplified = gaussian.noise_multiplier_for(_before_sampling(1.0, 0.05**2), share)
    assert spent(twice_amplified) > 1
    assert spent(0.99 * noise_by("pld", 1.0, DELTA, **SAMPLED)) > 1


@pytest.mark.quick(2)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 500.0])
def test_the_order_that_theorems_give(epsilon: float) -> None:
    naive, advanced, zcdp, rdp = (noise_by(one, epsilon, DELTA, **SAMPLED) for one in NAMES[:4])
    assert naive > advanced > rdp
    assert zcdp > rdp
    if epsilon == 1:
        assert noise_by("pld", epsilon, DELTA, **SAMPLED) < rdp


def test_no_order_where_there_is_none() -> None:
    many, few = {"sampling_probability": 0.05, "steps": 4000}, {**SAMPLED, "steps": 20}
    assert noise_by("zcdp", 1.0, DELTA, **many) < noise_by("naive", 1.0, DELTA, **many)
    assert noise_by("zcdp", 1.0, DELTA, **few) > noise_by("naive", 1.0, DELTA, **few)
    # For few steps the plain sum is the best of the advanced bounds.
    assert noise_by("advanced", 1.0, DELTA, **few) == noise_by("naive", 1.0, DELTA, **few)


def test_a_sampled_gaussian_has_the_rho_of_an_unsampled_one() -> None:
    orders = (2.0, 64.0, 1024.0)
    one = privacy_loss.subsampled_gaussian(1.0, 0.05, 1)
    over = [e / a for a, e in zip(orders, privacy_loss.renyi_of(one, orders).epsilons, strict=True)]
    assert over[0] < 0.01 < over[1] < over[2] < 0.5
    for order, ratio in zip(orders, over, strict=True):
        assert ratio >= 0.5 + math.log(0.05) / (order - 1)


def test_sampling_is_undone() -> None:
    for epsilon, probability in itertools.product((1e-6, 0.3, 5.0, 650.0), (1e-3, 0.2, 1.0)):
        found = _before_sampling(epsilon, probability)
        if found < 700:
            back = math.log1p(probability * math.expm1(found))
            assert back == pytest.approx(epsilon, rel=1e-9)


def test_an_epsilon_that_protects_nobody_gets_the_noise_of_the_largest() -> None:
    for name in NAMES[:4]:
        run: Any = {"sampling_probability": 0.5, "steps": 3}
        assert noise_by(name, 1000.0, DELTA, **run) == noise_by(name, LARGEST, DELTA, **run)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"accountant": "moments"}, "accountant must be one of"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"delta": 0.0}, "delta must be in"),
        ({"sampling_probability": 0.0}, "sampling_probability must be in"),
        ({"steps": 0}, "steps must be"),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    usual = {"accountant": "advanced", "epsilon": 1.0, "delta": DELTA, **SAMPLED, **given}
    with pytest.raises(errors.InvalidParameter, match=message):
        noise_by(usual.pop("accountant"), usual.pop("epsilon"), usual.pop("delta"), **usual)
