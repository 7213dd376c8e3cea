"""A simulated crowd: rows of a data set report or vote over HTTP, as people would.

Each simulated person has an invitation, and their noise comes from the operating system. The rows
are those that the split with seed 0 assigns to people, or to voters; fit the mechanism on its
in-house rows. If there are more people than rows, rows are reused, each time as another person.
With rounds, equal parts of the people report one after another, and what each part has taught
chooses the cells of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tacit.apps.service.client import Client
from tacit.apps.service.connection import ServiceError
from tacit.apps.service.given import as_json
from tacit.apps.service.sending import LARGEST_BATCH
from tacit.data.datasets import Dataset
from tacit.privacy import errors

SPLIT_SEED = 0
_DRAWN_AT_ONCE = 5000

Advance = Callable[[int], object]


@dataclass(frozen=True)
class CrowdResult:
    """The numbers of stored and refused answers of a crowd.

    Parameters
    ----------
    people : int
        Number of people invited.
    rows : int
        Number of distinct rows of the data set that they had.
    stored : int
        Number of answers that got a receipt.
    refused : dict of str to int
        Number of refused answers by reason.
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
    rounds: int = 1,
    inhouse_public: bool = False,
    advance: Advance = lambda count: None,
) -> CrowdResult:
    """Invite people with the owner's key, and have each of them report or vote.

    Parameters
    ----------
    client : Client
        A client with the owner's key.
    dataset : Dataset
        The data set whose rows the people have.
    people : int
        Number of people.
    vote : bool
        Whether they vote on the published model instead of reporting. They then have the rows of
        voters, who have not reported.
    batch : int
        Number of answers per request.
    single : bool
        Whether to send each answer in a request of its own, without a batch.
    rounds : int
        Number of rounds that the people report in, beginning with the one that is open.
    inhouse_public : bool
        State that the split's in-house rows, from which cells of later rounds are computed, are
        public. Partitions with a central guarantee need neither: they have synthetic rows.
    advance : callable, optional
        Called with the number of further answers that were sent.
    """
    people = errors.whole("crowd", "people", people, least=1, most=10_000_000)
    batch = errors.whole("crowd", "batch", batch, least=1, most=LARGEST_BATCH)
    rounds = errors.whole("crowd", "rounds", rounds, least=1, most=1 if vote else people)
    split = dataset.collection(SPLIT_SEED)
    pool = split.voters if vote else split.people
    send = _Sender(client, dataset, vote, 1 if single else batch)
    outcomes: list[str | ServiceError] = []
    for index, part in enumerate(np.array_split(np.arange(people), rounds)):
        if index:
            inhouse = None if _has_synthetic_rows(client) else dataset.take(split.inhouse)
            client.next_round(inhouse, inhouse_public=inhouse_public)
        for start in range(0, len(part), _DRAWN_AT_ONCE):
            chosen = part[start : start + _DRAWN_AT_ONCE]
            outcomes += send(np.take(pool, chosen, mode="wrap"), advance)
    return _counted(people, min(people, len(pool)), outcomes)


def answer(
    client: Client,
    answers: Mapping[str, Sequence[Any]],
    people: int,
    *,
    batch: int = 100,
    single: bool = False,
    advance: Advance = lambda count: None,
) -> CrowdResult:
    """Invite people with the owner's key, and have each of them answer a survey.

    `answers` has a column for each question; more people than rows use the rows again.
    """
    people = errors.whole("crowd", "people", people, least=1, most=10_000_000)
    batch = errors.whole("crowd", "batch", batch, least=1, most=LARGEST_BATCH)
    columns = {name: list(column) for name, column in answers.items()}
    rows = min(map(len, columns.values()))
    send = _Posted(client, 1 if single else batch)
    outcomes: list[str | ServiceError] = []
    for start in range(0, people, _DRAWN_AT_ONCE):
        chosen = [at % rows for at in range(start, min(start + _DRAWN_AT_ONCE, people))]
        own = {name: [column[at] for at in chosen] for name, column in columns.items()}
        drawn = as_json(client.draw(own))
        outcomes += send(drawn, client.send, client.send_batch, advance)
    return _counted(people, min(people, rows), outcomes)


def _counted(people: int, rows: int, outcomes: list[str | ServiceError]) -> CrowdResult:
    reasons = [outcome.code for outcome in outcomes if isinstance(outcome, ServiceError)]
    refused = {reason: reasons.count(reason) for reason in sorted(set(reasons))}
    return CrowdResult(people, rows, people - len(reasons), refused)


@dataclass(frozen=True)
class _Posted:
    """A sender that invites one person for each answer, and sends the answers."""

    client: Client
    size: int

    def __call__(
        self,
        drawn: list[Any],
        one: Callable[..., str],
        many: Callable[..., list[str | ServiceError]],
        advance: Advance,
    ) -> list[str | ServiceError]:
        items = list(zip(self.client.invite(len(drawn)), drawn, strict=True))
        outcomes: list[str | ServiceError] = []
        for start in range(0, len(items), self.size):
            some = items[start : start + self.size]
            outcomes += many(some) if self.size > 1 else [_alone(one, *some[0])]
            advance(len(some))
        return outcomes


@dataclass(frozen=True)
class _Sender:
    """A sender that draws answers for rows, invites one person per row, and sends the answers."""

    client: Client
    dataset: Dataset
    vote: bool
    size: int

    def __call__(self, chosen: Any, advance: Advance) -> list[str | ServiceError]:
        rows = self.dataset.take(chosen)
        classes = self.client.mechanism().classes
        labels = None if classes is None else labels_for(self.dataset, classes)[chosen]
        one: Callable[..., str]
        many: Callable[..., list[str | ServiceError]]
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
        return _Posted(self.client, self.size)(drawn, one, many, advance)


def labels_for(dataset: Dataset, classes: Sequence[Any]) -> Any:
    """Return the label of each row as a campaign with these classes takes it.

    Classes are matched by value, then by how they are written (1 and "1"). A mechanism whose
    classes were declared as a number takes the codes. Anything else is refused: a guess could swap
    two labels.
    """
    own, written = dataset.classes, {str(value): value for value in classes}
    if set(own) <= set(classes):
        values = list(own)
    elif {str(value) for value in own} <= set(written):
        values = [written[str(value)] for value in own]
    elif list(classes) == list(range(len(own))):
        values = list(classes)
    else:
        remedy = "Declare the data set's classes when the mechanism is made."
        condition = f"those of {dataset.name}: {_few(own)}"
        errors.refuse("crowd", "the mechanism's classes", condition, _few(classes), remedy)
    return np.asarray(values)[dataset.labels]


def _few(classes: Sequence[Any]) -> str:
    shown = ", ".join(map(str, classes[:3]))
    return shown if len(classes) <= 3 else f"{shown}, … ({len(classes)} in all)"


def _has_synthetic_rows(client: Client) -> bool:
    """Whether cells of the next round can be computed without in-house rows."""
    return getattr(client.mechanism(), "synthetic_", None) is not None


def _alone(send: Callable[[str, Any], str], token: str, drawn: Any) -> str | ServiceError:
    """Return a receipt or the server's refusal; raise if the server gave no reason."""
    try:
        return send(token, drawn)
    except ServiceError as error:
        if not error.code:
            raise
        return error
