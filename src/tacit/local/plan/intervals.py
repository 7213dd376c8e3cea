r"""Intervals for the accuracy that a collection reaches, from worlds and simulated collections.

Worlds are cheap and trials are not, so trials estimate one number, the efficiency

.. math:: r(n) = \frac{\sum_t (\text{reached}_t - \text{largest}_t)}
                      {\sum_t (\text{best}_t - \text{largest}_t)},

how far n people get on the way from naming the largest class to the best classifier. Every world
then says what would be reached in it, largest + r (best − largest), to which the scatter of the
trials is added. The interval holds the middle of these values, widened at both ends by what was
found necessary on real tables (`benchmarks/plan.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.local.plan.simulation import Trial

Reals = npt.NDArray[np.float64]

TAIL = 0.08
"""The share of worlds that is left out at each end."""

BOUND_TAIL = 0.25
"""The same where labels follow groups: they are as easy as labels get, and need little room."""

WIDENED = 0.0075
"""Added at the lower end, and at the upper end once per doubling of the number of classes.

Where there are many classes, real ones often form groups of rows, which are easier to learn than
the worlds. Fixed on the tuned tables of `benchmarks/tables.py`, as are `TAIL` and `CLUSTERED`.
"""

CLUSTERED = 0.15
"""Added at the upper end where cells follow clusters: real classes follow them more closely."""

SCATTER, SCATTER_WEIGHT = 0.03, 3
"""The deviation of a trial before any was seen, and the number of trials that it counts for."""

_NARROWEST, _STEPS, _NOISES = 1e-3, 60, 8


@dataclass(frozen=True)
class Interval:
    """Two ends, either of which may be unknown."""

    low: float | None
    high: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Predicted:
    """What worlds and trials say together.

    Parameters
    ----------
    best, largest : array
        The levels of every world (`tacit.plan.simulation.levels`).
    trials : sequence of Trial
        Simulated collections, with one or more numbers of people.
    classes : int
        How many labels there are.
    seed : int
        Of the scatter.
    tail : float
        The share of what worlds say that is left out at each end.
    clustered : bool
        Whether the cells follow clusters.
    """

    best: Reals
    largest: Reals
    trials: Sequence[Trial]
    classes: int
    seed: int = 0
    tail: float = TAIL
    clustered: bool = False

    @property
    def tried(self) -> list[int]:
        """The numbers of people that were simulated."""
        return sorted({trial.people for trial in self.trials})

    @property
    def kinds(self) -> list[str]:
        """The kinds of worlds that were tried."""
        return sorted({trial.kind for trial in self.trials})

    def accuracy(self, people: float) -> tuple[float, float]:
        """Return the interval at a number of people.

        Beyond what was simulated more people do no harm, and nobody beats the best classifier.
        """
        found = [self.efficiency(people, kind) for kind in self.kinds]
        low, high = self._ends(found)
        return low, self._ends([1.0])[1] if people > self.tried[-1] else high

    def people(self, target: float) -> tuple[int, int | None]:
        """Return the fewest people who may reach the target, and the fewest who are sure to.

        Numbers are among those that were simulated: the first is at least the smallest of them, and
        the largest of them if none is enough; the second is None if none is sure to be enough.
        """
        numbers = np.geomspace(self.tried[0], self.tried[-1], _STEPS)
        ends = [self.accuracy(number) for number in numbers]
        may = [n for n, (_, high) in zip(numbers, ends, strict=True) if high >= target]
        sure = [n for n, (low, _) in zip(numbers, ends, strict=True) if low >= target]
        fewest = _rounded(may[0] if may else numbers[-1], up=False)
        return fewest, _rounded(sure[0], up=True) if sure else None

    def efficiency(self, people: float, kind: str) -> float:
        """Interpolate r over the logarithm of the number of people; it never falls."""
        found = np.maximum.accumulate([self._efficiency(number, kind) for number in self.tried])
        return float(np.interp(np.log(people), np.log(self.tried), found))

    def _efficiency(self, people: int, kind: str) -> float:
        mine = [one for one in self.trials if one.people == people and one.kind == kind]
        gained = sum(trial.reached - trial.largest for trial in mine)
        return gained / max(sum(trial.best - trial.largest for trial in mine), _NARROWEST)

    def _scatter(self) -> float:
        """Estimate the deviation of a trial from what the efficiency says."""
        squares = 0.0
        for one in self.trials:
            gained = self.efficiency(one.people, one.kind) * (one.best - one.largest)
            squares += (one.reached - one.largest - gained) ** 2
        free = max(len(self.trials) - len(self.tried) * len(self.kinds), 0)
        prior = SCATTER_WEIGHT * SCATTER**2
        return float(np.sqrt((squares + prior) / (free + SCATTER_WEIGHT)))

    def _ends(self, efficiencies: Sequence[float]) -> tuple[float, float]:
        gaps = np.outer(efficiencies, self.best - self.largest)
        noise = np.random.default_rng(self.seed).normal(size=(_NOISES, *gaps.shape))
        reached = self.largest + gaps + self._scatter() * noise
        low, high = np.quantile(reached, [self.tail, 1 - self.tail])
        above = WIDENED * math.log2(self.classes) + CLUSTERED * self.clustered
        return max(float(low) - WIDENED, 0.0), min(float(high) + above, 1.0)


def _rounded(number: float, *, up: bool) -> int:
    """Round to two digits, in the direction that claims less."""
    digit: int = 10 ** max(len(str(int(number))) - 2, 0)
    return int(-(-number // digit) if up else (number + 1e-6) // digit) * digit
