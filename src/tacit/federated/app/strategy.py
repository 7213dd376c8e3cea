"""The server as a Flower strategy, which configures and aggregates but decides nothing itself.

A round of Flower is one exchange. An algorithm with two phases needs two of them for one of its own
rounds. `tacit.federated.rounds.Server` decides which clients are asked and which replies count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from tacit.federated import flower, payload
from tacit.federated.app import wire
from tacit.federated.app.questions import Questions
from tacit.federated.app.roster import Roster
from tacit.federated.model import Data
from tacit.federated.rounds import Reply, Round, Server
from tacit.privacy import errors


class Ended(Exception):
    """The callback ended the run."""


class Federation(Strategy):
    """A strategy that runs the rounds of a server over a grid.

    Parameters
    ----------
    server : Server
        The server.
    roster : Roster
        The clients of nodes.
    seed : int
        Seed of the order of rows at clients.
    test : Data, optional
        The server's own rows, on which each round's model is evaluated.
    callback : callable, optional
        Called with every round. A true result ends the run.
    questions : Questions, optional
        What silos are asked besides training.
    """

    def __init__(
        self,
        server: Server,
        roster: Roster,
        *,
        seed: int = 0,
        test: Data | None = None,
        callback: Callable[[Round], object] | None = None,
        questions: Questions | None = None,
    ) -> None:
        self.server, self.roster = server, roster
        self.questions = Questions() if questions is None else questions
        self.history: list[Round] = []
        self.failures: list[tuple[int, int, str]] = []
        self.counted: dict[int, int] = {}
        self._seed, self._test, self._callback = seed, test, callback
        self._bytes_up, self._skipped = 0, False
        self._asked, self._broke = 0, 0

    @property
    def exchanges(self) -> int:
        """Number of exchanges in a round."""
        return len(self.server.algorithm.phases)

    def prepare(self, grid: Grid, timeout: float) -> None:
        """Ask for the normalisation before the first round, and apply it to the server's rows."""
        normalisation = self.questions.before(grid, self.roster, self.server, timeout)
        if normalisation is not None and self._test is not None:
            self._test = Data(normalisation.apply(self._test.rows), self._test.labels)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        number, index = self._at(server_round)
        if index == 0:
            self.server.open(number)
            self._bytes_up, self._skipped = 0, False
        if self._skipped:
            return []
        receives, clients = self.server.phase(index)
        record = flower.array_record(receives)
        there = self.roster.there(grid, clients)
        action = f"train.{self.server.algorithm.phases[index].name}"
        messages = []
        for client, node in there.items():
            counted = self.counted.get(client, 0)
            order = wire.Order(number, index, client, self._seed, counted, server_round)
            content = wire.sent(record, order, self.questions.normalisation)
            messages.append(Message(content, node, action, group_id=str(server_round)))
        self._asked, self._broke = len(messages), 0
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        number, index = self._at(server_round)
        if self._skipped:
            return None, None
        heard = self._heard(number, replies)
        if self._asked and self._broke == self._asked:
            raise errors.BudgetExceeded(
                "federation: silos must have budget remaining, got none among those asked."
            )
        closed = self.server.close_phase(index, heard)
        self._skipped = closed.skipped
        if not closed.skipped:
            self.counted.update(dict.fromkeys(closed.counted, server_round))
        if not closed.skipped and index + 1 < self.exchanges:
            return None, None
        return self._closed()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask silos with a guarantee when an evaluation is due.

        Nobody else is asked, since a score on rows is a release.
        """
        number, _ = self._at(server_round)
        if not self._due(server_round):
            return []
        clients = self.roster.there(grid, range(self.server.clients))
        model = flower.array_record({"model": self.server.state.model})
        return [
            Message(
                wire.sent(
                    model,
                    wire.Order(number, 0, client, self._seed, 0, server_round),
                    self.questions.normalisation,
                ),
                node,
                wire.CONFUSION,
            )
            for client, node in clients.items()
        ]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        if self._due(server_round):
            number, _ = self._at(server_round)
            self.questions.judged(number, self.roster, self.server, replies)
            self._tell(self.history[-1])
        return None

    def summary(self) -> None:
        """Print nothing; the callback gets every round."""

    def _at(self, server_round: int) -> tuple[int, int]:
        done, index = divmod(server_round - 1, self.exchanges)
        return done + 1, index

    def _due(self, server_round: int) -> bool:
        number, index = self._at(server_round)
        return number in self.questions.due and index + 1 == self.exchanges

    def _heard(self, number: int, replies: Iterable[Message]) -> Mapping[int, Reply]:
        """Read the first reply of each client; errors count as silence, and are recorded.

        Under a guarantee for clients their texts are ignored, and so is a client's statement that
        it has no budget remaining.
        """
        hidden = self.server.coordinator.hides_failures
        heard: dict[int, Reply] = {}
        for message in replies:
            client = self.roster.client(message.metadata.src_node_id)
            if client is None or client in heard:
                continue
            self.questions.heard(client, message)
            if message.has_error():
                reason = "" if hidden else str(message.error.reason)[:100]
                self.failures.append((number, client, reason))
                self._broke += not hidden and wire.spent(message)
                continue
            heard[client] = wire.read_answer(message)
            self._bytes_up += _size(heard[client])
        return heard

    def _closed(self) -> tuple[ArrayRecord, MetricRecord]:
        closed = self.server.close(self._bytes_up, self.server.judge(self._test))
        self.history.append(closed)
        if closed.number not in self.questions.due:
            self._tell(closed)
        model = flower.array_record({"model": self.server.state.model})
        return model, MetricRecord({"counted": closed.counted, "asked": closed.asked})

    def _tell(self, one: Round) -> None:
        """Call the callback, once everything about a round is known."""
        if self._callback is not None and self._callback(one):
            raise Ended


def _size(reply: Reply) -> int:
    """Count the bytes of the arrays that could be read."""
    arrays = reply.record or {}
    return payload.nbytes({name: array for name, array in arrays.items() if array is not None})
