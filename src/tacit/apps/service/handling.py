"""The state behind the routes: a store, its inbox, limits and counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response

from tacit.apps.service.ballots import Ballots
from tacit.apps.service.gate import LARGEST_BODY
from tacit.apps.service.inbox import Inbox
from tacit.apps.service.limits import Buckets
from tacit.apps.service.metrics import Metrics
from tacit.apps.service.problems import Problem
from tacit.apps.service.readiness import Readiness
from tacit.apps.service.requests import batch_of
from tacit.apps.service.store import Item, ReceiptOrProblem, Store
from tacit.apps.service.strangers import Strangers
from tacit.apps.service.summaries import Summaries
from tacit.apps.service.tables import REPORT


def json_response(content: Any, status: int = 200) -> Response:
    """Answer with JSON, by a faster encoder than the framework's."""
    return Response(to_json(content), status, media_type="application/json")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on what one sender may send.

    Parameters
    ----------
    rate, burst : float
        Requests from one address: per second in the long run, and at once.
    token_rate, token_burst : float
        Answers from one token: per second in the long run, and at once.
    unknown_rate, unknown_burst : float
        Unknown tokens from one address: per second in the long run, and at once.
    at_once : int
        Requests from one address that are being answered.
    largest_body : int
        Largest request body, in bytes.
    """

    rate: float = 50.0
    burst: float = 200.0
    token_rate: float = 0.5
    token_burst: float = 10.0
    unknown_rate: float = 5.0
    unknown_burst: float = 1000.0
    at_once: int = 100
    largest_body: int = LARGEST_BODY


@dataclass
class Service:
    """The state that all routes share."""

    store: Store
    limits: Limits
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.inbox = Inbox(self.store)
        self.per_token = Buckets(self.limits.token_rate, self.limits.token_burst)
        unknown = Buckets(self.limits.unknown_rate, self.limits.unknown_burst)
        self.strangers = Strangers(self.store.secret, unknown)
        self.readiness = Readiness(self.store, self.inbox)
        self.summaries = Summaries(self.store)
        self.ballots = Ballots(self.store)

    async def one(
        self, kind: str, name: str, token: str, answer: Any, about: str | None, sender: str
    ) -> Response:
        """Store the answer of one token, and return its receipt."""
        self.per_token.take((name, token))
        (outcome,) = await self.inbox.submit((kind, name, about), [(token, answer)])
        self._forget(name, [token], [outcome])
        if isinstance(outcome, Problem):
            self.strangers.met(sender, outcome.code == "unknown-token")
            raise outcome
        self._count(kind, [outcome])
        return json_response({"receipt": outcome}, 201)

    async def many(
        self, kind: str, name: str, items: Any, about: str | None, sender: str
    ) -> Response:
        """Store the answers of several tokens; each gets its own receipt or problem."""
        given = batch_of(items, kind)
        late = self.strangers.among(name, given, sender)
        late |= self._late(name, given, late)
        timely = [one for at, one in enumerate(given) if at not in late] if late else given
        outcomes = await self.inbox.submit((kind, name, about), timely) if timely else []
        if not late and set(map(type, outcomes)) == {str}:
            # The usual case, written in one go: receipts need no escaping in JSON.
            self.metrics.add("tacit_stored_total", len(outcomes), kind=kind)
            receipts = '"},{"receipt":"'.join(outcomes)  # type: ignore[arg-type]
            text = f'{{"stored":{len(outcomes)},"results":[{{"receipt":"{receipts}"}}]}}'
            return Response(text, media_type="application/json")
        unknown = [isinstance(one, Problem) and one.code == "unknown-token" for one in outcomes]
        self.strangers.met(sender, sum(unknown))
        for at in sorted(late):
            outcomes.insert(at, late[at])
        return self._mixed(kind, name, given, outcomes)

    def _mixed(
        self, kind: str, name: str, given: list[Item], outcomes: list[ReceiptOrProblem]
    ) -> Response:
        self._forget(name, [token for token, _ in given], outcomes)
        stored = self._count(kind, outcomes)
        results = [
            {"problem": one.to_plain()} if isinstance(one, Problem) else {"receipt": one}
            for one in outcomes
        ]
        return json_response({"stored": stored, "results": results})

    def withdraw(self, name: str, receipt: str) -> None:
        """Delete an answer, and discard results that were computed with it."""
        if self.store.withdraw(name, receipt):
            self.summaries.forget()

    def _late(self, name: str, given: list[Item], known: dict[int, Problem]) -> dict[int, Problem]:
        """Return the positions of tokens that have sent too many requests."""
        late: dict[int, Problem] = {}
        for at, (token, _) in enumerate(given if self.per_token.limited else ()):
            if at in known:
                continue
            try:
                self.per_token.take((name, token))
            except Problem as problem:
                late[at] = problem
        return late

    def used(self, name: str, token: str, sender: str) -> dict[str, str | None]:
        """Return what a token has sent."""
        self.strangers.must_be_ours(name, token, sender)
        try:
            states = self.store.used(name, token)  # first: an unknown token must not get a bucket
        except Problem as problem:
            self.strangers.met(sender, problem.code == "unknown-token")
            raise
        self.per_token.take((name, token))
        if states[REPORT] == "none":
            self.store.days.opened(name, token)
        return states

    def _forget(self, name: str, words: list[str], outcomes: list[Any]) -> None:
        for token, outcome in zip(words, outcomes, strict=True):
            if isinstance(outcome, Problem) and outcome.code == "unknown-token":
                self.per_token.forget((name, token))

    def _count(self, kind: str, outcomes: list[Any]) -> int:
        refused = [one for one in outcomes if isinstance(one, Problem)]
        for one in refused:
            self.metrics.add("tacit_refused_total", reason=one.code)
        stored = len(outcomes) - len(refused)
        self.metrics.add("tacit_stored_total", stored, kind=kind)
        return stored
