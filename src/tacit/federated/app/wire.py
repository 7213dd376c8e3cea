"""Messages of a federation: what the server asks, what a client answers.

An order has a record of arrays ("model", and what else a phase sends) and one of settings. An
answer has a record of arrays by "part/parameter" and one with its weight. Whatever a client wrote
is read without an error here: `tacit.federated.payload.decode` decides what counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from tacit.federated import flower
from tacit.federated.algorithms.client_updates import Global
from tacit.federated.payload import Layout
from tacit.federated.record_level.normalisation import EVERYTHING, Bounds, Moments, Normalisation
from tacit.federated.rounds import Reply
from tacit.privacy import errors

DESCRIBE = "query.describe"
"""Asks a node for its name and, where clients count by their rows, how many it has."""

STATISTICS, CONFUSION = "query.statistics", "evaluate.confusion"
"""Ask a silo for moments of its rows, and for answers of a model on rows that it held out."""
SPENT = "client: its budget must allow this exchange. It does not"
"""What a client says that has nothing left to pay with."""

_ARRAYS, _ORDER, _WEIGHT, _INPUT, _STATED = "arrays", "order", "weight", "input", "stated"
_LARGEST = 2**53


class Order(NamedTuple):
    """What a client needs to know besides arrays.

    Parameters
    ----------
    number, phase : int
        The round, from 1, and the phase in it, from 0.
    client : int
        What this client is called in the run.
    seed : int
        Of the order of rows.
    counted : int
        The last exchange of which this client's answer counted, 0 for none: its state after that
        one is the state to go on from.
    exchange : int
        This exchange; they are numbered from 1 through all rounds.
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
    """The content of a message to a client; the normalisation of rows goes with each."""
    given: dict[str, Any] = {_ARRAYS: arrays, _ORDER: ConfigRecord({_ORDER: list(order)})}
    if normalisation is not None:
        parts = {"mean": normalisation.mean, "deviation": normalisation.deviation}
        given[_INPUT] = flower.array_record(parts)
    return flower.content(given)


def normalisation(message: Message, bounds: Bounds = EVERYTHING) -> Normalisation | None:
    """How a client is to normalise its rows, held to bounds that it knows itself.

    Raises
    ------
    InvalidData
        If the server sent something else.
    """
    given = message.content.get(_INPUT)
    if given is None:
        return None
    found = flower.read_arrays(given) if isinstance(given, ArrayRecord) else {}
    if set(found) != {"mean", "deviation"}:
        raise errors.InvalidData("client: a normalisation must have a mean and a deviation.")
    return Normalisation(found["mean"], found["deviation"], bounds)  # type: ignore[arg-type]


def received(message: Message, layout: Layout) -> tuple[Global, Order]:
    """What the server sent. A client refuses what is not for its model."""
    arrays, order = message.content.get(_ARRAYS), message.content.get(_ORDER)
    if not isinstance(arrays, ArrayRecord) or not isinstance(order, ConfigRecord):
        raise errors.InvalidData("client: a message must have arrays and an order.")
    found = {}
    for name, array in flower.read_arrays(arrays).items():
        if array is None or array.shape != (layout.size,) or array.dtype != "float32":
            raise errors.InvalidData("client: the server's arrays must be those of this model.")
        found[name] = array
    return found, Order(*order[_ORDER])  # type: ignore[misc]


def number(message: Message) -> int | None:
    """The round that a message belongs to, as the server says; None where it does not."""
    order = message.content.get(_ORDER) if message.has_content() else None
    told = order.get(_ORDER) if isinstance(order, ConfigRecord) else None
    first = told[0] if isinstance(told, list) and told else None
    return first if isinstance(first, int) else None


def answered(reply: Reply) -> RecordDict:
    """The content of an answer."""
    arrays = flower.array_record(reply.record)
    told: dict[str, Any] = {_WEIGHT: reply.weight}
    if reply.stated is not None:
        told[_STATED] = [float(number) for number in reply.stated]
    return flower.content({_ARRAYS: arrays, _WEIGHT: MetricRecord(told)})


