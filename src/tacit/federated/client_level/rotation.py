r"""A public random rotation, which spreads a vector evenly over its entries before rounding.

A vector of d numbers is padded with zeros to whole blocks of B, a power of two. Each block gets
random signs and is multiplied by the Hadamard matrix over :math:`\sqrt B`, an orthogonal map. The
signs are public: they follow from the name of the round, which everybody knows, and nobody's data
changes them. Every entry of the result is a sum of ±1 times entries of a block, over
:math:`\sqrt B`, so it is sub-Gaussian with variance proxy :math:`\|x\|^2/B`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.federated.secure.primitives import derive, keystream

Reals = npt.NDArray[np.float64]

_PADDING = 1.125
"""Blocks are as large as they can be without making a vector longer than by this factor."""
_LARGEST_BLOCK = 2**20


@dataclass(frozen=True)
class Rotation:
    """The rotation of vectors of one length.

    Parameters
    ----------
    size : int
        Length of a vector.

    Examples
    --------
    >>> rotation = Rotation(650)
    >>> rotation.block, rotation.padded
    (64, 704)
    """

    size: int

    @property
    def block(self) -> int:
        """B, the length of a block."""
        block = 1
        while 2 * block <= _LARGEST_BLOCK and self._whole(2 * block) <= _PADDING * self.size:
            block *= 2
        return block

    @property
    def padded(self) -> int:
        """The length of a rotated vector."""
        return self._whole(self.block)

    def _whole(self, block: int) -> int:
        return -(-self.size // block) * block

    def signs(self, name: bytes) -> Reals:
        """Return the public signs of a round."""
        stream = keystream(derive(name, "signs", b""), -(-self.padded // 8))
        bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=self.padded)
        return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)

    def forward(self, vector: Any, signs: Reals) -> Reals:
        """Rotate a vector."""
        padded = np.zeros(self.padded)
        padded[: self.size] = vector
        return _hadamard((padded * signs).reshape(-1, self.block)).ravel()

    def backward(self, rotated: Any, signs: Reals) -> Reals:
        """Undo the rotation."""
        turned = np.array(rotated, dtype=np.float64).reshape(-1, self.block)
        return (_hadamard(turned).ravel() * signs)[: self.size]


def _hadamard(rows: Reals) -> Reals:
    """Multiply each row by the Hadamard matrix over the root of its length."""
    count, length = rows.shape
    width = 1
    while width < length:
        pairs = rows.reshape(count, -1, 2, width)
        rows = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
        width *= 2
    return np.asarray(rows.reshape(count, length) / np.sqrt(length))
