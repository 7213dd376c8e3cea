r"""Softmax regression by DP-SGD: `tacit.private_training` on a layer without a bias.

Notes
-----
The guarantee is that of `tacit.private_training.train`: Gaussians on Poisson samples. The number of
records is public: it sets the sampling probability and the size of a step. Noise is floating-point
Gaussian from a cryptographic generator, an assumption that the certificate states.

References
----------
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.central.estimators.base import Reals
from tacit.central.estimators.classifier import Codes
from tacit.privacy.events import Event, towards
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.randomness import Randomness

if TYPE_CHECKING:
    from tacit.central.training.schedule import Schedule
    from tacit.central.training.trained import Trained

_RATE = 8.0
_MOMENTUM = 0.9


@dataclass(frozen=True)
class SampledDescent:
    """DP-SGD with a number of steps and an expected batch size."""

    where: str
    rows: int
    dimension: int
    scores: int
    epsilon: float
    delta: float
    steps: int
    batch_size: int | None
    unit: Unit | str

    @cached_property
    def event(self) -> Event:
        """Return the event of `solve`."""
        return towards(self._schedule.event(Fraction(1), self.unit), Adjacency.ZERO_OUT)

    @property
    def noise(self) -> float:
        """Return the approximate norm of the noise on a gradient, for a batch of all records."""
        scale = float(self._schedule.noise_multiplier) / self._schedule.probability
        return scale * math.sqrt(self.dimension * max(self.scores, 2))

    def solve(self, rows: Reals, codes: Codes, rng: Randomness | None) -> tuple[Reals, Event]:
        """Return weights, one row per score, and the event."""
        import torch

        layer = torch.nn.Linear(self.dimension, max(self.scores, 2), bias=False)
        torch.nn.init.zeros_(layer.weight)
        data = (torch.tensor(rows, dtype=torch.float32), torch.tensor(codes))
        trained = self._train(layer, data, rng)
        weights = layer.weight.detach().numpy().astype(np.float64)
        return (weights[1:] - weights[:1] if self.scores == 1 else weights), towards(
            trained.event, Adjacency.ZERO_OUT
        )

    def _train(self, layer: Any, data: Any, rng: Randomness | None) -> Trained:
        from torch.nn.functional import cross_entropy

        from tacit.central.training.training import train

        return train(
            layer,
            data,
            lambda module, x, y: cross_entropy(module(x), y, reduction="none"),
            epsilon=self.epsilon,
            delta=self.delta,
            clip_norm=1.0,
            batch_size=self._batch,
            steps=self.steps,
            optimizer="sgd",
            learning_rate=_RATE,
            momentum=_MOMENTUM,
            decay=True,
            unit=self.unit,
            rng=rng,
        )

    @cached_property
    def _batch(self) -> int:
        """Return the batch size, by default a quarter of the records: few steps, little noise."""
        return math.ceil(self.rows / 4) if self.batch_size is None else self.batch_size

    @cached_property
    def _schedule(self) -> Schedule:
        from tacit.central.training.schedule import schedule

        return schedule(
            self.rows,
            epsilon=self.epsilon,
            delta=self.delta,
            batch_size=self._batch,
            epochs=None,
            steps=self.steps,
            noise_multiplier=None,
            accountant="pld",
        )
