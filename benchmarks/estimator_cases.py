"""The rows on which `estimators.py` and its peer are compared. Only numpy is used here."""

from __future__ import annotations

import numpy as np

SEED, ROWS, TESTED, COLUMNS = 0, 50_000, 20_000, 20
LOWER, UPPER = -3.0, 3.0
EPSILON, DELTA = 1.0, 1e-6
TREES, DEPTH, LABEL_DEPTH = 100, 8, 4


class Cases:
    """Standard-normal rows within [−3, 3], and three targets; the last rows are for testing."""

    def __init__(self) -> None:
        rng = np.random.default_rng(SEED)
        count = ROWS + TESTED
        rows = np.clip(rng.standard_normal((count, COLUMNS)), LOWER, UPPER)
        weights = rng.standard_normal(COLUMNS)
        answers = rows @ weights + rng.standard_normal(count)
        chances = 1 / (1 + np.exp(-rows @ rng.standard_normal(COLUMNS)))
        labels = (rng.random(count) < chances).astype(int)
        grown = grow(rng, rows)
        self.rows, self.test = rows[:ROWS], rows[ROWS:]
        self.answers, self.test_answers = answers[:ROWS], answers[ROWS:]
        self.labels, self.test_labels = labels[:ROWS], labels[ROWS:]
        self.grown, self.test_grown = grown[:ROWS], grown[ROWS:]
        # From the public weights that made the target, as someone who knows the question would.
        reach = float(np.ceil(3 * np.sqrt((weights**2).sum() + 1)))
        self.target_bounds = (-reach, reach)


def grow(rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    """Label rows by a tree of depth 4: other columns at every node, leaves of alternating class."""
    place = np.zeros(len(rows), int)
    for _ in range(LABEL_DEPTH):
        nodes = int(place.max()) + 1
        columns, cuts = rng.integers(COLUMNS, size=nodes), rng.uniform(-0.5, 0.5, nodes)
        right = rows[np.arange(len(rows)), columns[place]] > cuts[place]
        place = 2 * place + right
    return rng.permutation(np.arange(place.max() + 1) % 2)[place]
