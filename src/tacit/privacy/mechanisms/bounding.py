"""Bounds on one person's contribution: a grid, integer norms, projections.

Floats are quantised first and bounded afterwards, in integers: rounding after clipping would add
up to half a step per coordinate to the norm that the noise is calibrated to.

References
----------
.. [DSSC08] Duchi, Shalev-Shwartz, Singer, Chandra. Efficient projections onto the ℓ1-ball. 2008.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, rowwise
from tacit.privacy.mechanisms.base import Channel, ThroughNoise
from tacit.privacy.randomness import Randomness

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

LARGEST_RADIUS = 2**24
"""Integer norms up to here are exact in int64 for up to 2^14 coordinates."""

_SATURATION = 2.0**40


def power_of_two(where: str, name: str, value: Any) -> float:
    """Check a grid step: dividing by a power of two is exact in floating point."""
    number = float(errors.positive(where, name, value))
    if math.frexp(number)[0] != 0.5 or not 2.0**-40 <= number <= 2.0**40:
        nearest = 2.0 ** min(max(math.floor(math.log2(number)), -40), 40)
        errors.refuse(where, name, "a power of two from 2^-40 to 2^40", value, f"Try {nearest!r}.")
    return number


def grid_for(spread: float) -> float:
    """Return a step of about a thousandth of the noise: exact, and too fine to affect accuracy."""
    return 2.0 ** (math.floor(math.log2(spread)) - 10)


def quantize(raw: Any, grid: float, where: str = "quantize") -> Integers:
    """Round to multiples of the grid step, as integers; values saturate at 2^40 steps.

    Halves always round up: values d steps apart then end at most ⌈d⌉ apart. (Halves to even would
    send 0.5 and 1.5 to 0 and 2.) Half steps are floored first, which is exact in floats.
    """
    reach = _SATURATION * grid
    half_steps = np.floor(np.clip(errors.held_reals(where, raw), -reach, reach) * (2 / grid))
    return np.asarray((half_steps.astype(np.int64) + 1) >> 1)


@dataclass(frozen=True)
class GridBall:
    """Vectors on a grid, clipped in integers to a ball: the input side of local mechanisms.

    Parameters
    ----------
    where : str
        The mechanism that an error should name.
    radius : float
        Of the ℓ1 (order 1) or ℓ2 (order 2) ball.
    grid : float or None
        A power of two; None is about a thousandth of a quarter of the radius.
    """

    where: str
    radius: float
    grid: float | None
    order: int

    @cached_property
    def step(self) -> float:
        """The grid step in use."""
        radius = float(errors.positive(self.where, "radius", self.radius))
        grid = grid_for(radius / 4) if self.grid is None else self.grid
        return power_of_two(self.where, "grid", grid)

    @cached_property
    def radius_steps(self) -> int:
        """The radius in grid steps, rounded down."""
        radius = errors.positive(self.where, "radius", self.radius)
        steps = math.floor(radius / Fraction(self.step))
        return errors.whole(self.where, "radius / grid", steps, least=1, most=LARGEST_RADIUS)

    def clip(self, raw: Any) -> Integers:
        """Quantise and clip vectors (last axis); return grid steps."""
        return self.clip_steps(np.atleast_1d(quantize(raw, self.step, self.where)))

    def clip_steps(self, steps: Integers) -> Integers:
        """Clip vectors (last axis) of grid steps; those inside the ball stay as they are."""
        return _clip(steps, self.radius_steps, self.order)

    def release(self, noise: Channel, raw: Any, rng: Randomness | None) -> Reals:
        """Release clipped vectors through an integer mechanism, on the scale of the data."""
        return np.asarray(noise.release(self.clip(raw), rng).astype(np.float64) * self.step)

    def log_prob(self, noise: Channel, released: Any, raw: Any) -> Reals:
        """Compute the log-probability of such a release, one number per vector."""
        steps = np.atleast_1d(errors.reals(self.where, released)) / self.step
        return np.asarray(noise.log_prob(steps, self.clip(raw)).sum(axis=-1))


class ClippedVector(ThroughNoise):
    """A mechanism that clips a person's own vector to a ball, and adds noise to its grid steps."""

    @cached_property
    def ball(self) -> GridBall:
        """The grid and the ball that vectors are clipped to."""
        raise NotImplementedError

    def release(self, raw: Any, rng: Randomness | None = None) -> Reals:
        return self.ball.release(self._noise, raw, rng)

    def log_prob(self, released: Any, raw: Any) -> Reals:
        """Compute the log-probability of each vector."""
        return self.ball.log_prob(self._noise, released, raw)


