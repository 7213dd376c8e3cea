"""Sums are those without masks, whoever is lost at which step; refusals; the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from tacit.federated.secure import (
    Participant,
    Refused,
    Roster,
    Server,
    Session,
    Setup,
    Stage,
    Terms,
    graph,
    messages,
    secure_sum,
)
from tacit.federated.secure.primitives import new_identity
from tacit.federated.secure.session import subject
from tacit.privacy import errors

Make = Callable[..., Any]
STAGES = [Stage.KEYS, Stage.SHARES, Stage.MASKED, Stage.CONSISTENT, Stage.UNMASK]


def _same_sum(parties: Make, seed: int, share: float, stage: Stage | None) -> None:
    """Some are lost at one stage, or (None) each at a random one; the sum is that of the others."""
    drawn = np.random.default_rng(seed)
    held = parties(20, seed=seed, bits=int(drawn.choice([8, 16, 20, 32])), least=3)
    gone = drawn.choice(20, round(20 * share), replace=False)
    lost = {int(k): STAGES[drawn.integers(5)] if stage is None else stage for k in gone}
    found = held.sum(lost)
    there = [k for k in held.vectors if lost.get(k, Stage.OVER) > Stage.MASKED]
    assert found.survivors == tuple(there)
    assert np.array_equal(found.total, held.plain(there))


@pytest.mark.parametrize("share", [0, 0.1, 0.3])
@pytest.mark.parametrize("stage", [*STAGES, None])
def test_the_sum_is_that_without_masks(parties: Make, share: float, stage: Stage | None) -> None:
    for seed in range(2):
        _same_sum(parties, seed, share, stage)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 0.1, 0.3])
@pytest.mark.parametrize("stage", [*STAGES, None])
def test_a_hundred_sums_are_those_without_masks(
    parties: Make, share: float, stage: Stage | None
) -> None:
    for seed in range(100):
        _same_sum(parties, seed, share, stage)


def test_a_sum_over_a_graph_is_that_without_masks(parties: Make) -> None:
    held = parties(140, corrupt=2, least=90, lost=20)
    assert held.session.setup.degree < 139
    drawn = np.random.default_rng(5)
    gone = drawn.choice(140, 14, replace=False)
    lost = {int(k): STAGES[place % 5] for place, k in enumerate(gone)}
    found = held.sum(lost)
    assert np.array_equal(found.total, held.plain(found.survivors))
    assert found.bytes_up > 0


@pytest.mark.parametrize("stage", STAGES)
def test_three_hospitals_need_all_three(parties: Make, stage: Stage) -> None:
    held = parties(3, least=3)
    assert held.session.setup.threshold == 3
    with pytest.raises(Refused):
        held.sum({1: stage})
    assert np.array_equal((again := parties(3, least=3)).sum().total, again.plain(range(3)))


def test_too_few_survivors_are_not_summed(parties: Make) -> None:
    held = parties(10, least=8)
    with pytest.raises(Refused, match="8 clients or more must remain, got 7"):
        held.sum(dict.fromkeys(range(3), Stage.MASKED))
    held = parties(10, least=8)
    with pytest.raises(Refused, match="6 holders must give their shares of each client, got 5"):
        held.sum(dict.fromkeys(range(5), Stage.UNMASK))


@pytest.mark.parametrize("tamper", ["share", "other"])
def test_wrong_shares_give_no_sum(parties: Make, tamper: str) -> None:
    held = parties(5)
    number = 0

    class Liar(type(held.clients[0])):  # type: ignore[misc]
        def unmask(self, signatures: object) -> bytes:
            message = super().unmask(signatures)
            given = messages.read_unmask(message, self.session.context, 5)
            if tamper == "other":
                given = {k: (1 - which, share) for k, (which, share) in given.items()}
                return messages.unmask(self.session.context, self.number, given)
            wrong = {k: (which, bytes(32)) for k, (which, _) in given.items()}
            return messages.unmask(self.session.context, self.number, wrong)

    held.clients[number].__class__ = Liar
    if tamper == "share":
        with pytest.raises(Refused, match="what their owner committed to"):
            held.sum()
    else:  # shares of what nobody asked for count for nothing
        found = held.sum()
        assert np.array_equal(found.total, held.plain(range(5)))


def test_shares_that_do_not_open_stop_nobody_else(parties: Make) -> None:
    held = parties(7)

    class Spoiler(type(held.clients[0])):  # type: ignore[misc]
        def shares(self, advertised: object) -> bytes:
            message = super().shares(advertised)
            return message[:-80] + bytes(80)

    held.clients[0].__class__ = Spoiler
    assert np.array_equal(held.sum().total, held.plain(range(7)))


def test_keys_are_erased_and_steps_come_once(parties: Make) -> None:
    held = parties(5)
    held.sum()
    for client in held.clients.values():
        assert client.stage is Stage.OVER
        secrets = client._secrets
        assert not secrets.shares
        assert not secrets.agreed
        assert not any(map(len, (secrets.sealing, secrets.masking, secrets.own)))
        for step in (client.keys, lambda c=client: c.unmask(b""), lambda c=client: c.shares(b"")):
            with pytest.raises(Refused, match="the step must be OVER"):
                step()


def test_steps_out_of_order_end_the_session(parties: Make) -> None:
    held = parties(5)
    client = held.clients[0]
    with pytest.raises(Refused, match="the step must be KEYS, got UNMASK"):
        client.unmask(b"")
    assert client.stage is Stage.OVER
    with pytest.raises(Refused):
        client.keys()


@pytest.mark.parametrize(
    ("clients", "told", "name"),
    [
        (10, {"threshold": 5}, "threshold"),
        (10, {"threshold": 5, "corrupt": 0}, "threshold"),
        (10, {"threshold": 6, "corrupt": 2}, "threshold"),
        (10, {"threshold": 11}, "threshold"),
        (10, {"least": 2}, "least"),
        (10, {"least": 11}, "least"),
        (10, {"corrupt": 9}, "corrupt"),
        (10, {"corrupt": -1}, "corrupt"),
        (10, {"bits": 21}, "bits"),
        (10, {"bits": 64}, "bits"),
        (10, {"lost": 9}, "lost"),
        (1, {}, "clients"),
        (200, {"corrupt": 90, "lost": 60, "least": 100}, "corrupt and lost"),
        (200, {"threshold": 10, "lost": 10, "least": 100}, "threshold"),
    ],
)
def test_setups_that_protect_nobody_are_refused(
    clients: int, told: dict[str, int], name: str
) -> None:
    with pytest.raises(errors.InvalidParameter, match=name):
        Setup(clients, **{"size": 4, "bits": 20, "corrupt": 1, "least": 4, **told})


@pytest.mark.parametrize("corrupt", range(5))
@pytest.mark.parametrize("clients", range(6, 12))
def test_the_smallest_threshold_is_the_smallest_allowed(clients: int, corrupt: int) -> None:
    told = {"size": 1, "bits": 4, "corrupt": corrupt, "least": corrupt + 2}
    chosen = Setup(clients, **told).threshold
    assert 2 * chosen > clients + corrupt
    with pytest.raises(errors.InvalidParameter, match="threshold"):
        Setup(clients, **told, threshold=chosen - 1)


def test_rosters_name_everyone_once() -> None:
    key = new_identity().public_key()
    with pytest.raises(errors.InvalidParameter, match="different keys"):
        Roster((key, key))
    roster = Roster((key, new_identity().public_key()))
    with pytest.raises(errors.InvalidParameter, match="roster must be of 3 clients"):
        Session(Setup(3, size=1, bits=4, corrupt=0, least=2), roster, "r", 1, b"")


def test_a_client_has_its_own_key(parties: Make) -> None:
    held = parties(5)
    client = type(held.clients[0])
    with pytest.raises(errors.InvalidParameter, match="identity"):
        client(held.session, 0, new_identity())


def test_contexts_differ_in_all_that_is_agreed_on(parties: Make) -> None:
    told = [
        {},
        {"number": 2},
        {"about": b"another model"},
        {"bits": 16},
        {"size": 23},
        {"least": 4},
        {"corrupt": 2, "least": 4},
        {"threshold": 5},
    ]
    contexts = {parties(5, **one).session.context for one in told}
    assert len(contexts) == len(told)
    assert subject("a", b"b", [1, 2]) != subject("a", b"b", [12])


def test_terms_and_replays() -> None:
    keys = [new_identity() for _ in range(4)]
    roster = Roster(tuple(key.public_key() for key in keys))
    setup = Setup(4, size=1, bits=4, corrupt=1, least=3)
    for terms in (Terms(corrupt=2), Terms(corrupt=1, honest=3)):
        with pytest.raises(Refused, match="a setup must"):
            Participant(setup, roster, "r", 0, keys[0], terms)
    one = Participant(setup, roster, "r", 0, keys[0])
    one.begin(1, b"x")
    one.begin(3, b"x")
    for number in (3, 2, 1):
        with pytest.raises(Refused, match="must come after round 3"):
            one.begin(number, b"x")
    with pytest.raises(Refused):
        Participant(setup, roster, "r", 0, keys[0], seen=7).begin(7, b"x")


def test_the_server_counts_what_is_malformed_as_lost(parties: Make) -> None:
    held = parties(8)
    server = Server(held.session)
    keys = {k: one.keys() for k, one in held.clients.items()}
    keys[1], keys[2], keys[3] = b"", keys[0], keys[3][:-1] + bytes([keys[3][-1] ^ 1])
    advertised = server.advertise(keys)
    assert set(advertised) == {0, 4, 5, 6, 7}
    assert set(server.lost) == {1, 3}


# --- the graph -----------------------------------------------------------------------------------


def test_tails_are_hypergeometric() -> None:
    for total, marked, drawn in ((20, 7, 9), (999, 50, 96), (10, 10, 3), (10, 0, 3)):
        for above in range(-1, drawn + 1):
            exact = graph._tail(total, marked, drawn, above)
            assert isinstance(exact, Fraction)
            assert float(exact) == pytest.approx(
                hypergeom.sf(above, total, marked, drawn), rel=1e-9, abs=1e-300
            )


@pytest.mark.parametrize(("clients", "corrupt", "lost"), [(200, 10, 20), (1000, 50, 100)])
def test_degrees_hold_what_they_say(clients: int, corrupt: int, lost: int) -> None:
    chosen = graph.degree_for(clients, corrupt, lost)
    degree, threshold = chosen.degree, chosen.threshold
    assert 2 * threshold > degree + 1 + chosen.corrupt
    few = clients * hypergeom.sf(degree - threshold, clients - 1, lost, degree)
    near = clients * hypergeom.sf(chosen.corrupt, clients - lost - 1, corrupt, degree)
    row = clients * math.comb(corrupt + lost, degree // 2) / math.comb(clients, degree // 2)
    assert few <= 2.0**-30
    assert near + row <= 2.0**-40


def test_graphs_are_regular_symmetric_and_follow_the_seed() -> None:
    members = list(range(0, 300, 2))
    found = graph.neighbours(b"seed", members, 8)
    assert set(found) == set(members)
    for one, near in found.items():
        assert len(set(near)) == 8
        assert one not in near
        assert all(one in found[other] for other in near)
    assert found == graph.neighbours(b"seed", members, 8)
    assert {4: found[4]} == graph.neighbours(b"seed", members, 8, [4])
    assert found != graph.neighbours(b"tree", members, 8)
    assert graph.neighbours(b"", [3, 5, 9], 2) == {3: (5, 9), 5: (3, 9), 9: (3, 5)}


def test_every_pair_is_joined_equally_often() -> None:
    counts = np.zeros((12, 12))
    rounds = 3_000
    for seed in range(rounds):
        for one, near in graph.neighbours(str(seed).encode(), range(12), 4).items():
            counts[one, list(near)] += 1
    joined = counts[~np.eye(12, dtype=bool)]
    mean, spread = rounds * 4 / 11, math.sqrt(rounds * 4 / 11 * 7 / 11)
    assert np.abs(joined - mean).max() < 6 * spread


def test_nobody_is_named_who_is_lost(parties: Make) -> None:
    """`secure_sum` reports refusals of clients as losses, not as errors."""
    held = parties(6)
    held.vectors[2] = held.vectors[2][:-1]
    found = secure_sum(Server(held.session), held.clients, held.vectors)
    assert found.survivors == (0, 1, 3, 4, 5)
