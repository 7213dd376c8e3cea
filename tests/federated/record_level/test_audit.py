"""Record canaries in a silo as it ships: never refuted. Mutants of its parts are."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.audit.canaries import canary_bound, matched_filter, one_run_bound
from tacit.central.training import clipping, gradients
from tacit.central.training.noise import Noise
from tacit.central.training.schedule import Schedule
from tacit.federated import rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.model import Data
from tacit.federated.record_level.privacy import RecordPrivacy
from tacit.federated.record_level.silo import Silo
from tacit.federated.rounds import RunOptions
from tacit.federated.torch_model import TorchModel
from tacit.privacy.randomness import Seeded

LOUD = 1e3
"""Clip norms that a canary would add, were it not clipped."""


def minus(outputs: Tensor, labels: Tensor) -> Tensor:
    """A loss whose gradient is the row, backwards: a canary pulls up its own weight."""
    return -outputs.mean()


def flat(width: int) -> TorchModel:
    def build() -> nn.Module:
        layer = nn.Linear(width, 1, bias=False)
        nn.init.zeros_(layer.weight)
        return layer

    return TorchModel(build, minus)


def of(rows: Any) -> Data:
    return Data(np.asarray(rows, dtype=np.float32), np.zeros(len(rows), dtype=int))


def proved(epsilon: float, count: int = 400, *, guesses: int = 60, seed: int = 3) -> Any:
    """What canaries of one run prove: three rounds of FedAvg in one silo, with everybody."""
    model, chosen = flat(count), algorithm("fedavg")
    config = chosen.config(batch_size=None, epochs=1, learning_rate=1.0)
    privacy = RecordPrivacy(epsilon=epsilon, delta=1e-5, rounds=3)

    def fit(rows: Any) -> Any:
        silo = Silo(model, of(rows), privacy, chosen, config, rng=Seeded(seed))
        found = rounds.run(chosen, model, [silo], 3, RunOptions(config=config))
        assert silo.spent == pytest.approx(epsilon)
        return found.model

    return one_run_bound(
        fit,
        np.zeros((0, count)),
        LOUD * np.eye(count),
        lambda released: released,
        guesses=guesses,
        absent=np.zeros(count),
        delta=1e-5,
        rng=Seeded(5),
    )


def test_canaries_prove_something_and_no_more_than_is_claimed() -> None:
    found = proved(8.0)
    assert 1 < found.epsilon <= 8


def test_without_clipping_it_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All guesses are right, whatever was claimed."""

    def unclipped(losses: Tensor, squared: Tensor, *given: Any) -> tuple[Tensor, Tensor, int]:
        return torch.ones_like(squared), torch.ones_like(losses, dtype=torch.bool), 0

    monkeypatch.setattr(clipping, "factors", unclipped)
    assert proved(1.0).epsilon > 1


# --- mutants that only many runs show -----------------------------------------------------------
# One weight, seven other rows that push it down, the canary that pulls it up or is blank. Claims
# at δ = 1 %, so that a few thousand runs can tell half the noise from the right one.

OTHERS, DELTA = 7, 0.01


@cache
def made(*, sampled: bool) -> tuple[Silo, dict[str, Any]]:
    """One draw with everybody, or eight with a quarter of the rows in each."""
    chosen, model = algorithm("fedavg"), flat(1)
    settings = {"batch_size": 2, "epochs": 2} if sampled else {"batch_size": None, "epochs": 1}
    config = chosen.config(learning_rate=1.0, **settings)
    privacy = RecordPrivacy(epsilon=1.0, delta=DELTA, rounds=1)
    silo = Silo(model, of(np.full((OTHERS + 1, 1), -LOUD)), privacy, chosen, config)
    return silo, {"model": model.start()}


def bound(*, sampled: bool = False, runs: int = 2500) -> float:
    """What so many runs with the canary, and as many without, prove."""
    silo, received = made(sampled=sampled)
    silo._stream = Seeded(7)
    silo._gradients.noise = Noise(silo._gradients.noise.sigma, silo._stream)
    rng, (_, *others) = np.random.default_rng(0), silo._gradients.rows

    def fit(rows: Any) -> Any:
        silo._payment._begun.clear()
        silo._gradients.rows = (torch.from_numpy(rows.astype(np.float32)), *others)
        reply, _ = silo.answer(1, silo.algorithm.phases[0], received, {}, rng)
        return reply.record["update/weight"].ravel()

    return canary_bound(
        fit,
        np.full((OTHERS, 1), -LOUD),
        np.array([LOUD]),
        runs=runs,
        absent=np.zeros(1),
        delta=DELTA,
        confidence=0.999,
        scores=[matched_filter([1.0])],
    ).epsilon


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module draws nothing at random: its seed, half of an answer's time, may be left out."""
    monkeypatch.setattr(gradients.SecretDraws, "active", lambda self: nullcontext())


@pytest.mark.slow
@pytest.mark.usefixtures("swift")
@pytest.mark.parametrize("sampled", [False, True])
def test_the_right_one_is_not_refuted(sampled: bool) -> None:
    found = bound(sampled=sampled, runs=400 if sampled else 2500)
    assert found <= 1
    assert found > 0.1 or sampled


@pytest.mark.slow
@pytest.mark.usefixtures("swift")
def test_with_half_the_noise_it_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Noise.add_to

    def faint(self: Noise, sums: Tensor, divisor: float = 1.0) -> None:
        right(Noise(self.sigma / 2, self.stream), sums, divisor)

    monkeypatch.setattr(Noise, "add_to", faint)
    assert bound() > 1


@pytest.mark.slow
@pytest.mark.usefixtures("swift")
def test_with_batches_four_times_as_large_it_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Schedule.sample

    def large(self: Schedule, stream: Any) -> Tensor:
        return right(Schedule(self.records, 4 * self.threshold, 1, Fraction(1)), stream)

    monkeypatch.setattr(Schedule, "sample", large)
    assert bound(sampled=True, runs=700) > 1
