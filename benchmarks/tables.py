"""Tables of `tacit study tables` as pandas frames, for benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tacit_papers.data import tables
from tacit_papers.data.tables import TUNED
from tacit_papers.parts.table_case import MOST_TEST

__all__ = ["MOST_TEST", "TABLES", "TUNED", "Table"]

Table = tuple[Any, Any]
"""Rows, and labels as codes from 0."""


def _frame(name: str) -> Table:
    table = tables.load(name)
    return table.rows.to_pandas(), table.labels


PICTURES = ("mnist", "fashion_mnist", "cifar10", "pneumoniamnist")
TABLES: dict[str, tuple[Callable[[], Table], tuple[int, int]]] = {
    name: (partial(_frame, name), (source.inhouse, source.people))
    for name, source in tables.SOURCES.items()
    if name not in PICTURES
}
"""How to load each table, and how many rows are in-house and how many belong to people."""
