"""What the plan shows to be wrong: one clear line, nothing charged, nothing read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tacit.central.queries.curator import Curator
from tacit.central.queries.model import (
    And,
    Compare,
    Count,
    Histogram,
    Mean,
    Not,
    Quantile,
    Several,
    TopK,
)
from tacit.privacy import errors
from tacit.privacy.guarantees import ZCDP, Adjacency, PureDP, RenyiDP, Unit

RECORD = {"adjacency": Adjacency.ADD_REMOVE, "unit": Unit.RECORD}
SECRET = "Zebulon"


def make(budget: Any = 1.0, **options: Any) -> Curator:
    table = pa.table(
        {
            "name": [SECRET, "b"],
            "age": [31.5, None],
            "n": [1, 2],
            "born": pa.array([1, 2], pa.date32()),
            "at": pa.array([1, 2], pa.timestamp("us")),
            "odd": pa.array([[1], [2]]),
            "sex": ["F", "M"],
        }
    )
    given = {"bounds": {"age": (0, 100)}, "keys": {"sex": ["F", "M"]}, "threads": 1}
    return Curator(table, budget, **(given | options))


ASKED: list[tuple[str, Any, str]] = [
    ("unknown column", lambda c: c.mean("weight", epsilon=0.1), "in the table"),
    ("unknown column of a count", lambda c: c.count("weight", epsilon=0.1), "in the table"),
    ("case counts", lambda c: c.mean("Age", epsilon=0.1), "in the table"),
    ("unknown in where", lambda c: c.count(where="weight > 3", epsilon=0.1), "in the table"),
    ("unknown group", lambda c: c.count(by="weight", epsilon=0.1), "in the table"),
    ("no bounds", lambda c: c.sum("n", epsilon=0.1), "bounds of 'n' must be declared"),
    ("no keys", lambda c: c.count(by="name", epsilon=0.1), "keys of 'name' must be declared"),
    ("not a number", lambda c: c.mean("name", epsilon=0.1), "numbers"),
    ("text against a number", lambda c: c.count(where="age > 'x'", epsilon=0.1), "of its kind"),
    ("number against text", lambda c: c.count(where="name > 3", epsilon=0.1), "of its kind"),
    ("not a date", lambda c: c.count(where="born > 'soon'", epsilon=0.1), "of its kind"),
    (
        "a time zone",
        lambda c: c.count(where="at > '2024-01-01T00:00+02:00'", epsilon=0.1),
        "of its kind",
    ),
    ("a list", lambda c: c.count(where="odd = 1", epsilon=0.1), "Convert it first"),
    ("group twice", lambda c: c.count(by=("sex", "sex"), epsilon=0.1), "different"),
    ("overdraw", lambda c: c.mean("age", epsilon=1.01), "Nothing was charged"),
    ("overdraw of a stream", lambda c: c.above_threshold(1, epsilon=2), "Nothing was charged"),
    ("no epsilon", lambda c: c.mean("age"), "epsilon must be given"),
    ("zero", lambda c: c.mean("age", epsilon=0), "above 0"),
    ("negative", lambda c: c.mean("age", epsilon=-1), "above 0"),
    ("nan", lambda c: c.mean("age", epsilon=float("nan")), "a number from"),
    ("rho", lambda c: c.mean("age", rho=0.1), "epsilon must be given"),
    ("level", lambda c: c.quantile("age", 1.5, epsilon=0.1), "from 0 to 1"),
    ("level nan", lambda c: c.quantile("age", float("nan"), epsilon=0.1), "a number"),
    ("edges", lambda c: c.histogram("age", [3, 2], epsilon=0.1), "increasing"),
    ("edges nan", lambda c: c.histogram("age", [3, float("nan")], epsilon=0.1), "increasing"),
    ("histogram of text", lambda c: c.histogram("name", [1, 2], epsilon=0.1), "numbers"),
    ("too many top keys", lambda c: c.top_k("sex", 3, epsilon=0.1), "at most the 2 keys"),
    ("sulq of nothing", lambda c: c.sulq(None, epsilon=0.1), "given"),
    ("not a question", lambda c: c.answer(3, epsilon=0.1), "a query"),
    ("not a SELECT", lambda c: c.answer("drop table data", epsilon=0.1), "one SELECT"),
    ("edges", lambda c: c.histogram("age", 5, epsilon=0.1), "a list of numbers"),
    ("not a condition", lambda c: c.count(where=3, epsilon=0.1), "of conditions"),
    (
        "mixed",
        lambda c: c.answer(Several((Count(), Histogram("age", (0, 1)))), epsilon=0.1),
        "without histograms",
    ),
    ("subquery", lambda c: c.count(where="age > (select 1)", epsilon=0.1), ""),
    ("function", lambda c: c.count(where="getenv('HOME') = 'x'", epsilon=0.1), ""),
    ("two statements", lambda c: c.count(where="age > 1; drop table data", epsilon=0.1), ""),
]


@pytest.mark.parametrize(("name", "ask", "said"), ASKED, ids=[name for name, *_ in ASKED])
@pytest.mark.parametrize("priced", [False, True])
def test_refused(name, ask, said, priced, monkeypatch):
    with make() as curator:
        if priced:
            monkeypatch.setattr(curator, "answer", curator.price)
        with pytest.raises(errors.TacitError) as caught:
            ask(curator)
        message = str(caught.value)
        assert said in message
        assert "\n" not in message
        assert SECRET not in message
        assert curator.statements == 0
        assert curator.remaining == {"epsilon": 1.0, "delta": 0.0}
        with pytest.raises(errors.CertificateError, match="nothing was released"):
            curator.certificate()


BUILT: list[tuple[str, dict[str, Any], str]] = [
    ("reversed bounds", {"bounds": {"age": (100, 0)}}, "increasing"),
    ("equal bounds", {"bounds": {"age": (1, 1)}}, "increasing"),
    ("nan bounds", {"bounds": {"age": (0, float("nan"))}}, "a number"),
    ("infinite bounds", {"bounds": {"age": (0, float("inf"))}}, "a number"),
    ("bounds beyond floats", {"bounds": {"age": (-1e150, 1e150)}}, "1e100"),
    ("bounds of text", {"bounds": {"name": (0, 1)}}, "numbers"),
    ("bounds of nothing", {"bounds": {"weight": (0, 1)}}, "in the table"),
    ("one bound", {"bounds": {"age": 3}}, "two numbers"),
    ("bounds too close", {"bounds": {"age": (1e15, 1e15 + 1)}}, "further apart"),
    ("keys of nothing", {"keys": {"weight": [1]}}, "in the table"),
    ("keys of another kind", {"keys": {"sex": [1, 2]}}, "of its kind"),
    ("keys twice", {"keys": {"sex": ["F", "F"]}}, "different"),
    ("keys of reals", {"keys": {"age": [1.0]}}, "integers, text"),
    ("fractions as keys", {"keys": {"n": [1, 2.5]}}, "integers within"),
    ("a text as keys", {"keys": {"sex": "FM"}}, "a list"),
    ("no keys", {"keys": {"sex": []}}, "1 to 2\\^14"),
    ("unit of nothing", {"unit": "weight"}, "in the table"),
    ("rows without a unit", {"max_rows": 3}, "1 without a unit"),
    ("no rows", {"unit": "n", "max_rows": 0}, "from 1"),
    ("memory", {"memory": "lots"}, "a size"),
    ("threads", {"threads": 0}, "from 1"),
    ("budget", {"budget": 0}, "above 0"),
    ("budget nan", {"budget": float("nan")}, "a number"),
    ("budget words", {"budget": "much"}, "a number"),
    (
        "local budget",
        {"budget": PureDP(epsilon=1, adjacency="any-two-inputs", unit="record")},
        "add-remove, zero-out or replace-one",
    ),
    ("rényi", {"budget": RenyiDP(orders=(2.0,), epsilons=(1.0,), **RECORD)}, "ZCDP"),
    ("xi", {"budget": ZCDP(xi=0.1, rho=1.0, **RECORD)}, "xi must be 0"),
    (
        "person without a unit",
        {"budget": PureDP(epsilon=1, adjacency="add-remove", unit="person")},
        "that of the table",
    ),
    ("account", {"account": ""}, "line of text"),
    ("rng", {"rng": 3}, "Seeded"),
]


@pytest.mark.parametrize(("name", "options", "said"), BUILT, ids=[name for name, *_ in BUILT])
def test_never_built(name, options, said):
    with pytest.raises(errors.TacitError, match=said) as caught:
        make(**options)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("missing.parquet", "a file that exists"),
        (3, "a path, a pandas"),
        ("/etc/passwd", "Parquet"),
        ([1, 2], "a path, a pandas"),
    ],
)
def test_no_source(source, said):
    with pytest.raises(errors.TacitError, match=said):
        Curator(source, 1.0)


def test_a_damaged_file_and_a_missing_table(tmp_path):
    path = tmp_path / "bad.parquet"
    path.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(errors.TacitError, match="the engine could not read the source"):
        Curator(path, 1.0)
    import duckdb

    with duckdb.connect() as connection:
        with pytest.raises(errors.TacitError, match="the engine could not read the table"):
            Curator(connection, 1.0, table="people")
        with pytest.raises(errors.TacitError, match="name of a table"):
            Curator(connection, 1.0)


def test_columns_of_our_own_names_are_refused():
    with pytest.raises(errors.TacitError, match="without tacit_"):
        Curator(pa.table({"tacit_k": [1]}), 1.0)


def test_questions_refuse_when_they_are_made():
    for build, said in [
        (lambda: Mean(""), "a name"),
        (lambda: Mean("a\0b"), "a name"),
        (lambda: Compare("a", "like", 1), "one of"),
        (lambda: Compare("a", "=", float("inf")), "finite"),
        (lambda: Compare("a", "=", b"x"), "a number, text"),
        (lambda: Compare("a", "=", "x\0"), "without NUL"),
        (lambda: And(()), "at least one"),
        (lambda: Not(3), "of conditions"),
        (lambda: Quantile("a", cells=1), "from 2"),
        (lambda: TopK("a", 0), "from 1"),
        (lambda: TopK("a", 1, by=("b",)), "empty"),
        (lambda: Several(()), "1 to 64"),
        (lambda: Several((Count(), Count(by="sex"))), "same rows and groups"),
    ]:
        with pytest.raises(errors.InvalidParameter, match=said):
            build()


def test_conditions_of_any_depth_are_refused_not_crashed():
    where: Any = Compare("age", ">", 1)
    for _ in range(100_000):
        where = Not(where)
    with make() as curator, pytest.raises(errors.InvalidParameter, match="nested at most"):
        curator.count(where=where, epsilon=0.1)
    wide = And(tuple(Compare("age", ">", i) for i in range(2000)))
    with make() as curator, pytest.raises(errors.InvalidParameter, match="of at most"):
        curator.count(where=wide, epsilon=0.1)


def test_noise_that_is_too_wide_is_refused_before_the_charge():
    with make(unit="n", max_rows=2**20, max_groups=1) as curator:
        with pytest.raises(errors.InvalidParameter, match="at most 2\\^50"):
            curator.mean("age", epsilon=1e-4)
        assert curator.remaining["epsilon"] == 1.0


def test_a_budget_out_of_range_is_named() -> None:
    with pytest.raises(errors.InvalidParameter, match="budget must be at most 700"):
        make(1e7)
