r"""Released statistics: the value, the event behind it, and the guarantee of that event.

Everything here is Gaussian noise on integers, because Gaussians compose exactly: draws with noise
multipliers :math:`z_1, z_2, \dots` for the same neighbours together cost what one draw costs
[DRS22]_ with

.. math:: \frac{1}{z^2} = \sum_i \frac{1}{z_i^2}, \qquad z_i = \frac{z}{\sqrt{s_i}},
          \quad \sum_i s_i = 1.

A statistic is given z and divides it between its parts in shares :math:`s_i`.

References
----------
.. [DRS22] Dong, Roth, Su. Gaussian differential privacy. JRSS B 2022 (Corollary 3.3: Gaussians,
   chosen adaptively with multipliers fixed beforehand, compose to one Gaussian).
.. [BW18] Balle, Wang. Improving the Gaussian mechanism for differential privacy. ICML 2018.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors, events, gaussian
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.randomness import Randomness, Seeded, rounded_gaussian, source
from tacit.privacy.rounding import root_above

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
T = TypeVar("T")

_LARGEST_SIGMA = 2**45
_PUBLIC = "Bounds, centres and sizes were chosen without the records, or had been released before."


@dataclass(frozen=True, eq=False)
class Released(Generic[T]):
    """A private statistic: `value` may be published, at the cost that `guarantee` states."""

    value: T
    event: events.Event
    delta: float | None
    seeded: bool

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of the event: (ε, δ)-DP at the δ that was given, else zCDP."""
        return guarantee_of(self.event, self.delta)

    def certificate(
        self,
        *,
        artifact: str | Path | None = None,
        assumptions: tuple[str, ...] = (),
        not_protected: tuple[str, ...] = (),
    ) -> Certificate:
        """Certify guarantee and event, with the hash of the file that the value was written to."""
        return Certificate.issue(
            self.event,
            guarantee=self.guarantee,
            artifact=artifact,
            assumptions=(_PUBLIC, *assumptions),
            not_protected=not_protected,
            rng=Seeded(0) if self.seeded else None,
        )


class Spending:
    """Noise of one call: draws it, records what ran, and never spends more than the budget.

    Parameters
    ----------
    where : str
        The function to name in errors.
    noise_multiplier : float, optional
        Standard deviation over ℓ2 sensitivity, for the whole call; give this …
    epsilon, delta : float, optional
        … or these two: the multiplier is then the smallest that gives (ε, δ) [BW18]_. A δ given
        with a multiplier is the one that the guarantee is stated at.
    """

    def __init__(
        self,
        where: str,
        noise_multiplier: float | None,
        epsilon: float | None,
        delta: float | None,
        unit: Unit | str,
        rng: Randomness | np.random.Generator | None,
    ) -> None:
        self.where = where
        self.multiplier = _multiplier(where, noise_multiplier, epsilon, delta)
        self.unit = Unit.of(where, unit)
        self.rng = source(rng)
        self._delta = None if delta is None else float(delta)
        self._events: list[events.Event] = []
        self._remaining = Fraction(1)

    def sigma(self, sensitivity: int, share: Fraction = Fraction(1)) -> Fraction:
        r"""Return the standard deviation :math:`\Delta z / \sqrt{s}`, rounded up at 32 digits."""
        sigma = root_above((sensitivity * self.multiplier) ** 2 / share)
        if sigma > _LARGEST_SIGMA:
            shown = float(self.multiplier)
            errors.refuse(
                self.where, "noise_multiplier", "smaller", shown, "The result would be only noise."
            )
        return sigma

    def add(self, values: Integers, sensitivity: int, share: Fraction = Fraction(1)) -> Integers:
        """Add noise to integers of this joint ℓ2 sensitivity, for a share of the budget."""
        sigma = self.sigma(sensitivity, share)
        self.charge(sensitivity, sigma, share)
        return values + self.draw(sigma, values.shape)

    def draw(self, sigma: Fraction, shape: tuple[int, ...]) -> Integers:
        """Draw noise: the nearest integers to exact normal variables."""
        return rounded_gaussian(sigma, math.prod(shape), self.rng).reshape(shape)

    def charge(self, sensitivity: int, sigma: Fraction, share: Fraction) -> None:
        """Record a Gaussian that costs this share."""
        if not 0 < share <= self._remaining:
            raise errors.TacitError(f"{self.where}: shares of the budget must add up to at most 1.")
        self._remaining -= share
        self._events.append(
            events.Gaussian(
                Fraction(sensitivity), sigma, adjacency=Adjacency.ADD_REMOVE, unit=self.unit
            )
        )

    def generator(self) -> np.random.Generator:
        """Return a generator for choices that read no data, seeded by this call's randomness."""
        return np.random.default_rng(self.rng.words(4))

    def released(self, value: T) -> Released[T]:
        """Return the value with the event of everything that was drawn for it."""
        return Released(value, _composed(self._events), self._delta, not self.rng.secure)


def share_of(part: float) -> Fraction:
    """Convert a share to a short fraction, so that shares add up to 1 without rounding."""
    return Fraction(max(round(part * 2**16), 1), 2**16)


def _composed(parts: list[events.Event]) -> events.Event:
    """Combine events; equal ones are stated once, with their number, to keep certificates short."""
    times = Counter(parts)
    merged = [events.Repeated(one, count) if count > 1 else one for one, count in times.items()]
    return merged[0] if len(merged) == 1 else events.Composed(tuple(merged))


def _multiplier(where: str, noise_multiplier: Any, epsilon: Any, delta: Any) -> Fraction:
    if delta is not None:
        delta = errors.delta_in_range(where, delta)
    if noise_multiplier is not None and epsilon is None:
        number = errors.positive(where, "noise_multiplier", noise_multiplier)
        if not Fraction(1, 10**4) <= number <= 10**6:
            errors.refuse(where, "noise_multiplier", "from 1e-4 to 1e6", noise_multiplier)
        return number
    if noise_multiplier is None and epsilon is not None and delta is not None:
        target = float(errors.epsilon_in_range(where, epsilon, least=Fraction(1, 10**4)))
        return Fraction(repr(gaussian.noise_multiplier_for(target, delta)))
    errors.refuse(
        where,
        "noise",
        "given as noise_multiplier, or as epsilon and delta",
        (noise_multiplier, epsilon, delta),
    )
