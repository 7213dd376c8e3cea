r"""The statements of a query: exact integer sums per group, with each person's rows bounded.

With a unit column, rows are first summed by (person, group) and then bounded, as described in
`contribution`; no window function runs over raw rows. DuckDB does this only for people with more
than one row: it finds them first, and computes

.. math:: \sum_{\text{rows}} f - \sum_{\text{people with several rows}} (f_{\text{raw}} -
          f_{\text{bounded}}),

which is the same number, as a single row is within every bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit.central.queries import model
from tacit.central.queries.compile import (
    Compiler,
    Expression,
    constant,
    decimal,
    fill,
    identifier,
    sqlglot,
)
from tacit.central.queries.contribution import Contribution
from tacit.central.queries.engine import Engine
from tacit.central.queries.grid import Grid
from tacit.central.queries.releases import Moments, Release
from tacit.central.queries.table import Column

Parts = dict[int, list[list[int]]]
"""For each group with rows, and for each release, its sums of parts."""


@dataclass(frozen=True)
class Scan:
    """Rows of a query, the expression that numbers their groups, and the column of people."""

    engine: Engine
    where: model.Where | None
    group: Expression | None
    first: int
    """The number that the expression gives to the first group."""
    unit: str | None
    contribution: Contribution
    salt: int

    def parts(self, releases: Sequence[Release]) -> Parts:
        """Compute the sums that noise is added to, exactly."""
        with self.engine.session():
            if self.unit is None:
                return self._raw(releases)
            if not hasattr(self.engine, "keep"):
                return self._bounded(releases, several=False)
            self.engine.keep(self._several())
            totals = self._raw(releases)
            for code, corrections in self._bounded(releases, several=True).items():
                for sums, own in zip(totals[code], corrections, strict=True):
                    sums[:] = [a + b for a, b in zip(sums, own, strict=True)]
            return totals

    def cells(self, column: Column, grid: Grid, cells: int) -> dict[int, dict[int, int]]:
        """Count the rows of each group in equal cells between the bounds.

        A person counts with the mean of their rows, min(rows, `max_rows`) times.
        """
        with self.engine.session():
            rows = self.engine.rows(self._cells(column, grid, cells))
        table: dict[int, dict[int, int]] = {}
        for code, cell, count in rows:
            if code is not None and cell is not None:
                table.setdefault(int(code) - self.first, {})[int(cell)] = int(count)
        return table

    @property
    def _compiler(self) -> Compiler:
        return self.engine.compiler

    def _raw(self, releases: Sequence[Release]) -> Parts:
        """Sum all rows; in DuckDB, in one pass without branches."""
        columns = [self._sums(release) for release in releases]
        group = fill("0") if self.group is None else self.group
        chosen = [_as(group, "tacit_k"), _as(fill("COUNT(*)"), "n")]
        chosen += [
            _as(tree, f"a{i}_{j}") for i, row in enumerate(columns) for j, tree in enumerate(row)
        ]
        tree = self._select(*(chosen if self.group is not None else chosen[1:]))
        rows = self.engine.rows(tree.group_by("tacit_k") if self.group is not None else tree)
        totals: Parts = {}
        for row in rows:
            code, n, *rest = row if self.group is not None else (self.first, *row)
            if code is not None:
                moments = self._moments(releases, int(n), [int(value or 0) for value in rest])
                totals[int(code) - self.first] = [
                    [moment.dot(part) for part in release.parts]
                    for release, moment in zip(releases, moments, strict=True)
                ]
        return totals

    def _sums(self, release: Release) -> list[Expression]:
        """Return the sums that the release needs: rows with a value, Σt and Σt²."""
        if release.column is None:
            return []
        column, compiler = self._compiler.columns[release.column], self._compiler
        if release.grid is None:
            return [fill("COUNT(:x)", x=compiler.value(column))]
        filled = compiler.filled(column, release.grid)
        present = identifier(column.name) if release.grid.whole else filled
        trees = [fill("COUNT(:t)", t=present), fill("SUM(:t)", t=filled)]
        trees.append(fill("SUM(CAST(:t AS BIGINT) * :t)", t=filled))
        return trees[: release.order + 1]

    def _moments(self, releases: Sequence[Release], n: int, sums: list[int]) -> list[Moments]:
        moments, at = [], 0
        for release in releases:
            size = 0 if release.column is None else release.order + 1
            moments.append(Moments(n, *sums[at : at + size]))
            at += size
        return moments

    def _several(self) -> Expression:
        """Select the people with more than one row; NULL among them has no effect."""
        assert self.unit is not None
        person = _as(identifier(self.unit), "tacit_p")
        tree = sqlglot().exp.select(person).from_(self.engine.table.copy())
        if self.where is not None:
            tree = tree.where(self._compiler.where(self.where))
        return tree.group_by("tacit_p").having(fill("COUNT(*) > 1"))

    def _people(self, chosen: list[Expression], several: bool) -> Expression:
        """Sum rows by person and group, and number the groups of each person in hash order."""
        assert self.unit is not None
        person, group = identifier(self.unit), fill("0") if self.group is None else self.group
        tree = self._select(_as(person, "tacit_p"), _as(group, "tacit_k"), *chosen).group_by(
            "tacit_p", "tacit_k"
        )
        if several:
            kept = fill(":p IN (SELECT tacit_p FROM temp.main.tacit_kept)", p=person)
            tree = tree.where(kept)
        inner = (
            sqlglot().exp.select("*").from_(tree.subquery("u")).where(fill("tacit_k IS NOT NULL"))
        )
        if self.contribution.groups >= self.contribution.cells:
            return inner.select(_as(fill("1"), "place"))
        return inner.select(_as(self._order(), "place"))

    def _order(self) -> Expression:
        salt = constant(str(self.salt))
        mixed = "HASH(tacit_p, tacit_k, :salt)"
        if not self._compiler.is_duckdb:
            mixed = "MD5(:salt || ':' || CAST(tacit_p AS TEXT) || ':' || CAST(tacit_k AS TEXT))"
        return fill(
            f"ROW_NUMBER() OVER (PARTITION BY tacit_p ORDER BY {mixed}, tacit_k)", salt=salt
        )

    def _bounded(self, releases: Sequence[Release], *, several: bool) -> Parts:
        """Sum bounded parts; with `several`, minus the raw sums of people with several rows."""
        inner, outer = [_as(fill("COUNT(*)"), "n")], []
        kept = constant(self.contribution.groups)
        for i, release in enumerate(releases):
            inner += self._person_sums(i, release)
            for part in release.parts:
                raw = self._combination(i, part)
                bounded = fill(
                    "CASE WHEN place <= :kept THEN :part ELSE 0 END",
                    kept=kept,
                    part=self._shrunk(i, release, raw),
                )
                tree = (
                    fill("SUM(:b - :raw)", b=bounded, raw=raw)
                    if several
                    else fill("SUM(:b)", b=bounded)
                )
                outer.append(tree)
        people = self._people(inner, several).subquery("v")
        chosen = [_as(tree, f"b{j}") for j, tree in enumerate(outer)]
        select = sqlglot().exp.select("tacit_k", *chosen).from_(people).group_by("tacit_k")
        return {
            int(code) - self.first: _split(releases, [int(value or 0) for value in rest])
            for code, *rest in self.engine.rows(select)
        }

    def _person_sums(self, i: int, release: Release) -> list[Expression]:
        """Return a person's c, Σt and Σt² in a group."""
        if release.column is None:
            return []
        column, compiler = self._compiler.columns[release.column], self._compiler
        if release.grid is None:
            return [_as(fill("COUNT(:x)", x=compiler.value(column)), f"c{i}")]
        t = compiler.steps(column, release.grid)
        sums = [fill("COUNT(:t)", t=t), fill("COALESCE(SUM(:t), 0)", t=t)]
        sums += (
            [fill("COALESCE(SUM(CAST(:t AS BIGINT) * :t), 0)", t=t)] if release.order > 1 else []
        )
        return [_as(tree, f"{name}{i}") for tree, name in zip(sums, "csq", strict=False)]

    def _shrunk(self, i: int, release: Release, part: Expression) -> Expression:
        """Bound the part of a person with c rows to m rows: part · m // c if c > m."""
        rows = identifier("n" if release.counts_all else f"c{i}")
        return fill(
            "CASE WHEN :rows <= :m THEN :part ELSE (:part) * :m // :rows END",
            rows=rows,
            m=constant(self.contribution.rows),
            part=part,
        )

    def _combination(self, i: int, part: tuple[int, ...]) -> Expression:
        """Combine a person's n, c, Σt and Σt² in integers that are wide enough for any of them."""
        names = ("n", f"c{i}", f"s{i}", f"q{i}")
        terms = [
            fill(":x * :a", x=self._wide(identifier(name)), a=constant(factor))
            for name, factor in zip(names, part, strict=True)
            if factor
        ]
        total = terms[0]
        for term in terms[1:]:
            total = fill("(:a + :b)", a=total, b=term)
        return total

    def _wide(self, x: Expression) -> Expression:
        return fill("CAST(:x AS HUGEINT)", x=x) if self._compiler.is_duckdb else decimal(x)

    def _cells(self, column: Column, grid: Grid, cells: int) -> Expression:
        t = self._compiler.steps(column, grid)
        group = fill("0") if self.group is None else self.group
        if self.unit is None:
            inner = self._select(_as(group, "tacit_k"), _as(t, "t")).subquery("u")
            count, t = fill("COUNT(*)"), fill("CAST(t AS BIGINT)")
            chosen = sqlglot().exp.select("tacit_k").from_(inner).where(fill("t IS NOT NULL"))
        else:
            sums = [_as(fill("COUNT(:t)", t=t), "c"), _as(fill("COALESCE(SUM(:t), 0)", t=t), "s")]
            inner = self._people(sums, several=False).subquery("v")
            t = fill("s // c")
            count = fill("SUM(LEAST(c, :m))", m=constant(self.contribution.rows))
            kept = fill("place <= :g AND c > 0", g=constant(self.contribution.groups))
            chosen = sqlglot().exp.select("tacit_k").from_(inner).where(kept)
        cell = t
        if not (grid.whole and grid.top < cells):
            names = {"n": constant(cells), "top": constant(grid.top), "last": constant(cells - 1)}
            cell = fill("LEAST((:t) * :n // :top, :last)", t=t, **names)
        return chosen.select(_as(cell, "cell"), _as(count, "count")).group_by("tacit_k", "cell")

    def _select(self, *chosen: Expression) -> Expression:
        tree = sqlglot().exp.select(*chosen).from_(self.engine.table.copy())
        if self.unit is not None:
            tree = tree.where(fill(":p IS NOT NULL", p=identifier(self.unit)))
        if self.where is not None:
            tree = tree.where(self._compiler.where(self.where))
        return tree


def _split(releases: Sequence[Release], sums: list[int]) -> list[list[int]]:
    split, at = [], 0
    for release in releases:
        split.append(sums[at : at + len(release.parts)])
        at += len(release.parts)
    return split


def _as(tree: Expression, name: str) -> Any:
    return sqlglot().exp.alias_(tree, name, quoted=False)
