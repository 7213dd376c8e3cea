"""Reports and votes on their way to the server, one by one or in batches.

A body is made once, and sent again byte for byte.
"""

from __future__ import annotations

from typing import Any

from tacit.apps.service.connection import Connection, ServiceError, field_of, problem_of, to_json

LARGEST_BATCH = 1000
_ABOUT = {"report": "artifact", "vote": "model"}


def body_of(kind: str, mark: str, content: Any) -> str:
    """Return the body of a request; `mark` is the hash of the mechanism, or of the model."""
    return to_json({_ABOUT[kind]: mark, kind: content}).decode()


def send(connection: Connection, token: str, kind: str, body: str) -> str:
    """Send one answer; return the receipt."""
    answer = connection.post(f"/{kind}s", body.encode(), bearer=token)
    return field_of(answer, "receipt", str)


def send_many(
    connection: Connection, kind: str, mark: str, given: list[dict[str, Any]]
) -> list[str | ServiceError]:
    """Send answers with their tokens; return a receipt or an error for each, in order."""
    outcomes: list[str | ServiceError] = []
    for start in range(0, len(given), LARGEST_BATCH):
        some = given[start : start + LARGEST_BATCH]
        body = to_json({_ABOUT[kind]: mark, f"{kind}s": some})
        results = field_of(connection.post(f"/{kind}s/batch", body), "results", list)
        outcomes += [_outcome(one) for one, _ in zip(results, some, strict=True)]
    return outcomes


def _outcome(result: Any) -> str | ServiceError:
    if isinstance(result, dict) and "receipt" in result:
        return str(result["receipt"])
    refused = field_of(result, "problem", dict)
    return problem_of(refused, field_of(refused, "status", int))
