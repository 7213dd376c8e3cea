r"""Noise on the counts of a forest, and its cost.

A *query* is a table of counts in which one record more or less changes one count by one. Each has a
share s of the budget, fixed beforehand:

.. math:: \sigma = \frac{z}{\sqrt{s}} \quad (\delta > 0), \qquad
          t = \frac{1}{s\,\varepsilon} \quad (\delta = 0), \qquad \sum s \le 1.

Notes
-----
Privacy: a query has sensitivity 1 in every norm. Gaussians whose standard deviations were fixed
beforehand compose to one of multiplier z [DRS22]_, even if queries depend on earlier answers; for
Laplace noise and choices the shares of ε add up [DMNS06]_.

References
----------
.. [DRS22] Dong, Roth, Su. Gaussian differential privacy. JRSS B 2022 (Corollary 3.3).
.. [DMNS06] Dwork, McSherry, Nissim, Smith. Calibrating noise to sensitivity. TCC 2006.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.statistics.released import Spending
from tacit.privacy import errors, events
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.mechanisms import DiscreteLaplace, Exponential
from tacit.privacy.randomness import Randomness, source

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

WHERE = "RandomForestClassifier"


class ForestNoise:
    """One budget: draws noise, records what ran, and never spends more than it has.

    With δ = 0 the noise is Laplace, and choices are available; otherwise it is Gaussian.
    """

    def __init__(self, epsilon: Any, delta: float, unit: str, rng: Randomness | None) -> None:
        self.epsilon = errors.epsilon_in_range(WHERE, epsilon)
        self.unit = Unit.of(WHERE, unit)
        self.rng = source(rng)
        self._gaussian = Spending(WHERE, None, epsilon, delta, unit, rng) if delta else None
        self._ran: Counter[events.Event] = Counter()
        self._left = Fraction(1)

    @property
    def event(self) -> events.Event:
        """Return everything that was paid for; equal events are stated once, with their number."""
        parts = [events.Repeated(e, n) if n > 1 else e for e, n in self._ran.items()]
        return parts[0] if len(parts) == 1 else events.Composed(tuple(parts))

    def deviation(self, share: Fraction) -> float:
        """Return the standard deviation of the noise on one count."""
        if self._gaussian:
            return float(self._gaussian.sigma(1, share))
        return math.sqrt(2) / float(self._part(share))

    def charge(self, queries: int, share: Fraction) -> None:
        """Pay for a number of queries, with a share each."""
        scope: dict[str, Any] = {"adjacency": Adjacency.ADD_REMOVE, "unit": self.unit}
        draw: events.Event
        if self._gaussian:
            draw = events.Gaussian(Fraction(1), self._gaussian.sigma(1, share), **scope)
        else:
            draw = self._laplace(share).event
        self._pay(draw, queries, share)

    def add(self, counts: Integers, queries: int, share: Fraction) -> Integers:
        """Add noise to the counts of a number of queries, and pay for them."""
        self.charge(queries, share)
        if self._gaussian:
            return counts + self._gaussian.draw(self._gaussian.sigma(1, share), counts.shape)
        return self._laplace(share).release(counts, self.rng)

    def charge_choice(self, sensitivity: float, share: Fraction) -> None:
        """Pay for one choice per node, on nodes that share no record."""
        self._pay(self._choice(share, sensitivity).event, 1, share)

    def choose(self, scores: Reals, sensitivity: float, share: Fraction) -> Integers:
        """Choose one candidate (column) per node (row), and pay: nodes must share no record."""
        self.charge_choice(sensitivity, share)
        return self._choice(share, sensitivity).release(scores, self.rng)

    def _part(self, share: Fraction) -> Fraction:
        """Return a share of ε, rounded down to 12 digits so that parts add up to at most ε."""
        return Fraction(math.floor(self.epsilon * share * 10**12), 10**12)

    def _laplace(self, share: Fraction) -> DiscreteLaplace:
        scope: dict[str, Any] = {"adjacency": Adjacency.ADD_REMOVE, "unit": self.unit}
        return DiscreteLaplace(epsilon=self._part(share), sensitivity=1, **scope)

    def _choice(self, share: Fraction, sensitivity: float) -> Exponential:
        if self._gaussian:
            raise errors.TacitError(f"{WHERE}: choices are paid for in pure ε.")
        return Exponential(
            epsilon=self._part(share),  # type: ignore[arg-type]
            sensitivity=sensitivity,
            adjacency=Adjacency.ADD_REMOVE,
            unit=self.unit,
        )

    def _pay(self, one: events.Event, times: int, share: Fraction) -> None:
        if not 0 < times * share <= self._left:
            raise errors.TacitError(f"{WHERE}: shares of the budget must add up to 1 at most.")
        self._left -= times * share
        self._ran[one] += times
