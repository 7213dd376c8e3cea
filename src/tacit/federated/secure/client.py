r"""The client of a secure sum: a state machine of five steps, each at most once.

With pairwise keys s, own seeds b and a keystream G, client u sends

.. math:: y_u = x_u + G(b_u) + \sum_{v > u} G(s_{uv}) - \sum_{v < u} G(s_{uv}) \mod 2^b

Pairwise masks cancel in the sum over those whose pairs are all there. Holders of shares restore b_u
of every survivor u and the key of every lost client, so the server can take away the rest
[BIK+17]_. Never both for one client: that would reveal x_u.

Theorem. Let the roster's keys be authentic, at most c clients side with the server, 2t > n + c, and
everyone hold shares of everyone. Whatever the server does, it learns at most, of one session, the
sum of x_u over the honest members of one list U of at least `Setup.least` clients, up to the
security of the primitives.

Proof (sketch; [BIK+17]_, Theorem 6.5, has the simulation). Honest clients use only keys that roster
keys signed for this context, so no other party knows a pairwise key of two honest clients, nor the
shares that they exchange. An honest client gives shares once, after it has signed one list U and
seen t valid signatures on it, and honest clients sign one list. Two lists with t signatures each
would need 2t ≤ (n − c) + 2c = n + c. So all honest clients who give shares do so for one list U,
each one kind of share per owner: of b_u if u is in U, of the pairwise key if not. The server gets
t shares of at most one of the two secrets of an honest client. For one outside U, b_u is unknown,
and its vector is hidden by G(b_u). The others are hidden by masks of pairs inside U, which cancel
in the sum alone.

Above `graph.FULL` clients shares are held by neighbours, and t signatures are those of neighbours:
two neighbourhoods could be shown two lists. There the same holds against a server that follows
the protocol, and clients who do and who share what they see with it.

Any refusal ends the session for this client: its keys are erased, and it answers nothing more.

References
----------
.. [BIK+17] Bonawitz, Ivanov, Kreuter, et al. Practical secure aggregation for privacy-preserving
   machine learning. CCS 2017.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.federated.secure import graph, messages, residues, shamir
from tacit.federated.secure.client_secrets import Secrets
from tacit.federated.secure.messages import OWN, PAIR, Keys, Kind
from tacit.federated.secure.primitives import (
    Refused,
    SigningKey,
    agree,
    derive,
    digest,
    key_bytes,
    new_seed,
    public_key,
    seal,
    sign,
    unseal,
    verified,
)
from tacit.federated.secure.session import Session
from tacit.privacy import errors


class Stage(IntEnum):
    """The next step of a client."""

    KEYS = 0
    SHARES = 1
    MASKED = 2
    CONSISTENT = 3
    UNMASK = 4
    OVER = 5


def pair_key(secret: bytes, context: bytes, one: int, other: int) -> bytes:
    """Derive the key of the mask of a pair."""
    return derive(secret, "pair", context + _numbers(min(one, other), max(one, other)))


def own_key(seed: bytes, context: bytes, client: int) -> bytes:
    """Derive the key of a client's own mask."""
    return derive(seed, "own", context + _numbers(client))


def masking_key(secret: bytes, context: bytes, client: int) -> bytes:
    """Derive the private key of a client's pairs from the secret that is shared."""
    return derive(secret, "masking", context + _numbers(client))


def commitment(seed: bytes, context: bytes, client: int) -> bytes:
    """Commit to the seed of a client's own mask."""
    return digest("own seed", context, _numbers(client), seed)


def listed_by(context: bytes, survivors: list[int]) -> bytes:
    """Return what clients sign of a list of survivors."""
    return digest("survivors", context, messages.survivors_of(survivors))


