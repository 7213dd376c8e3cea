"""Attacks as functions on rows and replies, and their refusal where clients are real."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tacit.federated import rounds
from tacit.federated.app import Mods, Transport, engines, simulation
from tacit.federated.attacks import threats
from tacit.federated.model import Data, Evaluation
from tacit.federated.rounds import Reply, RunOptions
from tacit.privacy import errors

ROWS = Data(np.zeros((40, 2, 3), np.float32), np.arange(40) % 4)
TRIGGER = threats.Trigger((0, 5), 0.7)
BACKDOOR = threats.backdoor(TRIGGER, 2, share=0.25)


def reply(*numbers: float) -> Reply:
    mask = np.array([170], np.uint8)
    return Reply({"update/w": np.array(numbers, np.float32), "mask/w": mask}, 7.0)


def only(attack: threats.Attack) -> threats.Attackers:
    return threats.Attackers(attack, [1], engine="local", seed=3)


def test_every_label_is_flipped() -> None:
    honest, attacker = only(threats.label_flip(4)).poisoned([ROWS, ROWS])
    assert honest is ROWS
    np.testing.assert_array_equal(attacker.labels, 3 - ROWS.labels)
    np.testing.assert_array_equal(attacker.rows, ROWS.rows)


def test_a_backdoor_marks_a_share_of_the_rows() -> None:
    _, attacker = only(BACKDOOR).poisoned([ROWS, ROWS])
    marked = (attacker.rows != ROWS.rows).any(axis=(1, 2))
    assert marked.sum() == 10
    assert set(attacker.labels[marked]) == {2}
    np.testing.assert_array_equal(attacker.labels[~marked], ROWS.labels[~marked])
    (at,) = np.unique(attacker.rows[marked].reshape(10, 6), axis=0)
    np.testing.assert_allclose(at, [0.7, 0, 0, 0, 0, 0.7])
    assert ROWS.rows.max() == 0  # the client's own rows are untouched


@pytest.mark.parametrize(
    ("attack", "factor"),
    [(threats.sign_flip(3.0), -3.0), (threats.replacement(BACKDOOR, 6.0), 6.0)],
)
def test_replies_are_scaled(attack: threats.Attack, factor: float) -> None:
    sent = only(attack).intercept(1, 1, reply(1, -2))
    np.testing.assert_array_equal(sent.record["update/w"], np.array([1, -2]) * factor)
    assert sent.record["update/w"].dtype == np.float32
    np.testing.assert_array_equal(sent.record["mask/w"], [170])
    assert sent.weight == 7.0
    assert (attack.poison is None) == (factor < 0)  # a replaced model is a poisoned one


def test_noise_has_its_spread_and_says_nothing_of_the_reply() -> None:
    attackers = only(threats.noise(2.0))
    first, again, later = (
        attackers.intercept(number, 1, reply(*[value] * 4000)).record["update/w"]
        for number, value in [(1, 0.0), (1, 5.0), (2, 0.0)]
    )
    assert first.std() == pytest.approx(2.0, rel=0.06)
    np.testing.assert_array_equal(first, again)
    assert (first != later).all()


def test_clones_are_one_attacker() -> None:
    attackers = threats.Attackers(threats.sybil(BACKDOOR), [1, 3], engine="local")
    own = Data(ROWS.rows + 1, ROWS.labels)
    found = attackers.poisoned([ROWS, own, ROWS, ROWS])
    np.testing.assert_array_equal(found[1].rows, found[3].rows)
    np.testing.assert_array_equal(found[1].labels, found[3].labels)
    for number, phase in [(1, 0.0), (1, 10.0), (2, 20.0)]:  # two phases, then another round
        sent = [
            attackers.intercept(number, client, reply(phase + client)).record["update/w"][0]
            for client in range(4)
        ]
        assert sent == [phase, phase + 1, phase + 2, phase + 1]
    alone = attackers.intercept(3, 3, reply(9.0))  # the first of them was not asked
    assert alone.record["update/w"][0] == 9.0


def test_success_counts_other_classes_alone() -> None:
    class Reads:
        """Answers 2 where the trigger is, else right."""

        def evaluate(self, weights: object, rows: np.ndarray, labels: np.ndarray) -> Evaluation:
            answers = np.where(np.isclose(rows[:, 0, 0], 0.7), 2, -1)
            assert len(rows) == 30
            return Evaluation(0.0, float((answers == labels).mean()))

    found = threats.success(Reads(), np.zeros(1), ROWS, TRIGGER, 2)  # type: ignore[arg-type]
    assert found == 1.0


def test_a_run_under_attack(quadratic: object) -> None:
    """Boosted sign flips drive plain averaging away; without them it comes near."""
    problem: object = quadratic
    held, model = problem.held, problem.model  # type: ignore[attr-defined]
    attackers = threats.Attackers(threats.sign_flip(20.0), [4], engine="local")
    clean, hit = (
        rounds.run("fedsgd", model, held, 20, RunOptions(intercept=intercept)).model
        for intercept in (None, attackers.intercept)
    )
    assert problem.distance(clean) < 0.1 < 10 < problem.distance(hit)  # type: ignore[attr-defined]


def lost(number: int, client: int, sent: Reply) -> Reply | None:
    return None if client == number else sent


ON_FLOWER = {
    "noise": ("feddyn", only(threats.noise(2.0)).intercept),
    "two phases": ("fsvrg", only(threats.sign_flip()).intercept),
    "clones": (
        "fedavg",
        threats.Attackers(threats.sybil(threats.sign_flip()), [1, 3], engine="local").intercept,
    ),
    "lost": ("feddyn", lost),
}


@pytest.mark.parametrize("kind", ON_FLOWER)
def test_attacks_on_flower_come_to_the_arrays_of_the_plain_loop(kind: str, quadratic: Any) -> None:
    name, intercept = ON_FLOWER[kind]
    given = (name, quadratic.model, quadratic.held, 3)
    plain, flower = (
        engine(*given, RunOptions(seed=4, intercept=intercept))
        for engine in (rounds.run, engines.run)
    )
    clean = rounds.run(*given, RunOptions(seed=4))
    np.testing.assert_array_equal(flower.model, plain.model)
    assert [one.counted for one in flower.history] == [one.counted for one in plain.history]
    assert not np.array_equal(plain.model, clean.model)


ON_RAY = """
import numpy as np
from tacit.federated import Data, rounds
from tacit.federated.attacks import threats
from tacit.federated.app import simulation
from tacit.federated.app.job import Job
from tacit.federated.rounds import RunOptions

