r"""Gaussian noise for gradients, in floating point, from cryptographic words.

Pairs of normals come from pairs of 32-bit words U, V by Box and Muller's transform [BM58]_:

.. math:: Z_1 = \sqrt{-2 \ln u}\,\cos\theta, \qquad Z_2 = \sqrt{-2 \ln u}\,\sin\theta,
          \qquad u = |U| / 2^{31}, \quad \theta = \pi V / 2^{31}

with both words read as signed. If |U| is below 256, 64 more bits refine u within its cell, so that
the tail does not end at the 6.7 standard deviations of 32 bits but beyond 11.

Notes
-----
The release is sum + noise, put on a grid of 2^-8 to 2^-7 standard deviations by *stochastic*
rounding: up or down with the probability that keeps the mean. The steps of float32, through which
floating-point noise reveals its input [Mir12]_, are about 2^16 times finer than the grid, and
random rounding averages them out: the probability of a grid point is off by the square of that
ratio. This is an estimate, not a proof: certificates list it as an assumption. The grid adds less
than 1e-5 to the variance.

References
----------
.. [BM58] Box, Muller. A note on the generation of random normal deviates. 1958.
.. [Mir12] Mironov. On significance of the least significant bits for differential privacy. 2012.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.central.training import device_noise
from tacit.central.training.device_noise import SMALL
from tacit.central.training.device_stream import DeviceStream
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness

_BLOCK = 1 << 17
"""Normals per block: this bounds the memory, and spreads the cost of a call."""
_GRID_BITS = 7


@dataclass(frozen=True)
class Noise:
    """Gaussian noise of standard deviation sigma, added and rounded to a grid at random."""

    sigma: float
    stream: Randomness

    def __post_init__(self) -> None:
        # Outside this range, float32 has no multiples of the grid, and the noise would be lost.
        if not 2.0**-100 <= self.sigma <= 2.0**100:
            errors.refuse("Noise", "sigma", "from 2^-100 to 2^100", self.sigma)

    @property
    def grid(self) -> float:
        """Return the step: a power of two, so that its multiples are exact floats."""
        return float(2.0 ** (math.floor(math.log2(self.sigma)) - _GRID_BITS))

    def add_to(self, sums: Tensor, divisor: float = 1.0) -> None:
        """Add noise to a flat tensor and divide it, in place.

        With a `DeviceStream` it is drawn on the tensor's device, otherwise on the CPU.
        """
        if isinstance(self.stream, DeviceStream):
            device_noise.add(sums, self.stream, self.sigma, self.grid, divisor)
            return
        for start in range(0, sums.numel(), _BLOCK):
            block = sums[start : start + _BLOCK]
            noisy = block.cpu()  # the block itself, if it is on the CPU already
            self._add_to_block(noisy, divisor)
            if noisy.device != block.device:
                block.copy_(noisy)

    def _add_to_block(self, block: Tensor, divisor: float) -> None:
        """Work in units of the grid, a power of two, so that the conversion is exact."""
        count, half = len(block), (len(block) + 1) // 2
        words = self.stream.words(half + (count + 3) // 4)
        plane, cosine, shift = self._room
        plane, cosine, shift = plane[: 2 * half], cosine[:half], shift[:count]
        plane.copy_(_tensor(words[:half].view(np.int32)))
        radius, angle = _polar(plane, self.stream, self.sigma / self.grid)
        block.mul_(1 / self.grid)
        block[:half].addcmul_(radius, torch.cos(angle, out=cosine))
        block[half:].addcmul_(radius[: count - half], angle.sin_()[: count - half])
        # A uniform shift by up to half a cell either way, then the nearest multiple. 16 bits are as
        # fine as the floats that the shift is added to.
        shift.copy_(_tensor(words[half:].view(np.int16)[:count]))
        block.add_(shift, alpha=2.0**-16).round_().mul_(self.grid / divisor)

    @cached_property
    def _room(self) -> tuple[Tensor, Tensor, Tensor]:
        """Buffers that are reused at every step: allocating memory costs as much as filling it."""
        return torch.empty(_BLOCK), torch.empty(_BLOCK // 2), torch.empty(_BLOCK)


def standard_normal(count: int, stream: Randomness) -> Tensor:
    """Draw independent standard normal variables, float32, on the CPU."""
    radius, angle = _polar(_signed((count + 1) // 2, stream), stream, 1.0)
    return torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)])[:count]


def _polar(words: Tensor, stream: Randomness, sigma: float) -> tuple[Tensor, Tensor]:
    """Compute radii and angles of points in the plane from signed words, in place."""
    pairs = len(words) // 2
    size, angle = words[:pairs].abs_(), words[pairs:].mul_(math.pi * 2.0**-31)
    small = None
    if pairs and float(size.min()) < SMALL:  # once in a hundred blocks
        small = torch.nonzero(size < SMALL).flatten()
        refined = _radius((size[small].double() + _fractions(len(small), stream)).abs_(), sigma)
        size.clamp_(min=1)  # these few are overwritten: anything but log 0
    radius = _radius(size, sigma)
    if small is not None:
        radius[small] = refined.float()
    return radius, angle


def _radius(size: Tensor, sigma: float) -> Tensor:
    return size.mul_(2.0**-31).log_().mul_(-2 * sigma**2).sqrt_()


def _tensor(words: npt.NDArray[Any]) -> Tensor:
    """Return words as a tensor; read-only words are copied, as torch requires."""
    return torch.from_numpy(words if words.flags.writeable else words.copy())


def _signed(count: int, stream: Randomness) -> Tensor:
    """Draw 2 × `count` signed 32-bit words, as float32."""
    return torch.from_numpy(stream.words(count).view(np.int32).astype(np.float32))


def _fractions(count: int, stream: Randomness) -> Tensor:
    """Draw uniformly from (−1/2, 1/2), never 0: the place of u in its cell around an integer."""
    words = stream.words(count).view(np.int64).astype(np.float64)
    return torch.from_numpy((words + 0.5) * 2.0**-64)
