"""The plain loop: rounds over clients in one process, without messages.

It is the reference for every engine. `Server` is all that happens at the server, `client_rng` and
`answer` all that happens at a client; an engine only transports their results. With the same seed
it must give the same arrays.

Notes
-----
A client's new state counts once the server has accepted its reply. If a FedDyn client kept a
correction that the server never received, the server's mean of all corrections would stay wrong.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from tacit.federated import payload
from tacit.federated.algorithms.client_updates import Global, State
from tacit.federated.algorithms.registry import Algorithm, Phase
from tacit.federated.algorithms.registry import algorithm as named
from tacit.federated.algorithms.server_updates import Averaged, ServerState
from tacit.federated.config import Config
from tacit.federated.coordinator import Coordinator, PlainMean
from tacit.federated.coordinator import cohort as cohort
from tacit.federated.model import Data, Evaluation, Model, copied, serving
from tacit.federated.payload import Layout, Payload, Record, Rejected, ReplyLimits, Vector
from tacit.privacy import errors, silence


class Reply(NamedTuple):
    """The reply of one client in one phase."""

    record: Record
    weight: float
    stated: tuple[float, float] | None = None
    """(ε, δ) that a silo has spent with this reply."""


class Party(Protocol):
    """A client that protects its rows itself, such as a silo."""

    def __len__(self) -> int:
        """Return its weight, if clients are weighted by rows."""

    def answer(
        self,
        exchange: int,
        phase: Phase,
        received: Global,
        state: State,
        rng: np.random.Generator,
    ) -> tuple[Reply, State]:
        """Compute its reply in a phase; exchanges are numbered from 1 through all rounds.

        Raises
        ------
        BudgetExceeded
            If it has too little budget remaining. It is then silent.
        """


Intercept = Callable[[int, int, Reply], Reply | None]
"""Called with round, client and reply; returns what arrives instead, None if it is lost. For tests
and simulated attacks."""


@dataclass(frozen=True)
class Round:
    """The record of one round.

    Parameters
    ----------
    number : int
        Number of the round, from 1.
    asked, counted : int
        Numbers of clients that were asked, and of clients whose last reply counted.
    rejected : tuple of (int, str)
        Clients whose reply did not count, and the reason.
    skipped : bool
        Whether a phase had no result, so that the model is the previous one.
    loss, accuracy : float
        Loss and accuracy on the test rows; NaN if there are none.
    bytes_up, bytes_down : int
        Bytes of the arrays of all clients and phases of this round.
    """

    number: int
    asked: int
    counted: int
    rejected: tuple[tuple[int, str], ...]
    skipped: bool
    loss: float
    accuracy: float
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a run: the server's state, the states of clients, and every round."""

    server: ServerState
    states: Mapping[int, State]
    history: tuple[Round, ...]
    stopped: str = ""
    """Why the next round was refused for lack of budget; "" if none was."""

    @property
    def model(self) -> Vector:
        """The global model."""
        return self.server.model


def client_rng(seed: int, number: int, phase: int, client: int) -> np.random.Generator:
    """Seed a client's own stream in one phase of a round, whatever the order of clients."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number, phase, client)))


def answer(
    phase: Phase,
    config: Config,
    model: Model,
    received: Global,
    state: State,
    data: Data,
    rng: np.random.Generator,
) -> tuple[Reply, State]:
    """Compute a client's reply on a copy of the model, which holds nothing of other clients."""
    with serving(model, data, rng) as own:
        return computed(phase, config, own, received, state, data, rng)


def computed(
    phase: Phase,
    config: Config,
    model: Model,
    received: Global,
    state: State,
    data: Data,
    rng: np.random.Generator,
) -> tuple[Reply, State]:
    """Compute a client's reply on a model that only this client uses."""
    sent, kept = phase.client(config, model, received, state, data, rng)
    return Reply(payload.encode(sent, phase.parts, model.layout), sent.weight), kept


