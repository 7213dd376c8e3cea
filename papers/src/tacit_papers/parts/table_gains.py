"""Differences between methods on the same trials of the same tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

TODAY = "codebook"
"""The method that others are compared with: one codebook and its student."""

Result = Mapping[str, Any]


class Difference(NamedTuple):
    """The mean difference of two methods over trials, and its standard error.

    The error is NaN for a single trial, which tells nothing about it.
    """

    mean: float
    error: float

    @property
    def better(self) -> bool:
        """Whether the first method is better by more than one standard error."""
        return self.mean > self.error

    @property
    def worse(self) -> bool:
        """Whether the first method is worse by more than one standard error."""
        return -self.mean > self.error


def scores(result: Result) -> list[float]:
    """Return the score of each trial: accuracy, or the area under the curve for two classes."""
    return [float(score) for score in result[result["measure"]]["trials"]]


def summary(values: Sequence[float]) -> Difference:
    """Return the mean of the values of trials, and its standard error."""
    count = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    return Difference(float(np.mean(values)), error)


def differences(
    results: Iterable[Result], method: str, other: str = TODAY
) -> dict[tuple[str, float], Difference]:
    """Return method less other, by table and ε; trials are compared one by one."""
    by_cell = {(one["mechanism"], one["task"], one["epsilon"]): one for one in results}
    found = {}
    for (name, task, epsilon), mine in by_cell.items():
        theirs = by_cell.get((other, task, epsilon))
        if name == method and theirs is not None:
            pairs = zip(scores(mine), scores(theirs), strict=False)  # those that both have
            found[task, epsilon] = summary([a - b for a, b in pairs])
    return found
