r"""Who is asked in a round, and what the server makes of the replies: the seam for guarantees.

Everything else of a round is the same with or without a guarantee. A `Gathering` is the only thing
on the server that meets single replies; what it gives is all that the server's update sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit.federated.algorithms import server_updates as aggregation
from tacit.federated.algorithms.registry import Algorithm, Phase
from tacit.federated.algorithms.server_updates import Averaged
from tacit.federated.config import Config
from tacit.federated.payload import Layout, Payload
from tacit.privacy import errors


class Gathering(Protocol):
    """Chooses cohorts and combines replies. Inherit from it for `admit` and `refuses`."""

    hides_failures: bool = False
    """Whether a client whose part raises is silent, as an error would tell that client's rows."""

    def admit(self, algorithm: Algorithm, config: Config, clients: int) -> None:
        """Refuse, before the first round, what cannot hold. By default nothing is refused."""
        return None

    def choose(self, number: int, clients: int) -> list[int]:
        """Clients that are asked in a round, in increasing order.

        Raises
        ------
        BudgetExceeded
            Before a round that would cost more than is left.
        """

    def refuses(self, number: int, client: int, reply: Payload) -> str:
        """Why a well-formed reply does not count in this round; "" where it does, as by default."""
        return ""

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged | None:
        """What the replies of a phase come to; None: nothing to go on with, the round is skipped.

        `taken` holds well-formed replies by client, in increasing order. A gathering with a
        guarantee releases noise even where it is empty.
        """


@dataclass(frozen=True)
class Plain(Gathering):
    """The weighted mean over a share of the clients, without any guarantee.

    Parameters
    ----------
    seed : int
        Of who is asked.
    participation : float
        C, the share of the clients that are asked in a round.
    """

    seed: int = 0
    participation: float = 1.0

    def __post_init__(self) -> None:
        errors.whole("run", "seed", self.seed, least=0)
        errors.within("run", "participation", self.participation, "(0, 1]")

    def choose(self, number: int, clients: int) -> list[int]:
        return cohort(self.seed, number, clients, self.participation)

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged | None:
        return aggregation.average(list(taken.values())) if taken else None


def cohort(seed: int, number: int, clients: int, participation: float = 1.0) -> list[int]:
    r"""Who is asked in a round: :math:`\max(\lfloor CK \rceil, 1)` clients, in increasing order.

    Repeatable, so anyone with the seed knows it: it amplifies no guarantee.
    """
    size = max(round(participation * clients), 1)
    if size == clients:
        return list(range(clients))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
    return sorted(rng.choice(clients, size=size, replace=False).tolist())
