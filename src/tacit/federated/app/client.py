"""The client as a Flower app, with one action per phase of the algorithm.

It reads a message, calls the phase's pure function on its own rows, and writes the reply. It
evaluates only if its owner asked for that: a score on private rows is a release. A silo, whose
records have a guarantee, replies through `tacit.federated.Silo`, which pays first.
"""

from __future__ import annotations

import builtins
import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from tacit.federated import flower, rounds
from tacit.federated.algorithms.client_updates import State
from tacit.federated.algorithms.registry import ALGORITHMS, Algorithm
from tacit.federated.app import secure_client, wire
from tacit.federated.app.keeping import Keeper, KeptStates
from tacit.federated.app.mods import Mods
from tacit.federated.app.secure_client import Membership
from tacit.federated.config import Config
from tacit.federated.model import Data, Model
from tacit.privacy import errors, silence

if TYPE_CHECKING:
    from tacit.federated.record_level.silo import Silo

ACTIONS = tuple(sorted({phase.name for one in ALGORITHMS.values() for phase in one.phases}))
"""Names of the phases of all algorithms."""

FAILED = "client: its part of the exchange must not raise. It did"
"""All that a server hears where the model raises on a client's rows."""

T = TypeVar("T")

Notify = Callable[[Message, Context, errors.TacitError | None], None]
"""Called on the client's side for each message that was answered or refused."""


@dataclass(frozen=True)
class FederatedClient:
    """A client: its rows, and what it shares with the server.

    Parameters
    ----------
    algorithm, config, model
        The same as the server's; they do not travel.
    name : str
        Name by which the server knows this client, whatever id its node has.
    data : Data
        Its rows.
    silo : callable, optional
        Returns the silo that protects the rows while a message is answered, if records have a
        guarantee.
    membership : Membership, optional
        What the client has joined, if it answers secure sums; it then answers no other exchange.
    """

    algorithm: Algorithm
    config: Config
    model: Model
    name: str
    data: Data
    silo: Callable[[], AbstractContextManager[Silo]] | None = None
    membership: Membership | None = None

    def guarded(self) -> AbstractContextManager[Silo]:
        """Return the silo; refuse if the client has none."""
        if self.silo is None:
            raise errors.InvalidData("client: a job must have a guarantee for records to ask this.")
        return self.silo()


def client_app(
    client_of: Callable[[Context], FederatedClient],
    *,
    actions: Iterable[str] = ACTIONS,
    keeper_of: Callable[[Context], Keeper] = lambda context: Keeper(),
    mods: Mods = Mods(),  # noqa: B008
    simulated: bool = False,
    evaluates: bool = False,
    notify: Notify = lambda message, context, refusal: None,
) -> ClientApp:
    """Build the app that a node runs.

    Parameters
    ----------
    client_of : callable
        Returns the client for the context of a node.
    actions : iterable of str
        Names of the phases that it may be asked for, as `train.<phase>`.
    keeper_of : callable
        Returns the keeper of a node's states. By default they are kept in the context alone.
    mods : Mods
        Mods around every action.
    simulated : bool
        Whether all nodes are simulated. Attack mods are refused otherwise.
    evaluates : bool
        Whether to answer `evaluate` with loss and accuracy on the client's rows, without noise.
    notify : callable
        Called with every message and, if it was refused, the reason: for the client's owner.
    """
    app = ClientApp(mods=[_discreet(notify), *mods.ordered(simulated=simulated)])

    def train(message: Message, context: Context) -> Message:
        return _train(message, context, client_of(context), keeper_of(context))

    for action in actions:
        app.train(action)(train)

    @app.train("secure")
    def secure(message: Message, context: Context) -> Message:
        return _secure(message, context, client_of(context), keeper_of(context))

    @app.query("describe")
    def describe(message: Message, context: Context) -> Message:
        return _describe(message, client_of(context))

    @app.query("statistics")
    def statistics(message: Message, context: Context) -> Message:
        with client_of(context).guarded() as silo:
            return Message(wire.moments(silo.statistics(), _spent(silo)), reply_to=message)

    @app.evaluate("confusion")
    def confusion(message: Message, context: Context) -> Message:
        return _confusion(message, client_of(context))

    if evaluates:

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            return _evaluate(message, client_of(context))

    return app


