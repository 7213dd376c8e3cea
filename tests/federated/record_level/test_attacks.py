"""Attacks on records in silos: a hostile server chooses job, model, normalisation, messages."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

pytest.importorskip("flwr")

from flwr.app import Message, RecordDict

from tacit.central.training.noise import Noise
from tacit.federated import ClientPrivacy, Data, TorchModel, flower
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.app import nodes, wire
from tacit.federated.app.client import client_app
from tacit.federated.app.grid import LocalGrid
from tacit.federated.app.job import Job
from tacit.federated.client_level.auditing import one_guess_bound
from tacit.federated.record_level.normalisation import Normalisation
from tacit.federated.record_level.privacy import RecordPrivacy
from tacit.federated.record_level.silo import Silo
from tacit.federated.torch_model import mlp
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ApproxDP, RenyiDP

SCOPE: Any = {"adjacency": "zero-out", "unit": "record"}
ALL = {"batch_size": None, "epochs": 1}
FEDSGD = algorithm("fedsgd")


def rows(count: int = 60, columns: int = 4) -> Data:
    rng = np.random.default_rng(0)
    return Data(rng.random((count, columns), dtype=np.float32), rng.integers(0, 2, count))


def silo(data: Data, *sizes: int, run: dict[str, Any] | None = None, **given: Any) -> Silo:
    """All rows in every draw, one gradient a round: calibration is a closed form."""
    privacy = RecordPrivacy(**{"epsilon": 4.0, "delta": 1e-3, "rounds": 3, **given})
    model = TorchModel(mlp(*(sizes or (4, 2))))
    return Silo(model, data, privacy, FEDSGD, FEDSGD.config(), **(run or {}))


def scaling(mean: float, deviation: float) -> Normalisation:
    return Normalisation(np.array([mean]), np.array([deviation]))


def told(one: Silo, exchange: Any = 1, model: Any = None) -> Any:
    """The numbers of its reply, in the order of the weights."""
    received = {"model": one._model.start() if model is None else model}
    reply, _ = one.answer(exchange, FEDSGD.phases[0], received, {}, np.random.default_rng(0))
    return np.concatenate([np.ravel(part) for part in reply.record.values()])


# What one record can change


def test_a_tiny_clip_norm_does_not_lose_the_noise() -> None:
    """Signs of all clipped sums, without noise."""
    try:
        one = silo(rows(), clip_norm=1e-37)
    except errors.InvalidParameter:
        return
    assert np.isfinite(told(one)).all()


def test_a_huge_clip_norm_does_not_count_rows() -> None:
    """A weight gets 1.06e38 a row: the sum of three is a float32, that of four is infinite."""
    try:
        many = silo(Data(np.ones((40, 1), np.float32), np.zeros(40, int)), 1, 2, clip_norm=1.5e38)
    except errors.InvalidParameter:
        return
    many.normalise(scaling(0.0, 1 / 3e38))
    assert np.isfinite(told(many, model=np.zeros(4, np.float32))).all()


@pytest.mark.quick(1)
@pytest.mark.parametrize("clip", [1.0, 1e-3])
def test_hostile_weights_and_scales_leave_a_record_its_clip_norm(
    clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row beside blank ones, a layer of one unit whose gradient is about 1e45 / clip."""

    def without(self: Noise, sums: Any, divisor: float = 1.0) -> None:
        sums.div_(divisor)

    monkeypatch.setattr(Noise, "add_to", without)
    data = rows(3)
    data.rows[0], data.rows[1:] = 1, np.nan
    model = np.zeros(4 + 1 + 2 + 2, np.float32)
    model[4] = 1e-30  # so that the unit is on, and its outputs are near 0
    worst = 0.0
    for size in np.geomspace(1e26, 1.3e26, 12):
        one = silo(data, 4, 1, 2, clip_norm=clip)
        one.normalise(scaling(0.0, 1 / (5.6e18 * clip)))
        model[5:7] = size, -size
        worst = max(worst, float(np.linalg.norm(3 * told(one, model=model).astype(np.float64))))
    assert worst <= clip * 1.001


@pytest.mark.quick(6)
@pytest.mark.parametrize("weight", [math.nan, 1e30, -3e38, 0.0])
@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e99])
def test_hostile_models_and_normalisations_get_noise_and_nothing_else(
    weight: float, scale: float
) -> None:
    one = silo(rows(), held_out=3, evaluations=1)
    one.normalise(scaling(1e30 if scale == 1e99 else 0.0, scale))
    model = np.full(10, weight, np.float32)
    assert np.isfinite(told(one, model=model)).all()
    counts = one.evaluate(model)
    deviation = float(one.privacy.evaluation_multiplier)
    assert abs(int(counts.sum()) - 20) < 8 * 2 * deviation


# What is paid


def node(job: Job, folder: Path, run: int = 3) -> Callable[[Message], Message]:
    """A process of a node: it knows nothing but what its folder holds."""
    config = {"name": "north", "data": str(folder / "rows.npz")}
    config |= {"ledger": str(folder / "ledger.db"), "account": "records"}
    context: Any = SimpleNamespace(
        node_config=config, run_config={"job": job.to_json()}, run_id=run
    )
    grid = LocalGrid(client_app(lambda _: nodes.client_of(context)), 1, run)

    def ask(message: Message) -> Message:
        with flower.identity(run), flower.quiet():
            (reply,) = grid.send_and_receive([message])
        return reply

    return ask


