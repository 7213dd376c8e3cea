"""Parties of a secure sum, with keys that are made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from tacit.federated.secure import Client, Roster, Server, Session, Setup, Sum, secure_sum
from tacit.federated.secure.primitives import new_identity

SIZE, BITS = 24, 20


@cache
def identities(count: int) -> tuple[Any, ...]:
    return tuple(new_identity() for _ in range(count))


@dataclass
class Parties:
    """A session, its clients, and their vectors."""

    session: Session
    vectors: dict[int, np.ndarray]
    clients: dict[int, Client]

    @classmethod
    def of(
        cls,
        count: int,
        seed: int = 0,
        number: int = 1,
        kind: Callable[..., Client] = Client,
        about: bytes = b"model",
        **setup: Any,
    ) -> Parties:
        told = {"size": SIZE, "bits": BITS, "corrupt": 1, "least": 3, **setup}
        keys = identities(count)
        roster = Roster(tuple(key.public_key() for key in keys))
        session = Session(Setup(count, **told), roster, "run", number, about)
        drawn = np.random.default_rng(seed)
        reach = 2 ** (told["bits"] - 2)
        vectors = {k: drawn.integers(-reach, reach, told["size"]) for k in range(count)}
        clients = {k: kind(session, k, key) for k, key in enumerate(keys)}
        return cls(session, vectors, clients)

    def sum(self, lost: Mapping[int, Any] | None = None) -> Sum:
        return secure_sum(Server(self.session), self.clients, self.vectors, lost or {})

    def plain(self, survivors: Any) -> np.ndarray:
        """The sum without masks, modulo 2^b."""
        bits = self.session.setup.bits
        total = np.sum([self.vectors[k] for k in survivors], axis=0)
        return (total + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


@pytest.fixture
def parties() -> Callable[..., Parties]:
    return Parties.of
