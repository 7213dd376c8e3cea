"""What one unit changes before noise: never more than is charged for, by brute force."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.central.queries import model, order, scan
from tacit.central.queries.contribution import Contribution
from tacit.central.queries.curator import Curator
from tacit.central.queries.grid import grid_of
from tacit.privacy.guarantees import ZCDP, Adjacency, PureDP, Unit

from .conftest import BOUNDS, KEYS, exact, questions, table

NAN, INF = float("nan"), float("inf")
NUMBERS = st.one_of(
    st.sampled_from([None, NAN, INF, -INF, 1e308, -1e308, 5e-324, -1.5, 7.3, 7.299999999999999]),
    st.floats(-3, 9),
)
ROWS = st.tuples(
    st.sampled_from([1, 2, 3, None]),
    st.sampled_from(["F", "M", "X", None]),
    NUMBERS,
    st.sampled_from([None, 0, 1, 7, 10, 11, -1, 2**31 - 1, -(2**31)]),
)
ASKED = st.tuples(
    st.integers(0, len(questions()) - 1), st.sampled_from([(), ("sex",)]), st.booleans()
)
SETTINGS = settings(max_examples=20, deadline=None)


def curator(rows: Any, adjacency: str, *, pure: bool = True, **options: Any) -> Curator:
    scope = {
        "adjacency": adjacency,
        "unit": Unit.PERSON if options.get("unit") else Unit.RECORD,
    }
    budget = PureDP(epsilon=100.0, **scope) if pure else ZCDP(xi=0, rho=100.0, **scope)
    return Curator(table(rows), budget, bounds=BOUNDS, keys=KEYS, threads=1, **options)


def check(
    first: Any,
    second: Any,
    adjacency: str,
    asked: tuple[int, tuple[str, ...], bool],
    **options: Any,
) -> None:
    """Every release of a question, of both tables: the difference is within what is stated."""
    index, by, pure = asked
    amount = {"epsilon": 1.0} if pure else {"rho": 1.0}
    query = questions(by)[index]
    with curator(first, adjacency, pure=pure, **options) as one:
        before = exact(one, query, **amount)
    with curator(second, adjacency, pure=pure, **options) as other:
        after = exact(other, query, **amount)
    for (entries, (absolute, squared)), (others, _) in zip(before, after, strict=True):
        change = [a - b for a, b in zip(entries, others, strict=True)]
        if pure:
            assert sum(map(abs, change)) <= absolute, query
        else:
            assert sum(a * a for a in change) <= squared, query


@given(st.lists(ROWS, max_size=4), ROWS, ASKED)
@SETTINGS
def test_a_row_more(rows, row, asked):
    check(rows, [*rows, row], "add-remove", asked)


@pytest.mark.heavy
@given(st.lists(ROWS, max_size=3), ROWS, ROWS, ASKED)
@SETTINGS
def test_a_row_replaced(rows, row, other, asked):
    check([*rows, row], [*rows, other], "replace-one", asked)


BOUNDED = st.fixed_dictionaries(
    {"unit": st.just("person"), "max_rows": st.integers(1, 3), "max_groups": st.integers(1, 2)}
)


@pytest.mark.heavy
@given(st.lists(ROWS, max_size=4), st.lists(ROWS, max_size=6), ASKED, BOUNDED)
@SETTINGS
def test_a_person_more(rows, own, asked, options):
    own = [(9, *row[1:]) for row in own]
    check(rows, [*rows, *own], "add-remove", asked, **options)


@pytest.mark.heavy
@given(
    st.lists(ROWS, max_size=3),
    st.lists(ROWS, max_size=5),
    st.lists(ROWS, max_size=5),
    ASKED,
    BOUNDED,
)
@SETTINGS
def test_a_person_replaced(rows, own, new, asked, options):
    first = [*rows, *((9, *row[1:]) for row in own)]
    second = [*rows, *((9, *row[1:]) for row in new)]
    check(first, second, "replace-one", asked, **options)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("unit", [None, "person"])
@given(
    st.lists(ROWS, max_size=4),
    st.lists(ROWS, min_size=1, max_size=6),
    st.lists(ROWS, min_size=1, max_size=6),
    ASKED,
    BOUNDED,
)
@settings(max_examples=200, deadline=None)
def test_every_neighbour(adjacency, unit, rows, own, new, asked, options):
    replaced = adjacency == "replace-one"
    if unit is None:
        own, new, options = own[:1], new[:1], {}
    own, new = ([(9, *row[1:]) for row in part] for part in (own, new))
    check([*rows, *own], [*rows, *new] if replaced else rows, adjacency, asked, **options)


REACHED: list[tuple[str, Any, Any, str, dict[str, Any]]] = [
    ("count", model.Count(), [(1, "F", 0.0, 0)], "add-remove", {}),
    ("sum", model.Sum("x"), [(1, "F", 99.0, 0)], "add-remove", {}),
    ("mean", model.Mean("x"), [(1, "F", 3.0, 0)], "add-remove", {}),
    ("variance", model.Variance("x"), [(1, "F", 3.0, 0)], "add-remove", {}),
    (
        "person",
        model.Mean("x", by=("sex",)),
        [(9, "F", 3.0, 0), (9, "M", 3.0, 0), (9, "M", 3.0, 0), (9, "F", 2.0, 0)],
        "add-remove",
        {"unit": "person", "max_rows": 2, "max_groups": 2},
    ),
]


@pytest.mark.parametrize(("name", "query", "rows", "adjacency", "options"), REACHED)
def test_the_bounds_are_reached(name, query, rows, adjacency, options):
    """Else noise is wasted, and the checks above would pass whatever the rows."""
    with (
        curator(rows, adjacency, **options) as more,
        curator([], adjacency, **options) as none,
    ):
        ((entries, (absolute, _)),) = exact(more, query, epsilon=1.0)
        ((nothing, _),) = exact(none, query, epsilon=1.0)
    change = sum(abs(a - b) for a, b in zip(entries, nothing, strict=True))
    assert 0.999 * absolute <= change <= absolute


def test_replacement_reaches_twice_the_step():
    first, second = [(1, "F", -99.0, 0)], [(1, "F", 99.0, 0)]
    with curator(first, "replace-one") as one, curator(second, "replace-one") as other:
        for query, share in ((model.Mean("x"), 1.0), (model.Sum("x"), 0.99)):
            ((a, (absolute, _)),) = exact(one, query, epsilon=1.0)
            ((b, _),) = exact(other, query, epsilon=1.0)
            assert (
                share * absolute <= sum(abs(i - j) for i, j in zip(a, b, strict=True)) <= absolute
            )


@pytest.mark.parametrize("mutant", ["unbounded", "groups", "clip"])
def test_mutants_are_caught(mutant, monkeypatch):
    """A person's rows not shrunk; groups not limited; the grid without its upper bound."""
    if mutant == "unbounded":
        monkeypatch.setattr(scan.Scan, "_shrunk", lambda self, i, release, part: part)
    elif mutant == "groups":
        monkeypatch.setattr(scan.Scan, "_order", lambda self: scan.fill("1"))
    else:
        from tacit.central.queries import compile as compiling

        monkeypatch.setattr(
            compiling.Compiler,
            "steps",
            lambda self, column, grid: compiling.fill(
                "CAST((:x + 1.5) * 1000 AS BIGINT)", x=self.real(column)
            ),
        )
    rows = [(1, "F", 3.0, 0)]
    own = [(9, sex, 1e6, 5) for sex in "FMFMFM"]
    with pytest.raises(AssertionError):
        check(rows, [*rows, *own], "add-remove", (4, ("sex",), True), unit="person")


