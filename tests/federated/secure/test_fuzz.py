"""Damaged, swapped and made-up messages: a refusal, never anything else, and no share twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.federated.secure import Refused, Server, Stage, messages
from tacit.federated.secure.messages import Kind

Make = Callable[..., Any]
CLIENTS = 5


def _damaged(message: bytes, others: list[bytes], drawn: np.random.Generator) -> object:
    """Return a message with a few bytes changed, or cut, joined, repeated or replaced."""
    kind = drawn.integers(7)
    changed = bytearray(message)
    if kind <= 2:
        for _ in range(drawn.integers(1, 4)):
            # Headers and counts more often than bodies.
            end = len(changed) if drawn.random() < 0.5 else min(len(changed), 60)
            changed[drawn.integers(end)] = drawn.integers(256)
    elif kind == 3:
        del changed[drawn.integers(len(changed)) :]
    elif kind == 4:
        changed += drawn.bytes(drawn.integers(1, 100))
    elif kind == 5:
        return others[drawn.integers(len(others))]
    else:
        strange = (b"", None, 7, "text", [1], drawn.bytes(drawn.integers(200)), memoryview(message))
        return strange[drawn.integers(len(strange))]
    return bytes(changed)


def _play(held: Any, drawn: np.random.Generator, given: dict[int, dict[int, set[int]]]) -> int:
    """Run one session in which about one message in ten is damaged, either way; count these."""
    server, context, seen, count = Server(held.session), held.session.context, [b"x"], 0

    def sent(message: bytes) -> object:
        nonlocal count
        if not message or drawn.random() < 0.9:
            seen.append(message or b"x")
            return message
        count += 1
        return _damaged(message, seen, drawn)

    def ask(told: dict[int, bytes], step: Callable[[Any, object], bytes]) -> dict[int, object]:
        replies = {}
        for number, message in told.items():
            try:
                replies[number] = sent(step(held.clients[number], sent(message)))
            except Refused:
                assert held.clients[number].stage is Stage.OVER
        return replies

    def unmasked(client: Any, message: object) -> bytes:
        reply = client.unmask(message)
        read = messages.read_unmask(reply, context, CLIENTS)
        for owner, (which, _) in read.items():
            given.setdefault(client.number, {}).setdefault(owner, set()).add(which)
        for again in (message, b""):
            with pytest.raises(Refused):
                client.unmask(again)
        return reply

    try:
        advertised = server.advertise(ask(dict.fromkeys(held.clients, b""), lambda c, _: c.keys()))
        delivered = server.deliver(ask(advertised, lambda c, m: c.shares(m)))
        masked = ask(delivered, lambda c, m: c.masked(m, held.vectors[c.number]))
        for number, reply in masked.items():
            server.take(number, reply)
        signed = ask(server.survivors(), lambda c, m: c.consistent(m))
        server.total(ask(server.signatures(signed), unmasked))
    except Refused:
        pass
    return count


def _fuzz(parties: Make, wanted: int, seed: int) -> None:
    drawn, count, sessions = np.random.default_rng(seed), 0, 0
    while count < wanted:
        given: dict[int, dict[int, set[int]]] = {}
        count += _play(parties(CLIENTS, seed=sessions, least=3), drawn, given)
        sessions += 1
        for owners in given.values():
            assert all(len(which) == 1 for which in owners.values())
        for owner in range(CLIENTS):
            # All who gave a share of one client gave it of the same secret.
            kinds = set().union(*(owners.get(owner, set()) for owners in given.values()))
            assert len(kinds) <= 1


def test_damaged_messages_are_refused(parties: Make) -> None:
    _fuzz(parties, 1_000, 0)


@pytest.mark.slow
def test_a_hundred_thousand_damaged_messages_are_refused(parties: Make) -> None:
    _fuzz(parties, 100_000, 1)


READERS = {
    Kind.KEYS: messages.read_keys,
    Kind.ADVERTISED: lambda m, c: messages.read_advertised(m, c, CLIENTS),
    Kind.SHARES: lambda m, c: messages.read_sealed(m, Kind.SHARES, c, CLIENTS),
    Kind.DELIVERED: lambda m, c: messages.read_sealed(m, Kind.DELIVERED, c, CLIENTS),
    Kind.MASKED: messages.read_masked,
    Kind.SURVIVORS: lambda m, c: messages.read_survivors(m, c, CLIENTS),
    Kind.CONSISTENT: messages.read_consistent,
    Kind.SIGNATURES: lambda m, c: messages.read_signatures(m, c, CLIENTS),
    Kind.UNMASK: lambda m, c: messages.read_unmask(m, c, CLIENTS),
}


@pytest.mark.parametrize("kind", READERS)
def test_readers_raise_refusals_alone(kind: Kind) -> None:
    """Random bodies after the right beginning, short numbers in them more often than by chance."""
    drawn, context, read = np.random.default_rng(int(kind)), bytes(32), 0
    for _ in range(2_000):
        words = drawn.integers(0, 8, drawn.integers(0, 12)).astype(">u4").tobytes()
        body = words + drawn.bytes(drawn.integers(0, 300))
        cut = body[: drawn.integers(len(body) + 1)]
        try:
            READERS[kind](messages.opening(kind, context) + cut, context)
            read += 1
        except Refused:
            continue
    for strange in (None, 3, "x", b"", bytearray(40), bytes([kind]) * 40):
        with pytest.raises(Refused):
            READERS[kind](strange, context)


@pytest.mark.parametrize("numbers", [[1, 1], [2, 1], [0, 5], [0, 2**32 - 1]])
def test_nobody_is_named_twice(numbers: list[int]) -> None:
    listed = len(numbers).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in numbers)
    message = messages.opening(Kind.SURVIVORS, bytes(32)) + listed
    with pytest.raises(Refused, match="roster, in order"):
        messages.read_survivors(message, bytes(32), CLIENTS)