def accept(
    phase: Phase, layout: Layout, replies: Mapping[int, Reply], limits: ReplyLimits
) -> tuple[dict[int, Payload], dict[int, str]]:
    """Return the replies that count, by client, and why the others do not."""
    accepted: dict[int, Payload] = {}
    refused: dict[int, str] = {}
    for client, reply in sorted(replies.items()):
        record, weight, stated = reply
        read = payload.decode(record, weight, phase.parts, layout, limits, stated=stated)
        if isinstance(read, Rejected):
            refused[client] = read.reason
        else:
            accepted[client] = read
    return accepted, refused


def begin(config: Config, model: Model, sizes: Sequence[int]) -> ServerState:
    """Initialize the server from the clients' numbers of rows alone."""
    population = float(sum(sizes)) if config.weighted else float(len(sizes))
    return ServerState(model.start().astype(np.float32), population)


class Closed(NamedTuple):
    """The result of a phase: which replies counted, and which were rejected."""

    counted: list[int]
    rejected: dict[int, str]
    skipped: bool
    """Whether the round ends here, without a result."""


class Server:
    """The server of a run, independent of how messages travel.

    For every round `open`; for every phase `phase`, then send and wait, then `close_phase`, until
    one is skipped; then `close`.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.
    config : Config
        Settings of the algorithm.
    model : Model
        The model, for initial parameters, layout and evaluation.
    sizes : sequence of int
        Number of rows of each client; without weights only the number of clients is used.
    coordinator : Coordinator
        Chooses clients and combines replies.
    limits : ReplyLimits
        Limits that no honest reply exceeds.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        config: Config,
        model: Model,
        sizes: Sequence[int],
        coordinator: Coordinator,
        limits: ReplyLimits = ReplyLimits(),  # noqa: B008
    ) -> None:
        coordinator.admit(algorithm, config, len(sizes))
        self.algorithm, self.config, self.model = algorithm, config, model
        self.coordinator, self.limits, self.clients = coordinator, limits, len(sizes)
        self.state = begin(config, model, sizes)

    def open(self, number: int) -> list[int]:
        """Begin a round, and return the clients that are asked.

        Raises
        ------
        BudgetExceeded
            If the round would cost more than what is remaining. Then nothing has happened.
        """
        self.asked = self.coordinator.choose(number, self.clients)
        self._number, self._there, self._skipped = number, self.asked, False
        self._rejected: list[tuple[int, str]] = []
        self._down = 0
        self._sent: Global = {"model": self.state.model}
        return self.asked

    def phase(self, index: int) -> tuple[Global, list[int]]:
        """Return what is sent in a phase, and to which clients."""
        names = self.algorithm.phases[index].receives
        receives = {name: self._sent[name] for name in names}
        self.coordinator.sends(receives)
        self._down += len(self._there) * sum(array.nbytes for array in receives.values())
        return receives, self._there

    def close_phase(self, index: int, replies: Mapping[int, Reply]) -> Closed:
        """Combine the replies of clients that were asked, and update the model."""
        phase, layout = self.algorithm.phases[index], self.model.layout
        asked = set(self._there)
        heard = {client: reply for client, reply in replies.items() if client in asked}
        accepted, refused = accept(phase, layout, heard, self.limits)
        for client, reply in list(accepted.items()):
            if why := self.coordinator.refuses(self._number, client, reply):
                refused[client] = why
                del accepted[client]
        self._rejected += refused.items()
        self._there = list(accepted)
        self._apply(phase, self.coordinator.gather(self._number, phase, accepted, layout))
        return Closed(self._there, refused, self._skipped)

    def close_sum(self, index: int, averaged: Averaged | None, survivors: list[int]) -> Closed:
        """Update the model with a mean that clients and server computed without single replies."""
        self._there = survivors
        self._apply(self.algorithm.phases[index], averaged)
        return Closed(self._there, {}, self._skipped)

    def _apply(self, phase: Phase, averaged: Averaged | None) -> None:
        if averaged is None:
            self._skipped = True
        else:
            self._sent, self.state = phase.server(self.config, self.state, averaged)

    def close(self, bytes_up: int, judged: Evaluation | None = None) -> Round:
        """End the round, and return its record."""
        loss, accuracy = (np.nan, np.nan) if judged is None else judged
        counts = (self._number, len(self.asked), len(self._there), tuple(self._rejected))
        return Round(*counts, self._skipped, loss, accuracy, bytes_up, self._down)

    def judge(self, test: Data | None) -> Evaluation | None:
        """Evaluate the global model on test rows, if there are any."""
        if test is None:
            return None
        return copy.deepcopy(self.model).evaluate(self.state.model, test.rows, test.labels)


@dataclass(frozen=True, eq=False)
class RunOptions:
    """The options of a run, which every engine takes.

    Parameters
    ----------
    config : Config, optional
        Settings; by default the algorithm's own.
    participation : float
        C, the fraction of the clients that are asked in a round, if no coordinator is given.
    seed : int
        Seed of the choice of clients, and of the order of rows at each client.
    test : Data, optional
        Rows on which the global model is evaluated after each round.
    limits : ReplyLimits
        Limits that no honest reply exceeds.
    coordinator : Coordinator, optional
        Chooses clients and combines replies: the place of a guarantee or a defence. By default the
        weighted mean.
    intercept : callable, optional
        Changes or drops replies on their way.
    callback : callable, optional
        Called with every round. A true result ends the run.
    """

    config: Config | None = None
    participation: float = 1.0
    seed: int = 0
    test: Data | None = None
    limits: ReplyLimits = ReplyLimits()  # noqa: RUF009
    coordinator: Coordinator | None = None
    intercept: Intercept | None = None
    callback: Callable[[Round], object] | None = None

    def server(
        self, algorithm: Algorithm, config: Config, model: Model, clients: Sequence[Data | Party]
    ) -> Server:
        """Build the server of a run over these clients."""
        coordinator = self.coordinator
        if coordinator is None:
            coordinator = PlainMean(self.seed, self.participation)
        sizes = [len(client) for client in clients]
        return Server(algorithm, config, model, sizes, coordinator, self.limits)


def run(
    algorithm: Algorithm | str,
    model: Model,
    clients: Sequence[Data | Party],
    rounds: int,
    options: RunOptions = RunOptions(),  # noqa: B008
) -> RunResult:
    """Run an algorithm over clients in this process.

    Parameters
    ----------
    algorithm : Algorithm or str
        The algorithm.
    model : Model
        The model. Every client works on a copy of it, as it was built.
    clients : sequence of Data or Party
        The rows of each client, or a client that protects them itself (`tacit.federated.Silo`).
    rounds : int
        Number of rounds.
    options : RunOptions
        Settings, seed, test rows, coordinator and more.

    Notes
    -----
    Without a coordinator that brings a guarantee there is none. Under a guarantee for clients, a
    client whose computation raises anything is silent: an error could reveal its rows, and its text
    may quote them (`tacit.privacy.silence`). Ctrl-C still ends the run. The mean is taken over the
    replies that count; if there are none the round is skipped, marked so, and the model stays. If a
    coordinator refuses a further round the run ends, states why, and returns the model of the
    rounds before. Without a guarantee for clients, a party with too little budget remaining is
    silent; if that applies to all that were asked, the run ends and states why.

    Raises
    ------
    BudgetExceeded
        If not even the first round can be paid.
    """
    chosen, config = checked(algorithm, model, clients, rounds, options)
    server = options.server(chosen, config, model, clients)
    loop = _Loop(server, clients, options.seed, options.intercept)
    history: list[Round] = []
    for number in range(1, rounds + 1):
        try:
            history.append(loop.round(number, options.test))
        except errors.BudgetExceeded as refusal:
            if not history:
                raise
            return RunResult(server.state, loop.states, tuple(history), str(refusal))
        if options.callback is not None and options.callback(history[-1]):
            break
    return RunResult(server.state, loop.states, tuple(history))


def checked(
    algorithm: Algorithm | str,
    model: Model,
    clients: Sequence[Data | Party],
    rounds: int,
    options: RunOptions,
) -> tuple[Algorithm, Config]:
    """Return algorithm and settings of a run, after refusing what cannot run."""
    chosen = named(algorithm) if isinstance(algorithm, str) else algorithm
    errors.whole("run", "rounds", rounds, least=1)
    errors.whole("run", "seed", options.seed, least=0)
    if not clients:
        errors.refuse("run", "clients", "at least one", 0)
    config = chosen.config() if options.config is None else options.config
    must_agree(clients, config)
    must_fit(model, clients)
    return chosen, config


def must_fit(model: Model, clients: Sequence[object]) -> None:
    """Refuse, before anyone is asked, a model that does not fit clients' rows or is not copied."""
    if getattr(model, "serving", None) is None:
        copied(model)
    admit = getattr(model, "admit", None)
    first = next((one for one in clients if isinstance(one, Data)), None)
    if admit is not None and first is not None:
        admit(first)


