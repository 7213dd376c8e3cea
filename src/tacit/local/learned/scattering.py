r"""Scattering: two layers of wavelets and moduli, fixed before any data is seen.

For an image x, Morlet wavelets ψ of 2 scales and 8 angles and a Gaussian φ,

.. math:: x \star \phi, \qquad |x \star \psi_{j,l}| \star \phi, \qquad
          \bigl||x \star \psi_{0,l}| \star \psi_{1,l'}\bigr| \star \phi,

81 channels, each kept at every fourth pixel and divided by (its ℓ2 norm + 0.001): a channel tells
where a shape is, not how strong the stroke was.

Notes
-----
Everything is matrix products: an image of 28 × 28 is 32 × 32 with its border, and at that size
products with Fourier matrices take as long as fast transforms (0.5 ms per image, one core). In
return the same function runs on numpy arrays, on torch tensors and on the tracer that writes ONNX
graphs. The images are the last axis, so that no step moves data.

References
----------
.. [BM13] Bruna, Mallat. Invariant scattering convolution networks. IEEE TPAMI 2013.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from tacit.privacy import errors, rowwise
from tacit.privacy.rowwise import Steps

Floats = npt.NDArray[np.float32]
Complexes = npt.NDArray[np.complex128]

ANGLES = 8
STRIDE = 4
"""2^J for J = 2 scales: channels are kept at every fourth pixel."""

BORDER = 2
"""Zero pixels on every side, before rounding up to a multiple of the stride."""

CHANNELS = 1 + 2 * ANGLES + ANGLES**2
FLOOR = 1e-3

_BLOCK_PIXELS = 32 * 32 * 32  # images per block: the widest intermediate arrays stay in the cache


@dataclass(frozen=True)
class Separable:
    """A linear map of images: one matrix for the rows, one for the columns.

    Where the result is complex, `parts` is 2 and the columns are twice as many: real parts, then
    imaginary parts. An array is (…, rows, columns, images). Where the products are to be exact,
    `grids` has what their inputs must be on: see `tacit.privacy.rowwise`.
    """

    rows: Any
    columns: Any
    parts: int = 1
    grids: tuple[Steps, Steps] | None = None

    def __call__(self, x: Any, *lead: int) -> Any:
        height = self.rows.shape[0] // self.parts
        first, second = self.grids or (_as_is, _as_is)
        halfway = self.rows @ first(x.reshape(*lead, self.rows.shape[1], -1))
        return self.columns @ second(halfway.reshape(*lead, height, self.columns.shape[1], -1))

    def exactly(self, limit: float, halfway: float) -> Separable:
        """Return the same map with exact products: inputs are clipped to a limit."""
        rows, first = rowwise.exactly(self.rows, limit, axis=1)
        columns, second = rowwise.exactly(self.columns, halfway, axis=1)
        return Separable(rows, columns, self.parts, (first, second))


@dataclass(frozen=True)
class Bank:
    """Matrices and filters for one image size.

    Attributes
    ----------
    forward, refold : Separable
        Fourier transforms of images (border included) and of moduli.
    inverse, inverse_half : Separable
        Back to all pixels, or to every second one.
    blur, blur_full, blur_half : Separable
        ⋆ φ at every fourth pixel: of images, of moduli, of moduli at every second pixel.
    fine : sequence of array, (u, 1, v, 1)
        Transfer functions of the first scale, one per angle.
    coarse : sequence of array, (angles, u / 2, 1, v / 2, 1)
        Those of the second scale in quarters, one for each set of frequencies that fall together
        when every second pixel is kept.
    level : Steps, optional
        The grid of channels, on which sums of squares are exact.
    """

    forward: Separable
    refold: Separable
    inverse: Separable
    inverse_half: Separable
    blur: Separable
    blur_full: Separable
    blur_half: Separable
    fine: tuple[Any, ...]
    coarse: tuple[Any, ...]
    level: Steps | None = None

    def convert(self, to: Callable[[Floats], Any]) -> Bank:
        """Return the same bank with every array passed through `to`, such as `torch.from_numpy`."""
        maps: dict[str, Any] = {
            name: Separable(to(value.rows), to(value.columns), value.parts)
            for name, value in vars(self).items()
            if isinstance(value, Separable)
        }
        fine, coarse = (tuple(map(to, filters)) for filters in (self.fine, self.coarse))
        return Bank(**maps, fine=fine, coarse=coarse, level=self.level)


def padded(size: int) -> int:
    """Return the side of an image with its border: 28 becomes 32."""
    return -(-(size + 2 * BORDER) // STRIDE) * STRIDE


def dimension(image: tuple[int, int]) -> int:
    """Return the number of features of an image: 81 channels at every fourth pixel."""
    return CHANNELS * (padded(image[0]) // STRIDE) * (padded(image[1]) // STRIDE)


def transform(images: Any, image: tuple[int, int]) -> Floats:
    """Compute features (n, D) of images (n, height · width) with pixels in [0, 1], in blocks."""
    pixels = np.asarray(images, np.float32)
    if pixels.ndim != 2 or pixels.shape[1] != image[0] * image[1]:
        shape = f"(n, {image[0] * image[1]})"
        raise errors.InvalidData(f"scattering: images must be an array {shape}.")
    return _in_blocks(pixels, image, bank(*image))


def transform_alone(images: Any, image: tuple[int, int]) -> Floats:
    """Compute the same to about 1e-5, in integers: the features of a row depend on it alone.

    Guarantees towards the images need this; it takes three times as long.
    """
    return _in_blocks(np.clip(np.asarray(images, np.float64), 0, 1), image, exact_bank(*image))


def _in_blocks(pixels: npt.NDArray[Any], image: tuple[int, int], filters: Bank) -> Floats:
    out = np.empty((len(pixels), dimension(image)), np.float32)
    fitting = max(_BLOCK_PIXELS // (padded(image[0]) * padded(image[1])), 1)
    step = 1 << (fitting.bit_length() - 1)

    def fill(start: int) -> None:
        block = np.ascontiguousarray(pixels[start : start + step].T)
        features = scatter(block.reshape(*image, -1), filters, np)
        out[start : start + step] = features.reshape(out.shape[1], -1).T

    # One thread per block: products this small are slower in several threads.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(fill, range(0, len(pixels), step)))
    return out


def usable_cores() -> int:
    """Count the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def scatter(images: Any, filters: Bank, xp: Any) -> Any:
    """Compute normalised channels (81, pixels, n) of images (height, width, n).

    `xp` is numpy, torch or a tracer: it has `sqrt` and `concat`, and its arrays have `@`, `*`, `+`,
    `/`, slices, `reshape` and `sum`.
    """
    height, width = filters.refold.rows.shape[1], filters.refold.columns.shape[1] // 2
    pixels = filters.blur_full.rows.shape[0] * filters.blur_full.columns.shape[0]
    frequencies = filters.forward(images).reshape(height, 2, width, -1)
    channels = [filters.blur(images).reshape(1, pixels, -1)]
    for wavelet in filters.fine:
        edges = _modulus(filters.inverse(frequencies * wavelet), width, xp)
        channels.append(filters.blur_full(edges).reshape(1, pixels, -1))
        again = filters.refold(edges).reshape(height, 2, width, -1)
        channels.append(_coarse(again, filters, xp).reshape(ANGLES, pixels, -1))
    channels.append(_coarse(frequencies, filters, xp).reshape(ANGLES, pixels, -1))
    stacked = (filters.level or _as_is)(xp.concat(channels))
    norms = xp.sqrt((stacked * stacked).sum(1)).reshape(CHANNELS, 1, -1)
    return stacked / (norms + FLOOR)


