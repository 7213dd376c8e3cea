"""Training in a fixed order: whose turn it is, what it states, and what an audit shows."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import toeplitz
from torch import Tensor, nn

from tacit.audit import guesses
from tacit.central.training import TrainedInOrder, in_order, train_in_order
from tacit.central.training.auditing import _Beside, _Pull, _rows
from tacit.central.training.turns import FixedOrder, Turns, turns_of
from tacit.privacy import errors, events, gaussian
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.accounting.participation import Banded
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import ApproxDP
from tacit.privacy.randomness import Seeded

DELTA = 1e-5


def squared(module: nn.Module, rows: Tensor) -> Tensor:
    return module(rows).square().sum(1)


def cross_entropy(module: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(module(rows), labels, reduction="none")


def toy(records: int = 2000) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(records, 8, generator=torch.Generator().manual_seed(0))
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()


# --- whose turn it is -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "size", "steps"), [(10, 3, 9), (1, 5, 4), (100, 7, 40), (6, 6, 3), (7, 1, 20)]
)
def test_a_record_has_its_turns_a_period_apart(records: int, size: int, steps: int) -> None:
    turns = turns_of(records, size, None, steps)
    order = FixedOrder(turns, (torch.arange(1, records + 1),))
    seen: dict[int, list[int]] = defaultdict(list)
    for step in range(steps):
        (batch,), there = order.batch()
        assert len(batch) == len(there) == turns.slots <= size
        assert torch.equal(batch > 0, there)  # what is not there is blank
        for record in batch[there].tolist():
            seen[record].append(step)
    for found in seen.values():
        assert set(np.diff(found)) <= {turns.period}
        assert len(found) <= turns.most
    assert len(seen) == min(records, steps * turns.slots)
    assert max(len(found) for found in seen.values()) == turns.most


def test_there_is_no_step_more_and_no_way_back() -> None:
    order = FixedOrder(Turns(4, 2, 3), (torch.zeros(4, 1),))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a copy would give records more turns"):
            copied(order)
    for _ in range(3):
        order.batch()
    with pytest.raises(errors.TacitError, match="steps must be at most 3, as stated"):
        order.batch()


def test_rows_of_the_caller_are_not_touched() -> None:
    data = torch.full((8, 2), torch.nan)
    kept = data.clone()
    trained = train_in_order(
        nn.Linear(2, 1), data, squared, epsilon=2.0, delta=DELTA, batch_size=4, epochs=2
    )
    assert torch.equal(data.isnan(), kept.isnan())
    assert trained.dropped == 16


# --- what it learns and states --------------------------------------------------------------------


@pytest.fixture(scope="module")
def run() -> TrainedInOrder:
    return train_in_order(
        nn.Linear(8, 2),
        toy(500),
        cross_entropy,
        epsilon=2.0,
        delta=DELTA,
        clip_norm=0.5,
        batch_size=50,
        epochs=4,
        bands=6,
        unit="person",
        rng=Seeded(1),
    )


def test_it_learns() -> None:
    data, module = toy(), nn.Linear(8, 2)
    trained = train_in_order(
        module, data, cross_entropy, epsilon=3.0, delta=DELTA, batch_size=100, epochs=10
    )
    with torch.no_grad():
        assert float((module(data[0]).argmax(1) == data[1]).float().mean()) > 0.9
    assert trained.guarantee.epsilon <= 3
    assert (trained.steps, trained.period, trained.turns) == (200, 20, 10)
    assert trained.strategy.bands == 20


def test_what_is_stated_is_one_gaussian(run: TrainedInOrder) -> None:
    assert isinstance(run.event, events.Gaussian)
    assert (run.steps, run.period, run.turns) == (40, 10, 4)
    assert run.event.l2_sensitivity == run.strategy.sensitivity(40, 10) / 2
    # Four turns of disjoint columns.
    column = np.linalg.norm([float(one) for one in run.strategy.coefficients])
    assert float(run.event.l2_sensitivity) == pytest.approx(0.5 * 2 * column, rel=1e-12)
    assert run.noise_multiplier == pytest.approx(gaussian.noise_multiplier_for(2.0, DELTA))
    assert events.scope_of(run.event) == {"adjacency": "zero-out", "unit": "person"}
    assert run.guarantee == guarantee_of(run.event, DELTA)
    assert 1.99 < run.guarantee.epsilon <= 2
    assert run.seeded
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.steps = 1  # type: ignore[misc]


def test_the_certificate_says_what_is_not_protected(run: TrainedInOrder, tmp_path: Any) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"weights")
    certificate = run.certificate(path)
    certificate.save(tmp_path / "certificate.json")
    Certificate.load(tmp_path / "certificate.json").verify(path)
    text = " ".join(certificate.explain().split())
    for words in (
        "a noise multiplier of",
        "floating-point Gaussian from a seeded generator",
        "The number of persons, their order and the steps in which each has its turn.",
        "at the start of training did not depend on these data",
    ):
        assert words in text


def test_it_composes_with_another_event(run: TrainedInOrder) -> None:
    scope = events.scope_of(run.event)
    both = events.Composed((run.event, events.Gaussian(1, 4, **scope)))
    together = 1 / (1 / run.noise_multiplier**2 + 1 / 16) ** 0.5
    expected = gaussian.epsilon_of(together, DELTA)
    assert guarantee_of(both, DELTA).epsilon == pytest.approx(expected, rel=1e-3)
    beside = events.Gaussian(1, 4, **{**scope, "unit": "record"})
    trained = train_in_order(
        nn.Linear(8, 1), toy(40)[0], squared, epsilon=2.0, delta=DELTA, steps=2, beside=beside
    )
    assert trained.event == events.Composed((beside, trained.event.events[1]))
    assert trained.guarantee.epsilon <= 2


def test_a_ledger_is_charged_for_the_whole_training_and_refuses_a_restart(tmp_path: Any) -> None:
    given = {"epsilon": 2.0, "delta": DELTA, "batch_size": 16, "epochs": 2}

    class Killed(Exception):
        pass

    def killed(step: int, steps: int) -> None:
        if step == 3:
            raise Killed

    with Ledger(tmp_path / "budget") as ledger:
        ledger.open("rows", ApproxDP(3.0, 1e-4, adjacency="zero-out", unit="record"))
        paid = {"ledger": ledger, "account": "rows"}
        with pytest.raises(Killed):
            train_in_order(nn.Linear(8, 1), toy(64)[0], squared, **given, **paid, progress=killed)
        assert len(ledger.show("rows").charges) == 1  # for all steps, those that never ran too
        with pytest.raises(errors.BudgetExceeded):
            train_in_order(nn.Linear(8, 1), toy(64)[0], squared, **given, **paid)


def test_without_noise_it_is_the_mean_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With momentum, decay and averaging, as torch's own SGD does it."""
    monkeypatch.setattr(in_order, "CorrelatedNoise", _Silent)
    rows = toy(60)[0]
    torch.manual_seed(0)
    ours, plain = nn.Linear(8, 2), nn.Linear(8, 2)
    plain.load_state_dict(ours.state_dict())
    options: dict[str, Any] = {"batch_size": 20, "epochs": 3, "momentum": 0.8, "decay": True}
    train_in_order(ours, rows, squared, epsilon=1.0, delta=DELTA, clip_norm=1e4, **options)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.8)
    for step in range(9):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 9)
        optimizer.zero_grad()
        squared(plain, rows[20 * (step % 3) : 20 * (step % 3 + 1)]).mean().backward()
        optimizer.step()
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


