"""Refuse statements whose functions are not DuckDB's own.

In DuckDB, a macro shadows the built-in function or operator of the same name, and a Python function
can add an overload to a built-in one. If a macro `least` replaced DuckDB's, no value would be
clipped. So before a statement runs on a user's connection, each function that it calls must have
exactly the overloads that it has in a fresh DuckDB of the same version. Operators count as
functions; casts, comparisons, CASE and COALESCE do not, and cannot be replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tacit.privacy import errors

Overloads = frozenset[tuple[str, ...]]

# Only columns of a table function under its full name: no macro can change the result.
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
    """Refuse a statement that calls a function that was replaced or overloaded."""
    called = names(sql)
    theirs, own = overloads(connection), _own()
    for name in sorted(called):
        if not own.get(name) or theirs.get(name, frozenset()) != own[name]:
            remedy = "Drop what is defined under this name, or pass a connection without it."
            errors.refuse("Curator", "functions", "DuckDB's own", f"another {name}", remedy)


def names(sql: str) -> set[str]:
    """Return the functions and operators that a statement calls, as DuckDB parses it."""
    with _fresh() as connection:
        ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(text)
    if tree.get("error") is not False:
        raise errors.TacitError(
            "queries: the functions of a statement could not be checked. It was not run."
        )
    return set(_called(tree))


def overloads(connection: Any) -> dict[str, Overloads]:
    """List the schema, kind and types of each overload, by the function's name in lower case."""
    by_name: dict[str, set[tuple[str, ...]]] = {}
    for name, *rest in connection.execute(_LISTED).fetchall():
        by_name.setdefault(name.casefold(), set()).add(tuple(map(str, rest)))
    return {name: frozenset(some) for name, some in by_name.items()}


@lru_cache(maxsize=1)
def _own() -> dict[str, Overloads]:
    with _fresh() as connection:
        return overloads(connection)


def _fresh() -> Any:
    import duckdb

    return duckdb.connect(":memory:", config=_FRESH)


def _called(tree: Any) -> Iterator[str]:
    """List the functions of a syntax tree, with a stack because conditions can be deep."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if isinstance(node.get("function_name"), str):
                yield node["function_name"].casefold()
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
