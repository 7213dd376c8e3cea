"""The algorithms as Flower apps, and three engines that run them unchanged.

`client` and `strategy` are thin shells: they read messages, call the pure functions, and write
messages. `engines` runs them in this process, `deployment` over the network, `simulation` on Ray;
`joining` builds the command that a silo's owner starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy import lazy

if TYPE_CHECKING:
    from tacit.federated.app.client import client_app as client_app
    from tacit.federated.app.engines import Transport as Transport
    from tacit.federated.app.engines import run as run
    from tacit.federated.app.grid import Faults as Faults
    from tacit.federated.app.grid import LocalGrid as LocalGrid
    from tacit.federated.app.mods import Mods as Mods
    from tacit.federated.app.questions import Questions as Questions
    from tacit.federated.app.strategy import Federation as Federation

lazy.attach(__name__)