class _Silent(in_order.CorrelatedNoise):
    def add_to(self, sums: Tensor, divisor: float = 1.0) -> None:
        sums.div_(divisor)


def test_microbatches_give_the_same() -> None:
    found = []
    for microbatch in (None, 3):
        torch.manual_seed(0)
        module = nn.Linear(8, 2)
        given: dict[str, Any] = {"epsilon": 2.0, "delta": DELTA, "batch_size": 8, "epochs": 2}
        train_in_order(module, toy(20)[0], squared, **given, microbatch=microbatch, rng=Seeded(2))
        found.append(module.weight.detach())
    assert torch.allclose(*found, atol=3e-3)  # a few steps of the grid; the noise is near 0.2


def test_room_for_rounding_is_left() -> None:
    turns = Turns(100_000, 100, 1000)
    plain = turns.rounding(torch.float32, Banded.nearest([1.0]))
    assert plain < turns.rounding(torch.float32, Banded.nearest([1.0] * 100)) < plain + 1e-6


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("bands", 4, "bands must be an integer from 1 to 3"),
        ("bands", 0, "bands must be an integer from 1 to 3"),
        ("epochs", 0, "epochs must be above 0"),
        ("steps", 3, "steps must be left out if epochs is given"),
        ("batch_size", 0, "batch_size must be an integer from 1"),
        ("momentum", 1.0, r"momentum must be in \[0, 1\)"),
        ("learning_rate", 0, "learning_rate must be above 0"),
        ("average", 2, r"average must be in \[0, 1\]"),
        ("epsilon", 0, "epsilon must be above 0"),
        ("delta", 0.9, "delta must be below 0.5"),
        ("clip_norm", float("nan"), "clip_norm must be"),
    ],
)
def test_refusals_name_the_function_and_come_before_any_record(
    option: str, value: Any, words: str
) -> None:
    given = {"epsilon": 1.0, "delta": DELTA, "batch_size": 10, "epochs": 2, option: value}
    with pytest.raises(errors.InvalidParameter, match=f"train_in_order: {words}"):
        train_in_order(nn.Linear(8, 1), toy(30)[0], squared, **given)