def _coarse(frequencies: Any, filters: Bank, xp: Any) -> Any:
    """Compute |· ⋆ ψ| ⋆ φ for wavelets of the second scale, at every second pixel until φ."""
    first, second, third, fourth = filters.coarse
    h, w = first.shape[1], first.shape[3]
    folded = (
        frequencies[:h, :, :w] * first
        + frequencies[:h, :, w:] * second
        + frequencies[h:, :, :w] * third
        + frequencies[h:, :, w:] * fourth
    )
    edges = _modulus(filters.inverse_half(folded, ANGLES), w, xp)
    return filters.blur_half(edges, ANGLES)


def _modulus(z: Any, width: int, xp: Any) -> Any:
    real, imaginary = z[..., :width, :], z[..., width:, :]
    return xp.sqrt(real * real + imaginary * imaginary)


# --- the bank ------------------------------------------------------------------------------------


@cache
def bank(height: int, width: int) -> Bank:
    """Build matrices and filters for images of this size, in float32."""
    inner, full = (height, width), (padded(height), padded(width))
    half = (full[0] // 2, full[1] // 2)
    fourier, fourier_half = [_fourier(n) for n in full], [_fourier(n) for n in half]
    seen = [matrix[:, _inside(n)] for matrix, n in zip(fourier, inner, strict=True)]
    blur = [_blur(n, 1) for n in full]
    fine, coarse = (_morlet(full, scale) for scale in (0, 1))
    coarse = coarse[:, :, None, :, None] / 4  # a mean over the four frequencies that coincide
    h, w = half
    quarters = [coarse[:, a : a + h, :, b : b + w] for a in (0, h) for b in (0, w)]
    return Bank(
        forward=_real_to_complex(*seen),
        refold=_real_to_complex(*fourier),
        inverse=_complex(*(matrix.conj() / len(matrix) for matrix in fourier)),
        inverse_half=_complex(*(matrix.conj() / len(matrix) for matrix in fourier_half)),
        blur=_real(*(m[:, _inside(n)] for m, n in zip(blur, inner, strict=True))),
        blur_full=_real(*blur),
        blur_half=_real(*(_blur(n, 2) for n in full)),
        fine=tuple(_float32(wavelet[:, None, :, None]) for wavelet in fine),
        coarse=tuple(map(_float32, quarters)),
    )


@cache
def exact_bank(height: int, width: int) -> Bank:
    r"""Build the same bank with exact products.

    Pixels are within [0, 1] and :math:`\lVert\psi\rVert_1 < 1`, so that no channel is beyond 1, no
    transform of n numbers beyond n. This decides how fine the grids can be; larger values are
    clipped.
    """
    made = bank(height, width)
    full, most = padded(height) * padded(width), max(padded(height), padded(width))
    limits = {
        "forward": (1, most),
        "refold": (1, most),
        "inverse": (full / 2, most),
        "inverse_half": (full / 4, most / 2),
        "blur": (1, 1),
        "blur_full": (1, 1),
        "blur_half": (1, 1),
    }
    digits = (52 - math.ceil(math.log2(full // STRIDE**2))) // 2
    maps = {name: getattr(made, name).exactly(*limit) for name, limit in limits.items()}
    return replace(made, **maps, level=Steps(2.0**-digits, 1.0))


def _as_is(x: Any) -> Any:
    return x


def _inside(size: int) -> slice:
    start = (padded(size) - size) // 2
    return slice(start, start + size)


def _fourier(size: int) -> Complexes:
    index = np.arange(size)
    return np.asarray(np.exp(-2j * np.pi * (np.outer(index, index) % size) / size))


def _morlet(full: tuple[int, int], scale: int) -> npt.NDArray[np.float64]:
    """Compute transfer functions, (angles, u, v): Gabor filters, corrected to mean 0."""
    sigma, frequency = 0.8 * 2**scale, 0.75 * np.pi / 2**scale
    filters = []
    for index in range(ANGLES):
        angle = (ANGLES // 2 - 1 - index) * np.pi / ANGLES
        wave, bell = (_gabor(full, sigma, angle, f) for f in (frequency, 0.0))
        # Real, as the wavelet has an even real part and an odd imaginary part.
        filters.append(np.fft.fft2(wave - wave.sum() / bell.sum() * bell).real)
    return np.stack(filters)


def _gabor(full: tuple[int, int], sigma: float, angle: float, frequency: float) -> Complexes:
    """Compute a plane wave under a Gaussian, twice as wide across it, with periodic wrapping."""
    slant = 4.0 / ANGLES
    offsets = [np.arange(-2 * n, 3 * n) for n in full]
    x, y = np.meshgrid(*offsets, indexing="ij")
    along = x * np.cos(angle) + y * np.sin(angle)
    across = y * np.cos(angle) - x * np.sin(angle)
    bell = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
    wave = bell * np.exp(1j * frequency * along) * slant / (2 * np.pi * sigma**2)
    return np.asarray(wave.reshape(5, full[0], 5, full[1]).sum(axis=(0, 2)))


def _blur(size: int, step: int) -> npt.NDArray[np.float64]:
    """Build one axis of ⋆ φ, from every `step`-th pixel to every fourth."""
    sigma = 0.8 * 2
    offsets = np.arange(-2 * size, 3 * size)
    bell = np.exp(-(offsets**2) / (2 * sigma**2)) / np.sqrt(2 * np.pi * sigma**2)
    kernel = step * bell.reshape(5, size).sum(axis=0)[::step]
    index = np.arange(size // step)
    return np.asarray(kernel[(index[:: STRIDE // step, None] - index) % len(index)])


def _real(rows: Any, columns: Any) -> Separable:
    return Separable(_float32(rows), _float32(columns))


def _real_to_complex(rows: Complexes, columns: Complexes) -> Separable:
    split = np.stack([rows.real, rows.imag], axis=1).reshape(-1, rows.shape[1])
    return Separable(_float32(split), _float32(_complex_columns(columns)), parts=2)


def _complex(rows: Complexes, columns: Complexes) -> Separable:
    """Order rows as (row, part) and columns as (part, column), so that no step moves data."""
    pairs = np.array([[rows.real, -rows.imag], [rows.imag, rows.real]]).transpose(2, 0, 3, 1)
    split = pairs.reshape(2 * rows.shape[0], 2 * rows.shape[1])
    return Separable(_float32(split), _float32(_complex_columns(columns)), parts=2)


def _complex_columns(matrix: Complexes) -> npt.NDArray[np.float64]:
    return np.block([[matrix.real, -matrix.imag], [matrix.imag, matrix.real]])


def _float32(array: npt.NDArray[Any]) -> Floats:
    fixed = np.ascontiguousarray(array, np.float32)
    fixed.setflags(write=False)
    return fixed
