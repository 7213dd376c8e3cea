r"""Training of a variational mechanism: an autoencoder whose latent is noised as a report will be.

With h the encoder's output, ν its clipping to the ball of radius l, and p(x | z) the decoder's law,
each row contributes the bound of equation 5 of [000]_,

.. math:: \mathbb{E}_{q(z \mid x)} \log p(x \mid z) - \mathrm{KL}(q(z \mid x) \,\|\, p(z)),
          \qquad \mu = \nu(h(x))

For Laplace noise :math:`q = \mathrm{Laplace}(\mu, b)` and :math:`p = \mathrm{Laplace}(0, b_0)` with
:math:`b_0 = 1/\sqrt2` in every coordinate, the ball is that of ℓ1, and as
:math:`\mathbb{E}_q |z| = |\mu| + b\,e^{-|\mu|/b}`,

.. math:: \mathrm{KL} = \log\frac{b_0}{b} + \frac{|\mu| + b\,e^{-|\mu|/b}}{b_0} - 1

For Gaussian noise :math:`q = \mathcal{N}(\mu, \sigma^2)`, :math:`p = \mathcal{N}(0, 1)`, the ball
is that of ℓ2, and :math:`\mathrm{KL} = (\mu^2 + \sigma^2 - 1)/2 - \log\sigma`.

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.data.schema import ArraySchema, Rows, Schema
from tacit.local.learned import encoders
from tacit.local.learned.encoders import Batch, Likelihood, TableFrontEnd
from tacit.privacy import errors, events, gaussian
from tacit.privacy.events import Event

PRIOR_SCALE = math.sqrt(0.5)
"""b₀: a Laplace prior of variance 1."""

ORDERS = {"laplace": 1, "gaussian": 2}
LIKELIHOODS = ("logits", "bernoulli", "mixed")
Progress = Callable[[int, int, float], None]


def clip(outputs: Tensor, radius: float, order: int) -> Tensor:
    """Apply ν: scale latents outside the ℓ1 or ℓ2 ball onto it."""
    norm: Tensor = torch.linalg.vector_norm(outputs, ord=order, dim=1, keepdim=True)
    norm = norm.clamp_min(1e-12)
    return outputs * (radius / norm).clamp(max=1)


def divergence(center: Tensor, spread: Tensor, noise: str) -> Tensor:
    """Compute the KL of posterior and prior, one number per row; spread is b or σ."""
    if noise == "laplace":
        size = center.abs()
        expected = (size + spread * torch.exp(-size / spread)) / PRIOR_SCALE
        return (math.log(PRIOR_SCALE) - spread.log() + expected - 1).sum(dim=1)
    return ((center.square() + spread.square() - 1) / 2 - spread.log()).sum(dim=1)


def standard_noise(like: Tensor, noise: str, generator: torch.Generator | None) -> Tensor:
    """Draw Laplace or Gaussian noise of scale 1, for training only: it is never released."""
    if noise == "gaussian":
        return torch.randn(like.shape, generator=generator, device=like.device)
    uniform = torch.rand(like.shape, generator=generator, device=like.device) - 0.5
    return -uniform.sign() * torch.log1p(-2 * uniform.abs().clamp(max=0.5 - 1e-7))


def law_of(schema: Schema, name: str | None) -> Likelihood:
    """Return the likelihood of this name; by default the one for the type of rows."""
    if name is None:
        return encoders.likelihood(schema)
    if name == "mixed":
        return encoders.Mixed(encoders.front_end(schema))
    if not isinstance(schema, ArraySchema):
        errors.refuse("VLM", "likelihood", "mixed for tables", name)
    if name == "logits":
        return encoders.GaussianOnLogits(schema.width)
    return encoders.Bernoulli(schema.width)


def sizes_for(
    schema: Schema, latent_dimension: int, law: Likelihood
) -> tuple[list[int], list[int]]:
    """Return the layer sizes of encoder and decoder: the paper's for images, and for tables."""
    image = isinstance(schema, ArraySchema) and schema.image is not None
    into = encoders.IMAGE_ENCODER if image else encoders.TABLE_ENCODER
    back = encoders.IMAGE_DECODER if image else encoders.TABLE_DECODER
    inputs = encoders.front_end(schema).dimension
    return [inputs, *into, latent_dimension], [latent_dimension, *back, law.parameter_count]


def posterior(law: Event, released: Tensor, clean: Tensor) -> Tensor:
    """Compute P(clean latent j | released latent i) under the noise of this event, (n, m)."""
    order = 1.0 if isinstance(law, events.Laplace) else 2.0
    distance = torch.cdist(released, clean, p=order, compute_mode="donot_use_mm_for_euclid_dist")
    if isinstance(law, events.Laplace):
        return torch.softmax(-distance / float(law.scale), dim=1)
    assert isinstance(law, events.Gaussian)
    return torch.softmax(-distance.square() / (2 * float(law.sigma) ** 2), dim=1)


