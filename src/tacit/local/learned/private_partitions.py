r"""Rows like the in-house rows, drawn from noisy statistics of them.

With a central budget, partitions and models are not computed from the in-house rows but from
*synthetic rows*. A model of the rows is released once, with Gaussian noise on integers, as one
composed event. Synthetic rows, the cells of all partitions, the cells of later rounds, and the
classifier that is fitted to the reports on synthetic rows are then post-processing: they cost the
in-house rows nothing more, and may be handed out.

1. Features: numbers by their private quantiles and categories by indicators; if there are so many
   columns that noisy quantiles would be of no use, numbers within their declared bounds.
2. Second moments of the features: the principal components above the noise, with eigenvalues
   corrected for it, and the variance that every column has besides.
3. Centres of noisy k-means in these components, and how many rows are nearest to each. With the
   covariance within clusters, which is the whole one less that of the centres, this is a mixture of
   normal distributions.

A synthetic row is drawn from the mixture. Its numbers are ranked among all synthetic rows and
mapped through the private quantiles, so that every column has its released distribution; its
categories are drawn with the probabilities that the indicators say.

Notes
-----
Privacy: as in `tacit.learned.private_quantizer`. Whether quantiles are used, and the number of
clusters, follow from the number of rows, which is public, and from the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central import statistics
from tacit.data.schema import Rows, Schema, TableSchema
from tacit.local.inhouse import Target
from tacit.local.learned import features as features_of
from tacit.local.learned import private_quantizer as private
from tacit.local.learned.features import QuantileTransform, Raw
from tacit.local.learned.private_features import SHARE, Learning
from tacit.local.learned.private_quantizer import Axes, Budget
from tacit.privacy import errors, events
from tacit.privacy.certificate import Certificate
from tacit.privacy.randomness import Randomness
from tacit.privacy.rowwise import Product

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]

SHARES = {
    "norms": 0.02,
    "mean": 0.10,
    "distances": 0.02,
    "covariance": 0.36,
    "start": 0.08,
    "steps": 0.37,
    "counts": 0.05,
}
"""The share of each query, of what features leave; without a mean, the covariance has its share."""

SYNTHETIC = 8000
"""Synthetic rows: as many as cells and models need."""

MOST_COMPONENTS, FEWEST_COMPONENTS = 32, 4
ROWS_PER_CLUSTER, FEWEST_CLUSTERS, MOST_CLUSTERS = 25, 8, 128
_QUANTILE_NOISE, _USEFUL = 3.3, 0.1  # σ of a cumulative count at z = 1, and the most of n it may be
_CELLS, _ATOM, _BELOW = 1024, 3, 1e-6
_LEAST_VARIANCE, _PLAUSIBLE = 0.02, 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class RowModel:
    """A released model of the in-house rows: a mixture of normals of their features.

    Parameters
    ----------
    features : QuantileTransform or Raw
        How rows are seen.
    inverse : array, (p, 101)
        Private quantiles of each number, from 0 to 1; empty rows with raw features.
    mean : array, (D,)
        The middle of the features.
    directions : array, (D, k)
        Principal components.
    centres : array, (M, k)
        Of clusters, in components.
    shares : array, (M,)
        Shares of the clusters.
    within : array, (k, k)
        A square root of the covariance within clusters.
    rest : array, (D,)
        Standard deviation of each feature besides the components.
    """

    features: QuantileTransform | Raw
    inverse: Floats
    mean: Floats
    directions: Floats
    centres: Floats
    shares: Floats
    within: Floats
    rest: Floats

    @property
    def quantile(self) -> QuantileTransform | None:
        """Private quantile features, if these are used."""
        return self.features if isinstance(self.features, QuantileTransform) else None

    def draw(self, count: int, seed: int) -> Rows:
        """Draw synthetic rows from a public seed."""
        public = np.random.default_rng(seed)
        shares = self.shares.astype(np.float64)
        chosen = public.choice(len(shares), count, p=shares / shares.sum())
        inner = public.standard_normal((count, self.within.shape[0])) @ self.within.T
        vectors = self.mean + (self.centres[chosen] + inner) @ self.directions.T
        vectors += public.standard_normal(vectors.shape) * self.rest
        return _rows(self, vectors, public)

    def parts(self) -> tuple[str, dict[str, npt.NDArray[Any]]]:
        """Return the kind of features, and arrays."""
        _, weights = self.features.parts()
        own = {name: getattr(self, name) for name in _ARRAYS}
        return self.features.kind, {**own, **{f"seen-{k}": v for k, v in weights.items()}}

    @classmethod
    def from_parts(
        cls, schema: Schema, kind: str, arrays: Mapping[str, npt.NDArray[Any]]
    ) -> RowModel:
        """Rebuild what `parts` took apart; refuse arrays that do not fit each other."""
        errors.choice("Partitions", "synthetic features", kind, ("quantile", "raw"))
        weights = {k.removeprefix("seen-"): v for k, v in arrays.items() if k.startswith("seen-")}
        seen: Any = features_of.from_parts(kind, schema, {}, weights)
        own = {name: np.asarray(arrays[name], np.float32) for name in _ARRAYS}
        numbers = len(own["inverse"]) if kind == "raw" else len(seen.quantiles)
        wide, k = seen.dimension, own["directions"].shape[-1]
        count = own["shares"].size
        shapes: dict[str, tuple[int, ...]] = {
            "inverse": (numbers, features_of.QUANTILES + 1 if kind == "quantile" else 0),
            "mean": (wide,),
            "directions": (wide, k),
            "centres": (count, k),
            "shares": (count,),
            "within": (k, k),
            "rest": (wide,),
        }
        fits = all(own[name].shape == shape for name, shape in shapes.items())
        finite = all(bool(np.isfinite(array).all()) for array in own.values())
        if not (fits and finite and own["shares"].min() >= 0 and own["shares"].sum() > 0):
            raise errors.InvalidData(
                "Partitions: the model of rows must fit the schema. Was the file made by hand?"
            )
        return cls(seen, **own)

    def same(self, other: RowModel | None) -> bool:
        """Whether another one is the same release: its noise has the same values."""
        return other is not None and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _ARRAYS
        )


_ARRAYS = ("inverse", "mean", "directions", "centres", "shares", "within", "rest")


@dataclass(frozen=True, eq=False, repr=False)
class Released:
    """What a budget was spent on: the model of rows, and the share of every part of it."""

    model: RowModel
    learning: Learning
    split: dict[str, float]


def fit(
    schema: Schema, rows: Rows, target: Target, seed: int, rng: Randomness | None = None
) -> Released:
    """Release a model of the rows within the budget."""
    kind = "quantile" if _quantiles_help(rows, target) else "raw"
    learning = Learning(kind, schema, rows, target, seed, rng)
    seen, inverse = learning.features(), np.empty((rows.numbers.shape[1], 0), np.float32)
    if isinstance(seen, QuantileTransform):
        inverse, seen = seen.quantiles, _with_atoms(seen)
    assert isinstance(seen, QuantileTransform | Raw)
    spent = {"features": _spent(learning.budget)}
    axes = private.public_axes(schema, seen, seed)
    reduced = private.on_axes(seen, rows, axes)
    mean, moments = _moments(reduced, axes, kind, learning.budget)
    spent["moments"] = _spent(learning.budget) - sum(spent.values())
    variances, components = _above_noise(moments)
    vectors = np.asarray(Product.of(components, 2 * axes.widest)(reduced - mean), np.float32)
    centres, shares = _clusters(vectors, variances, learning.budget, seed)
    spent["clusters"] = _spent(learning.budget) - sum(spent.values())
    model = _mixture(seen, inverse, axes, mean, moments, (variances, components, centres, shares))
    return Released(model, learning, spent)


def cost(event: events.Event) -> float:
    r"""Add up :math:`\Delta^2 / \sigma^2` of all Gaussians of an event."""
    if isinstance(event, events.Repeated):
        return event.count * cost(event.event)
    if isinstance(event, events.Composed):
        return sum(map(cost, event.events))
    if not isinstance(event, events.Gaussian):
        errors.refuse("Partitions", "event", "of Gaussian noise", type(event).__name__)
    return float(Fraction(event.l2_sensitivity) ** 2 / Fraction(event.sigma) ** 2)


def _spent(budget: Budget) -> float:
    return float(sum(map(cost, budget.spent)))  # a float even if nothing ran: files hold floats


def must_be_charged(split: Mapping[str, float], proved: Sequence[Certificate]) -> None:
    """Refuse a split of the budget that no certificate towards the in-house rows has charged."""
    total = sum(split.values())
    fair = all(math.isfinite(part) and part >= 0 for part in split.values()) and total > 0
    charged = [cost(one.event) for one in proved]
    if not fair or not any(math.isclose(total, one, rel_tol=1e-9) for one in charged):
        condition = "what the certificate towards the in-house rows charges"
        errors.refuse("Partitions", "split", condition, f"{total:g}", "Was the file made by hand?")


# --- 1. features -----------------------------------------------------------------------------


def _quantiles_help(rows: Rows, target: Target) -> bool:
    """Compare the noise of cumulative counts with the number of rows, which is public."""
    multiplier = target.noise_multiplier * math.sqrt((rows.numbers.shape[1] + 1) / SHARE)
    return bool(_QUANTILE_NOISE * multiplier <= _USEFUL * len(rows))


def _with_atoms(seen: QuantileTransform) -> QuantileTransform:
    """Put half of the quantiles in a crowded cell on either edge of it.

    Where many rows have one value, such as 0, its quantiles lie in one cell of the private
    histogram, which does not tell where. Between its edges every value then has the middle level.
    """
    cells = np.clip(np.floor(seen.quantiles * _CELLS), 0, _CELLS - 1).astype(np.int64)
    points = seen.quantiles.astype(np.float64)
    for row, own in zip(points, cells, strict=True):
        for cell in np.flatnonzero(np.bincount(own, minlength=_CELLS) >= _ATOM).tolist():
            inside = np.flatnonzero(own == cell)
            lower = cell / _CELLS - _BELOW
            upper = 1 + _BELOW if cell == _CELLS - 1 else (cell + 1) / _CELLS - _BELOW
            row[inside] = np.where(np.arange(inside.size) < inside.size / 2, lower, upper)
        row.sort()
    return QuantileTransform(seen.schema, points.astype(np.float32), seen.offset, seen.scale)


# --- 2. moments ------------------------------------------------------------------------------


def _moments(
    reduced: Floats, axes: Axes, kind: str, budget: Budget
) -> tuple[Floats, statistics.Covariance]:
    """Estimate the mean and the covariance about it; quantile features have mean 0."""
    mean = np.zeros(reduced.shape[1], np.float32)
    share, around = SHARES["covariance"] + SHARES["mean"] + SHARES["distances"], reduced
    inside = private.norm_within(reduced, axes.widest, SHARES["norms"], budget)
    if kind == "raw":
        released = statistics.mean(reduced, inside, **budget.share(SHARES["mean"]))
        mean = budget.take(released).point.astype(np.float32)
        around, share = (reduced - mean).astype(np.float32), SHARES["covariance"]
        inside = private.norm_within(around, axes.widest, SHARES["distances"], budget)
    moments = statistics.covariance(around, inside, **budget.share(share))
    return mean, budget.take(moments)


def _above_noise(moments: statistics.Covariance) -> tuple[Reals, Reals]:
    r"""Return the variances and directions that stand out from the noise.

    An eigenvalue ℓ beside noise of size τ appears as :math:`\ell + D \tau^2 / \ell`, which is
    solved for ℓ.
    """
    values, vectors = np.linalg.eigh(moments.matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    least = min(FEWEST_COMPONENTS, len(values))
    kept = min(max(int((values > moments.noise_level).sum()), least), MOST_COMPONENTS)
    noise = len(values) * moments.deviation**2 / 2
    seen = np.maximum(values[:kept], 0.0)
    true = (seen + np.sqrt(np.maximum(seen**2 - 4 * noise, 0.0))) / 2
    return np.maximum(true, 1e-3 * true[0] + _PLAUSIBLE), vectors[:, :kept]


# --- 3. clusters -----------------------------------------------------------------------------


def _clusters(vectors: Floats, variances: Reals, budget: Budget, seed: int) -> tuple[Floats, Reals]:
    """Find centres by noisy k-means, and count the rows of each."""
    rows_each = ROWS_PER_CLUSTER * (1 + budget.noise_multiplier)
    wanted = min(max(int(len(vectors) / rows_each), FEWEST_CLUSTERS), MOST_CLUSTERS)
    spread = np.sqrt(variances).astype(np.float32)
    bound = private.ROOM * float(np.linalg.norm(spread))
    shares = SHARES["start"], SHARES["steps"]
    centres = private.moved_cells(vectors, wanted, bound, spread, shares, budget, seed)
    codes = private.ranks(vectors, centres, bound, 1)[:, 0]
    counted = statistics.counts(codes, wanted, **budget.share(SHARES["counts"]))
    counts = np.maximum(budget.take(counted), 0) + _PLAUSIBLE
    return centres, counts / counts.sum()


def _mixture(
    seen: QuantileTransform | Raw,
    inverse: Floats,
    axes: Axes,
    mean: Floats,
    moments: statistics.Covariance,
    clusters: tuple[Reals, Reals, Floats, Reals],
) -> RowModel:
    """Put the released parts together."""
    variances, components, centres, shares = clusters
    middle = shares @ centres
    between = ((centres - middle) * shares[:, None]).T @ (centres - middle)
    values, turned = np.linalg.eigh(np.diag(variances) - between)
    within = turned * np.sqrt(np.maximum(values, _LEAST_VARIANCE * float(variances.min())))
    directions = axes.directions @ components
    explained = (directions**2) @ variances
    whole = ((axes.directions @ moments.matrix) * axes.directions).sum(axis=1)
    if isinstance(seen, QuantileTransform):
        whole[: len(inverse)] = _level_variances(seen, inverse)
    rest = np.maximum(whole - explained, _LEAST_VARIANCE * np.abs(whole))
    rest[len(inverse) :] = 0.0  # indicators are probabilities: drawing from them is their variance
    parts = (axes.center + axes.directions @ mean, directions, centres, shares, within)
    floats = (np.asarray(part, np.float32) for part in (*parts, np.sqrt(rest)))
    return RowModel(seen, inverse, *floats)


def _level_variances(seen: QuantileTransform, inverse: Floats) -> Reals:
    """Return the variance of each number's feature: 1, or less where many rows have one value."""
    count = len(inverse)
    levels = seen.levels(np.ascontiguousarray(inverse.T)) - seen.offset[:count]
    return np.asarray((levels * seen.scale[:count]).var(axis=0), np.float64)


