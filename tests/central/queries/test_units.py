"""People: what each counts for, against a plain computation, and whatever they do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tacit.central.queries import model
from tacit.central.queries.curator import Curator
from tacit.central.queries.model import Count, Mean, Several, Sum, Variance
from tacit.central.queries.scan import Scan

from .conftest import BOUNDS, KEYS, exact, questions, table


def curator(source: Any, **options: Any) -> Curator:
    given = {"bounds": BOUNDS, "keys": KEYS, "unit": "person", "threads": 1}
    return Curator(source, 100.0, **(given | options))


@pytest.mark.quick(1)
@pytest.mark.parametrize("by", [(), ("sex",)])
@pytest.mark.parametrize(("max_rows", "max_groups"), [(1, 1), (2, 1), (2, 2), (7, 2)])
def test_both_ways_to_bound_give_the_same_integers(people, by, max_rows, max_groups, monkeypatch):
    """People with several rows apart, as DuckDB does it, and everybody in one statement."""
    with curator(people, max_rows=max_rows, max_groups=max_groups) as made:
        apart = [exact(made, query, epsilon=1.0) for query in questions(by)]

        def together(self: Scan, releases: Any) -> Any:
            with self.engine.session():
                return self._bounded(releases, several=False)

        monkeypatch.setattr(Scan, "parts", together)
        assert apart == [exact(made, query, epsilon=1.0) for query in questions(by)]


@pytest.mark.parametrize("max_rows", [1, 2, 5])
def test_a_person_counts_as_the_formula_says(people, max_rows):
    """Sums over people of s·m // c, from the rows by hand."""
    own: dict[tuple[Any, str], list[int]] = {}
    for person, sex, n in zip(
        *(people[name].to_pylist() for name in ("person", "sex", "n")), strict=True
    ):
        if person is not None and sex in KEYS["sex"]:
            own.setdefault((person, sex), []).append(min(max(n, 0), 10))
    with curator(people, max_rows=max_rows, max_groups=2) as made:
        ((counts, _),) = exact(made, Count(by="sex"), epsilon=1.0)
        ((sums, _),) = exact(made, Sum("n", by="sex"), epsilon=1.0)
        fine = made._declared.grid("n", from_zero=True).fine
    for place, sex in enumerate(KEYS["sex"]):
        parts = [values for (_, key), values in own.items() if key == sex]
        assert counts[place] == sum(min(len(values), max_rows) for values in parts)
        shrunk = (
            sum(values) * fine * max_rows // len(values)
            if len(values) > max_rows
            else sum(values) * fine
            for values in parts
        )
        assert sums[place] == sum(shrunk)


@pytest.mark.heavy
def test_groups_of_a_person_are_chosen_by_their_own_rows():
    """Whoever else is there: the choice is the same; over salts it is even."""
    own = [(9, "F", 1.0, 1), (9, "M", 1.0, 1)]
    others = [(i, "FM"[i % 2], 1.0, 1) for i in range(5)]
    chosen = []
    with curator(table(own)) as alone, curator(table([*others, *own])) as crowd:
        base = [3, 2]
        for salt in range(60):
            ((single, _),) = exact(alone, Count(by="sex"), salt=salt, epsilon=1.0)
            ((among, _),) = exact(crowd, Count(by="sex"), salt=salt, epsilon=1.0)
            assert sum(single) == 1
            assert [a - b for a, b in zip(among, base, strict=True)] == single
            chosen.append(single[0])
    assert 10 < sum(chosen) < 50


def test_a_person_with_a_million_rows():
    """Bounded, not refused: one person among a thousand cannot be seen in the sums."""
    size = 10**6
    rows = pa.table(
        {
            "person": np.concatenate([np.zeros(size, np.int64), np.arange(1, 1001)]),
            "x": np.concatenate([np.full(size, 10.0), np.ones(1000)]),
        }
    )
    with Curator(rows, 600.0, bounds={"x": (0, 10)}, unit="person", threads=1, max_rows=3) as made:
        assert made.count(epsilon=100).value == 1003
        assert made.mean("x", epsilon=100).value == pytest.approx(1030 / 1003, abs=1e-2)
        assert made.variance("x", epsilon=100).value == pytest.approx(
            (1000 + 300) / 1003 - (1030 / 1003) ** 2, abs=1e-1
        )
        assert made.median("x", epsilon=100).value == pytest.approx(1, abs=0.02)


def test_rows_without_a_person_are_left_out(people):
    nobody = sum(person is None for person in people["person"].to_pylist())
    assert nobody > 0
    with curator(people, max_rows=1000) as made:
        ((count, _),) = exact(made, Count(), epsilon=1.0)
    assert count == [people.num_rows - nobody]


def test_people_by_name():
    rows = pa.table({"who": ["a", "b", "b", None, ""], "n": [1, 2, 3, 4, 5]})
    with Curator(rows, 600.0, bounds={"n": (0, 5)}, unit="who", threads=1) as made:
        assert made.count(epsilon=50).value == 3
        assert made.sum("n", epsilon=300).value == pytest.approx(1 + 2.5 + 5, abs=0.3)


def test_the_price_of_people():
    """A person in two groups with three rows each costs six rows."""
    rows = table([(1, "F", 1.0, 1)])
    with curator(rows, max_rows=3, max_groups=2) as made:
        event = made.price(Count(by="sex"), epsilon=1.0).event
        assert event.l1_sensitivity == 6
        assert event.unit == "person"
        assert made.price(Count(), epsilon=1.0).event.l1_sensitivity == 3
        certificate = made.count(epsilon=1.0).certificate()
        assert "A record is a row" not in certificate.explain()
        quantile = made.price(model.Quantile("x", by=("sex",)), epsilon=1.0)
        assert quantile.guarantee.epsilon == pytest.approx(1.0)
        assert made.answer(
            Several((Count(by="sex"), Mean("x", by="sex"), Variance("n", by="sex"))), epsilon=1.0
        ).guarantee.epsilon == pytest.approx(1.0)


def test_next_to_nothing_is_lost_by_rounding_down():
    """A hundred people with seven rows each: the shrunk mean is theirs to nine digits."""
    rows = [(i // 7, "F", float(i % 7), i % 7) for i in range(700)]
    with curator(table(rows)) as made:
        for query in (Mean("x"), Mean("n")):
            ((entries, _),) = exact(made, query, epsilon=1.0)
            grid = made._declared.grid(query.column)
            mean = grid.lower + entries[0] / sum(entries) * (grid.upper - grid.lower)
            assert math.isclose(mean, 3.0, rel_tol=1e-7)
