"""The client as a Flower app: one action for every phase of the algorithm.

It reads a message, calls the phase's pure function on its own rows, and writes the answer. It
evaluates only where its owner asked for that: a score on private rows is a release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from tacit import errors
from tacit.federated import rounds
from tacit.federated.algorithms import ALGORITHMS, Algorithm
from tacit.federated.app import wire
from tacit.federated.app.keeping import Keeper, Kept
from tacit.federated.app.mods import Mods
from tacit.federated.config import Config
from tacit.federated.local import State
from tacit.federated.model import Data, Model

ACTIONS = tuple(sorted({phase.name for one in ALGORITHMS.values() for phase in one.phases}))
"""Phases of all algorithms."""


@dataclass(frozen=True)
class Client:
    """What a client has on its side of the wire.

    Parameters
    ----------
    algorithm, config, model
        The same as the server's; nothing of them travels.
    name : str
        Under which the server knows this client, whatever id its node has.
    data : Data
        Its rows.
    """

    algorithm: Algorithm
    config: Config
    model: Model
    name: str
    data: Data


def client_app(
    client_of: Callable[[Context], Client],
    *,
    actions: Iterable[str] = ACTIONS,
    keeper_of: Callable[[Context], Keeper] = lambda context: Keeper(),
    mods: Mods = Mods(),  # noqa: B008
    simulated: bool = False,
    evaluates: bool = False,
) -> ClientApp:
    """Build the app that a node runs.

    Parameters
    ----------
    client_of : callable
        Gives a client for the context of a node.
    actions : iterable of str
        Names of the phases that it may be asked for, as `train.<phase>`.
    keeper_of : callable
        Where the states of a node are kept; in the context alone without it.
    mods : Mods
        Around every action.
    simulated : bool
        Whether all nodes are simulated. Attack mods are refused otherwise.
    evaluates : bool
        Answer `evaluate` with loss and accuracy on the client's rows, without noise.
    """
    app = ClientApp(mods=[_discreet, *mods.ordered(simulated=simulated)])

    def train(message: Message, context: Context) -> Message:
        return _train(message, context, client_of(context), keeper_of(context))

    for action in actions:
        app.train(action)(train)

    @app.query("describe")
    def describe(message: Message, context: Context) -> Message:
        client = client_of(context)
        rows = len(client.data) if client.config.weighted else None
        return Message(wire.description(client.name, rows), reply_to=message)

    if evaluates:

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            return _evaluate(message, client_of(context))

    return app


def _discreet(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Outermost of all: Flower sends the text of an error to the server, and it may echo rows.

    Only texts of this library's own errors leave, which never do.
    """
    try:
        return call_next(message, context)
    except errors.TacitError:
        raise
    except Exception as error:
        raise errors.TacitError(f"client: {type(error).__name__} in its app.") from None


def _train(message: Message, context: Context, client: Client, keeper: Keeper) -> Message:
    received, order = wire.received(message, client.model.layout)
    phase = client.algorithm.phases[order.phase]
    if message.metadata.message_type != f"train.{phase.name}":
        raise errors.InvalidData(f"client: the action must be train.{phase.name}.")
    kept: Kept | None = None
    state: State = {}
    if client.algorithm.state:
        kept = keeper.load(context, client.name, client.data)
        kept = kept.at(message.metadata.run_id, order.counted)
        state = kept.state
    rng = rounds.client_rng(order.seed, order.number, order.phase, order.client)
    reply, after = rounds.answer(
        phase, client.config, client.model, received, state, client.data, rng
    )
    if kept is not None:
        keeper.save(context, client.name, client.data, kept.then(order.exchange, after))
    return Message(wire.answered(reply), reply_to=message)


def _evaluate(message: Message, client: Client) -> Message:
    received, _ = wire.received(message, client.model.layout)
    data = client.data
    loss, accuracy = client.model.evaluate(received["model"], data.rows, data.labels)
    scores = MetricRecord({"loss": loss, "accuracy": accuracy})
    return Message(RecordDict({"scores": scores}), reply_to=message)