def checked_delta(where: str, noise: str, delta: Any) -> float | None:
    """Check δ: Gaussian noise needs one, Laplace noise has none."""
    if noise == "laplace":
        if delta is not None:
            remedy = "Laplace noise needs none; say noise='gaussian' for (ε, δ)."
            errors.refuse(where, "delta", "left out", delta, remedy)
        return None
    if delta is None:
        errors.refuse(where, "delta", "given for Gaussian noise", None, "1e-6 is a usual choice.")
    return errors.probability(where, "delta", delta, zero=False)


def checked_pretraining(where: str, value: Any) -> float | str:
    """Check the ε of the noise in training, or "learned"."""
    if value == "learned":
        return "learned"
    number = errors.positive(where, "pretraining_epsilon", value)
    if number > 700:
        errors.refuse(where, "pretraining_epsilon", 'at most 700, or "learned"', value)
    return float(number)


def spread_for(epsilon: float | str, radius: float, delta: float | None) -> float:
    """Compute b or σ of the posterior in training; its initial value if it is learned."""
    if isinstance(epsilon, str):
        return PRIOR_SCALE
    if delta is not None:
        return 2 * radius * gaussian.noise_multiplier_for(epsilon, delta)
    return 2 * radius / epsilon


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of training by Adam, whose learning rate falls linearly to zero."""

    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        errors.whole("Training", "epochs", self.epochs, least=1)
        errors.whole("Training", "batch_size", self.batch_size, least=1)
        errors.positive("Training", "learning_rate", self.learning_rate)

    @classmethod
    def of(
        cls, epochs: int | None, batch_size: int | None, rate: float | None, usual: Training
    ) -> Training:
        """Return the given settings, with defaults for those not given."""
        return cls(
            epochs=usual.epochs if epochs is None else epochs,
            batch_size=usual.batch_size if batch_size is None else batch_size,
            learning_rate=usual.learning_rate if rate is None else rate,
        )


class Spread(nn.Module):
    """The b or σ of the posterior: a layer, so that its per-example gradients are known."""

    def __init__(self, start: float, learned: bool) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(start)), requires_grad=learned)

    def forward(self, center: Tensor) -> Tensor:
        """Return one number per row, (n, 1)."""
        return torch.ones_like(center[..., :1]) * self.log.exp()

    @property
    def value(self) -> float:
        return float(self.log.detach().exp())


@dataclass(frozen=True)
class Objective:
    """The training objective and its parts."""

    front: TableFrontEnd
    law: Likelihood
    encoder: nn.Sequential
    decoder: nn.Sequential
    spread: Spread
    radius: float
    noise: str

    @classmethod
    def start(
        cls,
        schema: Schema,
        latent_dimension: int,
        likelihood: str | None,
        spread: Spread,
        radius: float,
        noise: str,
        seed: int,
        device: str,
    ) -> Objective:
        """Build an objective with random weights."""
        law = law_of(schema, likelihood)
        sizes = sizes_for(schema, latent_dimension, law)
        encoder, decoder = encoders.build(seed, lambda: [encoders.mlp(size) for size in sizes])  # type: ignore[type-var]
        front = encoders.front_end(schema)
        parts = encoder.to(device), decoder.to(device), spread.to(device)
        return cls(front, law, *parts, radius, noise)

    def losses(self, rows: Batch, generator: torch.Generator | None = None) -> Tensor:
        """Compute the negative bound of each row, with one draw of the noise."""
        center = clip(self.encoder(self.front(rows)), self.radius, ORDERS[self.noise])
        spread = self.spread(center)
        latent = center + spread * standard_noise(center, self.noise, generator)
        fit = self.law.log_prob(self.decoder(latent), rows)
        return divergence(center, spread, self.noise) - fit

    @property
    def networks(self) -> nn.ModuleDict:
        """All networks that can be trained."""
        parts = {"encoder": self.encoder, "decoder": self.decoder, "spread": self.spread}
        return nn.ModuleDict(parts)


def train(
    objective: Objective,
    rows: Rows,
    settings: Training,
    *,
    seed: int,
    device: str,
    progress: Progress | None = None,
) -> list[float]:
    """Fit encoder, decoder and the spread, if learned; return the mean loss of each epoch."""
    generator = torch.Generator(device).manual_seed(seed)
    data = encoders.to_batch(rows, device)
    weights = [one for one in objective.networks.parameters() if one.requires_grad]
    # "fused" makes a step one kernel: small networks are limited by the number of kernels.
    optimizer = torch.optim.Adam(weights, lr=settings.learning_rate, fused=True)
    steps = settings.epochs * math.ceil(len(data) / settings.batch_size)
    fall = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    losses: list[float] = []
    for epoch in range(settings.epochs):
        total = torch.zeros((), device=device)
        order = torch.randperm(len(data), generator=generator, device=device)
        for chosen in torch.split(order, settings.batch_size):
            loss = objective.losses(data[chosen], generator).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            fall.step()
            total += loss.detach() * len(chosen)
        losses.append(float(total) / len(data))
        if not math.isfinite(losses[-1]):
            raise errors.TacitError("VLM.fit: training diverged. Lower the learning rate.")
        if progress is not None:
            progress(epoch + 1, settings.epochs, losses[-1])
    return losses