def _discreet(notify: Notify) -> Mod:
    """Build the outermost mod, which keeps the text of errors from the server.

    Flower sends the text of an error to the server. It may contain a row, a path of this machine, a
    number of rows or what remains in an account. Only texts that were written for the server leave;
    they begin with "client: ", and where the model raises there is only one (`_own`). The client's
    owner sees the others if they are this library's, which never contain a row. A refusal is
    returned as Flower's error reply, not raised: Flower would print a traceback. Only what a signal
    brings (Ctrl-C, a node that is told to stop) ends the app.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        refusal: errors.TacitError | None = None
        with silence.watching() as watch:
            try:
                reply = call_next(message, context)
            except errors.TacitError as error:
                refusal, reply = _for_owner(error), flower.failure(message, _for_server(error))
            except BaseException as error:  # a panic of an extension is no Exception
                watch.check()
                raise errors.TacitError(_in_its_app(error)) from None
            watch.check()
        with suppress(Exception):  # a paid reply must not be lost because its owner cannot be told
            notify(message, context, refusal)
        return reply

    return mod


def _for_server(error: errors.TacitError) -> errors.TacitError:
    """Return what the server may read of an error."""
    if isinstance(error, errors.BudgetExceeded):
        return errors.BudgetExceeded(f"{wire.SPENT}.")
    if str(error).startswith("client: "):
        return error
    return errors.TacitError(_in_its_app(error))


def _for_owner(error: errors.TacitError) -> errors.TacitError:
    """Tell the client's owner what was wrong, where the server gets `FAILED`."""
    return error.__cause__ if isinstance(error.__cause__, errors.TacitError) else error


def _in_its_app(error: BaseException) -> str:
    """Name an error of Python's or of this library; a name of any other may quote a row."""
    kind = type(error)
    known = any(getattr(one, kind.__name__, None) is kind for one in (builtins, errors))
    return f"client: {kind.__name__ if known else 'an error'} in its app."


def _own(compute: Callable[[], T]) -> T:
    """Run the model on the client's rows; whatever it raises, the server gets the same reply.

    `BudgetExceeded` too: a client without a silo keeps no budget.
    """
    try:
        return compute()
    except BaseException as error:  # what a signal brought, `_discreet` raises again
        raise errors.TacitError(f"{FAILED}.") from error


def _describe(message: Message, client: FederatedClient) -> Message:
    """Reply with the name and, if clients are weighted, the number of rows that are trained on."""
    rows: int | None = None
    if client.config.weighted and client.silo is not None:
        with client.silo() as silo:
            rows = len(silo)
    elif client.config.weighted:
        rows = len(client.data)
    return Message(wire.description(client.name, rows), reply_to=message)


def _train(message: Message, context: Context, client: FederatedClient, keeper: Keeper) -> Message:
    if client.membership is not None:
        raise errors.InvalidData("client: a job of secure sums must not ask for a single update.")
    received, order = wire.received(message, client.model.layout)
    phase = client.algorithm.phases[order.phase]
    if message.metadata.message_type != f"train.{phase.name}":
        raise errors.InvalidData(f"client: the action must be train.{phase.name}.")
    kept: KeptStates | None = None
    state: State = {}
    if client.algorithm.state:
        kept = keeper.load(context, client.name, client.data)
        kept = kept.at(message.metadata.run_id, order.counted)
        state = kept.state
    rng = rounds.client_rng(order.seed, order.number, order.phase, order.client)
    if client.silo is None:
        config, model, data = client.config, client.model, client.data
        reply, after = _own(lambda: rounds.answer(phase, config, model, received, state, data, rng))
    else:
        with client.silo() as silo:
            _normalise(silo, message)
            reply, after = silo.answer(order.exchange, phase, received, state, rng)
    if kept is not None:
        keeper.save(context, client.name, client.data, kept.then(order.exchange, after))
    return Message(wire.answered(reply), reply_to=message)


def _secure(message: Message, context: Context, client: FederatedClient, keeper: Keeper) -> Message:
    if client.membership is None:
        raise errors.InvalidData("client: a job must be one of secure sums to ask this.")

    def states(order: wire.Order) -> tuple[State, Callable[[State], None]]:
        if not client.algorithm.state:
            return {}, lambda after: None
        kept = keeper.load(context, client.name, client.data)
        kept = kept.at(message.metadata.run_id, order.counted)

        def keep(after: State) -> None:
            keeper.save(context, client.name, client.data, kept.then(order.exchange, after))

        return kept.state, keep

    member, model, data = client.membership, client.model, client.data
    return secure_client.answer(message, context, member, model, data, states)


def _confusion(message: Message, client: FederatedClient) -> Message:
    received, _ = wire.received(message, client.model.layout)
    with client.guarded() as silo:
        _normalise(silo, message)
        counts = silo.evaluate(received["model"])
        return Message(wire.confusion(counts, _spent(silo)), reply_to=message)


def _normalise(silo: Silo, message: Message) -> None:
    """Normalise as the message says: a process that was just started has no state."""
    normalisation = wire.normalisation(message, silo.privacy.bounds)
    if normalisation is not None:
        silo.normalise(normalisation)


def _spent(silo: Silo) -> tuple[float, float]:
    return silo.spent, silo.privacy.delta


def _evaluate(message: Message, client: FederatedClient) -> Message:
    if client.silo is not None:
        raise errors.InvalidData("client: a silo must release only noisy counts.")
    received, _ = wire.received(message, client.model.layout)
    data = client.data
    loss, accuracy = _own(
        lambda: copy.deepcopy(client.model).evaluate(received["model"], data.rows, data.labels)
    )
    scores = MetricRecord({"loss": loss, "accuracy": accuracy})
    return Message(RecordDict({"scores": scores}), reply_to=message)
