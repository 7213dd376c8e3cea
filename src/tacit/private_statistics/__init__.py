"""Statistics of in-house records, released with Gaussian noise on integers.

Every function takes `noise_multiplier`, or `epsilon` and `delta`, and returns a `Released`: the
value that may leave the house, the event behind it, and its guarantee towards each record
(add-remove neighbours). Bounds, centres, numbers of categories and of clusters are yours to give
and public; nothing is read off the data to set them.
"""

from tacit.private_statistics.clusters import Clusters, kmeans
from tacit.private_statistics.moments import Components, Covariance, covariance, pca
from tacit.private_statistics.order import quantiles
from tacit.private_statistics.released import Released
from tacit.private_statistics.standardization import Standardizer, standardize
from tacit.private_statistics.sums import Mean, counts, mean, vector_sum

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
