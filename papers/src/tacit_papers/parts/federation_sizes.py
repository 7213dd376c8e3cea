"""Sizes of federations: many phones, or a few hospitals.

The magnitudes are those of Kairouz et al. (Advances and open problems in federated learning, 2021,
tables 1 and 2). `Scale.likeness` gives a federation of the same kind that can be simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tacit.privacy import errors


class Likeness(NamedTuple):
    """A federation of a size that can be simulated."""

    clients: int
    participation: float
    dropout: float


@dataclass(frozen=True)
class Scale:
    """Orders of magnitude, each from smallest to largest.

    Parameters
    ----------
    population, selected, participants, rounds : tuple of int
        Clients in all, asked in one round, and taking part; rounds until convergence.
    dropout : float
        Least share of the clients asked that fail to answer.
    returning : bool
        Whether a client is met again, so that it may keep a state between rounds.
    """

    name: str
    population: tuple[int, int]
    selected: tuple[int, int]
    participants: tuple[int, int]
    rounds: tuple[int, int]
    dropout: float
    returning: bool

    def likeness(self, rows: int) -> Likeness:
        """Return a federation of this kind for a simulation on this number of rows.

        Examples
        --------
        >>> CROSS_DEVICE.likeness(60_000)
        Likeness(clients=1000, participation=0.1, dropout=0.05)
        >>> CROSS_SILO.likeness(1_437)
        Likeness(clients=10, participation=1.0, dropout=0.0)
        """
        errors.whole("likeness", "rows", rows, least=2)
        if self.returning:
            return Likeness(max(2, min(10, rows // 100)), 1.0, self.dropout)
        return Likeness(max(2, min(1000, rows // 10)), 0.1, self.dropout)


CROSS_DEVICE = Scale(
    "cross-device", (10**6, 10**10), (50, 5_000), (10**5, 10**7), (500, 10_000), 0.05, False
)
"""Phones: Table 2.1 of the survey. At least 5 % drop out; most take part once."""

CROSS_SILO = Scale("cross-silo", (2, 100), (2, 100), (2, 100), (10, 1_000), 0.0, True)
"""Organisations: all take part in every round, and are known by name."""
