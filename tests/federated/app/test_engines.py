"""The apps on the in-process grid: the arrays of the plain loop, whatever goes wrong."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from tacit.federated import flower, rounds
from tacit.federated.algorithms.registry import ALGORITHMS, algorithm
from tacit.federated.app import Faults, Mods, Transport, engines
from tacit.federated.app.client import FederatedClient, client_app
from tacit.federated.app.grid import LocalGrid
from tacit.federated.app.roster import Named
from tacit.federated.client_level.privacy import ClientPrivacy
from tacit.federated.coordinator import PlainMean
from tacit.federated.rounds import RunOptions
from tacit.privacy import errors
from tacit.privacy.randomness import Seeded


def same(left: rounds.RunResult, right: rounds.RunResult) -> None:
    """Bit for bit: model, server's memory, what clients keep, and every round."""
    np.testing.assert_array_equal(left.model, right.model)
    for name, vector in left.server.memory.items():
        np.testing.assert_array_equal(vector, right.server.memory[name])
    assert left.history == right.history
    assert left.stopped == right.stopped
    kept = {client: state for client, state in left.states.items() if state}
    assert kept.keys() == right.states.keys()
    for client, state in kept.items():
        for name, vector in state.items():
            np.testing.assert_array_equal(vector, right.states[client][name])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_arrays_are_those_of_the_plain_loop(name: str, quadratic: Any, tmp_path: Path) -> None:
    given = {"config": algorithm(name).config(**({} if name == "fedsgd" else {"batch_size": 2}))}
    given |= {"participation": 0.6, "seed": 4, "test": quadratic.held[0]}
    plain = rounds.run(name, quadratic.model, quadratic.held, 5, RunOptions(**given))
    same(plain, engines.run(name, quadratic.model, quadratic.held, 5, RunOptions(**given)))
    same(
        plain,
        engines.run(
            name,
            quadratic.model,
            quadratic.held,
            5,
            RunOptions(**given),
            transport=Transport(state=tmp_path),
        ),
    )
    other = engines.run(
        name, quadratic.model, quadratic.held, 5, RunOptions(**{**given, "seed": 5})
    )
    assert not np.array_equal(plain.model, other.model)


@pytest.mark.parametrize("name", ["fsvrg", "feddyn"])
def test_digits_too(name: str, digits: Any) -> None:
    model, held, test = digits(0)
    plain = rounds.run(name, model, held, 2, RunOptions(test=test))
    same(plain, engines.run(name, model, held, 2, RunOptions(test=test)))


@pytest.mark.parametrize("name", ["fedavg", "fsvrg"])
def test_a_guarantee_is_the_gatherings_own_on_any_engine(name: str, quadratic: Any) -> None:
    config = algorithm(name).config(weighted=False)

    def coordinator() -> ClientPrivacy:
        given = {"cohort": 5, "epsilon": 8, "delta": 1e-3, "rounds": 3, "accountant": "rdp"}
        return ClientPrivacy(5, **given, rng=Seeded(np.random.default_rng(0)))

    one, other = coordinator(), coordinator()
    plain = rounds.run(
        name, quadratic.model, quadratic.held, 4, RunOptions(config=config, coordinator=one)
    )
    local = engines.run(
        name, quadratic.model, quadratic.held, 4, RunOptions(config=config, coordinator=other)
    )
    same(plain, local)
    assert len(local.history) == 3
    assert local.stopped.startswith("ClientPrivacy: rounds must be at most 3")
    assert one.spent == other.spent > 0
    with pytest.raises(errors.BudgetExceeded):  # not even one more
        other.choose(1, 5)


def test_lost_answers_leave_the_others_and_their_states(quadratic: Any) -> None:
    """The grid's drop-out against the plain loop with the same answers missing."""
    faults = Faults(dropout=0.4, seed=1)
    local = engines.run("feddyn", quadratic.model, quadratic.held, 8, transport=Transport(faults))
    missing = {
        (number, client)
        for number in range(1, 9)
        for client in range(5)
        if np.isinf(faults.draw(number, client + 1))
    }
    assert 5 < len(missing) < 30
    plain = rounds.run(
        "feddyn",
        quadratic.model,
        quadratic.held,
        8,
        RunOptions(
            intercept=lambda number, client, reply: None if (number, client) in missing else reply
        ),
    )
    np.testing.assert_array_equal(local.model, plain.model)
    assert [one.counted for one in local.history] == [one.counted for one in plain.history]
    assert local.states.keys() == plain.states.keys()
    for client, state in plain.states.items():
        np.testing.assert_array_equal(local.states[client]["correction"], state["correction"])


