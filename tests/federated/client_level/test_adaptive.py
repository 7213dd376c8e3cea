"""The clip norm finds its quantile from both sides, and its counts are paid for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.federated.algorithms.registry import algorithm
from tacit.federated.client_level import adaptive
from tacit.federated.client_level.adaptive import Adaptive
from tacit.federated.client_level.privacy import ClientPrivacy
from tacit.federated.payload import Layout, Payload
from tacit.privacy import errors
from tacit.privacy.accounting.plans import update_multiplier
from tacit.privacy.randomness import Seeded

PHASE = algorithm("fedavg").phases[0]
LAYOUT = Layout((("weight", (3,)),))
CLIENTS = 400


def followed(
    start: float, rule: Adaptive, answering: float = 1.0, rounds: int = 140
) -> tuple[np.ndarray, np.ndarray]:
    """Clip norms of all rounds, over clients whose norms are spread like a log-normal law."""
    rng = np.random.default_rng(0)
    norms = rng.lognormal(0.7, 0.5, CLIENTS)
    found = ClientPrivacy(
        CLIENTS,
        cohort=CLIENTS,
        epsilon=8,
        delta=1e-5,
        rounds=rounds,
        clip_norm=start,
        adaptive=rule,
        rng=Seeded(1),
    )
    found.admit(algorithm("fedavg"), algorithm("fedavg").config(weighted=False), CLIENTS)
    path = []
    for number in range(1, rounds + 1):
        asked = found.choose(number, CLIENTS)
        there = [k for k in asked if rng.random() < answering]
        replies = {k: Payload({"update": norms[k] * np.array([0.6, 0, -0.8])}) for k in there}
        found.gather(number, PHASE, replies, LAYOUT)
        path.append(found.clip_norms["update"])
    return np.array(path), norms


@pytest.mark.parametrize("factor", [100.0, 0.01])
@pytest.mark.parametrize("quantile", [0.5, 0.8])
def test_it_finds_its_quantile_from_far_above_and_below(factor: float, quantile: float) -> None:
    rule = Adaptive(quantile, rate=0.3)
    target = float(np.quantile(np.random.default_rng(0).lognormal(0.7, 0.5, CLIENTS), quantile))
    path, _ = followed(factor * target, rule)
    assert abs(path[0] / (factor * target) - 1) < 0.4  # a step at a time
    assert abs(path[-20:] / target - 1).mean() < 0.1
    assert abs(path[-1] / target - 1) < 0.1


def test_drop_outs_do_not_move_the_median() -> None:
    path, norms = followed(1.0, Adaptive(0.5), answering=0.8)
    assert abs(path[-20:].mean() / np.median(norms) - 1) < 0.1


def test_a_rule_that_goes_the_wrong_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Adaptive.moved
    monkeypatch.setattr(Adaptive, "moved", lambda self, norm, signs, *rest: right(
        self, norm, -signs, *rest
    ))  # fmt: skip
    path, norms = followed(10.0, Adaptive(0.5), rounds=40)
    assert abs(path[-1] / np.median(norms) - 1) > 1


@pytest.mark.parametrize("releases", [1, 2, 3])
@pytest.mark.parametrize("z", ["0.7", "1", "12.5"])
def test_updates_and_counts_cost_together_what_is_stated(z: str, releases: int) -> None:
    multiplier, deviation = Fraction(z), Fraction(50)
    found = update_multiplier("test", multiplier, deviation, releases=releases)
    together = releases * (1 / found**2 + 1 / deviation**2)
    assert together <= 1 / multiplier**2
    assert float(together * multiplier**2) == pytest.approx(1, abs=1e-6)
    if releases == 1:  # Theorem 1 of Andrew et al., with σ_b = 25
        assert float(found) == pytest.approx((float(z) ** -2 - (2 * 25) ** -2) ** -0.5)


def test_a_count_with_too_little_noise_is_refused() -> None:
    with pytest.raises(errors.InvalidParameter, match=r"^Adaptive: count_noise must be above 1, "):
        update_multiplier("Adaptive", Fraction(2), Fraction(2))


def test_noise_on_the_count_is_what_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, stream = Adaptive(0.5, rate=1.0, count_noise=7.0), Seeded(0)
    drawn = np.log([rule.moved(1.0, 0, 100, stream) for _ in range(4000)])
    assert abs(drawn.std() / (7.0 / 100) - 1) < 4 / np.sqrt(2 * 4000)
    monkeypatch.setattr(adaptive, "rounded_gaussian", lambda sigma, n, rng: np.zeros(n, int))
    steps = [np.log(rule.moved(1.0, signs, 100, stream)) for signs in (0, 1)]
    # A client more or less changes the count by 1/2, which is what 2σ_b is a multiple of.
    assert steps[0] - steps[1] == pytest.approx(0.5 / 100)


def test_the_norm_stays_a_number() -> None:
    rule = Adaptive(0.5, rate=50.0)
    for signs, most in ((10**6, 2.0**-64), (-(10**6), 2.0**64)):
        assert rule.moved(1.0, signs, 10, Seeded(0)) == pytest.approx(most)


@pytest.mark.parametrize(
    "given", [{"quantile": 0}, {"quantile": 1}, {"rate": 0}, {"count_noise": -1}]
)
def test_impossible_rules_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidParameter, match=r"^Adaptive: "):
        Adaptive(**given)
