r"""Features from a plain autoencoder: the narrow layer of a network that reproduces rows.

An encoder f and a decoder g are fitted to the in-house rows by

.. math:: \max_{f, g} \sum_x \log p(x \mid g(f(x))),

with p the cross-entropy of pixels for images, and `encoders.Mixed` for tables. The features are
f(x).

Notes
-----
The weights depend on the in-house rows: those of `fit` carry no guarantee towards them, those of
`fit_private` are trained with DP-Adam from random weights. The decoder is not kept.

References
----------
.. [HS06] Hinton, Salakhutdinov. Reducing the dimensionality of data with neural networks.
   Science 2006.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit.central import training as private_training
from tacit.data.schema import Rows, Schema
from tacit.local.inhouse import Target
from tacit.local.learned import encoders, features
from tacit.local.learned.encoders import Likelihood, TableFrontEnd
from tacit.local.learned.private_variational import USUAL
from tacit.privacy import devices, errors
from tacit.privacy.randomness import Randomness
from tacit.privacy.rowwise import Product

Progress = Callable[[int, int, float], None]
"""Called after every epoch with the epoch (from 1), their number, and the mean loss."""

_BLOCK_ROWS, _OUTPUTS = 8192, 10


@dataclass(frozen=True)
class AutoencoderFeatures:
    """The latent of a trained encoder.

    Parameters
    ----------
    front : TableFrontEnd
        How a row becomes the inputs of the encoder.
    encoder : nn.Sequential
        Linear and ReLU layers, in float32.
    device : str
        Where `transform` computes; it is not saved.
    losses : tuple of float
        Mean loss of every epoch, if it was trained in this process.
    """

    front: TableFrontEnd
    encoder: nn.Sequential = field(repr=False)
    device: str = "cpu"
    losses: tuple[float, ...] = field(default=(), repr=False, compare=False)
    kind: str = field(default="autoencoder", init=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the encoder's layers, inputs and outputs included."""
        layers = [layer for layer in self.encoder if isinstance(layer, nn.Linear)]
        return (layers[0].in_features, *(layer.out_features for layer in layers))

    @property
    def dimension(self) -> int:
        return self.sizes[-1]

    def transform(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Compute latents, (n, dimension)."""
        latents = np.empty((len(rows), self.dimension), dtype=np.float32)
        with encoders.inference():
            for start in range(0, len(rows), _BLOCK_ROWS):
                stop = min(start + _BLOCK_ROWS, len(rows))
                inputs = self.front(rows[start:stop], self.device)
                latents[start:stop] = self.encoder(inputs).cpu().numpy()
        return latents

    def alone(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Compute the same to about 1e-4, in integers: a latent depends on its own row alone."""
        layers = [layer for layer in self.encoder if isinstance(layer, nn.Linear)]
        weights = [encoders.to_arrays(layer) for layer in layers]
        limits = (1.0, *(features.FARTHEST for _ in layers[1:]))
        products = [Product.of(one["weight"].T, x) for one, x in zip(weights, limits, strict=True)]
        latents = np.empty((len(rows), self.dimension), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK_ROWS):
            hidden = self.front(rows[start : start + _BLOCK_ROWS]).numpy()
            for product, one in zip(products, weights, strict=True):
                hidden = product(np.maximum(hidden, 0.0)) + one["bias"]
            latents[start : start + _BLOCK_ROWS] = hidden
        return latents

    def on(self, device: str) -> AutoencoderFeatures:
        """Return the same features, computed on another device."""
        device = devices.resolve("AutoencoderFeatures.on", device)
        encoder = encoders.restore(lambda: encoders.mlp(self.sizes), self.parts()[1])
        return AutoencoderFeatures(self.front, encoder.to(device), device, self.losses)

    def parts(self) -> tuple[dict[str, Any], encoders.Arrays]:
        """Return JSON-ready parameters, and the weights."""
        return {"sizes": list(self.sizes)}, encoders.to_arrays(self.encoder)


def from_parts(
    schema: Schema, params: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> AutoencoderFeatures:
    """Rebuild features from what `parts` returned."""
    front, sizes = encoders.front_end(schema), tuple(params["sizes"])
    if sizes[0] != front.dimension:
        errors.refuse("AutoencoderFeatures", "inputs", f"{front.dimension} as in schema", sizes[0])
    return AutoencoderFeatures(front, encoders.restore(lambda: encoders.mlp(sizes), arrays))


def fit(
    schema: Schema,
    rows: Rows,
    seed: int,
    *,
    device: str = "cpu",
    outputs: int = _OUTPUTS,
    epochs: int = 30,
    batch: int = 256,
    learning_rate: float = 1e-3,
    progress: Progress | None = None,
) -> AutoencoderFeatures:
    """Train an autoencoder on unlabelled rows, and keep its encoder.

    Parameters
    ----------
    schema : Schema
        Of the rows. Images get the layers 400, 150, 50 and back, tables 500, 500.
    rows : Rows
        In-house rows; all of them are kept on the device.
    seed : int
        Seed of weights and order.
    device : str
        Where to train ("auto" is a GPU where there is one), and where the features then compute;
        see `AutoencoderFeatures.on`.
    outputs, epochs, batch, learning_rate
        Length of the latent, and parameters of Adam.
    progress : callable, optional
        Called with the epoch, the number of epochs and the mean loss.
    """
    where = "autoencoder.fit"
    device = devices.resolve(where, device)
    seed = errors.whole(where, "seed", seed, least=0)
    outputs = errors.whole(where, "outputs", outputs, least=1)
    epochs = errors.whole(where, "epochs", epochs, least=1)
    batch = errors.whole(where, "batch", batch, least=1)
    errors.positive(where, "learning_rate", learning_rate)
    if len(rows) < 1:
        raise errors.InvalidData(f"{where}: rows must not be empty.")
    front, law, networks = encoders.front_end(schema), _law(schema), _networks(schema, outputs)
    model = _Autoencoder(front, law, encoders.build(seed, networks).to(device))
    generator = torch.Generator(device).manual_seed(seed)
    data = encoders.to_batch(rows, device)
    losses = model.train(data, epochs, batch, learning_rate, generator, progress)
    encoder = model.encoder.eval().requires_grad_(False)
    return AutoencoderFeatures(front, encoder, device, losses)


def fit_private(
    schema: Schema,
    rows: Rows,
    seed: int,
    target: Target,
    *,
    device: str = "cpu",
    rng: Randomness | None = None,
) -> tuple[AutoencoderFeatures, private_training.Trained]:
    """Train with a central guarantee; return features on the CPU, and the record of training."""
    device = devices.resolve("autoencoder.fit_private", device)
    front, law = encoders.front_end(schema), _law(schema)
    networks = encoders.build(seed, _networks(schema, _OUTPUTS)).to(device)
    model, data = _Autoencoder(front, law, networks), encoders.to_batch(rows, device)

    def losses(networks: nn.Module, numbers: Tensor, codes: Tensor) -> Tensor:
        return model.losses(encoders.Batch(numbers, codes))

    trained = private_training.train(
        model.networks,
        (data.numbers, data.codes),
        losses,
        epsilon=target.epsilon,
        delta=target.delta,
        batch_size=min(USUAL.batch_size, len(rows)),
        epochs=USUAL.epochs,
        learning_rate=USUAL.learning_rate,
        decay=True,
        rng=rng,
    )
    encoder = model.encoder.to("cpu").eval().requires_grad_(False)
    return AutoencoderFeatures(front, encoder), trained


@dataclass(frozen=True)
class _Autoencoder:
    """Encoder and decoder during training."""

    front: TableFrontEnd
    law: Likelihood
    networks: nn.ModuleList

    @property
    def encoder(self) -> nn.Sequential:
        encoder = self.networks[0]
        assert isinstance(encoder, nn.Sequential)
        return encoder

    def train(
        self,
        rows: encoders.Batch,
        epochs: int,
        batch: int,
        rate: float,
        generator: torch.Generator,
        progress: Progress | None,
    ) -> tuple[float, ...]:
        """Train; return the mean loss of every epoch."""
        optimiser = torch.optim.Adam(self.networks.parameters(), lr=rate)
        losses: list[float] = []
        for epoch in range(epochs):
            device = rows.numbers.device
            order = torch.randperm(len(rows), generator=generator, device=device)
            total = torch.zeros((), device=device)
            for start in range(0, len(rows), batch):
                chosen = rows[order[start : start + batch]]
                loss = self.losses(chosen).mean()
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                total += loss.detach() * len(chosen)
            losses.append(float(total) / len(rows))
            if progress is not None:
                progress(epoch + 1, epochs, losses[-1])
        return tuple(losses)

    def losses(self, rows: encoders.Batch) -> Tensor:
        """Compute the negative log-likelihood of each row given its own latent."""
        encode, decode = self.networks
        return -self.law.log_prob(decode(encode(self.front(rows))), rows)


def _is_image(schema: Schema) -> bool:
    return getattr(schema, "image", None) is not None


def _law(schema: Schema) -> Likelihood:
    front = encoders.front_end(schema)
    return encoders.Bernoulli(front.numbers) if _is_image(schema) else encoders.Mixed(front)


def _networks(schema: Schema, outputs: int) -> Callable[[], nn.ModuleList]:
    inputs, parameters = encoders.front_end(schema).dimension, _law(schema).parameter_count
    image = _is_image(schema)
    into = encoders.IMAGE_ENCODER if image else encoders.TABLE_ENCODER
    back = encoders.IMAGE_DECODER if image else encoders.TABLE_DECODER

    def make() -> nn.ModuleList:
        encoder = encoders.mlp([inputs, *into, outputs])
        return nn.ModuleList([encoder, encoders.mlp([outputs, *back, parameters])])

    return make
