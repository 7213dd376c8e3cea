"""Request bodies in the OpenAPI document, which the routes parse themselves for speed."""

from __future__ import annotations

from typing import Any

from tacit.apps.service.problems import KNOWN, MEDIA_TYPE

_SHA256 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_TOKEN = {"type": "string", "minLength": 1, "maxLength": 128}
_WHOLE = {"type": "integer"}
_SYMBOLS = {"oneOf": [_WHOLE, {"type": "array", "items": _WHOLE, "minItems": 1}]}
_REPORT = {
    "type": "object",
    "description": "Columns of one report as the mechanism released it: whole numbers only.",
    "additionalProperties": _SYMBOLS,
    "minProperties": 1,
}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": _WHOLE,
        "detail": {"type": "string"},
    },
}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }


def _many(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "maxItems": most, "items": items}


UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""The `openapi_extra` of a route that takes a packed mechanism or model."""


CHANGES = _object(changes={"type": "object"})
"""The body of a request that changes a draft."""


def bodies(most: int, most_invited: int) -> dict[str, dict[str, Any]]:
    """Return schemas of request bodies by name."""
    report, vote = _object(token=_TOKEN, report=_REPORT), _object(token=_TOKEN, vote=_SYMBOLS)
    count = {"type": "integer", "minimum": 1, "maximum": most_invited}
    return {
        "report": _object(artifact=_SHA256, report=_REPORT),
        "reports": _object(artifact=_SHA256, reports=_many(report, most)),
        "vote": _object(model=_SHA256, vote=_SYMBOLS),
        "votes": _object(model=_SHA256, votes=_many(vote, most)),
        "withdrawal": _object(receipt=_TOKEN),
        "invitations": _object(count=count),
        "key": _object(key={"type": "string", "pattern": "^[A-Za-z0-9_-]{32}$"}),
    }


def body(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the `openapi_extra` of a route with this body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def problems() -> dict[int | str, dict[str, Any]]:
    """Return every status that a refusal can have, with its problems."""
    by_status: dict[int, list[str]] = {}
    for code, (status, title) in KNOWN.items():
        by_status.setdefault(status, []).append(f"tacit:{code}: {title}")
    return {
        status: {"description": " ".join(titles), "content": {MEDIA_TYPE: {"schema": _PROBLEM}}}
        for status, titles in by_status.items()
    }
