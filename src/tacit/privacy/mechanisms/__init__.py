"""Mechanisms: channels that can state their own law."""

from tacit.privacy.mechanisms.base import Channel, FiniteChannel, Mechanism
from tacit.privacy.mechanisms.exponential import Exponential, PermuteAndFlip
from tacit.privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian, LocalGaussian
from tacit.privacy.mechanisms.integer_table import IntegerTable
from tacit.privacy.mechanisms.laplace import DiscreteLaplace, Geometric, Laplace, LocalLaplace
from tacit.privacy.mechanisms.lattice import LatticeGeometric
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.mechanisms.smooth_sensitivity import SmoothLaplace
from tacit.privacy.mechanisms.sparse_vector import SparseVector
from tacit.privacy.mechanisms.subset_selection import SubsetSelection

__all__ = [
    "Channel",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "FiniteChannel",
    "Gaussian",
    "Geometric",
    "IntegerTable",
    "Laplace",
    "LatticeGeometric",
    "LocalGaussian",
    "LocalLaplace",
    "Mechanism",
    "PermuteAndFlip",
    "RandomizedResponse",
    "SmoothLaplace",
    "SparseVector",
    "SubsetSelection",
]
