r"""Scalers with scikit-learn's names, from private moments and quantiles of the columns.

References
----------
.. [FHU23] Fichtenberger, Henzinger, Upadhyay. Constant matters: fine-grained error bound on
   differentially private continual observation. ICML 2023.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from tacit.central import statistics as statistics
from tacit.central.estimators.base import DELTA, Bounds, Box, Reals, warn_of_noise
from tacit.central.estimators.unsupervised import REMEDY, Shell
from tacit.central.statistics.released import Released
from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import LedgerLike
from tacit.privacy.randomness import Randomness
from tacit.privacy.rounding import root_above

CELLS = 1024
"""Number of cells, per column, of the table that quantiles are computed from."""


class StandardScaler(OneToOneFeatureMixin, TransformerMixin, Shell):  # type: ignore[misc]
    r"""Scaler that subtracts a private mean and divides by a private standard deviation.

    .. math:: z = (x - \tilde m) / \tilde s

    Parameters
    ----------
    epsilon, delta : float
        Privacy budget of the fit.
    bounds : pair
        Public bounds (lower, upper) of the columns: two numbers, or two arrays with one number per
        column. Rows are clipped to them in `fit` and in `transform`.
    with_mean, with_std : bool
        Whether `transform` subtracts the mean and divides by the standard deviation. Both are
        released, and paid for, in any case.
    unit, ledger, account, rng
        As in `LinearRegression`.

    Attributes
    ----------
    mean_, scale_, var_
        Mean, standard deviation and variance of each column. The standard deviation of a constant
        column is what noise alone could have produced.
    n_samples_seen_ : int
        Noisy number of records.
    guarantee_, certificate_, event_, clipped_
        As in `LinearRegression`.

    Notes
    -----
    Guarantee: (ε, δ)-DP; neighbours differ by one record more or less. Three Gaussians are
    released, on sums, on sums of squares and on the count; proof in
    `tacit.private_statistics.standardize`. Cost: one pass, n d.
    """

    _stored = ("mean_", "scale_", "var_", "n_samples_seen_")

    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        with_mean: bool = True,
        with_std: bool = True,
        delta: float = DELTA,
        unit: str = "record",
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.with_mean = with_mean
        self.with_std = with_std
        self.delta = delta
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def _release(self, rows: Reals, box: Box, rng: Randomness) -> Released[Any]:
        return statistics.standardize(rows, box.lower, box.upper, **self._noise(), rng=rng)

    def _read(self, value: statistics.Standardizer, box: Box) -> None:
        self.mean_, self.scale_ = value.mean, value.deviation
        self.var_ = value.deviation**2
        self.n_samples_seen_ = value.count
        # With fewer records than this, noise moves a mean by about half a half-width.
        noise = 2 * self._multiplier() * math.sqrt(len(value.mean))
        warn_of_noise("StandardScaler", value.count, noise, REMEDY)

    def transform(self, X: Any) -> Reals:
        """Clip rows to the bounds and scale them."""
        rows = self._rows(X)
        clipped, _ = self._box(rows.shape[1]).clip(rows)
        shift, scale = self._parts()
        return np.asarray((clipped - shift) / scale)

    def inverse_transform(self, X: Any) -> Reals:
        """Return scaled rows to their original scale."""
        self._fitted()
        shift, scale = self._parts()
        return np.asarray(np.asarray(X, dtype=np.float64) * scale + shift)

    def _parts(self) -> tuple[Any, Any]:
        return self.mean_ if self.with_mean else 0.0, self.scale_ if self.with_std else 1.0


class MinMaxScaler(OneToOneFeatureMixin, TransformerMixin, Shell):  # type: ignore[misc]
    r"""Scaler that maps columns to a public range by private quantiles, and clips them to it.

    .. math:: z = a + (b - a)\,\min\!\left(1, \max\!\left(0,
              \frac{x - \tilde q}{\tilde q' - \tilde q}\right)\right)

    The smallest and the largest value belong to one record each, so no private release can give
    them. Quantiles near the ends depend on many records. The output lies in `feature_range`, which
    is public and serves as the bounds of the next step of a pipeline.

    Parameters
    ----------
    epsilon, delta : float
        Privacy budget of the fit, divided equally between the columns.
    bounds : pair
        Public bounds (lower, upper) of the columns: two numbers, or two arrays with one number per
        column.
    feature_range : pair of float
        Public: a and b.
    tail : float
        Share of the records left out at each end: at least 0, below 1/2.
    unit, ledger, account, rng
        As in `LinearRegression`.

    Attributes
    ----------
    data_min_, data_max_, data_range_
        Quantiles of each column, at least 1/1024 of the width of its bounds apart.
    guarantee_, certificate_, event_, clipped_
        As in `LinearRegression`.

    Notes
    -----
    Guarantee: (ε, δ)-DP; neighbours differ by one record more or less. Each of the d columns has
    one Gaussian of multiplier :math:`z\sqrt d`; together they cost what one of multiplier z costs.
    Proof in `tacit.private_statistics.quantiles` [FHU23]_. Cost: one pass, and 1024 cells per
    column.
    """

    _stored = ("data_min_", "data_max_", "data_range_", "scale_", "min_")

    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        feature_range: tuple[float, float] = (0.0, 1.0),
        tail: float = 0.01,
        delta: float = DELTA,
        unit: str = "record",
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.feature_range = feature_range
        self.tail = tail
        self.delta = delta
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def _release(self, rows: Reals, box: Box, rng: Randomness) -> Released[Any]:
        self._range()
        tail = errors.probability("MinMaxScaler", "tail", self.tail)
        if not tail < 0.5:
            errors.refuse("MinMaxScaler", "tail", "below 1/2", self.tail)
        noise = self._noise()
        total = Fraction(repr(self._multiplier()))
        multiplier = root_above(total**2 * rows.shape[1])
        parts = [
            statistics.quantiles(
                column,
                (tail, 1 - tail),
                float(low),
                float(high),
                cells=CELLS,
                noise_multiplier=multiplier,  # type: ignore[arg-type]
                delta=noise["delta"],
                unit=noise["unit"],
                rng=rng,
            )
            for column, low, high in zip(rows.T, box.lower, box.upper, strict=True)
        ]
        first = parts[0]
        event = events.Repeated(first.event, len(parts)) if len(parts) > 1 else first.event
        return Released([part.value for part in parts], event, first.delta, first.seeded)

    def _read(self, value: list[Reals], box: Box) -> None:
        low, high = np.array(value).T
        # Quantiles nearer than a cell (a constant column) are moved apart, half a cell each way.
        shortfall = np.maximum((box.upper - box.lower) / CELLS - (high - low), 0.0)
        self.data_min_, self.data_max_ = low - shortfall / 2, high + shortfall / 2
        self.data_range_ = self.data_max_ - self.data_min_
        least, most = self._range()
        self.scale_ = (most - least) / self.data_range_
        self.min_ = least - self.data_min_ * self.scale_

    def _range(self) -> tuple[float, float]:
        box = Box.of("MinMaxScaler", "feature_range", self.feature_range, 1)
        return float(box.lower[0]), float(box.upper[0])

    def transform(self, X: Any) -> Reals:
        """Scale rows to the range, and clip them to it."""
        least, most = self._range()
        return np.asarray(np.clip(self._rows(X) * self.scale_ + self.min_, least, most))

    def inverse_transform(self, X: Any) -> Reals:
        """Return rows to their original scale; values that were clipped stay clipped."""
        self._fitted()
        return np.asarray((np.asarray(X, dtype=np.float64) - self.min_) / self.scale_)
