"""A torch module as a model with a flat parameter vector.

All parameters are views of one buffer and all gradients of another, set up once. So a step of a
client is one forward pass, one backward pass and a few operations on one vector: no optimizer, no
state dictionaries.

Every client works on a copy of its own of the module as it was built, and draws from generators
that are seeded for it (`TorchModel.serving`). Whatever a pass writes (buffers, attributes, caches,
counters, layers that are made on first use) is thrown away with that copy; a module whose copies
share anything that can change is refused (`tacit.privacy.copies`). State outside the module
(a global, a closure, a class) no copy covers: `TorchModel.admit` refuses a module in which it shows
on made-up rows, and a certificate states the rest as an assumption.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _NormBase

from tacit.federated.model import Data, Evaluation
from tacit.federated.payload import Layout, Vector
from tacit.privacy import copies, devices, errors

Loss = Callable[[Tensor, Tensor], Tensor]
"""A function of outputs and labels that returns the mean over a batch."""

_BLOCK = 8192  # rows that are evaluated at a time
_PROBES = ((2, 1.0), (5, 1e3), (3, 1.0))  # made-up rows, and how far out they lie


class TorchModel:
    """A model of the parameters that require a gradient, in a module that is copied for clients.

    Parameters
    ----------
    build : callable
        Builds the module. Its initial weights are drawn with `seed`.
    loss : callable, optional
        `loss(outputs, labels)` returns the mean over a batch. The default is cross-entropy.
    seed : int
        Seed of the initial weights. Every party must build the same module; the server sends the
        weights.
    device : str
        "cpu", "cuda" or "auto".

    Notes
    -----
    Parameters without a gradient and buffers stay as built: they are public constants and do not
    travel. A deep copy is the model as it was built, whatever this one has met since. Batch
    normalisation with running statistics is refused: the statistics are data of a client that no
    average covers.

    Examples
    --------
    >>> model = TorchModel(lambda: nn.Linear(4, 3))
    >>> model.layout.shapes
    (('weight', (3, 4)), ('bias', (3,)))
    >>> model.gradient(model.start(), np.ones((5, 4)), np.zeros(5, dtype=int)).shape
    (15,)
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        loss: Loss = F.cross_entropy,
        *,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            built = build()
        self._device = torch.device(devices.resolve("TorchModel", device))
        # Copied: who built it may hold on to it, and run it, or hand it out twice.
        self._pristine = _copied((built, loss))
        self._pristine[0].to(self._device).train()
        trained = _trained(self._pristine[0])
        _check(self._pristine[0], trained)
        self.layout = Layout(tuple((name, tuple(p.shape)) for name, p in trained.items()))
        self.dtype = np.dtype(np.float32)
        self._admitted: set[Any] = set()
        self._open()
        self._start = self._host.numpy().copy()

    def _open(self) -> None:
        """Work on a copy of the module and the loss as they were built."""
        self._module, self._loss = _copied(self._pristine)
        self._adopt(_trained(self._module))

    def __deepcopy__(self, memo: object) -> TorchModel:
        """Return the model as it was built."""
        copied = copy.copy(self)
        copied._open()
        return copied

    def serving(self, data: Data, rng: np.random.Generator) -> AbstractContextManager[TorchModel]:
        """Provide a copy for one client in one phase, with its own random draws.

        What torch, numpy and Python draw while it is open goes by `rng` alone, not by who was asked
        before, and their generators are as before afterwards. `rng` itself is not used up.
        """
        self.admit(data)
        return self._serving(rng)

    @contextmanager
    def _serving(self, rng: np.random.Generator) -> Iterator[TorchModel]:
        own = int(rng.spawn(1)[0].integers(2**63))
        with devices.seeded(own, str(self._device)):
            yield copy.deepcopy(self)

    def admit(self, data: Data) -> None:
        """Refuse a module that cannot take rows like these, or whose copies are not apart.

        It looks at shapes and types alone and runs on made-up rows, so what it refuses tells
        nothing of a client. Passes of other copies must not change a bit of a copy's gradient.
        """
        like = self.tensor(data.rows[:0]), self.tensor(data.labels[:0])
        key = tuple((one.shape[1:], one.dtype) for one in like)
        if key in self._admitted:
            return
        first, *others = (_made_up(like, *probe) for probe in _PROBES)
        try:
            gradients = [self._alone(one) for one in (first, *others, first)]
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            rows, labels = (tuple(one.shape[1:]) for one in like)
            raise errors.InvalidData(
                f"TorchModel: the module must take rows of shape {rows} and labels of shape "
                f"{labels}, as these have. {type(error).__name__} on made-up ones: {error}"
            ) from None
        slack = 0.0 if self._device.type == "cpu" else 1e-3  # sums on a GPU have no fixed order
        size = slack * float(np.abs(gradients[0]).max())
        if not np.allclose(gradients[0], gradients[-1], rtol=slack, atol=size, equal_nan=True):
            remedy = "It keeps something outside itself, which would carry one client into others."
            errors.refuse("TorchModel", "module", "unchanged by passes", "another one", remedy)
        self._admitted.add(key)

    def _alone(self, data: Data) -> Vector:
        """Compute a client's gradient at the initial parameters."""
        with self._serving(np.random.default_rng(0)) as own:
            return own.gradient(own.start(), data.rows, data.labels).copy()

    def _adopt(self, trained: dict[str, nn.Parameter]) -> None:
        """Turn parameters and gradients into views of two flat buffers."""
        self._flat = torch.cat([p.detach().reshape(-1) for p in trained.values()])
        self._slope = torch.zeros_like(self._flat)
        for name, parameter in trained.items():
            span = self.layout.spans[name]
            parameter.data = self._flat[span].view(parameter.shape)
            parameter.grad = self._slope[span].view(parameter.shape)
        # On the processor the same memory; else a copy that goes over at every call.
        self._host = self._flat.cpu()
        self._numbers = self._host.numpy()

    def start(self) -> Vector:
        return self._start.copy()

    def gradient(self, parameters: Vector, rows: Any, labels: Any) -> Vector:
        self.load(parameters)
        self._slope.zero_()
        loss = self._loss(self._module(self.tensor(rows)), self.tensor(labels))
        loss.backward()  # type: ignore[no-untyped-call]
        return np.asarray(self._slope.cpu().numpy())

    @property
    def module(self) -> nn.Module:
        """The module, with the weights that were loaded last."""
        return self._module

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of each example alone, shape (n,)."""
        if self._loss is F.cross_entropy and outputs.ndim == 2 and labels.ndim == 1:
            return F.cross_entropy(outputs, labels, reduction="none")
        each = torch.vmap(lambda one, label: self._loss(one[None], label[None]))
        return torch.as_tensor(each(outputs, labels))

    def evaluate(self, parameters: Vector, rows: Any, labels: Any) -> Evaluation:
        self.load(parameters)
        total, right = 0.0, 0
        self._module.eval()
        with torch.no_grad():
            for at in range(0, len(rows), _BLOCK):
                batch = self.tensor(rows[at : at + _BLOCK])
                truth = self.tensor(labels[at : at + _BLOCK])
                outputs = self._module(batch)
                total += float(self._loss(outputs, truth)) * len(batch)
                right += _right(outputs, truth)
        self._module.train()
        return Evaluation(total / len(rows), right / len(rows))

    def load(self, parameters: Vector) -> None:
        """Load weights into the module."""
        np.copyto(self._numbers, parameters, casting="same_kind")
        if self._host is not self._flat:
            self._flat.copy_(self._host)

    def tensor(self, array: npt.NDArray[Any]) -> Tensor:
        """Copy rows or labels to a tensor: reals as float32, others as int64."""
        if array.dtype.kind not in "biuf":  # numpy's message would quote a value
            raise errors.InvalidData(
                "TorchModel: rows and labels must be numbers. Encode them first."
            )
        kind = np.float32 if array.dtype.kind == "f" else np.int64
        # A copy: a pass may write into what it is given, and rows of clients may share memory.
        return torch.from_numpy(array.astype(kind, order="C")).to(self._device)


def mlp(*sizes: int) -> Callable[[], nn.Module]:
    """Build a network of dense layers with rectifiers between them.

    Examples
    --------
    >>> TorchModel(mlp(64, 32, 10)).layout.size
    2410
    """

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    return build


def _right(outputs: Tensor, truth: Tensor) -> int:
    """Count the rows whose largest output is their label; 0 if outputs are not classes."""
    if outputs.ndim != 2 or truth.ndim != 1:
        return 0
    return int((outputs.argmax(dim=1) == truth).sum())


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: one for name, one in module.named_parameters() if one.requires_grad}


def _copied(built: tuple[nn.Module, Loss]) -> tuple[nn.Module, Loss]:
    """Return deep copies, with their own parameters, buffers, attributes and generators.

    Every copy is checked: how a module copies itself may change from one copy to the next.
    """
    try:
        copied = copy.deepcopy(built)
    except Exception as error:  # whatever an attribute raises
        remedy = (
            "Every client works on a copy. For weight normalisation and the like use "
            "torch.nn.utils.parametrizations."
        )
        got = f"{type(error).__name__} in a copy"
        errors.refuse("TorchModel", "module", "one that copy.deepcopy takes", got, remedy)
    if copies.shared(built, copied):
        remedy = "What one client's pass writes would reach the next."
        errors.refuse("TorchModel", "module", "one that is copied whole", "a part", remedy)
    return copied


def _made_up(like: tuple[Tensor, Tensor], count: int, scale: float) -> Data:
    """Make up rows that depend only on these shapes and types; all labels are 0."""
    rng = np.random.default_rng(count)
    rows = np.asarray(rng.integers(2, size=(count, *like[0].shape[1:])))
    if like[0].is_floating_point():
        rows = (scale * rng.normal(size=rows.shape)).astype(np.float32)
    kind = np.float32 if like[1].is_floating_point() else np.int64
    return Data(rows, np.zeros((count, *like[1].shape[1:]), kind))


def _check(module: nn.Module, trained: dict[str, nn.Parameter]) -> None:
    if not trained:
        errors.refuse("TorchModel", "module", "one with parameters to train", type(module).__name__)
    others = {str(p.dtype) for p in trained.values() if p.dtype != torch.float32}
    if others:
        errors.refuse("TorchModel", "parameters", "float32", ", ".join(sorted(others)))
    for part in module.modules():
        if isinstance(part, _NormBase) and part.track_running_stats:
            remedy = "Use group normalisation, or track_running_stats=False."
            layer = type(part).__name__
            errors.refuse("TorchModel", "module", "without running statistics", layer, remedy)
