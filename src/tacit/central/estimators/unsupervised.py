r"""Principal components and k-means: scikit-learn's interface to `tacit.private_statistics`.

Each estimator spends its own (ε, δ). The cost of a pipeline is the composition of its steps:
`guarantee_of(Composed(tuple(step.event_ for step in steps)), delta)`. The output of `transform` is
as sensitive as the rows; only the fitted attributes are private.

References
----------
.. [DTTZ14] Dwork, Talwar, Thakurta, Zhang. Analyze Gauss: optimal bounds for privacy-preserving
   principal component analysis. STOC 2014.
.. [BDMN05] Blum, Dwork, McSherry, Nissim. Practical privacy: the SuLQ framework. PODS 2005.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin

from tacit.central import statistics as statistics
from tacit.central.estimators.base import DELTA, Bounds, Box, PrivateEstimator, Reals, warn_of_noise
from tacit.central.statistics.moments import spend_covariance
from tacit.central.statistics.released import Released, Spending
from tacit.central.statistics.sums import spend_mean
from tacit.privacy import errors, gaussian
from tacit.privacy.accounting.ledger import LedgerLike
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Unit
from tacit.privacy.randomness import Randomness, Seeded, source

MEAN_SHARE = Fraction(1, 8)
"""Share of the budget of `PCA` for the mean, from which components are measured."""

REMEDY = "Give more records, narrower bounds, fewer columns or a larger epsilon."


class Shell(PrivateEstimator):
    """Abstract base of scalers, `PCA` and `KMeans`: each defines what it releases and keeps."""

    bounds: Bounds

    @abstractmethod
    def _release(self, rows: Reals, box: Box, rng: Randomness) -> Released[Any]:
        """Release the statistic of these rows."""

    @abstractmethod
    def _read(self, value: Any, box: Box) -> None:
        """Store the released values under scikit-learn's attribute names."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to records. The ledger, if any, is charged before values are used."""
        X = np.asarray(self._checked(X))
        charged = self._charge(*X.shape)
        box = self._box(X.shape[1])
        clipped, outside = box.clip(X)
        release = self._release(clipped, box, source(self.rng))
        self._keep(charged, release.event)
        self._read(release.value, box)
        self.clipped_ = outside
        return self

    def _event(self, rows: int, columns: int) -> Event:
        # Events do not depend on the rows, so an empty table gives the event of any table.
        return self._release(np.zeros((0, columns)), self._box(columns), Seeded(0)).event

    def _box(self, columns: int) -> Box:
        return Box.of(type(self).__name__, "bounds", self.bounds, columns)

    def _noise(self) -> dict[str, Any]:
        """Return ε, δ and the unit, checked, with the class named in errors."""
        where = type(self).__name__
        least = Fraction(1, 10**4)
        epsilon = float(errors.epsilon_in_range(where, self.epsilon, least=least))
        delta = errors.probability(where, "delta", self.delta, zero=False)
        unit = Unit.of(where, self.unit)
        return {"epsilon": epsilon, "delta": delta, "unit": unit}

    def _multiplier(self) -> float:
        noise = self._noise()
        return gaussian.noise_multiplier_for(noise["epsilon"], noise["delta"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Shell):  # type: ignore[misc]
    r"""Principal component analysis: directions of largest variance, from a private covariance.

    .. math:: \tilde C = \tilde M - (\tilde m - c)(\tilde m - c)^\top

    with :math:`\tilde M` the noisy second moments about the middle c of the bounds and
    :math:`\tilde m` the noisy mean; components are eigenvectors of it.

    Parameters
    ----------
    n_components : int, optional
        Number of components; all by default.
    epsilon, delta : float
        Privacy budget of the fit.
    bounds : pair
        Public bounds (lower, upper) of the columns: two numbers, or two arrays with one number per
        column. Columns are not rescaled: put a scaler in front where their units differ.
    norm : float, optional
        Public limit on a row's distance from the middle of the bounds; longer rows are shortened.
        By default the distance of the corners, which no row exceeds. Noise is proportional to the
        square of this norm.
    unit, ledger, account, rng
        As in `LinearRegression`.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, mean_, n_components_
        As in scikit-learn, with noise; variances are at least 0.
    noise_variance_ : float
        A component whose variance is below this may be noise alone.
    guarantee_, certificate_, event_, clipped_
        As in `LinearRegression`.

    Notes
    -----
    Guarantee: (ε, δ)-DP; neighbours differ by one record more or less. Gaussians are added to the
    mean, with an eighth of the budget, and to the sums of products [DTTZ14]_; proofs in
    `tacit.private_statistics.mean` and
    `tacit.private_statistics.covariance`. Cost: one pass, n d², and d³.
    """

    _stored = (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "mean_",
        "n_components_",
        "noise_variance_",
    )

    def __init__(
        self,
        n_components: int | None = None,
        *,
        epsilon: float,
        bounds: Bounds,
        norm: float | None = None,
        delta: float = DELTA,
        unit: str = "record",
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.bounds = bounds
        self.norm = norm
        self.delta = delta
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def _release(self, rows: Reals, box: Box, rng: Randomness) -> Released[Any]:
        self._kept(rows.shape[1])
        noise = self._noise()
        bound = box.radius if self.norm is None else self.norm
        spending = Spending("PCA", None, noise["epsilon"], noise["delta"], noise["unit"], rng)
        about = spend_mean(spending, rows, bound, box.center, MEAN_SHARE)
        moments = spend_covariance(spending, rows, bound, box.center, 1 - MEAN_SHARE)
        return spending.released((about, moments))

    def _read(self, value: tuple[statistics.PrivateMean, statistics.Covariance], box: Box) -> None:
        about, moments = value
        self.mean_ = about.point
        offset = about.point - box.center
        values, vectors = np.linalg.eigh(moments.matrix - np.outer(offset, offset))
        self.n_components_ = self._kept(len(values))
        directions = vectors[:, ::-1].T[: self.n_components_]
        # The sign of an eigenvector is arbitrary: its largest entry is made positive.
        largest = np.abs(directions).argmax(axis=1)
        signs = np.sign(directions[np.arange(len(directions)), largest])
        self.components_ = directions * signs[:, None]
        spread = np.maximum(values[::-1], 0.0)
        self.explained_variance_ = spread[: self.n_components_].copy()
        self.explained_variance_ratio_ = self.explained_variance_ / max(float(spread.sum()), 1e-300)
        self.noise_variance_ = moments.noise_level
        warn_of_noise("PCA", float(spread[0]), moments.noise_level, REMEDY)

    def _kept(self, columns: int) -> int:
        if self.n_components is None:
            return columns
        return errors.whole("PCA", "n_components", self.n_components, least=1, most=columns)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def transform(self, X: Any) -> Reals:
        """Project rows onto the components."""
        return np.asarray((self._rows(X) - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: Any) -> Reals:
        """Map coordinates along the components back to rows."""
        self._fitted()
        return np.asarray(np.asarray(X, dtype=np.float64) @ self.components_ + self.mean_)


class KMeans(ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, Shell):  # type: ignore[misc]
    r"""K-means clustering by Lloyd's steps with noise.

    .. math:: c_j \leftarrow c_j + \lambda_j\,\tilde S_j / \max(\tilde n_j, 1)

    Parameters
    ----------
    n_clusters : int
        Number of centres.
    epsilon, delta : float
        Privacy budget of the fit.
    bounds : pair
        Public bounds (lower, upper) of the columns: two numbers, or two arrays with one number per
        column.
    norm : float, optional
        Public limit on a row's distance from the middle of the bounds; longer rows are shortened.
        By default the distance of the corners.
    reach : float, optional
        Public limit on how far a row can pull its centre in one step; half the norm by default.
        Noise is proportional to it.
    max_iter : int
        Number of steps; each has an equal share of the budget.
    init : "moments", "random" or array of shape (n_clusters, d)
        Initial centres: see `tacit.private_statistics.kmeans`.
    unit, ledger, account, rng
        As in `LinearRegression`.

    Attributes
    ----------
    cluster_centers_, counts_
        Centres, and the noisy number of records assigned to each in the last step.
    n_iter_ : int
        Number of steps: always `max_iter`.
    guarantee_, certificate_, event_, clipped_
        As in `LinearRegression`.

    Notes
    -----
    Guarantee: (ε, δ)-DP; neighbours differ by one record more or less. Each step releases two
    Gaussians [BDMN05]_; proof in `tacit.private_statistics.kmeans`. There is no `labels_`: the
    cluster of each record is as sensitive as the record itself, and a model that stored it could
    not be published. `predict` computes it. Cost: n k d per step.
    """

    _stored = ("cluster_centers_", "counts_", "n_iter_")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        epsilon: float,
        bounds: Bounds,
        norm: float | None = None,
        reach: float | None = None,
        max_iter: int = 8,
        init: Any = "moments",
        delta: float = DELTA,
        unit: str = "record",
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.bounds = bounds
        self.norm = norm
        self.reach = reach
        self.max_iter = max_iter
        self.init = init
        self.delta = delta
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def _release(self, rows: Reals, box: Box, rng: Randomness) -> Released[Any]:
        return statistics.kmeans(
            rows,
            self.n_clusters,
            box.radius if self.norm is None else self.norm,
            self.max_iter,
            self.init,
            center=box.center,
            reach=self.reach,
            **self._noise(),
            rng=rng,
        )

    def _read(self, value: statistics.Clusters, box: Box) -> None:
        self.cluster_centers_, self.counts_ = value.centers, value.counts
        self.n_iter_ = int(self.max_iter)
        average = max(float(value.counts.mean()), 0.0)
        # With fewer records than this in a cluster, noise moves a centre by half its reach.
        noise = 2 * self._multiplier() * math.sqrt(self.max_iter * len(box.lower))
        warn_of_noise("KMeans", average, noise, REMEDY)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Return the index of the centre nearest to each row."""
        rows = self._rows(X)
        return statistics.Clusters(self.cluster_centers_, self.counts_).nearest(rows)

    def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> npt.NDArray[np.int64]:
        """Fit, and return the cluster of each record: in-house, as sensitive as the records."""
        return self.fit(X).predict(X)

    def transform(self, X: Any) -> Reals:
        """Return the distance of each row from each centre."""
        differences = self._rows(X)[:, None, :] - self.cluster_centers_
        return np.asarray(np.sqrt((differences**2).sum(axis=2)))
