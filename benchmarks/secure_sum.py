"""The cost of a secure sum: seconds of a client and of the server, and bytes over plain ones.

    python benchmarks/secure_sum.py [--size 1000000] [--neighbours 100] [--clients 1000]
        [--lost 0.1] [--workers 2]

One client with all its messages to its neighbours: keys, shares, masked vector, signature,
unmasking. The encoding of its update and its noise are measured apart. And all steps of the server,
where a tenth of the clients is lost after they shared their keys: signatures are verified,
masked vectors added, secrets restored, and the masks of every survivor and of every pair with a
lost client taken away, for the degree of the graph at 5 % corrupt clients. The clients of the
server's sum are played: the benchmark draws their secrets and writes their messages, with vectors
that were never masked, so that the sum is that of the vectors less all masks; it is checked. Bytes
are what one client sends, over two bytes a number. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from tacit.federated.client_level.grid import Grid
from tacit.federated.secure import Client, Roster, Server, Session, Setup, messages, residues
from tacit.federated.secure import client as protocol
from tacit.federated.secure.messages import OWN, PAIR, Keys
from tacit.federated.secure.primitives import agree, new_identity, new_seed, public_key, sign
from tacit.federated.secure.shamir import new_secret, share
from tacit.privacy.randomness import discrete_gaussian, source

BITS = 20


def parties(count: int, size: int, least: int, **told: Any) -> tuple[Session, list[Any]]:
    identities = [new_identity() for _ in range(count)]
    roster = Roster(tuple(key.public_key() for key in identities))
    setup = Setup(count, size=size, bits=BITS, corrupt=max(count // 20, 1), least=least, **told)
    return Session(setup, roster, "benchmark", 1, b""), identities


def client_seconds(size: int, neighbours: int) -> dict[str, float]:
    """Time one client among its neighbours; all others are played, and their vectors are zeros."""
    count = neighbours + 1
    session, identities = parties(count, size, least=count // 2)
    clients = {k: Client(session, k, key) for k, key in enumerate(identities)}
    measured, spent = clients[0], 0.0
    server, up, down = Server(session), 0, 0
    vector = np.random.default_rng(0).integers(-1000, 1000, size)

    def timed(step: Any, *sent: Any) -> bytes:
        nonlocal spent, up, down
        start = time.perf_counter()
        reply = step(*sent)
        spent += time.perf_counter() - start
        up += len(reply)
        down += sum(len(part) for part in sent if isinstance(part, bytes))
        return bytes(reply)

    keys = {0: timed(measured.keys)} | {k: clients[k].keys() for k in range(1, count)}
    told = server.advertise(keys)
    shares = {0: timed(measured.shares, told[0])}
    shares |= {k: clients[k].shares(told[k]) for k in range(1, count)}
    boxes = server.deliver(shares)
    masked = timed(measured.masked, boxes[0], vector)
    # What the others would send is not needed: the sum is of one vector's messages.
    server.take(0, masked)
    server._arrived = set(range(count))
    listed = server.survivors()
    for k in range(1, count):
        clients[k]._secrets.shares |= dict.fromkeys(range(count), (bytes(32), bytes(32)))
        clients[k].stage = protocol.Stage.CONSISTENT
    signed = {0: timed(measured.consistent, listed[0])}
    signed |= {k: clients[k].consistent(listed[k]) for k in range(1, count)}
    timed(measured.unmask, server.signatures(signed)[0])
    return {"client_s": spent, "bytes_up": up, "bytes_down": down}


def noise_seconds(size: int) -> dict[str, float]:
    """Time the encoding of an update, and its share of the noise."""
    grid, rng = Grid.of(size, 64), source(None)
    signs, update = grid.rotation.signs(b"r"), np.random.default_rng(0).normal(size=size)
    start = time.perf_counter()
    grid.encode(update, 1.0, signs, rng)
    encoded = time.perf_counter()
    discrete_gaussian(Fraction(273**2), grid.rotation.padded, rng)
    return {"encode_s": encoded - start, "noise_s": time.perf_counter() - encoded}


class Timed:
    """A clock that runs during the server's steps alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, step: Any, *sent: Any, **options: Any) -> Any:
        start = time.perf_counter()
        reply = step(*sent, **options)
        name = f"{step.__name__}_s"
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return reply


