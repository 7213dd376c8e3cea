"""A secure sum in one process: clients and server exchange all messages as bytes.

It is the reference for engines that carry the messages over a network, and it simulates clients
that are lost at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tacit.federated.secure.client import Client, Stage
from tacit.federated.secure.primitives import Refused
from tacit.federated.secure.server import Server

Integers = npt.NDArray[np.int64]


@dataclass
class Sum:
    """The result of a secure sum.

    Parameters
    ----------
    total : array of int
        Sum of the survivors' vectors, modulo 2^b, centred.
    survivors : tuple of int
        Clients whose vectors are in it.
    bytes_up, bytes_down : int
        Bytes of all messages.
    """

    total: Integers
    survivors: tuple[int, ...]
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass
class _Wire:
    """Messages in one process, of which some are lost."""

    clients: Mapping[int, Client]
    lost: Mapping[int, Stage]
    up: int = 0
    down: int = 0
    refusals: dict[int, str] = field(default_factory=dict)

    def ask(
        self, sent: Mapping[int, bytes], stage: Stage, answer: Callable[[Client, bytes], bytes]
    ) -> dict[int, bytes]:
        """Return the replies that arrive; a client that refuses does not reply."""
        self.down += sum(map(len, sent.values()))
        replies = {}
        for number, message in sent.items():
            if self.lost.get(number, Stage.OVER) <= stage:
                continue
            try:
                replies[number] = answer(self.clients[number], message)
            except Refused as refused:
                self.refusals[number] = str(refused)
        self.up += sum(map(len, replies.values()))
        return replies


def secure_sum(
    server: Server,
    clients: Mapping[int, Client],
    vectors: Mapping[int, Integers],
    lost: Mapping[int, Stage] = {},
) -> Sum:
    """Run a secure sum over these clients; `lost` names the step at which a client is lost.

    Raises
    ------
    Refused
        If too few clients remain at some step.
    """
    wire = _Wire(clients, lost)
    keys = wire.ask(dict.fromkeys(clients, b""), Stage.KEYS, lambda one, _: one.keys())
    advertised = server.advertise(keys)
    shares = wire.ask(advertised, Stage.SHARES, lambda one, sent: one.shares(sent))
    for number, message in server.deliver(shares).items():
        masked = wire.ask(
            {number: message},
            Stage.MASKED,
            lambda one, sent: one.masked(sent, vectors[one.number]),
        )
        for reply in masked.values():
            server.take(number, reply)
    listed = server.survivors()
    signed = wire.ask(listed, Stage.CONSISTENT, lambda one, sent: one.consistent(sent))
    agreed = server.signatures(signed)
    given = wire.ask(agreed, Stage.UNMASK, lambda one, sent: one.unmask(sent))
    return Sum(server.total(given), tuple(listed), wire.up, wire.down)
