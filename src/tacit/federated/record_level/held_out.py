r"""Predicted classes of held-out rows, in a layout that does not depend on the rows' values.

Theorem. With one row blanked, what is found for the others is the same, bit by bit. So one record
changes one count of a confusion matrix by one at most.

Proof. Row i is in slot i mod B of block ⌊i/B⌋: by its place alone, whatever the others hold. Blocks
have B slots, the last one too; a slot without a row, or whose row is blank, holds zeros. What runs
on rows is not the module but the list of torch's operators that it leaves where it is traced on one
row, without values (`tracing`): it writes nothing, draws nothing, and Python is not there any more.
`torch.vmap` runs this list on all slots, and it has only operators that torch's rules are known to
keep apart (`mapped`). Whether blank rows raise at these weights is tried first: if they do, no row
counts, whoever is there. If not, a row that raises is made blank, so the others meet what they
would meet without it. What is left is arithmetic: kernels get tensors of the same shapes and
places, and are taken to let no slot's values into another's. Under additional or missing rows this
fails: other shapes may be rounded otherwise.

Notes
-----
A module that cannot be traced or mapped (control flow that goes by values, buffers that a pass
writes in place, draws, operators that are not known) is refused on made-up rows. On a CUDA device
an index that is out of range ends the process: only on the processor is such a row made blank.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.central.training.alone import quiet
from tacit.central.training.mapped import refuse_crossing
from tacit.central.training.operators import is_random
from tacit.central.training.precision import whole_products
from tacit.central.training.tracing import Unfit, outputs_graph, state_of
from tacit.federated.payload import Vector
from tacit.federated.torch_model import TorchModel
from tacit.privacy import errors

_BLOCK = 1024

Rows = npt.NDArray[Any]


class Judged(NamedTuple):
    """The predicted class of each row, and whether it counts: blank rows do not."""

    classes: npt.NDArray[np.int64]
    there: npt.NDArray[np.bool_]


def admit(where: str, model: TorchModel, rows: Rows) -> None:
    """Refuse a module that cannot be mapped over rows; only their shape and type are read."""
    made_up = np.random.default_rng(0).integers(2, size=(2, *rows.shape[1:])).astype(rows.dtype)
    try:
        _Mapped(model, model.start(), rows).classes(made_up)
    except Exception as error:  # whatever the module raises
        remedy = "Rows of a confusion matrix must not meet: leave evaluations out."
        reason = str(error) if isinstance(error, Unfit) else type(error).__name__
        errors.refuse(where, "module", "one that can be mapped over rows", reason, remedy)


def judge(model: TorchModel, weights: Vector, rows: Rows, there: npt.NDArray[np.bool_]) -> Judged:
    """Predict the classes of rows, under these weights; no row can make it raise.

    Parameters
    ----------
    model : TorchModel
        The model, which is not changed.
    weights : array
        Any weights, which may come from a hostile server.
    rows, there : array
        Rows in their places, and which of them are not blank.
    """
    size, counted = min(_BLOCK, max(len(rows), 1)), there.copy()
    predicted, mapped = np.zeros(len(rows), dtype=np.int64), _Mapped(model, weights, rows)
    blank = np.zeros((size, *rows.shape[1:]), dtype=rows.dtype)
    if _raises(mapped, blank):
        return Judged(predicted, np.zeros_like(counted))
    for start in range(0, len(rows), size):
        here = slice(start, start + size)
        block = blank.copy()
        block[: len(rows[here])][counted[here]] = rows[here][counted[here]]
        classes, raising = _guarded(mapped, block)
        predicted[here] = classes[: len(rows[here])]
        counted[start + np.array(raising, dtype=np.int64)] = False
    return Judged(predicted, counted)


class _Mapped:
    """The module at some weights, as a list of operators for one row."""

    def __init__(self, model: TorchModel, weights: Vector, like: Rows) -> None:
        own = copy.deepcopy(model)
        own.load(weights)
        module = own.module.eval()
        row = own.tensor(np.zeros((1, *like.shape[1:]), dtype=like.dtype))
        self._tensor = own.tensor
        self._state = [one.detach() for one in state_of(module).values()]
        self._made = outputs_graph(module, row)
        inputs = [node for node in self._made.graph.nodes if node.op == "placeholder"]
        refuse_crossing(self._made.graph, inputs[len(self._state) :])
        if any(map(is_random, self._made.graph.nodes)):
            raise Unfit("its outputs are drawn at random")

    def classes(self, block: Rows) -> npt.NDArray[np.int64]:
        def of_one(row: Tensor) -> Tensor:
            outputs: Tensor = self._made(*self._state, row[None])
            return outputs[0]

        with torch.no_grad(), whole_products(), quiet():
            outputs = torch.vmap(of_one)(self._tensor(block))
            return np.asarray(outputs.argmax(dim=1).cpu().numpy())


def _guarded(mapped: _Mapped, block: Rows) -> tuple[npt.NDArray[np.int64], Sequence[int]]:
    """Predict the classes of a block; slots on which the module raises are made blank."""
    try:
        return mapped.classes(block), ()
    except Exception:  # whatever it is, nobody must learn of it
        raising = _raising(mapped, block, list(range(len(block))))
        block[raising] = 0
        return mapped.classes(block), raising


def _raising(mapped: _Mapped, block: Rows, slots: list[int]) -> list[int]:
    """Find the slots on which the module raises, by bisection, with blanks beside them."""
    alone = np.zeros_like(block)
    alone[slots] = block[slots]
    if not _raises(mapped, alone):
        return []
    if len(slots) == 1:
        return slots
    half = len(slots) // 2
    parts = (slots[:half], slots[half:])
    return [slot for part in parts for slot in _raising(mapped, block, part)]


def _raises(mapped: _Mapped, block: Rows) -> bool:
    try:
        mapped.classes(block)
    except Exception:
        return True
    return False
