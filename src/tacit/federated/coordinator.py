r"""Coordinators: which clients are asked in a round, and how the server combines their replies.

Everything else in a round is the same with or without a guarantee. A `Coordinator` is the only
object on the server that reads single replies; the server's update sees only what it returns.
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
from tacit.federated.payload import Layout, Payload, Vector
from tacit.privacy import errors


class Coordinator(Protocol):
    """A rule that chooses cohorts and combines replies.

    Subclasses inherit default implementations of `admit`, `sends` and `refuses`.
    """

    hides_failures: bool = False
    """Whether a client whose computation raises counts as silent: an error may reveal its rows."""

    def admit(self, algorithm: Algorithm, config: Config, clients: int) -> None:
        """Refuse, before the first round, settings under which the guarantee cannot hold.

        By default nothing is refused.
        """
        return None

    def choose(self, number: int, clients: int) -> list[int]:
        """Choose the clients that are asked in a round, in increasing order.

        Raises
        ------
        BudgetExceeded
            Before a round that would cost more than what is remaining.
        """

    def sends(self, received: Mapping[str, Vector]) -> None:
        """Note what clients of a phase are sent. By default nothing is done."""
        return None

    def refuses(self, number: int, client: int, reply: Payload) -> str:
        """Return why a well-formed reply does not count in this round, or "" if it does."""
        return ""

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged | None:
        """Combine the replies of a phase; None skips the round.

        `taken` holds well-formed replies by client, in increasing order. A coordinator with a
        guarantee releases noise even if `taken` is empty.
        """


@dataclass(frozen=True)
class PlainMean(Coordinator):
    """The weighted mean over a fraction of the clients, without any guarantee.

    Parameters
    ----------
    seed : int
        Seed of the choice of clients.
    participation : float
        C, the fraction of the clients that are asked in a round.
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
    r"""Choose :math:`\max(\lfloor CK \rceil, 1)` clients for a round, in increasing order.

    The choice is repeatable, so anyone who has the seed knows it: it amplifies no guarantee.
    """
    size = max(round(participation * clients), 1)
    if size == clients:
        return list(range(clients))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
    return sorted(rng.choice(clients, size=size, replace=False).tolist())
