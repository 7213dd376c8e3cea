"""The server of secure sums as a Flower strategy: five exchanges for each phase of a round.

It passes messages on, and sees sums alone. A client that does not answer a step is lost for this
sum; with too few left the round is skipped, and marked so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from tacit.federated import flower
from tacit.federated.app import secure_wire, wire
from tacit.federated.app.roster import Roster
from tacit.federated.app.secure_wire import Step
from tacit.federated.app.strategy import Ended
from tacit.federated.client_level.distributed import SecureClientPrivacy
from tacit.federated.client_level.noisy_sum import NoisySum
from tacit.federated.model import Data
from tacit.federated.rounds import Round, Server
from tacit.federated.secure.client import Stage
from tacit.federated.secure.primitives import Refused
from tacit.federated.secure.server import Server as Summing
from tacit.federated.secure.session import Roster as Keys
from tacit.federated.secure.session import Session

_STEPS = len(Stage) - 1


class SecureFederation(Strategy):
    """A strategy that runs the rounds of a server by secure sums.

    Parameters
    ----------
    server : Server
        The server, with `SecureClientPrivacy` as its coordinator.
    roster : Roster
        The clients of nodes.
    keys : Roster
        The clients' long-term public keys.
    run : str
        Name of the run, as clients know it.
    seed, test, callback
        As in `Federation`.
    """

    def __init__(
        self,
        server: Server,
        roster: Roster,
        keys: Keys,
        run: str,
        *,
        seed: int = 0,
        test: Data | None = None,
        callback: Callable[[Round], object] | None = None,
    ) -> None:
        assert isinstance(server.coordinator, SecureClientPrivacy)
        self.server, self.roster, self.keys = server, roster, keys
        self.privacy = server.coordinator
        self.privacy.name = run
        self.history: list[Round] = []
        self.counted: dict[int, int] = {}
        self._seed, self._test, self._callback = seed, test, callback
        self._bytes_up, self._skipped = 0, False
        self._one: NoisySum
        self._sum: Summing
        self._sent: dict[int, bytes] = {}

    @property
    def exchanges(self) -> int:
        """Number of exchanges in a round."""
        return len(self.server.algorithm.phases) * _STEPS

    def prepare(self, grid: Grid, timeout: float) -> None:
        """Do nothing: clients are asked for nothing before the first round."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        number, index, stage = self._at(server_round)
        if index == 0 and stage is Stage.KEYS:
            self.server.open(number)
            self._bytes_up, self._skipped = 0, False
        if self._skipped:
            return []
        if stage is Stage.KEYS:
            return self._first(number, index, server_round, grid)
        there = self.roster.there(grid, sorted(self._sent))
        return [
            self._message(
                secure_wire.asked(Step(self._one.number, stage, self._sent[k])), node, server_round
            )
            for k, node in there.items()
        ]

    def _first(self, number: int, index: int, server_round: int, grid: Grid) -> list[Message]:
        """Send the model, and ask for keys."""
        receives, clients = self.server.phase(index)
        phase = self.server.algorithm.phases[index]
        self._one = self.privacy.next(phase)
        setup = self.privacy.plan.setup()
        session = Session(setup, self.keys, self._one.run, self._one.number, self._one.about)
        self._sum = Summing(session)
        record, messages = flower.array_record(receives), []
        step = Step(self._one.number, Stage.KEYS, b"")
        for client, node in self.roster.there(grid, clients).items():
            counted = self.counted.get(client, 0)
            order = wire.Order(number, index, client, self._seed, counted, server_round)
            content = secure_wire.asked(step, record, order)
            messages.append(self._message(content, node, server_round))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        _, index, stage = self._at(server_round)
        if self._skipped:
            return None, None
        try:
            ended = self._take(index, stage, self._heard(replies), server_round)
        except Refused:
            self._skipped = self.server.close_sum(index, None, []).skipped
            ended = True
        last = index + 1 == len(self.server.algorithm.phases)
        return self._closed() if self._skipped or (ended and last) else (None, None)

    def _take(self, index: int, stage: Stage, heard: dict[int, bytes], server_round: int) -> bool:
        """Take the replies of a step; return whether the sum is there."""
        if stage is Stage.KEYS:
            self._sent = self._sum.advertise(heard)
        elif stage is Stage.SHARES:
            self._sent = self._sum.deliver(heard)
        elif stage is Stage.MASKED:
            for client, reply in heard.items():
                self._sum.take(client, reply)
            self._sent = self._sum.survivors()
            self._there = sorted(self._sent)
        elif stage is Stage.CONSISTENT:
            self._sent = self._sum.signatures(heard)
        else:
            averaged = self.privacy.released(self._one, self._sum.total(heard), len(self._there))
            self.server.close_sum(index, averaged, self._there)
            begun = server_round - _STEPS + 1  # the exchange in which clients trained
            self.counted.update(dict.fromkeys(self._there, begun))
            return True
        return False

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody: a score on rows is a release."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return None

    def summary(self) -> None:
        """Print nothing; the callback gets every round."""

    def _at(self, server_round: int) -> tuple[int, int, Stage]:
        done, position = divmod(server_round - 1, self.exchanges)
        index, step = divmod(position, _STEPS)
        return done + 1, index, Stage(step)

    def _message(self, content: RecordDict, node: int, server_round: int) -> Message:
        return Message(content, node, secure_wire.ACTION, group_id=str(server_round))

    def _heard(self, replies: Iterable[Message]) -> dict[int, bytes]:
        """Read the first reply of each client; errors count as silence."""
        heard: dict[int, bytes] = {}
        for message in replies:
            client = self.roster.client(message.metadata.src_node_id)
            if client is None or client in heard or message.has_error():
                continue
            heard[client] = secure_wire.read_answer(message)
            self._bytes_up += len(heard[client])
        return heard

    def _closed(self) -> tuple[ArrayRecord, MetricRecord]:
        closed = self.server.close(self._bytes_up, self.server.judge(self._test))
        self.history.append(closed)
        if self._callback is not None and self._callback(closed):
            raise Ended
        model = flower.array_record({"model": self.server.state.model})
        return model, MetricRecord({"counted": closed.counted, "asked": closed.asked})
