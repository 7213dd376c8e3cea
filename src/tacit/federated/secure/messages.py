"""The messages of a secure sum, as bytes of a fixed form.

Each begins with a byte for its kind and the context of its session. Reading one either gives values
of the stated form or raises `Refused`; nothing else is ever raised, whatever the bytes are. Lists
are in strictly increasing order, so that nobody is named twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from tacit.federated.secure.primitives import KEY, LARGEST_SIGNATURE, TAG, Refused, digest
from tacit.federated.secure.shamir import BYTES

T = TypeVar("T")

SEALED = 2 * BYTES + TAG
"""Bytes of two shares, encrypted."""


class Kind(IntEnum):
    """What a message is."""

    KEYS = 1
    ADVERTISED = 2
    SHARES = 3
    DELIVERED = 4
    MASKED = 5
    SURVIVORS = 6
    CONSISTENT = 7
    SIGNATURES = 8
    UNMASK = 9


OWN, PAIR = 0, 1
"""Which secret a share is of: that of a survivor's own mask, or that of a lost client's pairs."""


@dataclass(frozen=True)
class Keys:
    """A client's public keys for one session, signed with its long-term key."""

    sender: int
    sealing: bytes
    masking: bytes
    commitment: bytes
    """Hash of the seed of its own mask."""
    signature: bytes

    def signed(self, context: bytes) -> bytes:
        """Return what the signature is of."""
        sender = self.sender.to_bytes(4, "big")
        return digest("keys", context, sender, self.sealing, self.masking, self.commitment)

    def encode(self, context: bytes) -> bytes:
        """Return the message."""
        body = self.sealing + self.masking + self.commitment
        return opening(Kind.KEYS, context, self.sender) + body + _sized(self.signature)


def read_keys(content: object, context: bytes) -> Keys:
    """Read a message of public keys."""
    reader = Reader(content, Kind.KEYS, context)
    sender, sealing, masking = reader.number(), reader.take(KEY), reader.take(KEY)
    keys = Keys(sender, sealing, masking, reader.take(KEY), reader.sized())
    reader.end()
    return keys


def opening(kind: Kind, context: bytes, *numbers: int) -> bytes:
    """Return the first bytes of a message."""
    return bytes([kind]) + context + b"".join(number.to_bytes(4, "big") for number in numbers)


def listed(entries: Mapping[int, bytes]) -> bytes:
    """Encode entries of one length by number, in increasing order."""
    parts = [len(entries).to_bytes(4, "big")]
    parts += [number.to_bytes(4, "big") + entries[number] for number in sorted(entries)]
    return b"".join(parts)


def survivors_of(numbers: Iterable[int]) -> bytes:
    """Encode a list of clients; this is what clients sign."""
    return listed(dict.fromkeys(numbers, b""))


def advertised(context: bytes, digests: Mapping[int, bytes], keys: Mapping[int, bytes]) -> bytes:
    """Encode the digests of all members' keys, and the keys of a client's neighbours."""
    return (
        opening(Kind.ADVERTISED, context)
        + listed(digests)
        + listed({number: _sized(message) for number, message in keys.items()})
    )


def read_advertised(
    content: object, context: bytes, clients: int
) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Read digests of members' keys and messages of neighbours."""
    reader = Reader(content, Kind.ADVERTISED, context)
    digests = reader.entries(clients, lambda: reader.take(KEY))
    keys = reader.entries(clients, lambda: reader.sized(2 * LARGEST_SIGNATURE + 4 * KEY))
    reader.end()
    return digests, keys


def shares(context: bytes, sender: int, sealed: Mapping[int, bytes]) -> bytes:
    """Encode a client's encrypted shares, by holder."""
    return opening(Kind.SHARES, context, sender) + listed(sealed)


def delivered(context: bytes, sealed: Mapping[int, bytes]) -> bytes:
    """Encode the encrypted shares for one holder, by owner."""
    return opening(Kind.DELIVERED, context) + listed(sealed)


def read_sealed(content: object, kind: Kind, context: bytes, clients: int) -> dict[int, bytes]:
    """Read encrypted shares by holder (`SHARES`, after its sender) or by owner (`DELIVERED`)."""
    reader = Reader(content, kind, context)
    if kind is Kind.SHARES:
        reader.number()
    sealed = reader.entries(clients, lambda: reader.take(SEALED))
    reader.end()
    return sealed


def masked(context: bytes, sender: int, packed: bytes) -> bytes:
    """Encode a masked vector."""
    return opening(Kind.MASKED, context, sender) + packed


