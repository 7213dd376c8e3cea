r"""Recurrent layers as the operators that they consist of: linear layers called at every time.

Torch has one operator for a whole `LSTM`, `GRU` or `RNN`, about which nothing can be proved node by
node. Traces take these definitions instead, with the input products of all times as one call and a
hidden product for every time, so that the layer is book-kept like any linear layer that is called
several times. `probing` compares the result with the module itself.

.. math:: h_t = \tanh(W_i x_t + b_i + W_h h_{t-1} + b_h)

for `RNN`; `GRU` and `LSTM` have gates of the same form, in the order of torch's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, ...]
"""The hidden state, and for LSTM the cell."""

Cell = Callable[[Tensor, Tensor, State], State]
"""Computes a state from input products, hidden products and the state before."""


def _lstm(inputs: Tensor, hidden: Tensor, state: State) -> State:
    into, forget, value, out = (inputs + hidden).chunk(4, -1)
    cell = forget.sigmoid() * state[1] + into.sigmoid() * value.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _gru(inputs: Tensor, hidden: Tensor, state: State) -> State:
    reset_in, update_in, new_in = inputs.chunk(3, -1)
    reset_hidden, update_hidden, new_hidden = hidden.chunk(3, -1)
    reset, update = (reset_in + reset_hidden).sigmoid(), (update_in + update_hidden).sigmoid()
    new = (new_in + reset * new_hidden).tanh()
    return (new + update * (state[0] - new),)


def _tanh(inputs: Tensor, hidden: Tensor, state: State) -> State:
    return ((inputs + hidden).tanh(),)


def _relu(inputs: Tensor, hidden: Tensor, state: State) -> State:
    return ((inputs + hidden).relu(),)


def _once(cell: Cell) -> Callable[..., Any]:
    """Make the definition of an operator of one cell, such as `gru_cell`."""

    def run(
        x: Tensor,
        state: Tensor | Sequence[Tensor],
        weight: Tensor,
        recurrent: Tensor,
        bias: Tensor | None = None,
        recurrent_bias: Tensor | None = None,
    ) -> Any:
        given = (state,) if isinstance(state, Tensor) else tuple(state)
        before = tuple(_for_every_row(one, x) for one in given)
        made = cell(
            F.linear(x, weight, bias), F.linear(before[0], recurrent, recurrent_bias), before
        )
        return made if len(made) > 1 else made[0]

    return run


def _layers(cell: Cell) -> Callable[..., Any]:
    """Make the definition of an operator of layers over all times, such as `gru.input`."""

    def run(
        x: Tensor,
        start: Tensor | Sequence[Tensor],
        parameters: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        x = x.transpose(0, 1) if batch_first else x
        starts = [(one,) for one in start] if isinstance(start, Tensor) else list(zip(*start))  # noqa: B905
        directions = 2 if bidirectional else 1
        each = len(parameters) // (num_layers * directions)
        ends: list[State] = []
        for layer in range(num_layers):
            outputs = []
            for way in range(directions):
                place = layer * directions + way
                own = parameters[place * each : (place + 1) * each]
                made, end = _over_times(cell, x, starts[place], own, has_biases, bool(way))
                outputs.append(made)
                ends.append(end)
            x = torch.cat(outputs, -1) if bidirectional else outputs[0]
            if dropout and train and layer < num_layers - 1:
                x = F.dropout(x, dropout, training=True)
        x = x.transpose(0, 1) if batch_first else x
        return (x, *(torch.stack(parts) for parts in zip(*ends, strict=True)))

    return run


def _over_times(
    cell: Cell,
    x: Tensor,
    start: State,
    parameters: Sequence[Tensor],
    has_biases: bool,
    backwards: bool,
) -> tuple[Tensor, State]:
    """Run one layer in one direction over (times, rows, features)."""
    weight, recurrent = parameters[:2]
    bias, recurrent_bias = parameters[2:4] if has_biases else (None, None)
    after = parameters[-1] if len(parameters) in (3, 5) else None  # a projection of the state
    products = F.linear(x, weight, bias).unbind(0)
    state = tuple(_for_every_row(one, x[0]) for one in start)
    made: list[Tensor] = []
    for one in reversed(products) if backwards else products:
        state = cell(one, F.linear(state[0], recurrent, recurrent_bias), state)
        if after is not None:
            state = (F.linear(state[0], after), *state[1:])
        made.append(state[0])
    return torch.stack(made[::-1] if backwards else made), state


def _for_every_row(state: Tensor, x: Tensor) -> Tensor:
    """Return the state before the first time, unchanged, as a value that every row has.

    It is usually zeros, which are public. A product of public values alone would be another use of
    the recurrent weights, with gradients that are written out.
    """
    return torch.where(x[..., :1] == x[..., :1], state, state)


_CELLS = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _tanh, "rnn_relu": _relu}

DEFINITIONS: dict[torch._ops.OpOverload[..., Any], Callable[..., Any]] = {
    getattr(getattr(torch.ops.aten, name + suffix), overload): make(cell)
    for name, cell in _CELLS.items()
    for suffix, overload, make in (("", "input", _layers), ("_cell", "default", _once))
}
"""Definitions of torch's recurrent operators on padded rows, for `make_fx`."""
