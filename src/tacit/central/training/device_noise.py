r"""The map from words to noise of `noise`, on the device of the sums and without waiting for it.

The words of a block are laid out as on the CPU: points in the plane (radii, then angles), shifts
within a grid cell, then 64 bits for each small radius, in their order. How many radii are small is
not known on the host. So a fixed number of words is drawn for them, every place looks up the word
of its rank among the small ones, and only small ones take it.

Notes
-----
Radii are refined in float32, where the CPU takes float64: both are accurate to a unit or two in the
last place of the radius, as are logarithms and sines. Against float64 throughout, one or two of
10^5 entries move by one grid step (`test_device_noise`), and none by more.

Among 2^21 radii there are 0.25 small ones on average, and more than 32, which would share a word,
with a probability below 2^-180.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.central.training.device_stream import DeviceStream

SMALL = 256
"""Radius words below this are refined."""

_BLOCK = 1 << 22
_REFINED = 32


def add(sums: Tensor, stream: DeviceStream, sigma: float, grid: float, divisor: float) -> None:
    """Add noise to a flat tensor, round it to the grid at random and divide it, in place."""
    for start in range(0, sums.numel(), _BLOCK):
        block = sums[start : start + _BLOCK]
        words = stream.words_on(block.device, words_for(len(block)))
        add_words(block, words, sigma, grid, divisor)


def words_for(count: int) -> int:
    """Return the number of 32-bit words for so many normals."""
    return 2 * ((count + 1) // 2) + 2 * ((count + 3) // 4) + 2 * _REFINED


def add_words(block: Tensor, words: Tensor, sigma: float, grid: float, divisor: float) -> None:
    """Do the same with given words, as many as `words_for` says."""
    count, half = len(block), (len(block) + 1) // 2
    plane, rest = words[: 2 * half].to(torch.float32), words[2 * half :]
    shift = rest[: -2 * _REFINED].view(torch.int16)[:count]
    size = _refined(plane[:half].abs_(), rest[-2 * _REFINED :].view(torch.int64))
    radius = size.mul_(2.0**-31).log_().mul_(-2 * (sigma / grid) ** 2).sqrt_()
    angle = plane[half:].mul_(math.pi * 2.0**-31)
    block.mul_(1 / grid)
    block[:half].addcmul_(radius, angle.cos())
    block[half:].addcmul_(radius[: count - half], angle.sin_()[: count - half])
    block.add_(shift.to(torch.float32), alpha=2.0**-16).round_().mul_(grid / divisor)


def _refined(size: Tensor, words: Tensor) -> Tensor:
    """Add a uniform part of (−1/2, 1/2), never 0, to sizes that are small."""
    parts = (words.to(torch.float64) + 0.5).mul_(2.0**-64).to(torch.float32)
    small = size < SMALL
    rank = small.cumsum(0, dtype=torch.int32).sub_(1).clamp_(0, _REFINED - 1)
    return torch.where(small, (size + parts[rank]).abs_(), size)
