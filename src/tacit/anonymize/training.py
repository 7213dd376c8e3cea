r"""Adversarial training of encoder and branches, by SGD with Nesterov momentum.

Toggled training, as in section III.B of [FPBD22]_:

1. encoder and regular branch together, as a plain classifier;
2. the private branches on the frozen encoder;
3. in turn: the encoder alone, against the objective of `tacit.anonymize.objective`; then both kinds
   of branches on the frozen encoder, each with its own cross-entropy.

Simultaneous training ([GL15]_): one step updates all, and the gradient of the private branches is
reversed. Either way training ends when the held-out loss has not improved for a while, the best
state is restored, and the private branches are trained on it once more: the reported adversary is
as good as this training makes it, and still the weakest attacker.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.anonymize import objective
from tacit.anonymize.networks import Networks
from tacit.privacy import copies, devices, errors, silence

BLOCK = 4096
"""Number of rows that are encoded at a time."""


@dataclass(frozen=True)
class AdversarialSchedule:
    """The duration and the learning rates of training.

    Parameters
    ----------
    pretraining, adversary : int
        Epochs of the first two phases. The rate falls to zero, and the epoch that was best on
        held-out rows is taken.
    rounds : int
        Largest number of rounds of adversarial training.
    branch_epochs, encoder_epochs : int
        Epochs of a toggled round. A simultaneous round has as many epochs as both together.
    patience : int
        Rounds without improvement that end adversarial training.
    batch : int
        Number of rows in a step.
    rate, encoder_rate : float
        Learning rates of the branches and of pre-training, and of the encoder in adversarial
        training, for which the paper recommends a lower one.
    """

    pretraining: int = 40
    adversary: int = 40
    rounds: int = 30
    branch_epochs: int = 2
    encoder_epochs: int = 1
    patience: int = 10
    batch: int = 128
    rate: float = 0.03
    encoder_rate: float = 0.02
    momentum: float = 0.9
    decay: float = 1e-4


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Inputs and codes of labels on one device."""

    inputs: Tensor
    regular: Tensor
    private: tuple[Tensor, ...]

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: Tensor) -> TrainingRows:
        private = tuple(codes[rows] for codes in self.private)
        return TrainingRows(self.inputs[rows], self.regular[rows], private)


