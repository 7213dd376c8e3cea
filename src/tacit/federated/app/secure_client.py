"""A client's part in secure sums over a grid.

The first step trains on the client's rows, clips and encodes the update, and adds the client's
share of the noise; only the masked vector ever leaves. Between steps the client's keys and its
vector are in the app's context, since Flower may start a process for every message. They are gone
after the last step, and after any refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, Context, Message

from tacit.federated import payload, rounds
from tacit.federated.algorithms.client_updates import State
from tacit.federated.app import secure_wire, wire
from tacit.federated.app.secure_wire import Step
from tacit.federated.client_level.noisy_sum import NoisySum, Setting
from tacit.federated.model import Data, Model
from tacit.federated.payload import Vector
from tacit.federated.secure.client import Client, Stage
from tacit.federated.secure.participant import Participant, Terms
from tacit.federated.secure.primitives import Refused, SigningKey
from tacit.federated.secure.session import Roster, Session
from tacit.privacy import errors
from tacit.privacy.randomness import source

Integers = npt.NDArray[np.int64]
States = Callable[[wire.Order], tuple[State, Callable[[State], None]]]
"""Returns the algorithm's state for an order, and a function that keeps the next one."""

_KEPT = "tacit.secure"


def unpaid(run: str, number: int) -> None:
    """Charge nothing: for clients without a ledger."""
    return None


@dataclass(frozen=True)
class Membership:
    """What a client has joined: agreed on with its owner, never taken from the server.

    Parameters
    ----------
    setting : Setting
        Algorithm, settings, clip norms, clients and noise.
    roster : Roster
        The long-term public keys of all clients.
    number : int
        The client's number on the roster.
    identity : private key
        Its long-term key.
    terms : Terms
        The owner's terms.
    pay : callable
        Called with run and number of a sum before anything is computed; raises if that cannot be
        paid, or was paid before.
    """

    setting: Setting
    roster: Roster
    number: int
    identity: SigningKey
    terms: Terms
    pay: Callable[[str, int], None] = unpaid


def answer(
    message: Message,
    context: Context,
    membership: Membership,
    model: Model,
    data: Data,
    states: States,
) -> Message:
    """Answer one step of a secure sum."""
    step, run = secure_wire.read_asked(message), str(message.metadata.run_id)
    known = _known(context, run)
    # Forgotten until this step has its answer: whatever is refused ends the sum for this client.
    context.state[_KEPT] = ConfigRecord({"run": run, "seen": _seen(known)})
    try:
        if step.stage is Stage.KEYS:
            client, vector = _begun(message, context, membership, step, model, data, states)
            reply = client.keys()
        else:
            client, vector = _resumed(membership, run, step, known)
            reply = _next(client, step, vector)
    except Refused as refused:
        raise errors.InvalidData(f"client: {refused}") from None
    if client.stage is not Stage.OVER:
        context.state[_KEPT] = _record(client, vector)
    return Message(secure_wire.answered(reply), reply_to=message)


def _begun(
    message: Message,
    context: Context,
    membership: Membership,
    step: Step,
    model: Model,
    data: Data,
    states: States,
) -> tuple[Client, Integers]:
    """Begin a sum: pay, train, encode, and add noise."""
    received, order = wire.received(message, model.layout)
    setting, run = membership.setting, str(message.metadata.run_id)
    if not 0 <= order.phase < len(setting.algorithm.phases) or step.number > setting.plan.sums:
        raise errors.InvalidData("client: a sum must be one of those that were planned.")
    one = setting.sum_of(setting.algorithm.phases[order.phase], run, step.number, received)
    setup, roster = setting.plan.setup(), membership.roster
    client = Participant(
        setup,
        roster,
        run,
        membership.number,
        membership.identity,
        membership.terms,
        _seen(_known(context, run)),
    ).begin(step.number, one.about)
    context.state[_KEPT] = ConfigRecord({"run": run, "seen": step.number})
    membership.pay(run, step.number)
    state, keep = states(order)
    rng = rounds.client_rng(order.seed, order.number, order.phase, order.client)
    update = None
    # Whatever the model raises: that this client was silent would tell the server of its rows.
    try:
        reply, after = rounds.answer(one.phase, setting.config, model, received, state, data, rng)
        update = _update(one, reply, model)
    except BaseException:  # what a signal brought, the client app raises again
        after = state
    keep(after)
    return client, one.vector(update, source(None))


def _update(one: NoisySum, reply: rounds.Reply, model: Model) -> Vector | None:
    """Return the update in a reply; None for one that the server of plain sums would refuse."""
    read = payload.decode(reply.record, 1.0, one.phase.parts, model.layout)
    return read.parts[one.part] if isinstance(read, payload.Payload) else None


def _next(client: Client, step: Step, vector: Integers) -> bytes:
    """Take one of the later steps."""
    if step.stage is Stage.SHARES:
        return client.shares(step.sent)
    if step.stage is Stage.MASKED:
        return client.masked(step.sent, vector)
    if step.stage is Stage.CONSISTENT:
        return client.consistent(step.sent)
    return client.unmask(step.sent)


def _resumed(
    membership: Membership, run: str, step: Step, known: Mapping[str, object]
) -> tuple[Client, Integers]:
    """Continue a sum from what is in the context."""
    about, state, vector = (known.get(name) for name in ("about", "state", "vector"))
    if step.number != known.get("seen") or not (
        isinstance(about, bytes) and isinstance(state, bytes) and isinstance(vector, bytes)
    ):
        raise Refused("secure sum: a step must continue the sum that was begun last.")
    setup, roster = membership.setting.plan.setup(), membership.roster
    session = Session(setup, roster, run, step.number, about)
    client = Client(session, membership.number, membership.identity)
    client.resume(state)
    return client, np.frombuffer(vector, dtype="<i8").astype(np.int64)


def _known(context: Context, run: str) -> Mapping[str, object]:
    """Return what the context keeps of this run."""
    record = context.state.get(_KEPT)
    there = isinstance(record, ConfigRecord) and record.get("run") == run
    return dict(record) if there and isinstance(record, ConfigRecord) else {}


def _seen(known: Mapping[str, object]) -> int:
    """Return the last sum that this client began; 0 if there was none."""
    seen = known.get("seen", 0)
    return seen if isinstance(seen, int) else 0


def _record(client: Client, vector: Integers) -> ConfigRecord:
    """Return what the context keeps until the next step; the vector until it is masked."""
    session = client.session
    later = vector if client.stage <= Stage.MASKED else vector[:0]
    return ConfigRecord(
        {
            "run": session.run,
            "seen": session.number,
            "about": session.about,
            "state": client.suspended(),
            "vector": later.astype("<i8").tobytes(),
        }
    )
