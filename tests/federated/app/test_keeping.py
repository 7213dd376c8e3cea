"""What clients keep: nothing is lost with a process, and nothing counts that the server lacks."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Context, Message, RecordDict

from tacit.federated import flower, rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.app.client import FederatedClient, client_app
from tacit.federated.app.grid import LocalGrid
from tacit.federated.app.keeping import Keeper, KeptStates, digest
from tacit.federated.app.roster import Numbered
from tacit.federated.app.strategy import Federation
from tacit.federated.coordinator import PlainMean
from tacit.federated.model import Data
from tacit.federated.rounds import RunOptions, RunResult, Server
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import Adjacency, PureDP, Unit


def federation(
    problem: Any, folder: Path | None, lost: Any = None, run_id: int = 7
) -> tuple[Federation, LocalGrid]:
    chosen = algorithm("feddyn")
    held = [
        FederatedClient(chosen, chosen.config(), problem.model, f"silo {k}", data)
        for k, data in enumerate(problem.held)
    ]
    app = client_app(
        lambda context: held[int(context.node_config["partition-id"])],
        keeper_of=lambda context: Keeper(folder),
    )
    grid = LocalGrid(app, len(held), run_id, lost=lost)
    sizes = [len(one.data) for one in held]
    server = Server(chosen, chosen.config(), problem.model, sizes, PlainMean())
    return Federation(server, Numbered(list(grid.contexts))), grid


def restart(grid: LocalGrid, *nodes: int) -> None:
    """What a node's process had in its memory is gone."""
    for node in nodes:
        old = grid.contexts[node]
        fresh = Context(old.run_id, node, old.node_config, RecordDict(), {})
        grid.contexts[node] = fresh


def play(strategy: Federation, grid: LocalGrid, count: int, between: Any) -> RunResult:
    with flower.identity(grid.run.run_id):
        for number in range(1, count + 1):
            asked = strategy.configure_train(number, ArrayRecord(), RecordDict(), grid)  # type: ignore[arg-type]
            strategy.aggregate_train(number, grid.send_and_receive(asked))
            between(number)
    return RunResult(strategy.server.state, {}, tuple(strategy.history))


def test_nodes_restarted_after_every_round_go_on(quadratic: Any, tmp_path: Path) -> None:
    strategy, grid = federation(quadratic, tmp_path)
    found = play(strategy, grid, 5, lambda number: restart(grid, 1, 2, 3, 4, 5))
    plain = rounds.run("feddyn", quadratic.model, quadratic.held, 5)
    np.testing.assert_array_equal(found.model, plain.model)
    assert found.history == plain.history
    files = list(tmp_path.glob("client-*"))
    assert len(files) == 5
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)


def test_a_restart_without_a_folder_is_noticed_never_papered_over(quadratic: Any) -> None:
    """A client whose state is gone is silent: one that began afresh would bias all rounds."""
    strategy, grid = federation(quadratic, None)
    found = play(strategy, grid, 3, lambda number: restart(grid, 2) if number == 1 else None)
    assert [one.counted for one in found.history] == [5, 4, 4]
    assert {client for _, client, _ in strategy.failures} == {1}
    assert all("its state must be" in reason for *_, reason in strategy.failures)


def test_killed_between_answer_and_acceptance(quadratic: Any, tmp_path: Path) -> None:
    """The answer of round 2 is lost after its state was written; the state must not count."""

    def lost(message: Message, reply: Message) -> bool:
        return message.metadata.group_id == "2" and message.metadata.dst_node_id == 4

    strategy, grid = federation(quadratic, tmp_path, lost)
    found = play(strategy, grid, 5, lambda number: restart(grid, 4))
    plain = rounds.run(
        "feddyn",
        quadratic.model,
        quadratic.held,
        5,
        RunOptions(
            intercept=lambda number, client, reply: None if (number, client) == (2, 3) else reply
        ),
    )
    np.testing.assert_array_equal(found.model, plain.model)
    assert [one.counted for one in found.history] == [5, 4, 5, 5, 5]


def test_another_run_begins_afresh_in_the_same_folder(quadratic: Any, tmp_path: Path) -> None:
    ends = []
    for run_id in (1, 2):
        strategy, grid = federation(quadratic, tmp_path, run_id=run_id)
        ends.append(play(strategy, grid, 3, lambda number: None).model)
    np.testing.assert_array_equal(*ends)


def test_what_is_kept() -> None:
    one, two = {"a": np.ones(2)}, {"a": np.zeros(2)}
    kept = KeptStates(5).then(1, one)
    assert kept.at(5, 1).state is one
    assert kept.at(5, 0).state == {}
    later = kept.at(5, 1).then(3, two)
    assert later.at(5, 1).state is one
    assert later.at(5, 3).state is two
    assert kept.at(6, 0).state == {}
    for run, counted in [(5, 2), (6, 1)]:
        with pytest.raises(errors.InvalidData, match=r"^client: its state must be the one after"):
            later.at(run, counted)


