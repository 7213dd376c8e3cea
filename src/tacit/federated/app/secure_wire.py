"""Messages of secure sums over a grid: the steps of `tacit.federated.secure` as bytes in a record.

The first message of a sum has the arrays and the order of a training exchange beside it.
"""

from __future__ import annotations

from typing import NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from tacit.federated import flower
from tacit.federated.app import wire
from tacit.federated.secure.client import Stage
from tacit.privacy import errors

ACTION = "train.secure"
_SECURE = "secure"


class Step(NamedTuple):
    """One step of one sum: its number in the run, what is asked, and the server's message."""

    number: int
    stage: Stage
    sent: bytes


def asked(
    step: Step, arrays: ArrayRecord | None = None, order: wire.Order | None = None
) -> RecordDict:
    """Build the content of a message to a client."""
    entries: dict[str, int | bytes] = {"number": step.number, "sent": step.sent}
    entries["stage"] = int(step.stage)
    content = RecordDict() if arrays is None or order is None else wire.sent(arrays, order)
    content[_SECURE] = ConfigRecord({**entries})
    return content


def read_asked(message: Message) -> Step:
    """Read the step that a client is asked for.

    Raises
    ------
    InvalidData
        If the server sent something else.
    """
    record = message.content.get(_SECURE)
    entries = dict(record) if isinstance(record, ConfigRecord) else {}
    number, stage, sent = (entries.get(name) for name in ("number", "stage", "sent"))
    if (
        not isinstance(number, int)
        or isinstance(number, bool)
        or not isinstance(sent, bytes)
        or stage not in list(Stage)[:-1]
        or number < 1
    ):
        raise errors.InvalidData("client: a message must be a step of a secure sum.")
    return Step(number, Stage(stage), sent)  # type: ignore[arg-type]


def answered(reply: bytes) -> RecordDict:
    """Build the content of a client's reply."""
    return flower.content({_SECURE: ConfigRecord({"reply": reply})})


def read_answer(message: Message) -> bytes:
    """Read an untrusted reply; b"" if there is none."""
    record = message.content.get(_SECURE) if message.has_content() else None
    reply = record.get("reply") if isinstance(record, ConfigRecord) else None
    return reply if isinstance(reply, bytes) else b""
