"""Learn from people's data without ever holding it raw, and say exactly what is protected.

The public names: each is imported once below, for type checkers and editors, and loads its module
when it is first used, so `import tacit` is quick. Where a module lives is for those who work on it:
see docs/architecture.md.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.privacy.lazy import Aliases
from tacit.privacy.lazy import declared as _declared
from tacit.privacy.lazy import load as _load

if TYPE_CHECKING:
    from tacit import anonymize as anonymize
    from tacit import audit as audit
    from tacit import federated as federated
    from tacit.anonymize.encoder import AnonymizingEncoder as AnonymizingEncoder
    from tacit.apps import plots as plots
    from tacit.apps import service as service
    from tacit.central import estimators as estimators
    from tacit.central import posteriors as posteriors
    from tacit.central import queries as queries
    from tacit.central import statistics as private_statistics
    from tacit.central import training as private_training
    from tacit.central.posteriors import BetaBinomial as BetaBinomial
    from tacit.central.posteriors import DirichletMultinomial as DirichletMultinomial
    from tacit.central.queries.curator import Curator as Curator
    from tacit.data import columns as columns
    from tacit.data import datasets as datasets
    from tacit.data import labels as labels
    from tacit.data import schema as schema
    from tacit.data import tables as tables
    from tacit.data.outcomes import Numeric as Numeric
    from tacit.data.schema import ArraySchema as ArraySchema
    from tacit.data.schema import Categorical as Categorical
    from tacit.data.schema import Continuous as Continuous
    from tacit.data.schema import TableSchema as TableSchema
    from tacit.local import ceilings as ceilings
    from tacit.local import evaluation as evaluation
    from tacit.local import inference as inference
    from tacit.local import inhouse as inhouse
    from tacit.local import learned as learned
    from tacit.local import plan as plan
    from tacit.local import reports as reports
    from tacit.local.collection import Collection as Collection
    from tacit.local.heavy_hitters import HeavyHitters as HeavyHitters
    from tacit.local.inference.join import JoinClassifier as JoinClassifier
    from tacit.local.inference.moments_regressor import MomentsRegressor as MomentsRegressor
    from tacit.local.inference.noise_aware import NoiseAwareClassifier as NoiseAwareClassifier
    from tacit.local.inference.noise_aware_regressor import (
        NoiseAwareRegressor as NoiseAwareRegressor,
    )
    from tacit.local.inference.novel import NovelClassClassifier as NovelClassClassifier
    from tacit.local.inference.proportions_classifier import (
        ProportionsClassifier as ProportionsClassifier,
    )
    from tacit.local.inference.student import StudentClassifier as StudentClassifier
    from tacit.local.inhouse import requirements as requirements
    from tacit.local.learned.codebook import Codebook as Codebook
    from tacit.local.learned.direct import Direct as Direct
    from tacit.local.learned.partitions import Partitions as Partitions
    from tacit.local.learned.vlm import VLM as VLM
    from tacit.local.reports import Reports as Reports
    from tacit.local.respondent import Respondent as Respondent
    from tacit.local.shuffling import shuffled as shuffled
    from tacit.local.surveys.questions import Date as Date
    from tacit.local.surveys.questions import Number as Number
    from tacit.local.surveys.questions import OneOf as OneOf
    from tacit.local.surveys.questions import SeveralOf as SeveralOf
    from tacit.local.surveys.questions import YesNo as YesNo
    from tacit.local.surveys.survey import Survey as Survey
    from tacit.privacy import accounting as accounting
    from tacit.privacy import artifact as artifact
    from tacit.privacy import certificate as certificate
    from tacit.privacy import errors as errors
    from tacit.privacy import events as events
    from tacit.privacy import guarantees as guarantees
    from tacit.privacy import mechanisms as mechanisms
    from tacit.privacy import randomness as randomness
    from tacit.privacy import wording as wording
    from tacit.privacy.accounting.derivation import guarantee_of as guarantee_of
    from tacit.privacy.accounting.device_ledger import DeviceLedger as DeviceLedger
    from tacit.privacy.accounting.ledger import Ledger as Ledger
    from tacit.privacy.artifact import load as load
    from tacit.privacy.certificate import Certificate as Certificate
    from tacit.privacy.guarantees import ZCDP as ZCDP
    from tacit.privacy.guarantees import Adjacency as Adjacency
    from tacit.privacy.guarantees import ApproxDP as ApproxDP
    from tacit.privacy.guarantees import ConcentratedDP as ConcentratedDP
    from tacit.privacy.guarantees import NotPrivate as NotPrivate
    from tacit.privacy.guarantees import PureDP as PureDP
    from tacit.privacy.guarantees import RenyiDP as RenyiDP
    from tacit.privacy.guarantees import Unit as Unit
    from tacit.privacy.guarantees import Unproven as Unproven
    from tacit.privacy.mechanisms import *
    from tacit.privacy.randomness import Seeded as Seeded

__version__ = "0.1.0"

_DECLARED = _declared(__name__)
_ROOMS = ("anonymize", "apps", "audit", "central", "data", "federated", "local", "privacy")

# What is imported from a room, or from here, is a module; the rest are names in modules.
_MODULES = {
    name: f"{home}.{real}" for name, (home, real) in _DECLARED.items() if home.count(".") < 2
}
_NAMES = {name: home for name, home in _DECLARED.items() if name not in _MODULES}

__all__ = ["__version__", *sorted(_NAMES)]

# First, or a module below an alias would be found by its file and loaded twice.
sys.meta_path.insert(
    0, Aliases({f"tacit.{name}": real for name, real in _MODULES.items() if name not in _ROOMS})
)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return _load(*_NAMES[name], f"tacit.{name}")
    if name in _MODULES or name in _ROOMS:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES, *_ROOMS})
