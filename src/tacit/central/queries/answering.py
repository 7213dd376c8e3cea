"""A plan carried out: exact sums from the engine, noise, and the answers made of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tacit.central.queries import model, order
from tacit.central.queries.compile import Expression, constant, fill
from tacit.central.queries.engine import Engine
from tacit.central.queries.estimates import Estimate, estimates
from tacit.central.queries.plan import Noised, Picked, Plan, Public
from tacit.central.queries.releases import rows_release
from tacit.central.queries.scan import Scan
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness, uniform_below

Found = dict[model.Query, list[Estimate]]
"""For each question, one estimate a group, in the order of the keys."""


def carry_out(engine: Engine, public: Public, plan: Plan, rng: Randomness) -> Found:
    """Read, add noise, estimate."""
    group, first = group_of(engine, public, plan)
    scan = Scan(
        engine,
        plan.query.where,
        group,
        first,
        public.unit,
        plan.contribution,
        int(uniform_below(2**62, 1, rng)[0]),
    )
    found: Found = {}
    if plan.noised:
        sums = scan.parts([one.release for one in plan.noised])
        rows = _public_rows(scan, plan, public)
        for i, one in enumerate(plan.noised):
            found |= noised(plan, one, {code: parts[i] for code, parts in sums.items()}, rng, rows)
    for pick in plan.picked:
        found[pick.query] = _picked(scan, plan, pick, rng)
    return found


def _public_rows(scan: Scan, plan: Plan, public: Public) -> int | None:
    """How many rows there are, where neighbours have equally many, and a question is about all."""
    asked = any(one.release.rotated for one in plan.noised)
    if not asked or plan.query.where is not None or plan.by or public.unit is not None:
        return None
    sums = scan.parts([rows_release()])
    return sums[0][0][0] if sums else 0


def noised(
    plan: Plan,
    one: Noised,
    sums: Mapping[int, list[int]],
    rng: Randomness,
    rows: int | None = None,
) -> dict[model.Query, list[Estimate]]:
    """Noise on every entry of every group, those without rows too, and the estimates."""
    nothing = [0] * len(one.release.parts)
    exact = [one.release.entries(sums.get(code, nothing)) for code in range(plan.cells)]
    draws = iter(one.noise.draw(plan.cells * len(one.release.combine), rng))
    noisy = [[entry + next(draws) for entry in entries] for entries in exact]
    return {
        query: estimates(_counted(query), one.release, noisy, one.noise, rows)
        for query in one.queries
    }


def _counted(query: model.Query) -> model.Query:
    """A histogram is a count by cell."""
    return model.Count() if isinstance(query, model.Histogram) else query


def _picked(scan: Scan, plan: Plan, pick: Picked, rng: Randomness) -> list[Estimate]:
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
    return [Estimate(chosen, None)]


def group_of(engine: Engine, public: Public, plan: Plan) -> tuple[Expression | None, int]:
    """The number of a row's group, mixed base of the places of its keys, and the first number."""
    compiler, places = engine.compiler, []
    for name, keys in zip(plan.by, public.places(plan.by), strict=True):
        places.append((compiler.place(public.columns[name], keys), len(keys)))
    for one in plan.queries:
        if isinstance(one, model.Histogram):
            cell = compiler.cell(public.columns[one.column], one.edges)
            places.append((cell, len(one.edges) - 1))
        elif isinstance(one, model.TopK):
            keys = public.keys[one.column]
            places.append((compiler.place(public.columns[one.column], keys), len(keys)))
    if not places:
        return None, 0
    code, first = places[0][0], 1
    for place, size in places[1:]:
        code = fill("(:code) * :size + :place", code=code, size=constant(size), place=place)
        first = first * size + 1
    return code, first


def arranged(public: Public, plan: Plan, query: model.Query, found: list[Estimate]) -> Any:
    """Estimates as an answer shows them: (one estimate, groups by key)."""
    keys: list[Any] = list(itertools.product(*public.places(plan.by)))
    if len(plan.by) == 1:
        keys = [key for (key,) in keys]
    if isinstance(query, model.TopK):
        names = public.keys[query.column]
        return Estimate([names[place] for place in found[0].value], None), None
    if isinstance(query, model.Histogram):
        size = len(query.edges) - 1
        found = [_bins(found[i : i + size]) for i in range(0, len(found), size)]
    if not plan.by:
        return found[0], None
    if len(keys) != len(found):
        raise errors.TacitError("queries: groups and keys do not match.")
    return None, dict(zip(keys, found, strict=True))


def _bins(bins: list[Estimate]) -> Estimate:
    """The counts of a histogram; each has its own 95 % interval."""
    return Estimate([one.value for one in bins], [one.interval for one in bins])  # type: ignore[arg-type]
