"""Canary clients: the guarantee as it ships is never refuted, mutants of its parts are."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tacit.audit.canaries import canary_bound, matched_filter, one_run_bound
from tacit.federated import client_privacy, rounds
from tacit.federated.algorithms import algorithm
from tacit.federated.client_privacy import ClientPrivacy, Clipped
from tacit.federated.model import Data, Evaluation
from tacit.federated.payload import Layout, Payload
from tacit.randomness import Seeded

PHASE = algorithm("fedsgd").phases[0]
CONFIG = algorithm("fedsgd").config(weighted=False, learning_rate=1.0)
LOUD = 1e3
"""Clip norms that a canary would add, were it not clipped."""


class Pulled:
    """A weight for every canary: its gradient pulls up that weight and no other."""

    dtype = np.dtype(np.float64)

    def __init__(self, canaries: int) -> None:
        self.layout = Layout((("weights", (canaries,)),))

    def start(self) -> np.ndarray:
        return np.zeros(self.layout.size)

    def gradient(self, parameters: Any, rows: Any, labels: Any) -> np.ndarray:
        found = self.start()
        found[int(rows[0, 0])] = -rows[0, 1]
        return found

    def evaluate(self, parameters: Any, rows: Any, labels: Any) -> Evaluation:
        return Evaluation(0.0, 0.0)


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 400), (8.0, 400)])
def test_canary_clients_prove_no_more_than_is_claimed(epsilon: float, count: int) -> None:
    """In one run of the loop as it ships, of three rounds with everybody."""
    model = Pulled(count)

    def fit(rows: Any) -> Any:
        privacy = ClientPrivacy(
            count, cohort=count, epsilon=epsilon, delta=1e-5, rounds=3, rng=Seeded(3)
        )
        clients = [Data(row[None], np.zeros(1, dtype=int)) for row in rows]
        assert privacy.plan.epsilon(3) == pytest.approx(epsilon, rel=1e-3)
        return rounds.run("fedsgd", model, clients, 3, config=CONFIG, gathering=privacy).model

    found = one_run_bound(
        fit,
        np.zeros((0, 2)),
        np.column_stack([np.arange(count), np.full(count, LOUD)]),
        lambda released: released,
        guesses=60,
        absent=np.zeros(2),
        delta=1e-5,
        rng=Seeded(5),
    )
    assert found.epsilon <= epsilon
    assert found.certifiable > 1
    if epsilon == 8:
        assert found.epsilon > 1  # the audit sees something


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
