r"""Torch building blocks: inputs of networks, encoders, and likelihoods of rows.

Every likelihood reads its parameters from the outputs of a decoder, and takes rows in the layout of
`TableFrontEnd`: numbers, then missing indicators, then one-hot categories.

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Sections 3.1 and C.
.. [DSB17] Dinh, Sohl-Dickstein, Bengio. Density estimation using Real NVP. ICLR 2017.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.data.schema import ArraySchema, Schema
from tacit.privacy import errors

Arrays = dict[str, npt.NDArray[np.float32]]
AnyModule = TypeVar("AnyModule", bound=nn.Module)

IMAGE_ENCODER, IMAGE_DECODER = (400, 150, 50), (50, 150, 400)
"""Hidden layers for MNIST [000]_."""

TABLE_ENCODER = TABLE_DECODER = (500, 500)
"""Hidden layers for Lending Club [000]_."""

MISSING = 0.5
"""The value of a missing number, beside its indicator: the middle of the public range."""

_LOG_TWO_PI = math.log(2 * math.pi)
_LOG_SCALES = (math.log(0.01), 0.0)


class RowsLike(Protocol):
    """`Rows`, or a batch of them as tensors."""

    @property
    def numbers(self) -> Any:
        """(n, p), NaN where missing."""
        ...

    @property
    def codes(self) -> Any:
        """(n, q), −1 where missing or unseen."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Rows as tensors on a device."""

    numbers: Tensor
    codes: Tensor

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, chosen: slice | Tensor) -> Batch:
        return Batch(self.numbers[chosen], self.codes[chosen])


def to_batch(rows: RowsLike, device: str | torch.device = "cpu") -> Batch:
    """Copy rows to a device."""
    return Batch(_numbers(rows, device), _codes(rows, device))


def _numbers(rows: RowsLike, device: str | torch.device | None) -> Tensor:
    return _tensor(rows.numbers, torch.float32, device)


def _codes(rows: RowsLike, device: str | torch.device | None) -> Tensor:
    return _tensor(rows.codes, torch.int64, device)


def _tensor(values: Any, dtype: torch.dtype, device: str | torch.device | None) -> Tensor:
    # Torch warns about read-only arrays.
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        values = values.copy()
    return torch.as_tensor(values, dtype=dtype, device=device)


# --- networks --------------------------------------------------------------------------------


