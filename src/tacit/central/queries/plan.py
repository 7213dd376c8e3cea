r"""Check and price a query: everything that is decided before a row is read.

The ε (or ρ) of a query is divided equally among its releases. If a query asks for several of count,
sum, mean and variance of one column, they share one release (`releases`); a count of all rows joins
the first of these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.central.queries import model, order, releases
from tacit.central.queries.contribution import Contribution
from tacit.central.queries.declarations import Declarations
from tacit.central.queries.grid import SQUARE_BITS, Grid
from tacit.central.queries.noise import GaussianNoise, LaplaceNoise, Noise
from tacit.central.queries.releases import Release
from tacit.central.queries.table import check_where, find, number
from tacit.privacy import errors, events
from tacit.privacy.guarantees import ZCDP, Guarantee

_MOST_CELLS = 2**17


@dataclass(frozen=True)
class Noised:
    """A release with its noise, and the queries that it answers."""

    release: Release
    noise: Noise
    queries: tuple[model.Query, ...]


@dataclass(frozen=True)
class Picked:
    """A query that is answered by a private choice: a quantile in each group, or top keys."""

    query: model.Quantile | model.TopK
    epsilon: Fraction
    grid: Grid | None


@dataclass(frozen=True)
class QueryPlan:
    """The sums that a query reads, the noise that they get, and the event that is charged."""

    query: model.Query | model.Several
    queries: tuple[model.Query, ...]
    by: tuple[str, ...]
    cells: int
    contribution: Contribution
    noised: tuple[Noised, ...]
    picked: tuple[Picked, ...]
    event: events.Event


def plan(
    declared: Declarations, query: model.Query | model.Several, epsilon: Any, rho: Any
) -> QueryPlan:
    """Check a query and price it; read nothing."""
    if not isinstance(query, model.Query | model.Several):
        errors.refuse(
            "query", "query", "SQL or a query of tacit.queries.model", type(query).__name__
        )
    check_where(declared.columns, query.where)
    queries = query.queries if isinstance(query, model.Several) else (query,)
    amount = _amount(declared.budget, epsilon, rho)
    by, cells = _cells(declared, query, queries)
    contribution = declared.contribution(cells)
    chosen = [one for one in queries if isinstance(one, model.Quantile | model.TopK)]
    grouped = _releases(declared, [one for one in queries if one not in chosen], contribution)
    share = amount / (len(grouped) + len(chosen))
    noised = tuple(
        Noised(release, _noise(declared.budget, release, contribution, share), tuple(answered))
        for release, answered in grouped
    )
    picked = tuple(_picked(declared, one, share) for one in chosen)
    parts = [
        one.noise.event(**contribution.scope, entries=cells * len(one.release.combine))
        for one in noised
    ]
    parts += [_pick_event(one, contribution) for one in picked]
    event = parts[0] if len(parts) == 1 else events.Composed(tuple(parts))
    return QueryPlan(query, tuple(queries), by, cells, contribution, noised, picked, event)


def _amount(budget: Guarantee, epsilon: Any, rho: Any) -> Fraction:
    """Check the ε or ρ of the query: the one that the budget is stated in."""
    if isinstance(budget, ZCDP):
        if rho is None or epsilon is not None:
            errors.refuse("query", "rho", "given (and no epsilon) for a zCDP budget", rho)
        return errors.positive("query", "rho", rho)
    if epsilon is None or rho is not None:
        errors.refuse("query", "epsilon", "given (and no rho) for an epsilon budget", epsilon)
    return errors.epsilon_in_range("query", epsilon)


def _cells(
    declared: Declarations, query: model.Query | model.Several, queries: tuple[model.Query, ...]
) -> tuple[tuple[str, ...], int]:
    """Return the grouping columns and the number of groups."""
    by = query.by
    sizes = [len(keys) for keys in declared.keys_of(by)]
    alone = [one for one in queries if isinstance(one, model.Histogram | model.TopK)]
    if alone and len(queries) > 1:
        errors.refuse("Several", "queries", "without histograms and top-k", alone[0].label)
    for one in alone:
        if isinstance(one, model.Histogram):
            number(declared.columns, one.column, "histogram")
            sizes.append(len(one.edges) - 1)
        else:
            sizes.append(len(declared.keys_of((one.column,))[0]))
    cells = math.prod(sizes)
    if cells > _MOST_CELLS:
        errors.refuse("query", "groups", f"at most {_MOST_CELLS}", cells)
    for one in alone:
        if isinstance(one, model.TopK) and one.k > cells:
            errors.refuse("top_k", "k", f"at most the {cells} keys", one.k)
    return by, cells


def _releases(
    declared: Declarations, summed: list[model.Query], contribution: Contribution
) -> list[tuple[Release, list[model.Query]]]:
    """Return the fewest releases that contain all the answers, each with its queries."""
    columns: dict[str, list[model.Query]] = {}
    everyone: list[model.Query] = []
    for one in summed:
        if isinstance(one, model.Histogram) or (
            isinstance(one, model.Count) and one.column is None
        ):
            everyone.append(one)
        else:
            columns.setdefault(str(one.column), []).append(one)
    grouped = []
    for name, queries in columns.items():
        rich = any(not isinstance(one, model.Count) for one in queries)
        alone = len(queries) == 1 and not everyone
        release = _column_release(declared, name, queries, contribution, bool(everyone), alone)
        grouped.append((release, queries + (everyone if rich else [])))
        if rich:
            everyone = []
    if everyone:
        grouped.append((releases.rows_release(), everyone))
    return grouped


def _column_release(
    declared: Declarations,
    name: str,
    queries: list[model.Query],
    contribution: Contribution,
    nulls: bool,
    alone: bool,
) -> Release:
    if all(isinstance(one, model.Count) for one in queries):
        find(declared.columns, name, "query")
        # A column with bounds is counted as numbers: text in a CSV file may not be a number.
        grid = declared.grid(name) if name in declared.bounds else None
        return releases.present_release(name, grid)
    if any(isinstance(one, model.Variance) for one in queries):
        return releases.triple_release(name, declared.grid(name, SQUARE_BITS), nulls=nulls)
    if alone and isinstance(queries[0], model.Sum):
        return releases.total_release(name, declared.grid(name, from_zero=True))
    pure = not isinstance(declared.budget, ZCDP)
    rotated = releases.is_rotated(contribution, pure=pure)
    return releases.pair_release(name, declared.grid(name), nulls=nulls, rotated=rotated)


def _noise(
    budget: Guarantee, release: Release, contribution: Contribution, share: Fraction
) -> Noise:
    absolute, squared = release.sensitivity(contribution)
    if isinstance(budget, ZCDP):
        return GaussianNoise(squared, share)
    return LaplaceNoise(absolute, share)


def _picked(declared: Declarations, query: model.Quantile | model.TopK, share: Fraction) -> Picked:
    epsilon = share
    if isinstance(declared.budget, ZCDP):
        # ε-DP is ε²/2-zCDP: the largest such ε, rounded down.
        epsilon = Fraction(math.isqrt(math.floor(2 * share * 10**24)), 10**12)
        errors.epsilon_in_range("query", epsilon)
    grid = declared.grid(query.column) if isinstance(query, model.Quantile) else None
    return Picked(query, epsilon, grid)


def _pick_event(picked: Picked, contribution: Contribution) -> events.Event:
    if isinstance(picked.query, model.Quantile):
        return order.quantile_events(picked.query, contribution, picked.epsilon)
    return order.top_k_event(picked.query, contribution, picked.epsilon)
