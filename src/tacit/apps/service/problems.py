"""What the service refuses, and how it says so: problem documents (RFC 9457)."""

from __future__ import annotations

from typing import Any

from tacit.privacy import errors

MEDIA_TYPE = "application/problem+json"

KNOWN: dict[str, tuple[int, str]] = {
    "not-json": (400, "The body must be JSON as documented."),
    "unknown-token": (401, "This token is not known here."),
    "unknown-key": (401, "This key does not open this campaign."),
    "not-open": (403, "The campaign does not take answers now."),
    "full": (403, "The campaign has as many reports as it asked for."),
    "too-few": (403, "There are too few reports to show anything."),
    "not-found": (404, "There is nothing under this address."),
    "no-campaign": (404, "There is no such campaign."),
    "no-encoder": (404, "This mechanism has no encoder for browsers."),
    "no-model": (404, "No model has been published yet."),
    "no-vote": (404, "This campaign asks for no votes."),
    "unknown-receipt": (404, "This receipt belongs to nothing that is stored."),
    "not-allowed": (405, "This address does not take this method."),
    "already-reported": (409, "This token has reported something else."),
    "already-voted": (409, "This token has voted otherwise."),
    "other-artifact": (409, "The report was made with another mechanism."),
    "other-model": (409, "The vote is about another model."),
    "votes-exist": (409, "People have voted on the published model."),
    "withdrawn": (410, "What this token sent was withdrawn."),
    "too-large": (413, "The body is too large."),
    "not-json-type": (415, "The body must be of type application/json."),
    "not-a-report": (422, "The mechanism cannot have released this."),
    "not-a-vote": (422, "The ballot cannot have released this."),
    "bad-request": (422, "A parameter of the request does not fit."),
    "too-fast": (429, "Too many requests."),
    "failed": (500, "Something went wrong here."),
    "database-away": (503, "The database does not answer."),
}


class Problem(errors.TacitError):
    """A refusal with a code, a status and a reason; it never quotes what was sent."""

    def __init__(self, code: str, detail: str = "", **extra: Any) -> None:
        self.code = code
        self.status, self.title = KNOWN[code]
        self.detail, self.extra = detail or self.title, extra
        super().__init__(self.detail)

    def to_plain(self) -> dict[str, Any]:
        """The problem document."""
        said = {"title": self.title, "status": self.status, "detail": self.detail}
        return {"type": f"tacit:{self.code}", **said, **self.extra}