@dataclass(eq=False)
class Trainer:
    """A trainer of networks on rows.

    Parameters
    ----------
    networks : Networks
        Changed in place.
    training, validation : TrainingRows
        Rows to train on; rows for early stopping.
    schedule : AdversarialSchedule
        Duration and learning rates.
    seed : int
        Seed of the order of rows. Dropout and noise use torch's own generator.
    progress : callable, optional
        Called with a phase, its epoch or round, and the largest number of these.
    """

    networks: Networks
    training: TrainingRows
    validation: TrainingRows
    schedule: AdversarialSchedule = field(default_factory=AdversarialSchedule)
    seed: int = 0
    progress: Callable[[str, int, int], None] | None = None

    def __post_init__(self) -> None:
        self._order = torch.Generator().manual_seed(self.seed)
        self.chances = [
            objective.shares(codes, _outputs(branch))
            for codes, branch in zip(self.training.private, self.networks.private, strict=True)
        ]
        self.history: list[dict[str, Any]] = []

    # --- phases --------------------------------------------------------------------------------

    def pretrain(self) -> None:
        """Train encoder and regular branch as a plain classifier, first without noise.

        Strong noise leaves hardly any gradient, so training would not start with it.
        """
        net = self.networks
        noise = net.noisy
        for net.noisy in [noise] if isinstance(noise, nn.Identity) else [nn.Identity(), noise]:

            def loss(rows: Tensor) -> Tensor:
                logits = net.regular(net.noisy(net.encoder(self.training.inputs[rows])))
                return F.cross_entropy(logits, self.training.regular[rows])

            self._phase("pretraining", [net.encoder, net.regular], loss, self._held_out_error)

    def fit_adversaries(self) -> None:
        """Train the private branches on the frozen encoder, with early stopping."""
        shown = self.represent(self.training.inputs)
        step = self._branch_loss(shown, regular=False)
        parts = list(self.networks.private)
        self._phase("adversary", parts, step, lambda: sum(self.losses()[1]))

    def toggle(self, strength: float) -> None:
        """Train encoder and branches alternately; a round ends after the branches' turn.

        Right after its own turn an encoder looks anonymous: the adversary knows the previous one.
        """
        schedule, net = self.schedule, self.networks
        branches = [net.regular, *net.private]
        slow, fast = self._sgd([net.encoder], schedule.encoder_rate), self._sgd(branches)

        def turn() -> None:
            parts = [net.encoder]
            self._train(schedule.encoder_epochs, slow, parts, self._encoder_loss(strength))
            shown = self.represent(self.training.inputs)
            self._train(schedule.branch_epochs, fast, branches, self._branch_loss(shown))

        self._adversarial("toggled", strength, turn)

    def reverse(self, strength: float) -> None:
        """Train all parts at once, with gradient reversal."""
        schedule, net = self.schedule, self.networks
        parts: list[nn.Module] = [net.encoder, net.regular, *net.private]
        optimizer = self._sgd([net.encoder], schedule.encoder_rate)
        optimizer.add_param_group(
            {"params": _parameters([net.regular, *net.private]), "lr": schedule.rate}
        )
        epochs = schedule.branch_epochs + schedule.encoder_epochs

        def loss(rows: Tensor) -> Tensor:
            shown = net.noisy(net.encoder(self.training.inputs[rows]))
            total = F.cross_entropy(net.regular(shown), self.training.regular[rows])
            hidden = objective.reversed_gradient(shown, strength)
            return total + self._private_loss(hidden, rows)

        def turn() -> None:
            self._train(epochs, optimizer, parts, loss)

        self._adversarial("simultaneous", strength, turn)

    # --- what is measured ----------------------------------------------------------------------

    def represent(self, inputs: Tensor) -> Tensor:
        """Compute representations without noise and dropout."""
        return represent(self.networks.encoder, inputs)

    @torch.no_grad()
    def losses(self) -> tuple[float, list[float]]:
        """Compute held-out cross-entropies of the task and of each adversary."""
        net, held = self.networks.eval(), self.validation
        shown = net.noisy(self.represent(held.inputs))
        private = [
            float(F.cross_entropy(branch(shown), codes))
            for branch, codes in zip(net.private, held.private, strict=True)
        ]
        return float(F.cross_entropy(net.regular(shown), held.regular)), private

    @torch.no_grad()
    def _held_out_error(self) -> float:
        """Compute the held-out error of the regular label, with ties broken by the loss.

        The loss of an overconfident network grows long before its accuracy falls.
        """
        net, held = self.networks.eval(), self.validation
        logits = net.regular(net.noisy(self.represent(held.inputs)))
        wrong = (logits.argmax(dim=1) != held.regular).float().mean()
        return float(wrong + 1e-3 * F.cross_entropy(logits, held.regular).clamp(max=100))

    def value(self, strength: float) -> float:
        """Compute what early stopping uses; an adversary worse than a guess counts as one."""
        regular, private = self.losses()
        gains = [
            max(objective.entropy(chances) - loss, 0.0)
            for chances, loss in zip(self.chances, private, strict=True)
        ]
        return regular + strength * sum(gains)

    # --- steps ---------------------------------------------------------------------------------

    def _branch_loss(self, shown: Tensor, regular: bool = True) -> Callable[[Tensor], Tensor]:
        net = self.networks

        def loss(rows: Tensor) -> Tensor:
            seen = net.noisy(shown[rows])
            total = self._private_loss(seen, rows)
            if regular:
                total = total + F.cross_entropy(net.regular(seen), self.training.regular[rows])
            return total

        return loss

    def _private_loss(self, shown: Tensor, rows: Tensor) -> Tensor:
        losses = [
            F.cross_entropy(branch(shown), codes[rows])
            for branch, codes in zip(self.networks.private, self.training.private, strict=True)
        ]
        return torch.stack(losses).sum()

    def _encoder_loss(self, strength: float) -> Callable[[Tensor], Tensor]:
        net, data = self.networks, self.training

        def loss(rows: Tensor) -> Tensor:
            shown = net.noisy(net.encoder(data.inputs[rows]))
            private = [
                (branch(shown), codes[rows], chances)
                for branch, codes, chances in zip(
                    net.private, data.private, self.chances, strict=True
                )
            ]
            regular = net.regular(shown), data.regular[rows]
            return objective.anonymizing(strength, regular, private)

        return loss

    def _adversarial(self, name: str, strength: float, turn: Callable[[], None]) -> None:
        def one() -> float:
            turn()
            value = self.value(strength)
            regular, private = self.losses()
            self.history.append({"regular": regular, "private": private, "value": value})
            return value

        self._until(name, self.schedule.rounds, one, self.schedule.patience)
        self.fit_adversaries()

    def _phase(
        self,
        name: str,
        parts: Sequence[nn.Module],
        loss: Callable[[Tensor], Tensor],
        held_out: Callable[[], float],
    ) -> None:
        optimizer = self._sgd(parts)
        epochs = getattr(self.schedule, name)
        falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1 / epochs, epochs)

        def one() -> float:
            self._train(1, optimizer, parts, loss)
            falling.step()
            return held_out()

        self._until(name, epochs, one, patience=epochs)

    def _until(self, name: str, most: int, one: Callable[[], float], patience: int) -> None:
        """Repeat `one` until its value stops improving, then restore the best state."""
        best, kept, waited = math.inf, copy.deepcopy(self.networks.state_dict()), 0
        for count in range(most):
            if self.progress is not None:
                self.progress(name, count, most)
            value = one()
            waited += 1
            if value < best:
                best, kept, waited = value, copy.deepcopy(self.networks.state_dict()), 0
            if waited >= patience:
                break
        self.networks.load_state_dict(kept)
        self.networks.eval()

    def _train(
        self,
        epochs: int,
        optimizer: torch.optim.Optimizer,
        parts: Sequence[nn.Module],
        loss: Callable[[Tensor], Tensor],
    ) -> None:
        """Train `parts` alone; gradients of the others are neither kept nor computed."""
        self.networks.eval().requires_grad_(False)
        for part in parts:
            part.train().requires_grad_(True)
        for _ in range(epochs):
            for rows in self._batches():
                optimizer.zero_grad()
                loss(rows).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        self.networks.requires_grad_(True)

    def _batches(self) -> Iterator[Tensor]:
        count = len(self.training)
        order = torch.randperm(count, generator=self._order).to(self.training.inputs.device)
        return iter(torch.split(order, self.schedule.batch))

    def _sgd(self, parts: Sequence[nn.Module], rate: float | None = None) -> torch.optim.SGD:
        schedule = self.schedule
        return torch.optim.SGD(
            _parameters(parts),
            lr=rate or schedule.rate,
            momentum=schedule.momentum,
            nesterov=True,
            weight_decay=schedule.decay,
        )


