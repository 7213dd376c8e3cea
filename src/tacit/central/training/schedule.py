r"""The schedule of a training: steps, batches and noise, fixed before any record is read.

Every record is in a batch with probability exactly :math:`q = k / 2^{32}` (`accounting.plans`).

The layout of a step is fixed beforehand: M slots, whoever is sampled. Sampled records get slots by
a secret, uniformly random injection; the other slots hold blanks, which have weight zero. If more
than M records are sampled, all slots are blank: the step is noise alone.

Theorem. Let f(c) be a sum over slots that moves by at most C if the content of one slot is blanked.
Then a step, f + N(0, σ²C²), is dominated for zero-out neighbours (one record is blank, and sampled
like all others) by the Poisson-sampled Gaussian with probability q and multiplier σ; and T steps,
each at weights that depend on earlier steps, are dominated by its T-fold composition.

Proof. Fix the record i, and condition on the coins of all others: m of them are sampled. None of
these coins depends on the data. (1) m ≥ M: if i is sampled too, all slots are blank; if not, the
others alone decide. Both hold whether or not i is blank, so the laws are equal. (2) m < M: a
uniformly random injection of m + 1 records is, on any m of them, a uniformly random injection. So
the places π of the others have the same law whether or not i is sampled; condition on them, and on
the free slot that i gets if it is sampled. If it is not sampled, or blank, the contents are those
of the others alone, bit for bit: call their sum a. If it is sampled and there, the sum is some b
with |b − a| ≤ C. So the neighbours give (1 − q) N(a) + q N(b) and N(a): the pair of the sampled
Gaussian. Its dominating pair dominates mixtures over what was conditioned on, by joint convexity.

So an overflow costs no δ, and M is chosen for speed: at most one step in 1,000 overflows.

Several processes (`ranks`): each has a part of the records, coins and slots of its own, and the sum
is over all slots. Condition on coins and places in the other processes too; the rest of the proof
is about the process that has record i. Sums of processes are added in float64, as blocks are.

Rounding. Write R for `Schedule.rounding`. If gradients are clipped to C / (1 + R), the computed sum
moves by at most C if one slot is blanked.

Proof. Let C' be the norm that is clipped to. Slots are in blocks, and blocks in parts of at most m;
blanking a slot changes only the sum of its own part, bit for bit (`rowwise`). The exact sum moves
by at most C'. The computed sum of a part is off by at most :math:`\gamma_{m+4} m C' + \rho C' / 2`,
whatever the order of its additions (`layers`, cases 1 and 2); so those of two neighbours move apart
by at most twice that: :math:`(2 m \gamma_{m+4} + \rho) C'`. The k parts of a block of B slots have
norms that add up to at most BC', and are added in the weights' own type: the error is at most
:math:`\gamma_k B C'`, twice for two neighbours. At most M blocks are added in float64, with an
error of at most :math:`\gamma_M M C'`, again twice. Underflow, and products of these small numbers
with each other, are below :math:`2^{-16} C'`. R is the sum of all these.

In float32, with m = 256 and B = 1,280, R is below 1 % up to a million slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from scipy.special import bdtrc
from torch import Tensor

from tacit.central.training import layers
from tacit.central.training.clipping import BLOCK
from tacit.privacy import errors, events
from tacit.privacy.accounting import calibration, plans
from tacit.privacy.accounting.plans import SampledGaussian
from tacit.privacy.guarantees import Unit
from tacit.privacy.randomness import Randomness

_USUAL_EPOCHS = 20
_OVERFLOW = 1e-3


@dataclass(frozen=True)
class Schedule:
    """Steps, sampling and noise of one training; it depends only on the number of records."""

    records: int
    threshold: int
    """A record is sampled if its 32-bit word is below this."""
    steps: int
    noise_multiplier: Fraction
    parts: tuple[int, ...] = ()
    """Records of each process, if several share a training (`ranks`)."""

    def part(self, rank: int) -> Schedule:
        """Return the schedule of one process: its own records and slots, the same coins."""
        return replace(self, records=self.parts[rank], parts=())

    @property
    def sampled(self) -> SampledGaussian:
        """Return the sampled Gaussian that the proof is about."""
        return SampledGaussian(self.records, self.threshold, self.steps, self.noise_multiplier)

    @property
    def probability(self) -> float:
        return self.sampled.probability

    @property
    def expected_size(self) -> float:
        return self.sampled.expected_size

    @cached_property
    def slots(self) -> int:
        """Return M: enough slots for the records of all but at most one step in 1,000.

        Each process has its own, and overflows by itself.
        """
        if self.parts:
            return sum(self.part(rank).slots for rank in range(len(self.parts)))
        mean = self.expected_size
        if self.probability == 1:
            return self.records
        sizes = np.arange(int(mean), int(mean + 10 * mean**0.5) + 30)
        enough = sizes[bdtrc(sizes, self.records, self.probability) <= _OVERFLOW]
        return min(self.records, max(1, int(enough[0]))) if len(enough) else self.records

    def rounding(self, dtype: torch.dtype) -> float:
        """Return the share of the clip norm that is reserved for rounding of sums in this type.

        By the theorem in the docstring of this module, with the largest possible number of blocks.
        """
        summed, block = min(self.slots, layers.SUMMED), min(self.slots, BLOCK)
        within = 2 * summed * layers.gamma(summed + 4, dtype) + layers.ROOM
        parts = 2 * block * layers.gamma(-(-block // summed), dtype)
        blocks = 2 * self.slots * layers.gamma(self.slots, torch.float64)
        return within + parts + blocks + 2.0**-16

    def event(self, clip_norm: Fraction, unit: Unit | str) -> events.Event:
        """Return the event: Gaussians on Poisson samples."""
        unit = Unit.of("train", unit)
        return self.sampled.event(unit, clip_norm)

    def sample(self, stream: Randomness) -> Tensor:
        """Draw the indices of a batch: each record independently, with exactly `probability`."""
        return torch.from_numpy(self.sampled.sample(stream))

    def layout(self, stream: Randomness) -> tuple[Tensor, Tensor]:
        """Draw the records of a batch and their slots; none if they outnumber the slots."""
        chosen = self.sample(stream)
        if self.slots == self.records:
            return chosen, chosen  # everyone has a slot, sampled or not
        if len(chosen) > self.slots:
            chosen = chosen[:0]
        keys = stream.words(self.slots)
        while len(np.unique(keys)) < len(keys):  # ties would favour an order
            keys = stream.words(self.slots)
        return chosen, torch.from_numpy(np.argsort(keys)[: len(chosen)])


def schedule(
    records: int,
    *,
    epsilon: float,
    delta: float,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    noise_multiplier: float | None = None,
    accountant: str = "pld",
    beside: events.Event | None = None,
) -> Schedule:
    """Find the noise for these steps, or the number of steps for this noise."""
    if beside is not None and noise_multiplier is not None:
        errors.refuse("train", "noise_multiplier", "left out if beside is given", noise_multiplier)
    errors.epsilon_in_range("train", epsilon)
    errors.delta_in_range("train", delta, records=records)
    errors.choice("train", "accountant", accountant, calibration.ACCOUNTANTS)
    size = errors.whole("train", "batch_size", batch_size, least=1)
    threshold = plans.threshold(size, records)
    if threshold == 0:
        remedy = "Use larger batches."
        errors.refuse("train", "batch_size", "at least 2^-32 of the records", size, remedy)
    probability = threshold / plans.WORDS
    wanted = _wanted_steps(probability, epochs, steps)
    if noise_multiplier is None:
        count = wanted or _steps_of(_USUAL_EPOCHS, probability)
        calibrated = calibration.noise_multiplier_for(
            epsilon,
            delta,
            sampling_probability=probability,
            steps=count,
            accountant=accountant,
            beside=beside,
        )
        multiplier = errors.positive("train", "noise_multiplier", calibrated)
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
        errors.refuse("train", "steps", "left out if epochs is given", steps)
    if epochs is not None:
        return _steps_of(float(errors.positive("train", "epochs", epochs)), probability)
    return None if steps is None else errors.whole("train", "steps", steps, least=1, most=10**9)


def _steps_of(epochs: float, probability: float) -> int:
    steps = max(1, round(epochs / probability))
    return errors.whole("train", "epochs / sampling probability", steps, least=1, most=10**9)
