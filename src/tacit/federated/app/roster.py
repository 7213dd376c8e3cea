"""Rosters, which map nodes to clients: nodes get new ids when they restart, clients stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from tacit.federated.app import wire
from tacit.privacy import errors


class Roster(Protocol):
    """A translation between the clients of a run and the nodes of a grid."""

    def there(self, grid: Grid, clients: Sequence[int]) -> Mapping[int, int]:
        """Return the nodes of the clients that are online, by client, in increasing order."""

    def client(self, node: int) -> int | None:
        """Return the client of a node; None for an unknown node."""


class Numbered:
    """A roster of a simulation: the grid's nodes in the order of their ids."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = list(nodes)
        self._clients = {node: client for client, node in enumerate(self._nodes)}

    def there(self, grid: Grid, clients: Sequence[int]) -> Mapping[int, int]:
        return {client: self._nodes[client] for client in clients}

    def client(self, node: int) -> int | None:
        return self._clients.get(node)


class Named:
    """A roster of nodes that state their names; clients are numbered by name.

    A node that was restarted has another id and the same name, and is the same client.

    Parameters
    ----------
    known : mapping of int to str, optional
        Names by node id, if Flower authenticates nodes: an id is then tied to a key. Other nodes
        are not asked, and the name that a node states is ignored.

    Notes
    -----
    Without `known` a name is a claim.
    """

    def __init__(self, known: Mapping[int, str] | None = None) -> None:
        self._known = known
        self._refusal = ""
        self._names: list[str] = []
        self._met: dict[int, str] = {}
        self.sizes: list[int] = []

    def meet(
        self,
        grid: Grid,
        expected: int,
        patience: float,
        pause: float = 1.0,
        arrived: Callable[[int], object] = lambda here: None,
    ) -> None:
        """Wait until the expected number of clients is online, and fix them.

        `arrived` is called with the number of clients whenever it grows.

        Raises
        ------
        TacitError
            If there are fewer after `patience` seconds.
        """
        rows: dict[str, int] = {}
        end = time.monotonic() + patience
        while True:
            before = len(rows)
            rows |= self._greet(grid, max(end - time.monotonic(), 1.0))
            if len(rows) > before:
                arrived(len(rows))
            if len(rows) >= expected or time.monotonic() > end:
                break
            time.sleep(pause)
        if len(rows) != expected:
            raise errors.TacitError(
                f"federation: there must be {expected} clients, got {len(rows)} names"
                f"{self._refusal}. Start a node for each, under different names."
            )
        self._names = sorted(rows)
        self.sizes = [rows[name] for name in self._names]

    @property
    def names(self) -> list[str]:
        """The clients' names, in their order."""
        return list(self._names)

    def there(self, grid: Grid, clients: Sequence[int]) -> Mapping[int, int]:
        self._greet(grid, 30.0)
        online = set(grid.get_node_ids())
        nodes = {name: node for node, name in self._met.items() if node in online}
        wanted = {client: nodes.get(self._names[client]) for client in clients}
        return {client: node for client, node in wanted.items() if node is not None}

    def client(self, node: int) -> int | None:
        name = self._met.get(node)
        return self._names.index(name) if name in self._names else None

    def _greet(self, grid: Grid, timeout: float) -> dict[str, int]:
        """Ask new nodes for their names, and return their numbers of rows by name."""
        known = self._known
        here = [node for node in grid.get_node_ids() if known is None or node in known]
        new = [node for node in here if node not in self._met]
        greetings = [Message(RecordDict(), node, wire.DESCRIBE) for node in new]
        rows_by_name: dict[str, int] = {}
        for message in grid.send_and_receive(greetings, timeout=timeout) if greetings else ():
            node, description = message.metadata.src_node_id, wire.read_description(message)
            if description is None:
                self._refusal = wire.refusal(message)
            elif known is None or node in known:
                self._met[node] = description[0] if known is None else known[node]
                rows_by_name[self._met[node]] = description[1]
        return rows_by_name
