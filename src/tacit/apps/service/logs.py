"""The server's log: one JSON object per line, which never holds what somebody sent.

Only the fields that this code base names are written, with the type of an exception and the places
in the code that it passed, not its message: that may quote a token, an address or a value.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that is being answered, which its answer has in `X-Request-Id`."""

EVERY = 60.0
"""Seconds between two lines of a kind that senders can cause at will."""

_OWN = "tacit.apps.service"
_log = logging.getLogger(_OWN)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": moment, "level": record.levelname.lower()}
        line["logger"] = record.name
        # Other code's messages are cut before anything that was put into them.
        line["event"] = str(record.msg).split("%", 1)[0].partition("\n")[0].strip()
        if record.name.startswith(_OWN):
            line["event"] = str(record.msg)
            line |= getattr(record, "fields", {})
        if (current := request_id.get()) is not None:
            line["request_id"] = current
        if record.exc_info and record.exc_info[1] is not None:
            line |= described(record.exc_info[1])
        return json.dumps(line)


def described(error: BaseException) -> dict[str, Any]:
    """Describe an exception by its type and its way through the code, without its message."""
    steps = traceback.extract_tb(error.__traceback__)
    where = [f"{step.filename.rpartition('/')[2]}:{step.lineno}:{step.name}" for step in steps]
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None)
    named = {"error": type(cause).__name__, "code": code, "trace": where[-12:]}
    return {name: value for name, value in named.items() if value is not None}


def configure() -> None:
    """Send warnings and errors of everything in this process to standard error, as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


class Rarely:
    """Logs one line per event and minute, with the number of events since the last line."""

    def __init__(self, every: float = EVERY) -> None:
        self.every = every
        self._last: dict[tuple[Any, ...], float] = {}
        self._since: dict[tuple[Any, ...], int] = {}

    def warning(self, event: str, error: BaseException | None = None, **fields: str) -> None:
        """Log or count an event; `fields` are names of this code base, never of a sender."""
        key, now = (event, type(error), *sorted(fields.items())), time.monotonic()
        count = self._since.get(key, 0) + 1
        if now - self._last.get(key, -self.every) < self.every:
            self._since[key] = count
            return
        self._last[key], self._since[key] = now, 0
        extra = {**fields, "count": count, **(described(error) if error else {})}
        _log.warning(event, extra={"fields": extra})
