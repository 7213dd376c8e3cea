r"""The plan of a sampled Gaussian: sampling probability, number of steps, noise.

Each of N units (records, clients) is in a step's sample with probability exactly
:math:`q = k / 2^{32}`, independently of the others: if its own 32-bit word is below k. The event
states exactly this q, so what is sampled is what is proved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.randomness import Randomness
from tacit.privacy.rounding import root_above

WORDS = 2**32


def threshold(size: Fraction | int, units: int) -> int:
    """Return k for samples of this expected size, rounded down; 0 if the size is too small."""
    return math.floor(min(Fraction(size) / units, Fraction(1)) * WORDS)


@dataclass(frozen=True)
class SampledGaussian:
    """Gaussian noise on Poisson samples, in a planned number of steps.

    Parameters
    ----------
    units : int
        N, the number of units to sample from.
    threshold : int
        k: a unit is in a sample if its 32-bit word is below this.
    steps : int
        Number of samples that are drawn.
    noise_multiplier : Fraction
        Standard deviation of the noise over the ℓ2 sensitivity.
    """

    units: int
    threshold: int
    steps: int
    noise_multiplier: Fraction

    @property
    def probability(self) -> float:
        """q, the sampling probability."""
        return self.threshold / WORDS

    @property
    def expected_size(self) -> float:
        """qN, the expected size of a sample."""
        return self.threshold * self.units / WORDS

    def event(self, unit: Unit, sensitivity: Fraction | None = None) -> events.Event:
        """Return the event for zero-out neighbours: a blank unit is sampled, too."""
        clip = Fraction(1) if sensitivity is None else sensitivity
        sigma = self.noise_multiplier * clip
        noise = events.Gaussian(clip, sigma, adjacency=Adjacency.ZERO_OUT, unit=unit)
        return events.Repeated(events.PoissonSampled(self.probability, noise), self.steps)

    def sample(self, stream: Randomness) -> npt.NDArray[np.intp]:
        """Draw the places of a sample: each unit independently, with exactly `probability`."""
        words = stream.words((self.units + 1) // 2).view(np.uint32)[: self.units]
        # In 64 bits, because a threshold of 2^32 samples everyone.
        return np.flatnonzero(words < np.uint64(self.threshold))


def update_multiplier(
    where: str, multiplier: Fraction, deviation: Fraction | None = None, *, releases: int = 1
) -> Fraction:
    r"""Compute the multiplier of each of R updates, so that together they have `multiplier`.

    .. math:: R \left(z_\Delta^{-2} + (2\sigma_b)^{-2}\right) \le z^{-2}

    Parameters
    ----------
    where : str
        Who asks, for errors.
    multiplier : Fraction
        z, the noise multiplier of the whole round.
    deviation : Fraction, optional
        :math:`2\sigma_b`, if each update comes with a count.
    releases : int
        R, the number of noisy updates in a round.

    Notes
    -----
    Updates and counts over their standard deviations are one vector with noise of standard
    deviation 1 on every entry, and one unit moves it by the root of the left side at most (Theorem
    1 of Andrew et al. 2021). The result is rounded up in exact arithmetic, so no round costs more
    than stated.
    """
    precision = 1 / (releases * multiplier**2)
    if deviation is not None:
        precision -= 1 / deviation**2
    if precision <= 0:
        least = math.sqrt(releases) * float(multiplier) / 2
        errors.refuse(
            where, "count_noise", f"above {least:.6g}", float(deviation or 0) / 2,
            "The count alone costs more than the round may. Add more noise to it.",
        )  # fmt: skip
    return root_above(1 / precision)
