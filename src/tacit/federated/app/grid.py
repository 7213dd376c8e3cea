"""Nodes in this process: a Flower grid that calls the client app, without Ray or a network.

Messages are answered one after the other in the order in which they were sent, each with records of
its own. Drop-out and latency are injected and repeatable; nothing sleeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from tacit.federated import flower
from tacit.federated.flower import Run
from tacit.privacy import errors


@dataclass(frozen=True)
class Faults:
    """What goes wrong on the way, for simulations.

    Parameters
    ----------
    dropout : float
        Share of the answers that are lost, each by itself.
    latency : float
        Mean number of seconds until an answer is there, exponentially distributed. One that takes
        longer than the server waits is lost.
    seed : int
        Of both.
    """

    dropout: float = 0.0
    latency: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        errors.probability("Faults", "dropout", self.dropout)
        if not 0 <= self.latency < math.inf:
            errors.refuse("Faults", "latency", "at least 0", self.latency)
        errors.whole("Faults", "seed", self.seed, least=0)

    def draw(self, sent: int, node: int) -> float:
        """Seconds until the answer to the message with this number; infinite where it is lost."""
        if not (self.dropout or self.latency):
            return 0.0
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(sent, node)))
        lost = rng.random() < self.dropout
        return math.inf if lost else float(self.latency * rng.exponential())


class LocalGrid(Grid):
    """A grid whose nodes live here.

    Parameters
    ----------
    app : ClientApp
        What every node runs.
    nodes : int
        How many; node k has `partition-id` k in its configuration.
    run_id : int
        Of the run.
    faults : Faults
        What goes wrong.
    lost : callable, optional
        Told of every answer with its message; what is true loses it. For tests.

    Attributes
    ----------
    clock : float
        Seconds that the server would have waited so far, by the injected latency.
    """

    def __init__(
        self,
        app: ClientApp,
        nodes: int,
        run_id: int,
        faults: Faults = Faults(),  # noqa: B008
        lost: Callable[[Message, Message], bool] | None = None,
    ) -> None:
        self._app, self._faults, self._lost = app, faults, lost
        self._run = flower.empty_run(run_id)
        self.contexts = {node: _context(run_id, node, nodes) for node in range(1, nodes + 1)}
        self.clock, self._sent = 0.0, 0
        self._sent_to = dict.fromkeys(self.contexts, 0)
        self._waiting: dict[str, tuple[float, Message]] = {}

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            self._sent += 1
            names.append(str(self._sent))
            answer = self._answer(flower.delivered(message, names[-1]))
            # By the node's own messages: whose answers are lost must not depend on who else is
            # asked, or a guarantee for clients would not hold.
            node = message.metadata.dst_node_id
            self._sent_to[node] += 1
            delay = self._faults.draw(self._sent_to[node], node)
            if delay < math.inf:
                self._waiting[names[-1]] = (delay, answer)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._waiting.pop(name)[1] for name in message_ids if name in self._waiting]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        patience = math.inf if timeout is None else timeout
        names = list(self.push_messages(messages))
        delays = {name: self._waiting[name][0] for name in names if name in self._waiting}
        late = [name for name, delay in delays.items() if delay > patience]
        for name in late:
            del self._waiting[name]
        if names and patience < math.inf and (late or len(delays) < len(names)):
            self.clock += patience
        else:
            self.clock += max(delays.values(), default=0.0)
        return self.pull_messages(names)

    def _answer(self, message: Message) -> Message:
        context = self.contexts[message.metadata.dst_node_id]
        try:
            reply = self._app(message, context)
        except Exception as error:  # whatever a client's code raises must not stop the others
            return flower.failure(message, error)
        if reply.has_error():
            return reply
        if self._lost is not None and self._lost(message, reply):
            return flower.failure(message, ConnectionError())
        return flower.delivered(reply, f"{message.metadata.message_id}-reply")


def _context(run_id: int, node: int, nodes: int) -> Context:
    """Of a node before its first message, as Flower's own simulation makes it."""
    config = {"partition-id": node - 1, "num-partitions": nodes}
    return Context(run_id, node, dict(config), RecordDict(), {})
