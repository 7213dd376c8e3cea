"""Learn from people's data without ever holding it raw, and say exactly what is protected.

The public names. Each loads its module when it is first used, so `import tacit` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.accounting.derivation import guarantee_of as guarantee_of
    from tacit.accounting.ledger import Ledger as Ledger
    from tacit.anonymize.encoder import AnonymizingEncoder as AnonymizingEncoder
    from tacit.artifact import load as load
    from tacit.certificate import Certificate as Certificate
    from tacit.guarantees import ZCDP as ZCDP
    from tacit.guarantees import Adjacency as Adjacency
    from tacit.guarantees import ApproxDP as ApproxDP
    from tacit.guarantees import ConcentratedDP as ConcentratedDP
    from tacit.guarantees import NotPrivate as NotPrivate
    from tacit.guarantees import PureDP as PureDP
    from tacit.guarantees import RenyiDP as RenyiDP
    from tacit.guarantees import Unit as Unit
    from tacit.guarantees import Unproven as Unproven
    from tacit.inference.join import JoinClassifier as JoinClassifier
    from tacit.inference.noise_aware import NoiseAwareClassifier as NoiseAwareClassifier
    from tacit.inference.novel import NovelClassClassifier as NovelClassClassifier
    from tacit.inference.posterior import BetaBinomial as BetaBinomial
    from tacit.inference.posterior import DirichletMultinomial as DirichletMultinomial
    from tacit.inference.student import StudentClassifier as StudentClassifier
    from tacit.inhouse import requirements as requirements
    from tacit.learned.codebook import Codebook as Codebook
    from tacit.learned.direct import Direct as Direct
    from tacit.learned.vlm import VLM as VLM
    from tacit.mechanisms import DiscreteGaussian as DiscreteGaussian
    from tacit.mechanisms import DiscreteLaplace as DiscreteLaplace
    from tacit.mechanisms import Exponential as Exponential
    from tacit.mechanisms import Gaussian as Gaussian
    from tacit.mechanisms import Geometric as Geometric
    from tacit.mechanisms import IntegerTable as IntegerTable
    from tacit.mechanisms import Laplace as Laplace
    from tacit.mechanisms import LatticeGeometric as LatticeGeometric
    from tacit.mechanisms import LocalGaussian as LocalGaussian
    from tacit.mechanisms import LocalLaplace as LocalLaplace
    from tacit.mechanisms import PermuteAndFlip as PermuteAndFlip
    from tacit.mechanisms import RandomizedResponse as RandomizedResponse
    from tacit.mechanisms import SmoothLaplace as SmoothLaplace
    from tacit.mechanisms import SparseVector as SparseVector
    from tacit.mechanisms import SubsetSelection as SubsetSelection
    from tacit.queries.curator import Curator as Curator
    from tacit.randomness import Seeded as Seeded
    from tacit.reports import Reports as Reports
    from tacit.schema import ArraySchema as ArraySchema
    from tacit.schema import Categorical as Categorical
    from tacit.schema import Continuous as Continuous
    from tacit.schema import TableSchema as TableSchema

__version__ = "0.1.0"

_HOMES = {
    "tacit.accounting.derivation": ["guarantee_of"],
    "tacit.accounting.ledger": ["Ledger"],
    "tacit.anonymize.encoder": ["AnonymizingEncoder"],
    "tacit.artifact": ["load"],
    "tacit.certificate": ["Certificate"],
    "tacit.guarantees": [
        "Adjacency",
        "ApproxDP",
        "ConcentratedDP",
        "NotPrivate",
        "PureDP",
        "RenyiDP",
        "Unit",
        "Unproven",
        "ZCDP",
    ],
    "tacit.inhouse": ["requirements"],
    "tacit.inference.join": ["JoinClassifier"],
    "tacit.inference.noise_aware": ["NoiseAwareClassifier"],
    "tacit.inference.novel": ["NovelClassClassifier"],
    "tacit.inference.posterior": ["BetaBinomial", "DirichletMultinomial"],
    "tacit.inference.student": ["StudentClassifier"],
    "tacit.learned.codebook": ["Codebook"],
    "tacit.learned.direct": ["Direct"],
    "tacit.learned.vlm": ["VLM"],
    "tacit.mechanisms": [
        "DiscreteGaussian",
        "DiscreteLaplace",
        "Exponential",
        "Gaussian",
        "Geometric",
        "IntegerTable",
        "Laplace",
        "LatticeGeometric",
        "LocalGaussian",
        "LocalLaplace",
        "PermuteAndFlip",
        "RandomizedResponse",
        "SmoothLaplace",
        "SparseVector",
        "SubsetSelection",
    ],
    "tacit.queries.curator": ["Curator"],
    "tacit.randomness": ["Seeded"],
    "tacit.reports": ["Reports"],
    "tacit.schema": ["ArraySchema", "Categorical", "Continuous", "TableSchema"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = (
    "accounting",
    "anonymize",
    "audit",
    "ceilings",
    "datasets",
    "errors",
    "estimators",
    "events",
    "guarantees",
    "inference",
    "inhouse",
    "learned",
    "mechanisms",
    "plan",
    "plots",
    "private_statistics",
    "private_training",
    "queries",
    "randomness",
    "schema",
    "service",
)

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        try:
            return getattr(import_module(_HOME_OF[name]), name)
        except ModuleNotFoundError as error:
            missing = str(error.name).partition(".")[0]
            raise ImportError(
                f"tacit.{name} needs {missing}. pip install 'tacit[learn]'."
            ) from None
    if name in _MODULES:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF, *_MODULES])
