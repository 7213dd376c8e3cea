r"""DP-SGD and DP-Adam: training in which no record can be told from its absence.

Every step takes each record with probability q, sums their clipped gradients and adds noise:

.. math:: \tilde g = \frac{1}{qn}\Big(\sum_{i \in B} g_i \min(1, C/\|g_i\|) + \mathcal{N}(0,
          \sigma^2 C^2 I)\Big)

and hands the result to an ordinary optimiser, which sees nothing else of the data.

Notes
-----
The event is `steps` Gaussians on Poisson samples; the guarantee is derived from it by
`tacit.accounting.derivation.guarantee_of`. The number of records n is treated as public: q and the
divisor are set from it. Losses and the number of dropped examples stay in-house.

References
----------
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016.
.. [MTZ19] Mironov, Talwar, Zhang. Rényi differential privacy of the sampled Gaussian. 2019.
.. [KB15] Kingma, Ba. Adam: a method for stochastic optimization. ICLR 2015.
.. [PJ92] Polyak, Juditsky. Acceleration of stochastic approximation by averaging. SICON 1992.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.central.training import probing
from tacit.central.training.gradients import NoisyGradients, assumptions, clip_norm_within, limits
from tacit.central.training.noise import Noise
from tacit.central.training.schedule import schedule
from tacit.central.training.tracing import Loss
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger, pay
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.randomness import Keystream, Randomness, Seeded, source

Progress = Callable[[int, int], None]
"""Called after every step with the step (from 1) and their number."""

OPTIMIZERS = ("adam", "sgd")


@dataclass(frozen=True)
class Trained:
    """What a private training ran, and what that promises."""

    event: events.Event
    guarantee: Guarantee
    noise_multiplier: float
    sampling_probability: float
    steps: int
    dropped: int = field(repr=False)
    """Examples that were not finite, counted as often as they were met. In-house only: it depends
    on the data without noise."""
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


def train(
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
    noise_multiplier: float | None = None,
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    momentum: float = 0.0,
    decay: bool = False,
    average: float = 0.0,
    accountant: str = "pld",
    beside: events.Event | None = None,
    microbatch: int | None = None,
    unit: Unit | str = Unit.RECORD,
    ledger: Ledger | None = None,
    account: str | None = None,
    rng: Randomness | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train a module in place so that its weights are (ε, δ)-DP towards the records.

    Parameters
    ----------
    module : nn.Module
        Parameters that require a gradient are trained. Its start must not depend on the data.
    data : Tensor or tuple of Tensor
        Records on the first axis, on the module's device.
    loss : callable
        `loss(module, *batch)` gives one number for every example, shape (n,).
    epsilon, delta : float
        What the trained weights may cost each record.
    clip_norm : float
        Norm to which every example's gradient is clipped.
    batch_size : int
        Expected size: every record is taken with probability batch_size / n, rounded down to a
        multiple of 2^-32.
    epochs, steps : optional
        How long; one of them, or neither for 20 epochs.
    noise_multiplier : float, optional
        Of the noise, as a multiple of `clip_norm`: training then ends where ε is reached, or after
        `steps` or `epochs` if that is sooner. Without it the noise is calibrated to the steps.
    optimizer : {"adam", "sgd"}
    learning_rate, momentum : float
        Momentum is for "sgd".
    decay : bool
        Let the learning rate fall linearly to zero.
    average : float
        The part of the steps, from the end, whose weights are averaged: 0 keeps the last, 1
        averages all [PJ92]_. It costs nothing: every step's weights are covered by the guarantee.
    accountant : {"pld", "rdp"}
        What noise or steps are calibrated with.
    beside : Event, optional
        What else of the same release runs on these records (their preparation, say). Noise is
        calibrated, and event and guarantee are stated, for both together.
    microbatch : int, optional
        At most so many examples at a time, to save memory. The result is the same.
    unit : Unit or str
        What a row of the data is.
    ledger, account : Ledger, str, optional
        Charged for the whole training before a record is looked at; where too little is left,
        nothing is trained. The account must be zero-out, or replace-one at the price of two.
    rng : Randomness, optional
        For tests. Without it: AES-256 in counter mode, keyed by the operating system.
    progress : callable, optional
        Told step and steps.

    Notes
    -----
    Under zero-out neighbours (one record blanked, their number public) the weights, and everything
    computed from them alone, are (ε, δ)-DP. Choosing between several trainings by their losses, or
    a start fitted to the same data, is not covered. A record on which an operator raises counts for
    nothing; on a CUDA device a label or index out of range ends the process instead: check them
    first. The certificate states it as an assumption.
    """
    where = "train"
    rows = probing.checked_data(where, data, module)
    clip = errors.clip_norm_in_range(where, clip_norm)
    if microbatch is not None:
        microbatch = errors.whole(where, "microbatch", microbatch, least=1)
    stream = Keystream() if rng is None else source(rng)
    clipper = probing.clipper(where, module, loss, rows)
    stepper = optimizer_of(optimizer, clipper.trained, learning_rate, momentum)
    averaged = _averaged(average, clipper.trained)
    plan = schedule(
        len(rows[0]),
        epsilon=epsilon,
        delta=delta,
        batch_size=batch_size,
        epochs=epochs,
        steps=steps,
        noise_multiplier=noise_multiplier,
        accountant=accountant,
        beside=beside,
    )
    event = plan.event(clip, unit)
    if beside is not None:
        event = events.Composed((events.towards(beside, Adjacency.ZERO_OUT), event))
    guarantee = guarantee_of(event, delta)  # before anything is looked at
    pay(where, ledger, account, event, delta=delta)
    noise = Noise(float(plan.noise_multiplier * clip), stream)
    room = clip_norm_within(float(clip), plan, clipper.trained[0].dtype)
    gradients = NoisyGradients(clipper, rows, noise, plan, room, microbatch)
    _Run(gradients, stepper, averaged).all_steps(learning_rate if decay else None, progress)
    return _trained(gradients, event, guarantee)


