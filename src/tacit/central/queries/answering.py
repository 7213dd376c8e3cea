"""Run a query plan: exact sums from the engine, noise on them, and estimates from the result."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tacit.central.queries import model, order
from tacit.central.queries.compile import Expression, constant, fill
from tacit.central.queries.declarations import Declarations
from tacit.central.queries.engine import Engine
from tacit.central.queries.estimates import NoisyValue, estimates
from tacit.central.queries.plan import Noised, Picked, QueryPlan
from tacit.central.queries.releases import rows_release
from tacit.central.queries.scan import Scan
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness, uniform_below

Estimates = dict[model.Query, list[NoisyValue]]
"""For each query, one estimate per group, in the order of the keys."""


def carry_out(
    engine: Engine, declared: Declarations, plan: QueryPlan, rng: Randomness
) -> Estimates:
    """Read the sums, add noise, and estimate."""
    group, first = group_of(engine, declared, plan)
    scan = Scan(
        engine,
        plan.query.where,
        group,
        first,
        declared.unit,
        plan.contribution,
        int(uniform_below(2**62, 1, rng)[0]),
    )
    answers: Estimates = {}
    if plan.noised:
        sums = scan.parts([one.release for one in plan.noised])
        rows = _public_rows(scan, plan, declared)
        for i, one in enumerate(plan.noised):
            own = {code: parts[i] for code, parts in sums.items()}
            answers |= noised(plan, one, own, rng, rows)
    for pick in plan.picked:
        answers[pick.query] = _picked(scan, plan, pick, rng)
    return answers


def _public_rows(scan: Scan, plan: QueryPlan, declared: Declarations) -> int | None:
    """Count the rows if their number is public and the query is about all of them, else None.

    The number is public under replace-one neighbours, which have equally many rows.
    """
    needed = any(one.release.rotated for one in plan.noised)
    if not needed or plan.query.where is not None or plan.by or declared.unit is not None:
        return None
    sums = scan.parts([rows_release()])
    return sums[0][0][0] if sums else 0


def noised(
    plan: QueryPlan,
    one: Noised,
    sums: Mapping[int, list[int]],
    rng: Randomness,
    rows: int | None = None,
) -> Estimates:
    """Add noise to every entry of every group, empty groups included, and estimate."""
    nothing = [0] * len(one.release.parts)
    exact = [one.release.entries(sums.get(code, nothing)) for code in range(plan.cells)]
    draws = iter(one.noise.draw(plan.cells * len(one.release.combine), rng))
    noisy = [[entry + next(draws) for entry in entries] for entries in exact]
    return {
        query: estimates(_counted(query), one.release, noisy, one.noise, rows)
        for query in one.queries
    }


def _counted(query: model.Query) -> model.Query:
    """Read a histogram as a count per cell."""
    return model.Count() if isinstance(query, model.Histogram) else query


def _picked(scan: Scan, plan: QueryPlan, pick: Picked, rng: Randomness) -> list[NoisyValue]:
    query = pick.query
    if isinstance(query, model.Quantile):
        assert pick.grid is not None
        grid, column = pick.grid, scan.engine.compiler.columns[query.column]
        table = scan.cells(column, grid, order.cells_of(query, grid))
        return [
            order.quantile(query, grid, table.get(code, {}), plan.contribution, pick.epsilon, rng)
            for code in range(plan.cells)
        ]
    sums = scan.parts([rows_release()])
    counts = [sums[code][0][0] if code in sums else 0 for code in range(plan.cells)]
    chosen = order.top_k(query, counts, plan.contribution, pick.epsilon, rng)
    return [NoisyValue(chosen, None)]


def group_of(
    engine: Engine, declared: Declarations, plan: QueryPlan
) -> tuple[Expression | None, int]:
    """Return an expression that numbers a row's group, and the number of the first group.

    The number is written in mixed base; its digits are the positions of the row's keys.
    """
    compiler, places = engine.compiler, []
    for name, keys in zip(plan.by, declared.keys_of(plan.by), strict=True):
        places.append((compiler.place(declared.columns[name], keys), len(keys)))
    for one in plan.queries:
        if isinstance(one, model.Histogram):
            cell = compiler.cell(declared.columns[one.column], one.edges)
            places.append((cell, len(one.edges) - 1))
        elif isinstance(one, model.TopK):
            keys = declared.keys[one.column]
            places.append((compiler.place(declared.columns[one.column], keys), len(keys)))
    if not places:
        return None, 0
    code, first = places[0][0], 1
    for place, size in places[1:]:
        code = fill("(:code) * :size + :place", code=code, size=constant(size), place=place)
        first = first * size + 1
    return code, first


def arranged(
    declared: Declarations, plan: QueryPlan, query: model.Query, estimated: list[NoisyValue]
) -> Any:
    """Arrange estimates as an answer shows them: (the only estimate, estimates by key)."""
    keys: list[Any] = list(itertools.product(*declared.keys_of(plan.by)))
    if len(plan.by) == 1:
        keys = [key for (key,) in keys]
    if isinstance(query, model.TopK):
        names = declared.keys[query.column]
        return NoisyValue([names[place] for place in estimated[0].value], None), None
    if isinstance(query, model.Histogram):
        size = len(query.edges) - 1
        estimated = [_bins(estimated[i : i + size]) for i in range(0, len(estimated), size)]
    if not plan.by:
        return estimated[0], None
    if len(keys) != len(estimated):
        raise errors.TacitError("queries: groups and keys do not match.")
    return None, dict(zip(keys, estimated, strict=True))


def _bins(bins: list[NoisyValue]) -> NoisyValue:
    """Join the counts of a histogram; each keeps its own 95 % interval."""
    return NoisyValue([one.value for one in bins], [one.interval for one in bins])  # type: ignore[arg-type]
