"""Federated learning: algorithms as pure functions, and what carries them.

`local` and `aggregation` hold the mathematics of clients and server, `algorithms` names them,
`payload` says what travels, `rounds` runs them in one process. None of that promises privacy:
`client_privacy` does, in the place of the mean, and `silo`, in the place of a client's rows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.federated.adaptive import Adaptive as Adaptive
    from tacit.federated.algorithms import ALGORITHMS as ALGORITHMS
    from tacit.federated.algorithms import Algorithm as Algorithm
    from tacit.federated.algorithms import algorithm as algorithm
    from tacit.federated.auditing import ClientAudit as ClientAudit
    from tacit.federated.auditing import audit_clients as audit_clients
    from tacit.federated.client_privacy import ClientPrivacy as ClientPrivacy
    from tacit.federated.config import Config as Config
    from tacit.federated.config import Pruning as Pruning
    from tacit.federated.model import Data as Data
    from tacit.federated.record_privacy import RecordPrivacy as RecordPrivacy
    from tacit.federated.rounds import run as run
    from tacit.federated.silo import Silo as Silo
    from tacit.federated.silos import Silos as Silos
    from tacit.federated.torch_model import TorchModel as TorchModel

_HOMES = {
    "adaptive": ["Adaptive"],
    "algorithms": ["ALGORITHMS", "Algorithm", "algorithm"],
    "auditing": ["ClientAudit", "audit_clients"],
    "client_privacy": ["ClientPrivacy"],
    "config": ["Config", "Pruning"],
    "model": ["Data"],
    "record_privacy": ["RecordPrivacy"],
    "rounds": ["run"],
    "silo": ["Silo"],
    "silos": ["Silos"],
    "torch_model": ["TorchModel"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(f"tacit.federated.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'tacit.federated' has no attribute {name!r}")
