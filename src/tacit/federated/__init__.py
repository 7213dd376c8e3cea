"""Federated learning: algorithms as pure functions, and the engines that run them.

`algorithms` holds the updates of clients and server and names the algorithms, `payload` defines
what travels, `rounds` runs an algorithm in one process, and `app` runs it on Flower. `secure` sums
vectors that nobody sees one by one. None of these promises privacy. `client_level` does, by
replacing the mean, and `record_level`, by standing between an algorithm and a silo's rows.
`attacks` holds simulated attacks and defences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy import lazy

if TYPE_CHECKING:
    from tacit.federated.algorithms.registry import ALGORITHMS as ALGORITHMS
    from tacit.federated.algorithms.registry import Algorithm as Algorithm
    from tacit.federated.algorithms.registry import algorithm as algorithm
    from tacit.federated.client_level.adaptive import Adaptive as Adaptive
    from tacit.federated.client_level.auditing import ClientAudit as ClientAudit
    from tacit.federated.client_level.auditing import audit_clients as audit_clients
    from tacit.federated.client_level.distributed import SecureClientPrivacy as SecureClientPrivacy
    from tacit.federated.client_level.privacy import ClientPrivacy as ClientPrivacy
    from tacit.federated.config import Config as Config
    from tacit.federated.config import Pruning as Pruning
    from tacit.federated.model import Data as Data
    from tacit.federated.record_level.privacy import RecordPrivacy as RecordPrivacy
    from tacit.federated.record_level.server import SiloServer as SiloServer
    from tacit.federated.record_level.silo import Silo as Silo
    from tacit.federated.rounds import RunOptions as RunOptions
    from tacit.federated.rounds import run as run
    from tacit.federated.torch_model import TorchModel as TorchModel

lazy.attach(__name__)
