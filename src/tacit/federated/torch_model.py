"""A torch module as a model of flat vectors.

All parameters are views of one buffer and all gradients of another, set up once. So a step of a
client is one forward, one backward and a few operations on one vector: no optimiser, no state
dictionaries, no copies of the module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from tacit import devices, errors
from tacit.federated.model import Evaluation
from tacit.federated.payload import Layout, Vector

_BLOCK = 8192  # rows that are evaluated at a time


class TorchModel:
    """Parameters that require a gradient, of a module that is built once.

    Parameters
    ----------
    build : callable
        Gives the module. What it draws for its weights follows `seed`.
    loss : callable, optional
        `loss(outputs, labels)` gives the mean over a batch. Cross-entropy without it.
    seed : int
        Of the start. Every party must build the same module; the server sends the weights.
    device : str
        "cpu", "cuda" or "auto".

    Notes
    -----
    One object serves one client at a time. Parameters without a gradient and buffers stay as built:
    they are public constants and do not travel. Batch normalisation with running statistics is
    refused: the statistics are data of a client that no average covers. So is dropout: it draws
    from torch's one generator, and a client's reply would depend on who was asked before it.

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
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        *,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._module = build()
        self._device = torch.device(devices.resolve("TorchModel", device))
        self._module.to(self._device).train()
        trained = {n: p for n, p in self._module.named_parameters() if p.requires_grad}
        _check(self._module, trained)
        self._loss = loss
        self.layout = Layout(tuple((name, tuple(p.shape)) for name, p in trained.items()))
        self.dtype = np.dtype(np.float32)
        self._adopt(trained)
        self._start = self._host.numpy().copy()

    def _adopt(self, trained: dict[str, nn.Parameter]) -> None:
        """Let parameters and gradients be views of two flat buffers."""
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
        """The loss of each example alone, shape (n,)."""
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
        """Give the module these weights."""
        np.copyto(self._numbers, parameters, casting="same_kind")
        if self._host is not self._flat:
            self._flat.copy_(self._host)

    def tensor(self, array: npt.NDArray[Any]) -> Tensor:
        """Rows or labels as the module takes them: reals as float32, others as int64.

        Without a copy where nothing changes.
        """
        if array.dtype.kind not in "biuf":  # numpy's message would quote a value
            raise errors.InvalidData(
                "TorchModel: rows and labels must be numbers. Encode them first."
            )
        kind = np.float32 if array.dtype.kind == "f" else np.int64
        array = array.astype(kind, copy=not array.flags.writeable)
        return torch.from_numpy(array).to(self._device)


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
    """Rows whose largest output is their label; none where outputs are no classes."""
    if outputs.ndim != 2 or truth.ndim != 1:
        return 0
    return int((outputs.argmax(dim=1) == truth).sum())


def _check(module: nn.Module, trained: dict[str, nn.Parameter]) -> None:
    if not trained:
        errors.refuse("TorchModel", "module", "one with parameters to train", type(module).__name__)
    others = {str(p.dtype) for p in trained.values() if p.dtype != torch.float32}
    if others:
        errors.refuse("TorchModel", "parameters", "float32", ", ".join(sorted(others)))
    for part in module.modules():
        if isinstance(part, _DropoutNd) and part.p > 0:
            remedy = "One generator serves all clients: a reply would depend on who else is asked."
            errors.refuse("TorchModel", "module", "without dropout", type(part).__name__, remedy)
        if isinstance(part, _NormBase) and part.track_running_stats:
            remedy = "Use group normalisation, or track_running_stats=False."
            found = type(part).__name__
            errors.refuse("TorchModel", "module", "without running statistics", found, remedy)
