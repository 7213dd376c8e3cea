"""Secure sums over Flower's messages: the same models, losses at every step, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message
from torch import nn

from tacit.federated import Data, RunOptions, SecureClientPrivacy, TorchModel, app, flower, rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.app import engines, secure_strategy, secure_wire
from tacit.federated.app.grid import LocalGrid
from tacit.federated.app.secure_wire import Step
from tacit.federated.client_level.shares import SharePlan
from tacit.federated.secure import Refused, Stage
from tacit.privacy import errors

CLIENTS, ROUNDS = 6, 2


def private(size: int, **options: Any) -> SecureClientPrivacy:
    usual = {"epsilon": 500, "delta": 1e-5, "rounds": ROUNDS, "lost": 1, "clip_norm": 10.0}
    return SecureClientPrivacy(CLIENTS, size=size, **{**usual, **options})


def held(problem: Any, count: int = CLIENTS) -> list[Data]:
    found = [problem.held[k % 5] for k in range(count)]
    return [Data(one.rows, one.labels) for one in found]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise: what is left is the rounding of updates."""
    monkeypatch.setattr(SharePlan, "share", lambda self, encoded, rng: encoded)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("name", ["fedsgd", "fedavg", "fedprox", "fsvrg", "feddyn"])
def test_models_are_those_of_the_plain_loop(quadratic: Any, name: str) -> None:
    """Up to the rounding of updates: two steps an entry, over the clients, for every round."""
    config = algorithm(name).config(weighted=False)
    options = RunOptions(config=config, coordinator=private(6))
    found = app.run(name, quadratic.model, held(quadratic), ROUNDS, options)
    plain = rounds.run(name, quadratic.model, held(quadratic), ROUNDS, RunOptions(config=config))
    step = 10 / options.coordinator.plan.grid.steps
    np.testing.assert_allclose(found.model, plain.model, atol=40 * step)
    assert [one.counted for one in found.history] == [CLIENTS] * ROUNDS
    assert set(found.states) == (set(plain.states) if algorithm(name).state else set())
    for client, state in found.states.items():
        for key, value in state.items():
            np.testing.assert_allclose(value, plain.states[client][key], atol=40 * step)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("stage", list(Stage)[:-1])
