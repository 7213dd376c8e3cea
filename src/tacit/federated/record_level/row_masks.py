"""The rows of a silo: which are held out, which are finite, and which have a valid label.

Each answer about a row depends on its position or on its own values alone.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit.federated.model import Data
from tacit.federated.torch_model import TorchModel
from tacit.privacy import errors

Mask = npt.NDArray[np.bool_]


def held_out(count: int, every: int) -> Mask:
    """Mark every `every`-th of `count` rows, by position alone; none for 0.

    Examples
    --------
    >>> held_out(5, 2).tolist()
    [False, True, False, True, False]
    """
    held = np.zeros(count, dtype=np.bool_)
    if every:
        held[every - 1 :: every] = True
    return held


def finite(rows: npt.NDArray[Any]) -> Mask:
    """Mark the rows without NaN and infinity."""
    return np.asarray(np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))


def labelled(labels: npt.NDArray[Any], classes: int | None) -> Mask:
    """Mark the rows whose label is one of the classes; all rows if there are no classes."""
    if classes is None:
        return np.ones(len(labels), dtype=np.bool_)
    return np.asarray((labels >= 0) & (labels < classes))


def classes(where: str, model: TorchModel, data: Data) -> int | None:
    """Return the number of classes that the module distinguishes; None if labels are not classes.

    Only shapes and types of the data are read.
    """
    blank = model.tensor(np.zeros_like(data.rows[:1]))
    try:
        with torch.no_grad():
            outputs = copy.deepcopy(model).module(blank)
    except (RuntimeError, ValueError, IndexError):
        raise errors.InvalidData(
            f"{where}: the model must take rows of shape {tuple(data.rows.shape[1:])}, as these "
            "have. Its first layer does not."
        ) from None
    if outputs.ndim != 2 or data.labels.ndim != 1 or data.labels.dtype.kind not in "biu":
        return None
    return int(outputs.shape[1])
