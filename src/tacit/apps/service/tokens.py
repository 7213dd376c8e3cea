"""Tokens, keys and receipts: what is handed out, and the keyed hashes that are kept of it.

A token has 192 random bits. The database holds a hash of it under a secret that is not in the
database, another one for the report than for the vote, and a receipt names a row under the same
secret: without it, neither tokens nor receipts lead to rows, or tell which belong together.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.privacy import errors, files

ROW_BYTES = 16
_TOKEN_BYTES, _SECRET_BYTES = 24, 32
_RECEIPT = re.compile(f"[rv][0-9a-f]{{{4 * ROW_BYTES}}}")
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
        return cls(files.keep_first(path, secrets.token_bytes(_SECRET_BYTES)))

    def rows(self, campaign: str, words: Sequence[str]) -> list[tuple[bytes, bytes, bytes]]:
        """Where invitation, report and vote of each token are kept: parts of one hash."""
        begun = self._keyed(b"token", 3 * ROW_BYTES)
        begun.update(_text(campaign, ""))
        found = []
        for word in words:
            made = begun.copy()
            made.update(_text(word))
            row = made.digest()
            found.append((row[:ROW_BYTES], row[ROW_BYTES : 2 * ROW_BYTES], row[2 * ROW_BYTES :]))
        return found

    def owner(self, campaign: str, key: str) -> bytes:
        """What is kept of an owner's key."""
        return self._hash(self._keyed(b"owner", 32), campaign, key)

    def mark(self) -> bytes:
        """Tells one secret from another, and nothing else."""
        return self._hash(self._keyed(b"mark", 16))

    def receipts(self, campaign: str, kind: str, rows: Sequence[bytes]) -> list[str]:
        """Name rows to whoever has the secret, and are not to be had without it.

        A row is one block of AES, and a hash: no two are alike. Under one key it is hidden, under
        another it is marked as ours.
        """
        hide, mark = (cipher.encryptor() for cipher in self._ciphers(campaign, kind))
        joined = b"".join(rows)
        hidden, marked = hide.update(joined).hex(), mark.update(joined).hex()
        size = 2 * ROW_BYTES
        return [
            f"{kind[0]}{hidden[at : at + size]}{marked[at : at + size]}"
            for at in range(0, len(hidden), size)
        ]

    def row_of(self, campaign: str, kind: str, receipt: str) -> bytes | None:
        """The row that a receipt of this kind names; None for what was never handed out."""
        if not _RECEIPT.fullmatch(receipt) or receipt[0] != kind[0]:
            return None
        hide, _ = self._ciphers(campaign, kind)
        row = hide.decryptor().update(bytes.fromhex(receipt[1 : 1 + 2 * ROW_BYTES]))
        (ours,) = self.receipts(campaign, kind, [row])
        return row if hmac.compare_digest(ours, receipt) else None

    def _ciphers(self, campaign: str, kind: str) -> tuple[Any, Any]:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        keys = self._hash(self._keyed(b"receipt", 64), campaign, kind)
        first, second = (Cipher(algorithms.AES(key), modes.ECB()) for key in (keys[:32], keys[32:]))
        return first, second

    def _keyed(self, purpose: bytes, size: int) -> hashlib.blake2b:
        return hashlib.blake2b(digest_size=size, key=self.key, person=purpose)

    @staticmethod
    def _hash(keyed: hashlib.blake2b, *parts: str) -> bytes:
        keyed.update(_text(*parts))
        return keyed.digest()


def _text(*parts: str) -> bytes:
    # A separator that is in no part: ("ab", "c") and ("a", "bc") must differ.
    return "\0".join(parts).encode("utf-8", "surrogatepass")
