r"""DP-SGD and DP-Adam: training that hides whether any one record was there.

Every step samples each record with probability q, sums the clipped gradients and adds noise:

.. math:: \tilde g = \frac{1}{qn}\Big(\sum_{i \in B} g_i \min(1, C/\|g_i\|) + \mathcal{N}(0,
          \sigma^2 C^2 I)\Big)

and passes the result to an ordinary optimiser, which sees nothing else of the data.

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

import torch
from torch import Tensor, nn

from tacit.central.training import kinds, probing
from tacit.central.training.loop import TrainingLoop
from tacit.central.training.tracing import Loss
from tacit.central.training.trained import Trained
from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import Unit
from tacit.privacy.randomness import Randomness

Progress = Callable[[int, int], None]
"""Called after every step with its number, from 1, and the number of steps."""

OPTIMIZERS = ("adam", "sgd")


def train(
    module: nn.Module,
    data: Tensor | tuple[Tensor, ...],
    loss: Loss,
    *,
    epsilon: float,
    delta: float,
    clip_norm: float = 1.0,
    clipping: str | kinds.Kind = "flat",
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
        Parameters that require a gradient are trained. Initial weights must not depend on the data.
    data : Tensor or tuple of Tensor
        Records on the first axis, on the module's device.
    loss : callable
        `loss(module, *batch)` gives one number per example, shape (n,).
    epsilon, delta : float
        The guarantee of the trained weights, towards each record.
    clip_norm : float
        Norm to which each example's gradient is clipped.
    clipping : {"flat", "per-layer", "automatic", "adaptive"} or a kind with settings
        How: as a whole, layer by layer (`PerLayerClipping`), by division by its norm
        (`AutomaticClipping`), or at a norm that follows a quantile (`AdaptiveClipping`). All have
        the same guarantee at the same noise multiplier.
    batch_size : int
        Expected size of a batch: each record is sampled with probability batch_size / n, rounded
        down to a multiple of 2^-32.
    epochs, steps : optional
        Length of the training: one of them, or neither for 20 epochs.
    noise_multiplier : float, optional
        Standard deviation of the noise over `clip_norm`. Training then ends when ε is reached, or
        after `steps` or `epochs` if that is sooner. By default the noise is calibrated to the
        steps.
    optimizer : {"adam", "sgd"}
    learning_rate, momentum : float
        Momentum applies to "sgd" only.
    decay : bool
        Whether the learning rate falls linearly to zero.
    average : float
        The share of the steps, from the end, whose weights are averaged: 0 keeps the last weights,
        1 averages all [PJ92]_. It costs nothing: the guarantee covers the weights of every step.
    accountant : {"pld", "rdp"}
        The accountant that noise or steps are calibrated with.
    beside : Event, optional
        Another event on these records in the same release, such as their preparation. Noise is
        calibrated, and event and guarantee are stated, for both together.
    microbatch : int, optional
        Largest number of examples at a time, to save memory. The result is the same.
    unit : Unit or str
        The unit that a row of the data stands for.
    ledger, account : Ledger, str, optional
        The account is charged for the whole training before any record is read; if its remaining
        budget is too small, nothing is trained. It must be zero-out, or replace-one at the price of
        two.
    rng : Randomness, optional
        For tests. By default, AES-256 in counter mode, keyed by the operating system.
    progress : callable, optional
        Called after every step with its number and the number of steps.

    Notes
    -----
    For zero-out neighbours (one record is blank, the number of records is public) the weights, and
    everything computed from them alone, are (ε, δ)-DP. This does not cover a choice between several
    trainings by their losses, or initial weights that were fitted to the same data. A record on
    which an operator raises contributes nothing. On a CUDA device, a label or index out of range
    ends the process instead: check them first; the certificate lists this as an assumption.
    """
    loop = TrainingLoop(
        module,
        data,
        loss,
        epsilon=epsilon,
        delta=delta,
        clip_norm=clip_norm,
        clipping=clipping,
        batch_size=batch_size,
        epochs=epochs,
        steps=steps,
        noise_multiplier=noise_multiplier,
        accountant=accountant,
        beside=beside,
        microbatch=microbatch,
        unit=unit,
        ledger=ledger,
        account=account,
        rng=rng,
        _where="train",
    )
    parameters = [one for one in module.parameters() if one.requires_grad]
    stepper = optimizer_of(optimizer, parameters, learning_rate, momentum)
    averaged = _averaged(average, parameters)
    with probing.state_kept(module):
        for step in loop:
            if decay:
                stepper.param_groups[0]["lr"] = learning_rate * (1 - (step - 1) / loop.steps)
            stepper.step()
            if averaged is not None and averaged.wanted(step - 1, loop.steps):
                averaged.add()
            if progress is not None:
                progress(step, loop.steps)
    if averaged is not None:
        averaged.put()
    return loop.trained


class Average:
    """The mean of the weights over the last part of the steps, in float64."""

    def __init__(self, part: float, parameters: list[nn.Parameter]) -> None:
        self.part, self.parameters, self.count = part, parameters, 0
        self.sums = [torch.zeros_like(one, dtype=torch.float64) for one in parameters]

    def wanted(self, step: int, steps: int) -> bool:
        """Check whether the weights after this step (from 0) count; the last ones always do."""
        return step >= min(steps - 1, round(steps * (1 - self.part)))

    def add(self) -> None:
        """Add the current weights."""
        self.count += 1
        for total, one in zip(self.sums, self.parameters, strict=True):
            total.add_(one.detach())

    def put(self) -> None:
        """Set the module's weights to the mean."""
        with torch.no_grad():
            for total, one in zip(self.sums, self.parameters, strict=True):
                one.copy_(total / self.count)


def _averaged(part: float, parameters: list[nn.Parameter]) -> Average | None:
    part = errors.within("train", "average", part, "[0, 1]")
    return Average(part, parameters) if part else None


def optimizer_of(
    name: str, parameters: list[nn.Parameter], learning_rate: float, momentum: float
) -> torch.optim.Optimizer:
    """Build Adam or SGD, in torch's fused form if the device has one."""
    name = errors.choice("train", "optimizer", name, OPTIMIZERS)
    rate = float(errors.positive("train", "learning_rate", learning_rate))
    momentum = errors.probability("train", "momentum", momentum)
    fused = parameters[0].device.type in ("cpu", "cuda")
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=momentum, fused=fused)
    if momentum:
        errors.refuse("train", "momentum", "0 with adam", momentum, "Adam has its own.")
    return torch.optim.Adam(parameters, lr=rate, fused=fused)