def clip_l1(values: Integers, radius: int) -> Integers:
    """Scale vectors along the last axis towards zero until their ℓ1 norm is within the radius."""
    return _clip(values, radius, order=1)


def clip_l2(values: Integers, radius: int) -> Integers:
    """Scale vectors along the last axis towards zero until their ℓ2 norm is within the radius."""
    return _clip(values, radius, order=2)


def _clip(values: Integers, radius: int, order: int) -> Integers:
    radius = errors.whole("clip", "radius", radius, least=1, most=LARGEST_RADIUS)
    real = values.astype(np.float64)
    # Summed in a fixed order: the norm of a row must not depend on its position.
    size = np.abs(real)
    if values.ndim:
        size = (rowwise.total(size) if order == 1 else rowwise.lengths(size))[..., None]
    scaled = real * np.minimum(radius / np.maximum(size, 1.0), 1.0)
    # Truncate towards zero, except where only rounding has missed an integer.
    nearest = np.rint(scaled)
    whole = np.abs(scaled - nearest) <= 2.0**-20
    clipped = np.where(whole, nearest, np.trunc(scaled)).astype(np.int64)
    # Decided in integers, as a float norm can be off by one unit. Few rows need a second step.
    while np.any(outside := (np.abs(clipped) ** order).sum(axis=-1) > radius**order):
        clipped[outside] -= np.sign(clipped[outside])
    return clipped


def project_l1(vector: Any, radius: float) -> Reals:
    """Project a vector to the nearest point of the ℓ1 ball [DSSC08]_."""
    radius = float(errors.positive("project_l1", "radius", radius))
    x = errors.reals("project_l1", vector)
    with np.errstate(over="ignore"):
        if np.abs(x).sum() <= radius:
            return x
    return np.asarray(np.sign(x) * project_simplex(np.abs(x), radius))


def project_l2(vector: Any, radius: float) -> Reals:
    """Project a vector to the nearest point of the ℓ2 ball."""
    radius = float(errors.positive("project_l2", "radius", radius))
    x = errors.reals("project_l2", vector)
    largest = float(np.abs(x).max())
    norm = float(np.linalg.norm(x / largest)) if largest else 0.0  # its square may overflow
    return x if norm * largest <= radius else (x / largest) * (radius / norm)


def project_simplex(vector: Any, total: float = 1.0) -> Reals:
    """Project to the nearest point with entries ≥ 0 that sum to `total` [DSSC08]_."""
    total = float(errors.positive("project_simplex", "total", total))
    x = errors.reals("project_simplex", vector)
    if x.ndim != 1:
        errors.refuse("project_simplex", "vector", "one-dimensional", x.shape)
    # Projecting commutes with a shift, and entries far below the largest end at 0 anyway.
    with np.errstate(over="ignore"):
        x = np.maximum(x - x.max(), -2 * total)
    descending = np.sort(x)[::-1]
    excess = np.cumsum(descending) - total
    active = np.flatnonzero(descending * np.arange(1, x.size + 1) > excess)[-1]
    return np.asarray(np.maximum(x - excess[active] / (active + 1), 0.0))


def project_counts(rows: Integers, total: int) -> Integers:
    """Project each row to the nearest integers ≥ 0 with this sum.

    All positive entries lose the same amount; if it is not an integer, the largest lose one more.
    """
    order = np.argsort(-rows, axis=1, kind="stable")
    down = np.take_along_axis(rows, order, axis=1)
    excess = np.cumsum(down, axis=1) - total
    size = np.arange(1, rows.shape[1] + 1)
    # The largest number of entries that stay positive when they share the excess.
    kept = (down * size > excess).sum(axis=1)
    place = np.arange(len(rows))
    share, rest = np.divmod(excess[place, kept - 1], kept)
    taken = share[:, None] + (size <= rest[:, None])
    projected = np.zeros_like(rows)
    np.put_along_axis(projected, order, np.maximum(down - taken, 0), axis=1)
    return projected
