"""Networks taught on in-house rows with DP-Adam, so that they may be handed out."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.central import training as private_training
from tacit.local.inference.neural import Network
from tacit.local.inhouse import Target
from tacit.privacy.randomness import Randomness

BATCH, EPOCHS, RATE = 4096, 60, 5e-3


def taught_privately(
    vectors: npt.NDArray[np.float32],
    answers: npt.NDArray[np.int64],
    classes: int,
    hidden: tuple[int, ...],
    cells: npt.NDArray[np.float32],
    target: Target,
    seed: int,
    rng: Randomness | None = None,
    device: str = "cpu",
) -> tuple[Network, private_training.Trained]:
    """Train a network on the codewords' labels; vectors are scaled by the cells, which are private.

    `device` is where it is trained, as torch names it; the result is on the CPU.
    """
    center = cells.mean(axis=0)
    spread = np.full_like(center, max(float(cells.std(axis=0).mean()), 1e-12))
    inputs = torch.as_tensor((vectors - center) / spread, device=device)
    module = _network([len(center), *hidden, classes], seed).to(device)

    def losses(module: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(module(rows), labels, reduction="none")

    trained = private_training.train(
        module,
        (inputs, torch.as_tensor(answers, device=device)),
        losses,
        epsilon=target.epsilon,
        delta=target.delta,
        batch_size=min(BATCH, len(inputs)),
        epochs=EPOCHS,
        learning_rate=RATE,
        decay=True,
        rng=rng,
    )
    layers = [layer for layer in module.cpu() if isinstance(layer, nn.Linear)]
    weights = tuple(layer.weight.detach().numpy().T.copy() for layer in layers)
    biases = tuple(layer.bias.detach().numpy().copy() for layer in layers)
    return Network(center, spread, weights, biases), trained


def _network(sizes: list[int], seed: int) -> nn.Sequential:
    """Initialise random weights from a generator of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for wide, out in itertools.pairwise(sizes):
            layers += [nn.Linear(wide, out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