rng = np.random.default_rng(0)
held = [Data(rng.normal(k, 1, (20, 4)).astype(np.float32), np.arange(20) % 3) for k in range(3)]
job = Job("feddyn", clients=3, rounds=2, layers=(4, 3))
attackers = threats.Attackers(threats.noise(2.0), [1], engine="ray", seed=3)
attacked = RunOptions(intercept=attackers.intercept)
found = simulation.run(job.chosen, job.model, held, 2, attacked)
plain = rounds.run(job.chosen, job.model(), held, 2, attacked)
np.testing.assert_array_equal(found.model, plain.model)
assert not np.array_equal(plain.model, rounds.run(job.chosen, job.model(), held, 2).model)
"""


@pytest.mark.slow
def test_attacks_on_ray_come_to_the_arrays_of_the_plain_loop() -> None:
    pytest.importorskip("ray")
    done = subprocess.run([sys.executable, "-c", ON_RAY], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_attacks_that_cannot_be_run_are_refused(quadratic: Any) -> None:
    given, clones = (quadratic.held, 1), ON_FLOWER["clones"][1]
    mods = engines.attacked(Mods(), lost, quadratic.model.layout)
    with pytest.raises(errors.InvalidParameter, match="attack must be left out"):
        mods.ordered(simulated=False)
    with pytest.raises(errors.InvalidParameter, match="left out where mods have an attack"):
        engines.run(
            "fedavg",
            quadratic.model,
            *given,
            RunOptions(intercept=lost),
            transport=Transport(mods=mods),
        )
    with pytest.raises(errors.InvalidParameter, match="intercept must be without clones"):
        simulation.run("fedavg", type(quadratic.model), *given, RunOptions(intercept=clones))


def test_a_forged_reply_states_what_the_honest_one_did() -> None:
    silo = reply(1.0)._replace(stated=(2.0, 1e-5))
    assert only(threats.sign_flip()).intercept(1, 1, silo).stated == (2.0, 1e-5)


@pytest.mark.parametrize("engine", ["deploy", "", "Local"])
def test_only_simulations_are_attacked(engine: str) -> None:
    with pytest.raises(errors.InvalidParameter, match="clients of a deployment are real"):
        threats.Attackers(BACKDOOR, [0], engine=engine)
    for name in threats.SIMULATIONS:
        threats.Attackers(BACKDOOR, [0], engine=name)


def test_refusals() -> None:
    for wrong in (-1.0, 0.0, float("nan")):
        for make in (threats.sign_flip, threats.noise):
            with pytest.raises(errors.InvalidParameter):
                make(wrong)
        with pytest.raises(errors.InvalidParameter):
            threats.replacement(BACKDOOR, wrong)
        with pytest.raises(errors.InvalidParameter, match="share must be"):
            threats.backdoor(TRIGGER, 0, share=wrong)
    for pixels in ((), (6,), (-1,)):
        with pytest.raises(errors.InvalidParameter, match="from 0 to 5"):
            threats.Trigger(pixels).stamp(ROWS.rows)
    with pytest.raises(errors.InvalidParameter, match="at least one client"):
        threats.Attackers(BACKDOOR, [], engine="local")
    with pytest.raises(errors.InvalidParameter, match="clients from 0 to 0"):
        only(BACKDOOR).poisoned([ROWS])
