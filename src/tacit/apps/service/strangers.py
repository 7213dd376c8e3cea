"""Tokens that the server did not make: what they cost those who send them.

A made-up token is recognised by one keyed hash, before its request's body is read, and never
reaches the database. Tokens that earlier versions made have no mark, and have to be looked up: what
an address may send of either is limited, so that they cannot crowd out people who were invited.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.apps.service.limits import Buckets
from tacit.apps.service.logs import Rarely
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Item
from tacit.apps.service.tokens import Secret


class Strangers:
    """Counts unknown tokens by address.

    Parameters
    ----------
    secret : Secret
        The key that tokens are marked with.
    buckets : Buckets
        How many unknown tokens an address may send.
    """

    def __init__(self, secret: Secret, buckets: Buckets) -> None:
        self.secret, self.buckets = secret, buckets
        self._log = Rarely()

    def must_be_ours(self, name: str, token: str, sender: str) -> None:
        """Refuse a token that this server did not make; count it against its sender."""
        ours = self.secret.may_be_ours(name, token)
        if ours is None:
            self.must_be_few(sender)
        elif not ours:
            self.met(sender)
            raise Problem("unknown-token")

    def must_be_few(self, sender: str) -> None:
        """Refuse a sender who has sent too many unknown tokens."""
        self._take(sender, 0)

    def met(self, sender: str, count: int = 1) -> None:
        """Count unknown tokens against their sender."""
        if count:
            self._take(sender, count)

    def _take(self, sender: str, count: int) -> None:
        try:
            self.buckets.take(sender, count)
        except Problem:
            self._log.warning("too many unknown tokens from one address")
            raise

    def among(self, name: str, given: Sequence[Item], sender: str) -> dict[int, Problem]:
        """Return the positions of tokens that this server did not make; refuse too many of them."""
        words = [token for token, _ in given]
        found = {at: Problem("unknown-token") for at in self.secret.not_ours(name, words)}
        self.met(sender, len(found))
        return found
