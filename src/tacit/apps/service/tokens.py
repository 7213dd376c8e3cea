"""Tokens, keys and receipts, and the keyed hashes of them that the database holds.

A token has 192 random bits, and a mark that takes the secret to make: invented tokens are refused
without asking the database. The database holds keyed hashes of a token, a different one for the
report than for the vote; the key is a secret that is not in the database. A receipt names a row
under the same secret. Without the secret, neither tokens nor receipts lead to rows or show which
rows belong together.
"""

from __future__ import annotations

import base64
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
_TOKEN_BYTES, _MARK_BYTES, _SECRET_BYTES = 24, 9, 32
_UNMARKED = 4 * _TOKEN_BYTES // 3
"""Characters of a token without a mark, as earlier versions made them."""
_RECEIPT = re.compile(f"[rv][0-9a-f]{{{4 * ROW_BYTES}}}")
KEY = re.compile(f"[A-Za-z0-9_-]{{{_UNMARKED}}}")
"""What `new` makes, which keys must look like: a short one could be guessed."""
LONGEST = 128
"""Largest number of characters in a token, key or receipt; longer ones are refused unread."""


def new() -> str:
    """Make a token or a key."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


@dataclass(frozen=True, repr=False)
class Secret:
    """The key of all hashes; it is stored beside the database, never in it."""

    key: bytes

    def __post_init__(self) -> None:
        if len(self.key) != _SECRET_BYTES:
            raise errors.InvalidParameter(
                f"secret: the file must hold {_SECRET_BYTES} bytes, got {len(self.key)}. Use the "
                "file that the database was created with."
            )

    @classmethod
    def of_file(cls, path: Path) -> Secret:
        """Read the secret, or make one in a file that only this user can read."""
        return cls(files.keep_first(path, secrets.token_bytes(_SECRET_BYTES)))

    def rows(self, campaign: str, words: Sequence[str]) -> list[tuple[bytes, bytes, bytes]]:
        """Return the rows of each token's invitation, report and vote: parts of one hash."""
        prefix = self._keyed(b"token", 3 * ROW_BYTES)
        prefix.update(_text(campaign, ""))
        rows = []
        for word in words:
            keyed = prefix.copy()
            keyed.update(_text(word))
            row = keyed.digest()
            rows.append((row[:ROW_BYTES], row[ROW_BYTES : 2 * ROW_BYTES], row[2 * ROW_BYTES :]))
        return rows

    def invite(self, campaign: str, count: int) -> list[str]:
        """Make tokens of a campaign, each with its mark."""
        made = [new() for _ in range(count)]
        return [word + self._mark_of(campaign, word) for word in made]

    def may_be_ours(self, campaign: str, word: str) -> bool | None:
        """Whether this secret marked a token; None for a token without a mark."""
        if len(word) == _UNMARKED:
            return None
        stated = self._mark_of(campaign, word[:_UNMARKED])
        return hmac.compare_digest(stated.encode(), word[_UNMARKED:].encode("utf-8", "replace"))

    def not_ours(self, campaign: str, words: Sequence[str]) -> list[int]:
        """Return the positions of tokens with a mark that this secret did not make."""
        prefix = self._keyed(b"invited", _MARK_BYTES)
        prefix.update(_text(campaign, ""))
        marks, stated = [], []
        for word in words:
            keyed = prefix.copy()
            keyed.update(_text(word[:_UNMARKED]))
            marks.append(keyed.digest())
            stated.append(word[_UNMARKED:])
        made = base64.urlsafe_b64encode(b"".join(marks))
        size = 4 * _MARK_BYTES // 3
        ours = [made[at : at + size] for at in range(0, len(made), size)]
        # One comparison for all in the usual case; in constant time, as everywhere.
        if hmac.compare_digest(made, _text("".join(stated))) and set(map(len, stated)) == {size}:
            return []
        return [
            at
            for at, word in enumerate(words)
            if len(word) != _UNMARKED and not hmac.compare_digest(ours[at], _text(stated[at]))
        ]

    def _mark_of(self, campaign: str, word: str) -> str:
        made = self._hash(self._keyed(b"invited", _MARK_BYTES), campaign, word)
        return base64.urlsafe_b64encode(made).decode()

    def owner(self, campaign: str, key: str) -> bytes:
        """Hash an owner's key; only the hash is stored."""
        return self._hash(self._keyed(b"owner", 32), campaign, key)

    def mark(self) -> bytes:
        """Return a value that distinguishes this secret from others and reveals nothing else."""
        return self._hash(self._keyed(b"mark", 16))

    def receipts(self, campaign: str, kind: str, rows: Sequence[bytes]) -> list[str]:
        """Make receipts that name rows; making and reading them both need the secret.

        A row is one AES block, and being a hash it does not repeat. It is encrypted twice: under
        one key to hide it, under another to show that the receipt was issued here.
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
        """Return the row that a receipt of this kind names; None if it was never issued."""
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
    # No part contains the separator, so ("ab", "c") and ("a", "bc") differ.
    return "\0".join(parts).encode("utf-8", "surrogatepass")