@torch.no_grad()
def represent(encoder: nn.Module, inputs: Tensor, block: int = BLOCK) -> Tensor:
    """Compute the representations of all rows, block by block."""
    encoder.eval()
    return torch.cat([encoder(part) for part in torch.split(inputs, block)])


def represent_alone(encoder: nn.Module, inputs: Tensor, width: int) -> npt.NDArray[np.float32]:
    """Compute one representation per row with an untrusted module.

    Each row has a copy of the module as it was fitted, the row's own numbers and the same random
    streams (torch's, numpy's, Python's), so that no buffer, attribute, draw or write can carry it
    into another's. What comes out has one row of a width that was fixed before; anything else, an
    error of any kind too, is a row of zeros: to be refused would tell something of the row. A
    module whose copy shares what can change with it is refused, before its copy meets a row.
    """
    representations = np.zeros((len(inputs), width), np.float32)
    with silence.watching() as watch:
        for place in range(len(inputs)):
            alone = copied_whole(encoder).eval()
            with watch.silent(), devices.seeded(0), torch.no_grad():
                shown = np.asarray(alone(inputs[place : place + 1].clone()).cpu(), np.float32)
                if shown.shape == (1, width):
                    representations[place] = shown[0]
    return representations


def copied_whole(encoder: nn.Module) -> nn.Module:
    """Copy a module whole; every time, as the way in which it copies itself may change."""
    copied = copy.deepcopy(encoder)
    if copies.shared(encoder, copied):
        remedy = "What one row's pass writes would reach the next. Leave out its __deepcopy__."
        errors.refuse("AnonymizingEncoder", "encoder", "one that is copied whole", "a part", remedy)
    return copied


def _parameters(parts: Sequence[nn.Module]) -> list[nn.Parameter]:
    return [parameter for part in parts for parameter in part.parameters()]


def _outputs(branch: nn.Module) -> int:
    last = [one for one in branch.modules() if isinstance(one, nn.Linear)][-1]
    return last.out_features
