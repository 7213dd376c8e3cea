r"""What all parties of a secure sum agree on, and the hash of it that goes into every key.

A `Setup` holds for a run: how many clients there are, how many of them may be corrupt, how many
shares restore a secret, the fewest survivors, and the form of the vectors. A `Session` is one sum
under a setup: with the roster of long-term keys, the name of the run, the number of the round, and
a digest of everything that the vectors were computed from (model, configuration, noise). Each party
computes `Session.context` from what it knows itself. Keys and signatures of another context are
worth nothing, so that clients who were shown different models cannot be summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tacit.federated.secure import graph, residues
from tacit.federated.secure.primitives import VerifyKey, digest, key_bytes
from tacit.privacy import errors

MOST_CLIENTS = 2**17
_WHERE = "secure sum"


@dataclass(frozen=True)
class Setup:
    """The parameters of the secure sums of a run.

    Parameters
    ----------
    clients : int
        n, the number of clients on the roster.
    size, bits : int
        Length of the vectors, and b: sums are modulo 2^b.
    corrupt : int
        c, the number of clients who may side with the server.
    least : int
        The fewest survivors with whom clients allow a sum: more than c.
    lost : int
        The most clients that may be lost. It only matters above 128 clients, where the degree of
        the graph depends on it.
    threshold : int, optional
        t, the number of shares that restore a secret. By default the smallest with 2t > m + c,
        where m is the number of holders and c of those who may be corrupt among them.

    Examples
    --------
    >>> Setup(3, size=10, bits=20, corrupt=1, least=3).threshold
    3
    >>> Setup(1000, size=10, bits=20, corrupt=50, least=900, lost=100).degree
    96
    """

    clients: int
    size: int
    bits: int
    corrupt: int
    least: int
    lost: int = 0
    threshold: int = 0

    def __post_init__(self) -> None:
        errors.whole(_WHERE, "clients", self.clients, least=2, most=MOST_CLIENTS)
        errors.whole(_WHERE, "size", self.size, least=1, most=2**31)
        errors.choice(_WHERE, "bits", str(self.bits), [str(width) for width in residues.WIDTHS])
        errors.whole(_WHERE, "corrupt", self.corrupt, least=0, most=self.clients - 2)
        errors.whole(_WHERE, "lost", self.lost, least=0, most=self.clients - self.corrupt - 1)
        errors.whole(_WHERE, "least", self.least, least=self.corrupt + 2, most=self.clients)
        if self.threshold == 0:
            object.__setattr__(self, "threshold", (self.holders + self._near) // 2 + 1)
        errors.whole(_WHERE, "threshold", self.threshold, least=2, most=self.holders)
        self._check_threshold()

    def _check_threshold(self) -> None:
        """Refuse a threshold with which two lists of survivors could both be unmasked."""
        if 2 * self.threshold <= self.holders + self._near:
            condition = f"above half of {self.holders} holders and {self._near} corrupt ones"
            errors.refuse(_WHERE, "threshold", condition, self.threshold)

    @property
    def everyone(self) -> bool:
        """Whether everyone holds a share of everyone."""
        return self.clients <= graph.FULL

    @cached_property
    def _chosen(self) -> graph.Degree:
        return graph.degree_for(self.clients, self.corrupt, self.lost)

    @property
    def degree(self) -> int:
        """The number of neighbours of a client."""
        return self.clients - 1 if self.everyone else self._chosen.degree

    @property
    def holders(self) -> int:
        """m, the number of holders of a client's shares: its neighbours and itself."""
        return self.degree + 1

    @property
    def _near(self) -> int:
        """The most corrupt clients among the holders of one client's shares."""
        return self.corrupt if self.everyone else self._chosen.corrupt

    @property
    def server(self) -> str:
        """Against which server sums are protected, in words."""
        if self.everyone:
            return "whatever the server does"
        return "if the server follows the protocol"

    @property
    def fewest(self) -> int:
        """The fewest members with whom a sum begins, and the fewest survivors."""
        return max(self.least, self.threshold)

    def encoded(self) -> bytes:
        """Encode all parameters, for the hash."""
        names = ("clients", "size", "bits", "corrupt", "least", "lost", "threshold")
        return ",".join(f"{name}={getattr(self, name)}" for name in names).encode()


@dataclass(frozen=True)
class Roster:
    """The clients' long-term public keys; client k has the k-th."""

    keys: tuple[VerifyKey, ...]

    def __post_init__(self) -> None:
        if len(set(self.encoded)) != len(self.keys):
            errors.refuse(_WHERE, "roster", "of different keys", "a key twice")

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        """The keys in their standard form."""
        return tuple(key_bytes(key) for key in self.keys)

    @cached_property
    def digest(self) -> bytes:
        """Hash of all keys, in order."""
        return digest("roster", *self.encoded)


@dataclass(frozen=True)
class Session:
    """One secure sum.

    Parameters
    ----------
    setup : Setup
        The parameters.
    roster : Roster
        The clients.
    run : str
        Name of the run.
    number : int
        Number of the sum in the run, from 1.
    about : bytes
        Digest of what the vectors are computed from: model, configuration, noise.
    """

    setup: Setup
    roster: Roster
    run: str
    number: int
    about: bytes

    def __post_init__(self) -> None:
        if len(self.roster) != self.setup.clients:
            errors.refuse(_WHERE, "roster", f"of {self.setup.clients} clients", len(self.roster))
        errors.whole(_WHERE, "number", self.number, least=1)

    @cached_property
    def context(self) -> bytes:
        """Hash of the whole session."""
        number = self.number.to_bytes(8, "big")
        setup, roster = self.setup.encoded(), self.roster.digest
        return digest("session", setup, roster, self.run.encode(), number, self.about)


def subject(*parts: bytes | str | Sequence[int]) -> bytes:
    """Compute the digest of what vectors are computed from, for `Session.about`."""
    encoded = [
        part
        if isinstance(part, bytes)
        else part.encode()
        if isinstance(part, str)
        else b",".join(str(number).encode() for number in part)
        for part in parts
    ]
    return digest("about", *encoded)
