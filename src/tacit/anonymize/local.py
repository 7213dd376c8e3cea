r"""A local ε on top of an encoder: the bounded representation goes out through an exact channel.

A continuous representation lies in the ℓ1 ball of radius 1 and gets discrete Laplace noise on a
grid (`LocalLaplace`); a code of finitely many cells gets randomized response. Both are ε-DP for any
two inputs, for any encoder that is a function of one row: its output must be bounded, and the
channel bounds it again, in integers. Rows that the encoder was fitted on are another matter: they
are in every representation that it gives.

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
"""Of a representation that gets noise, unless said: each one more gets noise of its own."""


@dataclass(frozen=True)
class Local:
    """What happens to a representation before it leaves.

    Parameters
    ----------
    epsilon : Fraction
        Of one release.
    unit : Unit
        Whom it protects.
    cells : int, optional
        Where representations are indicators of so many cells; else they lie in the ℓ1 ball.
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
        """One release a row, drawn from the operating system's entropy unless a test says else.

        A representation that is not finite is taken as 0: no row is answered by an error.
        """
        clean = np.nan_to_num(np.asarray(representation, np.float64), posinf=0.0, neginf=0.0)
        if self.cells is None:
            return self.channel.release(clean, rng).astype(np.float32)
        codes = self.channel.release(clean.argmax(axis=1), rng).astype(np.int64)
        hot = np.zeros((len(codes), self.cells), np.float32)
        np.put_along_axis(hot, codes[:, None], 1.0, axis=1)
        return hot

    def noise(self) -> nn.Module:
        """The same law, nearly, for training: nothing that it touches is released."""
        from tacit.anonymize import networks

        if self.cells is None:
            return networks.LaplaceNoise(2 * RADIUS / float(self.epsilon))
        others = (self.cells - 1) * math.exp(-float(self.epsilon))
        return networks.Flips(1 / (1 + others))

    def ceiling(self, people: int) -> float:
        """The most that anyone can be right about one of so many equally likely people."""
        errors.whole("ceiling", "people", people, least=1)
        return 1 / (1 + (people - 1) * math.exp(-float(self.epsilon)))
