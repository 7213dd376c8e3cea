r"""Vectors of whole numbers modulo :math:`2^b`: masks, sums, and b bits each on the wire.

Arithmetic is in unsigned integers of 32 (or 16) bits, which are reduced modulo :math:`2^b` when
they are packed: reduction modulo a divisor of :math:`2^{32}` commutes with sums. A mask is a
keystream read as such integers, so it is uniform modulo :math:`2^b`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.federated.secure.primitives import Refused, keystream

Residues = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

WIDTHS = tuple(range(4, 33, 4))
"""Numbers of bits b: multiples of four, so that two numbers are whole bytes."""


def kind(bits: int) -> np.dtype[Any]:
    """Return the unsigned type in which residues of this width are computed."""
    return np.dtype("<u2") if bits <= 16 else np.dtype("<u4")


def residues(values: Integers, bits: int) -> Residues:
    """Reduce integers modulo 2^b."""
    return np.asarray(values & (2**bits - 1), dtype=kind(bits))


def centred(sums: Residues, bits: int) -> Integers:
    """Return the representatives from −2^(b−1) to 2^(b−1) − 1."""
    wide = sums.astype(np.int64) & (2**bits - 1)
    return np.asarray(wide - ((wide >> (bits - 1)) << bits))


def mask(key: bytes, size: int, bits: int) -> Residues:
    """Expand a key into a uniform vector modulo 2^b (reduced when it is packed)."""
    unsigned = kind(bits)
    return np.frombuffer(keystream(key, size * unsigned.itemsize), dtype=unsigned)


class Masks:
    """A running sum of masks."""

    def __init__(self, size: int, bits: int) -> None:
        self._size, self._bits = size, bits
        self._total = np.zeros(size, dtype=kind(bits))

    def add(self, key: bytes, *, negative: bool = False) -> None:
        """Add the mask of a key, or subtract it."""
        one = mask(key, self._size, self._bits)
        (np.subtract if negative else np.add)(self._total, one, out=self._total)

    def total(self) -> Residues:
        """Return the sum."""
        return self._total


def packed_size(size: int, bits: int) -> int:
    """Return the number of bytes of a packed vector."""
    return (size + 1) // 2 * (bits // 4)


def pack(values: Residues, bits: int) -> bytes:
    """Reduce modulo 2^b, and write two numbers in b/4 bytes."""
    wide = np.zeros((values.size + 1) // 2 * 2, dtype="<u8")
    wide[: values.size] = values
    wide &= np.uint64(2**bits - 1)
    pairs = np.ascontiguousarray(wide[::2] | wide[1::2] << np.uint64(bits))
    return pairs.view(np.uint8).reshape(-1, 8)[:, : bits // 4].tobytes()


def unpack(content: bytes, size: int, bits: int) -> Residues:
    """Read what `pack` wrote.

    Raises
    ------
    Refused
        If the content has another length.
    """
    if len(content) != packed_size(size, bits):
        raise Refused("secure sum: a masked vector must have the stated length.")
    raw = np.zeros(((size + 1) // 2, 8), dtype=np.uint8)
    raw[:, : bits // 4] = np.frombuffer(content, dtype=np.uint8).reshape(-1, bits // 4)
    pairs = raw.view("<u8").ravel()
    both = np.empty(2 * pairs.size, dtype=kind(bits))
    both[::2] = pairs & np.uint64(2**bits - 1)
    both[1::2] = pairs >> np.uint64(bits)
    return both[:size]
