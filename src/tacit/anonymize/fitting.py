"""Fitting of an `AnonymizingEncoder`: from rows and labels to trained networks, on one device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tacit.anonymize import codes, networks
from tacit.anonymize.labelling import Classes, same_length
from tacit.anonymize.local import DIMENSIONS, Local
from tacit.anonymize.networks import Networks
from tacit.anonymize.rows import RowReader
from tacit.anonymize.training import AdversarialSchedule, Trainer, TrainingRows, copied_whole
from tacit.privacy import errors
from tacit.privacy.guarantees import Unit

if TYPE_CHECKING:
    from tacit.anonymize.encoder import AnonymizingEncoder

Progress = Callable[[str, int, int], None]

WHERE = "AnonymizingEncoder"
_HELD_OUT = 7
"""One row in this many is used for early stopping, unless validation rows are given."""


@dataclass(eq=False)
class Fitted:
    """Trained networks on the CPU, the mean row of each cell, and the history of losses."""

    networks: Networks
    prototypes: npt.NDArray[np.float32] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(eq=False)
class FittingProblem:
    """Everything that is needed to fit: settings, data and device.

    Parameters
    ----------
    settings : AnonymizingEncoder
        The encoder, of which only parameters are read.
    reader, classes
        Readers of rows and labels.
    training, validation : TrainingRows
        Rows to train on; rows for early stopping.
    device : str
        The torch device.
    """

    settings: AnonymizingEncoder
    reader: RowReader
    classes: Classes
    training: TrainingRows
    validation: TrainingRows
    device: str

    @property
    def robust(self) -> bool:
        """Whether representations are codes with few values."""
        return self.settings.training == "robust"

    @property
    def local(self) -> Local | None:
        """The local channel, if there is an ε."""
        settings = self.settings
        if settings.epsilon is None:
            return None
        cells = len(self.classes.regular) * settings.styles if self.robust else None
        return Local(errors.epsilon_in_range(WHERE, settings.epsilon), Unit(settings.unit), cells)

    def solve(
        self, strength: float, progress: Progress | None = None, start: Fitted | None = None
    ) -> Fitted:
        """Train, from `start` if it is given; the same seed gives the same networks."""
        device = torch.device(self.device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self.settings.seed)
            learn = self._codes if self.robust else self._adversarial
            fitted = learn(strength, progress, start)
        fitted.networks.cpu().eval()
        return fitted

    def _adversarial(
        self, strength: float, progress: Progress | None, start: Fitted | None
    ) -> Fitted:
        net = self.untrained() if start is None else copy.deepcopy(start.networks)
        trainer = self._trainer(net, progress)
        if start is None:
            trainer.pretrain()
            trainer.fit_adversaries()
        if strength > 0:
            (trainer.toggle if self.settings.training == "toggled" else trainer.reverse)(strength)
        return Fitted(net, history=trainer.history)

    def _codes(self, strength: float, progress: Progress | None, start: Fitted | None) -> Fitted:
        if start is None:
            plain = Networks(*self._classifier(bounded=False), [])
            self._trainer(plain, progress).pretrain()
            classifier: nn.Module = nn.Sequential(plain.encoder, plain.regular)
        else:
            coder = copy.deepcopy(start.networks.encoder)
            assert isinstance(coder, codes.CodeEncoder)
            classifier = coder.classifier.to(self.device)
        styles, outputs = self.settings.styles, len(self.classes.regular)
        coder = codes.CodeEncoder(classifier, self.reader.width, outputs, styles).to(self.device)
        hidden = list(zip(self.training.private, self._people(), strict=True))
        inputs = self.training.inputs
        codes.learn_styles(coder, inputs, hidden, strength, self.settings.seed, progress)
        net = self._with_adversaries(coder, coder.reader(), coder.cells)
        self._trainer(net, progress).fit_adversaries()
        return Fitted(net, codes.prototypes(coder, inputs).cpu().numpy())

    def untrained(self) -> Networks:
        """Build encoder and branches before training, with the shapes in the settings."""
        if self.robust:
            parts = self._classifier(bounded=False)
            styles, outputs = self.settings.styles, len(self.classes.regular)
            coder = codes.CodeEncoder(nn.Sequential(*parts), self.reader.width, outputs, styles)
            return self._with_adversaries(coder, coder.reader(), coder.cells)
        encoder, regular = self._classifier(bounded=self.local is not None)
        return self._with_adversaries(encoder, regular, self.width(encoder))

    def _classifier(self, bounded: bool) -> tuple[nn.Module, nn.Module]:
        encoder = self._encoder(bounded)
        return encoder, self._branch(self.width(encoder), len(self.classes.regular))

    def _encoder(self, bounded: bool) -> nn.Module:
        settings = self.settings
        if isinstance(settings.encoder, nn.Module):
            plain = self.local is None  # no guarantee rests on its copies
            own = copy.deepcopy(settings.encoder) if plain else copied_whole(settings.encoder)
            if not any(weights.requires_grad for weights in own.parameters()):
                errors.refuse(WHERE, "encoder", "a module with weights to train", "none")
            return nn.Sequential(own, networks.L1Ball()) if bounded else own
        dimensions = (settings.dimensions or DIMENSIONS) if bounded else settings.dimensions
        width = self.reader.width
        return networks.encoder(width, settings.encoder, settings.dropout, dimensions, bounded)

    def _branch(self, inputs: int, outputs: int) -> nn.Module:
        settings = self.settings
        if callable(settings.branches):
            return settings.branches(inputs, outputs)
        return networks.branch(inputs, settings.branches, settings.dropout, outputs)

    def _with_adversaries(self, encoder: nn.Module, regular: nn.Module, width: int) -> Networks:
        private = [self._branch(width, count) for count in self._people()]
        noise = None if self.local is None else self.local.noise()
        return Networks(encoder, regular, private, noise)

    def _people(self) -> list[int]:
        return [len(values) for values in self.classes.private.values()]

    def width(self, encoder: nn.Module) -> int:
        """Return the length of a representation; refuse a module that does not fit.

        It must accept a single row: with ε rows are encoded one at a time.
        """
        parameters = next(encoder.parameters(), torch.zeros(0))
        with torch.no_grad():
            try:
                shown = encoder.eval()(torch.zeros(1, self.reader.width, device=parameters.device))
            except (RuntimeError, TypeError, ValueError):
                shown = torch.zeros(0)
        if shown.ndim != 2 or len(shown) != 1:
            condition = f"a module from (n, {self.reader.width}) inputs to (n, d) representations"
            remedy = "It must accept one row as well as many."
            errors.refuse(WHERE, "encoder", condition, type(encoder).__name__, remedy)
        return int(shown.shape[1])

    def _trainer(self, net: Networks, progress: Progress | None) -> Trainer:
        settings = self.settings
        schedule = settings.schedule or AdversarialSchedule()
        net.to(self.device)
        private = net.private  # a plain classifier has none
        training, validation = (
            TrainingRows(rows.inputs, rows.regular, rows.private if private else ())
            for rows in (self.training, self.validation)
        )
        return Trainer(net, training, validation, schedule, settings.seed, progress)


def posed(
    settings: AnonymizingEncoder, X: Any, y: Any, private: Any, validation: Any, device: str
) -> FittingProblem:
    """Read rows and labels, and set some aside for early stopping if none are given."""
    reader = RowReader.of(X, WHERE)
    classes = Classes.of(WHERE, y, private)
    training = labelled(reader, classes, (X, y, private), device)
    if validation is not None:
        held = labelled(reader, classes, validation, device)
    else:
        training, held = _divided(training, settings.seed)
    return FittingProblem(settings, reader, classes, training, held, device)


def labelled(
    reader: RowReader, classes: Classes, columns: tuple[Any, Any, Any], device: str
) -> TrainingRows:
    """Read rows and the codes of their labels as tensors."""
    X, y, private = columns
    inputs = reader.read(X, WHERE)
    regular, hidden = classes.regular_codes(WHERE, y), classes.private_codes(WHERE, private)
    lengths = {name: len(label) for name, label in hidden.items()}
    same_length(WHERE, len(inputs), y=len(regular), **lengths)
    as_tensor = [torch.from_numpy(label).to(device) for label in (regular, *hidden.values())]
    return TrainingRows(inputs.to(device), as_tensor[0], tuple(as_tensor[1:]))


def _divided(data: TrainingRows, seed: int) -> tuple[TrainingRows, TrainingRows]:
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    held = max(len(data) // _HELD_OUT, 1)
    if len(data) < 2 * _HELD_OUT:
        errors.refuse(WHERE, "rows", f"at least {2 * _HELD_OUT}", len(data))
    order = order.to(data.inputs.device)
    return data[order[held:]], data[order[:held]]
