"""Queries as frozen values: a statistic, the rows that it is about, and the groups. No data.

A condition (`Where`) is a tree of comparisons between columns and literals. A row counts if the
condition is true, as in SQL: a comparison with NULL is neither true nor false. The plan checks
column names and types of literals against the table before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from itertools import pairwise
from typing import Any

from tacit.privacy import errors

Literal = str | int | float | bool | date | datetime
"""A value that a column may be compared with. A date may also be text: "2024-01-31"."""

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_MOST_EDGES = 2**14
_MOST_NODES = 1000
_DEEPEST = 50


@dataclass(frozen=True)
class Compare:
    """`column operator value`, with an operator from `COMPARISONS`."""

    column: str
    operator: str
    value: Literal

    def __post_init__(self) -> None:
        column_name("where", self.column)
        errors.choice("where", "operator", self.operator, COMPARISONS)
        literal("where", self.value)


@dataclass(frozen=True)
class OneOf:
    """`column IN (values)`."""

    column: str
    values: tuple[Literal, ...]

    def __post_init__(self) -> None:
        column_name("where", self.column)
        _tuple(self, "values")
        if not 1 <= len(self.values) <= _MOST_NODES:
            errors.refuse("where", "IN", f"a list of 1 to {_MOST_NODES} values", len(self.values))
        for value in self.values:
            literal("where", value)


@dataclass(frozen=True)
class Between:
    """`column BETWEEN lower AND upper`, both ends included."""

    column: str
    lower: Literal
    upper: Literal

    def __post_init__(self) -> None:
        column_name("where", self.column)
        literal("where", self.lower)
        literal("where", self.upper)


@dataclass(frozen=True)
class IsNull:
    """`column IS NULL`."""

    column: str

    def __post_init__(self) -> None:
        column_name("where", self.column)


@dataclass(frozen=True)
class Not:
    """Negation of a condition."""

    part: Where

    def __post_init__(self) -> None:
        _conditions("NOT", (self.part,))


@dataclass(frozen=True)
class And:
    """Conjunction: all conditions hold."""

    parts: tuple[Where, ...]

    def __post_init__(self) -> None:
        _tuple(self, "parts")
        _conditions("AND", self.parts)


@dataclass(frozen=True)
class Or:
    """Disjunction: at least one condition holds."""

    parts: tuple[Where, ...]

    def __post_init__(self) -> None:
        _tuple(self, "parts")
        _conditions("OR", self.parts)


Where = Compare | OneOf | Between | IsNull | Not | And | Or


@dataclass(frozen=True, kw_only=True)
class _BaseQuery:
    """The rows and the grouping columns of a query. Abstract."""

    where: Where | None = None
    by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        by = (self.by,) if isinstance(self.by, str) else self.by
        object.__setattr__(self, "by", by)
        _tuple(self, "by")
        for name in self.by:
            column_name("by", name)
        if len(set(self.by)) != len(self.by):
            errors.refuse("by", "columns", "different from one another", list(self.by))
        if self.where is not None:
            condition(self.where)

    def filtered(self, where: Where | None) -> Any:
        """Return the same query for the rows that also satisfy `where`."""
        if where is None:
            return self
        return replace(self, where=where if self.where is None else And((self.where, where)))


@dataclass(frozen=True)
class Count(_BaseQuery):
    """The number of rows; with a column, of rows with a value there (neither NULL nor NaN)."""

    column: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.column is not None:
            column_name("Count", self.column)

    @property
    def label(self) -> str:
        return f"count({self.column or '*'})"


@dataclass(frozen=True)
class _OfColumn(_BaseQuery):
    """A statistic of one column. Abstract."""

    column: str

    def __post_init__(self) -> None:
        super().__post_init__()
        column_name(type(self).__name__, self.column)


@dataclass(frozen=True)
class Sum(_OfColumn):
    """The sum of a bounded column."""

    @property
    def label(self) -> str:
        return f"sum({self.column})"


@dataclass(frozen=True)
class Mean(_OfColumn):
    """The mean of a bounded column."""

    @property
    def label(self) -> str:
        return f"avg({self.column})"


@dataclass(frozen=True)
class Variance(_OfColumn):
    """The population variance of a bounded column."""

    @property
    def label(self) -> str:
        return f"variance({self.column})"


@dataclass(frozen=True)
class Quantile(_OfColumn):
    """A quantile of a bounded column, to the nearest of `cells` equal cells between the bounds."""

    level: float | Fraction = 0.5
    cells: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        level = errors.rational("Quantile", "level", self.level).limit_denominator(10**6)
        if not 0 <= level <= 1:
            errors.refuse("Quantile", "level", "from 0 to 1", self.level)
        object.__setattr__(self, "level", level)
        cells = errors.whole("Quantile", "cells", self.cells, least=2, most=_MOST_EDGES)
        object.__setattr__(self, "cells", cells)

    @property
    def label(self) -> str:
        if self.level == Fraction(1, 2):
            return f"median({self.column})"
        return f"quantile({self.column}, {float(self.level):g})"


@dataclass(frozen=True)
class Histogram(_OfColumn):
    """The number of rows between consecutive edges: [e₀, e₁), …, the last interval closed.

    Values outside the edges are not counted; use −inf and inf as outer edges to count them.
    """

    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            edges = tuple(float(edge) for edge in self.edges)
        except (TypeError, ValueError, OverflowError):
            errors.refuse("Histogram", "edges", "numbers", self.edges)
        if not 2 <= len(edges) <= _MOST_EDGES:
            errors.refuse("Histogram", "edges", f"2 to {_MOST_EDGES} numbers", len(edges))
        if not all(a < b for a, b in pairwise(edges)):
            errors.refuse("Histogram", "edges", "increasing numbers", list(edges))
        object.__setattr__(self, "edges", edges)

    @property
    def label(self) -> str:
        return f"histogram({self.column})"


@dataclass(frozen=True)
class TopK(_OfColumn):
    """The k most frequent of a column's declared keys, the most frequent first."""

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "k", errors.whole("TopK", "k", self.k, least=1, most=1000))
        if self.by:
            errors.refuse("TopK", "by", "empty", list(self.by), "Ask once per group, with where.")

    @property
    def label(self) -> str:
        return f"top_k({self.column}, {self.k})"


