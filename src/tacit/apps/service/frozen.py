"""What stays once a campaign is closed: results as they were computed first, never again.

Answers from before and after a withdrawal reveal the answer that was withdrawn. So what has been
computed from a closed campaign is stored, and given again; what was withdrawn is deleted all the
same.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sql

from tacit.apps.service import tables
from tacit.apps.service.database import named_errors

_F = tables.frozen.c
_PUT = sql.text(
    "INSERT INTO frozen (campaign, asked, content) VALUES (:campaign, :asked, :content) "
    "ON CONFLICT (campaign, asked) DO NOTHING"
)


def find(engine: sql.Engine, name: str, asked: Any) -> Any:
    """Return what was stored for this request; None if nothing was."""
    query = sql.select(_F.content).where(_F.campaign == name, _F.asked == _mark(asked))
    with named_errors(), engine.connect() as connection:
        content = connection.execute(query).scalar()
    return None if content is None else json.loads(content)


def keep(engine: sql.Engine, name: str, asked: Any, result: Any) -> Any:
    """Store a result unless there is one already; return the one that is stored."""
    row = {"campaign": name, "asked": _mark(asked), "content": json.dumps(result)}
    with named_errors(), engine.begin() as connection:
        connection.execute(_PUT, row)
    return find(engine, name, asked)


def _mark(asked: Any) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
