r"""Features, the space of a codebook's distances: fixed ones, and access to trained ones.

========== ======================================================= ============= =============
kind       features                                                rows          reads of rows
========== ======================================================= ============= =============
scattering two layers of wavelets, normalised                      images        nothing
raw        numbers in [0, 1], one-hot codes                        all           nothing
quantile   numbers through their distribution, weighed codes       all           quantiles
random     random Fourier features of raw (arrays), quantile       all           as those
scales     quantiles, then numbers in a common unit                all           quantiles, means
signals    levels, bands, correlations of channels, as scales      signals       as scales
patches    pooled responses of local filters                       colour images patches
autoencoder, invariant  trained, with torch                        see modules   training
========== ======================================================= ============= =============

Missing numbers are put at 0.5 (the median, for quantiles) and marked in a column of their own;
missing and unseen categories share one column. Only columns whose schema allows them have these.

References
----------
.. [RR07] Rahimi, Recht. Random features for large-scale kernel machines. NeurIPS 2007.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tacit.data.schema import ArraySchema, Rows, Schema, TableSchema
from tacit.local.learned import scattering
from tacit.local.learned.provenance import as_written, takes_blocks
from tacit.privacy import errors, rowwise, silence

Floats = npt.NDArray[np.float32]
Parts = tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]

FIXED = ("scattering", "raw", "quantile", "random", "scales")
TRAINED = ("autoencoder", "invariant")
OF_PARTITIONS = ("signals", "patches")
"""What codebooks do not offer: these have no version whose bits depend on one row alone."""

_IN_MODULES = ("scales", *OF_PARTITIONS)

QUANTILES = 100
RANDOM = 512
LEAST_DEVIATION = 0.1
"""Columns of codes with a smaller standard deviation are not scaled to unit variance."""

FARTHEST = 256.0
"""The limit for features of unknown range: values beyond it are clipped where needed."""

_BLOCK = 1024


class Features(Protocol):
    """A fixed function from rows to vectors."""

    @property
    def kind(self) -> str:
        """One word, for `from_parts`."""
        ...

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        ...

    def transform(self, rows: Rows) -> Floats:
        """Compute one vector per row, (n, dimension). See also `alone`."""
        ...

    def parts(self) -> Parts:
        """Return JSON-ready parameters and weights, which rebuild it together with the schema."""
        ...


def fit(kind: str, schema: Schema, rows: Rows, seed: int = 0, *, device: str = "cpu") -> Features:
    """Fit features of this kind to rows without labels, if they learn at all.

    Trained features are trained on `device`, and compute there; see `on`.
    """
    errors.choice("features", "kind", kind, FIXED + OF_PARTITIONS + TRAINED)
    if kind == "scattering":
        return Scattering(schema)
    if kind == "raw":
        return Raw(schema)
    if kind == "quantile":
        return QuantileTransform.fit(schema, rows)
    if kind == "random":
        return RandomFourier.fit(schema, rows, seed)
    if kind in _IN_MODULES:
        own: Features = _class_of(kind).fit(schema, rows, seed)
        return own
    train = import_module(f"tacit.local.learned.{kind}").fit
    trained: Features = train(schema, rows, seed, device=device)
    return trained


def _class_of(kind: str) -> Any:
    """Return the class of features that have a module of their own."""
    return getattr(import_module(f"tacit.local.learned.{kind}"), kind.capitalize())


def on(features: Features, device: str) -> Features:
    """Return the same features on another device, if they use one."""
    move = getattr(features, "on", None)
    return features if move is None else move(device)


def from_parts(
    kind: str, schema: Schema, params: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> Features:
    """Rebuild what `parts` returned; refuse arrays of another shape."""
    errors.choice("features", "kind", kind, FIXED + OF_PARTITIONS + TRAINED)
    if kind == "scattering":
        return Scattering(schema)
    if kind == "raw":
        return Raw(schema)
    if kind == "quantile":
        return QuantileTransform.from_parts(schema, arrays)
    if kind == "random":
        return RandomFourier.from_parts(schema, arrays)
    if kind in _IN_MODULES:
        own: Features = _class_of(kind).from_parts(schema, arrays)
        return own
    build = import_module(f"tacit.local.learned.{kind}").from_parts
    trained: Features = build(schema, params, arrays)
    return trained


def alone(features: Features, rows: Rows) -> Floats:
    """Compute one vector per row, whose bits depend on that row alone, as guarantees need.

    In whole numbers where they are this library's and can (they have `alone`), else from one row
    at a time.
    """
    if hasattr(features, "alone") and takes_blocks(features):
        own: Any = features
        return np.asarray(own.alone(rows), np.float32)
    return _one_by_one(features, rows)


def provably_alone(features: Features) -> bool:
    """Check whether features have an `alone` that this library wrote: any other may mix rows."""
    return hasattr(features, "alone") and as_written(features)


def transform(features: Features, rows: Rows) -> Floats:
    """Compute one vector per row: in blocks if the features are this library's, else row by row."""
    return features.transform(rows) if takes_blocks(features) else _one_by_one(features, rows)


