r"""Random words on the device where noise is added: ChaCha20 in counter mode, in torch's integers.

Block c of the stream of a key and a nonce is the ChaCha20 block function [RFC8439]_: ten double
rounds on sixteen 32-bit words, then the sum with where they started. Words are signed, and their
additions wrap around; all operations are elementwise and do not wait for the device.

References
----------
.. [RFC8439] Nir, Langley. ChaCha20 and Poly1305 for IETF protocols. 2018.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import torch
from torch import Tensor

from tacit.privacy import errors
from tacit.privacy.randomness import Keystream, keystream
from tacit.privacy.randomness.source import Words

_CONSTANTS = b"expand 32-byte k"
_BLOCK_WORDS = 16
_MOST_BLOCKS = 2**31  # half of the counters of a nonce: they stay positive as signed words


def blocks(key: Tensor, nonce: tuple[int, int, int], count: int, first: int = 0) -> Tensor:
    """Return ChaCha20 blocks `first`, `first` + 1, …, one in a row, as signed 32-bit words.

    Parameters
    ----------
    key : Tensor
        Eight signed 32-bit words, little-endian. The blocks are on its device.
    nonce : tuple of int
        Three signed 32-bit words.
    count, first : int
        Number of blocks, and the counter of the first; all below 2^31.
    """
    if not 0 <= first <= first + count <= _MOST_BLOCKS:
        errors.refuse("ChaCha20", "first + count", f"from 0 to {_MOST_BLOCKS}", first + count)
    start = _start(key, nonce, count, first)
    a, b, c, d = torch.split(start.clone(), 4)
    for _ in range(10):
        a, b, c, d = _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)  # columns become diagonals
        a, b, c, d = _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return torch.cat([a, b, c, d]).add_(start).T.contiguous()


def _start(key: Tensor, nonce: tuple[int, int, int], count: int, first: int) -> Tensor:
    """Return the state before the rounds: sixteen words, one block in a column."""
    start = torch.empty(_BLOCK_WORDS, count, dtype=torch.int32, device=key.device)
    for row, word in enumerate(_signed(_CONSTANTS)):
        start[row] = word
    start[4:12] = key[:, None]
    torch.arange(first, first + count, dtype=torch.int32, device=key.device, out=start[12])
    for row, word in enumerate(nonce, 13):
        start[row] = word
    return start


def _quarter_rounds(
    a: Tensor, b: Tensor, c: Tensor, d: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Do four quarter rounds at once, one in each row."""
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


def _rotated(words: Tensor, bits: int) -> Tensor:
    """Rotate to the left. A shift to the right copies the sign, which the mask removes."""
    return (words << bits) | ((words >> (32 - bits)) & ((1 << bits) - 1))


def _signed(words: bytes) -> list[int]:
    """Read little-endian words as signed integers."""
    parts = [words[at : at + 4] for at in range(0, len(words), 4)]
    return [int.from_bytes(part, "little", signed=True) for part in parts]


class DeviceStream:
    """ChaCha20 on a device under 32 bytes of `os.urandom`; words on the host are AES-256-CTR.

    Every call has a nonce of its own, so no pair of key and counter is used twice. A forked process
    takes a new key. The key is in the memory of this process and of the device.
    """

    secure = True

    def __init__(self) -> None:
        self._host = Keystream()
        self._owner: tuple[int, int] | None = None
        self._keys: dict[torch.device, Tensor] = {}
        self._calls = itertools.count()

    @property
    def cipher(self) -> str:
        """Return the names of the ciphers."""
        host = self._host.cipher
        return "ChaCha20" if host is None else f"ChaCha20 and {host}"

    def words(self, count: int) -> Words:
        """Draw words on the host, as `Keystream` does."""
        return self._host.words(count)

    def words_on(self, device: torch.device, count: int) -> Tensor:
        """Draw signed 32-bit words on a device."""
        key = self._key(device)
        call = next(self._calls)
        nonce = _signed(call.to_bytes(12, "little"))
        made = blocks(key, (nonce[0], nonce[1], nonce[2]), -(-count // _BLOCK_WORDS))
        return made.flatten()[:count]

    def _key(self, device: torch.device) -> Tensor:
        """Return this process's key on the device, and make it if there is none yet.

        Keys of two devices differ, so calls may share one count.
        """
        owner = keystream.process()
        if owner != self._owner:
            self._owner, self._keys, self._calls = owner, {}, itertools.count()
        if device not in self._keys:
            words = _signed(os.urandom(32))
            self._keys[device] = torch.tensor(words, dtype=torch.int32, device=device)
        return self._keys[device]

    def __reduce__(self) -> Any:
        raise TypeError("DeviceStream: a key must stay in its process. Make another one there.")
