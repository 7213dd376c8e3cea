"""A crowd for trying things out: rows of a data set report or vote over HTTP, as people would.

Everybody gets an invitation of their own, and their noise comes from the operating system. The rows
are those that a split with seed 0 gives to people, or to voters: fit the mechanism on its in-house
rows. With more people than rows, rows are taken again, each time as another person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tacit.apps.service.client import LARGEST_BATCH, Client, as_json
from tacit.apps.service.connection import ServiceError
from tacit.data.datasets import Dataset
from tacit.privacy import errors

SPLIT_SEED = 0
_DRAWN_AT_ONCE = 5000

Advance = Callable[[int], object]
Result = str | ServiceError


@dataclass(frozen=True)
class Outcome:
    """What became of a crowd.

    Parameters
    ----------
    people : int
        How many were invited.
    rows : int
        How many rows of the data set they had between them.
    stored : int
        How many got a receipt.
    refused : dict of str to int
        Why the others did not.
    """

    people: int
    rows: int
    stored: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return dict(vars(self))


def run(
    client: Client,
    dataset: Dataset,
    people: int,
    *,
    vote: bool = False,
    batch: int = 100,
    single: bool = False,
    advance: Advance = lambda count: None,
) -> Outcome:
    """Invite so many people with the owner's key, and let them report, or vote.

    Parameters
    ----------
    client : Client
        With the owner's key.
    dataset : Dataset
        Whose rows they have.
    people : int
        How many there are.
    vote : bool
        Whether they vote on the published model instead: rows of voters, who have not reported.
    batch : int
        How many answers are sent in one request.
    single : bool
        Whether each is sent in a request of its own.
    advance : callable, optional
        Called with how many more are done.
    """
    people = errors.whole("crowd", "people", people, least=1, most=10_000_000)
    batch = errors.whole("crowd", "batch", batch, least=1, most=LARGEST_BATCH)
    split = dataset.collection(SPLIT_SEED)
    pool = split.voters if vote else split.people
    send = _Sender(client, dataset, vote, 1 if single else batch)
    outcomes: list[Result] = []
    for start in range(0, people, _DRAWN_AT_ONCE):
        count = min(_DRAWN_AT_ONCE, people - start)
        outcomes += send(np.take(pool, np.arange(start, start + count), mode="wrap"), advance)
    reasons = [outcome.code for outcome in outcomes if isinstance(outcome, ServiceError)]
    refused = {reason: reasons.count(reason) for reason in sorted(set(reasons))}
    return Outcome(people, min(people, len(pool)), people - len(reasons), refused)


@dataclass(frozen=True)
class _Sender:
    """Draws for some rows, invites as many people, sends."""

    client: Client
    dataset: Dataset
    vote: bool
    size: int

    def __call__(self, chosen: Any, advance: Advance) -> list[Result]:
        rows = self.dataset.take(chosen)
        labels = np.asarray(self.dataset.classes)[self.dataset.labels[chosen]]
        one: Callable[..., str]
        many: Callable[..., list[Result]]
        if self.vote:
            model, drawn = self.client.cast(rows, labels)
            one, many = (
                partial(self.client.send_vote, model),
                partial(self.client.send_votes, model),
            )
        else:
            labelled = self.client.terms().labelled
            drawn = as_json(self.client.draw(rows, labels if labelled else None))
            one, many = self.client.send, self.client.send_batch
        items = list(zip(self.client.invite(len(drawn)), drawn, strict=True))
        found: list[Result] = []
        for start in range(0, len(items), self.size):
            some = items[start : start + self.size]
            found += many(some) if self.size > 1 else [_alone(one, *some[0])]
            advance(len(some))
        return found


def _alone(send: Callable[[str, Any], str], token: str, drawn: Any) -> Result:
    """A receipt or the server's reason; a server that gives none ends it all."""
    try:
        return send(token, drawn)
    except ServiceError as error:
        if not error.code:
            raise
        return error