def test_a_client_may_be_lost_at_any_step(
    quadratic: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(message: Message, reply: Message) -> bool:
        return message.metadata.dst_node_id == 3 and secure_wire.read_asked(message).stage is stage

    monkeypatch.setattr(engines, "LocalGrid", lambda *told: LocalGrid(*told, lost=lose))
    options = RunOptions(config=algorithm("fedavg").config(weighted=False), coordinator=private(6))
    found = app.run("fedavg", quadratic.model, held(quadratic), ROUNDS, options)
    counted = CLIENTS - (stage <= Stage.MASKED)
    assert [one.counted for one in found.history] == [counted] * ROUNDS
    assert not any(one.skipped for one in found.history)
    assert options.coordinator.survivors == [counted] * ROUNDS
    # With one more lost than allowed, a round is skipped and the model stays.
    two = RunOptions(config=options.config, coordinator=private(6, lost=0))
    found = app.run("fedavg", quadratic.model, held(quadratic), ROUNDS, two)
    assert [one.skipped for one in found.history] == [stage <= Stage.MASKED] * ROUNDS
    if stage <= Stage.MASKED:
        np.testing.assert_array_equal(found.model, quadratic.model.start().astype(np.float32))
        assert two.coordinator.spent > 0


class Refusing(nn.Module):
    """Raises on rows that are far out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, rows: Any) -> Any:
        if rows.abs().max() > 1e6:
            raise ValueError("row 7 is 3.14")
        return self.inner(rows)


def test_a_client_whose_model_fails_answers_as_all_others_do() -> None:
    drawn = np.random.default_rng(0)
    people = [Data(drawn.uniform(-1, 1, (8, 2)).astype(np.float32), np.arange(8) % 2)
              for _ in range(CLIENTS)]  # fmt: skip
    people[2] = Data(people[2].rows * 1e8, people[2].labels)
    options = RunOptions(config=algorithm("fedavg").config(weighted=False), coordinator=private(6))
    model = TorchModel(Refusing)
    found = app.run("fedavg", model, people, ROUNDS, options)
    assert [one.counted for one in found.history] == [CLIENTS] * ROUNDS


# --- what a node refuses -------------------------------------------------------------------------


@pytest.fixture
def messages(quadratic: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """The grid of a finished run, and all that was sent."""
    grids, sent = [], []

    def lose(message: Message, reply: Message) -> bool:
        sent.append((message, reply))
        return False

    def build(*told: Any) -> LocalGrid:
        grids.append(LocalGrid(*told, lost=lose))
        return grids[0]

    monkeypatch.setattr(engines, "LocalGrid", build)
    options = RunOptions(config=algorithm("fedavg").config(weighted=False), coordinator=private(6))
    app.run("fedavg", quadratic.model, held(quadratic), ROUNDS, options)
    return grids[0], sent


def again(grid: LocalGrid, message: Message) -> Message:
    from tacit.federated import flower

    (name,) = flower_sent(grid, message, flower)
    (reply,) = grid.pull_messages([name])
    return reply


def flower_sent(grid: LocalGrid, message: Message, flower: Any) -> Any:
    with flower.identity(grid.run.run_id):
        copy = Message(message.content, message.metadata.dst_node_id, message.metadata.message_type)
        return grid.push_messages([copy])


def test_nothing_but_keys_shares_and_masked_vectors_leaves(messages: Any) -> None:
    grid, sent = messages
    assert len(sent) == 5 * CLIENTS * ROUNDS
    for message, reply in sent:
        assert message.metadata.message_type == secure_wire.ACTION
        assert list(reply.content) == ["secure"]
        assert list(reply.content["secure"]) == ["reply"]
    for context in grid.contexts.values():
        kept = dict(context.state["tacit.secure"])
        assert set(kept) <= {"run", "seen"}  # neither keys nor vectors after the sum
        assert kept["seen"] == ROUNDS


def test_steps_are_not_answered_twice(messages: Any) -> None:
    grid, sent = messages
    for message, _ in sent[: 5 * CLIENTS : CLIENTS]:
        reply = again(grid, message)
        assert reply.has_error()
        assert "client: secure sum" in str(reply.error.reason)


def test_a_node_of_secure_sums_gives_no_single_update(messages: Any) -> None:
    grid, sent = messages
    first = sent[0][0]
    first.metadata.__dict__["_message_type"] = "train.train"
    reply = again(grid, first)
    assert reply.has_error()
    assert "must not ask for a single update" in str(reply.error.reason)


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"number": 9, "stage": 0},
        {"number": 9, "stage": 5, "sent": b""},
        {"number": 9, "stage": 7, "sent": b""},
        {"number": "9", "stage": 0, "sent": b""},
        {"number": 0, "stage": 0, "sent": b""},
        {"number": 9, "stage": 0, "sent": b""},
        {"number": 2**40, "stage": 0, "sent": b""},
    ],
)
def test_steps_that_are_none_are_refused(messages: Any, entries: dict[str, Any]) -> None:
    grid, sent = messages
    message = sent[0][0]
    message.content["secure"] = ConfigRecord(entries)
    reply = again(grid, message)
    assert reply.has_error()
    assert "client: " in str(reply.error.reason)


def test_different_models_are_not_summed(quadratic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server shows one client another model than all others."""
    built = secure_strategy.SecureFederation._first

    def another(self: Any, *told: Any) -> list[Message]:
        found = built(self, *told)
        arrays = found[0].content["arrays"]
        content = secure_wire.asked(Step(self._one.number, Stage.KEYS, b""))
        moved = {name: one + 1 for name, one in flower.read_arrays(arrays).items()}
        content["arrays"] = flower.array_record(moved)
        content["order"] = found[0].content["order"]
        found[0] = Message(content, found[0].metadata.dst_node_id, secure_wire.ACTION)
        return found

    monkeypatch.setattr(secure_strategy.SecureFederation, "_first", another)
    options = RunOptions(config=algorithm("fedavg").config(weighted=False), coordinator=private(6))
    found = app.run("fedavg", quadratic.model, held(quadratic), ROUNDS, options)
    assert [one.counted for one in found.history] == [CLIENTS - 1] * ROUNDS


def test_what_cannot_be_combined_is_refused(quadratic: Any) -> None:
    options = RunOptions(
        config=algorithm("fedavg").config(weighted=False),
        coordinator=private(6),
        intercept=lambda number, client, reply: reply,
    )
    with pytest.raises(errors.InvalidParameter, match="intercept must be left out"):
        app.run("fedavg", quadratic.model, held(quadratic), ROUNDS, options)


# --- suspended clients ---------------------------------------------------------------------------


def test_states_of_other_sessions_are_refused() -> None:
    from tacit.federated.secure import Client, Roster, Session, Setup
    from tacit.federated.secure.primitives import new_identity

    keys = [new_identity() for _ in range(4)]
    roster = Roster(tuple(key.public_key() for key in keys))
    setup = Setup(4, size=2, bits=8, corrupt=1, least=3)
    make: Callable[[int], Client] = lambda number: Client(  # noqa: E731
        Session(setup, roster, "r", number, b""), 0, keys[0]
    )
    begun = make(1)
    begun.keys()
    state = begun.suspended()
    again = make(1)
    again.resume(state)
    assert again.stage is Stage.SHARES
    assert again.suspended() == state
    bad = [state[:-1], b"", b"[]", b"{}", b"null", state.replace(b'"stage": 1', b'"stage": 9')]
    for content in bad:
        with pytest.raises(Refused, match="a state must be one of this session"):
            make(1).resume(content)
    with pytest.raises(Refused, match="a state must be one of this session"):
        make(2).resume(state)
    with pytest.raises(Refused, match="must not resume"):
        begun.resume(state)
