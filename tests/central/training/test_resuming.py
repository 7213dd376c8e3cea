"""Checkpoints: killed and resumed at the same price, and what was shown is paid for."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.central.training import TrainingLoop
from tacit.central.training.journal import AHEAD, Journal
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ApproxDP
from tacit.privacy.randomness import Keystream, Seeded

DELTA = 1e-5
GIVEN: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": DELTA,
    "accountant": "rdp",
    "batch_size": 20,
    "steps": 40,
}
ROWS = torch.randn(100, 6, generator=torch.Generator().manual_seed(0))


def squared(module: nn.Module, rows: Tensor) -> Tensor:
    return (module(rows)[:, 0] - 1) ** 2


def opened(folder: Path) -> Ledger:
    ledger = Ledger(folder / "budget")
    if not ledger.accounts():
        ledger.open("rows", ApproxDP(9.0, 1e-3, adjacency="zero-out", unit="record"))
    return ledger


def loop_in(folder: Path, ledger: Ledger | None = None, **given: Any) -> TrainingLoop:
    torch.manual_seed(0)
    account = None if ledger is None else "rows"
    return TrainingLoop(
        nn.Linear(6, 1), ROWS, squared, **{**GIVEN, **given}, journal=folder / "journal",
        ledger=ledger, account=account,
    )  # fmt: skip


def steps_of(loop: TrainingLoop, count: int) -> None:
    for _ in range(count):
        next(loop)


# --- killed, ten times ---------------------------------------------------------------------------


def train_until_killed(folder: Path, kill_at: int) -> None:
    """In a child: resume if there is a checkpoint, save every third step, and die at a step."""
    words, write = Keystream.words, (folder / "words").open("ab")

    def noted(self: Keystream, count: int) -> Any:
        drawn = words(self, count)
        for at in range(0, len(drawn) - 3, 4):
            write.write(hashlib.sha256(drawn[at : at + 4].tobytes()).digest()[:8])
        write.flush()
        return drawn

    Keystream.words = noted  # type: ignore[method-assign]
    loop = loop_in(folder, opened(folder))
    saved = folder / "state"

    def save() -> None:
        made = loop.state_dict()
        part = folder / "state.part"
        torch.save({"loop": made, "weights": loop_module(loop).state_dict()}, part)
        part.replace(saved)

    if saved.exists():
        state = torch.load(saved)
        loop_module(loop).load_state_dict(state["weights"])
        loop.load_state_dict(state["loop"], shown=False)
    save()  # a checkpoint resumes once: here is the next one
    for step in loop:
        torch.optim.SGD(loop_module(loop).parameters(), lr=0.1).step()
        if step >= kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if step % 3 == 0:
            save()
    stated = loop.trained
    (folder / "done").write_text(json.dumps([str(stated.event), str(stated.guarantee)]))


def loop_module(loop: TrainingLoop) -> nn.Module:
    return loop._gradients.clipper.module


@pytest.mark.heavy
def test_killed_ten_times_at_the_price_of_one_training(tmp_path) -> None:
    """At random steps: the same event, one charge, and no noise word twice."""
    whole = loop_in(tmp_path / "..")
    kills = sorted(np.random.default_rng().integers(1, 40, size=10))
    for at in [*kills, 10**6]:
        child = os.fork()
        if child == 0:
            try:
                train_until_killed(tmp_path, int(at))
            finally:
                os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended == (-signal.SIGKILL if at < 10**6 else 0)
    event, guarantee = json.loads((tmp_path / "done").read_text())
    assert (event, guarantee) == (str(whole.event), str(whole.guarantee))
    with opened(tmp_path) as ledger:
        (charge,) = ledger.show("rows").charges
    assert charge.event == whole.event
    words = np.frombuffer((tmp_path / "words").read_bytes(), dtype=np.uint64)
    assert len(words) > 40 * 10  # many more steps than 40 were drawn
    assert len(np.unique(words)) == len(words)


# --- what is charged -----------------------------------------------------------------------------


def charges(folder: Path) -> list[events.Event]:
    with opened(folder) as ledger:
        return [one.event for one in ledger.show("rows").charges]


def test_lost_steps_that_were_shown_are_charged_again(tmp_path) -> None:
    with opened(tmp_path) as ledger:
        loop = loop_in(tmp_path, ledger)
        steps_of(loop, 10)
        state = loop.state_dict()
        steps_of(loop, 3)
    with opened(tmp_path) as ledger:
        resumed = loop_in(tmp_path, ledger)
        resumed.load_state_dict(state, shown=True)
    assert resumed.step == 10
    whole, lost = charges(tmp_path)
    assert whole == loop.event
    assert isinstance(lost, events.Repeated)
    assert lost.count == AHEAD  # three were drawn, sixteen were reserved
    assert lost.event == whole.event  # type: ignore[attr-defined]
    parts = [guarantee_of(one, DELTA) for one in (whole, lost)]
    assert resumed.guarantee.epsilon == pytest.approx(sum(one.epsilon for one in parts))
    assert resumed.guarantee.delta == pytest.approx(2 * DELTA)
    resumed.trained.certificate().verify()
    assert any("16 steps of the same kind" in line for line in resumed.trained.assumptions)
    assert list(resumed) == list(range(11, 41))


def test_lost_steps_that_nobody_saw_are_not(tmp_path) -> None:
    with opened(tmp_path) as ledger:
        loop = loop_in(tmp_path, ledger)
        steps_of(loop, 10)
        state = loop.state_dict()
        steps_of(loop, 3)
        resumed = loop_in(tmp_path, ledger)
        resumed.load_state_dict(state, shown=False)
        assert resumed.guarantee == loop.guarantee
        assert len(charges(tmp_path)) == 1
        assert any("16 steps were drawn and not used" in x for x in resumed.trained.assumptions)


def test_nothing_is_lost_by_a_checkpoint_at_the_end(tmp_path) -> None:
    with opened(tmp_path) as ledger:
        loop = loop_in(tmp_path, ledger)
        steps_of(loop, 10)
        state = loop.state_dict()
        resumed = loop_in(tmp_path, ledger)
        resumed.load_state_dict(state, shown=True)
        assert len(charges(tmp_path)) == 1
        assert resumed.trained.assumptions == loop.trained.assumptions


def test_a_second_resume_is_charged_whatever_is_said(tmp_path) -> None:
    with opened(tmp_path) as ledger:
        loop = loop_in(tmp_path, ledger)
        steps_of(loop, 10)
        state = loop.state_dict()
        first = loop_in(tmp_path, ledger)
        first.load_state_dict(state, shown=False)
        list(first)
        second = loop_in(tmp_path, ledger)
        second.load_state_dict(state, shown=False)
        _, lost = charges(tmp_path)
        assert lost.count == 30  # type: ignore[attr-defined]
        assert second.guarantee.epsilon > loop.guarantee.epsilon
        third = loop_in(tmp_path, ledger)
        third.load_state_dict(state, shown=False)
        assert len(charges(tmp_path)) == 2  # nothing was drawn in between


def test_what_was_lost_before_stays_in_the_sum(tmp_path) -> None:
    loop = loop_in(tmp_path)
    steps_of(loop, 4)
    state = loop.state_dict()
    steps_of(loop, 1)
    again = loop_in(tmp_path)
    again.load_state_dict(state, shown=True)
    steps_of(again, 1)
    later = again.state_dict()
    last = loop_in(tmp_path)
    last.load_state_dict(later, shown=False)
    assert last.event == again.event
    assert again.guarantee.delta == pytest.approx(2 * DELTA)


def test_a_resume_that_cannot_be_paid_draws_nothing(tmp_path) -> None:
    with Ledger(tmp_path / "budget") as ledger:
        ledger.open("rows", ApproxDP(2.1, 1e-3, adjacency="zero-out", unit="record"))
        loop = loop_in(tmp_path, ledger)
        steps_of(loop, 5)
        state = loop.state_dict()
        steps_of(loop, 1)
        poor = loop_in(tmp_path, ledger)
        with pytest.raises(errors.BudgetExceeded):
            poor.load_state_dict(state, shown=True)
        poor.load_state_dict(state, shown=False)  # if that is the truth
        assert next(poor) == 6


def test_a_refused_account_leaves_the_journal_free(tmp_path) -> None:
    with Ledger(tmp_path / "budget") as ledger:
        ledger.open("rows", ApproxDP(1.0, 1e-3, adjacency="zero-out", unit="record"))
        with pytest.raises(errors.BudgetExceeded):
            next(loop_in(tmp_path, ledger))
        assert next(loop_in(tmp_path, ledger, epsilon=0.5)) == 1


# --- who may go on -------------------------------------------------------------------------------


def test_a_process_that_was_replaced_is_stopped(tmp_path) -> None:
    loop = loop_in(tmp_path)
    steps_of(loop, 2)
    state = loop.state_dict()
    newer = loop_in(tmp_path)
    newer.load_state_dict(state, shown=False)
    with pytest.raises(errors.TacitError, match="one process, got a second one"):
        steps_of(loop, 1)
    with pytest.raises(errors.TacitError, match="one process, got a second one"):
        loop.state_dict()
    steps_of(newer, 1)


def test_a_training_that_is_started_anew_needs_its_own_journal(tmp_path) -> None:
    next(loop_in(tmp_path))
    with pytest.raises(errors.InvalidParameter, match="path must be new for a new training"):
        next(loop_in(tmp_path))


def test_refusals(tmp_path) -> None:
    loop = loop_in(tmp_path)
    steps_of(loop, 2)
    state = loop.state_dict()
    for given, message in (
        ({"batch_size": 10}, "settings must be those of the checkpoint's training"),
        ({"steps": 41}, "settings must be those of the checkpoint's training"),
        ({"rng": Seeded(1)}, "would draw the same noise again"),
    ):
        with pytest.raises(errors.InvalidParameter, match=message):
            loop_in(tmp_path, **given).load_state_dict(state, shown=False)
    with (
        opened(tmp_path) as ledger,
        pytest.raises(errors.InvalidParameter, match="account must be None, as it was"),
    ):
        loop_in(tmp_path, ledger).load_state_dict(state, shown=False)
    with pytest.raises(errors.InvalidParameter, match="called before the first step"):
        loop.load_state_dict(state, shown=False)
    with pytest.raises(errors.InvalidParameter, match="state must be a checkpoint of this"):
        loop_in(tmp_path).load_state_dict({**state, "checkpoint": "another"}, shown=False)
    with pytest.raises(errors.InvalidParameter, match="shown must be True or False"):
        loop_in(tmp_path).load_state_dict(state, shown=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        loop_in(tmp_path).load_state_dict(state)  # type: ignore[call-arg]
    plain = TrainingLoop(nn.Linear(6, 1), ROWS, squared, **GIVEN)
    with pytest.raises(errors.InvalidParameter, match="journal must be given for checkpoints"):
        plain.state_dict()
    with pytest.raises(errors.InvalidParameter, match="journal must be given to resume"):
        plain.load_state_dict(state, shown=False)
    (tmp_path / "other").write_bytes(b"not a database" * 100)
    with pytest.raises(errors.TacitError, match="journal must be a file that can be written"):
        Journal(tmp_path / "other").begin("", None, 1)


def test_an_adaptive_clip_norm_goes_on_where_it_was(tmp_path) -> None:
    loop = loop_in(tmp_path, clipping="adaptive")
    steps_of(loop, 5)
    state = loop.state_dict()
    assert state["clip_norm"] != 1.0
    assert json.loads(json.dumps(state)) == state
    resumed = loop_in(tmp_path, clipping="adaptive")
    resumed.load_state_dict(state, shown=False)
    assert resumed._gradients.bounding.clip_norm == state["clip_norm"]
    assert resumed.event == loop.event


# --- how many were lost, whatever the path -------------------------------------------------------


def test_lost_steps_are_those_off_the_path(tmp_path) -> None:
    """Random kills and resumes from any checkpoint, against a record of every gradient."""
    rng = np.random.default_rng(7)
    journal = Journal(tmp_path / "journal")
    journal.begin("event", None, 10**6)
    path: list[int] = []  # names of the gradients that weights depend on
    drawn, saved, settled = 0, [], set()
    for _ in range(70):
        for _ in range(int(rng.integers(0, 5))):
            journal.reserve(len(path) + 1)
            path.append(drawn)
            drawn += 1
        saved.append((journal.checkpoint(len(path)), list(path)))
        state, before = saved[int(rng.integers(len(saved)))]
        found = Journal(tmp_path / "journal").look(state, "event", None)
        lost = set(path) - set(before) - settled
        assert found.step == len(before)
        assert found.lost >= len(lost)
        # Some that were lost before may be on the path again, and be lost again.
        assert found.lost == len(set(path) - set(before))
        journal = Journal(tmp_path / "journal")
        journal.resume(found, charged=False)
        settled |= lost
        path = list(before)