def read_masked(content: object, context: bytes) -> bytes:
    """Read a masked vector, still packed."""
    reader = Reader(content, Kind.MASKED, context)
    reader.number()
    return reader.rest()


def survivors(context: bytes, numbers: Iterable[int]) -> bytes:
    """Encode the list of those whose vectors arrived."""
    return opening(Kind.SURVIVORS, context) + survivors_of(numbers)


def read_survivors(content: object, context: bytes, clients: int) -> list[int]:
    """Read the list of those whose vectors arrived."""
    reader = Reader(content, Kind.SURVIVORS, context)
    numbers = reader.entries(clients, lambda: b"")
    reader.end()
    return list(numbers)


def consistent(context: bytes, sender: int, signature: bytes) -> bytes:
    """Encode a client's signature on the list of survivors."""
    return opening(Kind.CONSISTENT, context, sender) + _sized(signature)


def read_consistent(content: object, context: bytes) -> bytes:
    """Read a signature on the list of survivors."""
    reader = Reader(content, Kind.CONSISTENT, context)
    reader.number()
    signature = reader.sized()
    reader.end()
    return signature


def signatures(context: bytes, signed: Mapping[int, bytes]) -> bytes:
    """Encode the signatures on the list of survivors, by signer."""
    sized = {number: _sized(signature) for number, signature in signed.items()}
    return opening(Kind.SIGNATURES, context) + listed(sized)


def read_signatures(content: object, context: bytes, clients: int) -> dict[int, bytes]:
    """Read the signatures on the list of survivors."""
    reader = Reader(content, Kind.SIGNATURES, context)
    signed = reader.entries(clients, reader.sized)
    reader.end()
    return signed


def unmask(context: bytes, sender: int, given: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Encode one share per owner, and which secret it is of."""
    entries = {owner: bytes([which]) + share for owner, (which, share) in given.items()}
    return opening(Kind.UNMASK, context, sender) + listed(entries)


def read_unmask(content: object, context: bytes, clients: int) -> dict[int, tuple[int, bytes]]:
    """Read shares by owner."""
    reader = Reader(content, Kind.UNMASK, context)
    reader.number()
    given = reader.entries(clients, lambda: (reader.byte(), reader.take(BYTES)))
    reader.end()
    return given


def sender_of(content: object) -> int | None:
    """Return the sender that a client's message states; None if there is none."""
    if not isinstance(content, bytes) or len(content) < 1 + KEY + 4:
        return None
    return int.from_bytes(content[1 + KEY : 5 + KEY], "big")


class Reader:
    """A reader of one message, which raises `Refused` wherever it is not of its form."""

    def __init__(self, content: object, kind: Kind, context: bytes) -> None:
        self._content = content if isinstance(content, bytes) else b""
        self._at = 0
        if self.byte() != kind:
            raise Refused(f"secure sum: a message must be one of kind {kind.name}.")
        if self.take(KEY) != context:
            raise Refused(
                "secure sum: a message must be of this session: of the same model, configuration, "
                "round and roster."
            )

    def take(self, count: int) -> bytes:
        """Read this many bytes."""
        end = self._at + count
        if end > len(self._content):
            raise Refused("secure sum: a message must be complete.")
        part, self._at = self._content[self._at : end], end
        return part

    def byte(self) -> int:
        """Read one byte."""
        return self.take(1)[0]

    def number(self) -> int:
        """Read a number of four bytes."""
        return int.from_bytes(self.take(4), "big")

    def sized(self, most: int = LARGEST_SIGNATURE) -> bytes:
        """Read bytes with their length in front."""
        size = int.from_bytes(self.take(2), "big")
        if size > most:
            raise Refused("secure sum: a part of a message must be of its size.")
        return self.take(size)

    def entries(self, clients: int, read: Callable[[], T]) -> dict[int, T]:
        """Read a list of clients in strictly increasing order, each with what belongs to it."""
        count = self.number()
        if count > clients:
            raise Refused("secure sum: a list must name each client once.")
        found: dict[int, T] = {}
        last = -1
        for _ in range(count):
            number = self.number()
            if not last < number < clients:
                raise Refused("secure sum: a list must name clients of the roster, in order.")
            found[number], last = read(), number
        return found

    def rest(self) -> bytes:
        """Read all that is left."""
        return self.take(len(self._content) - self._at)

    def end(self) -> None:
        """Refuse anything that is left."""
        if self._at != len(self._content):
            raise Refused("secure sum: a message must end where its form does.")


def _sized(part: bytes) -> bytes:
    return len(part).to_bytes(2, "big") + part