@given(
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(1, 3),
    st.integers(-30, 30),
)
@settings(max_examples=200, deadline=None)
def test_rank_scores(counts, cell, other, level, rows, shift):
    """Of a unit with so many rows in a cell, more or less, and moved to another cell."""
    query = model.Quantile("x", level)
    rational = Fraction(query.level)
    base = order.rank_scores(counts, rational, shift)
    more = list(counts)
    more[cell] += rows
    moved = list(counts)
    moved[other] += rows
    assert base.max() == 0
    for adjacency, pair in (("add-remove", (counts, more)), ("replace-one", (more, moved))):
        owner = Contribution(Adjacency(adjacency), Unit.PERSON, rows, 1, 1)
        scores = [order.rank_scores(one, rational, shift) for one in pair]
        bound = order.rank_sensitivity(query, owner)
        assert np.abs(scores[0] - scores[1]).max() <= bound


@pytest.mark.parametrize("bounds", [(0, 1), (-1.5, 7.3), (1e9, 1e9 + 3), (-1e-9, 1e-9), (0, 1e99)])
@pytest.mark.parametrize("bits", [16, 30])
def test_no_value_is_beyond_the_grid(bounds, bits):
    """At the bounds, one float inside them, and far outside: within {0, …, T}, and T is reached."""
    low, high = map(float, bounds)
    grid = grid_of((low, high), whole=False, bits=bits)
    inside = [np.nextafter(low, high), np.nextafter(high, low), (low + high) / 2]
    values = [low, high, *inside, -1e300, 1e300, INF, -INF]
    rows = [(1, "F", value, 0) for value in values]
    with Curator(table(rows), 1.0, bounds={"x": bounds}, threads=1) as made:
        steps = made._engine.compiler.steps(made._engine.compiler.columns["x"], grid)
        tree = scan.sqlglot().select(steps).from_("data")
        found = [t for (t,) in made._engine.rows(tree)]
    assert found[0] == found[5] == found[8] == 0
    assert found[1] == found[6] == found[7] == grid.top
    assert all(0 <= t <= grid.top for t in found)
