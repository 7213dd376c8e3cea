"""Statistics of in-house records, released with Gaussian noise on integers.

Every function takes `noise_multiplier`, or `epsilon` and `delta`, and returns a `Released`: the
value, which may be published, the event behind it, and its guarantee for each record (add-remove
neighbours). Bounds, centres and numbers of categories and clusters are parameters, and public;
none of them is computed from the data.
"""

from tacit.central.statistics.clusters import Clusters, kmeans
from tacit.central.statistics.moments import Components, Covariance, covariance, pca
from tacit.central.statistics.order import quantiles
from tacit.central.statistics.released import Released
from tacit.central.statistics.standardization import Standardizer, standardize
from tacit.central.statistics.sums import PrivateMean, counts, mean, vector_sum

__all__ = [
    "Clusters",
    "Components",
    "Covariance",
    "PrivateMean",
    "Released",
    "Standardizer",
    "counts",
    "covariance",
    "kmeans",
    "mean",
    "pca",
    "quantiles",
    "standardize",
    "vector_sum",
]
