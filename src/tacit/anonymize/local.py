r"""A local ε on top of an encoder: bounded representations are released by an exact channel.

A continuous representation lies in the ℓ1 ball of radius 1 and gets discrete Laplace noise on a
grid (`LocalLaplace`); a code of finitely many cells gets randomized response. Both are ε-DP for any
two inputs, for any encoder that is a function of one row: its output must be bounded, and the
channel clips it again, in integers. This does not cover rows that the encoder was fitted on, which
influence every representation.

So no attacker, with any knowledge of the encoder, names one of m equally likely people from one
release with probability above :math:`e^\varepsilon / (e^\varepsilon + m - 1)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee, Unit
from tacit.privacy.mechanisms import LocalLaplace, RandomizedResponse
from tacit.privacy.randomness import Randomness

if TYPE_CHECKING:
    from torch import nn

Floats = npt.NDArray[np.float32]

RADIUS = 1.0
DIMENSIONS = 8
"""Default dimensions of a noisy representation: each further one adds its own noise."""


@dataclass(frozen=True)
class Local:
    """The channel through which a representation is released.

    Parameters
    ----------
    epsilon : Fraction
        ε of one release.
    unit : Unit
        The unit that it protects.
    cells : int, optional
        Number of cells, if representations are indicators of cells; otherwise they lie in the ℓ1
        ball.
    """

    epsilon: Fraction
    unit: Unit = Unit.RECORD
    cells: int | None = None

    @cached_property
    def channel(self) -> LocalLaplace | RandomizedResponse:
        """The exact channel."""
        if self.cells is not None:
            return RandomizedResponse(categories=self.cells, epsilon=self.epsilon, unit=self.unit)
        return LocalLaplace(epsilon=self.epsilon, radius=RADIUS, unit=self.unit)  # type: ignore[arg-type]

    @property
    def event(self) -> Event:
        return self.channel.event

    @property
    def guarantee(self) -> Guarantee:
        return self.channel.guarantee

    def release(self, representation: Any, rng: Randomness | None = None) -> Floats:
        """Release one representation per row, with the operating system's entropy by default.

        A representation that is not finite is replaced by 0: no row may cause an error.
        """
        clean = np.nan_to_num(np.asarray(representation, np.float64), posinf=0.0, neginf=0.0)
        if self.cells is None:
            return self.channel.release(clean, rng).astype(np.float32)
        codes = self.channel.release(clean.argmax(axis=1), rng).astype(np.int64)
        hot = np.zeros((len(codes), self.cells), np.float32)
        np.put_along_axis(hot, codes[:, None], 1.0, axis=1)
        return hot

    def noise(self) -> nn.Module:
        """Return nearly the same noise as a module, for training and not for release."""
        from tacit.anonymize import networks

        if self.cells is None:
            return networks.TrainingLaplaceNoise(2 * RADIUS / float(self.epsilon))
        others = (self.cells - 1) * math.exp(-float(self.epsilon))
        return networks.Flips(1 / (1 + others))

    def ceiling(self, people: int) -> float:
        """Bound the probability that anyone names the right one of equally likely people."""
        errors.whole("ceiling", "people", people, least=1)
        return 1 / (1 + (people - 1) * math.exp(-float(self.epsilon)))
