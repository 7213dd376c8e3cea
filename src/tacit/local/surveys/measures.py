r"""How an answer becomes a level of a report, and which functions of it levels can state.

A number is rounded at random, so that the level has the right expectation:

- `mean`: to one of its two neighbours on a grid of L levels: E[level] = x;
- `moments`: twice, independently, on such a grid; the level is the pair without its order, one of
  2L − 1: half its sum has expectation x, its product x²;
- `bins`: not at all; the level is the bin that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tacit.data.outcomes import STEPS, level_chances, rounded
from tacit.local.surveys.questions import HOW, Integers, Reals
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness

MEASURES = ("option", "mean", "moments", "bins")


def question_of(asked: str) -> str:
    """Return the question that a name on a sheet is about: that of "income:bins" is income."""
    return asked.rpartition(":")[0] if asked.endswith(HOW) else asked


@dataclass(frozen=True)
class Measure:
    """The levels of one variable in a report.

    Parameters
    ----------
    variable : str
        The question, or "question=option" of a question with several answers.
    kind : str
        option, mean, moments or bins.
    size : int
        Options, grid points or bins.
    lower, upper : float
        The bounds of a number.
    """

    variable: str
    kind: str
    size: int
    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        errors.choice("survey", "measure", self.kind, MEASURES)
        errors.whole("survey", "size", self.size, least=2, most=4096)

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return 2 * self.size - 1 if self.kind == "moments" else self.size

    def draw(self, raw: Integers, rng: Randomness) -> Integers:
        """Return the level of each encoded answer; rounding at random where that is the measure."""
        if self.kind == "option":
            return raw
        if self.kind == "bins":
            return np.minimum(raw * self.size // STEPS, self.size - 1)
        return rounded(raw, self.size, rng, times=1 + self._twice)

    @property
    def _twice(self) -> bool:
        return self.kind == "moments"

    def law(self, raw: Integers) -> Reals:
        """Return the probability of each level (columns) given each encoded answer (rows)."""
        chance = np.zeros((raw.size, self.levels))
        rows = np.arange(raw.size)
        if self.kind in ("option", "bins"):
            chance[rows, self.draw(raw, None)] = 1.0  # type: ignore[arg-type]
            return chance
        below, _, part = level_chances(raw, self.size)
        weights = [(1 - part) ** 2, 2 * part * (1 - part), part**2]
        weights = weights if self._twice else [1 - part, part]
        for up, weight in enumerate(weights):
            level = np.minimum(below * (1 + self._twice) + up, self.levels - 1)
            chance[rows, level] += weight
        return chance

    def states(self, function: tuple[str, int]) -> bool:
        """Return whether the expectation of this function of the answer can be read off levels."""
        name, place = function
        if name == "power":
            binary = self.kind == "option" and self.size == 2
            return binary or self._twice or (self.kind == "mean" and place == 1)
        return self.kind == ("option" if name == "is" else "bins")

    def table(self, function: tuple[str, int]) -> Reals:
        """Return the value at each level whose expectation is the function of the answer."""
        name, place = function
        if name != "power":
            return np.asarray(np.eye(self.levels)[place])
        if self.kind == "option":
            return np.arange(2.0)
        grid = np.linspace(self.lower, self.upper, self.size)
        if self.kind == "mean":
            return grid
        level = np.arange(self.levels)
        first, second = grid[level // 2], grid[(level + 1) // 2]
        return first * second if place == 2 else (first + second) / 2

    @property
    def edges(self) -> Reals:
        """The ends of the bins."""
        return np.linspace(self.lower, self.upper, self.size + 1)

    @cached_property
    def uniform(self) -> Reals:
        """The law of levels where every answer is as likely as any other."""
        if self.kind == "option":
            return np.full(self.size, 1 / self.size)
        return np.asarray(self.law(np.linspace(0, STEPS, 2049).astype(np.int64)).mean(axis=0))

    def to_plain(self) -> list[Any]:
        return [self.variable, self.kind, self.size]