def must_agree(clients: Sequence[object], config: Config) -> None:
    """Refuse settings that differ from a silo's: it would silently use its own."""
    if any(getattr(one, "config", config) != config for one in clients):
        remedy = "A silo's noise is calibrated to its own settings."
        errors.refuse("run", "config", "that of the silos", "another", remedy)


class _Loop:
    """A loop over clients, one after the other."""

    def __init__(
        self,
        server: Server,
        clients: Sequence[Data | Party],
        seed: int,
        intercept: Intercept | None,
    ) -> None:
        self.server, self.clients, self.seed, self.intercept = server, clients, seed, intercept
        self.states: dict[int, State] = {}

    def round(self, number: int, test: Data | None) -> Round:
        server, up = self.server, 0
        server.open(number)
        for index in range(len(server.algorithm.phases)):
            sent, there = server.phase(index)
            replies, states, size = self._ask(number, index, sent, there)
            up += size
            closed = server.close_phase(index, replies)
            if closed.skipped:
                break
            self.states.update({client: states[client] for client in closed.counted})
        return server.close(up, server.judge(test))

    def _ask(
        self, number: int, index: int, sent: Global, clients: Sequence[int]
    ) -> tuple[dict[int, Reply], dict[int, State], int]:
        """Return the replies that arrive, the states that go with them, and the bytes sent."""
        replies, states, size = dict[int, Reply](), dict[int, State](), 0
        for client, (reply, state, sent_up) in self._answers(number, index, sent, clients).items():
            states[client] = state
            size += sent_up
            arrived = reply if self.intercept is None else self.intercept(number, client, reply)
            if arrived is not None:
                replies[client] = arrived
        return replies, states, size

    def _answers(
        self, number: int, index: int, sent: Global, clients: Sequence[int]
    ) -> dict[int, tuple[Reply, State, int]]:
        """Return the answers of the clients that sent one, with their bytes."""
        answers: dict[int, tuple[Reply, State, int]] = {}
        if self.server.coordinator.hides_failures:
            with silence.watching() as watch:
                for client in clients:
                    with watch.silent():
                        answers[client] = self._answer(number, index, sent, client)
            return answers
        refusal: errors.BudgetExceeded | None = None
        for client in clients:
            try:
                answers[client] = self._answer(number, index, sent, client)
            except errors.BudgetExceeded as refused:
                if isinstance(self.clients[client], Data):
                    # Not the text: whoever raised it keeps no budget, and may quote rows.
                    said = "run: a client without a budget must not raise BudgetExceeded."
                    raise errors.TacitError(said) from None
                refusal = refused
        if refusal is not None and not answers:
            raise refusal
        return answers

    def _answer(
        self, number: int, index: int, sent: Global, client: int
    ) -> tuple[Reply, State, int]:
        server, data = self.server, self.clients[client]
        phases, state = server.algorithm.phases, self.states.get(client, {})
        rng = client_rng(self.seed, number, index, client)
        phase = phases[index]
        if isinstance(data, Data):
            reply, kept = answer(phase, server.config, server.model, sent, state, data, rng)
        else:
            exchange = (number - 1) * len(phases) + index + 1
            reply, kept = data.answer(exchange, phase, sent, state, rng)
        return reply, kept, payload.nbytes(reply.record)
