r"""Features of tables and signals on two scales: quantiles of each column, and a common unit.

Quantiles give every column the same weight, which suits columns in different units. A common unit
keeps the columns' relative sizes, which suits measurements of one kind: sensors, components,
readings over time. Which is better cannot be known without labels, so both are kept, one after the
other, and partitions and models use either. Tables with categories have quantiles alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit.data.schema import ArraySchema, Rows, Schema
from tacit.local.learned.features import FARTHEST, Floats, Parts, QuantileTransform

MOST_UNITS = 64.0
"""The farthest that a value in the common unit may lie from its mean."""


@dataclass(frozen=True, eq=False)
class Scales:
    r"""Quantile features, then numbers in a common unit.

    .. math:: \frac{x_j - \bar x_j}{s}, \qquad s^2 = \frac1p \sum_j \operatorname{Var}(x_j)

    Parameters
    ----------
    quantile : QuantileTransform
        The first block.
    mean, unit : array, (p,)
        Subtracted from numbers in [0, 1], then multiplied with them; empty where there is no
        second block.
    """

    quantile: QuantileTransform
    mean: Floats
    unit: Floats
    kind: ClassVar[str] = "scales"
    reach: ClassVar[float] = FARTHEST

    @classmethod
    def fit(
        cls, schema: Schema, rows: Rows, seed: int = 0, quantile: QuantileTransform | None = None
    ) -> Scales:
        """Compute quantiles (unless they are given), means and the common unit; draw nothing."""
        quantile = quantile or QuantileTransform.fit(schema, rows)
        if rows.codes.shape[1] or rows.numbers.shape[1] < 2:
            return cls(quantile, np.empty(0, np.float32), np.empty(0, np.float32))
        numbers = _without_missing(rows.numbers).astype(np.float64)
        width = _widths(schema)
        spread = float(np.sqrt(np.mean((numbers.std(axis=0) * width) ** 2)))
        unit = width / max(spread, 1e-12)
        return cls(quantile, numbers.mean(axis=0).astype(np.float32), unit.astype(np.float32))

    @classmethod
    def from_parts(cls, schema: Schema, arrays: Mapping[str, npt.NDArray[Any]]) -> Scales:
        """Rebuild the features; refuse weights that do not fit the schema."""
        quantile = QuantileTransform.from_parts(schema, arrays)
        mean, unit = (np.asarray(arrays[name], np.float32) for name in ("mean", "unit"))
        numbers = len(quantile.quantiles)
        fits = mean.shape == unit.shape and mean.shape in ((0,), (numbers,))
        if not fits or not np.isfinite([*mean, *unit]).all():
            raise ValueError("scales: weights must be finite and of the schema's width")
        return cls(quantile, mean, unit)

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many features each block has."""
        first = self.quantile.dimension
        return (first, self.mean.size) if self.mean.size else (first,)

    @property
    def dimension(self) -> int:
        return sum(self.blocks)

    def transform(self, rows: Rows) -> Floats:
        first = self.quantile.transform(rows)
        if not self.mean.size:
            return first
        second = (_without_missing(rows.numbers) - self.mean) * self.unit
        return np.hstack([first, second.clip(-MOST_UNITS, MOST_UNITS)]).astype(np.float32)

    def alone(self, rows: Rows) -> Floats:
        """Compute the same: every number is computed by itself."""
        return self.transform(rows)

    def parts(self) -> Parts:
        parameters, arrays = self.quantile.parts()
        return parameters, {**arrays, "mean": self.mean, "unit": self.unit}


def _without_missing(numbers: Floats) -> Floats:
    return np.nan_to_num(numbers, nan=0.5)


def _widths(schema: Schema) -> npt.NDArray[np.float64]:
    """Return upper − lower for each number: what turns [0, 1] back into the table's units."""
    if isinstance(schema, ArraySchema):
        return np.full(schema.width, schema.upper - schema.lower)
    return np.array([column.upper - column.lower for column in schema.continuous])
