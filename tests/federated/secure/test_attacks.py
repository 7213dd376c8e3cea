"""Attacks of a hostile server: each fails on the protocol, and succeeds on it without one check.

What is won is a client's vector, or a sum over fewer clients than were promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from tacit.federated.client_level.shares import share_plan
from tacit.federated.secure import (
    Client,
    Participant,
    Refused,
    Roster,
    Server,
    Session,
    Setup,
    Stage,
    Terms,
    messages,
    residues,
    secure_sum,
    shamir,
)
from tacit.federated.secure.client import commitment, masking_key, own_key, pair_key
from tacit.federated.secure.messages import OWN, PAIR, Keys
from tacit.federated.secure.primitives import (
    agree,
    derive,
    digest,
    new_identity,
    new_seed,
    public_key,
    sign,
    unseal,
)
from tacit.privacy import errors

Make = Callable[..., Any]
VICTIM = 0


def _masked(held: Any) -> tuple[Server, dict[int, bytes]]:
    """Play fairly until all masked vectors have arrived, and keep them."""
    server = Server(held.session)
    advertised = server.advertise({k: one.keys() for k, one in held.clients.items()})
    shares = {k: held.clients[k].shares(m) for k, m in advertised.items()}
    vectors = {
        k: held.clients[k].masked(m, held.vectors[k]) for k, m in server.deliver(shares).items()
    }
    for number, message in vectors.items():
        server.take(number, message)
    return server, vectors


def _opened(held: Any, server: Server, message: bytes, shares: dict[Any, Any]) -> np.ndarray:
    """Take both masks off the victim's vector, from t shares of each of its secrets."""
    session = held.session
    context, setup = session.context, session.setup
    secrets = [
        shamir.combine(dict(list(shares[VICTIM, which].items())[: setup.threshold]))
        for which in (OWN, PAIR)
    ]
    assert commitment(secrets[0], context, VICTIM) == server._keys[VICTIM].commitment
    packed = messages.read_masked(message, context)
    vector = residues.unpack(packed, setup.size, setup.bits)
    vector -= residues.mask(own_key(secrets[0], context, VICTIM), setup.size, setup.bits)
    private = masking_key(secrets[1], context, VICTIM)
    for other in range(1, setup.clients):
        shared = agree(private, server._keys[other].masking)
        key = pair_key(shared, context, VICTIM, other)
        vector -= residues.mask(key, setup.size, setup.bits)  # the victim is the smallest: +
    return residues.centred(vector, setup.bits)


def _collect(held: Any, shares: dict[Any, Any], who: list[int], listed: list[int]) -> None:
    """Show some clients a list of survivors, and keep the shares that they give."""
    context = held.session.context
    told = messages.survivors(context, listed)
    signed = {}
    for k in who:
        reply = held.clients[k].consistent(told)
        signed[k] = messages.read_consistent(reply, context)
    agreed = messages.signatures(context, signed)
    for k in who:
        given = messages.read_unmask(
            held.clients[k].unmask(agreed), context, held.session.setup.clients
        )
        for owner, (which, share) in given.items():
            shares.setdefault((owner, which), {})[k] = share


# --- lists of survivors --------------------------------------------------------------------------


class TwoLists(Client):
    """Takes the survivors and the lost from the server, as two lists, and checks neither."""

    def unmask(self, signatures: Any) -> bytes:
        survivors, lost = signatures
        given = {}
        for which, listed in ((OWN, survivors), (PAIR, lost)):
            for owner in listed:
                both = self._secrets.shares[owner]
                given[owner, which] = both[1] if which == OWN else both[0]
        return given  # type: ignore[return-value]


def test_overlapping_lists_open_nothing(parties: Make) -> None:
    everyone = list(range(6))

    def attack(kind: type[Client]) -> np.ndarray:
        held = parties(6, kind=kind)
        server, vectors = _masked(held)
        told = messages.survivors(held.session.context, everyone)
        for k in everyone:
            held.clients[k].consistent(told)
        shares: dict[Any, Any] = {}
        for k in everyone:
            for key, share in held.clients[k].unmask((everyone, [VICTIM])).items():  # type: ignore[attr-defined]
                shares.setdefault(key, {})[k] = share
        return _opened(held, server, vectors[VICTIM], shares)

    assert np.array_equal(attack(TwoLists), parties(6).vectors[VICTIM])
    with pytest.raises(Refused):
        attack(Client)
    # In its own form a list names each client once.
    held = parties(6)
    _masked(held)
    twice = messages.survivors(held.session.context, everyone)
    twice += VICTIM.to_bytes(4, "big")
    with pytest.raises(Refused):
        held.clients[1].consistent(twice)


