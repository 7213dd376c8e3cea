r"""Features of the linear models: scattering features of views, scaled by synthetic strokes.

A view is the image itself, or a small affine change of it, drawn from a hash of its pixels: the
views of an image depend on that image alone. Features of a view are measured from their mean over
synthetic strokes (images of nobody), in the first k principal directions of the strokes, each
divided by the fourth root of its variance. A row is then scaled to norm 1, and a constant appended.

Nothing here is learned from the images, so none of it costs privacy.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from tacit.local.learned import scattering
from tacit.local.learned.synthetic import strokes

Floats = npt.NDArray[np.float32]

DIRECTIONS = 1024
CONSTANT = 0.3
ROTATION, SCALE, SHEAR, SHIFT = 0.2, 0.12, 0.15, 0.09
"""Largest changes of a view: in radians; about 1; about 0; in half sides of the image."""

_STROKES, _QUICK_STROKES = 20_000, 1000
_STROKES_SEED = 0
_BLOCK = 2048
_LEAST_VARIANCE = 1e-6
"""Least variance of a direction, as a share of that of the first one."""


@dataclass(frozen=True)
class FeatureScale:
    """The scale that strokes determine: features minus a mean, times a matrix."""

    image: tuple[int, int]
    device: str
    mean: Tensor
    matrix: Tensor

    def rows(self, images: Tensor) -> Tensor:
        """Return rows (n, k + 1) of images (n, height, width)."""
        projected = (features(images, self.image, self.device) - self.mean) @ self.matrix
        projected = functional.normalize(projected, dim=1)
        return functional.pad(projected, (0, 1), value=CONSTANT)


def rows_of(
    pixels: Floats, image: tuple[int, int], views: int, device: str, *, quick: bool = False
) -> Floats:
    """Return rows (n, views, k + 1) of images (n, height · width) with pixels in [0, 1]."""
    frame = _frame(image, device, _QUICK_STROKES if quick else _STROKES)
    out = np.empty((len(pixels), views, frame.matrix.shape[1] + 1), np.float32)
    for start in range(0, len(pixels), _BLOCK):
        block = pixels[start : start + _BLOCK].reshape(-1, *image)
        maps = _maps(block, views - 1)
        there = torch.from_numpy(block).to(device)
        for view in range(views):
            seen = there if view == 0 else _changed(there, maps[:, view - 1])
            out[start : start + _BLOCK, view] = frame.rows(seen).cpu().numpy()
    return out


def features(images: Tensor, image: tuple[int, int], device: str) -> Tensor:
    """Compute `scattering.transform` with torch, to the precision of float32."""
    if device == "cpu":
        return torch.from_numpy(scattering.transform(images.flatten(1).numpy(), image))
    filters = scattering.bank(*image).convert(lambda one: torch.from_numpy(one.copy()).to(device))
    scattered: Tensor = scattering.scatter(images.permute(1, 2, 0).contiguous(), filters, torch)
    return scattered.reshape(scattering.dimension(image), -1).T


def _frame(image: tuple[int, int], device: str, count: int) -> FeatureScale:
    images = torch.from_numpy(strokes(count, image, _STROKES_SEED)).reshape(-1, *image).to(device)
    centred = torch.cat([features(block, image, device) for block in torch.split(images, _BLOCK)])
    mean = centred.mean(dim=0)
    centred -= mean
    variances, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    kept = min(DIRECTIONS, int((variances > _LEAST_VARIANCE * variances[-1]).sum()))
    matrix = vectors[:, -kept:] / variances[-kept:] ** 0.25
    return FeatureScale(image, device, mean, matrix)


def _maps(images: Floats, views: int) -> Tensor:
    """Draw affine maps (n, views, 2, 3), which depend on each image alone."""
    drawn = np.empty((len(images), views, 6))
    for place, image in enumerate(images):
        rng = np.random.default_rng(zlib.crc32(image.tobytes()))
        drawn[place] = rng.uniform(-1, 1, (views, 6))
    turn, shear = ROTATION * drawn[..., 0], SHEAR * drawn[..., 1]
    wide, high = (1 + SCALE * drawn[..., axis] for axis in (2, 3))
    cosine, sine = np.cos(turn), np.sin(turn)
    first = [wide * cosine, high * (shear * cosine - sine), SHIFT * drawn[..., 4]]
    second = [wide * sine, high * (shear * sine + cosine), SHIFT * drawn[..., 5]]
    maps = np.stack([np.stack(row, axis=-1) for row in (first, second)], axis=-2)
    return torch.from_numpy(maps.astype(np.float32))


def _changed(images: Tensor, maps: Tensor) -> Tensor:
    size = [len(images), 1, *images.shape[1:]]
    grid = functional.affine_grid(maps.to(images.device), size, align_corners=False)
    return functional.grid_sample(images[:, None], grid, align_corners=False)[:, 0]
