"""Canary clients: the guarantee as it ships is never refuted, mutants of its parts are."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from tacit.audit.canaries import canary_bound, matched_filter
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.client_level import privacy as client_privacy
from tacit.federated.client_level.adaptive import Adaptive
from tacit.federated.client_level.auditing import audit_clients, one_guess_bound
from tacit.federated.client_level.plan import ClientPlan
from tacit.federated.client_level.privacy import ClientPrivacy, Clipped
from tacit.federated.payload import Layout, Payload
from tacit.privacy import errors
from tacit.privacy.randomness import Seeded

PHASE = algorithm("fedsgd").phases[0]
CONFIG = algorithm("fedsgd").config(weighted=False, learning_rate=1.0)
LOUD = 1e3
"""Clip norms that a canary would add, were it not clipped."""


def planned(clients: int, **options: Any) -> ClientPrivacy:
    return ClientPrivacy(clients, **{"cohort": clients, "delta": 1e-5, "rounds": 1, **options})


# --- one guess per run ------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(("epsilon", "shown"), [(1.0, 0.4), (8.0, 3.5)])
def test_canary_clients_prove_much_and_no_more_than_is_claimed(
    epsilon: float, shown: float
) -> None:
    found = audit_clients(planned(50, epsilon=epsilon), runs=800, rng=Seeded(0))
    assert found.epsilon == pytest.approx(epsilon)
    assert shown < found.certified <= found.epsilon
    assert not found.refuted
    assert found.words.startswith("not refuted")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "runs", "shown", "options"),
    [
        (1.0, 4000, 0.55, {}),
        (8.0, 4000, 4.2, {}),
        (8.0, 1000, 3.5, {"rounds": 3, "adaptive": Adaptive()}),
        (1.0, 1000, 0.4, {"rounds": 4, "cohort": 50}),
        (8.0, 1000, 2.5, {"rounds": 5, "cohort": 20}),
    ],
)
def test_more_runs_prove_more(
    epsilon: float, runs: int, shown: float, options: dict[str, Any]
) -> None:
    plan = planned(100, epsilon=epsilon, **options)
    found = audit_clients(plan, runs=runs, rng=Seeded(1))
    assert shown < found.certified <= found.epsilon <= epsilon


def wrongly(canaries: int, runs: int, epsilon: float, delta: float, believed: float) -> float:
    """The chance that a true claim is refuted at 95 %, where guesses are as good as they can be."""
    right = (math.exp(epsilon) + canaries * delta) / (1 + math.exp(epsilon))
    bounds = [one_guess_bound(canaries, runs, v, believed, 0.95) for v in range(runs + 1)]
    refuting = np.array(bounds) > epsilon
    return float(binom.pmf(np.arange(runs + 1), runs, right)[refuting].sum())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_a_true_claim_is_refuted_as_rarely_as_is_said(epsilon: float) -> None:
    assert 0 < wrongly(100, 1000, epsilon, 1e-3, believed=1e-3) <= 0.05
    assert wrongly(100, 1000, epsilon, 1e-3, believed=0.0) > 0.05  # δ left out


@pytest.mark.parametrize("part", ["clip", "rounded_gaussian"])
def test_an_audit_refutes_what_is_not_clipped_or_hardly_noised(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"clip": unclipped, "rounded_gaussian": hardly}
    monkeypatch.setattr(client_privacy, part, broken[part])
    found = audit_clients(planned(20, epsilon=1), runs=200, rng=Seeded(0))
    assert found.refuted


@pytest.mark.slow
def test_an_audit_refutes_cohorts_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(50, cohort=2, epsilon=1, noise_multiplier=1)
    assert not audit_clients(plan, runs=300, rng=Seeded(0)).refuted
    monkeypatch.setattr(ClientPlan, "sample", lambda plan, rng: list(range(plan.clients)))
    assert audit_clients(plan, runs=300, rng=Seeded(0)).refuted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"canaries": 6}, "canaries must be"),
        ({"runs": 0}, "runs must be"),
        ({"certainty": 1.0}, "certainty must be"),
    ],
)
def test_impossible_audits_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=f"^audit_clients: {message}"):
        audit_clients(planned(5, epsilon=1), **options)


# --- mutants ----------------------------------------------------------------------------------
# One number, four other clients at −C, the canary at +C or not answering. Claims at δ = 1 %, so
# that a few thousand runs can tell twice the sensitivity, or half the noise, from the right one.

OTHERS, DELTA = 4, 0.01
ONE = Layout((("weight", (1,)),))


class Divided(ClientPrivacy):
    """Sum and noise over those who answered: a client more moves all the others' shares too."""

    def gather(self, number: int, phase: Any, taken: Any, layout: Any) -> Any:
        found = super().gather(number, phase, taken, layout)
        actual = {
            name: part * self.plan.cohort / max(len(taken), 1) for name, part in found.parts.items()
        }
        return type(found)(actual, len(taken))


