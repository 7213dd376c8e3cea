"""Many new answers into PostgreSQL at once, by COPY: a third of the work of an INSERT."""

from __future__ import annotations

import numpy as np
import sqlalchemy as sql

from tacit.apps.service import tables
from tacit.apps.service.tokens import ROW_BYTES

_INTO = 'COPY answers ("row", campaign, kind, round, content) FROM STDIN (FORMAT BINARY)'
_HEAD, _END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


def copy(
    connection: sql.Connection, number: int, code: dict[str, int], given: tables.Given
) -> None:
    """Insert answers of one size that were invited; raise `IntegrityError` if one is not new."""
    import psycopg

    content = _binary(number, code, given)
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    try:
        with driver.cursor() as cursor, cursor.copy(_INTO) as into:
            into.write(content)
    except psycopg.errors.UniqueViolation as error:
        raise sql.exc.IntegrityError(None, None, error) from None
    except psycopg.Error as error:
        if driver.closed:
            connection.invalidate(error)
        gone = bool(driver.closed)
        raise sql.exc.OperationalError(None, None, error, connection_invalidated=gone) from None


def _binary(number: int, code: dict[str, int], given: tables.Given) -> bytes:
    """Return the rows as COPY's binary format has them: each value after its length."""
    rows = sorted(given)
    width = len(given[rows[0]][1])
    layout = [
        *(("columns", ">i2"), ("row_size", ">i4"), ("row", f"V{ROW_BYTES}")),
        *(("campaign_size", ">i4"), ("campaign", ">i4")),
        *(("kind_size", ">i4"), ("kind", ">i2"), ("round_size", ">i4"), ("round", ">i2")),
        *(("content_size", ">i4"), ("content", f"V{width}")),
    ]
    lines = np.empty(len(rows), layout)
    sizes = {"columns": 5, "row_size": ROW_BYTES, "campaign_size": 4}
    sizes |= {"kind_size": 2, "round_size": 2, "content_size": width}
    for name, value in {**sizes, "campaign": number, **code}.items():
        lines[name] = value
    lines["row"] = np.frombuffer(b"".join(rows), f"V{ROW_BYTES}")
    lines["content"] = np.frombuffer(b"".join([given[row][1] for row in rows]), f"V{width}")
    return _HEAD + lines.tobytes() + _END
