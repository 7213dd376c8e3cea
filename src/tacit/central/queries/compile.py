"""Compile queries to SQL for DuckDB and PostgreSQL, as sqlglot trees and never as pasted text.

Templates are constants of this module. Column names enter as quoted identifiers, values as
literals. Every expression is total: whatever a row holds, it evaluates to a value or NULL and
never raises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from tacit.central.queries import model
from tacit.central.queries.grid import Grid
from tacit.central.queries.table import Column, Columns, Kind, compared
from tacit.privacy import errors

Expression = Any
"""A sqlglot expression; the package is imported when it is first used."""

_SMALL = ("TINYINT", "SMALLINT", "UTINYINT", "USMALLINT")


def sqlglot() -> Any:
    """Import the SQL parser and builder, or say how to install it."""
    try:
        import sqlglot as package
    except ImportError:
        raise errors.TacitError(
            "queries: the sqlglot package must be installed. pip install 'tacit[queries]'."
        ) from None
    return package


def fill(template: str, **parts: Expression) -> Expression:
    """Replace the `:names` of a template by expressions."""
    return sqlglot().exp.replace_placeholders(_parsed(template), **parts)


@lru_cache(maxsize=512)
def _parsed(template: str) -> Expression:
    return sqlglot().parse_one(template, dialect="duckdb")


def identifier(name: str) -> Expression:
    """Return a column, quoted."""
    return sqlglot().exp.column(name, quoted=True)


def parts_of(name: str) -> list[str]:
    """Split the name of a table into its parts."""
    parts = name.split(".")
    if not 1 <= len(parts) <= 3 or not all(parts):
        errors.refuse("Curator", "table", "name, schema.name or database.schema.name", name)
    return parts


def table_of(*names: str) -> Expression:
    """Return a table from the parts of its name, quoted."""
    exp = sqlglot().exp
    parts = [exp.to_identifier(name, quoted=True) for name in names]
    return exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)))


def constant(value: model.Literal) -> Expression:
    """Return a literal of the value's type: text, integer, Boolean, double, date or timestamp."""
    exp = sqlglot().exp
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int):
        return exp.Literal.number(str(value)) if value >= 0 else exp.Neg(this=constant(-value))
    if isinstance(value, float):
        return exp.cast(exp.Literal.string(repr(value)), "double")
    if isinstance(value, str):
        return exp.Literal.string(value)
    kind = "timestamp" if isinstance(value, datetime) else "date"
    return exp.cast(exp.Literal.string(value.isoformat()), kind)


def decimal(x: Expression) -> Expression:
    """Cast to PostgreSQL's unlimited decimals: in a template, DECIMAL is DuckDB's 18 digits."""
    return sqlglot().exp.cast(x, "decimal")


