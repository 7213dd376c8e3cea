r"""Training in a fixed order, for records that cannot be sampled at random: DP-FTRL.

Records have their turns in the order of the data, in batches of one size, over and over. Batch
:math:`t \bmod b` is that of step t, so a record has a turn every b steps and at most
:math:`k = \lceil T / b \rceil` turns. The noise of a step is correlated with that of earlier
ones, so that much of it cancels in the weights [KMSTTX21]_, [CCGMST23]_:

.. math:: \tilde g = \frac{b}{n} \Big(\sum_{i \in \text{batch}} g_i \min(1, C/\|g_i\|)
          + (C^{-1} \sigma Z)_t\Big)

Notes
-----
All steps together are one Gaussian, of the sensitivity that `accounting.participation` proves for
these turns. Nothing is amplified: an attacker may know whose turn it is. `FixedOrder` is the only
way to a batch; it goes forward only, ends after the steps that were stated, and cannot be copied.
A training that is started anew is another one, and is charged by itself.

References
----------
.. [KMSTTX21] Kairouz, McMahan, Song, Thakkar, Thakurta, Xu. Practical and private (deep) learning
   without sampling or shuffling. ICML 2021.
.. [CCGMST23] Choquette-Choo et al. (Amplified) banded matrix factorization: a unified approach to
   private training. NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.central.training import probing
from tacit.central.training.clipping import Clipper
from tacit.central.training.correlated import CorrelatedNoise
from tacit.central.training.gradients import SecretDraws, assumptions
from tacit.central.training.precision import whole_products
from tacit.central.training.strategies import strategy
from tacit.central.training.tracing import Loss
from tacit.central.training.training import Average, Progress
from tacit.central.training.turns import FixedOrder, Turns, turns_of
from tacit.privacy import errors, events
from tacit.privacy.accounting import calibration
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger, pay
from tacit.privacy.accounting.participation import Banded
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.randomness import Keystream, Randomness, Seeded, source

_WHERE = "train_in_order"


@dataclass(frozen=True)
class TrainedInOrder:
    """The event and the guarantee of a private training in a fixed order."""

    event: events.Event
    guarantee: Guarantee
    noise_multiplier: float
    """Standard deviation of the fresh noise of a step over the sensitivity of all steps."""
    steps: int
    period: int
    turns: int
    """The largest number of turns of a record."""
    strategy: Banded
    dropped: int = field(repr=False)
    """Number of examples that were not finite, counted at each of their turns. In-house only: it
    depends on the data without noise."""
    seeded: bool
    assumptions: tuple[str, ...] = field(repr=False)
    not_protected: tuple[str, ...] = field(repr=False)

    def certificate(self, artifact: str | Path | None = None) -> Certificate:
        """Certify the trained module, or a file that holds it."""
        return Certificate.issue(
            self.event,
            guarantee=self.guarantee,
            artifact=artifact,
            assumptions=self.assumptions,
            not_protected=self.not_protected,
            rng=Seeded(0) if self.seeded else None,
        )


def train_in_order(
    module: nn.Module,
    data: Tensor | tuple[Tensor, ...],
    loss: Loss,
    *,
    epsilon: float,
    delta: float,
    clip_norm: float = 1.0,
    batch_size: int = 256,
    epochs: float | None = None,
    steps: int | None = None,
    bands: int | None = None,
    learning_rate: float = 0.1,
    momentum: float = 0.9,
    decay: bool = False,
    average: float = 0.0,
    beside: events.Event | None = None,
    microbatch: int | None = None,
    unit: Unit | str = Unit.RECORD,
    ledger: Ledger | None = None,
    account: str | None = None,
    rng: Randomness | None = None,
    progress: Progress | None = None,
) -> TrainedInOrder:
    """Train a module in place in the order of the records, so that its weights are (ε, δ)-DP.

    Use it where `train` cannot sample: records arrive in an order, or can only be read in one.

    Parameters
    ----------
    module : nn.Module
        Parameters that require a gradient are trained. Initial weights must not depend on the data.
    data : Tensor or tuple of Tensor
        Records on the first axis, in their order, on the module's device. Shuffle them before, if
        similar records stand together and the order is free.
    loss : callable
        `loss(module, *batch)` gives one number per example, shape (n,).
    epsilon, delta : float
        The guarantee of the trained weights, towards each record.
    clip_norm : float
        Norm to which each example's gradient is clipped.
    batch_size : int
        Largest size of a batch. All batches have the same size, but for the last.
    epochs, steps : optional
        Length of the training: one of them, or neither for 20 epochs. With one epoch, each record
        is used once.
    bands : int, optional
        Number of steps over which noise is correlated, at most the number of batches. More bands
        leave less noise in the weights, and take memory: twice that of the weights for each. By
        default as many as there are batches, at most 32.
    learning_rate, momentum : float
        Settings of SGD. Noise is correlated so that weights with this momentum have least of it.
    decay : bool
        Whether the learning rate falls linearly to zero.
    average : float
        The share of the steps, from the end, whose weights are averaged.
    beside : Event, optional
        Another event on these records in the same release, as in `train`.
    microbatch : int, optional
        Largest number of examples at a time, to save memory. The result is the same.
    unit : Unit or str
        The unit that a row of the data stands for.
    ledger, account : Ledger, str, optional
        The account is charged for the whole training before any record is read.
    rng : Randomness, optional
        For tests. By default, AES-256 in counter mode, keyed by the operating system.
    progress : callable, optional
        Called after every step with its number and the number of steps.

    Notes
    -----
    For zero-out neighbours (one record is blank, the number of records is public) the weights of
    all steps, and everything computed from them alone, are (ε, δ)-DP, as one Gaussian mechanism
    (`accounting.participation`). Whose turn it is, and a record's place in the order, are not
    protected: an order by the values of records reveals them. Otherwise as for `train`.
    """
    rows = probing.checked_data(_WHERE, data, module)
    clip = errors.clip_norm_in_range(_WHERE, clip_norm)
    if microbatch is not None:
        microbatch = errors.whole(_WHERE, "microbatch", microbatch, least=1)
    stream = Keystream() if rng is None else source(rng)
    clipper = probing.clipper(_WHERE, module, loss, rows)
    stepper = _sgd(clipper.trained, learning_rate, momentum)
    share = errors.within(_WHERE, "average", average, "[0, 1]")
    errors.epsilon_in_range(_WHERE, epsilon)
    errors.delta_in_range(_WHERE, delta, records=len(rows[0]))
    turns = turns_of(len(rows[0]), batch_size, epochs, steps)
    chosen = strategy(turns.steps, turns.period, turns.bands(bands), float(momentum))
    multiplier = calibration.noise_multiplier_for(epsilon, delta, beside=beside)
    own = event_of(turns, chosen, clip, errors.positive(_WHERE, "noise", multiplier), unit)
    event = own if beside is None else _with(beside, own)
    guarantee = guarantee_of(event, delta)  # before any record is read
    clipper.prepare(turns.slots, microbatch)
    pay(_WHERE, ledger, account, event, delta=delta)
    run = _Run(
        clipper=clipper,
        order=FixedOrder(turns, rows),
        noise=CorrelatedNoise(chosen, float(own.sigma), stream, turns.steps),
        optimizer=stepper,
        clip_norm=float(clip) / (1 + turns.rounding(clipper.trained[0].dtype, chosen)),
        microbatch=microbatch,
        average=Average(share, clipper.trained) if share else None,
    )
    run.all_steps(learning_rate if decay else None, progress)
    return _trained(run, chosen, event, guarantee, own.noise_multiplier)


def _trained(
    run: _Run, chosen: Banded, event: events.Event, guarantee: Guarantee, multiplier: float
) -> TrainedInOrder:
    fresh, turns = run.noise.fresh, run.order.turns
    return TrainedInOrder(
        event=event,
        guarantee=guarantee,
        noise_multiplier=multiplier,
        steps=turns.steps,
        period=turns.period,
        turns=turns.most,
        strategy=chosen,
        dropped=run.dropped,
        seeded=not fresh.stream.secure,
        assumptions=assumptions(fresh, run.clipper.trained[0].device),
        not_protected=_limits(str(guarantee.unit)),
    )


def _sgd(trained: list[nn.Parameter], learning_rate: float, momentum: float) -> torch.optim.SGD:
    rate = float(errors.positive(_WHERE, "learning_rate", learning_rate))
    fused = trained[0].device.type in ("cpu", "cuda")
    kept = errors.probability(_WHERE, "momentum", momentum)
    return torch.optim.SGD(trained, lr=rate, momentum=kept, fused=fused)


def event_of(
    turns: Turns, chosen: Banded, clip_norm: Fraction, multiplier: Fraction, unit: Unit | str
) -> events.Gaussian:
    """Return the event: one Gaussian for all steps."""
    moved = clip_norm * chosen.sensitivity(turns.steps, turns.period)
    unit = Unit.of(_WHERE, unit)
    return events.Gaussian(moved, multiplier * moved, adjacency=Adjacency.ZERO_OUT, unit=unit)


def _with(beside: events.Event, event: events.Event) -> events.Event:
    return events.Composed((events.towards(beside, Adjacency.ZERO_OUT), event))


def _limits(unit: str) -> tuple[str, ...]:
    return (
        f"The number of {unit}s, their order and the steps in which each has its turn.",
        "Training losses and the number of dropped examples. Do not release them.",
    )


@dataclass
class _Run:
    """The steps of one training."""

    clipper: Clipper
    order: FixedOrder
    noise: CorrelatedNoise
    optimizer: torch.optim.Optimizer
    clip_norm: float
    microbatch: int | None
    average: Average | None
    dropped: int = 0

    def all_steps(self, falling_rate: float | None, progress: Progress | None) -> None:
        """Take all steps, with secret draws of the module's own, in full precision."""
        steps = self.order.turns.steps
        module, device = self.clipper.module, self.clipper.trained[0].device
        secret = SecretDraws(self.noise.fresh.stream, device)
        with probing.state_kept(module), secret.active(), whole_products():
            for step in range(steps):
                if falling_rate is not None:
                    self.optimizer.param_groups[0]["lr"] = falling_rate * (1 - step / steps)
                self._step()
                if self.average is not None and self.average.wanted(step, steps):
                    self.average.add()
                if progress is not None:
                    progress(step + 1, steps)
            if self.average is not None:
                self.average.put()

    def _step(self) -> None:
        """Take one optimiser step with a noisy gradient, and nothing else."""
        batch, there = self.order.batch()
        sums, dropped = self.clipper.sums(batch, self.clip_norm, self.microbatch, there)
        self.dropped += dropped
        turns = self.order.turns
        self.noise.add_to(sums, turns.records / turns.period)
        gradient = sums.to(self.clipper.trained[0].dtype)
        for parameter, part in zip(self.clipper.trained, self.clipper.views(gradient), strict=True):
            parameter.grad = part
        self.optimizer.step()
        for parameter in self.clipper.trained:
            parameter.grad = None
