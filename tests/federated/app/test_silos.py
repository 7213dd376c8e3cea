"""Records with a guarantee, through the apps: paid first, asked once, told to whoever runs it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("safetensors")

from flwr.app import Message, MetricRecord, RecordDict
from safetensors.numpy import load_file
from sklearn.metrics import matthews_corrcoef
from typer.testing import CliRunner

from tacit.apps.cli import federate
from tacit.federated import Data, TorchModel, flower, rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.app import deployment, engines, nodes, owner, result, wire
from tacit.federated.app.client import client_app
from tacit.federated.app.engines import Transport
from tacit.federated.app.grid import Faults, LocalGrid
from tacit.federated.app.job import Job
from tacit.federated.app.questions import Questions, scores
from tacit.federated.app.roster import Numbered
from tacit.federated.record_level.normalisation import SiloMoments, combine
from tacit.federated.record_level.privacy import RecordPrivacy
from tacit.federated.record_level.server import SiloServer
from tacit.federated.record_level.silo import Silo
from tacit.federated.rounds import RunOptions
from tacit.federated.torch_model import mlp
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.randomness import Seeded

pytestmark = pytest.mark.heavy

ALL = {"batch_size": None, "epochs": 2}
RECORD = {"unit": "record", "epsilon": 4, "delta": 1e-3}


def parts(count: int = 3, rows: int = 60) -> list[Data]:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(rows) % 2)
    centres = np.where(labels[:, None], 0.5, -0.5)
    return [
        Data(rng.normal(centres, 0.3, (rows, 3)).clip(-1, 1).astype(np.float32), labels)
        for _ in range(count)
    ]


def silos(name: str, privacy: RecordPrivacy, **settings: Any) -> tuple[list[Silo], Any]:
    config = algorithm(name).config(batch_size=None, **settings)  # all rows a step: quick to price
    made = [
        Silo(
            TorchModel(mlp(3, 2)),
            data,
            privacy,
            algorithm(name),
            config,
            rng=Seeded(np.random.default_rng(k)),
        )
        for k, data in enumerate(parts())
    ]
    return made, config


@pytest.mark.parametrize("name", ["fedavg", "feddyn"])
def test_silos_on_the_grid_come_to_the_arrays_of_the_plain_loop(name: str) -> None:
    """With seeded noise; also what they are asked before the first round and after the last."""
    given: dict[str, Any] = {"statistics": 0.1, "held_out": 4, "evaluations": 1}
    privacy = RecordPrivacy(4, 1e-3, 3, **given)
    one, config = silos(name, privacy, epochs=2)
    normalisation = combine([silo.statistics() for silo in one], privacy.bounds)
    for silo in one:
        silo.normalise(normalisation)
    server = SiloServer(1e-3)
    plain = rounds.run(
        name, TorchModel(mlp(3, 2)), one, 3, RunOptions(config=config, coordinator=server)
    )
    counts = sum(silo.evaluate(plain.model) for silo in one)

    other, _ = silos(name, privacy, epochs=2)
    asked, coordinator, told = Questions.of(privacy, 3, 2), SiloServer(1e-3), []
    test = parts()[0]
    found = engines.run(
        name,
        TorchModel(mlp(3, 2)),
        other,
        3,
        RunOptions(
            config=config,
            coordinator=coordinator,
            test=test,
            callback=lambda one: told.append((one.number, dict(asked.scores))),
        ),
        questions=asked,
    )
    np.testing.assert_array_equal(plain.model, found.model)
    assert asked.normalisation is not None
    np.testing.assert_array_equal(asked.normalisation.mean, normalisation.mean)
    assert asked.scores == {3: scores(counts, 3)}
    assert [(number, list(known)) for number, known in told] == [(1, []), (2, []), (3, [3])]
    assert coordinator.spent == max(silo.spent for silo in one) > 0
    applied = Data(normalisation.apply(test.rows), test.labels)
    judged = TorchModel(mlp(3, 2)).evaluate(found.model, applied.rows, applied.labels)
    assert found.history[-1].accuracy == judged.accuracy


def test_a_run_ends_where_no_silo_can_pay_and_goes_on_where_one_can() -> None:
    privacy = RecordPrivacy(4, 1e-3, 2)
    some, config = silos("fedavg", privacy, epochs=1)
    given: dict[str, Any] = {"config": config, "coordinator": SiloServer(1e-3)}
    found = engines.run("fedavg", TorchModel(mlp(3, 2)), some, 3, RunOptions(**given))
    assert len(found.history) == 2
    assert "must have budget remaining" in found.stopped
    fresh, _ = silos("fedavg", privacy, epochs=1)
    mixed = [some[0], *fresh[1:]]
    given["coordinator"] = SiloServer(1e-3)
    found = engines.run("fedavg", TorchModel(mlp(3, 2)), mixed, 2, RunOptions(**given))
    assert [one.counted for one in found.history] == [2, 2]
    with pytest.raises(errors.BudgetExceeded, match="must have budget remaining"):
        engines.run(
            "fedavg",
            TorchModel(mlp(3, 2)),
            some,
            1,
            RunOptions(**{**given, "coordinator": SiloServer(1e-3)}),
        )


def test_where_every_budget_is_spent_the_run_says_so_before_it_trains() -> None:
    privacy = RecordPrivacy(4, 1e-3, 2, statistics=0.1)
    some, config = silos("fedavg", privacy, epochs=1)
    for silo in some:
        silo.statistics()
    run = ("fedavg", TorchModel(mlp(3, 2)), some, 2)
    options = RunOptions(config=config, coordinator=SiloServer(1e-3))
    with pytest.raises(errors.BudgetExceeded, match=r"got 3 of 3 that refused.*Nothing was train"):
        engines.run(*run, options, questions=Questions.of(privacy, 2, 2))
    lossy = Transport(Faults(dropout=1 - 1e-12))
    with pytest.raises(errors.InvalidData, match="got 0 replies from 3 silos"):
        engines.run(*run, options, transport=lossy, questions=Questions.of(privacy, 2, 2))


def test_a_silo_that_ended_its_budget_is_counted_in_the_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job("fedavg", 3, 2, (3, 2), settings={"batch_size": None, "epochs": 1}, privacy=RECORD)
    privacy = job.record_privacy()
    assert privacy is not None
    some, config = silos("fedavg", privacy, epochs=1)
    engines.run(
        "fedavg",
        TorchModel(mlp(3, 2)),
        some[:1],
        2,
        RunOptions(config=config, coordinator=SiloServer(1e-3)),
    )
    asked, coordinator = Questions(), SiloServer(1e-3)
    options = RunOptions(config=config, coordinator=coordinator)
    found = engines.run("fedavg", TorchModel(mlp(3, 2)), some, 2, options, questions=asked)
    result.save(found, job, job.model().layout, coordinator, tmp_path / "out", asked)
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert history["ended_budgets"] == 1
    federate._print_result(tmp_path / "out", as_json=False)
    told = capsys.readouterr().out
    assert "2 of 3 in the last round" in told
    assert "silos with ended budgets" in told


def test_the_command_writes_what_silos_told(tmp_path: Path) -> None:
    privacy = {**RECORD, "statistics": 0.1, "held_out": 4, "evaluations": 2}
    everything = parts(1, rows=120)[0]
    nodes.write_data(tmp_path / "rows.npz", everything)
    job = {"algorithm": "fedavg", "rounds": 3, "layers": [3, 2], "privacy": privacy}
    job["settings"] = ALL
    data = {"rows": "rows.npz", "clients": 2}
    config = tmp_path / "fed.json"
    config.write_text(json.dumps({"job": job, "data": data}))
    out = tmp_path / "out"
    line = ["run", str(config), "--out", str(out), "--json"]
    found = CliRunner().invoke(federate.app, line)
    assert found.exit_code == 0, found.output
    certificate = Certificate.load(out / "certificate.json")
    certificate.verify(out / "model.safetensors")
    assert 0 < certificate.guarantee.at_delta(1e-3).epsilon <= 4
    assert "unit: record" in json.loads(found.stdout)["guarantee"]
    assert any("No person has records in two silos" in one for one in certificate.assumptions)
    history = json.loads((out / "history.json").read_text())
    assert [bool(one.get("silos")) for one in history["rounds"]] == [False, True, True]
    assert set(history["rounds"][-1]["silos"]) == {"accuracy", "mcc", "silos", "rows"}
    told = json.loads(found.stdout)
    assert (told["counted"], told["asked"], told["ended_budgets"]) == (2, 2, 0)
    assert abs(told["rows_held_out_about"] - 30) < 30  # the noise of each count is about 1
    arrays = load_file(out / "model.safetensors")
    assert arrays["input.mean"].tolist() == history["input"]["mean"]
    assert arrays["input.deviation"].shape == (1,)
    for more, message in [
        (["--engine", "ray"], "--engine must be local or deploy"),
        (["--ledger", str(tmp_path / "b"), "--account", "a"], "--ledger must be left out"),
    ]:
        line[3] = str(tmp_path / "other")
        refused = CliRunner().invoke(federate.app, [*line, *more])
        assert message in str(refused.exception)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"unit": "person"}, "unit of privacy must be one of client, record"),
        ({"cohort": 2}, "setting of privacy must be one of unit, epsilon"),
        ({"overlapping": 1}, "overlapping must be true or false"),
        ({"evaluations": 1}, "held_out must be given for evaluations"),
        ({"bounds": [1]}, "bounds must be two numbers"),
    ],
)
def test_bad_guarantees_for_records_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=message):
        Job("fedavg", 2, 1, (3, 2), privacy={**RECORD, **given})


def test_a_job_has_a_network_and_algorithms_that_a_silo_can_run() -> None:
    with pytest.raises(
        errors.InvalidParameter, match="algorithm must be one with a single exchange"
    ):
        Job("fsvrg", 2, 1, (3, 2), privacy=RECORD)
    job = Job("fedavg", 2, 1, network="cnn", image=(12, 12), classes=3, privacy=RECORD)
    assert Job.from_json(job.to_json()) == job
    assert job.questions().due == frozenset()
    for wrong, message in [
        ({"network": "x"}, "network must be one of dense, cnn"),
        ({"network": "cnn"}, "classes must be"),
        ({"network": "cnn", "classes": 2, "layers": (4, 2)}, "layers must be left out with cnn"),
        ({"layers": (4, 2), "classes": 2}, "classes must be left out with dense"),
    ]:
        with pytest.raises(errors.InvalidParameter, match=message):
            Job("fedavg", 2, 1, **wrong)  # type: ignore[arg-type]
    pytest.importorskip("tacit.federated.networks")
    model = job.model()
    assert model.evaluate(model.start(), np.zeros((2, 144), np.float32), np.zeros(2, int))


def test_scores_are_those_of_counts_and_noise_below_zero_is_nothing() -> None:
    rng = np.random.default_rng(0)
    truth, taken = rng.integers(0, 3, (2, 200))
    counts = np.zeros((3, 3), np.int64)
    np.add.at(counts, (truth, taken), 1)
    found = scores(counts, 2)
    assert found.accuracy == np.mean(truth == taken)
    np.testing.assert_allclose(found.mcc, matthews_corrcoef(truth, taken))
    assert scores(np.array([[5, -3], [0, 5]]), 1) == (1.0, 1.0, 1, 7)
    assert scores(np.full((2, 2), -1), 1) == (None, None, 1, 0)
    assert scores(np.array([[5, 0], [2, 0]]), 1).mcc is None


@pytest.mark.parametrize("kind", ["nan", "negative", "none", "text", "beyond"])
def test_hostile_moments_and_statements_count_for_nothing(kind: str) -> None:
    told = SiloMoments(np.array([0.1]), np.array([0.5]), 10)
    bad: dict[str, Callable[[], RecordDict]] = {
        "nan": lambda: wire.moments(told, (float("nan"), 1e-3)),
        "negative": lambda: wire.moments(told, (-1.0, 1e-3)),
        "none": RecordDict,
        "text": lambda: RecordDict({"weight": MetricRecord({"count": 3, "stated": 1.0})}),
        "beyond": lambda: wire.moments(told, (99.0, 1e-3)),
    }
    privacy = RecordPrivacy(4, 1e-3, 2, statistics=0.1)
    app = client_app(lambda context: None)  # type: ignore[arg-type,return-value]
    with flower.identity(1):
        grid = LocalGrid(app, 2, 1)
        answers = [wire.moments(told, (1.0, 1e-3)), bad[kind]()]
        grid.send_and_receive = lambda asked, timeout=None: [  # type: ignore[method-assign,assignment]
            Message(one, reply_to=flower.delivered(message, "1"))
            for one, message in zip(answers, asked, strict=True)
        ]
        server: Any = SimpleNamespace(clients=2, coordinator=SiloServer(1e-3, epsilon=4))
        asked = Questions.of(privacy, 2, 2)
        found = asked.before(grid, Numbered([1, 2]), server, 1.0)
    assert found is not None
    assert found.mean.tolist() == [0.1]
    assert server.coordinator.stated == {0: (1.0, 1e-3)}


def test_counts_of_the_wrong_kind_are_not_read() -> None:
    with flower.identity(1):
        question = flower.delivered(Message(RecordDict(), 1, wire.CONFUSION), "1")

        def read(counts: Any) -> Any:
            content = wire.confusion(counts, (1.0, 1e-3))
            return wire.read_confusion(Message(content, reply_to=question), 2)

        good = np.arange(4).reshape(2, 2)
        np.testing.assert_array_equal(read(good), good)
        for bad in (good.astype(float), good.ravel(), np.zeros((3, 3), np.int64), good + 2**60):
            assert read(bad) is None


def node(job: Job, tmp_path: Path, run_id: int = 3) -> Callable[[Message], Message]:
    """A process of a node: it knows nothing but what its folder holds."""
    config = {
        "name": "north",
        "data": str(tmp_path / "rows.npz"),
        "ledger": str(tmp_path / "ledger.db"),
        "account": "records",
    }
    context: Any = SimpleNamespace(
        node_config=config, run_config={"job": job.to_json()}, run_id=run_id
    )
    app = client_app(
        lambda _: nodes.client_of(context),
        notify=lambda message, _, refusal: owner.tell(message, context, refusal),
    )
    grid = LocalGrid(app, 1, run_id)

    def ask(message: Message) -> Message:
        (reply,) = grid.send_and_receive([message])
        return reply

    return ask


def test_a_node_pays_from_its_own_ledger_and_no_exchange_is_computed_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    privacy = {**RECORD, "statistics": 0.1, "held_out": 4, "evaluations": 1}
    job = Job("fedavg", 1, 2, (3, 2), settings=ALL, privacy=privacy)
    nodes.write_data(tmp_path / "rows.npz", parts(1)[0])
    budget = job.record_budget()
    assert budget is not None
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("records", budget)

    def keys() -> list[str]:
        with Ledger(tmp_path / "ledger.db") as ledger:
            return [one.key for one in ledger.show("records").charges]

    def order(exchange: int, kind: str = "train.train") -> Message:
        model = flower.array_record({"model": job.model().start()})
        return Message(wire.sent(model, wire.Order(exchange, 0, 0, 0, 0, exchange)), 1, kind)

    with flower.identity(3), flower.quiet():
        first = node(job, tmp_path)
        assert not first(Message(RecordDict(), 1, wire.STATISTICS)).has_error()
        assert wire.spent(first(Message(RecordDict(), 1, wire.STATISTICS)))
        stated = [wire.stated(first(order(1)))]
        again = node(job, tmp_path)  # restarted
        assert wire.spent(again(order(1)))
        stated.append(wire.stated(again(order(2))))
        stated.append(wire.stated(again(order(2, wire.CONFUSION))))
        assert wire.spent(again(order(3)))
        assert wire.spent(again(order(2, wire.CONFUSION)))
        assert stated[0] < stated[1] <= stated[2]
        assert stated[2][0] <= 4
        run, *marks = keys()
        assert run.startswith("federated 3 ")
        what = ("statistics 1", "round 1", "round 2", "evaluation 1")
        assert marks == [f"{run}, {one}" for one in what]
        # Another run would cost as much again, and there is nothing left.
        assert wire.spent(node(job, tmp_path, 4)(order(1)))
        reason = str(node(job, tmp_path, 4)(order(1)).error.reason)
        assert "records" not in reason
        assert "left" not in reason
        assert "remaining" not in reason
    assert len(keys()) == 5
    lines = capsys.readouterr().err.splitlines()  # for the owner, and nothing but lines
    assert lines[0].startswith("tacit: statistics answered. The whole job may cost (4, 0.001)-DP, ")
    assert "account records has epsilon = " in lines[0]
    assert lines[0].endswith(" remaining.")
    assert lines[1].startswith("tacit: statistics refused. Silo: statistics 1 of this run must be")
    whats = [one.split(".")[0] for one in lines[2:6]]
    assert whats == [
        "tacit: round 1 answered",
        "tacit: round 1 refused",
        "tacit: round 2 answered",
        "tacit: evaluation after round 2 answered",
    ]
    assert all(one.startswith("tacit: round 1 refused. Ledger.charge: ") for one in lines[-2:])


def test_rows_that_do_not_fit_the_network_are_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job("fedavg", 1, 2, (2, 2), settings=ALL, privacy=RECORD)
    nodes.write_data(tmp_path / "rows.npz", parts(1)[0])
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("records", job.record_budget())  # type: ignore[arg-type]
    with flower.identity(3), flower.quiet():
        reply = node(job, tmp_path)(Message(RecordDict(), 1, wire.DESCRIBE))
    assert "client: InvalidData in its app." in str(reply.error.reason)
    assert "3" not in str(reply.error.reason)
    assert "layers must begin with 3, the number of columns, got 2." in capsys.readouterr().err
    privacy = job.record_privacy()
    assert privacy is not None
    with pytest.raises(errors.InvalidData, match=r"must take rows of shape \(3,\)"):
        Silo(TorchModel(mlp(2, 2)), parts(1)[0], privacy, job.chosen, job.config())


def test_lost_moments_leave_the_others() -> None:
    privacy = RecordPrivacy(4, 1e-3, 2, statistics=0.1)
    some, config = silos("fedavg", privacy, epochs=1)
    faults = Faults(dropout=0.5, seed=3)
    lost = [np.isinf(faults.draw(1, node)) for node in (1, 2, 3)]
    assert 0 < sum(lost) < 3
    asked, coordinator = Questions.of(privacy, 2, 2), SiloServer(1e-3)
    engines.run(
        "fedavg",
        TorchModel(mlp(3, 2)),
        some,
        2,
        RunOptions(config=config, coordinator=coordinator),
        transport=Transport(faults),
        questions=asked,
    )
    assert asked.normalisation is not None


@pytest.mark.slow
def test_a_silo_killed_in_a_round_has_paid_and_does_not_answer_that_round_again(
    tmp_path: Path,
) -> None:
    privacy = {**RECORD, "statistics": 0.05, "held_out": 4, "evaluations": 1}
    held = parts(2, rows=400)
    # Seconds lie between the charge and the answer.
    long = {"batch_size": None, "epochs": 1500, "learning_rate": 0.001}
    job = Job("fedavg", 2, 3, (3, 2), settings=long, privacy=privacy)
    link, told = deployment.SuperLink(tmp_path), []

    def keys(name: str) -> list[str]:
        with Ledger(tmp_path / name / "ledger.db") as ledger:
            return [one.key.partition(", ")[2] for one in ledger.show(name).charges]

    with link.serving(), ExitStack() as running:

        def start(name: str, data: Data) -> Any:
            terms = deployment.own_budget(job, tmp_path, name)
            return running.enter_context(deployment.silo(link, name, data, terms=terms))

        start("north", held[0])
        south = start("south", held[1])

        def hear(line: dict[str, Any]) -> None:
            told.append(line)
            if line["number"] == 1:
                until = time.monotonic() + 60
                while "round 2" not in keys("south"):
                    assert time.monotonic() < until
                    time.sleep(0.05)
                os.killpg(south.pid, signal.SIGKILL)
                start("south", held[1])

        link.submit(job, patience=75)
        folder = link.follow(hear, limit=580)
    assert [one["counted"] for one in told] == [2, 1, 2]
    for name in ("north", "south"):
        assert keys(name) == ["", "statistics 1", "round 1", "round 2", "round 3", "evaluation 1"]
    history = json.loads((folder / "history.json").read_text())
    assert history["rounds"][-1]["silos"]["silos"] == 2
    assert 0 < told[0]["epsilon"] < told[-1]["epsilon"] <= 4
    certificate = Certificate.load(folder / "certificate.json")
    certificate.verify(folder / "model.safetensors")
    assert certificate.guarantee.at_delta(1e-3).epsilon <= 4