def _numbers(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


class Client:
    """One client in one session.

    Parameters
    ----------
    session : Session
        What the client itself knows of the session, never what the server says of it.
    number : int
        The client's number on the roster.
    identity : private key
        Its long-term key.

    Raises
    ------
    InvalidParameter
        If the long-term key is not the roster's.
    """

    def __init__(self, session: Session, number: int, identity: SigningKey) -> None:
        errors.whole("secure sum", "number", number, least=0, most=len(session.roster) - 1)
        if key_bytes(identity.public_key()) != session.roster.encoded[number]:
            errors.refuse("secure sum", "identity", "the roster's key of this client", "another")
        self.session, self.number, self._identity = session, number, identity
        self.stage = Stage.KEYS
        self._secrets = Secrets()
        self._sent = b""
        self._near: dict[int, Keys] = {}
        self._members: tuple[int, ...] = ()
        self._survivors: list[int] = []

    @contextmanager
    def _step(self, stage: Stage) -> Iterator[None]:
        """Allow a step once and in its order; whatever is refused ends the session."""
        try:
            if self.stage is not stage:
                raise Refused(f"secure sum: the step must be {self.stage.name}, got {stage.name}.")
            yield
        except BaseException:
            self.end()
            raise
        self.stage = Stage(stage + 1)
        if self.stage is Stage.OVER:
            self.end()

    def end(self) -> None:
        """Erase all keys and shares, and answer nothing more."""
        self.stage = Stage.OVER
        self._secrets.erase()

    def suspended(self) -> bytes:
        """Return the whole state, for a process that ends between steps; it is as secret as keys.

        Whoever keeps it replaces the earlier one: a step that runs twice could give two answers.
        """
        state = {
            "stage": int(self.stage),
            "context": self.session.context.hex(),
            "secrets": self._secrets.plain(),
            "sent": self._sent.hex(),
            "near": {k: v.encode(self.session.context).hex() for k, v in self._near.items()},
            "members": list(self._members),
            "survivors": self._survivors,
        }
        return json.dumps(state).encode()

    def resume(self, state: bytes) -> None:
        """Continue from what `suspended` returned, in this session.

        Raises
        ------
        Refused
            If it is the state of another session, or none.
        """
        if self.stage is not Stage.KEYS or self._sent:
            raise Refused("secure sum: a client that has begun must not resume.")
        try:
            self._restore(json.loads(state))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.end()
            raise Refused("secure sum: a state must be one of this session.") from None

    def _restore(self, state: dict[str, Any]) -> None:
        if bytes.fromhex(state["context"]) != self.session.context:
            raise ValueError
        context = self.session.context
        self._secrets.restore(state["secrets"])
        self._sent = bytes.fromhex(state["sent"])
        self._near = {
            int(k): messages.read_keys(bytes.fromhex(v), context) for k, v in state["near"].items()
        }
        self._members = tuple(state["members"])
        self._survivors = list(state["survivors"])
        self.stage = Stage(state["stage"])

    def keys(self) -> bytes:
        """Step 1: create keys for this session, and sign them."""
        with self._step(Stage.KEYS):
            context, secrets = self.session.context, self._secrets
            secrets.sealing[:] = new_seed()
            secrets.masking[:] = shamir.new_secret()
            secrets.own[:] = shamir.new_secret()
            masking = masking_key(bytes(secrets.masking), context, self.number)
            keys = Keys(
                self.number,
                public_key(bytes(secrets.sealing)),
                public_key(masking),
                commitment(bytes(secrets.own), context, self.number),
                b"",
            )
            signed = replace(keys, signature=sign(self._identity, keys.signed(context)))
            self._sent = signed.encode(context)
            return self._sent

    def shares(self, advertised: object) -> bytes:
        """Step 2: check everyone's keys, and share the secrets among the holders, encrypted."""
        with self._step(Stage.SHARES):
            self._meet(advertised)
            secrets, threshold = self._secrets, self.session.setup.threshold
            holders = (*self._near, self.number)
            pairs = shamir.share(bytes(secrets.masking), holders, threshold)
            owns = shamir.share(bytes(secrets.own), holders, threshold)
            secrets.shares[self.number] = pairs[self.number], owns[self.number]
            sealed = {}
            for holder in self._near:
                key, about = self._box(self.number, holder)
                sealed[holder] = seal(key, pairs[holder] + owns[holder], about)
            return messages.shares(self.session.context, self.number, sealed)

    def masked(self, delivered: object, vector: npt.NDArray[np.int64]) -> bytes:
        """Step 3: keep the shares of others, and mask the vector."""
        with self._step(Stage.MASKED):
            session, setup = self.session, self.session.setup
            sealed = messages.read_sealed(delivered, Kind.DELIVERED, session.context, setup.clients)
            if not set(sealed) <= set(self._near):
                raise Refused("secure sum: shares must be those of neighbours.")
            if len(sealed) + 1 < setup.threshold:
                raise Refused("secure sum: enough holders must have sent shares. They have not.")
            for owner, content in sealed.items():
                self._secrets.shares[owner] = self._opened(owner, content)
            if vector.shape != (setup.size,) or vector.dtype != np.int64:
                raise Refused("secure sum: a vector must have the stated length, in whole numbers.")
            packed = residues.pack(self._hidden(vector), setup.bits)
            return messages.masked(session.context, self.number, packed)

    def consistent(self, survivors: object) -> bytes:
        """Step 4: check the list of survivors, and sign it."""
        with self._step(Stage.CONSISTENT):
            session, setup = self.session, self.session.setup
            named = messages.read_survivors(survivors, session.context, setup.clients)
            self._check(named)
            self._survivors = named
            signature = sign(self._identity, listed_by(session.context, named))
            return messages.consistent(session.context, self.number, signature)

    def unmask(self, signatures: object) -> bytes:
        """Step 5: after t signatures on the list that this client signed, give one share of each.

        Of a survivor it is that of its own mask, of a lost client that of its pairs.
        """
        with self._step(Stage.UNMASK):
            session = self.session
            self._agreed(signatures)
            there, given = set(self._survivors), dict[int, tuple[int, bytes]]()
            for owner, both in self._secrets.shares.items():
                if both is not None:
                    which = OWN if owner in there else PAIR
                    given[owner] = which, both[1] if which == OWN else both[0]
            return messages.unmask(session.context, self.number, given)

    def _meet(self, advertised: object) -> None:
        """Check the list of members, and the keys of the neighbours."""
        session, setup = self.session, self.session.setup
        digests, keys = messages.read_advertised(advertised, session.context, setup.clients)
        if digests.get(self.number) != digest("keys of", self._sent):
            raise Refused("secure sum: the members must include this client, with its own keys.")
        if len(digests) < setup.fewest:
            raise Refused(f"secure sum: there must be {setup.fewest} members or more.")
        near = neighbours_of(session, digests, [self.number])[self.number]
        if tuple(keys) != near:
            raise Refused("secure sum: the keys must be those of the neighbours.")
        for number, message in keys.items():
            if digests[number] != digest("keys of", message):
                raise Refused("secure sum: the keys must be those that everyone was shown.")
            self._near[number] = self._authentic(number, message)
        self._members = tuple(digests)

    def _authentic(self, number: int, message: bytes) -> Keys:
        """Read a neighbour's keys, which must be signed for this session by the roster's key."""
        context = self.session.context
        keys = messages.read_keys(message, context)
        long_term = self.session.roster.keys[number]
        if keys.sender != number or not verified(long_term, keys.signature, keys.signed(context)):
            raise Refused("secure sum: keys must be signed with the roster's key of their owner.")
        return keys

    def _box(self, owner: int, holder: int) -> tuple[bytes, bytes]:
        """Return the key and the subject of the box with an owner's shares for a holder."""
        peer = holder if owner == self.number else owner
        if peer not in self._secrets.agreed:
            sealing = bytes(self._secrets.sealing)
            self._secrets.agreed[peer] = agree(sealing, self._near[peer].sealing)
        about = self.session.context + _numbers(owner, holder)
        return derive(self._secrets.agreed[peer], "shares", about), about

    def _opened(self, owner: int, content: bytes) -> tuple[bytes, bytes] | None:
        """Open a neighbour's shares.

        Who sends boxes that do not open is treated like any other, so that one client cannot stop
        its neighbours; only its shares cannot be given.
        """
        key, about = self._box(owner, self.number)
        try:
            plain = unseal(key, content, about)
        except Refused:
            return None
        return plain[: shamir.BYTES], plain[shamir.BYTES :]

    def _hidden(self, vector: npt.NDArray[np.int64]) -> residues.Residues:
        """Add the own mask, and the masks with all neighbours whose shares were delivered."""
        context, setup, secrets = self.session.context, self.session.setup, self._secrets
        total = residues.residues(vector, setup.bits)
        own = own_key(bytes(secrets.own), context, self.number)
        total += residues.mask(own, setup.size, setup.bits)
        private = masking_key(bytes(secrets.masking), context, self.number)
        for other in secrets.shares:
            if other != self.number:
                secret = agree(private, self._near[other].masking)
                key = pair_key(secret, context, self.number, other)
                mask = residues.mask(key, setup.size, setup.bits)
                total = total + mask if self.number < other else total - mask
        return total

    def _check(self, survivors: list[int]) -> None:
        """Refuse a list of survivors that cannot be one, or has too few of them."""
        setup, there = self.session.setup, set(survivors)
        if len(there) < setup.fewest:
            raise Refused(f"secure sum: {setup.fewest} clients or more must have survived.")
        if self.number not in there or not there <= set(self._members):
            raise Refused("secure sum: survivors must be members, and this client one of them.")
        near = there & set(self._near)
        if not near <= set(self._secrets.shares):
            raise Refused("secure sum: survivors must have sent shares before.")
        if len(near) + 1 < setup.threshold:
            raise Refused("secure sum: enough holders of shares must have survived.")

    def _agreed(self, signatures: object) -> None:
        """Refuse unless t holders signed the very list that this client signed."""
        session, setup = self.session, self.session.setup
        signed = messages.read_signatures(signatures, session.context, setup.clients)
        allowed = {*self._near, self.number} & set(self._survivors)
        if not set(signed) <= allowed:
            raise Refused("secure sum: signatures must be those of holders who survived.")
        if len(signed) < setup.threshold:
            raise Refused(f"secure sum: {setup.threshold} or more must have signed one list.")
        listed = listed_by(session.context, self._survivors)
        for number, signature in signed.items():
            if not verified(session.roster.keys[number], signature, listed):
                raise Refused("secure sum: all signatures must be on the same list of survivors.")


def neighbours_of(
    session: Session, digests: Mapping[int, bytes], of: Sequence[int] | None = None
) -> dict[int, tuple[int, ...]]:
    """Return the graph that follows from the digests of all members' keys, or a part of it."""
    seed = digest("graph", session.context, *digests.values())
    return graph.neighbours(seed, tuple(digests), session.setup.degree, of)