def test_late_answers_are_lost_ones(quadratic: Any) -> None:
    slow = Faults(latency=1.0, seed=2)
    given: tuple[Any, ...] = ("fedavg", quadratic.model, quadratic.held, 4)
    patient = engines.run(*given, transport=Transport(slow))
    assert [one.counted for one in patient.history] == [5] * 4
    np.testing.assert_array_equal(patient.model, engines.run(*given).model)
    hasty = engines.run(*given, transport=Transport(slow, timeout=0.5))
    assert sum(one.counted for one in hasty.history) < 16
    nobody = engines.run(*given, transport=Transport(slow, timeout=1e-9))
    assert all(one.skipped for one in nobody.history)
    np.testing.assert_array_equal(nobody.model, quadratic.model.start().astype(np.float32))


def _poisoned(kind: str) -> Any:
    """A mod that answers for client 2 with something else."""
    arrays: dict[str, Any] = {
        "nan": lambda v: np.full_like(v, np.nan),
        "inf": lambda v: np.full_like(v, np.inf),
        "huge": lambda v: np.full_like(v, 1e30),
        "integers": lambda v: v.astype(np.int64),
        "shape": lambda v: np.zeros((*v.shape, 2), v.dtype),
        "complex": lambda v: v.astype(np.complex64),
    }

    def mod(message: Message, context: Any, call_next: Any) -> Message:
        reply = call_next(message, context)
        if context.node_config["partition-id"] != 2:
            return reply
        content = reply.content
        record = content.get("arrays")
        if kind in arrays:
            read = flower.read_arrays(record)
            content["arrays"] = ArrayRecord({n: Array(arrays[kind](a)) for n, a in read.items()})
        elif kind == "names":
            content["arrays"] = ArrayRecord({f"x{n}": a for n, a in record.items()})
        elif kind == "bytes":
            damaged = {n: Array(a.dtype, a.shape, a.stype, a.data[:-3]) for n, a in record.items()}
            content["arrays"] = ArrayRecord(damaged)
        elif kind == "header":
            bad = {n: Array(a.dtype, a.shape, a.stype, b"x" * 200) for n, a in record.items()}
            content["arrays"] = ArrayRecord(bad)
        elif kind == "weight":
            content["weight"] = MetricRecord({"weight": -1.0})
        elif kind == "records":
            reply.content = RecordDict({"arrays": ConfigRecord({"a": 1})})
        else:
            raise RuntimeError("a row of somebody: 17")
        return reply

    return mod


def attacking(kind: str) -> Transport:
    return Transport(mods=Mods(attack=_poisoned(kind)))


KINDS = ["nan", "inf", "huge", "integers", "shape", "complex", "names", "bytes", "header"]


@pytest.mark.parametrize("kind", [*KINDS, "weight", "records"])
def test_hostile_answers_count_for_nothing(kind: str, quadratic: Any) -> None:
    found = engines.run("fedavg", quadratic.model, quadratic.held, 2, transport=attacking(kind))
    without = rounds.run(
        "fedavg",
        quadratic.model,
        quadratic.held,
        2,
        RunOptions(intercept=lambda number, client, reply: None if client == 2 else reply),
    )
    np.testing.assert_array_equal(found.model, without.model)
    assert all([client for client, _ in one.rejected] == [2] for one in found.history)
    assert all(one.counted == 4 for one in found.history)


def test_a_client_that_raises_is_silent_and_its_text_stays_with_it(quadratic: Any) -> None:
    held = [
        FederatedClient(
            algorithm("fedavg"), algorithm("fedavg").config(), quadratic.model, str(k), data
        )
        for k, data in enumerate(quadratic.held)
    ]
    app = client_app(
        lambda context: held[int(context.node_config["partition-id"])],
        mods=Mods(attack=_poisoned("raises")),
        simulated=True,
    )
    with flower.identity(7), flower.quiet():
        grid = LocalGrid(app, 5, 7)
        roster = Named()
        asked = [Message(RecordDict(), node, "query.describe") for node in grid.get_node_ids()]
        replies = list(grid.send_and_receive(asked))
        assert [reply.has_error() for reply in replies] == [False, False, True, False, False]
        assert "client: RuntimeError in its app." in str(replies[2].error.reason)
        assert "17" not in str(replies[2].error.reason)
        with pytest.raises(errors.TacitError, match="must be 5 clients, got 4 names"):
            roster.meet(grid, 5, patience=0.0)
    found = engines.run("fedavg", quadratic.model, quadratic.held, 1, transport=attacking("raises"))
    assert (found.history[0].counted, found.history[0].rejected) == (4, ())