# --- from features to rows -------------------------------------------------------------------


def _rows(model: RowModel, vectors: Reals, public: np.random.Generator) -> Rows:
    """Turn drawn features into rows: numbers in [0, 1], and codes of categories."""
    seen, count, inverse = model.features, len(vectors), model.inverse
    numbers = np.clip(vectors[:, : len(inverse)], 0.0, 1.0)
    chances = vectors[:, len(inverse) :]
    if isinstance(seen, QuantileTransform):
        ranks = vectors[:, : len(inverse)].argsort(axis=0).argsort(axis=0)
        levels = np.linspace(0, 1, inverse.shape[1])
        for index, points in enumerate(inverse):
            numbers[:, index] = np.interp((ranks[:, index] + 0.5) / count, levels, points)
        chances = chances / seen.scale[len(inverse) :] + seen.offset[len(inverse) :]
    missing = features_of.indicated(seen.schema)
    for place, index in enumerate(missing):
        numbers[public.random(count) < chances[:, place], index] = np.nan
    codes = _codes(seen.schema, chances[:, len(missing) :], public)
    return Rows(numbers.astype(np.float32), codes)


def _codes(schema: Schema, chances: Reals, public: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw a category of each column; −1 is the one for missing or unseen values."""
    codes, start = np.empty((len(chances), 0), np.int64), 0
    columns = schema.categorical if isinstance(schema, TableSchema) else ()
    for column, slots in zip(columns, features_of.slots(schema), strict=True):
        own = np.maximum(chances[:, start : start + slots], 0.0) + _PLAUSIBLE
        edges = (own / own.sum(axis=1, keepdims=True)).cumsum(axis=1)
        drawn = (edges < public.random((len(own), 1))).sum(axis=1).clip(0, slots - 1)
        drawn[drawn == len(column.categories)] = -1
        codes, start = np.column_stack([codes, drawn]), start + slots
    return codes