def keys_of(session: Session, identities: list[Any], secrets: dict[int, Any]) -> dict[int, bytes]:
    """The signed keys of all clients, whose secrets the benchmark drew."""
    made, context = {}, session.context
    for k, (own, pair) in secrets.items():
        public = public_key(protocol.masking_key(pair, context, k))
        sealing = public_key(new_seed())
        keys = Keys(k, sealing, public, protocol.commitment(own, context, k), b"")
        made[k] = replace(keys, signature=sign(identities[k], keys.signed(context))).encode(context)
    return made


def shares_of(server: Server, secrets: dict[int, Any], gone: set[int]) -> dict[int, bytes]:
    """What the survivors give in the last step."""
    session = server.session
    given: dict[int, dict[int, tuple[int, bytes]]] = {k: {} for k in secrets if k not in gone}
    for owner, (own, pair) in secrets.items():
        which, secret = (PAIR, pair) if owner in gone else (OWN, own)
        holders = [k for k in (*server._near[owner], owner) if k not in gone]
        for holder, one in share(secret, holders, session.setup.threshold).items():
            given[holder][owner] = which, one
    return {k: messages.unmask(session.context, k, shares) for k, shares in given.items()}


def server_seconds(size: int, clients: int, share_lost: float, workers: int) -> dict[str, Any]:
    """Time all steps of the server in one sum."""
    gone = set(range(round(clients * share_lost)))
    session, identities = parties(clients, size, least=clients - len(gone), lost=len(gone))
    context, setup, timed = session.context, session.setup, Timed()
    secrets = {k: (new_secret(), new_secret()) for k in range(clients)}
    there = [k for k in range(clients) if k not in gone]
    server = Server(session)
    timed(server.advertise, keys_of(session, identities, secrets))
    boxes = {k: messages.shares(context, k, dict.fromkeys(v, bytes(messages.SEALED)))
             for k, v in server._near.items()}  # fmt: skip
    timed(server.deliver, boxes)
    # Seven vectors without masks stand for all: what is left in the sum is then minus all masks.
    vectors = [np.full(size, k, dtype=np.int64) for k in range(7)]
    packed = [residues.pack(residues.residues(one, BITS), BITS) for one in vectors]
    for k in there:
        timed(server.take, k, messages.masked(context, k, packed[k % 7]))
    timed(server.survivors)
    listed = protocol.listed_by(context, there)
    signed = {k: messages.consistent(context, k, sign(identities[k], listed)) for k in there}
    timed(server.signatures, signed)
    found = timed(server.total, shares_of(server, secrets, gone), workers=workers)
    _check(server, found, secrets, there)
    return {
        "server_s": sum(timed.seconds.values()),
        **timed.seconds,
        "degree": setup.degree,
        "threshold": setup.threshold,
        "masks_of_survivors": len(there),
        "masks_of_pairs": sum(v not in gone for k in gone for v in server._near[k]),
    }


def _check(server: Server, found: Any, secrets: dict[int, Any], there: list[int]) -> None:
    """The sum is that of the vectors less the masks that nobody had added, in its first numbers."""
    context, first = server.session.context, 1_000
    expected = np.full(first, sum(k % 7 for k in there)).astype(residues.kind(BITS))
    for k in there:
        own = protocol.own_key(secrets[k][0], context, k)
        expected = expected - residues.mask(own, first, BITS)
    for k in secrets.keys() - set(there):
        private = protocol.masking_key(secrets[k][1], context, k)
        for other in set(server._near[k]) & set(there):
            shared = agree(private, server._keys[other].masking)
            mask = residues.mask(protocol.pair_key(shared, context, k, other), first, BITS)
            expected = expected + mask if k < other else expected - mask
    assert np.array_equal(residues.centred(expected, BITS), found[:first])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10**6)
    parser.add_argument("--neighbours", type=int, default=100)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--lost", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=2)
    told = parser.parse_args()
    one = client_seconds(told.size, told.neighbours)
    plain = 2 * told.size
    measured: dict[str, Any] = {
        "client_s": one["client_s"],
        **noise_seconds(told.size),
        **server_seconds(told.size, told.clients, told.lost, told.workers),
        "bytes_over_plain": one["bytes_up"] / plain,
        "bytes_up": one["bytes_up"],
        "bytes_down_without_model": one["bytes_down"],
        "bits": BITS,
    }
    measured = {k: round(v, 3) if isinstance(v, float) else v for k, v in measured.items()}
    print(json.dumps({**measured, **vars(told)}))


if __name__ == "__main__":
    main()
