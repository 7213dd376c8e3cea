"""Messages of a federation: orders of the server and replies of clients.

An order has a record of arrays ("model", and whatever else a phase sends) and one of settings. A
reply has a record of arrays by "part/parameter" and one with its weight. Reading an untrusted reply
never raises here: `tacit.federated.payload.decode` decides what counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from tacit.federated import flower
from tacit.federated.algorithms.client_updates import Global
from tacit.federated.payload import Layout
from tacit.federated.record_level.normalisation import (
    EVERYTHING,
    Bounds,
    Normalisation,
    SiloMoments,
)
from tacit.federated.rounds import Reply
from tacit.privacy import errors

DESCRIBE = "query.describe"
"""Asks a node for its name and, if clients are weighted by rows, its number of rows."""

STATISTICS, CONFUSION = "query.statistics", "evaluate.confusion"
"""Ask a silo for moments of its rows, and for a confusion matrix of its held-out rows."""
SPENT = "client: its budget must allow this exchange. It does not"
"""The refusal of a client with too little budget remaining."""

_ARRAYS, _ORDER, _WEIGHT, _INPUT, _STATED = "arrays", "order", "weight", "input", "stated"
_LARGEST = 2**53


class Order(NamedTuple):
    """The settings of an exchange, which a client gets besides arrays.

    Parameters
    ----------
    number, phase : int
        The round, from 1, and the phase in it, from 0.
    client : int
        Number of this client in the run.
    seed : int
        Seed of the order of rows.
    counted : int
        The last exchange in which this client's reply counted, 0 for none. The client continues
        from its state after that exchange.
    exchange : int
        Number of this exchange, counted from 1 through all rounds.
    """

    number: int
    phase: int
    client: int
    seed: int
    counted: int
    exchange: int


def sent(
    arrays: ArrayRecord, order: Order, normalisation: Normalisation | None = None
) -> RecordDict:
    """Build the content of a message to a client, with the normalisation of rows if any."""
    records: dict[str, Any] = {_ARRAYS: arrays, _ORDER: ConfigRecord({_ORDER: list(order)})}
    if normalisation is not None:
        parts = {"mean": normalisation.mean, "deviation": normalisation.deviation}
        records[_INPUT] = flower.array_record(parts)
    return flower.content(records)


def normalisation(message: Message, bounds: Bounds = EVERYTHING) -> Normalisation | None:
    """Read how a client should normalise its rows; the bounds are the client's own.

    Raises
    ------
    InvalidData
        If the server sent something else.
    """
    record = message.content.get(_INPUT)
    if record is None:
        return None
    arrays = flower.read_arrays(record) if isinstance(record, ArrayRecord) else {}
    if set(arrays) != {"mean", "deviation"}:
        raise errors.InvalidData("client: a normalisation must have a mean and a deviation.")
    return Normalisation(arrays["mean"], arrays["deviation"], bounds)  # type: ignore[arg-type]


def received(message: Message, layout: Layout) -> tuple[Global, Order]:
    """Read what the server sent; refuse arrays that do not fit the client's model."""
    arrays, order = message.content.get(_ARRAYS), message.content.get(_ORDER)
    if not isinstance(arrays, ArrayRecord) or not isinstance(order, ConfigRecord):
        raise errors.InvalidData("client: a message must have arrays and an order.")
    vectors = {}
    for name, array in flower.read_arrays(arrays).items():
        if array is None or array.shape != (layout.size,) or array.dtype != "float32":
            raise errors.InvalidData("client: the server's arrays must be those of this model.")
        vectors[name] = array
    return vectors, Order(*order[_ORDER])  # type: ignore[misc]


def number(message: Message) -> int | None:
    """Read the round that a message states to belong to; None if it states none."""
    order = message.content.get(_ORDER) if message.has_content() else None
    entries = order.get(_ORDER) if isinstance(order, ConfigRecord) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, int) else None


def answered(reply: Reply) -> RecordDict:
    """Build the content of a reply."""
    arrays = flower.array_record(reply.record)
    metrics: dict[str, Any] = {_WEIGHT: reply.weight}
    if reply.stated is not None:
        metrics[_STATED] = [float(number) for number in reply.stated]
    return flower.content({_ARRAYS: arrays, _WEIGHT: MetricRecord(metrics)})