def read_answer(message: Message) -> Reply:
    """An answer from anyone; what is missing or malformed is None, which no phase accepts."""
    arrays, weight = message.content.get(_ARRAYS), message.content.get(_WEIGHT)
    record = flower.read_arrays(arrays) if isinstance(arrays, ArrayRecord) else None
    number = weight.get(_WEIGHT) if isinstance(weight, MetricRecord) else None
    return Reply(record, number, stated(message))  # type: ignore[arg-type]


def stated(message: Message) -> Any:
    """What a silo says that it has spent; whether that makes sense is looked at later."""
    told = message.content.get(_WEIGHT) if message.has_content() else None
    found = told.get(_STATED) if isinstance(told, MetricRecord) else None
    return tuple(found) if isinstance(found, list) else found


def moments(found: Moments, spent: tuple[float, float]) -> RecordDict:
    """What a silo answers that was asked for its moments."""
    arrays = flower.array_record({"mean": found.mean, "second": found.second})
    told = MetricRecord({"count": found.count, _STATED: list(spent)})
    return flower.content({_ARRAYS: arrays, _WEIGHT: told})


def read_moments(message: Message) -> Moments | None:
    """Moments from anyone; None where they are none."""
    arrays, told = _answer(message)
    count = told.get("count")
    if set(arrays) != {"mean", "second"} or not isinstance(count, int):
        return None
    try:
        return Moments(arrays["mean"], arrays["second"], count)
    except errors.TacitError:
        return None


def confusion(counts: npt.NDArray[np.int64], spent: tuple[float, float]) -> RecordDict:
    """What a silo answers that was asked for its answers on rows that it held out."""
    arrays = flower.array_record({"confusion": counts})
    return flower.content({_ARRAYS: arrays, _WEIGHT: MetricRecord({_STATED: list(spent)})})


def read_confusion(message: Message, classes: int) -> npt.NDArray[np.int64] | None:
    """Noisy counts from anyone, truth by prediction; None where they are none."""
    arrays, _ = _answer(message)
    counts = arrays.get("confusion")
    if counts is None or counts.shape != (classes, classes) or counts.dtype != np.int64:
        return None
    sound = bool(np.all((counts > -_LARGEST) & (counts < _LARGEST)))
    return counts if sound else None


def _answer(message: Message) -> tuple[dict[str, Any], Any]:
    """Arrays and numbers of an answer, as far as there are any."""
    if not message.has_content():
        return {}, {}
    arrays, told = message.content.get(_ARRAYS), message.content.get(_WEIGHT)
    read = flower.read_arrays(arrays) if isinstance(arrays, ArrayRecord) else {}
    return read, told if isinstance(told, MetricRecord) else {}


def refusal(message: Message) -> str:
    """Why a client did not answer, as far as it says so, to append to an error."""
    reason = str(message.error.reason) if message.has_error() else ""
    _, found, text = reason.partition("client: ")
    kept = "".join(letter for letter in text[:120] if letter.isprintable())
    return f" and a refusal ({kept.split(chr(39) + '>')[0]})" if found else ""


def spent(message: Message) -> bool:
    """Whether a client says that it cannot pay."""
    return message.has_error() and SPENT in str(message.error.reason)


def description(name: str, rows: int | None) -> RecordDict:
    """What a node says of itself."""
    told: dict[str, str | int] = {"name": name} | ({} if rows is None else {"rows": rows})
    return RecordDict({"node": ConfigRecord(dict(told))})


def read_description(message: Message) -> tuple[str, int] | None:
    """Name and rows, 1 where they are not told; None for anything else."""
    told = message.content.get("node") if message.has_content() else None
    if not isinstance(told, ConfigRecord):
        return None
    name, rows = told.get("name"), told.get("rows", 1)
    fits = isinstance(name, str) and isinstance(rows, int) and not isinstance(rows, bool)
    return (str(name), int(rows)) if fits and rows > 0 else None  # type: ignore[operator,arg-type]
