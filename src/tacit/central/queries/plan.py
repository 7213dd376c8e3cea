r"""A question, checked and priced: everything that is settled before a row is read.

The whole ε (or ρ) of a question is divided equally among its releases. Count, sum, mean and
variance of one column come from one release (`releases`), where a question asks for several of
them; a count of all rows joins the first of those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.central.queries import model, order, releases
from tacit.central.queries.contribution import Contribution
from tacit.central.queries.grid import FINE_BITS, SQUARE_BITS, Grid, bounds_of, grid_of
from tacit.central.queries.noise import GaussianNoise, LaplaceNoise, Noise
from tacit.central.queries.releases import Release
from tacit.central.queries.table import Column, Columns, Kind, check_where, compared, find, number
from tacit.privacy import errors, events
from tacit.privacy.guarantees import ZCDP, Guarantee

_MOST_CELLS = 2**17
Keys = Mapping[str, tuple[model.Literal, ...]]


@dataclass(frozen=True)
class Public:
    """What the owner has declared about a table: none of it may come from the rows."""

    columns: Columns
    bounds: Mapping[str, tuple[float, float]]
    keys: Keys
    unit: str | None
    rows: int
    groups: int
    budget: Guarantee

    def contribution(self, cells: int) -> Contribution:
        groups = min(self.groups, cells)
        return Contribution(self.budget.adjacency, self.budget.unit, self.rows, groups, cells)

    def grid(self, name: str, bits: int = FINE_BITS, *, from_zero: bool = False) -> Grid:
        """The grid of a bounded column of numbers."""
        column = number(self.columns, name, "query")
        if name not in self.bounds:
            remedy = f"Pass bounds={{{name!r}: (lower, upper)}}, from public knowledge."
            errors.refuse("query", f"bounds of {name!r}", "declared", "none", remedy)
        whole = column.kind is Kind.WHOLE
        return grid_of(self.bounds[name], whole=whole, bits=bits, from_zero=from_zero)

    def places(self, by: tuple[str, ...]) -> list[tuple[model.Literal, ...]]:
        """The declared keys of each column."""
        for name in by:
            find(self.columns, name, "by")
            if name not in self.keys:
                remedy = f"Pass keys={{{name!r}: [...]}}, from public knowledge."
                errors.refuse("query", f"keys of {name!r}", "declared", "none", remedy)
        return [self.keys[name] for name in by]


@dataclass(frozen=True)
class Noised:
    """A release with its noise, and the questions that it answers."""

    release: Release
    noise: Noise
    queries: tuple[model.Query, ...]


@dataclass(frozen=True)
class Picked:
    """A question that is answered by choosing: a quantile in each group, or top keys."""

    query: model.Quantile | model.TopK
    epsilon: Fraction
    grid: Grid | None


@dataclass(frozen=True)
class Plan:
    """What will be read, which noise it gets, and the event that is charged for it."""

    query: model.Query | model.Several
    queries: tuple[model.Query, ...]
    by: tuple[str, ...]
    cells: int
    contribution: Contribution
    noised: tuple[Noised, ...]
    picked: tuple[Picked, ...]
    event: events.Event


def public(columns: Columns, bounds: Any, keys: Any, **rest: Any) -> Public:
    """Check what the owner declares against the columns."""
    found = {}
    for name, pair in _mapping("bounds", bounds).items():
        number(columns, name, "bounds")
        found[name] = bounds_of(name, pair)
    declared = {
        name: _keys(find(columns, name, "keys"), values)
        for name, values in _mapping("keys", keys).items()
    }
    if rest["unit"] is not None:
        find(columns, rest["unit"], "unit")
    return Public(columns, found, declared, **rest)


def _mapping(name: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        errors.refuse("Curator", name, "a mapping from columns", type(value).__name__)
    return dict(value)


def _keys(column: Column, values: Any) -> tuple[model.Literal, ...]:
    where = f"keys of {column.name!r}"
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        errors.refuse(where, "keys", "a list of values", values)
    keys = tuple(values)
    if not 1 <= len(keys) <= 2**14:
        errors.refuse(where, "keys", "1 to 2^14 values", len(keys))
    read: list[Any] = [compared(column, model.literal(where, key)) for key in keys]
    if column.kind is Kind.LOOSE:  # of a CSV file: numbers are compared as doubles
        read = [key if isinstance(key, str) else float(key) for key in read]
    if len({(type(key) is bool, key) for key in read}) != len(keys):
        errors.refuse(where, "keys", "different from each other", list(keys))
    if column.kind in (Kind.REAL, Kind.DECIMAL, Kind.OTHER):
        errors.refuse(where, "column", "of whole numbers, text, truth values or dates", column.kind)
    whole = all(isinstance(key, int) and abs(key) < 2**63 for key in keys)
    if column.kind is Kind.WHOLE and not whole:
        errors.refuse(where, "keys", "integers within 2^63", list(keys))
    if len({isinstance(key, str) for key in keys}) > 1:
        errors.refuse(where, "keys", "all text or all not", list(keys))
    return keys


def plan(public: Public, query: model.Query | model.Several, epsilon: Any, rho: Any) -> Plan:
    """Check a question and price it; nothing is read."""
    if not isinstance(query, model.Query | model.Several):
        errors.refuse(
            "query", "query", "a question of tacit.central.queries.model", type(query).__name__
        )
    check_where(public.columns, query.where)
    asked = query.queries if isinstance(query, model.Several) else (query,)
    amount = _amount(public.budget, epsilon, rho)
    by, cells = _cells(public, query, asked)
    contribution = public.contribution(cells)
    chosen = [one for one in asked if isinstance(one, model.Quantile | model.TopK)]
    grouped = _releases(public, [one for one in asked if one not in chosen], contribution)
    share = amount / (len(grouped) + len(chosen))
    noised = tuple(
        Noised(release, _noise(public.budget, release, contribution, share), tuple(queries))
        for release, queries in grouped
    )
    picked = tuple(_picked(public, one, share) for one in chosen)
    parts = [
        one.noise.event(**contribution.scope, entries=cells * len(one.release.combine))
        for one in noised
    ]
    parts += [_pick_event(one, contribution) for one in picked]
    event = parts[0] if len(parts) == 1 else events.Composed(tuple(parts))
    return Plan(query, tuple(asked), by, cells, contribution, noised, picked, event)


def _amount(budget: Guarantee, epsilon: Any, rho: Any) -> Fraction:
    """The ε or ρ of the question, in the notion of the budget."""
    if isinstance(budget, ZCDP):
        if rho is None or epsilon is not None:
            errors.refuse("query", "rho", "given (and no epsilon) for a zCDP budget", rho)
        return errors.positive("query", "rho", rho)
    if epsilon is None or rho is not None:
        errors.refuse("query", "epsilon", "given (and no rho) for an epsilon budget", epsilon)
    return errors.epsilon_in_range("query", epsilon)


def _cells(
    public: Public, query: model.Query | model.Several, asked: tuple[model.Query, ...]
) -> tuple[tuple[str, ...], int]:
    """Columns of the groups, and how many groups there are."""
    by = query.by
    sizes = [len(keys) for keys in public.places(by)]
    alone = [one for one in asked if isinstance(one, model.Histogram | model.TopK)]
    if alone and len(asked) > 1:
        errors.refuse("Several", "queries", "without histograms and top-k", alone[0].label)
    for one in alone:
        number(public.columns, one.column, "histogram") if isinstance(
            one, model.Histogram
        ) else None
        sizes.append(
            len(one.edges) - 1
            if isinstance(one, model.Histogram)
            else len(public.places((one.column,))[0])
        )
    cells = math.prod(sizes)
    if cells > _MOST_CELLS:
        errors.refuse("query", "groups", f"at most {_MOST_CELLS}", cells)
    for one in alone:
        if isinstance(one, model.TopK) and one.k > cells:
            errors.refuse("top_k", "k", f"at most the {cells} keys", one.k)
    return by, cells


def _releases(
    public: Public, asked: list[model.Query], contribution: Contribution
) -> list[tuple[Release, list[model.Query]]]:
    """The fewest releases that hold all the answers."""
    columns: dict[str, list[model.Query]] = {}
    everyone: list[model.Query] = []
    for one in asked:
        if isinstance(one, model.Histogram) or (
            isinstance(one, model.Count) and one.column is None
        ):
            everyone.append(one)
        else:
            columns.setdefault(str(one.column), []).append(one)
    found = []
    for name, queries in columns.items():
        rich = any(not isinstance(one, model.Count) for one in queries)
        alone = len(queries) == 1 and not everyone
        release = _column_release(public, name, queries, contribution, bool(everyone), alone)
        found.append((release, queries + (everyone if rich else [])))
        if rich:
            everyone = []
    if everyone:
        found.append((releases.rows_release(), everyone))
    return found


def _column_release(
    public: Public,
    name: str,
    queries: list[model.Query],
    contribution: Contribution,
    nulls: bool,
    alone: bool,
) -> Release:
    if all(isinstance(one, model.Count) for one in queries):
        find(public.columns, name, "query")
        # Where it is a number, it is counted as one: text of a CSV file may be none.
        return releases.present_release(name, public.grid(name) if name in public.bounds else None)
    if any(isinstance(one, model.Variance) for one in queries):
        return releases.triple_release(name, public.grid(name, SQUARE_BITS), nulls=nulls)
    if alone and isinstance(queries[0], model.Sum):
        return releases.total_release(name, public.grid(name, from_zero=True))
    pure = not isinstance(public.budget, ZCDP)
    rotated = releases.is_rotated(contribution, pure=pure)
    return releases.pair_release(name, public.grid(name), nulls=nulls, rotated=rotated)


def _noise(
    budget: Guarantee, release: Release, contribution: Contribution, share: Fraction
) -> Noise:
    absolute, squared = release.sensitivity(contribution)
    if isinstance(budget, ZCDP):
        return GaussianNoise(squared, share)
    return LaplaceNoise(absolute, share)


def _picked(public: Public, query: model.Quantile | model.TopK, share: Fraction) -> Picked:
    epsilon = share
    if isinstance(public.budget, ZCDP):
        # ε-DP is ε²/2-zCDP: the largest such ε, rounded down.
        epsilon = Fraction(math.isqrt(math.floor(2 * share * 10**24)), 10**12)
        errors.epsilon_in_range("query", epsilon)
    grid = public.grid(query.column) if isinstance(query, model.Quantile) else None
    return Picked(query, epsilon, grid)


def _pick_event(picked: Picked, contribution: Contribution) -> events.Event:
    if isinstance(picked.query, model.Quantile):
        return order.quantile_events(picked.query, contribution, picked.epsilon)
    return order.top_k_event(picked.query, contribution, picked.epsilon)
