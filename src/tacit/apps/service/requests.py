"""Requests as they come: a JSON object with the right names, a word in a header."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json
from starlette.requests import Request

from tacit.apps.service import tokens
from tacit.apps.service.problems import Problem

MOST_ITEMS = 1000
"""Of a batch."""


async def body(request: Request, *names: str) -> dict[str, Any]:
    """A JSON object with exactly these names: nothing else has a place here."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem("not-json-type")
    try:
        found = from_json(await request.body(), allow_inf_nan=False)
    except ValueError:
        raise Problem("not-json") from None
    if type(found) is not dict or found.keys() != set(names):
        raise Problem("not-json", f"It must be an object with {' and '.join(names)} alone.")
    return found


def bearer(request: Request, code: str) -> str:
    """The token or key of the header; refused with this code where there is none."""
    scheme, _, word = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not is_word(word):
        raise Problem(code, "Say it in the header: Authorization: Bearer ….")
    return word


def is_word(value: Any) -> bool:
    """Whether it can be a token, a key, a receipt or a hash."""
    return type(value) is str and 1 <= len(value) <= tokens.LONGEST


def batch_of(items: Any, kind: str) -> list[tuple[str, Any]]:
    """Tokens with their reports or votes, and nothing else beside them."""
    try:
        # Loops that run in C: a batch is refused or taken as a whole, and quickly.
        if type(items) is not list or not 1 <= len(items) <= MOST_ITEMS:
            raise TypeError
        if set(map(type, items)) != {dict} or set(map(len, items)) != {2}:
            raise TypeError
        found = [(item["token"], item[kind]) for item in items]
        words = [token for token, _ in found]
        if set(map(type, words)) != {str} or not len(min(words, key=len)) >= 1:
            raise TypeError
        if len(max(words, key=len)) > tokens.LONGEST:
            raise TypeError
    except (TypeError, KeyError):
        expected = f"There must be 1 to {MOST_ITEMS} items, as documented."
        raise Problem("not-json", expected) from None
    return found