def _one_by_one(features: Features, rows: Rows) -> Floats:
    """Compute one vector per row, one row at a time, each in memory of its own.

    This is enough for features that a user wrote, if they are functions of a row at all. Where they
    raise, or return anything but one vector, the result is zero: an error would reveal the row.
    """
    vectors = np.zeros((len(rows), features.dimension), np.float32)
    with silence.watching() as watch:
        for index in range(len(rows)):
            with watch.silent():
                one = rows[np.array([index])]
                vector = np.asarray(features.transform(one), np.float32)
                if vector.shape == (1, vectors.shape[1]):
                    vectors[index] = vector[0]
    return vectors


def reach(features: Features) -> float:
    """Return the largest feature expected of any row, which decides how coarse a grid must be."""
    return float(getattr(features, "reach", FARTHEST)) if takes_blocks(features) else FARTHEST


def blocks(rows: Rows, size: int = _BLOCK) -> Iterator[Rows]:
    """Yield rows in blocks: features of all of them at once may not fit into memory."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@dataclass(frozen=True)
class Scattering:
    """Scattering of images; see `tacit.learned.scattering`."""

    schema: Schema
    kind: ClassVar[str] = "scattering"
    reach: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.schema, ArraySchema) or self.schema.image is None:
            remedy = "Say image=(height, width), or take features='quantile'."
            errors.refuse("features", "rows", "images for scattering", "no image size", remedy)

    @property
    def image(self) -> tuple[int, int]:
        """Height and width."""
        assert isinstance(self.schema, ArraySchema)
        assert self.schema.image is not None
        return self.schema.image

    @property
    def dimension(self) -> int:
        return scattering.dimension(self.image)

    def transform(self, rows: Rows) -> Floats:
        return scattering.transform(rows.numbers, self.image)

    def alone(self, rows: Rows) -> Floats:
        """Compute the features in integers."""
        return scattering.transform_alone(rows.numbers, self.image)

    def parts(self) -> Parts:
        return {}, {}


@dataclass(frozen=True)
class Raw:
    """Raw numbers, indicators of missing ones, and one-hot codes."""

    schema: Schema
    kind: ClassVar[str] = "raw"
    reach: ClassVar[float] = 1.0

    @property
    def dimension(self) -> int:
        marks = len(indicated(self.schema))
        return _count_numbers(self.schema) + marks + sum(slots(self.schema))

    def transform(self, rows: Rows) -> Floats:
        return _layout(self.schema, rows, np.nan_to_num(rows.numbers, nan=0.5))

    def alone(self, rows: Rows) -> Floats:
        """Compute the same: every number is computed by itself."""
        return self.transform(rows)

    def parts(self) -> Parts:
        return {}, {}


@dataclass(frozen=True, eq=False)
class QuantileTransform:
    r"""Numbers mapped through their in-house distribution, with equal weight for all columns.

    .. math:: u(x) = \frac{\#\{q_i < x\} + \#\{q_i \le x\}}{2 \cdot 101}, \qquad
              \sqrt{12}\,\bigl(u(x) - \tfrac12\bigr), \qquad
              \frac{\mathbb 1_c(x) - p_c}{\sqrt{\sum_c p_c (1 - p_c)}}

    A continuous column then has variance 1 (it is uniform up to ties), and so have the indicators
    of a categorical column together.

    Parameters
    ----------
    schema : Schema
        Of the rows.
    quantiles : array, (p, 101)
        q, for each number.
    offset, scale : array, (D,)
        Subtracted from, then multiplied with, the layout of `Raw`.
    """

    schema: Schema
    quantiles: Floats
    offset: Floats
    scale: Floats
    kind: ClassVar[str] = "quantile"
    reach: ClassVar[float] = 16.0  # 1 / LEAST_DEVIATION, and √12 / 2 for numbers

    @classmethod
    def fit(cls, schema: Schema, rows: Rows) -> QuantileTransform:
        """Compute quantiles, and frequencies of categories and of missing numbers."""
        levels = np.linspace(0, 1, QUANTILES + 1)
        quantiles = np.empty((rows.numbers.shape[1], levels.size), np.float32)
        for index, column in enumerate(rows.numbers.T):
            present = column[~np.isnan(column)]
            quantiles[index] = np.quantile(present, levels) if present.size else levels
        return cls.of(schema, quantiles, indicator_counts(schema, rows) / len(rows))

    @classmethod
    def of(
        cls, schema: Schema, quantiles: Floats, share: npt.NDArray[np.float64]
    ) -> QuantileTransform:
        """Build from quantiles of numbers, and the frequency of each indicator."""
        numbers = quantiles.shape[0]
        offset = np.concatenate([np.full(numbers, 0.5), share])
        scale = np.concatenate([np.full(numbers, np.sqrt(12.0)), _weights(schema, share)])
        return cls(schema, quantiles, offset.astype(np.float32), scale.astype(np.float32))

    @classmethod
    def from_parts(
        cls, schema: Schema, arrays: Mapping[str, npt.NDArray[Any]]
    ) -> QuantileTransform:
        """Rebuild the features; refuse weights that do not fit the schema."""
        width = Raw(schema).dimension
        return cls(
            schema,
            _array(arrays, "quantiles", (_count_numbers(schema), QUANTILES + 1)),
            _array(arrays, "offset", (width,)),
            _array(arrays, "scale", (width,)),
        )

    @property
    def dimension(self) -> int:
        return int(self.offset.size)

    def transform(self, rows: Rows) -> Floats:
        out = np.empty((len(rows), self.dimension), np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            layout = _layout(self.schema, block, self.levels(block.numbers))
            out[start : start + _BLOCK] = (layout - self.offset) * self.scale
        return out

    def alone(self, rows: Rows) -> Floats:
        """Compute the same: every number is computed by itself."""
        return self.transform(rows)

    def levels(self, numbers: Floats) -> Floats:
        """Return u(x) of each number, and the middle for missing ones."""
        levels = np.empty_like(numbers)
        for index, (column, points) in enumerate(zip(numbers.T, self.quantiles, strict=True)):
            below = np.searchsorted(points, column, "left")
            within = np.searchsorted(points, column, "right")
            levels[:, index] = (below + within) / (2 * points.size)
        levels[np.isnan(numbers)] = 0.5
        return levels

    def parts(self) -> Parts:
        arrays = {"quantiles": self.quantiles, "offset": self.offset, "scale": self.scale}
        return {}, dict(arrays)


@dataclass(frozen=True, eq=False)
class RandomFourier:
    r"""Random Fourier features of a Gaussian kernel [RR07]_, drawn from a public seed.

    .. math:: \sqrt{2 / D} \cos(W x + b), \qquad W_{ij} \sim N(0, 1 / \sigma^2), \quad
              b_i \sim U(0, 2\pi)

    σ² is the variance that all columns would have together if they were uniform: the number of
    columns for quantiles, a twelfth of it for numbers in [0, 1]. No data is read for it.
    """

    base: Raw | QuantileTransform
    weights: Floats
    phases: Floats
    kind: ClassVar[str] = "random"
    reach: ClassVar[float] = 1.0

    @classmethod
    def fit(cls, schema: Schema, rows: Rows, seed: int) -> RandomFourier:
        """Draw the weights; quantiles of tables are read off the rows."""
        table = isinstance(schema, TableSchema)
        return cls.draw(schema, QuantileTransform.fit(schema, rows) if table else Raw(schema), seed)

    @classmethod
    def draw(cls, schema: Schema, base: Raw | QuantileTransform, seed: int) -> RandomFourier:
        """Draw the weights of random features of the given features."""
        variance = len(schema.names) / (1 if isinstance(base, QuantileTransform) else 12)
        rng = np.random.default_rng(seed)
        weights = rng.normal(scale=variance**-0.5, size=(base.dimension, RANDOM))
        phases = rng.uniform(0, 2 * np.pi, RANDOM)
        return cls(base, weights.astype(np.float32), phases.astype(np.float32))

    @classmethod
    def from_parts(cls, schema: Schema, arrays: Mapping[str, npt.NDArray[Any]]) -> RandomFourier:
        """Rebuild the features; refuse weights that do not fit the schema."""
        table = isinstance(schema, TableSchema)
        base = QuantileTransform.from_parts(schema, arrays) if table else Raw(schema)
        weights = _array(arrays, "weights", (base.dimension, RANDOM))
        return cls(base, weights, _array(arrays, "phases", (RANDOM,)))

    @property
    def dimension(self) -> int:
        return int(self.phases.size)

    def transform(self, rows: Rows) -> Floats:
        out = np.empty((len(rows), self.dimension), np.float32)
        for start in range(0, len(rows), _BLOCK):
            angles = self.base.transform(rows[start : start + _BLOCK]) @ self.weights
            angles += self.phases
            out[start : start + _BLOCK] = np.cos(angles)
        out *= np.float32(np.sqrt(2 / self.dimension))
        return out

    def alone(self, rows: Rows) -> Floats:
        """Compute angles in integers, and cosines from a table: equal to about 1e-5."""
        turns = rowwise.Product.of(self.weights / (2 * np.pi), self.base.reach)
        out = np.empty((len(rows), self.dimension), np.float32)
        for start in range(0, len(rows), _BLOCK):
            angles = turns(self.base.transform(rows[start : start + _BLOCK]))
            angles += self.phases / (2 * np.pi)
            out[start : start + _BLOCK] = rowwise.cosine(angles) * math.sqrt(2 / self.dimension)
        return out

    def parts(self) -> Parts:
        _, arrays = self.base.parts()
        return {}, {**arrays, "weights": self.weights, "phases": self.phases}


# --- the layout of a row: numbers, marks of missing numbers, indicators of codes -------------


def _count_numbers(schema: Schema) -> int:
    return schema.width if isinstance(schema, ArraySchema) else len(schema.continuous)


def indicated(schema: Schema) -> list[int]:
    """Return the indices of numbers that may be missing."""
    if isinstance(schema, ArraySchema):
        return []
    return [i for i, column in enumerate(schema.continuous) if column.missing == "indicate"]


def slots(schema: Schema) -> list[int]:
    """Return the number of indicators of each column of codes; unseen values have the last."""
    if isinstance(schema, ArraySchema):
        return []
    return [len(column.categories) + (column.unseen == "other") for column in schema.categorical]


def _layout(schema: Schema, rows: Rows, numbers: Floats) -> Floats:
    parts = [numbers, np.isnan(rows.numbers[:, indicated(schema)]).astype(np.float32)]
    for codes, size in zip(rows.codes.T, slots(schema), strict=True):
        # −1 counts from the end: the last slot is for missing or unseen values.
        parts.append(np.eye(size, dtype=np.float32)[codes])
    return np.concatenate(parts, axis=1)


def indicator_counts(schema: Schema, rows: Rows) -> npt.NDArray[np.int64]:
    """Count the rows in which each indicator is 1: in each row, at most one per column."""
    counts = [np.isnan(rows.numbers[:, indicated(schema)]).sum(axis=0)]
    for codes, size in zip(rows.codes.T, slots(schema), strict=True):
        counts.append(np.bincount(codes % size, minlength=size))
    return np.concatenate(counts)


def _weights(schema: Schema, share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    variance = share * (1 - share)
    starts = len(indicated(schema)) + np.cumsum([0, *slots(schema)])
    pieces = np.split(variance, starts)
    totals = [pieces[0], *(np.full(piece.size, piece.sum()) for piece in pieces[1:])]
    return np.asarray(1 / np.maximum(np.sqrt(np.concatenate(totals)), LEAST_DEVIATION))


def _array(arrays: Mapping[str, npt.NDArray[Any]], name: str, shape: tuple[int, ...]) -> Floats:
    array = arrays.get(name)
    if array is None or array.shape != shape or not np.isfinite(array).all():
        got = None if array is None else array.shape
        errors.refuse("features.from_parts", name, f"finite, of shape {shape}", got)
    return np.asarray(array, np.float32)
