"""Streams of random 64-bit words: the operating system's, or a seeded one for tests."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Words = npt.NDArray[np.uint64]


class Randomness(Protocol):
    """A stream of independent, uniform 64-bit words."""

    @property
    def secure(self) -> bool:
        """Whether the stream is unpredictable to an attacker who knows everything else."""
        ...

    def words(self, count: int) -> Words: ...


class SystemEntropy:
    """The operating system's cryptographic generator. It has no state: safe across forks."""

    secure = True

    def words(self, count: int) -> Words:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


class Seeded:
    """A reproducible stream for tests and studies. What it releases is not private."""

    secure = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._generator = np.random.default_rng(seed)

    def words(self, count: int) -> Words:
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)


def source(rng: Randomness | np.random.Generator | None) -> Randomness:
    """Return the stream for an `rng` argument: None means the operating system's entropy."""
    if rng is None:
        return SystemEntropy()
    if isinstance(rng, np.random.Generator):
        return Seeded(rng)
    if not hasattr(rng, "words"):
        errors.refuse("release", "rng", "None, a Seeded or a numpy Generator", type(rng).__name__)
    return rng
