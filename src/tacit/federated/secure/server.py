"""The server of a secure sum: it passes messages on, and restores the masks of the sum.

It learns who took part and who was lost at which step. A message that is malformed, or that comes
from somebody who is not asked any more, counts as lost; the server never raises because of one.
It raises `Refused` where the sum cannot be had: with fewer clients than `Setup.fewest`, or shares
that do not restore what was committed to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tacit.federated.secure import messages, residues, shamir
from tacit.federated.secure.client import (
    commitment,
    listed_by,
    masking_key,
    neighbours_of,
    own_key,
    pair_key,
)
from tacit.federated.secure.messages import OWN, PAIR, Keys, Kind
from tacit.federated.secure.primitives import (
    Refused,
    agree,
    digest,
    new_seed,
    public_key,
    verified,
)
from tacit.federated.secure.session import Session

T = TypeVar("T")


class Server:
    """The server of one session; call its steps in order.

    Parameters
    ----------
    session : Session
        The session.

    Attributes
    ----------
    lost : dict
        Why a client's message did not count, by client.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lost: dict[int, str] = {}
        self._keys: dict[int, Keys] = {}
        self._near: dict[int, tuple[int, ...]] = {}
        self._sharing: set[int] = set()
        self._survivors: list[int] = []
        self._arrived: set[int] = set()
        setup = session.setup
        self._total = np.zeros(setup.size, dtype=residues.kind(setup.bits))

    def advertise(self, replies: Mapping[int, object]) -> dict[int, bytes]:
        """Take the clients' keys, and return to each the keys of its neighbours."""
        context, accepted = self.session.context, dict[int, bytes]()
        for number, reply in sorted(replies.items()):
            keys = self._read(number, self._authentic, reply)
            if keys is not None and keys.sender == number:
                self._keys[number], accepted[number] = keys, bytes(reply)  # type: ignore[call-overload]
        self._enough(len(accepted))
        digests = {number: digest("keys of", message) for number, message in accepted.items()}
        self._near = neighbours_of(self.session, digests)
        return {
            number: messages.advertised(context, digests, {v: accepted[v] for v in near})
            for number, near in self._near.items()
        }

    def deliver(self, replies: Mapping[int, object]) -> dict[int, bytes]:
        """Take encrypted shares, and return to each client those that it holds."""
        boxes: dict[int, dict[int, bytes]] = {}
        for number, reply in sorted(replies.items()):
            sealed = self._read(number, self._sealed, reply)
            if sealed is not None and tuple(sealed) == self._near.get(number):
                boxes[number] = sealed
        self._sharing = set(boxes)
        self._enough(len(boxes))
        return {
            holder: messages.delivered(
                self.session.context,
                {owner: boxes[owner][holder] for owner in self._near[holder] if owner in boxes},
            )
            for holder in boxes
        }

    def take(self, number: int, reply: object) -> None:
        """Take one masked vector, and add it to the sum, each client's once."""
        masked = self._read(number, self._vector, reply)
        if masked is not None and number in self._sharing and number not in self._arrived:
            self._arrived.add(number)
            self._total += masked

    def survivors(self) -> dict[int, bytes]:
        """Return to each survivor the list of those whose vectors arrived."""
        self._survivors = sorted(self._arrived)
        self._enough(len(self._survivors))
        message = messages.survivors(self.session.context, self._survivors)
        return dict.fromkeys(self._survivors, message)

    def signatures(self, replies: Mapping[int, object]) -> dict[int, bytes]:
        """Take signatures on the list, and return to each client those of its holders."""
        session = self.session
        listed, signed = listed_by(session.context, self._survivors), dict[int, bytes]()
        for number, reply in sorted(replies.items()):
            signature = self._read(number, self._signature, reply)
            if signature is None or number not in self._arrived:
                continue
            if verified(session.roster.keys[number], signature, listed):
                signed[number] = signature
        return {
            number: messages.signatures(
                session.context,
                {v: signed[v] for v in (*self._near[number], number) if v in signed},
            )
            for number in signed
        }

    def total(self, replies: Mapping[int, object], workers: int = 1) -> npt.NDArray[np.int64]:
        """Take shares, restore the masks that are left in the sum, and return it.

        The sum is that of the survivors' vectors modulo 2^b, as numbers from −2^(b−1) up. Masks are
        computed by so many threads.
        """
        setup, shares = self.session.setup, self._shares(replies)
        secrets = {number: self._restored(number, shares) for number in sorted(self._sharing)}
        numbers = list(secrets)

        def removed(start: int) -> residues.Residues:
            masks = residues.Masks(setup.size, setup.bits)
            for number in numbers[start::workers]:
                if number in self._arrived:
                    self._remove_own(number, secrets[number], masks)
                else:
                    self._remove_pairs(number, secrets[number], masks)
            return masks.total()

        with ThreadPoolExecutor(workers) as pool:
            for masks in pool.map(removed, range(workers)):
                self._total -= masks
        return residues.centred(self._total, setup.bits)

    def _restored(
        self, number: int, shares: Mapping[tuple[int, int], Mapping[int, bytes]]
    ) -> bytes:
        """Restore the secret of which holders gave shares: of a survivor the seed of its mask."""
        threshold = self.session.setup.threshold
        found = shares.get((number, OWN if number in self._arrived else PAIR), {})
        if len(found) < threshold:
            raise Refused(
                f"secure sum: {threshold} holders must give their shares of each client, "
                f"got {len(found)}."
            )
        return shamir.combine(dict(sorted(found.items())[:threshold]))

    def _remove_own(self, number: int, seed: bytes, masks: residues.Masks) -> None:
        context = self.session.context
        if commitment(seed, context, number) != self._keys[number].commitment:
            raise Refused("secure sum: shares must restore what their owner committed to.")
        masks.add(own_key(seed, context, number))

    def _remove_pairs(self, number: int, secret: bytes, masks: residues.Masks) -> None:
        """Take away the masks with a lost client that are in the survivors' vectors."""
        context = self.session.context
        private = masking_key(secret, context, number)
        if public_key(private) != self._keys[number].masking:
            raise Refused("secure sum: shares must restore what their owner committed to.")
        for other in self._near[number]:
            if other in self._arrived:
                shared = agree(private, self._keys[other].masking)
                masks.add(pair_key(shared, context, number, other), negative=other > number)

    def _shares(self, replies: Mapping[int, object]) -> dict[tuple[int, int], dict[int, bytes]]:
        """Sort the shares by owner and secret; those that nobody asked for do not count."""
        shares: dict[tuple[int, int], dict[int, bytes]] = {}
        for number, reply in sorted(replies.items()):
            if number not in self._arrived:
                continue
            given = self._read(number, self._given, reply)
            for owner, (which, share) in (given or {}).items():
                if owner == number or owner in self._near[number]:
                    shares.setdefault((owner, which), {})[number] = share
        return shares

    def _authentic(self, reply: object) -> Keys:
        session = self.session
        keys = messages.read_keys(reply, session.context)
        if keys.sender >= len(session.roster) or not verified(
            session.roster.keys[keys.sender], keys.signature, keys.signed(session.context)
        ):
            raise Refused("secure sum: keys must be signed with the roster's key of their owner.")
        for public in (keys.sealing, keys.masking):
            agree(new_seed(), public)  # neighbours would refuse a point of small order
        return keys

    def _sealed(self, reply: object) -> dict[int, bytes]:
        clients = self.session.setup.clients
        return messages.read_sealed(reply, Kind.SHARES, self.session.context, clients)

    def _vector(self, reply: object) -> residues.Residues:
        setup, packed = self.session.setup, messages.read_masked(reply, self.session.context)
        return residues.unpack(packed, setup.size, setup.bits)

    def _signature(self, reply: object) -> bytes:
        return messages.read_consistent(reply, self.session.context)

    def _given(self, reply: object) -> dict[int, tuple[int, bytes]]:
        clients = self.session.setup.clients
        return messages.read_unmask(reply, self.session.context, clients)

    def _read(self, number: int, read: Callable[[object], T], reply: object) -> T | None:
        """Read a client's message; what is malformed counts as lost."""
        try:
            return read(reply)
        except Refused as refused:
            self.lost[number] = str(refused)
            return None

    def _enough(self, count: int) -> None:
        if count < self.session.setup.fewest:
            raise Refused(
                f"secure sum: {self.session.setup.fewest} clients or more must remain, got {count}."
            )
