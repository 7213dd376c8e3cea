"""Hyper-parameters of "Learning to Noise": its Tables 2, 3 and 4 as data.

Rows of Tables 3 and 4 are each for one local ε; `nearest` returns the closest one for another ε. λ
is the share of ε for the row (our `label_share` is 1 − λ), l the clipping radius, ε_pre the ε of
the noise while training. The last line of each part is without local noise (∞).

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Appendix C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

IMAGES, TABLES = "images", "tables"
"""Kinds of data: the paper has MNIST and Lending Club; other data take settings of their kind."""

EPSILONS = (10.0, 8.0, 6.0, 4.0, 2.0, 1.0, math.inf)
CENTRAL_DELTA = 1e-5


@dataclass(frozen=True)
class DPAdam:
    """A line of Table 2, for encoders with a central guarantee; gradients are clipped to 1."""

    learning_rate: float
    batch_size: int
    noise_multiplier: float


TABLE_2 = {
    (IMAGES, 5.0): DPAdam(5e-4, 64, 0.7),
    (IMAGES, 1.0): DPAdam(5e-4, 64, 1.1),
    (TABLES, 5.0): DPAdam(1e-4, 128, 0.56),
    (TABLES, 1.0): DPAdam(1e-4, 128, 1.1),
}

STAGE_1 = {IMAGES: (5e-4, 64), TABLES: (1e-4, 128)}
"""Learning rate and batch size without a central guarantee. The paper states no epochs."""

EPOCHS = 20


@dataclass(frozen=True)
class TableLine:
    """A line of Table 3 or 4."""

    row_share: float | None  # λ; nothing to share where there is no label or no noise
    radius: float  # l
    pretraining_epsilon: float | str
    latent_dimension: int = 8


def _lines(*lines: tuple[float, float, float]) -> dict[float, TableLine]:
    """Make the lines for ε = 10, 8, 6, 4, 2, 1; the line for ∞ is the same everywhere."""
    finite = {e: TableLine(*line) for e, line in zip(EPSILONS, lines, strict=False)}
    return {**finite, math.inf: TableLine(None, 10, "learned")}


TABLE_3 = {
    10.0: TableLine(None, 5, 10, 8),
    8.0: TableLine(None, 5, 15, 5),
    6.0: TableLine(None, 5, 15, 5),
    4.0: TableLine(None, 5, 10, 5),
    2.0: TableLine(None, 5, 15, 5),
    1.0: TableLine(None, 5, 10, 5),
    math.inf: TableLine(None, 5, 20, 8),
}

_M = 0.7
TABLE_4 = {
    ("clean", "latent", IMAGES): _lines(
        (_M, 10, 27), (_M, 5, 29), (_M, 5, 15), (_M, 7.5, 5), (_M, 7.5, 21), (_M, 5, 15)
    ),
    ("clean", "latent", TABLES): _lines(
        (_M, 5, 15), (_M, 5, 29), (_M, 5, 29), (_M, 5, 15), (0.95, 5, 15), (0.95, 10, 21)
    ),
    ("private", "latent", IMAGES): _lines(
        (_M, 10, 5), (_M, 7.5, 5), (_M, 7.5, 5), (_M, 5, 5), (_M, 5, 15), (_M, 7.5, 15)
    ),
    ("private", "latent", TABLES): _lines(
        (0.95, 5, 15), (0.95, 5, 15), (_M, 5, 15), (_M, 5, 15), (0.95, 5, 29), (0.95, 10, 21)
    ),
    ("clean", "feature", IMAGES): _lines(
        (_M, 5, 29), (_M, 5, 15), (_M, 7.5, 21), (_M, 5, 5), (_M, 7.5, 5), (_M, 5, 15)
    ),
    ("clean", "feature", TABLES): _lines(
        (_M, 5, 29), (0.95, 5, 29), (_M, 5, 15), (_M, 5, 15), (_M, 5, 15), (_M, 10, 15)
    ),
    ("private", "feature", IMAGES): _lines(
        (_M, 10, 5), (_M, 10, 5), (_M, 10, 5), (_M, 5, 5), (_M, 7.5, 5), (0.95, 5, 15)
    ),
    ("private", "feature", TABLES): _lines(
        (0.95, 5, 15), (0.95, 5, 15), (0.95, 5, 15), (_M, 5, 15), (0.95, 7.5, 27), (0.95, 5, 15)
    ),
}

GRID = {
    "row_share": (0.7, 0.95),
    "radius": (5.0, 7.5, 10.0),
    "pretraining_epsilon": (5.0, 15.0, 21.0, 27.0, 29.0, "learned"),
}
"""Every value in Table 4; the paper does not say what else its search tried."""


def nearest(table: dict[float, TableLine], epsilon: float) -> TableLine:
    """Return the line of the closest ε, by ratio; between two, the smaller one."""
    finite = sorted(e for e in table if e < math.inf)
    return table[min(finite, key=lambda e: abs(math.log(e / epsilon)))]
