"""Statistics of in-house records, released with Gaussian noise on integers.

Every function takes `noise_multiplier`, or `epsilon` and `delta`, and returns a `Released`: the
value that may leave the house, the event behind it, and its guarantee towards each record
(add-remove neighbours). Bounds, centres, numbers of categories and of clusters are yours to give
and public; nothing is read off the data to set them.
"""

from tacit.central.statistics.clusters import Clusters, kmeans
from tacit.central.statistics.moments import Components, Covariance, covariance, pca
from tacit.central.statistics.order import quantiles
from tacit.central.statistics.released import Released
from tacit.central.statistics.standardization import Standardizer, standardize
from tacit.central.statistics.sums import Mean, counts, mean, vector_sum

__all__ = [
    "Clusters",
    "Components",
    "Covariance",
    "Mean",
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
