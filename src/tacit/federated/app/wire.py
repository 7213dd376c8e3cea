"""Messages of a federation: what the server asks, what a client answers.

An order has a record of arrays ("model", and what else a phase sends) and one of settings. An
answer has a record of arrays by "part/parameter" and one with its weight. Whatever a client wrote
is read without an error here: `tacit.federated.payload.decode` decides what counts.
"""

from __future__ import annotations

from typing import NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from tacit import errors
from tacit.federated import flower
from tacit.federated.local import Global
from tacit.federated.payload import Layout
from tacit.federated.rounds import Reply

DESCRIBE = "query.describe"
"""Asks a node for its name and, where clients count by their rows, how many it has."""

_ARRAYS, _ORDER, _WEIGHT = "arrays", "order", "weight"


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


def sent(arrays: ArrayRecord, order: Order) -> RecordDict:
    """The content of a message to a client."""
    return flower.content({_ARRAYS: arrays, _ORDER: ConfigRecord({_ORDER: list(order)})})


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


def answered(reply: Reply) -> RecordDict:
    """The content of an answer."""
    arrays = flower.array_record(reply.record)
    return flower.content({_ARRAYS: arrays, _WEIGHT: MetricRecord({_WEIGHT: reply.weight})})


def read_answer(message: Message) -> Reply:
    """An answer from anyone; what is missing or malformed is None, which no phase accepts."""
    arrays, weight = message.content.get(_ARRAYS), message.content.get(_WEIGHT)
    record = flower.read_arrays(arrays) if isinstance(arrays, ArrayRecord) else None
    number = weight.get(_WEIGHT) if isinstance(weight, MetricRecord) else None
    return Reply(record, number)  # type: ignore[arg-type]


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
