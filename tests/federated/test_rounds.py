"""The plain loop: the same for the same seed, and never stopped by a client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.federated import payload, rounds
from tacit.federated.algorithms.registry import ALGORITHMS, algorithm
from tacit.federated.coordinator import PlainMean
from tacit.federated.rounds import Reply, RunOptions
from tacit.privacy import errors


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_seed_fixes_every_array(name: str, quadratic: Any) -> None:
    given = {"config": algorithm(name).config(**({} if name == "fedsgd" else {"batch_size": 2}))}
    runs = [
        rounds.run(
            name,
            quadratic.model,
            quadratic.held,
            3,
            RunOptions(seed=seed, participation=0.6, **given),
        )
        for seed in (4, 4, 5)
    ]
    np.testing.assert_array_equal(runs[0].model, runs[1].model)
    assert not np.array_equal(runs[0].model, runs[2].model)
    assert runs[0].states.keys() == runs[1].states.keys()


def test_streams_belong_to_client_phase_and_round() -> None:
    keys = [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)]
    draws = {rounds.client_rng(0, *key).integers(2**60) for key in keys}
    assert len(draws) == len(keys)
    assert rounds.client_rng(0, 1, 0, 0).integers(2**60) in draws


def test_cohorts() -> None:
    assert rounds.cohort(0, 1, 7) == list(range(7))
    assert len(rounds.cohort(0, 1, 7, 0.01)) == 1
    drawn = [rounds.cohort(0, number, 10, 0.3) for number in range(1, 201)]
    assert {len(one) for one in drawn} == {3}
    counts = np.bincount(np.concatenate(drawn), minlength=10)
    assert counts.min() > 30  # 60 each on average, with a standard deviation of 6.5
    assert counts.max() < 90


def test_a_round_goes_on_without_those_who_are_missing(quadratic: Any) -> None:
    held = quadratic.held

    def drop(number: int, client: int, reply: Reply) -> Reply | None:
        return None if client in (1, 3) else reply

    found = rounds.run("fedsgd", quadratic.model, held, 5, RunOptions(intercept=drop))
    rest = [held[k] for k in (0, 2, 4)]
    np.testing.assert_array_equal(found.model, rounds.run("fedsgd", quadratic.model, rest, 5).model)
    assert [(one.asked, one.counted, one.skipped) for one in found.history] == [(5, 3, False)] * 5


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_round_without_any_reply_keeps_the_model_and_says_so(name: str, quadratic: Any) -> None:
    def drop(number: int, client: int, reply: Reply) -> Reply | None:
        return None if number == 2 else reply

    ends = [
        rounds.run(
            name,
            quadratic.model,
            quadratic.held,
            n,
            RunOptions(intercept=drop, test=quadratic.held[0]),
        )
        for n in (1, 2, 3)
    ]
    np.testing.assert_array_equal(ends[0].model, ends[1].model)
    assert not np.array_equal(ends[1].model, ends[2].model)
    assert [one.skipped for one in ends[2].history] == [False, True, False]
    assert ends[2].history[1].counted == 0
    assert ends[2].history[1].loss == ends[2].history[0].loss


def test_fsvrg_asks_again_only_those_who_answered(quadratic: Any) -> None:
    calls: list[int] = []

    def drop(number: int, client: int, reply: Reply) -> Reply | None:
        calls.append(client)
        return None if client == 0 else reply

    found = rounds.run("fsvrg", quadratic.model, quadratic.held, 1, RunOptions(intercept=drop))
    assert calls == [0, 1, 2, 3, 4, 1, 2, 3, 4]
    assert found.history[0].bytes_up == 9 * 6 * 4
    assert found.history[0].bytes_down == (5 + 4 * 2) * 6 * 4


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_hostile_replies_count_for_nothing(name: str, poison: float, quadratic: Any) -> None:
    def attack(number: int, client: int, reply: Reply) -> Reply | None:
        if client != 2:
            return reply
        floats = {
            k: np.full_like(v, poison) for k, v in reply.record.items() if v.dtype != np.uint8
        }
        return Reply({**reply.record, **floats}, reply.weight)

    def drop(number: int, client: int, reply: Reply) -> Reply | None:
        return None if client == 2 else reply

    attacked = rounds.run(name, quadratic.model, quadratic.held, 3, RunOptions(intercept=attack))
    without = rounds.run(name, quadratic.model, quadratic.held, 3, RunOptions(intercept=drop))
    np.testing.assert_array_equal(attacked.model, without.model)
    assert all(dict(one.rejected).keys() == {2} for one in attacked.history)


def test_a_state_counts_once_its_reply_was_taken(quadratic: Any) -> None:
    lost = rounds.run(
        "feddyn",
        quadratic.model,
        quadratic.held,
        2,
        RunOptions(intercept=lambda number, client, reply: None if client == 0 else reply),
    )
    assert set(lost.states) == {1, 2, 3, 4}


def test_a_callback_hears_every_round_and_may_end_the_run(quadratic: Any) -> None:
    heard: list[int] = []

    def callback(one: rounds.Round) -> bool:
        heard.append(one.number)
        return one.number == 3

    found = rounds.run("fedavg", quadratic.model, quadratic.held, 9, RunOptions(callback=callback))
    assert heard == [1, 2, 3] == [one.number for one in found.history]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"participation": 0}, r"participation must be in \(0, 1\]"),
        ({"participation": float("nan")}, "participation must be"),
        ({"rounds": 0}, "rounds must be an integer"),
        ({"seed": -1}, "seed must be an integer"),
        ({"clients": []}, "clients must be at least one"),
    ],
)
def test_impossible_runs_are_refused(given: dict[str, Any], message: str, quadratic: Any) -> None:
    clients, number = given.pop("clients", quadratic.held), given.pop("rounds", 1)
    with pytest.raises(errors.InvalidParameter, match=f"^run: {message}"):
        rounds.run("fedavg", quadratic.model, clients, number, RunOptions(**given))


def test_a_server_is_the_loop_without_its_clients(quadratic: Any) -> None:
    chosen = algorithm("fsvrg")
    config, held, model = chosen.config(), quadratic.held, quadratic.model
    sizes = [len(one) for one in held]
    server = rounds.Server(chosen, config, model, sizes, PlainMean(seed=3, participation=0.6))
    for number in (1, 2):
        up, asked = 0, server.open(number)
        for index, phase in enumerate(chosen.phases):
            sent, there = server.phase(index)
            assert set(sent) == set(phase.receives)
            assert there == asked
            replies = {
                k: rounds.answer(
                    phase, config, model, sent, {}, held[k], rounds.client_rng(3, number, index, k)
                )[0]
                for k in there
            }
            up += sum(payload.nbytes(reply.record) for reply in replies.values())
            closed = server.close_phase(index, replies)
            assert closed == rounds.Closed(asked, {}, False)
        last = server.close(up, server.judge(held[0]))
    whole = rounds.run("fsvrg", model, held, 2, RunOptions(participation=0.6, seed=3, test=held[0]))
    np.testing.assert_array_equal(server.state.model, whole.model)
    assert last == whole.history[-1]


def test_a_server_takes_no_reply_of_those_it_did_not_ask(quadratic: Any) -> None:
    chosen, model = algorithm("fedsgd"), quadratic.model
    sizes = [len(one) for one in quadratic.held]
    server = rounds.Server(chosen, chosen.config(), model, sizes, PlainMean(0, participation=0.2))
    (asked,) = server.open(1)
    arrays = {f"gradient/{name}": np.ones(shape, np.float32) for name, shape in model.layout.shapes}
    before = server.state.model
    closed = server.close_phase(0, {(asked + 1) % 5: Reply(arrays, 1.0)})
    assert closed == rounds.Closed([], {}, True)
    np.testing.assert_array_equal(server.state.model, before)
    assert server.close(0).skipped


class Frugal(PlainMean):
    """Three rounds and no more."""

    def choose(self, number: int, clients: int) -> list[int]:
        if number > 3:
            raise errors.BudgetExceeded("no more")
        return super().choose(number, clients)


def test_a_run_that_is_refused_a_round_keeps_what_it_has(quadratic: Any) -> None:
    found = rounds.run(
        "fedsgd", quadratic.model, quadratic.held, 9, RunOptions(coordinator=Frugal())
    )
    three = rounds.run("fedsgd", quadratic.model, quadratic.held, 3)
    np.testing.assert_array_equal(found.model, three.model)
    assert (len(found.history), found.stopped, three.stopped) == (3, "no more", "")