@dataclass(frozen=True)
class Compiler:
    """Expressions over the columns of one table, for one engine."""

    columns: Columns
    dialect: str

    def __post_init__(self) -> None:
        for name in self.columns:
            if name.casefold().startswith("tacit_"):
                remedy = "Rename it."
                errors.refuse("Curator", "column", "named without tacit_ as prefix", name, remedy)

    @cached_property
    def is_duckdb(self) -> bool:
        return self.dialect == "duckdb"

    def sql(self, tree: Expression) -> str:
        return str(tree.sql(dialect=self.dialect))

    def where(self, where: model.Where) -> Expression:
        """Compile a condition that is true, false or NULL for every row."""
        match where:
            case model.Compare(column=name, operator=operator, value=value):
                left, right = self._sides(self.columns[name], value)
                return fill(f":a {operator} :b", a=left, b=right)
            case model.OneOf(column=name, values=values):
                parts: tuple[model.Where, ...]
                parts = tuple(model.Compare(name, "=", value) for value in values)
                return self.where(model.Or(parts))
            case model.Between(column=name, lower=lower, upper=upper):
                ends = model.Compare(name, ">=", lower), model.Compare(name, "<=", upper)
                return self.where(model.And(ends))
            case model.IsNull(column=name):
                return fill(":a IS NULL", a=identifier(name))
            case model.Not(part=part):
                return fill("NOT (:a)", a=self.where(part))
            case model.And(parts=parts) | model.Or(parts=parts):
                exp = sqlglot().exp
                join = exp.and_ if isinstance(where, model.And) else exp.or_
                return exp.paren(join(*(self.where(part) for part in parts)), copy=False)

    def _sides(self, column: Column, value: model.Literal) -> tuple[Expression, Expression]:
        """Bring column and literal to one type, without a conversion that could fail on a row."""
        literal = compared(column, value)
        if isinstance(literal, int | float) and not isinstance(literal, bool):
            return self._numbers(column, literal)
        if column.kind in (Kind.TEXT, Kind.LOOSE) and column.type not in ("VARCHAR", "text"):
            return fill("CAST(:x AS TEXT)", x=identifier(column.name)), constant(literal)
        return identifier(column.name), constant(literal)

    def _numbers(self, column: Column, literal: int | float) -> tuple[Expression, Expression]:
        if column.kind is Kind.WHOLE and isinstance(literal, int) and abs(literal) < 2**63:
            return identifier(column.name), constant(literal)
        if self.is_duckdb or column.kind is Kind.REAL:
            return self.real(column), constant(float(literal))
        # PostgreSQL compares whole and decimal numbers with decimals of any size.
        exact = decimal(constant(str(literal)))
        return self._exact(column), exact

    def real(self, column: Column) -> Expression:
        """Read the column as a double; NaN, and text that is not a number, become NULL."""
        x = self._double(column)
        if column.kind is Kind.LOOSE or column.type in ("FLOAT", "DOUBLE"):
            return fill("CASE WHEN ISNAN(:x) THEN NULL ELSE :x END", x=x)
        if column.type in ("float4", "float8"):
            return fill("NULLIF(:x, CAST('NaN' AS DOUBLE))", x=x)
        return x

    def _double(self, column: Column) -> Expression:
        if column.kind is Kind.LOOSE:
            return fill("TRY_CAST(:x AS DOUBLE)", x=identifier(column.name))
        if column.type in ("DOUBLE", "float8"):
            return identifier(column.name)
        return fill("CAST(:x AS DOUBLE)", x=identifier(column.name))

    def _exact(self, column: Column) -> Expression:
        """Read integers and decimals of PostgreSQL as they are; NaN becomes NULL."""
        x = identifier(column.name)
        return (
            fill("NULLIF(:x, :nan)", x=x, nan=decimal(constant("NaN")))
            if column.type == "numeric"
            else x
        )

    def steps(self, column: Column, grid: Grid) -> Expression:
        """Return t in {0, …, T}: NULL for NULL and NaN; infinities are clipped as others are."""
        if grid.whole:
            low, high = int(grid.lower), int(grid.upper)
            offset = "CAST(:x AS BIGINT) - :low" if low else ":x"
            return fill(
                f"CASE WHEN :x BETWEEN :low AND :high THEN {offset} "
                "WHEN :x < :low THEN 0 WHEN :x > :high THEN :top END",
                x=identifier(column.name),
                low=constant(low),
                high=constant(high),
                top=constant(grid.top),
            )
        return self._real_steps(column, grid)

    def _real_steps(self, column: Column, grid: Grid) -> Expression:
        if self.is_duckdb:
            # A cast rounds to even. Most rows take the first branch. NaN, which DuckDB orders above
            # every number, takes none.
            x, exact = self._double(column), False
            offset = "(:x - :low)" if grid.lower else ":x"
            inside = f"WHEN :x BETWEEN :low AND :high THEN TRY_CAST({offset} * :scale AS INTEGER)"
        else:
            x, exact = self._as_number(column)
            inside = (
                "WHEN :x > :near AND :x < :high "
                "THEN LEAST(CAST(ROUND((:x - :low) * :scale) AS BIGINT), :top)"
            )
        ends = {"low": grid.lower, "high": grid.upper, "scale": 1 / grid.step}
        # Nearer to the bound, the product could underflow, which is an error in PostgreSQL.
        ends["near"] = grid.lower + grid.step / 4
        numbers = {name: self._like(value, exact) for name, value in ends.items()}
        return fill(
            f"CASE {inside} WHEN :x <= :near THEN 0 WHEN :x >= :high AND :x <= :inf THEN :top END",
            x=x,
            top=constant(grid.top),
            inf=self._like(math.inf, exact),
            **numbers,
        )

    def _as_number(self, column: Column) -> tuple[Expression, bool]:
        """Read exact numbers of PostgreSQL as they are, and everything else as a double."""
        if column.kind in (Kind.DECIMAL, Kind.WHOLE) and not self.is_duckdb:
            return self._exact(column), True
        return self.real(column), False

    def _like(self, value: float, exact: bool) -> Expression:
        return decimal(constant(repr(value))) if exact else constant(value)

    def filled(self, column: Column, grid: Grid) -> Expression:
        """Return the steps for a sum, where NULL may count as 0: without a branch for integers."""
        low, high = int(grid.lower), int(grid.upper)
        if not grid.whole or not self.is_duckdb:
            return self.steps(column, grid)
        x = identifier(column.name)
        # The type must hold the difference of the bounds: an overflow would reveal a row.
        if max(abs(low), abs(high)) >= 2**30 or column.type not in (*_SMALL, "INTEGER"):
            x = fill("CAST(:x AS BIGINT)", x=x)
        elif column.type in _SMALL:
            x = fill("CAST(:x AS INTEGER)", x=x)
        template = "LEAST(GREATEST(:x, :low), :high)" + (" - :low" if low else "")
        return fill(template, x=x, low=constant(low), high=constant(high))

    def value(self, column: Column) -> Expression:
        """Return the column as it is counted: NULL for rows without a value, NaN included."""
        if column.kind in (Kind.REAL, Kind.DECIMAL):
            return self._as_number(column)[0]
        return identifier(column.name)

    def place(self, column: Column, keys: tuple[model.Literal, ...]) -> Expression:
        """Return the position of a value among public keys, from 1; NULL for any other value."""
        sides = [self._sides(column, key) for key in keys]
        listed = sqlglot().exp.array(*(right for _, right in sides))
        function = "LIST_POSITION" if self.is_duckdb else "ARRAY_POSITION"
        # All keys have one kind, so the column is read in one way.
        return sqlglot().exp.Anonymous(this=function, expressions=[listed, sides[0][0]])

    def cell(self, column: Column, edges: tuple[float, ...]) -> Expression:
        """Find the interval of a value by bisection, from 1; NULL for NaN and outside the edges."""
        x, exact = self._as_number(column)

        def halved(low: int, high: int) -> Expression:
            if high - low == 1:
                return constant(low + 1)
            middle = (low + high) // 2
            return fill(
                "CASE WHEN :x < :edge THEN :below ELSE :beyond END",
                x=x,
                edge=self._like(edges[middle], exact),
                below=halved(low, middle),
                beyond=halved(middle, high),
            )

        return fill(
            "CASE WHEN :x >= :low AND :x <= :high THEN :body END",
            x=x,
            low=self._like(edges[0], exact),
            high=self._like(edges[-1], exact),
            body=halved(0, len(edges) - 1),
        )
