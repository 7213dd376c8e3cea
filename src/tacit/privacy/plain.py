"""Events and guarantees as JSON-ready data, and back: what ledgers and certificates store."""

from __future__ import annotations

import dataclasses
import math
import re
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar, get_type_hints

from tacit.privacy import errors, events, guarantees
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee

T = TypeVar("T")


def to_plain(value: Event | Guarantee) -> dict[str, Any]:
    """Convert an event or a guarantee to JSON-ready data; fractions become text like "1/10"."""
    fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return {"kind": type(value).__name__, **fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Event | Guarantee):
        return to_plain(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum | Fraction):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    # JSON readers do not keep 64-bit weights exactly.
    return str(value) if isinstance(value, int) and abs(value) > errors.LARGEST_INTEGER else value


def event_from_plain(data: Any) -> Event:
    """Build an event from plain data; refuse unknown, missing and additional fields."""
    return _build(data, events.KINDS)


def guarantee_from_plain(data: Any) -> Guarantee:
    """Build a guarantee from plain data; refuse unknown, missing and additional fields."""
    return _build(data, guarantees.KINDS)


def _build(data: Any, kinds: dict[str, type[T]]) -> T:
    kind = kinds.get(str(data.get("kind"))) if isinstance(data, dict) else None
    if kind is None:
        known = ", ".join(kinds)
        got = data.get("kind") if isinstance(data, dict) else data
        errors.refuse("from_plain", "kind", f"one of {known}", got)
    hints = get_type_hints(kind)
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if set(data) - {"kind"} != names:
        errors.refuse(kind.__name__, "fields", f"exactly {sorted(names)}", sorted(data))
    values = {name: _parse(kind.__name__, name, hints[name], data[name]) for name in names}
    return kind(**values)


def _parse(where: str, name: str, kind: Any, value: Any) -> Any:
    if kind is Event:
        return event_from_plain(value)
    if kind is Guarantee:
        return guarantee_from_plain(value)
    if kind is Fraction and isinstance(value, str):
        return errors.rational(where, name, value)
    if kind is int and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,40}", value):
        return int(value)
    if kind == tuple[Event, ...] and isinstance(value, list):
        return tuple(event_from_plain(item) for item in value)
    if kind == tuple[float, ...] and isinstance(value, list):
        return tuple(_parse(where, name, float, item) for item in value)
    if kind is float and value == "inf":
        return math.inf
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            errors.refuse(where, name, "a finite number", value)
    if type(value) is kind or (isinstance(value, str) and issubclass(kind, str)):
        return value
    errors.refuse(where, name, f"of type {getattr(kind, '__name__', kind)}", value)