def test_every_message_has_records_of_its_own(quadratic: Any) -> None:
    """A mod that empties what it received must not empty it for the next client."""

    def vandal(message: Message, context: Any, call_next: Any) -> Message:
        reply: Message = call_next(message, context)
        message.content["arrays"].clear()
        message.content["order"].clear()
        message.content.clear()
        return reply

    found = engines.run(
        "fedavg", quadratic.model, quadratic.held, 3, transport=Transport(mods=Mods(privacy=vandal))
    )
    same(rounds.run("fedavg", quadratic.model, quadratic.held, 3), found)


def test_mods_stand_in_their_order_and_attacks_are_simulated_only() -> None:
    heard: list[str] = []

    def named(name: str) -> Any:
        def mod(message: Any, context: Any, call_next: Any) -> Any:
            heard.append(name)
            return call_next(message, context)

        return mod

    names = ("privacy", "compression", "attack")
    mods = Mods(**{name: named(name) for name in names})
    call: Any = lambda message, context: None  # noqa: E731
    for mod in reversed(mods.ordered(simulated=True)):
        call = partial(mod, call_next=call)
    call(None, None)
    assert tuple(heard) == names
    with pytest.raises(errors.InvalidParameter, match=r"^Mods: attack must be left out"):
        mods.ordered(simulated=False)
    with pytest.raises(errors.InvalidParameter, match="Attacks are for simulations"):
        client_app(lambda context: None, mods=mods)  # type: ignore[arg-type,return-value]


def test_a_client_is_asked_for_scores_only_where_its_owner_agreed(quadratic: Any) -> None:
    chosen = algorithm("fedavg")
    one = FederatedClient(chosen, chosen.config(), quadratic.model, "one", quadratic.held[0])
    model = flower.array_record({"model": quadratic.model.start().astype(np.float32)})
    for agreed in (False, True):
        app = client_app(lambda context: one, evaluates=agreed)
        with flower.identity(1):
            grid = LocalGrid(app, 1, 1)
            order = ConfigRecord({"order": [1, 0, 0, 0, 0, 1]})
            content = RecordDict({"arrays": model, "order": order})
            (reply,) = grid.send_and_receive([Message(content, 1, "evaluate")])
        assert reply.has_content() == agreed


@pytest.mark.parametrize("weighted", [True, False])
def test_nodes_tell_their_rows_only_where_they_count(weighted: bool, quadratic: Any) -> None:
    chosen = algorithm("fedavg")
    held = [
        FederatedClient(chosen, chosen.config(weighted=weighted), quadratic.model, name, data)
        for name, data in zip("caedb", quadratic.held, strict=True)
    ]
    app = client_app(lambda context: held[int(context.node_config["partition-id"])])
    roster = Named()
    with flower.identity(1):
        grid = LocalGrid(app, 5, 1)
        roster.meet(grid, 5, patience=1.0)
        there = roster.there(grid, [0, 1, 2, 3, 4])
    by_name = sorted(held, key=lambda one: one.name)
    assert roster.sizes == ([len(one.data) for one in by_name] if weighted else [1] * 5)
    assert [there[client] for client in range(5)] == [2, 5, 1, 4, 3]
    assert [roster.client(node) for node in (2, 5, 1, 4, 3, 99)] == [0, 1, 2, 3, 4, None]


def test_a_callback_may_end_the_run(quadratic: Any) -> None:
    found = engines.run(
        "fsvrg",
        quadratic.model,
        quadratic.held,
        9,
        RunOptions(callback=lambda one: one.number == 2),
    )
    same(rounds.run("fsvrg", quadratic.model, quadratic.held, 2), found)


def test_arrays_on_the_wire_are_flowers_own() -> None:
    rng = np.random.default_rng(0)
    given = {
        "weight": rng.normal(size=(3, 4)).astype(np.float32),
        "mask": np.arange(5, dtype=np.uint8),
        "none": np.zeros((0, 2), np.float32),
        "strided": rng.normal(size=(4, 6))[::2, ::3],
    }
    record = flower.array_record(given)
    for name, array in given.items():
        flowers = Array(np.ascontiguousarray(array))
        assert (record[name].data, record[name].dtype) == (flowers.data, flowers.dtype)
        np.testing.assert_array_equal(record[name].numpy(), array)
        np.testing.assert_array_equal(flower.read_arrays(record)[name], array)
    order = Array(np.asfortranarray(given["weight"]))
    read = flower.read_arrays(ArrayRecord({"fortran": order}))["fortran"]
    np.testing.assert_array_equal(read, given["weight"])
    texts = Array(np.array(["a", "b"]))
    assert flower.read_arrays(ArrayRecord({"texts": texts})) == {"texts": None}


def test_flower_is_left_as_it_was(quadratic: Any) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    engines.run("fedavg", quadratic.model, quadratic.held, 1, RunOptions(coordinator=PlainMean(0)))
    with pytest.raises(RuntimeError):
        _ = TaskIdentity.run_id
