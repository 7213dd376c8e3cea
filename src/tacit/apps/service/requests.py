"""Checks on incoming requests: a JSON object with the right names, a token in a header."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json
from starlette.requests import Request

from tacit.apps.service import tokens
from tacit.apps.service.limits import sender_of
from tacit.apps.service.problems import Problem

MOST_ITEMS = 1000
"""Largest number of answers in a batch."""


async def body(request: Request, *names: str) -> dict[str, Any]:
    """Read a JSON object with exactly these names; refuse any other body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem("not-json-type")
    try:
        content = from_json(await request.body(), allow_inf_nan=False)
    except ValueError:
        raise Problem("not-json") from None
    if type(content) is not dict or content.keys() != set(names):
        fields = " and ".join(names)
        raise Problem("not-json", f"The body must be a JSON object with {fields}, and no others.")
    return content


def bearer(request: Request, code: str) -> str:
    """Return the token or key of the Authorization header; refuse with this code if absent."""
    scheme, _, word = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not is_word(word):
        raise Problem(code, "Send it in the header Authorization: Bearer ….")
    return word


def sender(request: Request) -> str:
    """Return the address that limits of this request count under."""
    return sender_of(request.client.host) if request.client else ""


def is_word(value: Any) -> bool:
    """Whether a value can be a token, a key, a receipt or a hash."""
    return type(value) is str and 1 <= len(value) <= tokens.LONGEST


def batch_of(items: Any, kind: str) -> list[tuple[str, Any]]:
    """Return tokens with their reports or votes; refuse a batch with anything else in it."""
    try:
        # These loops run in C, so that a batch is accepted or refused quickly, as a whole.
        if type(items) is not list or not 1 <= len(items) <= MOST_ITEMS:
            raise TypeError
        if set(map(type, items)) != {dict} or set(map(len, items)) != {2}:
            raise TypeError
        answers = [(item["token"], item[kind]) for item in items]
        words = [token for token, _ in answers]
        if set(map(type, words)) != {str} or not len(min(words, key=len)) >= 1:
            raise TypeError
        if len(max(words, key=len)) > tokens.LONGEST:
            raise TypeError
    except (TypeError, KeyError):
        expected = f"A batch must have 1 to {MOST_ITEMS} items, each with token and {kind}."
        raise Problem("not-json", expected) from None
    return answers
