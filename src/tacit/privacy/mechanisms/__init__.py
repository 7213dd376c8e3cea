"""Mechanisms: channels that can state their own law."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy import lazy

if TYPE_CHECKING:
    from tacit.privacy.mechanisms.base import Channel as Channel
    from tacit.privacy.mechanisms.base import FiniteChannel as FiniteChannel
    from tacit.privacy.mechanisms.base import Mechanism as Mechanism
    from tacit.privacy.mechanisms.exponential import Exponential as Exponential
    from tacit.privacy.mechanisms.exponential import PermuteAndFlip as PermuteAndFlip
    from tacit.privacy.mechanisms.gaussian import DiscreteGaussian as DiscreteGaussian
    from tacit.privacy.mechanisms.gaussian import Gaussian as Gaussian
    from tacit.privacy.mechanisms.gaussian import LocalGaussian as LocalGaussian
    from tacit.privacy.mechanisms.grouped_mean import GroupedMean as GroupedMean
    from tacit.privacy.mechanisms.integer_table import IntegerTable as IntegerTable
    from tacit.privacy.mechanisms.laplace import DiscreteLaplace as DiscreteLaplace
    from tacit.privacy.mechanisms.laplace import Geometric as Geometric
    from tacit.privacy.mechanisms.laplace import Laplace as Laplace
    from tacit.privacy.mechanisms.laplace import LocalLaplace as LocalLaplace
    from tacit.privacy.mechanisms.lattice import LatticeGeometric as LatticeGeometric
    from tacit.privacy.mechanisms.local_mean import LocalMean as LocalMean
    from tacit.privacy.mechanisms.local_vector import LocalVector as LocalVector
    from tacit.privacy.mechanisms.memoized_response import MemoizedResponse as MemoizedResponse
    from tacit.privacy.mechanisms.projective_response import (
        ProjectiveGeometryResponse as ProjectiveGeometryResponse,
    )
    from tacit.privacy.mechanisms.randomized_response import (
        RandomizedResponse as RandomizedResponse,
    )
    from tacit.privacy.mechanisms.smooth_sensitivity import SmoothLaplace as SmoothLaplace
    from tacit.privacy.mechanisms.sparse_vector import SparseVector as SparseVector
    from tacit.privacy.mechanisms.subset_selection import SubsetSelection as SubsetSelection

lazy.attach(__name__, public="tacit.mechanisms")
