"""Secure aggregation: the server learns the sum of clients' vectors, and no single one.

`session` defines what all parties agree on, `client` and `server` are state machines of the five
messages, `participant` is a client over a whole run, and `exchange` runs a sum in one process.
`graph` decides who holds whose shares; `primitives`, `shamir` and `residues` are the cryptography
and the arithmetic. None of it depends on how messages travel, and none of it adds noise:
`tacit.federated.client_level.distributed` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy import lazy

if TYPE_CHECKING:
    from tacit.federated.secure.client import Client as Client
    from tacit.federated.secure.client import Stage as Stage
    from tacit.federated.secure.exchange import Sum as Sum
    from tacit.federated.secure.exchange import secure_sum as secure_sum
    from tacit.federated.secure.participant import Participant as Participant
    from tacit.federated.secure.participant import Terms as Terms
    from tacit.federated.secure.primitives import Refused as Refused
    from tacit.federated.secure.server import Server as Server
    from tacit.federated.secure.session import Roster as Roster
    from tacit.federated.secure.session import Session as Session
    from tacit.federated.secure.session import Setup as Setup

lazy.attach(__name__)