def job(last: int = 2, **privacy: Any) -> Job:
    given = {"unit": "record", "epsilon": 4, "delta": 1e-3, **privacy}
    return Job("fedavg", 1, 2, (4, last), settings=ALL, privacy=given)


def order(one: Job, exchange: Any = 1, kind: str = "train.train") -> Message:
    model = flower.array_record({"model": one.model().start()})
    with flower.identity(3):
        return Message(wire.sent(model, wire.Order(1, 0, 0, 0, 0, exchange)), 1, kind)


def funded(folder: Path, data: Data, epsilon: float = 4.0) -> None:
    nodes.write_data(folder / "rows.npz", data)
    with Ledger(folder / "ledger.db") as ledger:
        ledger.open("records", ApproxDP(epsilon, 1e-3, **SCOPE))


def test_rows_do_not_change_sides_under_one_run(tmp_path: Path) -> None:
    """60 // 25 = 60 // 30: row 30 is trained on in the one job and evaluated in the other."""
    funded(tmp_path, rows())
    first, second = (job(held_out=k, evaluations=1) for k in (25, 30))
    assert not node(first, tmp_path)(order(first)).has_error()
    assert node(second, tmp_path)(order(second, 1, wire.CONFUSION)).has_error()


def test_an_error_does_not_tell_a_label(tmp_path: Path) -> None:
    """The server asks for two classes; one record, blank or not, has a third."""
    failed = []
    for there in (False, True):
        folder = tmp_path / str(there)
        folder.mkdir()
        data = rows()
        data.labels[7] = 2 if there else 0
        data.rows[7] = 0.5 if there else np.nan
        funded(folder, data)
        ask = node(job(2), folder)
        with flower.identity(3):
            failed.append(ask(Message(RecordDict(), 1, wire.DESCRIBE)).has_error())
    assert failed[0] == failed[1]


@pytest.mark.parametrize("exchange", [0, -1, 3, 2**62])
def test_hostile_exchanges_cost_and_tell_nothing(exchange: int, tmp_path: Path) -> None:
    funded(tmp_path, rows())
    assert node(job(), tmp_path)(order(job(), exchange)).has_error()
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert not ledger.show("records").charges


def test_one_exchange_has_one_name() -> None:
    one = silo(rows())
    for odd in (True, "1", 1.5, math.nan, 10**30, None):
        with pytest.raises(errors.TacitError):
            told(one, odd)
    told(one, 1)
    for same in (1, 1.0, np.int8(1), np.float64(1)):
        with pytest.raises(errors.BudgetExceeded):
            told(one, same)
    assert one.spent == one.plan.epsilon(1)


def test_another_job_under_one_run_pays_or_is_refused(tmp_path: Path) -> None:
    funded(tmp_path, rows())
    assert not node(job(), tmp_path)(order(job())).has_error()
    for other in (job(epsilon=3.9), job(clip_norm=2.0), job(statistics=0.5), job(delta=1e-4)):
        assert node(other, tmp_path)(order(other, 2)).has_error()
    # No account pays for a second run, whatever it is called.
    assert node(job(), tmp_path, 4)(order(job(), 2)).has_error()


def test_rounds_of_another_plan_are_not_stated_as_this_ones(tmp_path: Path) -> None:
    """A Rényi account pays for both; what silo and certificate say of them is too little."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("records", RenyiDP(orders=(2.0, 8.0), epsilons=(500.0, 500.0), **SCOPE))
        run = {"ledger": ledger, "account": "records", "run": "r"}
        dear, cheap = silo(rows(), run=run, epsilon=8.0), silo(rows(), run=run, epsilon=0.5)
        told(dear, 1)
        told(cheap, 2)
        assert cheap.spent == cheap.plan.epsilon(1)
        assert dear.spent == dear.plan.epsilon(1)


def test_a_statement_has_what_another_process_began(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("records", ApproxDP(4.0, 1e-3, **SCOPE))
        run = {"ledger": ledger, "account": "records", "run": "r"}
        first, second = silo(rows(), run=run), silo(rows(), run=run)
        told(first, 1)
        told(second, 2)
        assert second.spent == second.plan.epsilon(2)


def test_a_forked_process_does_not_spend_what_was_paid_once() -> None:
    one = silo(rows())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            told(one, 1)
        except errors.TacitError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nor_does_a_forked_server() -> None:
    privacy = ClientPrivacy(3, cohort=3, epsilon=4, delta=1e-3, rounds=1)
    privacy.admit(FEDSGD, FEDSGD.config(weighted=False), 3)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            privacy.choose(1, 3)
        except errors.TacitError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert privacy.choose(1, 3) == [0, 1, 2]


# What an audit may say


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(("canaries", "delta"), [(1, 1e-5), (100, 1e-4), (50, 1e-2)])
def test_a_true_claim_is_refuted_as_rarely_as_stated(
    epsilon: float, canaries: int, delta: float
) -> None:
    """Exactly, at the worst law that the theorem allows, for every number of runs."""
    right = min((math.exp(epsilon) + canaries * delta) / (1 + math.exp(epsilon)), 1.0)
    for runs in (1, 10, 100, 1000):
        refuting = [
            v for v in range(runs + 1) if one_guess_bound(canaries, runs, v, delta, 0.99) > epsilon
        ]
        if refuting:
            assert binom.sf(refuting[0] - 1, runs, right) <= 0.01 + 1e-12
