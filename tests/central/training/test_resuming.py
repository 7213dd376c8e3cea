"""Checkpoints: killed and resumed at the same price, and what was shown is paid for."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.central.training import TrainingLoop
from tacit.central.training.journal import AHEAD, Journal
from tacit.central.training.resuming import watched
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
    # Three were drawn, sixteen were reserved; how many, whoever saw them may have decided.
    again = guarantee_of(replace(whole, count=AHEAD), DELTA / 40)  # type: ignore[type-var]
    assert lost == events.Declared(replace(again, delta=DELTA))  # type: ignore[call-arg]
    first = guarantee_of(whole, DELTA)
    assert resumed.guarantee.epsilon == pytest.approx(first.epsilon + again.epsilon)
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
        assert len(charges(tmp_path)) == 2
        assert any("30 steps of the same kind" in line for line in second.trained.assumptions)
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


def test_a_resume_without_the_ledger_that_paid_is_no_way_around_it(tmp_path) -> None:
    """Without a ledger it is refused; another one, which has not paid for the training, pays."""
    with opened(tmp_path) as ledger:
        loop = loop_in(tmp_path, ledger)
        steps_of(loop, 5)
        state = loop.state_dict()
        steps_of(loop, 1)
    bare = TrainingLoop(
        nn.Linear(6, 1), ROWS, squared, **GIVEN, journal=tmp_path / "journal", account="rows"
    )
    with pytest.raises(errors.InvalidParameter, match="ledger and account must be given together"):
        bare.load_state_dict(state, shown=True)
    (tmp_path / "other").mkdir()
    with opened(tmp_path / "other") as ledger:
        loop_in(tmp_path, ledger).load_state_dict(state, shown=True)
    assert len(charges(tmp_path)) == 1
    assert len(charges(tmp_path / "other")) == 2


def test_who_stops_at_the_worst_time_is_covered() -> None:
    """A likelihood ratio that is watched: ε_L at δ is exceeded, ε_L at δ/T is not."""
    steps, delta, sigma = 40, 0.01, Fraction(4)
    told: dict[str, Any] = {"adjacency": "zero-out", "unit": "record"}

    def event_of(count: int, alone: bool = True) -> events.Event:
        return events.Repeated(events.Gaussian(Fraction(1), sigma, **told), count)

    def reached(stated: list[float]) -> float:
        """The δ at which the stated ε hold, for somebody who stops once they are exceeded."""
        rng, mu = np.random.default_rng(0), 1 / float(sigma)
        losses = (mu * rng.normal(size=(20_000, steps)) + mu**2 / 2).cumsum(1)
        over = losses - np.array(stated)
        stop = np.where((over > 0.7).any(1), (over > 0.7).argmax(1), steps - 1)
        return float(np.maximum(-np.expm1(-over[np.arange(len(over)), stop]), 0).mean())

    def epsilon(one: Any) -> float:
        return float(one.epsilon)

    counts = range(1, steps + 1)
    fixed = [epsilon(guarantee_of(event_of(one), delta)) for one in counts]
    allowed = [epsilon(guarantee_of(watched(event_of, one, steps, delta))) for one in counts]
    assert reached(fixed) > 1.5 * delta  # by 20 standard errors
    assert reached(allowed) < delta


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


def test_a_process_that_draws_during_a_resume_is_seen(tmp_path) -> None:
    """Between a look at the journal and the new branch: what it draws would be counted nowhere."""
    old = Journal(tmp_path / "journal")
    old.begin("event", None, 1000)
    old.reserve(1)
    state = old.checkpoint(5)
    new = Journal(tmp_path / "journal")
    found = new.look(state, "event", None)
    old.reserve(6)
    with pytest.raises(errors.TacitError, match="which still draws"):
        new.resume(found, charged=False)
    again = new.look(state, "event", None)
    assert (found.lost, again.lost) == (0, AHEAD)
    new.resume(again, charged=False)
    with pytest.raises(errors.TacitError, match="has resumed the training"):
        old.reserve(6 + AHEAD)


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
