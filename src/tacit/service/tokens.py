"""Tokens, keys and receipts: what is handed out, and the keyed hashes that are kept of it.

A token has 192 random bits. The database holds a hash of it under a secret that is not in the
database, another one for the report than for the vote, and a receipt names a row under the same
secret: without it, neither tokens nor receipts lead to rows, or tell which belong together.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tacit import errors

ROW_BYTES, MAC_BYTES = 16, 16
_TOKEN_BYTES, _SECRET_BYTES = 24, 32
_RECEIPT = re.compile(f"[rv][0-9a-f]{{{2 * (ROW_BYTES + MAC_BYTES)}}}")
LONGEST = 128
"""Characters of a token, key or receipt that is looked at."""


def new() -> str:
    """A token or a key."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


@dataclass(frozen=True, repr=False)
class Secret:
    """The key of all hashes; it lives beside the database, never in it."""

    key: bytes

    def __post_init__(self) -> None:
        if len(self.key) != _SECRET_BYTES:
            raise errors.InvalidParameter(
                f"secret: it must be {_SECRET_BYTES} bytes. Take the file that the campaign "
                "began with."
            )

    @classmethod
    def of_file(cls, path: Path) -> Secret:
        """Read it, or make one that only this user can read."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return cls(path.read_bytes())
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        return cls(path.read_bytes())

    def row(self, campaign: str, kind: str, token: str) -> bytes:
        """Where the invitation, the report or the vote of a token is kept."""
        return self._hash(self._rows, campaign, kind, token)

    def owner(self, campaign: str, key: str) -> bytes:
        """What is kept of an owner's key."""
        return self._hash(self._keyed(b"owner", 32), campaign, key)

    def mark(self) -> bytes:
        """Tells one secret from another, and nothing else."""
        return self._hash(self._keyed(b"mark", 16))

    def receipt(self, campaign: str, kind: str, row: bytes) -> str:
        """Names a row to whoever has the secret, and is not to be had without it."""
        mac = self._mac(campaign, kind, row)
        return kind[0] + (self._hidden(row, mac) + mac).hex()

    def row_of(self, campaign: str, kind: str, receipt: str) -> bytes | None:
        """The row that a receipt of this kind names; None for what was never handed out."""
        if not _RECEIPT.fullmatch(receipt) or receipt[0] != kind[0]:
            return None
        content = bytes.fromhex(receipt[1:])
        mac = content[ROW_BYTES:]
        row = self._hidden(content[:ROW_BYTES], mac)
        return row if hmac.compare_digest(mac, self._mac(campaign, kind, row)) else None

    def _hidden(self, row: bytes, mac: bytes) -> bytes:
        """The row under a pad that only the secret gives; the same again brings it back."""
        pad = self._pads.copy()
        pad.update(mac)
        return (int.from_bytes(row) ^ int.from_bytes(pad.digest())).to_bytes(ROW_BYTES)

    def _mac(self, campaign: str, kind: str, row: bytes) -> bytes:
        made = self._receipts.copy()
        made.update(f"{campaign}\0{kind}\0".encode() + row)
        return made.digest()

    @cached_property
    def _rows(self) -> hashlib.blake2b:
        return self._keyed(b"row", ROW_BYTES)

    @cached_property
    def _receipts(self) -> hashlib.blake2b:
        return self._keyed(b"receipt", MAC_BYTES)

    @cached_property
    def _pads(self) -> hashlib.blake2b:
        return self._keyed(b"pad", ROW_BYTES)

    def _keyed(self, purpose: bytes, size: int) -> hashlib.blake2b:
        return hashlib.blake2b(digest_size=size, key=self.key, person=purpose)

    @staticmethod
    def _hash(keyed: hashlib.blake2b, *parts: str) -> bytes:
        made = keyed.copy()
        # A separator that is in no part: ("ab", "c") and ("a", "bc") must differ.
        made.update("\0".join(parts).encode("utf-8", "surrogatepass"))
        return made.digest()
