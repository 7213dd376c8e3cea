r"""Book-keeping for a table that is both embedding and output layer, as in language models.

For tokens :math:`k_s` with gradients :math:`e_s` at their look-ups, and inputs :math:`a_t` of the
output layer with gradients :math:`g_t` at its outputs, the gradient of the table is

.. math:: \sum_s u_{k_s} e_s^\top + \sum_t g_t a_t^\top

with unit vectors u. So a look-up is a position of a linear layer, with input :math:`e_s` and output
gradient :math:`u_{k_s}`: `layers.outer_norms` bounds the norm, cross terms included, and the sum is
in float64 (case 2 of `layers`). Both factors of a look-up are scaled by a power of two, which
changes no product, so that the lengths that the bound on rounding multiplies are balanced.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.central.training.layers import (
    MOST_ENTRIES,
    Layer,
    Pairs,
    Sums,
    bias_rows,
    embedding,
    linear,
    masked,
    outer_norms,
    positions_of,
    scaled,
)

_FARTHEST = 60
"""Largest exponent of the power of two."""


class Tied:
    """The rule; a pair with whole numbers is a look-up."""

    overwrites = False

    def written(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Sums:
        if "bias" not in trained:
            return {}
        return {"bias": bias_rows([g for _, g in _products(pairs)])}

    def squared_norms(self, layer: Layer, trained: Collection[str], pairs: Pairs) -> Tensor:
        if not _products(pairs):  # the other use has no gradient
            return embedding(-1)[0].squared_norms(layer, trained, pairs)
        if not _look_ups(pairs):
            return linear()[0].squared_norms(layer, ("weight",), pairs)
        tokens = torch.cat([x.reshape(len(x), -1) for x, _ in _look_ups(pairs)], 1)
        looked = torch.cat([positions_of(masked(layer, x, g)) for x, g in _look_ups(pairs)], 1)
        inputs = torch.cat([positions_of(x) for x, _ in _products(pairs)], 1)
        outputs = torch.cat([positions_of(g) for _, g in _products(pairs)], 1)
        count, words = len(tokens), outputs.shape[2]
        scales = _balance(looked, inputs)
        step = max(1, MOST_ENTRIES // ((tokens.shape[1] + inputs.shape[1]) * words))
        norms = []
        for at in range(0, count, step):
            some = slice(at, at + step)
            units = F.one_hot(tokens[some], words).to(outputs.dtype) * scales[some]
            first = torch.cat([looked[some] / scales[some], inputs[some]], 1)
            norms.append(outer_norms(first, torch.cat([units, outputs[some]], 1), count))
        return torch.cat(norms)

    def add(
        self, layer: Layer, sums: Sums, pairs: Pairs, weights: Tensor, *, fresh: bool = False
    ) -> None:
        total = torch.zeros_like(sums["weight"], dtype=torch.float64)
        for inputs, outputs in _products(pairs):
            rows = scaled(positions_of(outputs).double(), weights).flatten(0, 1)
            total.addmm_(rows.T, positions_of(inputs).double().flatten(0, 1))
        for tokens, outputs in _look_ups(pairs):
            rows = scaled(masked(layer, tokens, outputs).double(), weights)
            total.index_add_(0, tokens.flatten(), rows.reshape(-1, rows.shape[-1]))
        sums["weight"] += total


def _balance(looked: Tensor, inputs: Tensor) -> Tensor:
    """Return a power of two per example, about the quotient of these lengths, (n, 1, 1)."""
    sizes = [one.flatten(1).double().norm(dim=1) for one in (looked, inputs)]
    quotient = (sizes[0] / sizes[1]).nan_to_num(1, 1, 1).clamp(2.0**-_FARTHEST, 2.0**_FARTHEST)
    powers: Tensor = quotient.log2().round().exp2().to(looked.dtype)
    return powers[:, None, None]


def _look_ups(pairs: Pairs) -> Pairs:
    return [pair for pair in pairs if not pair[0].is_floating_point()]


def _products(pairs: Pairs) -> Pairs:
    return [pair for pair in pairs if pair[0].is_floating_point()]
