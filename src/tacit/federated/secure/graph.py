r"""Who holds whose shares: everyone up to 128 clients, and above a random graph of degree k.

The graph places the members on a circle in a random order, and joins each to the k/2 before and the
k/2 after it (a Harary graph). The order is computed from a hash of the signed keys of all members,
so the server does not draw it. Among the n − 1 others a client's neighbours are a uniform k-subset,
and numbers of corrupt and of lost ones among them are hypergeometric [BBGLR20]_. `Degree` is the
smallest k, with a threshold t of the k + 1 holders (neighbours and owner), such that

- except with probability :math:`2^{-40}`, no client has so many corrupt neighbours that
  2t ≤ k + 1 + corrupt, and nowhere on the circle k/2 clients in a row are corrupt or lost, so that
  the honest ones who answer are joined;
- except with probability :math:`2^{-30}`, every client has t holders who answer.

References
----------
.. [BBGLR20] Bell, Bonawitz, Gascón, Lepoint, Raykova. Secure single-server aggregation with
   (poly)logarithmic overhead. CCS 2020 (Section 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tacit.federated.secure.primitives import derive, keystream
from tacit.privacy import errors

FULL = 128
"""Up to this number of clients everyone holds a share of everyone."""
SECURITY, CORRECTNESS = Fraction(1, 2**40), Fraction(1, 2**30)
"""Probabilities with which a random graph may fail to protect, and to give a sum."""


def neighbours(
    seed: bytes, members: Sequence[int], degree: int, of: Sequence[int] | None = None
) -> dict[int, tuple[int, ...]]:
    """Return the neighbours of each member, or of some, in increasing order."""
    count, wanted = len(members), members if of is None else of
    if degree >= count - 1:
        return {one: tuple(other for other in members if other != one) for one in wanted}
    words = np.frombuffer(keystream(derive(seed, "graph", b""), 8 * count), dtype="<u8")
    circle = [members[place] for place in np.argsort(words, kind="stable")]
    places = {one: place for place, one in enumerate(circle)}
    reach = [s * step for step in range(1, degree // 2 + 1) for s in (-1, 1)]
    return {
        one: tuple(sorted(circle[(places[one] + step) % count] for step in reach)) for one in wanted
    }


@dataclass(frozen=True)
class Degree:
    """Degree of a random graph, the threshold of its holders, and the most corrupt neighbours."""

    degree: int
    threshold: int
    corrupt: int


@lru_cache(maxsize=64)
def degree_for(clients: int, corrupt: int, lost: int) -> Degree:
    """Return the smallest degree for these numbers of corrupt and of lost clients.

    Examples
    --------
    >>> degree_for(1000, corrupt=50, lost=100)
    Degree(degree=96, threshold=63, corrupt=27)
    """
    errors.whole("secure sum", "clients", clients, least=4, most=2**20)
    errors.whole("secure sum", "corrupt", corrupt, least=0, most=clients)
    errors.whole("secure sum", "lost", lost, least=0, most=clients)
    for degree in range(2, clients - 1, 2):
        near = most_corrupt(clients, corrupt, lost, degree)
        threshold = (degree + 1 + near) // 2 + 1
        if (
            is_joined(clients, corrupt, lost, degree)
            and threshold <= degree
            and _tail(clients - 1, lost, degree, degree - threshold) * clients <= CORRECTNESS
        ):
            return Degree(degree, threshold, near)
    remedy = "Fewer may be corrupt or lost."
    errors.refuse("secure sum", "corrupt and lost", "few enough", (corrupt, lost), remedy)


def most_corrupt(clients: int, corrupt: int, lost: int, degree: int) -> int:
    """Return the most corrupt neighbours that any client has, but with the stated probability.

    Those that are lost before the graph is known may all be honest.
    """
    present = max(clients - lost, corrupt + 1, degree + 1)
    low, high = -1, min(corrupt, degree)
    while high - low > 1:
        middle = (low + high) // 2
        within = _tail(present - 1, corrupt, degree, middle) * clients * 2 <= SECURITY
        low, high = (low, middle) if within else (middle, high)
    return high


def is_joined(clients: int, corrupt: int, lost: int, degree: int) -> bool:
    """Return whether the honest survivors are joined, but with the stated probability."""
    gone, run = min(corrupt + lost, clients), degree // 2
    if gone < run:
        return True
    row = Fraction(math.comb(gone, run), math.comb(clients, run))
    return row * clients * 2 <= SECURITY


def _tail(total: int, marked: int, drawn: int, above: int) -> Fraction:
    """Return P(more than `above` of those drawn without replacement are marked), exactly."""
    marked, drawn = min(marked, total), min(drawn, total)
    first = max(above + 1, drawn + marked - total, 0)
    last = min(marked, drawn)
    if first > last:
        return Fraction(0)
    rest = total - marked
    term = math.comb(marked, first) * math.comb(rest, drawn - first)
    mass = 0
    for count in range(first, last + 1):
        mass += term
        term = term * (marked - count) * (drawn - count)
        term //= (count + 1) * (rest - drawn + count + 1)
    return Fraction(mass, math.comb(total, drawn))
