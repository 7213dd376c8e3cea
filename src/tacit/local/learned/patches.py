r"""Local patches of images in colour: filters learned without labels, thresholds and pooling.

Every patch of 6 × 6 pixels, at every second pixel, is brought to mean 0 and deviation 1, compared
with filters w (k-means centres of whitened in-house patches, applied with the whitening), and

.. math:: \max(\langle w, x \rangle - b - \alpha, 0), \qquad
          \max(-\langle w, x \rangle + b - \alpha, 0)

are averaged over the quarters of the image, as are the pixels themselves. A feature tells how much
of a pattern, a colour or an edge there is, and roughly where.

References
----------
.. [CN11] Coates, Ng. The importance of encoding versus training with sparse coding and vector
   quantization. ICML 2011.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from threadpoolctl import threadpool_limits

from tacit.data.schema import ArraySchema, Rows, Schema
from tacit.local.learned.features import FARTHEST, Parts
from tacit.local.learned.scattering import usable_cores
from tacit.privacy import errors

Floats = npt.NDArray[np.float32]

SIDE, STRIDE, FILTERS, QUARTERS = 6, 2, 256, 2
THRESHOLD = 0.5
"""α, in standard deviations of a filter's responses to in-house patches."""

FLOOR = 0.03
"""Added to the deviation of a patch: what is nearly flat is not blown up to a pattern."""

_RIDGE, _IMAGES, _EACH, _BLOCK = 0.05, 2_000, 10, 64


@dataclass(frozen=True, eq=False)
class Patches:
    """Pooled responses of local filters.

    Parameters
    ----------
    schema : ArraySchema
        Of images in colour.
    filters : array, (6 · 6 · channels, FILTERS)
        w, scaled so that responses have deviation 1 on in-house patches.
    bias : array, (FILTERS,)
        b.
    """

    schema: Schema
    filters: Floats
    bias: Floats
    kind: ClassVar[str] = "patches"
    reach: ClassVar[float] = FARTHEST

    @classmethod
    def fit(cls, schema: Schema, rows: Rows, seed: int) -> Patches:
        """Learn whitening and filters from patches of in-house images."""
        from sklearn.cluster import MiniBatchKMeans

        shape, rng = _colour(schema), np.random.default_rng(seed)
        chosen = np.sort(rng.permutation(len(rows))[:_IMAGES])
        patches = _patches(rows.numbers[chosen].reshape(-1, *shape))
        flat = _normalized(patches.reshape(len(chosen), -1, patches.shape[-1]))
        picks = rng.integers(0, flat.shape[1], (len(chosen), _EACH))
        sample = np.take_along_axis(flat, picks[:, :, None], axis=1).reshape(-1, flat.shape[2])
        mean = sample.mean(axis=0)
        values, axes = np.linalg.eigh(np.cov((sample - mean).T.astype(np.float64)))
        whitening = (axes / np.sqrt(np.maximum(values, 0.0) + _RIDGE)) @ axes.T
        white = ((sample - mean) @ whitening).astype(np.float32)
        settings: dict[str, Any] = {"n_init": 1, "batch_size": 4096, "max_iter": 30}
        count = min(FILTERS, max(len(white) // 8, 2))
        centres = MiniBatchKMeans(count, random_state=seed, **settings).fit(white).cluster_centers_
        centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-6)
        filters = whitening @ centres.T
        spread = np.maximum((white @ centres.T).std(axis=0), 1e-6)
        bias = mean @ filters / spread
        return cls(schema, (filters / spread).astype(np.float32), bias.astype(np.float32))

    @classmethod
    def from_parts(cls, schema: Schema, arrays: Mapping[str, npt.NDArray[Any]]) -> Patches:
        """Rebuild the features; refuse weights that do not fit the schema."""
        filters, bias = (np.asarray(arrays[name], np.float32) for name in ("filters", "bias"))
        size = SIDE * SIDE * _colour(schema)[2]
        fits = filters.ndim == 2 and filters.shape == (size, len(bias)) and bias.ndim == 1
        if not fits or not np.isfinite(filters).all() or not np.isfinite(bias).all():
            raise ValueError("patches: filters must be finite and of the images' channels")
        return cls(schema, filters, bias)

    @property
    def dimension(self) -> int:
        return (2 * len(self.bias) + _colour(self.schema)[2]) * QUARTERS**2

    def transform(self, rows: Rows) -> Floats:
        shape = _colour(self.schema)
        out = np.empty((len(rows), self.dimension), np.float32)

        def fill(start: int) -> None:
            images = rows.numbers[start : start + _BLOCK].reshape(-1, *shape)
            # Here, as threads do not inherit it: a warning would reveal something about a row.
            with np.errstate(all="ignore"):
                out[start : start + _BLOCK] = self._pooled(images)

        # One thread per block: products this small are slower in several threads.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(usable_cores()) as pool:
            list(pool.map(fill, range(0, len(rows), _BLOCK)))
        return out

    def _pooled(self, images: Floats) -> Floats:
        patches = _patches(images)
        count, height, width, size = patches.shape
        flat = _normalized(patches.reshape(count, height * width, size))
        responses = flat.reshape(-1, size) @ self.filters - self.bias
        responses = responses.reshape(count, height, width, -1)
        both = [np.maximum(sign * responses - THRESHOLD, 0.0) for sign in (1, -1)]
        pooled = [_quarters(part) for part in (*both, images)]
        return np.concatenate([part.reshape(count, -1) for part in pooled], axis=1)

    def parts(self) -> Parts:
        return {}, {"filters": self.filters, "bias": self.bias}


def _colour(schema: Schema) -> tuple[int, int, int]:
    shape = schema.colour if isinstance(schema, ArraySchema) else None
    if shape is None or min(shape[:2]) < SIDE + STRIDE:
        least = f"images in colour of at least {SIDE + STRIDE} pixels a side"
        errors.refuse("features", "rows", least, shape, "Say image=(height, width, channels).")
    return shape


def _patches(images: Floats) -> Floats:
    """Cut patches, (n, down, across, 6 · 6 · channels)."""
    views = sliding_window_view(images, (SIDE, SIDE), axis=(1, 2))[:, ::STRIDE, ::STRIDE]
    return np.ascontiguousarray(views).reshape(*views.shape[:3], -1)


def _normalized(patches: Floats) -> Floats:
    centred = patches - patches.mean(axis=2, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=2, keepdims=True)) + np.float32(FLOOR)
    return np.asarray(centred / spread)


def _quarters(maps: Floats) -> Floats:
    """Average maps (n, height, width, F) over the quarters of the image."""
    halves = [np.array_split(np.arange(size), QUARTERS) for size in maps.shape[1:3]]
    means = [
        maps[:, down[0] : down[-1] + 1, across[0] : across[-1] + 1].mean(axis=(1, 2))
        for down in halves[0]
        for across in halves[1]
    ]
    return np.stack(means, axis=1)
