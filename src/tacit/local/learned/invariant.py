r"""Features from an encoder that is trained, without labels, to ignore small deformations.

Two random deformations of an image must end near each other and far from those of other images
[CKNH20]_. With unit vectors z of a batch of B images in two views, and i' the other view of i, the
loss is

.. math:: L = \frac{1}{2B} \sum_{i=1}^{2B} -\log
              \frac{\exp(z_i \cdot z_{i'} / \tau)}{\sum_{j \ne i} \exp(z_i \cdot z_j / \tau)}

Notes
-----
The weights depend on the in-house images: they carry no guarantee towards them.

References
----------
.. [CKNH20] Chen, Kornblith, Norouzi, Hinton. A simple framework for contrastive learning of visual
   representations. ICML 2020.
.. [SSP03] Simard, Steinkraus, Platt. Best practices for convolutional neural networks applied to
   visual document analysis. ICDAR 2003.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.data.schema import Rows, Schema
from tacit.local.learned import encoders
from tacit.local.learned.encoders import ConvEncoder
from tacit.privacy import devices, errors

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
"""A function of images (n, 1, h, w) in [0, 1] and a generator on their device to changed images."""

Progress = Callable[[int, int, float], None]
"""Called after every epoch with the epoch (from 1), their number, and the mean loss."""

_CPU_BLOCK, _DEVICE_BLOCK = 128, 8192  # the first stays within a CPU's cache
_WARM_UP = 0.05
_WEIGHT_DECAY = 1e-4
_TURN, _SCALE, _SHEAR, _SHIFT = math.radians(20), 0.2, 0.3, 0.15
_ELASTIC, _ELASTIC_KNOTS = 0.03, 5
_THICKER, _THINNER = 1.0, 0.7


@dataclass(frozen=True)
class InvariantFeatures:
    """Unit vectors from a trained `ConvEncoder`.

    Parameters
    ----------
    encoder : ConvEncoder
        In evaluation mode, float32.
    device : str
        Where `transform` computes; it is not saved.
    losses : tuple of float
        Mean loss of every epoch, if it was trained in this process.
    """

    encoder: ConvEncoder = field(repr=False)
    device: str = "cpu"
    losses: tuple[float, ...] = field(default=(), repr=False, compare=False)
    kind: str = field(default="invariant", init=False)

    @property
    def dimension(self) -> int:
        return self.encoder.outputs

    def transform(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Compute one unit vector per row, (n, dimension)."""
        step = _CPU_BLOCK if self.device == "cpu" else _DEVICE_BLOCK
        vectors = np.empty((len(rows), self.dimension), dtype=np.float32)
        with encoders.inference():
            for start in range(0, len(rows), step):
                block = encoders.to_batch(rows[start : start + step], self.device)
                vectors[start : start + step] = self.encoder(block.numbers).cpu().numpy()
        return vectors

    def on(self, device: str) -> InvariantFeatures:
        """Return the same features, computed on another device."""
        device = devices.resolve("InvariantFeatures.on", device)
        made = from_parts(None, *self.parts())
        made.encoder.to(device)
        return replace(made, device=device, losses=self.losses)

    def parts(self) -> tuple[dict[str, Any], encoders.Arrays]:
        """Return JSON-ready parameters and the weights."""
        return self.encoder.settings(), encoders.to_arrays(self.encoder)


