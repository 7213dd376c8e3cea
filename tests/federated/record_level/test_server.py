"""Runs over silos: everything is paid before it is computed, once; and what the server reports."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.federated import rounds
from tacit.federated.algorithms.registry import Algorithm, Phase, algorithm
from tacit.federated.algorithms.server_updates import follow
from tacit.federated.model import Data
from tacit.federated.payload import Payload, PayloadPart
from tacit.federated.payment import Payment
from tacit.federated.record_level.privacy import RecordPrivacy
from tacit.federated.record_level.server import SiloServer
from tacit.federated.record_level.silo import Silo
from tacit.federated.rounds import Reply, RunOptions, RunResult
from tacit.federated.torch_model import TorchModel, mlp
from tacit.privacy import errors, events
from tacit.privacy.accounting import privacy_loss
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ApproxDP, PureDP, RenyiDP

SCOPE: Any = {"adjacency": "zero-out", "unit": "record"}
ORDERS = (2.0, 8.0, 32.0)
MODEL = TorchModel(mlp(4, 3))
SETTINGS = {"batch_size": None, "epochs": 1}
FEDAVG = algorithm("fedavg")


def silo(seed: int = 0, chosen: Algorithm = FEDAVG, **options: Any) -> Silo:
    """All rows in every draw: calibration is a closed form."""
    rng = np.random.default_rng(seed)
    held = Data(rng.random((12, 4), dtype=np.float32), rng.integers(0, 3, 12))
    names = ("ledger", "account", "run")
    privacy = {"epsilon": 4.0, "delta": 1e-4, "rounds": 3}
    privacy |= {name: value for name, value in options.items() if name not in names}
    kept = {name: value for name, value in options.items() if name in names}
    return Silo(MODEL, held, RecordPrivacy(**privacy), chosen, chosen.config(**SETTINGS), **kept)


def asked(one: Silo, exchange: int = 1) -> Reply:
    rng, received = np.random.default_rng(0), {"model": MODEL.start()}
    return one.answer(exchange, one.algorithm.phases[0], received, {}, rng)[0]


def custom(before: Callable[[], object]) -> Algorithm:
    """Draws once, then does something before it answers."""

    def client(config: Any, model: Any, received: Any, state: Any, data: Data, rng: Any) -> Any:
        found = model.gradient(received["model"], data.rows, data.labels)
        before()
        return Payload({"update": found}, float(len(data))), state

    phase = Phase("train", client, follow, (PayloadPart("update"),))
    return Algorithm("custom", (phase,), ("epochs", "batch_size", "server_rate"))


def never() -> None:
    raise AssertionError("it was computed")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger") as found:
        found.open("whole", ApproxDP(epsilon=4.001, delta=1e-4, **SCOPE))
        one = silo().plan.event(1)
        assert one is not None
        curve = privacy_loss.renyi_of(one, ORDERS).epsilons
        budget = RenyiDP(orders=ORDERS, epsilons=tuple(2.5 * cost for cost in curve), **SCOPE)
        found.open("rounds", budget)
        found.open("little", ApproxDP(epsilon=0.5, delta=1e-4, **SCOPE))
        yield found


def test_the_whole_plan_is_charged_first_then_marks(ledger: Ledger) -> None:
    one = silo(ledger=ledger, account="whole", run="r1")
    asked(one, 2)
    plan, mark = ledger.show("whole").charges
    assert plan.event == one.plan.whole
    assert plan.key.startswith("federated r1 ")
    assert mark.key == f"{plan.key}, round 2"
    assert mark.event == events.Declared(PureDP(epsilon=0.0, **SCOPE))
    assert not any(mark.amount.values())
    asked(one, 1)
    assert len(ledger.show("whole").charges) == 3
    other = silo(ledger=ledger, account="whole", run="r2")  # another run: another plan
    with pytest.raises(errors.BudgetExceeded, match="the remaining budget of account 'whole'"):
        asked(other)


def test_a_renyi_account_is_charged_round_by_round(ledger: Ledger) -> None:
    one = silo(ledger=ledger, account="rounds", run="r1")
    for exchange in (1, 2):
        asked(one, exchange)
    assert [charge.event for charge in ledger.show("rounds").charges] == [one.plan.event(1)] * 2
    last = silo(chosen=custom(never), ledger=ledger, account="rounds", run="r1")
    with pytest.raises(errors.BudgetExceeded, match="the remaining budget"):
        asked(last, 3)
    assert one.spent == last.spent == one.plan.epsilon(2)


def test_what_cannot_be_paid_is_not_computed(ledger: Ledger) -> None:
    one = silo(chosen=custom(never), ledger=ledger, account="little", run="r1")
    with pytest.raises(errors.BudgetExceeded, match="the remaining budget"):
        asked(one)
    assert one.spent == 0
    assert not ledger.show("little").charges
    beyond = silo(chosen=custom(never))
    with pytest.raises(errors.BudgetExceeded, match="exchange must be at most 3"):
        asked(beyond, 4)
    assert beyond.spent == 0


@pytest.mark.parametrize("account", ["whole", "rounds", None])
def test_an_exchange_that_failed_is_paid_and_lost(ledger: Ledger, account: str | None) -> None:
    def fail() -> None:
        raise ValueError("out of memory")

    given = {} if account is None else {"ledger": ledger, "account": account, "run": "r1"}
    one = silo(chosen=custom(fail), **given)
    with pytest.raises(ValueError, match="out of memory"):
        asked(one)
    again = one if account is None else silo(chosen=custom(never), **given)
    with pytest.raises(errors.BudgetExceeded, match="round 1 of this run must be new"):
        asked(again)
    assert again.spent == one.plan.epsilon(1)
    if account is not None:
        assert asked(silo(**given), 2).stated == (one.plan.epsilon(2), 1e-4)


def _killed_after_its_draw(path: Path, account: str) -> None:
    with Ledger(path) as own:
        kill = custom(lambda: os.kill(os.getpid(), signal.SIGKILL))
        asked(silo(chosen=kill, ledger=own, account=account, run="r1"))


@pytest.mark.heavy
@pytest.mark.parametrize("account", ["whole", "rounds"])
def test_a_killed_process_loses_no_entry(ledger: Ledger, tmp_path: Path, account: str) -> None:
    """Killed after its draw and before its answer."""
    # Not forked: the child computes, and may wait for ever for locks of its parent's threads.
    spawn = multiprocessing.get_context("spawn")
    child = spawn.Process(target=_killed_after_its_draw, args=(tmp_path / "ledger", account))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    given: Any = {"ledger": ledger, "account": account, "run": "r1"}
    assert ledger.show(account).charges[-1].key.endswith(", round 1")
    with pytest.raises(errors.BudgetExceeded, match="round 1 of this run must be new"):
        asked(silo(chosen=custom(never), **given))
    assert asked(silo(**given), 2).stated == (silo().plan.epsilon(2), 1e-4)


def test_two_processes_do_not_compute_one_exchange(ledger: Ledger) -> None:
    """Both looked at the ledger before either began."""
    given: Any = {"ledger": ledger, "account": "whole", "run": "r1"}
    first = silo(held_out=4, evaluations=2, **given)
    second = silo(chosen=custom(never), held_out=4, evaluations=2, **given)
    asked(first)
    with pytest.raises(errors.BudgetExceeded, match="round 1 of this run must be new"):
        asked(second)
    for one in (first, second):  # each takes the next that is free
        one.evaluate(MODEL.start())
    with pytest.raises(errors.BudgetExceeded, match="evaluations must be at most 2"):
        first.evaluate(MODEL.start())


def test_another_plan_under_one_name_is_another_run(ledger: Ledger) -> None:
    """And pays for itself: the remaining budget is too small."""
    given: Any = {"ledger": ledger, "account": "whole", "run": "r1"}
    asked(silo(**given))
    with pytest.raises(errors.BudgetExceeded, match="the remaining budget of account 'whole'"):
        asked(silo(epsilon=4.5, **given), 2)


def test_a_payment_needs_ledger_and_account(ledger: Ledger) -> None:
    plan = silo().plan.whole
    with pytest.raises(errors.InvalidParameter, match=r"^Silo: ledger and account must be given"):
        Payment("Silo", plan, 1e-4, ledger)
    with pytest.raises(errors.InvalidParameter, match="run must be a nonempty line"):
        Payment("Silo", plan, 1e-4, ledger, "whole", run="a\nb")


# --- the server ---------------------------------------------------------------------------------


def federated(silos: Any, number: int = 3, **options: Any) -> tuple[RunResult, SiloServer]:
    given = {name: options.pop(name) for name in ("intercept",) if name in options}
    server = SiloServer(1e-4, **options)
    config = FEDAVG.config(**SETTINGS)
    found = rounds.run(
        FEDAVG, MODEL, silos, number, RunOptions(config=config, coordinator=server, **given)
    )
    return found, server


@pytest.mark.parametrize("overlapping", [False, True])
def test_the_server_reports_the_largest_or_the_sum(overlapping: bool) -> None:
    silos = [silo(0), silo(1, epsilon=2.0), silo(2, epsilon=1.0)]
    found, server = federated(silos, overlapping=overlapping)
    assert [one.counted for one in found.history] == [3, 3, 3]
    spent = [one.spent for one in silos]
    assert spent == pytest.approx([4, 2, 1])
    assert server.spent == pytest.approx(sum(spent) if overlapping else max(spent))
    assert server.guarantee.delta == pytest.approx(3e-4 if overlapping else 1e-4)  # type: ignore[attr-defined]
    certificate = server.certificate()
    assert certificate.guarantee == server.guarantee
    said = " ".join(certificate.assumptions)
    assert ("No person has records in two silos" in said) is not overlapping
    assert ("epsilons of all silos are summed" in said) is overlapping
    assert "its own claim" in said


def test_a_silo_that_was_there_less_states_less() -> None:
    silos = [silo(0), silo(1)]
    found, server = federated(silos, participation=0.5, seed=1)
    rounds_of = [sum(one.plan.epsilon(k) <= one.spent for k in (1, 2, 3)) for one in silos]
    assert sum(rounds_of) == 3
    assert sorted(rounds_of) == [1, 2]
    stated = {k: one.spent for k, one in enumerate(silos)}
    assert {k: said[0] for k, said in server.stated.items()} == stated
    assert server.spent == max(stated.values()) < 4
    assert len(found.history) == 3


HOSTILE: Any = [
    (np.nan, 1e-4),
    (np.inf, 1e-4),
    (-1.0, 1e-4),
    (1e300, 1e-4),
    (1.0, 1.0),
    (1.0, -1e-9),
    (1.0, np.nan),
    ("1.0", 1e-4),
    (True, 1e-4),
    (10**400, 0.0),
    (1.0,),
    (1.0, 1e-4, 0.0),
    "1.0",
    1.0,
    {"epsilon": 1},
]


@pytest.mark.quick(9)
@pytest.mark.parametrize("stated", HOSTILE, ids=lambda one: repr(one)[:20])
def test_a_hostile_statement_is_rejected_and_counted(stated: Any) -> None:
    def lie(number: int, client: int, reply: Reply) -> Reply:
        return reply._replace(stated=stated) if client == 1 else reply

    found, server = federated([silo(0), silo(1)], 1, intercept=lie)
    ((client, why),) = found.history[0].rejected
    assert client == 1
    assert "its stated cost is no epsilon" in why
    assert list(server.stated) == [0]
    assert np.isfinite(found.model).all()


def test_what_states_nothing_or_too_much_does_not_count() -> None:
    def change(number: int, client: int, reply: Reply) -> Reply:
        said: Any = {1: None, 2: (9.0, 1e-4), 3: (1.0, 1e-3)}
        return reply._replace(stated=said.get(client, reply.stated))

    silos = [silo(k) for k in range(4)]
    found, server = federated(silos, 1, epsilon=4.0, intercept=change)
    assert [client for _, client, _ in server.silent] == [1, 2, 3]
    assert list(server.stated) == [0]
    assert [client for client, _ in found.history[0].rejected] == [1, 2, 3]
    assert found.history[0].counted == 1  # so that no client's state goes on from the others
    everyone = [silo(k) for k in range(2)]
    none, quiet = federated(everyone, 1, intercept=lambda n, k, r: r._replace(stated=None))
    assert none.history[0].skipped
    assert quiet.spent == 0
    with pytest.raises(errors.TacitError, match="no reply has counted"):
        quiet.certificate()


def test_statements_never_go_back() -> None:
    server = SiloServer(1e-4)
    assert server.state(0, (3.0, 1e-4))
    assert server.state(0, (1.0, 1e-5))
    assert server.stated == {0: (3.0, 1e-4)}
    assert not server.state(0, ("x", 1e-4))
    assert not server.state(0, None)


def test_a_silo_without_budget_is_silent_and_the_others_go_on() -> None:
    silos = [silo(0, rounds=1), silo(1)]
    found, server = federated(silos)
    assert [one.counted for one in found.history] == [2, 1, 1]
    assert not found.stopped
    assert silos[0].spent == pytest.approx(4)  # all of it, in its one round
    assert server.spent == pytest.approx(4)


def test_where_all_are_out_of_budget_the_run_stops_and_says_why(ledger: Ledger) -> None:
    found, _ = federated([silo(0, rounds=1), silo(1, rounds=2)], 5)
    assert len(found.history) == 2
    assert found.stopped.startswith("Silo: exchange must be at most 2")
    with pytest.raises(errors.BudgetExceeded, match="the remaining budget"):
        federated([silo(ledger=ledger, account="little")])


def test_lost_replies_are_paid_and_do_not_stop_a_run() -> None:
    silos = [silo(0), silo(1)]
    found, server = federated(silos, intercept=lambda n, k, r: None if k == n % 2 else r)
    assert [one.counted for one in found.history] == [1, 1, 1]
    assert [one.spent for one in silos] == pytest.approx([4, 4])
    assert server.stated[0][0] == pytest.approx(4)
    assert server.stated[1][0] < 4  # its last reply did not arrive: no model depends on it


def test_settings_that_are_not_the_silos_are_refused() -> None:
    app, chosen = pytest.importorskip("tacit.federated.app"), algorithm("fedavg")
    for run in (rounds.run, app.run):
        with pytest.raises(errors.InvalidParameter, match="config must be that of the silos"):
            run("fedavg", MODEL, [silo()], 1, RunOptions(config=chosen.config(learning_rate=7.0)))