def read_answer(message: Message) -> Reply:
    """Read an untrusted reply; what is missing or malformed is None, which no phase accepts."""
    arrays, weight = message.content.get(_ARRAYS), message.content.get(_WEIGHT)
    record = flower.read_arrays(arrays) if isinstance(arrays, ArrayRecord) else None
    number = weight.get(_WEIGHT) if isinstance(weight, MetricRecord) else None
    return Reply(record, number, stated(message))  # type: ignore[arg-type]


def stated(message: Message) -> Any:
    """Read the cost that a silo states; it is checked later."""
    metrics = message.content.get(_WEIGHT) if message.has_content() else None
    cost = metrics.get(_STATED) if isinstance(metrics, MetricRecord) else None
    return tuple(cost) if isinstance(cost, list) else cost


def moments(released: SiloMoments, spent: tuple[float, float]) -> RecordDict:
    """Build the reply of a silo that was asked for its moments."""
    arrays = flower.array_record({"mean": released.mean, "second": released.second})
    metrics = MetricRecord({"count": released.count, _STATED: list(spent)})
    return flower.content({_ARRAYS: arrays, _WEIGHT: metrics})


def read_moments(message: Message) -> SiloMoments | None:
    """Read untrusted moments; None if they are invalid."""
    arrays, metrics = _answer(message)
    count = metrics.get("count")
    if set(arrays) != {"mean", "second"} or not isinstance(count, int):
        return None
    try:
        return SiloMoments(arrays["mean"], arrays["second"], count)
    except errors.TacitError:
        return None


def confusion(counts: npt.NDArray[np.int64], spent: tuple[float, float]) -> RecordDict:
    """Build the reply of a silo that was asked for a confusion matrix."""
    arrays = flower.array_record({"confusion": counts})
    return flower.content({_ARRAYS: arrays, _WEIGHT: MetricRecord({_STATED: list(spent)})})


def read_confusion(message: Message, classes: int) -> npt.NDArray[np.int64] | None:
    """Read untrusted noisy counts, true by predicted class; None if they are invalid."""
    arrays, _ = _answer(message)
    counts = arrays.get("confusion")
    if counts is None or counts.shape != (classes, classes) or counts.dtype != np.int64:
        return None
    sound = bool(np.all((counts > -_LARGEST) & (counts < _LARGEST)))
    return counts if sound else None


def _answer(message: Message) -> tuple[dict[str, Any], Any]:
    """Read the arrays and numbers of a reply, if there are any."""
    if not message.has_content():
        return {}, {}
    arrays, metrics = message.content.get(_ARRAYS), message.content.get(_WEIGHT)
    read = flower.read_arrays(arrays) if isinstance(arrays, ArrayRecord) else {}
    return read, metrics if isinstance(metrics, MetricRecord) else {}


def refusal(message: Message) -> str:
    """Return why a client refused, if it states a reason, to append to an error."""
    reason = str(message.error.reason) if message.has_error() else ""
    _, stated_reason, text = reason.partition("client: ")
    kept = "".join(letter for letter in text[:120] if letter.isprintable())
    return f" and a refusal ({kept.split(chr(39) + '>')[0]})" if stated_reason else ""


def spent(message: Message) -> bool:
    """Return whether a client states that it cannot pay."""
    return message.has_error() and SPENT in str(message.error.reason)


def description(name: str, rows: int | None) -> RecordDict:
    """Build a node's description of itself."""
    entries: dict[str, str | int] = {"name": name} | ({} if rows is None else {"rows": rows})
    return RecordDict({"node": ConfigRecord(dict(entries))})


def read_description(message: Message) -> tuple[str, int] | None:
    """Read name and number of rows, 1 if it is not stated; None if invalid."""
    entries = message.content.get("node") if message.has_content() else None
    if not isinstance(entries, ConfigRecord):
        return None
    name, rows = entries.get("name"), entries.get("rows", 1)
    fits = isinstance(name, str) and isinstance(rows, int) and not isinstance(rows, bool)
    return (str(name), int(rows)) if fits and rows > 0 else None  # type: ignore[operator,arg-type]
