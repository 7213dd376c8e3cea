r"""Book-keeping for known layers: norms and sums of per-example gradients, not written out.

A layer that computes :math:`y_t = W a_t + b` at positions t has, for one example, the gradient
:math:`\sum_t g_t a_t^\top` with :math:`g_t` the gradient at its output. Its squared norm is

.. math:: \Big\|\sum_t g_t a_t^\top\Big\|_F^2 = \sum_{s,t} \langle a_s, a_t\rangle \langle g_s,
          g_t\rangle,

for one position :math:`\|a\|^2 \|g\|^2`; and the sum over examples with weights f is one matrix
product :math:`\sum_i \sum_t (f_i g_{it}) a_{it}^\top`. Further calls of a layer are more positions.

Notes
-----
Where squared norms are sums of products that can cancel, a bound on the rounding error is added, so
that a norm is never understated: T ε ‖A‖ ‖G‖ for a sum over T positions, and d ε of
itself for a sum of d squares [Hig02]_. Squared norms are added up in float64.

Rounding of the weighted sum of m examples. Write u for half the ε of a type and :math:`\gamma_k =
ku / (1 - ku)`. A sum of products in any order, with at most k roundings of each term, has an error
of at most :math:`\gamma_k` times the sum of the terms' absolute values [Hig02]_; so in the
Euclidean norm, at most :math:`\gamma_k` times the sum of the terms' norms.

1. One term per example (one position; a gradient that is written out; that of a norm layer): the
   term's norm is what is measured, so with the weights f the norms add up to at most mC. There are
   m + 1 additions, two products and the rounding of f: an error of at most
   :math:`\gamma_{m+4} m C`, in the module's own type.
2. Several terms per example, which may cancel: the gradient may be short and its terms huge. Their
   norms add up to at most :math:`S_j = \|A_j\|_F \|G_j\|_F` (:math:`\sum_t \|g_t\|` for an
   embedding). These are summed in float64, rounded once to the module's type, and an example counts
   as if its norm were at least :math:`S_j / L`, with :math:`L = \rho / (2 m \gamma_{mT+4})`. So
   :math:`\sum_j f_j S_j \le m L C`, and the error of the sum is at most :math:`\rho C / 2`, besides
   one rounding of a sum no longer than mC. L is at least in the thousands, so this affects only
   gradients whose terms cancel to within a thousandth.
3. Biases at several positions, scales and shifts are summed over positions and calls first. That
   array is written out once, at the shape of the whole block; this one array is both measured and
   added, whatever its own rounding, which is case 1. If it were computed a second time, at another
   shape, its additions would have another order, and nothing would bound the difference.

Norms of several layers are those of one long vector, and so are these errors (Minkowski). Underflow
is separate: a product in float32 may lose :math:`2^{-126}`. In case 1 that is multiplied by the
input, so an example with an input longer than :math:`2^{60}` is treated as not finite and dropped;
what remains is below :math:`2^{-16} C`, for clip norms of at least :math:`2^{-30}` and up to
:math:`2^{20}` outputs.

References
----------
.. [Goo15] Goodfellow. Efficient per-example gradient computations. 2015.
.. [LTLH22] Li, Tramèr, Liang, Hashimoto. Large language models can be strong differentially
   private learners. ICLR 2022 (ghost clipping, with positions).
.. [BWZK23] Bu, Wang, Zha, Karypis. Differentially private optimization on large model at small
   cost. ICML 2023 (book-keeping).
.. [Hig02] Higham. Accuracy and stability of numerical algorithms. 2002, section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

Pairs = list[tuple[Tensor, Tensor]]
"""The input and the output gradient of each call, examples first."""

Sums = dict[str, Tensor]
"""The sum for each trained parameter, by its name in the layer."""

MOST_ENTRIES = 1 << 22
"""Largest number of entries of matrices that are made for several examples at a time."""

SUMMED = 256
"""m: slots that are summed in one product. The effect of rounding grows with its square."""

ROOM = 2.0**-10
"""ρ: share of the clip norm for rounding in float64 of terms that cancel (case 2)."""

_RUN = 512
"""Number of squares that are summed in the type of the rows."""

_FEW = 32
"""Number of positions at which products in the type of the rows overstate norms by a little."""

_LONGEST = 2.0**60
"""Norm of an input above which float32 may lose its clipped gradient among subnormals."""


class Rule(Protocol):
    """The book-keeping of one kind of layer."""

    def written(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Sums:
        """Write out the examples' gradients of small parameters, (n, …): see case 3.

        The caller measures and adds the result unchanged.
        """
        ...


class Summing(Rule, Protocol):
    """A rule for parameters whose gradients are not written out: norms and sums without them."""

    def squared_norms(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Tensor:
        """Bound the squared norm of each example's gradient of these parameters, in float64.

        Larger if the terms of a gradient are so much longer that their rounding would matter.
        """
        ...

    overwrites: bool
    """Whether `add` works without zeros to start from."""

    def add(
        self, layer: Layer, sums: Sums, pairs: Pairs, weights: Tensor, *, fresh: bool = False
    ) -> None:
        """Add the examples' gradients, times these weights, to `sums`.

        If `fresh` and the rule overwrites, `sums` is not initialized yet.
        """
        ...


@dataclass(frozen=True)
class Layer:
    """The properties of a call that the rules need."""

    weight: Tensor | None = None
    kernel_size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] | str = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    padding_index: int | None = None
    normalise: Callable[[Tensor], Tensor] | None = None
    normalised_axes: int = 0
    """Number of axes of a norm over the last axes; 0 for a norm over channels."""
    transposed: bool = False
    """Whether a weight has one row for every input, and not for every output."""


def convolution(weight: Tensor, settings: dict[str, Any]) -> tuple[Rule, Layer]:
    """Return the rule for `conv1d`, `conv2d` and `conv3d` with these arguments."""
    axes = weight.dim() - 2

    def each(name: str) -> tuple[int, ...]:
        value = settings[name]
        value = [value] if isinstance(value, int) else list(value)
        return tuple(value * axes if len(value) == 1 else value)

    padding = settings["padding"]
    layer = Layer(
        weight,
        tuple(weight.shape[2:]),
        each("stride"),
        padding if isinstance(padding, str) else each("padding"),
        each("dilation"),
        settings["groups"],
    )
    return _Convolution(), layer


def norm(name: str, settings: dict[str, Any]) -> tuple[Rule, Layer]:
    """Return the rule for `layer_norm`, `rms_norm`, `group_norm` and `instance_norm`."""
    if name in ("layer_norm", "rms_norm"):
        shape, eps = list(settings["normalized_shape"]), settings["eps"]
        plain: Callable[[Tensor], Tensor] = (
            (lambda x: F.layer_norm(x, shape, None, None, eps))
            if name == "layer_norm"
            else (lambda x: F.rms_norm(x, shape, None, eps))
        )
        return _Norm(), Layer(normalise=plain, normalised_axes=len(shape))
    if name == "group_norm":
        groups, eps = settings["num_groups"], settings["eps"]
        return _Norm(), Layer(normalise=lambda x: F.group_norm(x, groups, None, None, eps))
    return _Norm(), Layer(normalise=lambda x: F.instance_norm(x, eps=settings["eps"]))


def linear(*, transposed: bool = False) -> tuple[Summing, Layer]:
    """Return the rule for `linear`, rows first and inputs last, or for products x @ weight."""
    return _Linear(), Layer(transposed=transposed)


def embedding(padding_index: int) -> tuple[Summing, Layer]:
    """Return the rule for `embedding`; -1 means no padding."""
    return _Embedding(), Layer(padding_index=None if padding_index < 0 else padding_index)


def squares(rows: Tensor) -> Tensor:
    """Bound the sum of squares of all entries of each example, in float64.

    Runs of up to 512 entries are summed in the type of the rows, which is five times as fast, and
    then in float64, so that norms are not overstated by more than a ten-thousandth. What rounding
    and underflow of d squares can remove is added back: 1 / (1 − γ) ≤ 1 + dε as long as dε ≤ 1/2.
    """
    flat = rows.flatten(1) if rows.dim() > 1 else rows[:, None]
    count = flat.shape[1]
    if count <= _RUN:
        return _run_squares(flat)
    whole = count - count % _RUN
    runs = flat[:, :whole].reshape(len(flat), whole // _RUN, _RUN)
    total = _run_squares(runs).sum(1)
    if whole < count:
        total += _run_squares(flat[:, whole:])
    return total.mul_(1 + (count // _RUN + 2) * torch.finfo(torch.float64).eps)


def _run_squares(rows: Tensor) -> Tensor:
    """Bound the sum of squares along the last axis, in float64."""
    count, limits = rows.shape[-1], torch.finfo(rows.dtype)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return norms.double().square_().mul_(1 + (count + 4) * limits.eps).add_(count * limits.tiny)


def gamma(count: float, dtype: torch.dtype) -> float:
    """Return γ: the relative error of a term after this many roundings."""
    small = count * torch.finfo(dtype).eps / 2
    return small / (1 - small) if small < 1 else math.inf


def cancelling(examples: int, positions: int) -> float:
    """Return 1 / L: the least share of its terms' norms that an example's norm counts as."""
    summed = min(examples, SUMMED)
    return 2 * summed * gamma(summed * positions + 4, torch.float64) / ROOM


def scaled(rows: Tensor, weights: Tensor) -> Tensor:
    """Multiply each example's part by its weight."""
    return rows * weights.to(rows.dtype).view(-1, *[1] * (rows.dim() - 1))


