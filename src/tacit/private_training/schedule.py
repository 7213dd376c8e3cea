r"""How often, on how many records, with how much noise: settled before anything is looked at.

Every record is in a batch with probability exactly :math:`q = k / 2^{32}`, decided by a 32-bit word
of its own; the event states that very q.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from tacit import errors, events
from tacit.accounting import calibration
from tacit.guarantees import Adjacency, Unit
from tacit.private_training.clipping import block_for
from tacit.randomness import Randomness

_WORDS = 2**32
_USUAL_EPOCHS = 20


@dataclass(frozen=True)
class Schedule:
    """Steps, sampling and noise of one training; of the data only their number enters."""

    records: int
    threshold: int
    """A record is taken where its 32-bit word is below this."""
    steps: int
    noise_multiplier: Fraction

    @property
    def probability(self) -> float:
        return self.threshold / _WORDS

    @property
    def expected_size(self) -> float:
        return self.probability * self.records

    def rounding(self, dtype: torch.dtype) -> float:
        """What is left free of the clip norm for the rounding of sums in this type.

        One record less regroups a sum. Crafted gradients were seen to move a running float32 sum of
        n by about :math:`n^2 2^{-24} / 18` clip norms through rounding alone; twice that is left,
        with blocks in place of one of the factors, and a batch half as large again as expected.
        """
        size, unit = 1.5 * self.expected_size, torch.finfo(dtype).eps / 2
        return 1e-4 + size * min(size, block_for(self.expected_size, dtype)) * unit / 9

    def event(self, clip_norm: Fraction, unit: Unit | str) -> events.Event:
        """What accounting composes: Gaussians on Poisson samples."""
        noise = events.Gaussian(
            clip_norm,
            self.noise_multiplier * clip_norm,
            adjacency=Adjacency.ADD_REMOVE,
            unit=Unit(errors.choice("train", "unit", unit, list(Unit))),
        )
        return events.Repeated(events.PoissonSampled(self.probability, noise), self.steps)

    def sample(self, stream: Randomness) -> Tensor:
        """Indices of a batch: every record independently, with exactly `probability`."""
        words = stream.words((self.records + 1) // 2).view(np.uint32)[: self.records]
        # In 64 bits, because a threshold of 2^32 takes everyone.
        return torch.from_numpy(np.flatnonzero(words < np.uint64(self.threshold)))


def schedule(
    records: int,
    *,
    epsilon: float,
    delta: float,
    batch_size: int,
    epochs: float | None,
    steps: int | None,
    noise_multiplier: float | None,
    accountant: str,
    beside: events.Event | None = None,
) -> Schedule:
    """Noise for the steps, or steps for the noise."""
    if beside is not None and noise_multiplier is not None:
        errors.refuse("train", "noise_multiplier", "left out beside an event", noise_multiplier)
    errors.epsilon_in_range("train", epsilon)
    errors.delta_in_range("train", delta, records=records)
    errors.choice("train", "accountant", accountant, calibration.ACCOUNTANTS)
    size = errors.whole("train", "batch_size", batch_size, least=1)
    threshold = min(size, records) * _WORDS // records
    if threshold == 0:
        remedy = "Take larger batches."
        errors.refuse("train", "batch_size", "at least 2^-32 of the records", size, remedy)
    probability = threshold / _WORDS
    wanted = _wanted_steps(probability, epochs, steps)
    if noise_multiplier is None:
        count = wanted or _steps_of(_USUAL_EPOCHS, probability)
        found = calibration.noise_multiplier_for(
            epsilon,
            delta,
            sampling_probability=probability,
            steps=count,
            accountant=accountant,
            beside=beside,
        )
        multiplier = errors.positive("train", "noise_multiplier", found)
        return Schedule(records, threshold, count, multiplier)
    multiplier = errors.positive("train", "noise_multiplier", noise_multiplier)
    affordable = calibration.steps_for(
        epsilon,
        delta,
        noise_multiplier=float(multiplier),
        sampling_probability=probability,
        accountant=accountant,
    )
    return Schedule(records, threshold, min(affordable, wanted or affordable), multiplier)


def _wanted_steps(probability: float, epochs: float | None, steps: int | None) -> int | None:
    if epochs is not None and steps is not None:
        errors.refuse("train", "steps", "left out where epochs are given", steps)
    if epochs is not None:
        return _steps_of(float(errors.positive("train", "epochs", epochs)), probability)
    return None if steps is None else errors.whole("train", "steps", steps, least=1, most=10**9)


def _steps_of(epochs: float, probability: float) -> int:
    steps = max(1, round(epochs / probability))
    return errors.whole("train", "epochs / sampling probability", steps, least=1, most=10**9)