def test_files_are_by_client_and_rows_and_damage_is_refused(tmp_path: Path) -> None:
    rows = Data(np.arange(6.0).reshape(3, 2), np.arange(3))
    others = Data(np.arange(6.0).reshape(3, 2), np.arange(3)[::-1].copy())
    assert digest(rows) != digest(others)
    keeper, context = Keeper(tmp_path), Context(1, 1, {}, RecordDict(), {})
    kept = KeptStates(2**63 + 1, 3, {"a": np.ones(4, np.float32)}, 4, {"a": np.arange(4.0)})
    keeper.save(context, "north/../x", rows, kept)
    (path,) = tmp_path.glob("client-*")
    for found in (
        keeper.load(Context(1, 1, {}, RecordDict(), {}), "north/../x", rows),
        Keeper().load(context, "north/../x", rows),
    ):
        assert (found.run, found.counted, found.pending) == (2**63 + 1, 3, 4)
        np.testing.assert_array_equal(found.state["a"], kept.state["a"])
        np.testing.assert_array_equal(found.after["a"], kept.after["a"])
        assert found.after["a"].dtype == np.float64
    fresh = Context(1, 1, {}, RecordDict(), {})
    assert keeper.load(fresh, "north/../x", others).counted == 0
    assert keeper.load(fresh, "south", rows).counted == 0
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(errors.InvalidData, match="must be a state that a client kept"):
        keeper.load(fresh, "north/../x", rows)


def test_names_of_files_do_not_give_rows_away(tmp_path: Path) -> None:
    """Who guesses the rows cannot check the guess by the name of a file: it is keyed."""
    rows, found = Data(np.eye(2), np.arange(2)), []
    for folder in (tmp_path / "one", tmp_path / "two"):
        Keeper(folder).save(Context(1, 1, {}, RecordDict(), {}), "north", rows, KeptStates(1))
        Keeper(folder).save(Context(1, 1, {}, RecordDict(), {}), "north", rows, KeptStates(2))
        (path,) = folder.glob("client-*")
        found.append(path.name)
        assert stat.S_IMODE((folder / ".key").stat().st_mode) == 0o600
        assert not list(folder.glob(".key-*"))
    assert found[0] != found[1]
    assert not any(digest(rows)[:8] in name for name in found)


KILLED = """
import dataclasses, os, signal, sys
from pathlib import Path
import numpy as np
from flwr.app import Message
from tacit import events
from tacit.accounting.ledger import Ledger
from tacit.federated import flower
from tacit.federated.algorithms import algorithm
from tacit.federated.app import keeping, wire
from tacit.federated.app.client import FederatedClient, client_app
from tacit.federated.app.grid import LocalGrid
from tacit.federated.app.mods import Mods
from tacit.federated.model import Data
from tacit.federated.payload import Layout

folder, dies = Path(sys.argv[1]), sys.argv[2] == "dies"
chosen = algorithm("feddyn")

class Model:
    layout, dtype = Layout((("w", (3,)),)), np.dtype(np.float32)
    def gradient(self, w, rows, labels):
        return (w - rows.mean(axis=0)).astype(np.float32)

def charged(*given):
    with Ledger(folder / "ledger.db") as ledger:
        paid = ledger.show("silo")
        key = f"answer {len(paid.charges) + 1}"
        ledger.charge("silo", events.Declared(dataclasses.replace(paid.budget, epsilon=1)), key=key)
    return chosen.phases[0].client(*given)

phase = dataclasses.replace(chosen.phases[0], client=charged)
paying = dataclasses.replace(chosen, phases=(phase,))
one = FederatedClient(paying, paying.config(), Model(), "silo", Data(np.eye(3), np.arange(3)))

def killed(message, context, call_next):
    reply = call_next(message, context)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return reply

app = client_app(lambda c: one, keeper_of=lambda c: keeping.Keeper(folder / "state"),
                 mods=Mods(privacy=killed))
with flower.identity(9):
    for told in sys.argv[3:]:
        number, counted = map(int, told.split(","))
        grid = LocalGrid(app, 1, 9)  # a context without any memory
        start = flower.array_record({"model": np.zeros(3, np.float32)})
        order = wire.Order(number, 0, 0, 0, counted, number)
        (reply,) = grid.send_and_receive([Message(wire.sent(start, order), 1, "train.train")])
        print("silent" if reply.has_error() else "answers")
"""


@pytest.mark.heavy
def test_a_process_killed_in_a_round_loses_no_charge_and_no_state(tmp_path: Path) -> None:
    """Killed by the system after its work and before its answer; then started again."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("silo", PureDP(9, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD))

    def work(*given: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", KILLED, str(tmp_path), *given]
        return subprocess.run(line, check=False, capture_output=True, text=True)

    assert work("dies", "1,0").returncode == -9
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert len(ledger.show("silo").charges) == 1
    assert len(list((tmp_path / "state").glob("client-*"))) == 1
    # Its first answer was lost, the next two counted; the last message says what never was.
    told = work("lives", "2,0", "3,2", "4,3", "5,1")
    assert told.stdout.split() == ["answers", "answers", "answers", "silent"], told.stderr
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert len(ledger.show("silo").charges) == 4
