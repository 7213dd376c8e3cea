"""Questions as frozen values: what is asked, of which rows, by which groups. They hold no data.

A condition (`Where`) is a tree of comparisons between a column and literals. A row counts where
it is true, as in SQL: a comparison with NULL is neither true nor false. Names of columns and types
of literals are checked against the table by the plan, before anything is read.
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
"""What a column may be compared with. A date may also be given as text, "2024-01-31"."""

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_MOST_EDGES = 2**14
_MOST_NODES = 1000
_DEEPEST = 50


@dataclass(frozen=True)
class Compare:
    """`column operator value`, the operator one of `COMPARISONS`."""

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
    """Not this."""

    part: Where

    def __post_init__(self) -> None:
        _conditions("NOT", (self.part,))


@dataclass(frozen=True)
class And:
    """All of these."""

    parts: tuple[Where, ...]

    def __post_init__(self) -> None:
        _tuple(self, "parts")
        _conditions("AND", self.parts)


@dataclass(frozen=True)
class Or:
    """At least one of these."""

    parts: tuple[Where, ...]

    def __post_init__(self) -> None:
        _tuple(self, "parts")
        _conditions("OR", self.parts)


Where = Compare | OneOf | Between | IsNull | Not | And | Or


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """Which rows, and by which columns of declared keys. Abstract."""

    where: Where | None = None
    by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        by = (self.by,) if isinstance(self.by, str) else self.by
        object.__setattr__(self, "by", by)
        _tuple(self, "by")
        for name in self.by:
            column_name("by", name)
        if len(set(self.by)) != len(self.by):
            errors.refuse("by", "columns", "different from each other", list(self.by))
        if self.where is not None:
            condition(self.where)

    def filtered(self, where: Where | None) -> Any:
        """The same question of the rows for which `where` holds too."""
        if where is None:
            return self
        return replace(self, where=where if self.where is None else And((self.where, where)))


@dataclass(frozen=True)
class Count(_Asked):
    """How many rows; with a column, how many of them hold a value there (no NULL, no NaN)."""

    column: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.column is not None:
            column_name("Count", self.column)

    @property
    def label(self) -> str:
        return f"count({self.column or '*'})"


@dataclass(frozen=True)
class _OfColumn(_Asked):
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
    """How many rows lie between neighbouring edges: [e₀, e₁), …, the last one closed.

    What lies outside the edges is counted nowhere: put −inf and inf at the ends to count it.
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
    """The k keys of a column that most rows hold, best first, out of its declared keys."""

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "k", errors.whole("TopK", "k", self.k, least=1, most=1000))
        if self.by:
            errors.refuse("TopK", "by", "empty", list(self.by), "Ask for each group by where.")

    @property
    def label(self) -> str:
        return f"top_k({self.column}, {self.k})"


Query = Count | Sum | Mean | Variance | Quantile | Histogram | TopK


@dataclass(frozen=True)
class Several:
    """Questions about the same rows and groups, answered together for one price.

    Count, sum, mean and variance of a column come from one release where that is less noise.
    """

    queries: tuple[Query, ...]

    def __post_init__(self) -> None:
        _tuple(self, "queries")
        if not 1 <= len(self.queries) <= 64:
            errors.refuse("Several", "queries", "1 to 64 questions", len(self.queries))
        for query in self.queries:
            if not isinstance(query, Query):
                errors.refuse("Several", "queries", "questions", type(query).__name__)
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
    """The contingency table of columns with declared keys: a count by all of them."""
    if len(columns) < 2:
        errors.refuse("contingency", "columns", "two or more", list(columns))
    return Count(where=where, by=tuple(columns))


def median(column: str, *, where: Where | None = None, by: tuple[str, ...] = ()) -> Quantile:
    """The quantile at level ½."""
    return Quantile(column, where=where, by=by)


def parts_of(where: Where) -> Iterator[Where]:
    """The condition and every condition inside it."""
    for part, _ in _nested(where):
        yield part


def columns_of(where: Where | None) -> set[str]:
    """The columns that a condition names."""
    if where is None:
        return set()
    return {part.column for part in parts_of(where) if not isinstance(part, And | Or | Not)}


def condition(where: Any) -> Where:
    """A condition of bounded size; anything else is refused."""
    _conditions("where", (where,))
    for size, (_, depth) in enumerate(_nested(where), start=1):
        if depth > _DEEPEST:
            errors.refuse("where", "condition", f"nested at most {_DEEPEST} deep", depth)
        if size > _MOST_NODES:
            errors.refuse("where", "condition", f"of at most {_MOST_NODES} parts", size)
    found: Where = where
    return found


def column_name(where: str, name: Any) -> str:
    """The name of a column: nonempty text without control characters."""
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 200:
        errors.refuse(where, "column", "a name of 1 to 200 printable characters", name)
    return name


def literal(where: str, value: Any) -> Literal:
    """A finite number, text without NUL, a truth value or a date."""
    if not isinstance(value, Literal):
        errors.refuse(where, "value", "a number, text, truth value or date", type(value).__name__)
    if isinstance(value, str) and ("\0" in value or len(value) > 10_000 or not _is_unicode(value)):
        errors.refuse(where, "value", "text of at most 10,000 characters without NUL", len(value))
    if isinstance(value, int | float) and not abs(value) <= 1e300:
        errors.refuse(where, "value", "finite, within 1e300", value)
    found: Literal = value
    return found


def _is_unicode(text: str) -> bool:
    """Lone halves of characters are none."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _nested(where: Where) -> Iterator[tuple[Where, int]]:
    """Every part with its depth; a stack, so that no depth is too deep to be refused."""
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
    found = getattr(value, name)
    if not isinstance(found, tuple | list):
        errors.refuse(type(value).__name__, name, "a tuple", type(found).__name__)
    object.__setattr__(value, name, tuple(found))
