"""Mechanisms: channels that can state their own law."""

from tacit.mechanisms.base import Channel, FiniteChannel, Mechanism
from tacit.mechanisms.exponential import Exponential, PermuteAndFlip
from tacit.mechanisms.gaussian import DiscreteGaussian, Gaussian, LocalGaussian
from tacit.mechanisms.integer_table import IntegerTable
from tacit.mechanisms.laplace import DiscreteLaplace, Geometric, Laplace, LocalLaplace
from tacit.mechanisms.lattice import LatticeGeometric
from tacit.mechanisms.randomized_response import RandomizedResponse
from tacit.mechanisms.smooth_sensitivity import SmoothLaplace
from tacit.mechanisms.sparse_vector import SparseVector
from tacit.mechanisms.subset_selection import SubsetSelection

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
