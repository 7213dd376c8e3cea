"""Small tables, and the integers of a question before noise."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tacit.central.queries import model
from tacit.central.queries.answering import group_of
from tacit.central.queries.curator import Curator
from tacit.central.queries.scan import Scan

TYPES = {"person": pa.int64(), "sex": pa.string(), "x": pa.float64(), "n": pa.int32()}
BOUNDS = {"x": (-1.5, 7.3), "n": (0, 10)}
KEYS = {"sex": ["F", "M"]}


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows of (person, sex, x, n)."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    return pa.table(
        {name: pa.array(column, TYPES[name]) for name, column in zip(TYPES, columns, strict=True)}
    )


def exact(
    curator: Curator, query: Any, *, salt: int = 1, **amount: Any
) -> list[tuple[list[int], tuple[int, int]]]:
    """For each release of a question: its entries in all groups, and the stated sensitivities."""
    plan = curator._plan(query, amount.get("epsilon"), amount.get("rho"))
    group, first = group_of(curator._engine, curator._declared, plan)
    unit = curator._declared.unit
    scan = Scan(curator._engine, query.where, group, first, unit, plan.contribution, salt)
    sums = scan.parts([one.release for one in plan.noised])
    found = []
    for i, one in enumerate(plan.noised):
        nothing = [0] * len(one.release.parts)
        entries: list[int] = []
        for code in range(plan.cells):
            entries += one.release.entries(sums[code][i] if code in sums else nothing)
        found.append((entries, one.release.sensitivity(plan.contribution)))
    return found


@pytest.fixture
def people() -> pa.Table:
    """Three hundred rows of a hundred people; some hold nothing in places."""
    rows = []
    for i in range(300):
        x = None if i % 17 == 0 else float("nan") if i % 19 == 0 else (i % 13) - 2.5
        person = None if i % 29 == 0 else i % 100
        sex = [*"FMFMFMX", None][i % 8]
        rows.append((person, sex, x, i % 12))
    return table(rows)


def questions(by: tuple[str, ...] = ()) -> list[Any]:
    """Every question that gets noise, alone and together."""
    return [
        model.Count(by=by),
        model.Count("x", by=by),
        model.Sum("x", by=by),
        model.Sum("n", by=by),
        model.Mean("x", by=by),
        model.Mean("n", by=by),
        model.Variance("x", by=by),
        model.Variance("n", by=by),
        model.Histogram("x", (-1.0, 0.0, 2.5, 7.3), by=by),
        model.Several((model.Count(by=by), model.Mean("x", by=by), model.Sum("n", by=by))),
        model.Several((model.Variance("x", by=by), model.Count(by=by), model.Mean("x", by=by))),
    ]
