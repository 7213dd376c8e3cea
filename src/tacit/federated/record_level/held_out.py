r"""Predicted classes of held-out rows, in a layout that does not depend on the rows' values.

Theorem. With one row blanked, what is found for the others is the same, bit by bit. So one record
changes one count of a confusion matrix by one at most.

Proof. Row i is in slot i mod B of block ⌊i/B⌋: by its place alone, whatever the others hold. Blocks
have B slots, the last one too; a slot without a row, or whose row is blank, holds zeros. The module
is mapped over slots (`torch.vmap`), so its code meets one row and has no axis to mix them on, and
every block has a copy of the module as it was built: nothing is handed on. A row on which the
module raises is made blank, so the others meet what they would meet without it. What is left is
arithmetic: kernels get tensors of the same shapes and places, and are taken to let no slot's values
into another's. Under additional or missing rows this fails: other shapes may be rounded otherwise.

Notes
-----
A module that cannot be mapped (control flow that goes by values, buffers that a pass writes in
place) is refused on made-up rows. On a CUDA device an index that is out of range ends the process:
only on the processor is such a row made blank.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from tacit.central.training.gradients import whole_products
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
        _classes(model, model.start(), made_up)
    except Exception as error:  # whatever the module raises
        remedy = "Rows of a confusion matrix must not meet: leave evaluations out."
        found = f"{type(error).__name__} of torch.vmap"
        errors.refuse(where, "module", "one that can be mapped over rows", found, remedy)


def judge(model: TorchModel, weights: Vector, rows: Rows, there: npt.NDArray[np.bool_]) -> Judged:
    """Predict the classes of rows; raises only if it would also raise on blank rows.

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
    found = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), size):
        here = slice(start, start + size)
        block = np.zeros((size, *rows.shape[1:]), dtype=rows.dtype)
        block[: len(rows[here])][counted[here]] = rows[here][counted[here]]
        classes, raising = _guarded(model, weights, block)
        found[here] = classes[: len(rows[here])]
        counted[start + np.array(raising, dtype=np.int64)] = False
    return Judged(found, counted)


def _guarded(
    model: TorchModel, weights: Vector, block: Rows
) -> tuple[npt.NDArray[np.int64], Sequence[int]]:
    """Predict the classes of a block; slots on which the module raises are made blank."""
    try:
        return _classes(model, weights, block), ()
    except Exception:
        raising = _raising(model, weights, block, list(range(len(block))))
        block[raising] = 0
        return _classes(model, weights, block), raising


def _raising(model: TorchModel, weights: Vector, block: Rows, slots: list[int]) -> list[int]:
    """Find the slots on which the module raises, by bisection."""
    alone = np.zeros_like(block)
    alone[slots] = block[slots]
    if not alone.any():
        return []  # blank rows: not this block's doing
    try:
        _classes(model, weights, alone)
    except Exception:
        if len(slots) == 1:
            return slots
        half = len(slots) // 2
        parts = (slots[:half], slots[half:])
        return [slot for part in parts for slot in _raising(model, weights, block, part)]
    return []


def _classes(model: TorchModel, weights: Vector, block: Rows) -> npt.NDArray[np.int64]:
    own = copy.deepcopy(model)
    own.load(weights)
    module = own.module.eval()
    with torch.no_grad(), whole_products():
        outputs = torch.vmap(lambda row: module(row[None])[0])(own.tensor(block))
        return np.asarray(outputs.argmax(dim=1).cpu().numpy())