class Trusting(Client):
    """Unmasks without a look at who signed which list."""

    def _agreed(self, signatures: object) -> None:
        return None


def test_different_lists_unmask_no_smaller_sum(parties: Make) -> None:
    """Eight of ten must be seen to survive; each client is shown other two who did not."""
    dead, alive = [0, 1, 2], list(range(3, 10))

    def attack(kind: type[Client]) -> np.ndarray:
        held = parties(10, kind=kind, least=8)
        server, vectors = _masked(held)
        shares: dict[Any, Any] = {}
        for k in range(10):
            hidden = {d for d in dead if d != k} if k in dead else {dead[k % 3], dead[(k + 1) % 3]}
            _collect(held, shares, [k], [v for v in range(10) if v not in hidden])
        fewer = Server(held.session)
        fewer._keys, fewer._near, fewer._sharing = server._keys, server._near, server._sharing
        for number in alive:
            fewer.take(number, vectors[number])
        fewer._arrived = set(alive)
        wanted = {(d, PAIR): shares[d, PAIR] for d in dead}
        wanted |= {(a, OWN): shares[a, OWN] for a in alive}
        fewer._shares = lambda replies: wanted  # type: ignore[method-assign]
        return fewer.total({})

    held = parties(10, least=8)
    assert np.array_equal(attack(Trusting), held.plain(alive))
    with pytest.raises(Refused, match="must have signed one list"):
        attack(Client)


class Obliging(Client):
    """Signs any list of survivors."""

    def _check(self, survivors: list[int]) -> None:
        return None


def test_sums_of_too_few_are_not_unmasked(parties: Make) -> None:
    """Everyone is shown the same list, on which the victim is nearly alone; half its noise is."""
    few = [VICTIM, 1]

    def attack(kind: type[Client]) -> np.ndarray:
        held = parties(6, kind=kind, least=4)
        server, vectors = _masked(held)
        shares: dict[Any, Any] = {}
        _collect(held, shares, list(range(6)), few)
        fewer = Server(held.session)
        fewer._keys, fewer._near, fewer._sharing = server._keys, server._near, server._sharing
        for number in few:
            fewer.take(number, vectors[number])
        fewer._shares = lambda replies: shares  # type: ignore[method-assign]
        return fewer.total({})

    with pytest.raises(Refused, match="4 clients or more must have survived"):
        attack(Client)

    class Deaf(Obliging):
        def _agreed(self, signatures: object) -> None:
            return None

    assert np.array_equal(attack(Deaf), parties(6).plain(few))


def test_survivors_are_members_who_sent_shares(parties: Make) -> None:
    held = parties(6, least=3)
    server, _ = _masked(held)
    context = held.session.context
    server.survivors()
    for listed, match in (
        ([1, 2, 3, 4, 5], "this client one of them"),
        ([0, 1, 2], "4 clients or more"),
    ):
        with pytest.raises(Refused, match=match):
            held.clients[0].consistent(messages.survivors(context, listed))
        held = parties(6, least=3)
        _masked(held)


class Again(Client):
    """Answers every step as often as it is asked."""

    @contextmanager
    def _step(self, stage: Stage) -> Iterator[None]:
        yield


def test_nothing_is_unmasked_twice(parties: Make) -> None:
    everyone = list(range(6))

    def attack(kind: type[Client]) -> np.ndarray:
        held = parties(6, kind=kind)
        server, vectors = _masked(held)
        shares: dict[Any, Any] = {}
        _collect(held, shares, everyone, everyone)
        _collect(held, shares, everyone[1:], everyone[1:])
        return _opened(held, server, vectors[VICTIM], shares)

    assert np.array_equal(attack(Again), parties(6).vectors[VICTIM])
    with pytest.raises(Refused, match="the step must be OVER"):
        attack(Client)