Query = Count | Sum | Mean | Variance | Quantile | Histogram | TopK


@dataclass(frozen=True)
class Several:
    """Queries about the same rows and groups, answered together for one price.

    Count, sum, mean and variance of a column share one release if that needs less noise.
    """

    queries: tuple[Query, ...]

    def __post_init__(self) -> None:
        _tuple(self, "queries")
        if not 1 <= len(self.queries) <= 64:
            errors.refuse("Several", "queries", "1 to 64 queries", len(self.queries))
        for query in self.queries:
            if not isinstance(query, Query):
                errors.refuse(
                    "Several", "queries", "queries of tacit.queries.model", type(query).__name__
                )
        if len({(query.where, query.by) for query in self.queries}) > 1:
            errors.refuse("Several", "queries", "about the same rows and groups", "different ones")

    @property
    def label(self) -> str:
        return ", ".join(query.label for query in self.queries)

    @property
    def where(self) -> Where | None:
        return self.queries[0].where

    @property
    def by(self) -> tuple[str, ...]:
        return self.queries[0].by


def contingency(columns: tuple[str, ...], where: Where | None = None) -> Count:
    """Return the query for a contingency table: a count grouped by all columns."""
    if len(columns) < 2:
        errors.refuse("contingency", "columns", "two or more", list(columns))
    return Count(where=where, by=tuple(columns))


def median(column: str, *, where: Where | None = None, by: tuple[str, ...] = ()) -> Quantile:
    """Return the query for the quantile at level ½."""
    return Quantile(column, where=where, by=by)


def parts_of(where: Where) -> Iterator[Where]:
    """Iterate over a condition and every condition inside it."""
    for part, _ in _nested(where):
        yield part


def columns_of(where: Where | None) -> set[str]:
    """Return the columns that a condition names."""
    if where is None:
        return set()
    return {part.column for part in parts_of(where) if not isinstance(part, And | Or | Not)}


def condition(where: Any) -> Where:
    """Check that this is a condition of bounded size."""
    _conditions("where", (where,))
    for size, (_, depth) in enumerate(_nested(where), start=1):
        if depth > _DEEPEST:
            errors.refuse("where", "condition", f"nested at most {_DEEPEST} deep", depth)
        if size > _MOST_NODES:
            errors.refuse("where", "condition", f"of at most {_MOST_NODES} parts", size)
    checked: Where = where
    return checked


def column_name(where: str, name: Any) -> str:
    """Check the name of a column: text without control characters that is not empty."""
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 200:
        errors.refuse(where, "column", "a name of 1 to 200 printable characters", name)
    return name


def literal(where: str, value: Any) -> Literal:
    """Check a literal: a finite number, text without NUL, a Boolean or a date."""
    if not isinstance(value, Literal):
        errors.refuse(where, "value", "a number, text, Boolean or date", type(value).__name__)
    if isinstance(value, str) and ("\0" in value or len(value) > 10_000 or not _is_unicode(value)):
        errors.refuse(where, "value", "text of at most 10,000 characters without NUL", len(value))
    if isinstance(value, int | float) and not abs(value) <= 1e300:
        errors.refuse(where, "value", "finite, within 1e300", value)
    checked: Literal = value
    return checked


def _is_unicode(text: str) -> bool:
    """Check that text has no lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _nested(where: Where) -> Iterator[tuple[Where, int]]:
    """Iterate over all parts with their depth, with a stack: any depth can then be refused."""
    waiting = [(where, 1)]
    while waiting:
        part, depth = waiting.pop()
        yield part, depth
        if isinstance(part, And | Or):
            waiting += [(inside, depth + 1) for inside in part.parts]
        elif isinstance(part, Not):
            waiting.append((part.part, depth + 1))


def _conditions(name: str, parts: tuple[Any, ...]) -> None:
    if not parts:
        errors.refuse("where", name, "of at least one condition", "none")
    for part in parts:
        if not isinstance(part, Where):
            errors.refuse("where", name, "of conditions", type(part).__name__)


def _tuple(value: Any, name: str) -> None:
    given = getattr(value, name)
    if not isinstance(given, tuple | list):
        errors.refuse(type(value).__name__, name, "a tuple", type(given).__name__)
    object.__setattr__(value, name, tuple(given))
