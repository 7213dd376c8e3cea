"""Rows as inputs of an encoder, from tables, arrays or images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.data import schema_inference
from tacit.data.columns import columns_of
from tacit.data.schema import ArraySchema, Schema
from tacit.privacy import errors

if TYPE_CHECKING:
    from torch import Tensor

Floats = npt.NDArray[np.float32]

_FLAT = 1e-4
"""A column with a smaller standard deviation, relative to its range, is not scaled."""


@dataclass(frozen=True, eq=False)
class RowReader:
    """A reader of rows: bounds and categories of the in-house rows, then standardization.

    Values of later rows beyond the bounds are clipped; an unknown category counts as "other".

    Parameters
    ----------
    schema : Schema
        Schema of the rows. An array of numbers is read as a table, whose columns may have different
        bounds.
    center, spread : arrays (p,)
        Inputs are (x − center) / spread; 0 and 1 for images.
    """

    schema: Schema
    center: Floats
    spread: Floats

    @classmethod
    def of(cls, raw: Any, where: str) -> RowReader:
        """Build a reader from in-house rows, which are not protected here."""
        named = _named(raw)
        # Arrays of pictures are images here, whatever their numbers: there are no signals.
        image = named.shape[1:] if getattr(named, "ndim", 0) > 2 else None
        inferred = schema_inference.infer(named, image, where)
        width = cls(inferred, np.zeros(0, np.float32), np.ones(0, np.float32)).width
        plain = cls(inferred, np.zeros(width, np.float32), np.ones(width, np.float32))
        if isinstance(inferred, ArraySchema):
            return plain
        inputs = plain.read(raw, where).numpy()
        spread = inputs.std(axis=0)
        return cls(inferred, inputs.mean(axis=0), np.where(spread > _FLAT, spread, 1).astype("f4"))

    @property
    def width(self) -> int:
        """Number of inputs of the encoder."""
        return int(_front_end(self.schema).dimension)

    def read(self, raw: Any, where: str) -> Tensor:
        """Read rows as inputs (n, width); refuse rows that do not fit."""
        array = isinstance(self.schema, ArraySchema)
        rows = self.schema.rows(raw if array else _named(raw), where)
        inputs: Tensor = _front_end(self.schema)(rows)
        return (inputs - inputs.new_tensor(self.center)) / inputs.new_tensor(self.spread)


def _named(raw: Any) -> Any:
    """Return an array (n, p) of numbers as a table; images and tables as they are."""
    if columns_of(raw) is not None:
        return raw
    array = np.asarray(raw)
    if array.ndim != 2 or array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "iufb":
        raise errors.InvalidData("rows: an array must hold numbers. Give a table for strings.")
    return {f"column {index}": column for index, column in enumerate(array.T)}


def _front_end(schema: Schema) -> Any:
    from tacit.local.learned.encoders import front_end

    return front_end(schema)
