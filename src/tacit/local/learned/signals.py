r"""Features of signals: what channels are like over time, and how they move together.

Of every channel of a window: its mean in eight parts, slope, deviation, mean absolute deviation,
deviation of its differences, and the amplitude in bands of frequencies that double in width; of
every two channels, their correlation. These numbers then go the way of columns of a table
(`tacit.learned.scales`).

Notes
-----
Everything is matrix products and square roots along time, with windows as the last axis. So the
same function runs on numpy arrays and on the tracer that writes ONNX graphs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit.data.schema import ArraySchema, Rows, Schema
from tacit.local.learned.features import FARTHEST, Parts
from tacit.local.learned.scales import Scales
from tacit.privacy import errors

Floats = npt.NDArray[np.float32]

PIECES, MOST_LAGS = 8, 16
"""Parts whose means are features, and how far apart channels may be to be correlated."""

FLOOR = 1e-3
_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Signals:
    """Features of signals, on the two scales of tables.

    Parameters
    ----------
    schema : ArraySchema
        Of signals.
    scales : Scales
        Of the numbers that `describe` computes.
    """

    schema: Schema
    scales: Scales
    kind: ClassVar[str] = "signals"
    reach: ClassVar[float] = FARTHEST

    @classmethod
    def fit(cls, schema: Schema, rows: Rows, seed: int = 0) -> Signals:
        """Compute the scales of the features of in-house signals; nothing is drawn."""
        told = _told(rows, _signal(schema))
        return cls(schema, Scales.fit(_inner(schema), told))

    @classmethod
    def from_parts(cls, schema: Schema, arrays: Mapping[str, npt.NDArray[Any]]) -> Signals:
        """Rebuild the features; refuse weights that do not fit the schema."""
        return cls(schema, Scales.from_parts(_inner(schema), arrays))

    @property
    def signal(self) -> tuple[int, int]:
        """Points in time, and channels."""
        return _signal(self.schema)

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many features each block has."""
        return self.scales.blocks

    @property
    def dimension(self) -> int:
        return self.scales.dimension

    def transform(self, rows: Rows) -> Floats:
        return self.scales.transform(_told(rows, self.signal))

    def parts(self) -> Parts:
        return self.scales.parts()


def count(signal: tuple[int, int]) -> int:
    """Return how many numbers `describe` computes."""
    time, channels = signal
    pairs = sum(channels - lag for lag in range(1, min(channels, MOST_LAGS + 1)))
    return channels * (min(PIECES, time) + 4 + len(_maps(time)[1])) + pairs


def describe(stacked: Any, signal: tuple[int, int], xp: Any) -> Any:
    """Compute the features (D, n) of signals (time · channels, n).

    `xp` is numpy or a tracer, as in `tacit.learned.scattering`.
    """
    time, channels = signal
    linear, bands, waves, steps = _maps(time)
    x = stacked.reshape(time, -1)
    even = np.full((1, time), 1 / time, np.float32)
    z = x - even @ x
    powers = waves @ z
    moves = steps @ z
    total = xp.sqrt(even @ (z * z))
    parts = [
        linear @ x,
        total,
        even @ xp.sqrt(z * z),
        xp.sqrt(even[:, : len(steps)] @ (moves * moves)),
        xp.sqrt(bands @ (powers * powers)),
    ]
    told = [
        part.reshape(rows * channels, -1) for part, rows in zip(parts, _rows(time), strict=True)
    ]
    apart, spread = z.reshape(time, channels, -1), total.reshape(channels, -1)
    for lag in range(1, min(channels, MOST_LAGS + 1)):
        kept = channels - lag
        product = (apart[:, lag:] * apart[:, :kept]).reshape(time, -1)
        both = (even @ product).reshape(kept, -1)
        told.append(both / (spread[lag:] * spread[:kept] + FLOOR**2))
    return xp.concat(told)


def _rows(time: int) -> tuple[int, ...]:
    linear, bands, _, _ = _maps(time)
    return len(linear), 1, 1, 1, len(bands)


@cache
def _maps(time: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Build means of parts and slope, bands, Fourier matrix, and differences, along time."""
    places = np.array_split(np.arange(time), min(PIECES, time))
    linear = np.zeros((len(places) + 1, time))
    for index, place in enumerate(places):
        linear[index, place] = 1 / len(place)
    centred = np.arange(time) - (time - 1) / 2
    linear[-1] = centred / max(math.sqrt((centred**2).sum() * time), 1e-12)
    frequencies = np.arange(1, time // 2 + 1)
    angles = 2 * np.pi * np.outer(frequencies, np.arange(time)) / time
    waves = np.concatenate([np.cos(angles), np.sin(angles)]) * (math.sqrt(2) / time)
    edges = _edges(len(frequencies))
    bands = np.zeros((len(edges) - 1, len(waves)))
    for index in range(len(edges) - 1):
        for start in (0, len(frequencies)):
            bands[index, start + edges[index] : start + edges[index + 1]] = 1
    steps = np.eye(time)[1:] - np.eye(time)[:-1] if time > 1 else np.zeros((1, time))
    made = tuple(
        np.ascontiguousarray(matrix, np.float32) for matrix in (linear, bands, waves, steps)
    )
    return made  # type: ignore[return-value]


def _edges(frequencies: int) -> list[int]:
    """Return where bands begin and end: single frequencies first, then a quarter wider each."""
    edges, place = [0], 0
    while place < frequencies:
        place = min(place + max(place // 4, 1), frequencies)
        edges.append(place)
    return edges


class _Numpy:
    """The operations of `describe` on numpy arrays; silent, whatever the numbers."""

    sqrt = staticmethod(np.sqrt)
    concat = staticmethod(np.concatenate)


def _told(rows: Rows, signal: tuple[int, int]) -> Rows:
    out = np.empty((len(rows), count(signal)), np.float32)
    for start in range(0, len(rows), _BLOCK):
        block = np.ascontiguousarray(rows.numbers[start : start + _BLOCK].T)
        out[start : start + _BLOCK] = describe(block, signal, _Numpy).T
    return Rows(out, np.empty((len(out), 0), np.int64))


def _signal(schema: Schema) -> tuple[int, int]:
    if not isinstance(schema, ArraySchema) or schema.signal is None:
        remedy = "Say signal=(points in time, channels)."
        errors.refuse("features", "rows", "signals", "no shape of signals", remedy)
    if schema.signal[0] < 2:
        errors.refuse("features", "signal", "of at least 2 points in time", schema.signal)
    return schema.signal


def _inner(schema: Schema) -> ArraySchema:
    """Return the schema of the features: numbers that nothing is known of."""
    return ArraySchema(count(_signal(schema)), 0.0, 1.0)
