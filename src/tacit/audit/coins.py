"""Fair coins that decide who is a member, independent of everything that the fit draws."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from tacit.privacy.randomness import Randomness, Seeded, source

Booleans = npt.NDArray[np.bool_]


def apart(rng: Randomness | None) -> Randomness:
    """Return a stream that shares no draw with a fit of the same seed or generator.

    Coins must not depend on the noise through which they are guessed. If a fit and a game have
    equal seeds, they would use the same words, and a sound fit would be refuted.
    """
    stream = source(rng)
    if stream.secure:
        return stream
    digest = hashlib.sha256(b"tacit.audit" + stream.words(4).tobytes()).digest()
    return Seeded(int.from_bytes(digest, "big"))


def coins(count: int, rng: Randomness) -> Booleans:
    """Draw fair and independent coins."""
    return (rng.words(count) >> np.uint64(63)).astype(np.bool_)
