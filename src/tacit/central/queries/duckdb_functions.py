"""Refuse statements whose functions are not DuckDB's own.

In DuckDB a macro stands before a built-in function of its name, operators included, and a Python
function can add an overload to one. With somebody's `least` in place of DuckDB's no value is
clipped. So before a statement runs on a connection that was handed in, each function that it calls
must have the overloads that a fresh DuckDB of the same version has, and no others. Operators are
functions here; casts, comparisons, CASE and COALESCE are not, and cannot be replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tacit.privacy import errors

Overloads = frozenset[tuple[str, ...]]

# Nothing but columns of a table function under its full name: no macro can change the answer.
_LISTED = """
SELECT function_name, database_name, schema_name, function_type, return_type, parameter_types,
    varargs
FROM system.main.duckdb_functions()
"""
_FRESH: dict[str, Any] = {
    "threads": 1,
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def must_be_built_in(connection: Any, sql: str) -> None:
    """Refuse where a function that the statement calls was replaced or added to."""
    called = names(sql)
    theirs, own = overloads(connection), _own()
    for name in sorted(called):
        if not own.get(name) or theirs.get(name, frozenset()) != own[name]:
            remedy = "Drop what is defined under this name, or give a connection without it."
            errors.refuse("Curator", "functions", "DuckDB's own", f"another {name}", remedy)


def names(sql: str) -> set[str]:
    """The functions and operators that a statement calls, as DuckDB's parser has them."""
    with _fresh() as connection:
        ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(text)
    if tree.get("error") is not False:
        raise errors.TacitError("queries: a statement could not be checked before it ran.")
    return set(_called(tree))


def overloads(connection: Any) -> dict[str, Overloads]:
    """By name, in lower case: where each overload is, its kind and its types."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for name, *rest in connection.execute(_LISTED).fetchall():
        found.setdefault(name.casefold(), set()).add(tuple(map(str, rest)))
    return {name: frozenset(some) for name, some in found.items()}


@lru_cache(maxsize=1)
def _own() -> dict[str, Overloads]:
    with _fresh() as connection:
        return overloads(connection)


def _fresh() -> Any:
    import duckdb

    return duckdb.connect(":memory:", config=_FRESH)


def _called(tree: Any) -> Iterator[str]:
    """Walk with a stack: conditions are deep."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if isinstance(node.get("function_name"), str):
                yield node["function_name"].casefold()
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