class Fixed(ClientPrivacy):
    """Always so many of those who are there: a client more pushes another one out."""

    there: list[int]

    def choose(self, number: int, clients: int) -> list[int]:
        super().choose(number, clients)
        keys = self._rng.words(len(self.there))
        self._asked = {self.there[k] for k in np.argsort(keys)[: OTHERS // 2]}
        return sorted(self._asked)


def unclipped(rows: Any, norm: float) -> Clipped:
    steps = np.rint(np.asarray(rows) / norm * 2**20).astype(np.int64)
    return Clipped(steps, np.ones(len(steps), dtype=bool))


def faint(sigma: Any, size: int, rng: Any) -> Any:
    return client_privacy_gaussian(sigma / 2, size, rng)


def hardly(sigma: Any, size: int, rng: Any) -> Any:
    return client_privacy_gaussian(sigma / 3, size, rng)


client_privacy_gaussian = client_privacy.rounded_gaussian


@cache
def made(kind: type[ClientPrivacy], *, sampled: bool) -> ClientPrivacy:
    """Everybody once, or half of them once, with the noise as large as what one may add."""
    given: dict[str, Any] = {"epsilon": 1, "rounds": 1}
    if sampled:
        given = {"epsilon": 3, "noise_multiplier": 1, "rounds": 1, "cohort": (OTHERS + 1) / 2}
    usual = {"cohort": OTHERS + 1, "delta": DELTA}
    found = kind(OTHERS + 1, **{**usual, **given})
    found.admit(algorithm("fedsgd"), CONFIG, OTHERS + 1)
    return found


def bound(kind: type[ClientPrivacy] = ClientPrivacy, *, sampled: bool = False) -> tuple[float, Any]:
    """What is claimed, and what the canary proves."""
    privacy = made(kind, sampled=sampled)
    privacy._rng = Seeded(7)  # whatever ran before

    def fit(values: Any) -> Any:
        privacy.run = 0
        answers = {k: Payload({"gradient": v}) for k, v in enumerate(values) if not np.isnan(v)}
        privacy.there = list(answers)  # type: ignore[attr-defined]
        asked = privacy.choose(1, OTHERS + 1)
        taken = {k: answers[k] for k in asked if k in answers}
        return privacy.gather(1, PHASE, taken, ONE).parts["gradient"]

    claimed = privacy.plan.epsilon(1)
    found = canary_bound(
        fit,
        np.full((OTHERS, 1), -LOUD),
        np.array([LOUD]),
        runs=6000 if sampled else 4000,
        absent=np.array([np.nan]),
        delta=DELTA,
        confidence=0.999,
        scores=[matched_filter([1.0])],
    )
    return claimed, found


SAMPLED = pytest.param(True, marks=pytest.mark.slow)


@pytest.mark.parametrize("sampled", [False, SAMPLED])
def test_the_right_one_is_not_refuted(sampled: bool) -> None:
    claimed, found = bound(sampled=sampled)
    assert found.epsilon <= claimed
    assert found.epsilon > 0.1 or sampled


def test_without_clipping_on_the_server_it_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_privacy, "clip", unclipped)
    claimed, found = bound()
    assert found.epsilon > claimed


def test_with_half_the_noise_it_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_privacy, "rounded_gaussian", faint)
    claimed, found = bound()
    assert found.epsilon > claimed


def test_with_another_divisor_it_is_refuted() -> None:
    claimed, found = bound(Divided)
    assert found.epsilon > claimed


@pytest.mark.slow
def test_with_cohorts_of_one_size_it_is_refuted() -> None:
    claimed, found = bound(Fixed, sampled=True)
    assert found.epsilon > claimed
