"""`train` as it ships, audited in one run, beside mutants of its parts that must be refuted."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.central.training import loop, probing
from tacit.central.training.auditing import TrainingAudit, audit_training
from tacit.central.training.clipping import Clipper
from tacit.central.training.noise import Noise
from tacit.central.training.scaling import Clipped, Tally
from tacit.central.training.schedule import Schedule
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Randomness, Seeded

DELTA = 1e-6
SAMPLED: dict[str, Any] = {"canaries": 2000, "batch_size": 500, "steps": 128, "accountant": "rdp"}


def audited(epsilon: float, seed: int = 0, **options: Any) -> TrainingAudit:
    usual: dict[str, Any] = {"canaries": 1000, "batch_size": 1000, "steps": 1}
    given = {**usual, **options}
    return audit_training(epsilon=epsilon, delta=DELTA, rng=Seeded(seed), **given)


def test_much_of_the_claim_is_shown() -> None:
    found = audited(8.0)
    assert 1.5 < found.proof.epsilon <= 8.0
    assert not found.refuted
    assert found.words.startswith("not refuted: ε ≥ ")
    assert json.loads(json.dumps(found.to_dict()))["proof"]["canaries"] == 1000


def test_sampled_training_shows_something_and_no_more_than_claimed() -> None:
    found = audited(2.0, **SAMPLED)
    assert 0.1 < found.proof.epsilon <= 2.0
    assert found.proof.certifiable > 2.0


class Faint(Noise):
    """A tenth of the noise that is accounted for."""

    def __init__(self, scale: float, stream: Randomness) -> None:
        super().__init__(scale / 10, stream)


def unclipped(self: Clipper, batch: Any, scaling: Any, *layout: Any) -> tuple[Tensor, Tally]:
    return CLIPPED(self, batch, Clipped((math.inf,)), *layout)


def fourfold(self: Schedule, stream: Randomness) -> tuple[Tensor, Tensor]:
    """Four times as many records as the accountant was told of, and slots for all."""
    self.__dict__["slots"] = self.records
    more = Schedule(self.records, 4 * self.threshold, self.steps, self.noise_multiplier)
    chosen = more.sample(stream)
    return chosen, chosen


CLIPPED = Clipper.tallied
MUTANTS = {
    "faint noise": (loop, "Noise", Faint),
    "not clipped": (Clipper, "tallied", unclipped),
    "more in a batch": (Schedule, "layout", fourfold),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = SAMPLED if name == "more in a batch" else {}
    right = audited(2.0, 1, **options)
    monkeypatch.setattr(*MUTANTS[name])
    mutant = audited(2.0, 1, **options)
    assert not right.refuted
    assert mutant.refuted
    assert mutant.words.startswith("refuted: ε ≥ ")


def squared_error(module: nn.Module, rows: Tensor, targets: Tensor) -> Tensor:
    return (module(rows)[:, 0] - targets) ** 2


def test_canaries_beside_a_module() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 3, generator=generator)
    module = nn.Linear(3, 1)
    before = module.weight.detach().clone()
    data = (rows, rows[:, 0])
    options: dict[str, Any] = {"canaries": 600, "batch_size": 1000, "steps": 4, "delta": DELTA}
    found = audit_training(module, data, squared_error, epsilon=8.0, rng=Seeded(2), **options)
    assert 0.5 < found.proof.epsilon <= 8.0
    assert found.trained.sampling_probability == 1.0  # canaries are records too
    assert not torch.equal(module.weight, before)


@pytest.mark.parametrize("seed", range(3))
def test_canaries_leave_the_module_alone(seed: int) -> None:
    # Its gradient is that of its own records: canaries pull no weight but theirs.
    from tacit.central.training.auditing import _Beside, _Pull, _rows

    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
    data = (rows, rows[:, 0])
    beside = _Beside(nn.Linear(3, 1), 4)
    inside = torch.tensor([True, False, True, False])
    batch = _rows(inside, data)
    clipper = probing.clipper("test", beside, _Pull(squared_error, 1e3), batch)
    assert clipper.book_kept
    flat, dropped = clipper.sums(batch, 1.0)
    *own, pulled = clipper.views(flat)
    assert beside.module is not None
    alone = probing.clipper("test", beside.module, squared_error, data)
    expected = alone.views(alone.sums(data, 1.0)[0])
    for mine, theirs in zip(own, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
    assert pulled[:, 0].tolist() == pytest.approx([0, -1, 0, -1, 0], abs=1e-4)
    assert dropped == 0


def test_refusals() -> None:
    with pytest.raises(InvalidParameter, match="module, data and loss must be given together"):
        audit_training(nn.Linear(2, 1), epsilon=1.0, delta=DELTA)
    with pytest.raises(InvalidParameter, match="canaries must be an integer from 2"):
        audited(1.0, canaries=1)
    with pytest.raises(InvalidParameter, match="guesses must be an integer from 1 to 1000"):
        audited(1.0, guesses=2000)