def _trained(gradients: NoisyGradients, event: events.Event, guarantee: Guarantee) -> Trained:
    return Trained(
        event=event,
        guarantee=guarantee,
        noise_multiplier=float(gradients.plan.noise_multiplier),
        sampling_probability=gradients.plan.probability,
        steps=gradients.plan.steps,
        dropped=gradients.dropped,
        seeded=not gradients.noise.stream.secure,
        assumptions=assumptions(gradients.noise, gradients.rows[0].device),
        not_protected=limits(str(guarantee.unit)),
    )


class Average:
    """The mean of the weights over the last part of the steps, in float64."""

    def __init__(self, part: float, parameters: list[nn.Parameter]) -> None:
        self.part, self.parameters, self.count = part, parameters, 0
        self.sums = [torch.zeros_like(one, dtype=torch.float64) for one in parameters]

    def wanted(self, step: int, steps: int) -> bool:
        """Whether the weights after this step, from 0, count: the last ones always do."""
        return step >= min(steps - 1, round(steps * (1 - self.part)))

    def add(self) -> None:
        """Count the weights as they are."""
        self.count += 1
        for total, one in zip(self.sums, self.parameters, strict=True):
            total.add_(one.detach())

    def put(self) -> None:
        """Let the module have the mean."""
        with torch.no_grad():
            for total, one in zip(self.sums, self.parameters, strict=True):
                one.copy_(total / self.count)


def _averaged(part: float, parameters: list[nn.Parameter]) -> Average | None:
    part = errors.within("train", "average", part, "[0, 1]")
    return Average(part, parameters) if part else None


@dataclass(frozen=True)
class _Run:
    """The steps of one training."""

    gradients: NoisyGradients
    optimizer: torch.optim.Optimizer
    average: Average | None = None

    def all_steps(self, falling_rate: float | None, progress: Progress | None) -> None:
        steps = self.gradients.plan.steps
        with self.gradients.drawing():
            for step in range(steps):
                if falling_rate is not None:
                    self.optimizer.param_groups[0]["lr"] = falling_rate * (1 - step / steps)
                self.step(self.gradients.draw())
                if self.average is not None and self.average.wanted(step, steps):
                    self.average.add()
                if progress is not None:
                    progress(step + 1, steps)
            if self.average is not None:
                self.average.put()

    def step(self, gradient: Tensor) -> None:
        """Let the optimiser see a noisy gradient, and nothing else."""
        clipper = self.gradients.clipper
        for parameter, part in zip(clipper.trained, clipper.views(gradient), strict=True):
            parameter.grad = part
        self.optimizer.step()
        for parameter in clipper.trained:
            parameter.grad = None


def optimizer_of(
    name: str, parameters: list[nn.Parameter], learning_rate: float, momentum: float
) -> torch.optim.Optimizer:
    """Adam or SGD, in torch's fused form where the device has one."""
    name = errors.choice("train", "optimizer", name, OPTIMIZERS)
    rate = float(errors.positive("train", "learning_rate", learning_rate))
    momentum = errors.probability("train", "momentum", momentum)
    fused = parameters[0].device.type in ("cpu", "cuda")
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=momentum, fused=fused)
    if momentum:
        errors.refuse("train", "momentum", "0 with adam", momentum, "Adam has its own.")
    return torch.optim.Adam(parameters, lr=rate, fused=fused)