def from_parts(
    schema: Schema | None, params: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> InvariantFeatures:
    """Rebuild features from what `parts` returned."""
    encoder = encoders.restore(lambda: ConvEncoder.from_settings(params), arrays)
    if schema is not None and _image(schema) != encoder.image:
        errors.refuse("InvariantFeatures", "image", f"{encoder.image}", _image(schema))
    return InvariantFeatures(encoder)


def fit(
    schema: Schema,
    rows: Rows,
    seed: int,
    *,
    device: str = "cpu",
    augment: Augmentation | None = None,
    epochs: int = 80,
    batch: int = 1024,
    temperature: float = 0.5,
    learning_rate: float = 1e-3,
    outputs: int = 64,
    progress: Progress | None = None,
) -> InvariantFeatures:
    """Train an encoder on unlabelled images.

    Parameters
    ----------
    schema : Schema
        Of an array of images.
    rows : Rows
        In-house images; all of them are kept on the device.
    seed : int
        Seed of weights, order and deformations.
    device : str
        Where to train ("auto" is a GPU where there is one), and where the features then compute;
        see `InvariantFeatures.on`.
    augment : callable, optional
        What the features should ignore: by default `small_deformations`.
    epochs, batch, temperature, learning_rate, outputs
        Of AdamW, with warm-up and a cosine schedule. A GPU computes in bfloat16.
    progress : callable, optional
        Called with the epoch, the number of epochs and the mean loss.

    Notes
    -----
    The unit vectors that the loss compares are the features themselves, with no further head:
    views of one image then share a direction, which is what k-means on the sphere looks for.
    """
    where = "invariant.fit"
    device = devices.resolve(where, device)
    seed = errors.whole(where, "seed", seed, least=0)
    epochs = errors.whole(where, "epochs", epochs, least=1)
    batch = errors.whole(where, "batch", batch, least=2)
    outputs = errors.whole(where, "outputs", outputs, least=2)
    for name, value in (("temperature", temperature), ("learning_rate", learning_rate)):
        errors.positive(where, name, value)
    image = _image(schema)
    if len(rows) < 2:
        raise errors.InvalidData(f"{where}: rows must be at least 2. Give more images.")
    encoder = encoders.build(seed, lambda: ConvEncoder(image, outputs)).to(device)
    images = encoders.to_batch(rows, device).numbers.reshape(-1, 1, *image)
    generator = torch.Generator(device).manual_seed(seed)
    trainer = _Trainer(encoder, augment or small_deformations, generator, temperature)
    losses = trainer.train(images, epochs, min(batch, len(images)), learning_rate, progress)
    return InvariantFeatures(encoder.eval().requires_grad_(False), device, losses)


@dataclass(frozen=True)
class _Trainer:
    """The state of training that does not change between steps."""

    encoder: ConvEncoder
    augment: Augmentation
    generator: torch.Generator
    temperature: float

    def train(
        self, images: Tensor, epochs: int, batch: int, rate: float, progress: Progress | None
    ) -> tuple[float, ...]:
        """Train; return the mean loss of every epoch. An incomplete last batch is skipped."""
        steps = len(images) // batch
        weights = self.encoder.parameters()
        optimiser = torch.optim.AdamW(weights, lr=rate, weight_decay=_WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, _rate(epochs * steps))
        losses: list[float] = []
        for epoch in range(epochs):
            order = torch.randperm(len(images), generator=self.generator, device=images.device)
            total = torch.zeros((), device=images.device)
            for chosen in order[: steps * batch].reshape(steps, batch):
                loss = self.loss(images[chosen])
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
                # Summed on the device: reading it at every step would stall the device.
                total += loss.detach()
            losses.append(float(total) / steps)
            if progress is not None:
                progress(epoch + 1, epochs, losses[-1])
        return tuple(losses)

    def loss(self, images: Tensor) -> Tensor:
        """Compute the loss of two fresh views of a batch."""
        kind = images.device.type
        with torch.no_grad():
            views = [self.augment(images, self.generator) for _ in range(2)]
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            vectors = self.encoder(torch.cat(views))
        return contrastive_loss(vectors, self.temperature)


def contrastive_loss(vectors: Tensor, temperature: float) -> Tensor:
    """Compute the loss for unit vectors of two views, the second half in the order of the first."""
    count = len(vectors)
    similarity = vectors @ vectors.T / temperature
    similarity = similarity.masked_fill(
        torch.eye(count, dtype=torch.bool, device=vectors.device), -math.inf
    )
    partner = torch.arange(count, device=vectors.device).roll(count // 2)
    return F.cross_entropy(similarity, partner)


def small_deformations(images: Tensor, generator: torch.Generator) -> Tensor:
    """Deform every image by random affine and elastic moves and changes of stroke width.

    Rotation to ±20°, scale to ±20 % on each axis, shear to ±0.3, shift to ±15 % of the image; a
    smooth field of displacements, σ = 3 % of the image at 5 × 5 knots [SSP03]_; then a
    blend with the dilation (up to all of it) or the erosion (up to 0.7) by one pixel. All are
    uniform except the displacements. Pixels beyond the edge have the edge's value.
    """
    count, _, height, width = images.shape
    grid = F.affine_grid(_affine(images, generator), [count, 1, height, width], align_corners=False)
    knots = (count, 2, _ELASTIC_KNOTS, _ELASTIC_KNOTS)
    coarse = torch.randn(knots, generator=generator, device=images.device)
    smooth = F.interpolate(coarse, size=(height, width), mode="bicubic", align_corners=True)
    grid = grid + 2 * _ELASTIC * smooth.permute(0, 2, 3, 1)
    moved = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    thick = F.max_pool2d(moved, 3, stride=1, padding=1)
    thin = -F.max_pool2d(-moved, 3, stride=1, padding=1)
    weight = _uniform(images, (count, 1, 1, 1), generator)
    thicker, thinner = _THICKER * weight.clamp(min=0), _THINNER * (-weight).clamp(min=0)
    return moved + thicker * (thick - moved) + thinner * (thin - moved)


def _affine(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw random matrices (n, 2, 3) from output to input coordinates, both in [-1, 1]."""
    draws = _uniform(images, (6, len(images)), generator)
    angle, scale = _TURN * draws[0], 1 + _SCALE * draws[1:3]
    # An image is 2 wide in these coordinates.
    shear, shift = _SHEAR * draws[3], 2 * _SHIFT * draws[4:6]
    cos, sin = torch.cos(angle), torch.sin(angle)
    # Rotation, times shear along x, times scale.
    first = torch.stack([cos * scale[0], (cos * shear - sin) * scale[1], shift[0]], dim=1)
    second = torch.stack([sin * scale[0], (sin * shear + cos) * scale[1], shift[1]], dim=1)
    return torch.stack([first, second], dim=1)


def _uniform(like: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return 2 * torch.rand(shape, generator=generator, device=like.device) - 1


def _rate(steps: int) -> Callable[[int], float]:
    """Return the learning rate: linear warm-up, then half a cosine to zero."""
    warm = max(1, round(_WARM_UP * steps))

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    return factor


def _image(schema: Schema) -> tuple[int, int]:
    image = getattr(schema, "image", None)
    if image is None:
        errors.refuse(
            "invariant", "schema", "of images", type(schema).__name__, "Set image=(h, w)."
        )
    return int(image[0]), int(image[1])
