r"""Default settings for training a network, computed from public numbers only.

Few large steps are used, so that the budget is divided between few draws. The learning rate is

.. math:: \eta = \frac{1}{C}\min\Big(\eta_0,\; \frac{a}{\nu\sqrt T}\Big), \qquad
          \nu = \frac{\sigma\sqrt p}{q n}

where ν is the norm of the noise on an averaged gradient of p weights, in clip norms C. What noise
alone adds to the weights in T steps has a norm proportional to :math:`\eta C \nu\sqrt T`, which
this rule limits to about a. Where noise is small, :math:`\eta_0` limits the rate. Regression needs
more precision than classification: for the squared loss both constants are smaller. All of these
numbers are public, including the number of records, which sets the sampling probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.central.training.schedule import Schedule

OPTIMIZERS = ("sgd", "adam")
PART, FEW = 4, 4096
"""Default batch size: the records divided by `PART`, or all of them if at most `FEW`."""

EPOCHS, STEPS = 25.0, 100
"""Smallest number of epochs and of steps, if no number of epochs is given."""

_MOMENTUM = 0.9
_FASTEST, _NOISE = 5.0, 2.0
_FASTEST_SQUARED, _NOISE_SQUARED = 0.3, 0.5
_ADAM = 0.02


@dataclass(frozen=True)
class Recipe:
    """Settings of `tacit.private_training.train`; None stands for a default."""

    where: str
    batch_size: int | None
    epochs: float | None
    clip_norm: float
    optimizer: str
    learning_rate: float | None
    momentum: float | None
    average: float

    def length(self, records: int) -> dict[str, Any]:
        """Return batch size and epochs."""
        default_size = math.ceil(records / PART) if records > FEW else records
        size = default_size if self.batch_size is None else self.batch_size
        size = errors.whole(self.where, "batch_size", size, least=1)
        default_epochs = max(EPOCHS, STEPS * min(size, records) / records)
        epochs = default_epochs if self.epochs is None else self.epochs
        epochs = float(errors.positive(self.where, "epochs", epochs))
        return {"batch_size": size, "epochs": epochs}

    def steps(self, plan: Schedule, weights: int, loss: str) -> dict[str, Any]:
        """Return the optimizer settings for this schedule, number of weights and loss."""
        errors.choice(self.where, "optimizer", self.optimizer, OPTIMIZERS)
        clip = float(errors.positive(self.where, "clip_norm", self.clip_norm))
        rate = self.learning_rate
        if rate is None:
            rate = _rate(plan, weights, loss) / clip if self.optimizer == "sgd" else _ADAM
        return {
            "clip_norm": clip,
            "optimizer": self.optimizer,
            "learning_rate": float(errors.positive(self.where, "learning_rate", rate)),
            "momentum": self._momentum(),
            "average": self._average(),
        }

    def _momentum(self) -> float:
        if self.momentum is None:
            return _MOMENTUM if self.optimizer == "sgd" else 0.0
        momentum = errors.probability(self.where, "momentum", self.momentum)
        if momentum and self.optimizer == "adam":
            errors.refuse(
                self.where, "momentum", "left out with adam", momentum, "Adam has its own."
            )
        return momentum

    def _average(self) -> float:
        return 1.0 if self.average == 1 else errors.probability(self.where, "average", self.average)


def _rate(plan: Schedule, weights: int, loss: str) -> float:
    """Return the learning rate, in clip norms."""
    squared = loss == "squared"
    fastest, most = (_FASTEST_SQUARED, _NOISE_SQUARED) if squared else (_FASTEST, _NOISE)
    noise = float(plan.noise_multiplier) * math.sqrt(weights) / plan.expected_size
    return min(fastest, most / (noise * math.sqrt(plan.steps)))