def test_modules_that_mix_records_are_refused() -> None:
    mixing = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
    with pytest.raises(errors.TacitError, match="train_in_order: "):
        train_in_order(mixing, toy(30)[0], squared, epsilon=1.0, delta=DELTA)


# --- an audit in one run --------------------------------------------------------------------------

CANARIES = 2400
WHO = Callable[[int], int]


def attacked(epsilon: float, seed: int, period: int, turns: int, who: WHO | None = None) -> float:
    """Attack one training with its whole trajectory, by the likelihood ratio of what was stated.

    Each canary has a weight of its own, so the answers for it are known. C makes white noise of
    them, around the columns of the canary's turns if it is there.
    """
    inside = guesses.coins(CANARIES, guesses.apart(Seeded(seed)))
    beside, weights = _Beside(None, CANARIES), [np.zeros(CANARIES)]

    def progress(step: int, steps: int) -> None:
        weights.append(beside.weights.weight.detach()[1:, 0].double().numpy().copy())

    trained = train_in_order(
        beside,
        _rows(torch.from_numpy(inside), ()),
        _Pull(None, 1e3),
        epsilon=epsilon,
        delta=1e-6,
        batch_size=CANARIES // period,
        epochs=turns,
        learning_rate=1.0,
        momentum=0.0,
        rng=Seeded(seed),
        progress=progress,
    )
    batches = np.arange(CANARIES) // (CANARIES // period)
    turn = np.array([batches == (who or (lambda t: t % period))(t) for t in range(trained.steps)])
    column = np.zeros(trained.steps)
    column[:period] = [float(one) for one in trained.strategy.coefficients]
    mix = np.tril(toeplitz(column))
    scores = ((mix @ np.diff(weights, axis=0)) * (mix @ turn)).sum(0)
    proof = guesses.from_singles(inside, scores, delta=1e-6, certainty=0.99, rng=Seeded(seed))
    return proof.epsilon


def of_one_turn(self: Banded, steps: int, period: int, turns: int | None = None) -> Any:
    """A mutant: the sensitivity of one column, however many turns there are."""
    return SQUARED(self, steps, period, 1)


def too_soon(self: FixedOrder) -> tuple[tuple[Tensor, ...], Tensor]:
    """A mutant: as many turns as stated, but a batch has all of them one after the other."""
    self._count = getattr(self, "_count", -1) + 1  # type: ignore[attr-defined]
    self._step = self._count // 24  # type: ignore[attr-defined]
    return BATCH(self)


BATCH, SQUARED = FixedOrder.batch, Banded.squared_sensitivity


def test_an_audit_does_not_refute_it() -> None:
    for seed in range(3):
        assert 0 < attacked(1.0, seed, 12, 12) <= 1.0
    assert attacked(1.0, 3, 3, 36) <= 1.0


def test_an_audit_refutes_the_sensitivity_of_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Banded, "squared_sensitivity", of_one_turn)
    assert attacked(1.0, 1, 3, 36) > 1.0


def test_an_audit_refutes_turns_that_come_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FixedOrder, "batch", too_soon)
    assert attacked(1.0, 1, 24, 24, lambda step: step // 24) > 1.0