def test_thresholds_below_half_open_everything(
    parties: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups of t clients see two lists, each with t signatures on it."""
    everyone, groups = list(range(7)), ([1, 2, 3], [4, 5, 6])

    def attack(**told: int) -> np.ndarray:
        held = parties(7, **told)
        server, vectors = _masked(held)
        shares: dict[Any, Any] = {}
        _collect(held, shares, groups[0], everyone)
        _collect(held, shares, groups[1], everyone[1:])
        return _opened(held, server, vectors[VICTIM], shares)

    with pytest.raises(errors.InvalidParameter, match="threshold must be above half"):
        attack(threshold=3)
    with pytest.raises(Refused, match="must have signed one list"):
        attack()
    monkeypatch.setattr(Setup, "_check_threshold", lambda self: None)
    assert np.array_equal(attack(threshold=3), parties(7).vectors[VICTIM])


# --- keys ----------------------------------------------------------------------------------------


class Credulous(Client):
    """Takes any keys under a client's number."""

    def _authentic(self, number: int, message: bytes) -> Keys:
        return messages.read_keys(message, self.session.context)


def test_unsigned_keys_let_nobody_in_between(parties: Make) -> None:
    """The server is everyone else to the victim: it knows all pairs, and holds all shares."""

    def attack(kind: type[Client]) -> np.ndarray:
        held = parties(6, kind=kind)
        context, setup = held.session.context, held.session.setup
        victim, false, made = held.clients[VICTIM], new_identity(), {}
        private = {k: (new_seed(), new_seed()) for k in range(1, 6)}
        for k, pair in private.items():
            keys = Keys(k, public_key(pair[0]), public_key(pair[1]), bytes(32), b"")
            made[k] = replace(keys, signature=sign(false, keys.signed(context))).encode(context)
        own = victim.keys()
        digests = {k: digest("keys of", m) for k, m in {VICTIM: own, **made}.items()}
        sent = victim.shares(messages.advertised(context, digests, made))
        published = messages.read_keys(own, context)
        sealed = messages.read_sealed(sent, messages.Kind.SHARES, context, 6)
        owns = {}
        for k, box in sealed.items():
            about = context + VICTIM.to_bytes(4, "big") + k.to_bytes(4, "big")
            key = derive(agree(private[k][0], published.sealing), "shares", about)
            owns[k] = unseal(key, box, about)[32:]
        delivered = messages.delivered(context, dict.fromkeys(private, bytes(80)))
        reply = victim.masked(delivered, held.vectors[VICTIM])
        packed = messages.read_masked(reply, context)
        vector = residues.unpack(packed, setup.size, setup.bits)
        seed = shamir.combine(dict(list(owns.items())[: setup.threshold]))
        vector -= residues.mask(own_key(seed, context, VICTIM), setup.size, setup.bits)
        for k, pair in private.items():
            shared = agree(pair[1], published.masking)
            key = pair_key(shared, context, VICTIM, k)
            vector -= residues.mask(key, setup.size, setup.bits)
        return residues.centred(vector, setup.bits)

    assert np.array_equal(attack(Credulous), parties(6).vectors[VICTIM])
    with pytest.raises(Refused, match="signed with the roster's key"):
        attack(Client)


def test_keys_of_another_round_are_refused(parties: Make) -> None:
    """Signatures of an earlier round, under the header of this one."""
    before, held = parties(6, number=1), parties(6, number=2)
    server, context = Server(held.session), held.session.context
    replayed = {k: one.keys() for k, one in before.clients.items()}
    keys = {k: message[:1] + context + message[33:] for k, message in replayed.items()}
    keys[VICTIM] = held.clients[VICTIM].keys()
    with pytest.raises(Refused, match="clients or more must remain, got 1"):
        server.advertise(keys)
    digests = {k: digest("keys of", message) for k, message in keys.items()}
    del keys[VICTIM]
    with pytest.raises(Refused, match="signed with the roster's key"):
        held.clients[VICTIM].shares(messages.advertised(context, digests, keys))


# --- models and rounds ---------------------------------------------------------------------------


class Careless(Server):
    """A server that passes on keys that nobody signed for this session."""

    def _authentic(self, reply: object) -> Keys:
        return messages.read_keys(reply, self.session.context)


class Unbound(Session):
    """A session whose context leaves out what vectors are computed from."""

    @cached_property
    def context(self) -> bytes:
        return replace(self, about=b"").bound

    @property
    def bound(self) -> bytes:
        return Session.context.func(self)  # type: ignore[attr-defined]


def test_clients_of_another_model_are_not_summed(parties: Make) -> None:
    """Others get a model on which their updates are zero, so that the sum is the victim's."""

    def attack(kind: type[Session]) -> np.ndarray:
        held, other = parties(6, about=b"model"), parties(6, about=b"dead units")
        identities = {k: one._identity for k, one in held.clients.items()}
        shown = {k: other.session if k else held.session for k in identities}
        made = {
            k: kind(one.setup, one.roster, one.run, one.number, one.about)
            for k, one in shown.items()
        }
        clients = {k: Client(made[k], k, key) for k, key in identities.items()}
        vectors = {k: v if k == VICTIM else 0 * v for k, v in held.vectors.items()}
        wanted = made[VICTIM].context

        class Renamed:
            """A client whose messages the server puts under the victim's context."""

            def __init__(self, client: Client) -> None:
                self.client, self.number = client, client.number

            def __getattr__(self, name: str) -> Callable[..., bytes]:
                def step(*sent: Any) -> bytes:
                    own = self.client.session.context
                    told = (sent[0][:1] + own + sent[0][33:], *sent[1:]) if sent else ()
                    reply = getattr(self.client, name)(*told)
                    return reply[:1] + wanted + reply[33:]

                return step

        found = secure_sum(
            Careless(made[VICTIM]),
            {k: Renamed(one) for k, one in clients.items()},  # type: ignore[misc]
            vectors,
        )
        return found.total

    assert np.array_equal(attack(Unbound), parties(6).vectors[VICTIM])
    with pytest.raises(Refused):
        attack(Session)


class Forgetful(Participant):
    """Does not remember its rounds."""

    def begin(self, number: int, about: bytes) -> Client:
        self.seen = 0
        return super().begin(number, about)


def test_a_round_is_not_replayed(parties: Make) -> None:
    """The same round with and without the victim: the difference of the sums is its vector."""
    keys = [new_identity() for _ in range(6)]
    roster = Roster(tuple(key.public_key() for key in keys))

    def attack(kind: type[Participant]) -> np.ndarray:
        held = parties(6)
        setup, vectors = held.session.setup, held.vectors
        members = [kind(setup, roster, "run", k, key) for k, key in enumerate(keys)]
        sums = []
        for lost in ({}, {VICTIM: Stage.KEYS}):
            clients = {k: one.begin(1, b"model") for k, one in enumerate(members)}
            server = Server(clients[1].session)
            sums.append(secure_sum(server, clients, vectors, lost).total)
        return residues.centred(residues.residues(sums[0] - sums[1], setup.bits), setup.bits)

    assert np.array_equal(attack(Forgetful), parties(6).vectors[VICTIM])
    with pytest.raises(Refused, match="must come after round 1"):
        attack(Participant)


def test_no_more_sums_than_were_planned() -> None:
    """A server that goes on asking: 2,000 sums instead of 2 would cost 66 times the stated ε."""
    plan = share_plan(3, size=10, epsilon=1.0, delta=1e-5, rounds=2)
    keys = [new_identity() for _ in range(3)]
    roster = Roster(tuple(key.public_key() for key in keys))
    limited = Terms(plan.corrupt, plan.honest, plan.rounds * plan.releases)
    for terms, taken in ((Terms(plan.corrupt, plan.honest), 4), (limited, 2)):
        member = Participant(plan.setup(), roster, "run", 0, keys[0], terms)
        sums = []
        for number in range(1, 5):
            with suppress(Refused):
                sums.append(member.begin(number, b"model"))
        assert len(sums) == taken
    assert plan.epsilon(2000) > 60 * plan.epsilon()