def outer_norms(inputs: Tensor, outputs: Tensor, examples: int) -> Tensor:
    """Bound the squared norms of Σ_t g_t a_tᵀ, for (m, T, p) and (m, T, q); shape (m,).

    The norms are at least 1 / L of what the terms may add up to, in a block of `examples`. What is
    added for rounding is relative to the length of all terms together, many times that of the
    gradient where positions are many; so beyond a few, products are in float64.
    """
    count, positions, wide = inputs.shape
    high = outputs.shape[2]
    bound = squares(inputs) * squares(outputs)
    if positions == 1:
        return bound
    by_gram = positions**2 * (wide + high) < positions * wide * high
    entries = max(1, 2 * positions**2 if by_gram else wide * high, positions * (wide + high))
    step = max(1, MOST_ENTRIES // entries)
    dtype = inputs.dtype if positions <= _FEW and not by_gram else torch.float64
    norms = []
    for i in range(0, count, step):
        first, second = (rows[i : i + step].to(dtype) for rows in (inputs, outputs))
        way = _gram_norms if by_gram else _product_norms
        norms.append(way(first, second))
    epsilon, least = torch.finfo(dtype).eps, cancelling(examples, positions) ** 2 * bound
    if by_gram:
        terms = wide + high + positions**2
        total = torch.cat(norms) + terms * epsilon * bound
        # Products that overflow may add up to −∞, which must not count as a short gradient.
        return torch.where(torch.isfinite(total), torch.maximum(total, least), math.inf)
    total = (torch.cat(norms).sqrt_() + positions * epsilon * bound.sqrt()).square_()
    return torch.maximum(total, least)


def _gram_norms(inputs: Tensor, outputs: Tensor) -> Tensor:
    """Compute norms by the T × T matrices of inner products: cheaper for few positions."""
    first = inputs @ inputs.transpose(1, 2)
    second = outputs @ outputs.transpose(1, 2)
    return (first * second).flatten(1).sum(1)


def _product_norms(inputs: Tensor, outputs: Tensor) -> Tensor:
    """Compute norms of gradients that are written out, a few examples at a time."""
    return squares(outputs.transpose(1, 2) @ inputs)


class _Linear:
    overwrites = True

    def written(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Sums:
        # With one position the gradient of the bias is that of the output itself.
        if "bias" not in trained or _single(pairs):
            return {}
        return {"bias": bias_rows([g for _, g in pairs])}

    def squared_norms(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Tensor:
        if _single(pairs):
            inputs, outputs = pairs[0]
            share: Tensor | float = 0.0
            if "weight" in trained:
                share = squares(inputs)
                share.masked_fill_(share > _LONGEST**2, math.inf)
            return squares(outputs) * (share + float("bias" in trained))
        inputs = torch.cat([positions_of(x) for x, _ in pairs], 1)
        outputs = torch.cat([positions_of(g) for _, g in pairs], 1)
        return outer_norms(inputs, outputs, len(inputs))

    def add(
        self, layer: Layer, sums: Sums, pairs: Pairs, weights: Tensor, *, fresh: bool = False
    ) -> None:
        keep = 0 if fresh else 1  # beta=0 ignores what was there, even NaN
        if _single(pairs):
            inputs, outputs = pairs[0]
            rows = scaled(outputs, weights)
            if "weight" in sums:
                first, second = (inputs, rows) if layer.transposed else (rows, inputs)
                sums["weight"].addmm_(first.T, second, beta=keep)
            if "bias" in sums:
                _put(sums["bias"], rows.sum(0), fresh)
            return
        total = torch.zeros_like(sums["weight"], dtype=torch.float64)
        for inputs, outputs in pairs:
            rows = scaled(outputs.double(), weights).flatten(0, -2)
            columns = inputs.double().flatten(0, -2)
            first, second = (columns, rows) if layer.transposed else (rows, columns)
            total.addmm_(first.T, second)
        _put(sums["weight"], total, fresh)


class _Convolution:
    overwrites = False

    def written(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Sums:
        if "bias" not in trained:
            return {}
        return {"bias": bias_rows([g.movedim(1, -1) for _, g in pairs])}

    def squared_norms(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Tensor:
        count = len(pairs[0][0])
        total = torch.zeros(count, dtype=torch.float64, device=pairs[0][0].device)
        # Windows are many times the size of their input: take a few examples at a time.
        entries = sum(x.shape[1] * math.prod(g.shape[2:]) for x, g in pairs)
        step = max(1, MOST_ENTRIES // max(1, entries * math.prod(layer.kernel_size)))
        for i in range(0, count, step):
            some = [(x[i : i + step], g[i : i + step]) for x, g in pairs]
            total[i : i + step] = self._weight_norms(layer, some, count)
        return total

    def _weight_norms(self, layer: Layer, pairs: Pairs, examples: int) -> Tensor:
        """Bound norms with each group as a separate layer on its own windows."""
        count, groups = len(pairs[0][0]), layer.groups
        inputs, outputs = [], []
        for x, g in pairs:
            windows = _windows(layer, _padded(layer, x))
            positions = windows.shape[2]
            inputs.append(windows.reshape(count * groups, -1, positions).transpose(1, 2))
            outputs.append(g.reshape(count * groups, -1, positions).transpose(1, 2))
        norms = outer_norms(torch.cat(inputs, 1), torch.cat(outputs, 1), examples)
        return norms.view(count, groups).sum(1)

    def add(
        self, layer: Layer, sums: Sums, pairs: Pairs, weights: Tensor, *, fresh: bool = False
    ) -> None:
        total = torch.zeros_like(sums["weight"], dtype=torch.float64)
        for inputs, outputs in pairs:
            rows = scaled(outputs.double(), weights)
            total += _convolution_gradient(layer, inputs.double(), rows)
        sums["weight"] += total


class _Embedding:
    overwrites = False

    def written(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Sums:
        return {}

    def squared_norms(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Tensor:
        tokens = torch.cat([x.reshape(len(x), -1) for x, _ in pairs], 1)
        outputs = torch.cat([positions_of(masked(layer, x, g)) for x, g in pairs], 1)
        if tokens.shape[1] == 1:
            return squares(outputs)
        # The contributions of one example to one token add up before they are squared.
        ordered, order = tokens.sort(1)
        group = torch.zeros_like(tokens)
        group[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(1)
        places = torch.zeros_like(tokens).scatter_(1, order, group)[..., None]
        values = outputs.double()
        added = torch.zeros_like(values).scatter_add_(1, places.expand_as(values), values)
        count, positions = tokens.shape
        terms = torch.linalg.vector_norm(values, dim=2).sum(1)
        norms = squares(added).sqrt_() + gamma(positions, torch.float64) * terms
        return torch.maximum(norms, cancelling(count, positions) * terms).square_()

    def add(
        self, layer: Layer, sums: Sums, pairs: Pairs, weights: Tensor, *, fresh: bool = False
    ) -> None:
        single = len(pairs) == 1 and pairs[0][0].numel() == len(pairs[0][0])
        dtype = sums["weight"].dtype if single else torch.float64
        total = torch.zeros_like(sums["weight"], dtype=dtype)
        for tokens, outputs in pairs:
            rows = scaled(masked(layer, tokens, outputs).to(dtype), weights)
            total.index_add_(0, tokens.flatten(), rows.reshape(-1, rows.shape[-1]))
        sums["weight"] += total


class _Norm:
    """Scale and shift of a normalisation: two vectors per example, small enough to write out."""

    def written(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Sums:
        normalise = layer.normalise
        assert normalise is not None
        sums: Sums = {}
        if "weight" in trained:
            parts = [self._reduced(layer, normalise(x) * g) for x, g in pairs]
            sums["weight"] = torch.stack(parts).sum(0)
        if "bias" in trained:
            sums["bias"] = torch.stack([self._reduced(layer, g) for _, g in pairs]).sum(0)
        return sums

    def _reduced(self, layer: Layer, values: Tensor) -> Tensor:
        """Sum over all axes except the example's and the parameter's."""
        kept = layer.normalised_axes
        if kept:
            return values.reshape(len(values), -1, *values.shape[values.dim() - kept :]).sum(1)
        return values.flatten(2).sum(2) if values.dim() > 2 else values


def masked(layer: Layer, tokens: Tensor, outputs: Tensor) -> Tensor:
    """Zero the gradients of the padding token, which is not trained."""
    if layer.padding_index is None:
        return outputs
    return outputs.masked_fill((tokens == layer.padding_index)[..., None], 0)


def positions_of(rows: Tensor) -> Tensor:
    """Reshape (n, …, d) to (n, T, d)."""
    return rows.reshape(len(rows), -1, rows.shape[-1])


def _single(pairs: Pairs) -> bool:
    """Check whether every example has one position."""
    return len(pairs) == 1 and pairs[0][0].dim() == 2


def _put(place: Tensor, value: Tensor, fresh: bool) -> None:
    """Add to a place, or overwrite it if it is fresh."""
    place.copy_(value) if fresh else place.add_(value)


def bias_rows(outputs: list[Tensor]) -> Tensor:
    """Sum each example's output gradients over all positions and calls, (n, q) in float64."""
    parts = [positions_of(rows).sum(1, dtype=torch.float64) for rows in outputs]
    return torch.stack(parts).sum(0)


def _padded(layer: Layer, inputs: Tensor) -> Tensor:
    """Make the layer's own padding of its inputs explicit."""
    sides: list[int] = []
    for axis in reversed(range(len(layer.kernel_size))):
        if isinstance(layer.padding, str):
            total = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
            total = total if layer.padding == "same" else 0
            sides += [total // 2, total - total // 2]
        else:
            sides += [layer.padding[axis]] * 2
    if not any(sides):
        return inputs
    return F.pad(inputs, sides)


def _windows(layer: Layer, padded: Tensor) -> Tensor:
    """View the inputs of output positions, (n, channels · kernel, positions), without copying."""
    steps, axes = padded.stride(), range(len(layer.kernel_size))
    reach = [layer.dilation[i] * (layer.kernel_size[i] - 1) + 1 for i in axes]
    sizes = [(padded.shape[2 + i] - reach[i]) // layer.stride[i] + 1 for i in axes]
    view = padded.as_strided(
        (*padded.shape[:2], *layer.kernel_size, *sizes),
        (
            *steps[:2],
            *(steps[2 + i] * layer.dilation[i] for i in axes),
            *(steps[2 + i] * layer.stride[i] for i in axes),
        ),
        padded.storage_offset(),
    )
    kernel = len(layer.kernel_size)
    return view.flatten(1, 1 + kernel).flatten(2)


def _convolution_gradient(layer: Layer, inputs: Tensor, outputs: Tensor) -> Tensor:
    assert layer.weight is not None
    axes = len(layer.kernel_size)
    gradient = torch.ops.aten.convolution_backward(
        outputs,
        _padded(layer, inputs),
        layer.weight.to(inputs.dtype),
        None,
        layer.stride,
        [0] * axes,
        layer.dilation,
        False,
        [0] * axes,
        layer.groups,
        [False, True, False],
    )[1]
    assert isinstance(gradient, Tensor)
    return gradient
