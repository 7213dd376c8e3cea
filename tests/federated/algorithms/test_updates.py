"""What the algorithms converge to, where the answer is known in closed form."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.federated import personal, rounds
from tacit.federated.algorithms import client_updates as local
from tacit.federated.algorithms import server_updates as aggregation
from tacit.federated.algorithms.client_updates import Global, State
from tacit.federated.algorithms.registry import ALGORITHMS, algorithm
from tacit.federated.algorithms.server_updates import Averaged, ServerState
from tacit.federated.config import Config, Pruning
from tacit.federated.model import Data, Model
from tacit.federated.payload import Payload
from tacit.federated.rounds import RunOptions
from tacit.privacy import errors


@pytest.mark.parametrize("weighted", [True, False])
def test_fedsgd_is_centralised_gradient_descent(weighted: bool, quadratic: Any) -> None:
    config = algorithm("fedsgd").config(learning_rate=0.3, weighted=weighted)
    central, sizes = (
        quadratic.model.start(),
        [len(one) if weighted else 1 for one in quadratic.held],
    )
    for number in (1, 2, 3):
        slopes = [quadratic.model.gradient(central, one.rows, one.labels) for one in quadratic.held]
        central = central - 0.3 * np.average(slopes, axis=0, weights=sizes)
        found = rounds.run(
            "fedsgd", quadratic.model, quadratic.held, number, RunOptions(config=config)
        ).model
        assert np.abs(found - central).max() < 1e-6
    assert np.abs(central - quadratic.model.start()).max() > 0.1


def test_fedsgd_on_all_rows_in_one_place(quadratic: Any) -> None:
    pooled = [Data(np.concatenate([one.rows for one in quadratic.held]), np.zeros(50, dtype=int))]
    split = rounds.run("fedsgd", quadratic.model, quadratic.held, 20).model
    assert np.abs(split - rounds.run("fedsgd", quadratic.model, pooled, 20).model).max() < 1e-6


def test_fedavg_with_one_full_batch_step_is_fedsgd(quadratic: Any) -> None:
    once = algorithm("fedavg").config(learning_rate=0.5, epochs=1, batch_size=None)
    averaged = rounds.run(
        "fedavg", quadratic.model, quadratic.held, 10, RunOptions(config=once)
    ).model
    assert (
        np.abs(averaged - rounds.run("fedsgd", quadratic.model, quadratic.held, 10).model).max()
        < 1e-6
    )


@pytest.mark.parametrize("weighted", [True, False])
def test_feddyn_and_fsvrg_reach_the_optimum_and_fedavg_does_not(
    weighted: bool, quadratic: Any
) -> None:
    local_steps = {"learning_rate": 0.4, "epochs": 5, "batch_size": None, "weighted": weighted}
    settings = {
        "fedavg": local_steps,
        "fedprox": local_steps,
        "feddyn": {**local_steps, "alpha": 0.5, "learning_rate": 0.4, "epochs": 15},
        "fsvrg": {"step_size": 1.0, "weighted": weighted, "batch_size": 1},
    }
    ends = {}
    for name, chosen in settings.items():
        config = algorithm(name).config(**chosen)
        ends[name] = quadratic.distance(
            rounds.run(name, quadratic.model, quadratic.held, 60, RunOptions(config=config)).model,
            weighted=weighted,
        )
    assert ends["feddyn"] < 1e-5
    assert ends["fsvrg"] < 1e-5
    assert ends["fedavg"] > 0.02  # and not because it had too little time:
    longer = rounds.run(
        "fedavg",
        quadratic.model,
        quadratic.held,
        120,
        RunOptions(config=algorithm("fedavg").config(**local_steps)),
    )
    assert quadratic.distance(longer.model, weighted=weighted) == pytest.approx(
        ends["fedavg"], abs=1e-5
    )


def test_feddyn_reaches_the_optimum_when_a_third_drops_out(quadratic: Any) -> None:
    config = algorithm("feddyn").config(learning_rate=0.4, epochs=15, batch_size=None, alpha=0.5)
    lost = np.random.default_rng(1).random((121, len(quadratic.held))) < 0.3

    def drop(number: int, client: int, reply: rounds.Reply) -> rounds.Reply | None:
        return None if lost[number, client] else reply

    found = rounds.run(
        "feddyn", quadratic.model, quadratic.held, 120, RunOptions(config=config, intercept=drop)
    )
    assert quadratic.distance(found.model, weighted=True) < 1e-4


def test_a_feddyn_client_that_remembers_lost_replies_is_biased(quadratic: Any) -> None:
    # The mutant of the rule above: clients keep states that the server never heard of.
    kept: dict[int, State] = {}
    owner = {id(one): k for k, one in enumerate(quadratic.held)}

    def forgetful_server(
        config: Config,
        model: Model,
        received: Global,
        state: State,
        data: Data,
        rng: np.random.Generator,
    ) -> tuple[Payload, State]:
        who = owner[id(data)]
        found, kept[who] = local.dynamic(config, model, received, kept.get(who, {}), data, rng)
        return found, {}

    feddyn = algorithm("feddyn")
    mutant = replace(feddyn, phases=(replace(feddyn.phases[0], client=forgetful_server),))
    config = feddyn.config(learning_rate=0.4, epochs=15, batch_size=None, alpha=0.5)
    for lossy, bound in [(False, 1e-5), (True, math.inf)]:
        kept.clear()

        def drop(n: int, k: int, r: rounds.Reply, lossy: bool = lossy) -> rounds.Reply | None:
            return None if lossy and n in (1, 2) and k == 0 else r

        found = rounds.run(
            mutant, quadratic.model, quadratic.held, 60, RunOptions(config=config, intercept=drop)
        )
        assert quadratic.distance(found.model, weighted=True) < bound
    assert quadratic.distance(found.model, weighted=True) > 1e-3


def test_fedprox_without_pull_is_fedavg_and_with_pull_stays_nearer(quadratic: Any) -> None:
    free = rounds.run("fedavg", quadratic.model, quadratic.held, 1)
    same = rounds.run(
        "fedprox",
        quadratic.model,
        quadratic.held,
        1,
        RunOptions(config=algorithm("fedprox").config(proximal=0)),
    )
    held = rounds.run(
        "fedprox",
        quadratic.model,
        quadratic.held,
        1,
        RunOptions(config=algorithm("fedprox").config(proximal=5)),
    )
    np.testing.assert_array_equal(free.model, same.model)
    start = quadratic.model.start()
    assert np.linalg.norm(held.model - start) < 0.8 * np.linalg.norm(free.model - start)


def test_subfedavg_with_full_masks_is_fedavg(quadratic: Any) -> None:
    config = algorithm("subfedavg").config(pruning=Pruning(target=0))
    full = rounds.run("subfedavg", quadratic.model, quadratic.held, 8, RunOptions(config=config))
    assert (
        np.abs(full.model - rounds.run("fedavg", quadratic.model, quadratic.held, 8).model).max()
        < 1e-6
    )
    assert all(state["mask"].all() for state in full.states.values())


@pytest.mark.parametrize("epochs", [1, 2])
def test_subfedavg_prunes_and_is_not_fedavg(epochs: int, digits: Any) -> None:
    """With one epoch too: its two masks were the same, so it was FedAvg under another name."""
    model, held, test = digits(0)
    shared = {"epochs": epochs, "learning_rate": 0.1}
    pruned, plain = (
        rounds.run(
            name, model, held, 6, RunOptions(config=algorithm(name).config(**shared), test=test)
        )
        for name in ("subfedavg", "fedavg")
    )
    shares = [float(np.mean(state["mask"] == 0)) for state in pruned.states.values()]
    assert min(shares) > 0.1
    assert max(shares) <= 0.5
    assert [one.bytes_up for one in pruned.history] != [one.bytes_up for one in plain.history]
    assert not np.allclose(pruned.model, plain.model, atol=1e-3)
    assert personal.accuracy(algorithm("subfedavg"), model, pruned, held) > 0.9


def test_intersection_by_hand() -> None:
    state = ServerState(np.array([10, 10, 10], dtype=np.float32), 4.0)
    one = Payload({"update": np.array([1.0, 2, 0]), "mask": np.array([1.0, 1, 0])}, 1.0)
    two = Payload({"update": np.array([5.0, 0, 0]), "mask": np.array([1.0, 0, 0])}, 3.0)
    sent, after = aggregation.intersect(Config(), state, aggregation.average([one, two]))
    np.testing.assert_allclose(sent["model"], [14, 12, 10])
    np.testing.assert_array_equal(after.model, sent["model"])


def test_feddyn_server_by_hand() -> None:
    state = ServerState(np.zeros(1, dtype=np.float32), 4.0)
    averaged = Averaged({"update": np.array([1.0])}, 2.0)
    sent, after = aggregation.dynamic(Config(alpha=0.5), state, averaged)
    assert after.memory["drift"] == pytest.approx(-0.25)  # −α · 2/4 · 1
    assert sent["model"] == pytest.approx(1.5)  # 0 + 1 − h / α


def test_fsvrg_steps_by_hand(quadratic: Any) -> None:
    data = Data(np.array([[[1.0] * 6, [2.0] * 6], [[3.0] * 6, [1.0] * 6]]), np.zeros(2))
    start, full = np.zeros(6), np.full(6, 0.7)
    phase = algorithm("fsvrg").phases[1]
    config = algorithm("fsvrg").config(step_size=0.4, batch_size=1)
    found, _ = phase.client(
        config,
        quadratic.model,
        {"model": start, "gradient": full},
        {},
        data,
        np.random.default_rng(0),
    )
    order = np.random.default_rng(0).permutation(2)
    now = 0.0
    for i in order:  # a (w − b) − a (0 − b) = a w, and h_k = h / 2
        now -= 0.2 * (data.rows[i, 0, 0] * now + 0.7)
    np.testing.assert_allclose(found.parts["update"], now)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_an_algorithm_declares_is_what_it_does(name: str, quadratic: Any) -> None:
    chosen = algorithm(name)
    sent: Global = {"model": quadratic.model.start().astype(np.float32)}
    server = rounds.begin(chosen.config(), quadratic.model, [len(one) for one in quadratic.held])
    for phase in chosen.phases:
        assert set(phase.receives) <= set(sent)
        payload, state = phase.client(
            chosen.config(), quadratic.model, sent, {}, quadratic.held[0], np.random.default_rng(0)
        )
        assert set(payload.parts) == {part.name for part in phase.parts}
        assert set(state) <= set(chosen.state)
        sent, server = phase.server(chosen.config(), server, aggregation.average([payload]))
    assert set(state) == set(chosen.state)
    assert set(sent) == {"model"}
    # Data-dependent masks have no clip unit: nothing can hide them under client-level privacy.
    unbounded = [p.name for phase in chosen.phases for p in phase.parts if p.clip_unit is None]
    assert unbounded == (["mask"] if name == "subfedavg" else [])


def test_settings_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(errors.InvalidParameter, match=r"alpha must be left out.*fedavg reads"):
        algorithm("fedavg").config(alpha=0.1)
    with pytest.raises(errors.InvalidParameter, match=r"name must be one of fedsgd, fedavg"):
        algorithm("fedmagic")
    assert set(algorithm("fedsgd").settings(Config())) == {"weighted", "learning_rate"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", math.nan),
        ("epochs", 0),
        ("momentum", 1),
        ("alpha", 0),
        ("batch_size", 0),
        ("proximal", -1),
        ("gradient_norm", 0),
        ("step_size", -1),
    ],
)
def test_impossible_settings_are_refused_in_one_line(name: str, value: float) -> None:
    with pytest.raises(errors.InvalidParameter, match=f"^Config: {name} must be .*, got") as caught:
        Config(**{name: value})
    assert "\n" not in str(caught.value)
