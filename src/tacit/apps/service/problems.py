"""The service's refusals, as problem documents (RFC 9457)."""

from __future__ import annotations

from typing import Any

from tacit.privacy import errors

MEDIA_TYPE = "application/problem+json"

KNOWN: dict[str, tuple[int, str]] = {
    "not-json": (400, "The body must be JSON as documented."),
    "unknown-token": (401, "The server does not know this invitation code."),
    "unknown-key": (401, "This key does not open this campaign."),
    "not-open": (403, "The campaign is not taking answers now."),
    "full": (403, "The campaign has all the reports that it asked for."),
    "too-few": (403, "There are too few reports to show results."),
    "not-found": (404, "There is nothing at this address."),
    "no-campaign": (404, "There is no such campaign."),
    "no-round": (404, "The campaign has no such round."),
    "no-encoder": (404, "This mechanism has no encoder for browsers."),
    "no-graph": (404, "This model has no graph for browsers."),
    "no-model": (404, "No model has been published yet."),
    "no-vote": (404, "This campaign takes no votes."),
    "unknown-receipt": (404, "The server does not know this receipt."),
    "not-allowed": (405, "This address does not take this method."),
    "already-reported": (409, "Another report was already sent with this invitation code."),
    "already-voted": (409, "Another vote was already sent with this invitation code."),
    "other-artifact": (409, "The report was made with a mechanism that is not the campaign's."),
    "other-model": (409, "The vote is about another model."),
    "other-round": (409, "Another round is open."),
    "not-draft": (409, "The campaign is open: what people are told can no longer be changed."),
    "published": (409, "The campaign is closed and its model is published: it stays as it is."),
    "votes-exist": (409, "People have already voted on the published model."),
    "withdrawn": (410, "The answer with this invitation code was withdrawn."),
    "too-large": (413, "The body is too large."),
    "not-json-type": (415, "The body must be of type application/json."),
    "not-a-report": (422, "The mechanism cannot have released this report."),
    "not-a-vote": (422, "The ballot cannot have released this vote."),
    "bad-request": (422, "A parameter of the request is not valid."),
    "too-fast": (429, "Too many requests."),
    "failed": (500, "Something went wrong on the server."),
    "database-away": (503, "The database does not respond."),
}


class Problem(errors.TacitError):
    """A refusal with a code, a status and a reason; it never quotes what was sent."""

    def __init__(self, code: str, detail: str = "", **extra: Any) -> None:
        self.code = code
        self.status, self.title = KNOWN[code]
        self.detail, self.extra = detail or self.title, extra
        super().__init__(self.detail)

    def to_plain(self) -> dict[str, Any]:
        """Return the problem document."""
        fields = {"title": self.title, "status": self.status, "detail": self.detail}
        return {"type": f"tacit:{self.code}", **fields, **self.extra}
