"""The rows, bounds and ε on which `queries.py` and its peers are compared, and how peers answer.

Only the standard library is used here, because the peers' own scripts import this module.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

from peers import Task, rate

EPSILON = 0.5
LOWER, UPPER = 0.0, 100.0
EDGES = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
ABOVE = 50.0  # if a neighbour replaces a row, the number of all rows is public: count these
VALUES = [100 * (i / 1000) ** 1.7 for i in range(1, 1000)]  # in the bounds, with mean 37
LOW = [100 * (i / 1000) ** 9 for i in range(1, 1000)]  # with mean 10: near a bound
MEAN = sum(VALUES) / len(VALUES)
TRUTH: dict[str, list[float]] = {
    "count": [sum(value > ABOVE for value in VALUES)],
    "sum": [sum(VALUES)],
    "mean": [MEAN],
    "mean_add_remove": [MEAN],
    "mean_low": [sum(LOW) / len(LOW)],
    "variance": [sum((value - MEAN) ** 2 for value in VALUES) / len(VALUES)],
    "histogram": [sum(low <= value < high for value in VALUES) for low, high in pairwise(EDGES)],
}

Draw = Callable[[], Sequence[float]]


def squared_errors(name: str, draw: Draw, draws: int) -> tuple[float, float]:
    """Return the mean squared error over independent draws, and its standard error."""
    each = [
        sum((released - true) ** 2 for released, true in zip(draw(), TRUTH[name], strict=True))
        for _ in range(draws)
    ]
    mean = sum(each) / draws
    return mean, (sum((one - mean) ** 2 for one in each) / draws**2) ** 0.5


def serve(tasks: dict[str, Task], draws: dict[str, Draw]) -> None:
    """Serve as `peers.serve` does; "mean 2000" requests the errors of 2,000 draws."""
    for work, _ in tasks.values():
        work()  # caches and lazy imports
    print(json.dumps(sorted((*tasks, *draws))), flush=True)
    for line in sys.stdin:
        name, _, count = line.strip().partition(" ")
        answer = squared_errors(name, draws[name], int(count)) if count else rate(tasks[name])
        print(json.dumps(answer), flush=True)