def mlp(sizes: Sequence[int], activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Build linear layers of these sizes, inputs first, with an activation between them."""
    if len(sizes) < 2 or min(sizes) < 1:
        errors.refuse("mlp", "sizes", "two or more positive integers", tuple(sizes))
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


class ConvEncoder(nn.Module):
    """An encoder of images: three blocks of convolution, and two linear layers.

    Parameters
    ----------
    image : (int, int)
        Height and width, 4 or more each.
    outputs : int
        Length of a vector.
    widths : tuple of int
        Channels of the blocks, multiples of 8; all blocks but the last halve the image.
    hidden : int
        Units between the two linear layers.
    unit : bool
        Whether vectors are divided by their ℓ2 norm.

    Notes
    -----
    `layers` holds only Conv2d, GroupNorm, ReLU, AvgPool2d, Flatten and Linear, and no image affects
    the statistics of another: a vector is the same in any batch.
    """

    def __init__(
        self,
        image: tuple[int, int],
        outputs: int = 64,
        *,
        widths: tuple[int, ...] = (32, 64, 128),
        hidden: int = 256,
        unit: bool = True,
    ) -> None:
        super().__init__()
        if min(image) < 2 ** (len(widths) - 1):
            errors.refuse("ConvEncoder", "image", f"{2 ** (len(widths) - 1)} or more wide", image)
        self.image, self.outputs, self.widths = image, outputs, widths
        self.hidden, self.unit = hidden, unit
        layers: list[nn.Module] = []
        channels, (height, width) = 1, image
        for block, out in enumerate(widths):
            if block:
                layers.append(nn.AvgPool2d(2))
                height, width = height // 2, width // 2
            layers += [nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(8, out), nn.ReLU()]
            channels = out
        layers += [nn.Flatten(), *mlp([channels * height * width, hidden, outputs])]
        # Channels last in memory: a quarter less time on a CPU, equal to 1e-6.
        self.layers = nn.Sequential(*layers)
        self.layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> ConvEncoder:
        """Build an untrained encoder of the shape in `settings`."""
        shapes = {name: tuple(settings[name]) for name in ("image", "widths")}
        return cls(**{**settings, **shapes})

    def settings(self) -> dict[str, Any]:
        """Return the shape as plain values, for JSON."""
        shape = {"image": list(self.image), "outputs": self.outputs, "widths": list(self.widths)}
        return {**shape, "hidden": self.hidden, "unit": self.unit}

    def forward(self, images: Tensor) -> Tensor:
        """Encode images (n, 1, h, w) or (n, h·w), within [0, 1]."""
        vectors: Tensor = self.layers(images.reshape(-1, 1, *self.image)).float()
        return F.normalize(vectors, dim=1) if self.unit else vectors


@dataclass(frozen=True)
class TableFrontEnd:
    """Rows as the inputs of a network.

    Numbers within [0, 1], missing ones at 0.5; then an indicator, 1 where missing, for each column
    that declares missing values; then each categorical column as one-hot, with a last place for
    missing or unseen values where it declares them. (A linear layer on one-hot inputs is an
    embedding of the codes.)

    Parameters
    ----------
    numbers : int
        Continuous columns.
    indicated : tuple of int
        Those among them that may be missing.
    places : tuple of int
        Of each categorical column, the one for other values included.
    """

    numbers: int
    indicated: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    @property
    def dimension(self) -> int:
        """The number of inputs of the network."""
        return self.numbers + len(self.indicated) + sum(self.places)

    def __call__(self, rows: RowsLike, device: str | torch.device | None = None) -> Tensor:
        """Compute inputs (n, dimension), on the device of the rows unless one is given."""
        numbers = _numbers(rows, device)
        filled = torch.nan_to_num(numbers, nan=MISSING)
        missing = numbers[:, list(self.indicated)].isnan().float()
        codes = self._places_of(rows, numbers.device)
        hot = [F.one_hot(codes[:, i], places).float() for i, places in enumerate(self.places)]
        return torch.cat([filled, missing, *hot], dim=1)

    def _places_of(self, rows: RowsLike, device: torch.device) -> Tensor:
        """Map codes to places from 0: other values have the last place."""
        codes = _codes(rows, device)
        last = torch.tensor(self.places, dtype=torch.int64, device=device) - 1
        return torch.where(codes < 0, last, codes)


def front_end(schema: Schema) -> TableFrontEnd:
    """Build the front end for a schema."""
    if isinstance(schema, ArraySchema):
        return TableFrontEnd(schema.width)
    indicated = [i for i, c in enumerate(schema.continuous) if c.missing == "indicate"]
    places = [len(c.categories) + (c.unseen == "other") for c in schema.categorical]
    return TableFrontEnd(len(schema.continuous), tuple(indicated), tuple(places))


# --- likelihoods -----------------------------------------------------------------------------


class Likelihood(Protocol):
    """A distribution of rows whose parameters are the outputs of a decoder."""

    @property
    def parameter_count(self) -> int:
        """The number of outputs of the decoder."""
        ...

    def log_prob(self, parameters: Tensor, rows: RowsLike) -> Tensor:
        """Compute the log-density of each row, (n,), for parameters (n, parameter_count)."""
        ...

    def mean(self, parameters: Tensor) -> Tensor:
        """Return the expected row, in the layout of `TableFrontEnd`."""
        ...

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """Draw a row, in the same layout."""
        ...


@dataclass(frozen=True)
class GaussianOnLogits:
    r"""A Gaussian on the logits of numbers in [0, 1]: images as in [000]_.

    .. math:: s = \operatorname{logit}(\alpha + (1 - 2\alpha)\,x), \qquad
              s_j \sim \mathcal{N}(m_j, \sigma^2)

    Parameters
    ----------
    numbers : int
        Pixels.
    smoothing : float
        α in (0, 1/2): keeps the logits of black and white finite, within ±2.94 for 0.05 [DSB17]_.
        [000]_ uses a logit without stating the constant.
    scale : float
        σ, the same for all pixels.

    Notes
    -----
    `log_prob` is the density of s. That of x has one more term, without parameters:
    :math:`\sum_j \log(1-2\alpha) - \log u_j - \log(1-u_j)` with :math:`u = \alpha + (1-2\alpha)x`.
    `mean` is the image whose logits are m: the median of x, cut to [0, 1].
    """

    numbers: int
    smoothing: float = 0.05
    scale: float = 1.0

    def __post_init__(self) -> None:
        errors.within("GaussianOnLogits", "smoothing", self.smoothing, "(0, 1/2)")
        errors.positive("GaussianOnLogits", "scale", self.scale)

    @property
    def parameter_count(self) -> int:
        return self.numbers

    def logits(self, numbers: Tensor) -> Tensor:
        """Compute s of the formula."""
        return torch.logit(self.smoothing + (1 - 2 * self.smoothing) * numbers)

    def log_prob(self, parameters: Tensor, rows: RowsLike) -> Tensor:
        numbers = _numbers(rows, parameters.device)
        log_scale = parameters.new_tensor(self.scale).log()
        return _gaussian(self.logits(numbers), parameters, log_scale).sum(dim=1)

    def mean(self, parameters: Tensor) -> Tensor:
        smoothed = torch.sigmoid(parameters)
        return ((smoothed - self.smoothing) / (1 - 2 * self.smoothing)).clamp(0, 1)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        return self.mean(parameters + self.scale * _normal(parameters, generator))


@dataclass(frozen=True)
class Bernoulli:
    r"""Independent bits with logits as parameters.

    .. math:: \log p(x \mid a) = \sum_j x_j a_j - \log(1 + e^{a_j})

    Notes
    -----
    This is a distribution if numbers are 0 or 1; otherwise it is the usual cross-entropy.
    """

    numbers: int

    @property
    def parameter_count(self) -> int:
        return self.numbers

    def log_prob(self, parameters: Tensor, rows: RowsLike) -> Tensor:
        numbers = _numbers(rows, parameters.device)
        return (numbers * parameters - F.softplus(parameters)).sum(dim=1)

    def mean(self, parameters: Tensor) -> Tensor:
        return torch.sigmoid(parameters)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        return torch.bernoulli(torch.sigmoid(parameters), generator=generator)


@dataclass(frozen=True)
class Mixed:
    r"""Independent columns of a table: Gaussian numbers, missing or not, and categorical codes.

    .. math:: \log p = \sum_{j\ \text{present}} \log \mathcal{N}(x_j; m_j, \sigma_j^2)
              + \sum_{j\ \text{indicated}} \log \mathrm{B}(\text{missing}_j; a_j)
              + \sum_k \log \operatorname{softmax}(c_k)_{\text{code}_k}

    Parameters
    ----------
    front : TableFrontEnd
        The layout of rows.

    Notes
    -----
    Parameters are, in order, all m, all log σ, all a, and c of each column; σ is cut to [0.01, 1]
    of the public range: without a floor, the density of a column that repeats one value has no
    bound. The last place of a code is "missing or unseen", where declared.
    """

    front: TableFrontEnd

    @property
    def parameter_count(self) -> int:
        return self.front.dimension + self.front.numbers

    def log_prob(self, parameters: Tensor, rows: RowsLike) -> Tensor:
        means, log_scales, absences, *choices = self._split(parameters)
        inputs = self.front(rows, parameters.device)
        values, missing, *hot = torch.split(inputs, self._sizes()[1:], dim=1)
        present = torch.ones_like(values)
        present[:, list(self.front.indicated)] = 1 - missing
        total = (present * _gaussian(values, means, log_scales)).sum(dim=1)
        total = total + (missing * absences - F.softplus(absences)).sum(dim=1)
        for column, logits in zip(hot, choices, strict=True):
            total = total + (column * F.log_softmax(logits, dim=1)).sum(dim=1)
        return total

    def mean(self, parameters: Tensor) -> Tensor:
        means, _, absences, *choices = self._split(parameters)
        chances = [F.softmax(logits, dim=1) for logits in choices]
        return torch.cat([means.clamp(0, 1), torch.sigmoid(absences), *chances], dim=1)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        means, log_scales, absences, *choices = self._split(parameters)
        values = (means + log_scales.exp() * _normal(means, generator)).clamp(0, 1)
        missing = torch.bernoulli(torch.sigmoid(absences), generator=generator)
        indicated = list(self.front.indicated)
        values[:, indicated] = torch.where(missing > 0, MISSING, values[:, indicated])
        hot = [_one_hot_draw(logits, generator) for logits in choices]
        return torch.cat([values, missing, *hot], dim=1)

    def _sizes(self) -> list[int]:
        front = self.front
        return [front.numbers, front.numbers, len(front.indicated), *front.places]

    def _split(self, parameters: Tensor) -> list[Tensor]:
        means, log_scales, *others = torch.split(parameters, self._sizes(), dim=1)
        return [means, log_scales.clamp(*_LOG_SCALES), *others]


def likelihood(schema: Schema) -> Likelihood:
    """Choose the likelihood by the type of rows: logits for images, columns for the rest."""
    if isinstance(schema, ArraySchema) and schema.image is not None:
        return GaussianOnLogits(schema.width)
    return Mixed(front_end(schema))


def _gaussian(values: Tensor, means: Tensor, log_scales: Tensor) -> Tensor:
    standard = (values - means) * torch.exp(-log_scales)
    return -0.5 * (standard.square() + _LOG_TWO_PI) - log_scales


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)


def _one_hot_draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.multinomial(F.softmax(logits, dim=1), 1, generator=generator)
    return F.one_hot(drawn[:, 0], logits.shape[1]).float()


# --- seeds, weights, inference ---------------------------------------------------------------


def build(seed: int, make: Callable[[], AnyModule]) -> AnyModule:
    """Build a module with weights drawn from `seed`; restore the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def to_arrays(module: nn.Module) -> Arrays:
    """Return the weights as float32 arrays."""
    return {
        name: np.array(value.detach().to("cpu", torch.float32).numpy(), order="C")
        for name, value in module.state_dict().items()
    }


def restore(make: Callable[[], AnyModule], arrays: Mapping[str, npt.NDArray[Any]]) -> AnyModule:
    """Build a module with weights from `to_arrays`, ready for inference."""
    module = build(0, make)
    weights = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
    expected = {name: value.shape for name, value in module.state_dict().items()}
    if {name: value.shape for name, value in weights.items()} != expected:
        raise errors.InvalidData("restore: weights must have the names and shapes of the encoder.")
    module.load_state_dict(weights)
    return module.eval().requires_grad_(False)


@contextlib.contextmanager
def inference() -> Iterator[None]:
    """Disable gradients and TF32, which would make codewords depend on the device."""
    with (
        torch.no_grad(),
        torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False),
    ):
        yield
