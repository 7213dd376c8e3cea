"""A Flower grid whose nodes run in this process, without Ray or a network.

Messages are answered one after the other in the order in which they were sent, each with its own
records. Drop-out and latency are simulated and repeatable; nothing sleeps.
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
    """Simulated faults of the network.

    Parameters
    ----------
    dropout : float
        Probability that a reply is lost, independently of others.
    latency : float
        Mean number of seconds until a reply arrives, exponentially distributed. A reply that takes
        longer than the server waits is lost.
    seed : int
        Seed of both.
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
        """Draw the seconds until the reply to a node's message number `sent`; infinite if lost."""
        if not (self.dropout or self.latency):
            return 0.0
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(sent, node)))
        lost = rng.random() < self.dropout
        return math.inf if lost else float(self.latency * rng.exponential())


class LocalGrid(Grid):
    """A grid whose nodes run in this process.

    Parameters
    ----------
    app : ClientApp
        App that every node runs.
    nodes : int
        Number of nodes; the k-th, from 0, has `partition-id` k in its configuration.
    run_id : int
        Id of the run.
    faults : Faults
        Simulated faults.
    lost : callable, optional
        Called with every message and its reply; a true result loses the reply. For tests.

    Attributes
    ----------
    clock : float
        Seconds that the server would have waited so far, by the simulated latency.
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
            # Counted per node: which replies are lost must not depend on which other clients are
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
        except Exception as error:  # an exception in a client's code must not stop the others
            return flower.failure(message, error)
        if reply.has_error():
            return reply
        if self._lost is not None and self._lost(message, reply):
            return flower.failure(message, ConnectionError())
        return flower.delivered(reply, f"{message.metadata.message_id}-reply")


def _context(run_id: int, node: int, nodes: int) -> Context:
    """Build the context of a node before its first message, as Flower's own simulation does."""
    config = {"partition-id": node - 1, "num-partitions": nodes}
    return Context(run_id, node, dict(config), RecordDict(), {})
