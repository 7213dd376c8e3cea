"""Expected errors, tails and numbers of records: against draws, oracles and the paper's bounds."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from tacit.central.posteriors import BetaBinomial, accuracy
from tacit.central.posteriors.count_channels import MECHANISMS
from tacit.central.posteriors.count_law import distances
from tacit.privacy import errors
from tacit.privacy.randomness import Seeded

KNOWN = [
    (100, {"mechanism": "geometric"}, (0.059, 0.097, 0.118)),
    (20, {"mechanism": "geometric"}, (0.127, 0.183, 0.121)),
    (100, {"mechanism": "hellinger", "calibration": "paper"}, (0.248, 0.735, 0.922)),
    (100, {"mechanism": "hellinger", "calibration": "instance"}, (0.102, 0.513, 0.822)),
    (
        100,
        {"mechanism": "hellinger", "calibration": "instance", "sensitivity": "local"},
        (0.108, 0.255, 0.896),
    ),
]
"""At Beta(1, 1), ε = 1, δ = 1e-6, x = n/2, n/10 and 0: worked out apart from this code."""


@pytest.mark.parametrize(("total", "asked", "expected"), KNOWN)
def test_known_errors(total: int, asked: dict[str, Any], expected: tuple[float, ...]) -> None:
    law = accuracy.planned((1, 1), total, epsilon=1, delta=1e-6, **asked)
    np.testing.assert_allclose(law.errors([total // 2, total // 10, 0]), expected, atol=6e-4)


@pytest.mark.parametrize(
    ("mechanism", "remap"),
    [*((mechanism, False) for mechanism in MECHANISMS), ("geometric", True), ("hellinger", True)],
)
def test_the_expected_error_is_that_of_draws(mechanism: str, remap: bool) -> None:
    """The law is that of what `release` releases, projected or remapped, naive."""
    prior, total, truth = (2.0, 1.0), 15, np.array([4, 11])
    asked: dict[str, Any] = {"epsilon": 0.6, "delta": 1e-4, "mechanism": mechanism}
    prepared = BetaBinomial(prior=prior).channel(total, calibration="theorem", **asked)
    stream = Seeded(3)
    drawn = [prepared.channel.release(truth, stream) for _ in range(3000)]
    counts = {
        key: prepared.posterior(np.array(key), noise_aware=False, remap=remap).counts[0]
        for key in set(map(tuple, drawn))
    }
    far = distances(prior, total, 4, np.array([counts[tuple(one)] for one in drawn]))
    expected = accuracy.expected_error(prior, total, count=4, remap=remap, **asked)
    assert far.mean() == pytest.approx(expected, abs=4 * far.std() / np.sqrt(far.size))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_rows_are_laws_and_a_remap_never_hurts_on_average(mechanism: str) -> None:
    for epsilon, prior in ((0.2, (1, 1)), (1.0, (0.5, 0.5)), (3.0, (1, 10))):
        law = accuracy.planned(prior, 25, epsilon=epsilon, delta=1e-6, mechanism=mechanism)
        np.testing.assert_allclose(law.table().sum(axis=1), 1, atol=1e-12)
        assert law.remapped().average() <= law.average() + 1e-12
        np.testing.assert_allclose(law.remapped().table().sum(axis=1), 1, atol=1e-12)


def test_the_table_of_the_clamped_count_is_the_mechanisms_own() -> None:
    law = accuracy.planned((1, 1), 12, epsilon=0.7).table()
    channel = BetaBinomial(prior=(1, 1)).channel(12, epsilon=0.7).channel.mechanism
    every = np.arange(13)
    own = np.exp(channel.log_prob(every[None, :], every[:, None]))  # type: ignore[attr-defined]
    np.testing.assert_allclose(law, own, atol=1e-13)


def test_no_hellinger_mechanism_beats_remapped_noise_on_average() -> None:
    for total, epsilon in ((5, 0.1), (20, 0.5), (60, 2.0)):
        best = accuracy.expected_error((1, 1), total, epsilon=epsilon, remap=True)
        for sensitivity in ("smooth", "local", "global"):
            asked = {"sensitivity": sensitivity, "calibration": "instance", "delta": 1e-6}
            found = accuracy.expected_error(
                (1, 1), total, epsilon=epsilon, mechanism="hellinger", **asked
            )
            assert best <= found


@pytest.mark.parametrize("calibration", ["theorem", "instance", "paper"])
def test_bounds_of_the_tail(calibration: str) -> None:
    for count in (0, 3, 20):
        for distance in (0.1, 0.5, 0.9):
            found = accuracy.tail_bounds(
                (1, 1), 40, count=count, distance=distance, epsilon=2, delta=1e-6,
                calibration=calibration,
            )  # fmt: skip
            assert 0 <= found.exact <= found.normalised <= found.by_size <= found.loose <= 1
    law = accuracy.planned(
        (1, 1), 40, epsilon=2, delta=1e-6, mechanism="hellinger", calibration=calibration
    )
    far = distances((1.0, 1.0), 40, 20, np.arange(41))
    exact = law.table()[20][far >= 0.9].sum()
    assert found.exact == pytest.approx(exact, abs=1e-12)
    assert found.exact > 0


def test_distances_keep_their_digits() -> None:
    """Neighbours under strong priors: where differences of log-gammas have none left."""

    def log_beta(a: Any, b: Any) -> Any:
        return mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)

    with mpmath.workdps(60):
        for prior, total in (((1, 1), 100), ((0.5, 0.5), 10_000), ((1e9, 3), 50), ((1e9, 1e9), 9)):
            alpha, beta = map(mpmath.mpf, prior)
            half = total // 2
            for x, r in ((0, 1), (half, half + 1), (half, total // 3), (0, total)):
                a, b, c, d = alpha + x, beta + total - x, alpha + r, beta + total - r
                log = log_beta((a + c) / 2, (b + d) / 2) - (log_beta(a, b) + log_beta(c, d)) / 2
                expected = float(mpmath.sqrt(-mpmath.expm1(log)))
                assert distances(prior, total, x, r) == pytest.approx(expected, rel=1e-10)


def test_the_number_of_records_that_is_needed() -> None:
    for share in (None, 0.5, 0.1):
        found = accuracy.needed((1, 1), error=0.1, share=share, epsilon=1)
        assert found.error <= 0.1 < found.error_before
        count = None if share is None else round(share * found.records)
        again = accuracy.expected_error((1, 1), found.records, count=count, epsilon=1)
        assert again == found.error
    less = accuracy.needed((1, 1), error=0.1, epsilon=2).records
    assert less < accuracy.needed((1, 1), error=0.1, epsilon=1).records
    assert accuracy.needed((1, 1), error=0.99, epsilon=1).records == 1
    laplace = accuracy.needed((1, 1), error=0.1, epsilon=1, mechanism="laplace").records
    assert laplace > accuracy.needed((1, 1), error=0.1, epsilon=1).records


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: accuracy.planned((1, 1), 9, epsilon=1, mechanism="laplace", remap=True),
            "Use geometric",
        ),
        (lambda: accuracy.needed((1, 1), error=0, epsilon=1), "error must be in"),
        (lambda: accuracy.needed((1, 1), error=0.1, share=2, epsilon=1), "share must be in"),
        (lambda: accuracy.expected_error((1, 1, 1), 10, epsilon=1), "prior must be two"),
        (lambda: accuracy.expected_error((1, 1), 10, count=11, epsilon=1), "must lie in"),
        (lambda: accuracy.expected_error((1, 1), 0, epsilon=1), "total must be"),
        (
            lambda: accuracy.expected_error((1, 1), 9, epsilon=1, mechanism="x"),
            "mechanism must be one of",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(errors.TacitError, match=message):
        call()


def test_an_error_beyond_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "_MOST_RECORDS", 2**10)
    with pytest.raises(errors.InvalidParameter, match="reached with 1024 records"):
        accuracy.needed((1, 1), error=1e-5, share=0.5, epsilon=1)
