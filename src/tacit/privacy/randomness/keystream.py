"""Random words in bulk: AES-256 in counter mode, keyed by the operating system.

Asking the operating system for every word costs about twenty times as much as the noise of one
training step should. A block cipher in counter mode under a secret key is indistinguishable from
uniform words unless AES is broken, so a single key of 32 bytes is requested instead.

References
----------
.. [SP800-38A] Dworkin. Recommendation for block cipher modes of operation. NIST 2001 (CTR).
.. [SP800-90A] Barker, Kelsey. Recommendation for random number generation using deterministic
   random bit generators. NIST 2015 (CTR_DRBG).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tacit.privacy.randomness.source import SystemEntropy, Words

_BLOCK_BYTES = 16
_ZEROS = memoryview(bytes(1 << 20))
_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def process() -> tuple[int, int]:
    """Return what no other process of this family has. Forks are counted, as pids recur."""
    return os.getpid(), _forks


class Keystream:
    """AES-256-CTR under 32 bytes of `os.urandom`; use one thread at a time.

    A forked process takes a new key, so parent and child never share a word. If the `cryptography`
    package is missing, all words come from the operating system: equally secure, but slower.
    """

    secure = True

    def __init__(self) -> None:
        self._owner: tuple[int, int] | None = None
        self._encryptor: Any = None
        self._cipher: str | None = None

    @property
    def cipher(self) -> str | None:
        """Return the name of the cipher; None if words come from the operating system."""
        self._key()
        return self._cipher

    def words(self, count: int) -> Words:
        self._key()
        if self._encryptor is None:
            return SystemEntropy().words(count)
        # `update_into` needs room for one more block than it writes.
        words = np.empty(count + _BLOCK_BYTES // 8, dtype=np.uint64)
        room = words.view(np.uint8).data
        for start in range(0, 8 * count, len(_ZEROS)):
            # Counter mode XORs its stream with the text: a text of zeros leaves the stream.
            self._encryptor.update_into(_ZEROS[: 8 * count - start], room[start:])
        return words[:count]

    def _key(self) -> None:
        """Make a key for this process, if it has none yet."""
        owner = process()
        if owner == self._owner:
            return
        self._encryptor = _encryptor()
        self._cipher = None if self._encryptor is None else "AES-256 in counter mode"
        self._owner = owner

    def __reduce__(self) -> Any:
        raise TypeError("Keystream: a key must stay in its process. Make another one there.")


def _encryptor() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError:
        return None
    return Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(_BLOCK_BYTES))).encryptor()
