"""Rows as the inputs of an encoder: any table, array or images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.data import schema
from tacit.data.columns import columns_of
from tacit.data.schema import ArraySchema, Schema
from tacit.privacy import errors

if TYPE_CHECKING:
    from torch import Tensor

Floats = npt.NDArray[np.float32]

_FLAT = 1e-4
"""A column that varies less, on the scale of its range, is left as it is."""


@dataclass(frozen=True, eq=False)
class RowReader:
    """How rows are read: bounds and categories as found in-house, then centre and spread.

    What lies beyond the bounds later is clipped, an unknown category counts as "other".

    Parameters
    ----------
    schema : Schema
        Of the rows. An array of numbers is a table with a column each: they need not be alike.
    center, spread : arrays (p,)
        Inputs are (x − center) / spread; 0 and 1 for images.
    """

    schema: Schema
    center: Floats
    spread: Floats

    @classmethod
    def of(cls, raw: Any, where: str) -> RowReader:
        """Read off in-house rows, which need no protection here."""
        found = schema.infer(_named(raw), where=where)
        width = cls(found, np.zeros(0, np.float32), np.ones(0, np.float32)).width
        plain = cls(found, np.zeros(width, np.float32), np.ones(width, np.float32))
        if isinstance(found, ArraySchema):
            return plain
        inputs = plain.read(raw, where).numpy()
        spread = inputs.std(axis=0)
        return cls(found, inputs.mean(axis=0), np.where(spread > _FLAT, spread, 1).astype("f4"))

    @property
    def width(self) -> int:
        """Inputs of the encoder."""
        return int(_front_end(self.schema).dimension)

    def read(self, raw: Any, where: str) -> Tensor:
        """Inputs (n, width); what does not fit is refused in one line."""
        array = isinstance(self.schema, ArraySchema)
        rows = self.schema.rows(raw if array else _named(raw), where)
        inputs: Tensor = _front_end(self.schema)(rows)
        return (inputs - inputs.new_tensor(self.center)) / inputs.new_tensor(self.spread)


def _named(raw: Any) -> Any:
    """An array (n, p) of numbers of any scale as a table; images and tables as they are."""
    if columns_of(raw) is not None:
        return raw
    array = np.asarray(raw)
    if array.ndim != 2 or array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "iufb":
        raise errors.InvalidData("rows: an array must hold numbers. Give a table for words.")
    return {f"column {index}": column for index, column in enumerate(array.T)}


def _front_end(given: Schema) -> Any:
    from tacit.local.learned.encoders import front_end

    return front_end(given)
