"""What a hostile reader found in the curator, kept: no row decides more than noise hides."""

from datetime import UTC, date, datetime

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.central.queries import model
from tacit.central.queries.curator import Curator
from tacit.privacy.errors import InvalidParameter, TacitError
from tacit.privacy.randomness import Seeded

from .conftest import exact

# Charges are chosen adaptively: the certificate of a session may only add them up.


def test_a_session_is_not_composed_as_if_fixed_beforehand():
    curator = Curator(pa.table({"x": [1, 2, 3]}), 100.0, rng=Seeded(1))
    for _ in range(60):
        curator.count(epsilon=0.1)
    guarantee = curator.certificate().guarantee
    assert guarantee.epsilon >= 6.0 - 1e-9


# Bytes of a row must not decide whether a CSV file opens.


def test_a_row_that_is_no_text_is_no_error(tmp_path):
    file = tmp_path / "c.csv"
    file.write_bytes(b"a,b\n1,x\n2,\xff\n")
    assert Curator(file, 100.0, rng=Seeded(1)).count(epsilon=50).value in (1, 2)


# One physical line of a CSV file is one record, whatever stands in it.

LINES = [f"{i},ok,{20 + i % 50}".encode() for i in range(500)]
HOSTILE = {
    "quote": b'7777,"hello,33',
    "quotes": b'"""""""""',
    "return": b"7777,he\rllo,33",
    "late quote": b'7777,hello",33',
    "nul": b"7777,\0,33",
    "bytes": b"7777,\xff\xc3,33",
    "fields": b"7777,a,b,c,33",
    "few": b"7777",
    "long": b'7777,"' + b"x" * (1 << 18),
    "number": b"7777,x,1e400",
}


@pytest.mark.quick(8)
@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("place", [0, 100, 500])
def test_a_line_changes_one_record(line, place, tmp_path):
    def sums(body):
        (tmp_path / "c.csv").write_bytes(b"\n".join([b"id,note,age", *body]) + b"\n")
        with Curator(tmp_path / "c.csv", 600.0, bounds={"age": (0, 100)}, rng=Seeded(1)) as made:
            asked = (model.Count(), model.Count("age"), model.Sum("age"), model.Count("note"))
            scan = [exact(made, one, epsilon=1.0)[0] for one in asked]
            return [(entries[0], most) for entries, (most, _) in scan]

    before, after = sums(LINES), sums([*LINES[:place], line, *LINES[place:]])
    assert before[0][0] + 1 == after[0][0]
    for (one, most), (other, _) in zip(before, after, strict=True):
        assert abs(one - other) <= most


def test_text_files_are_read_when_a_question_was_charged(tmp_path):
    """And once; what cannot be read then tells nothing of the rows."""
    file = tmp_path / "c.csv"
    file.write_bytes(b"a\n1\n2\n")
    with Curator(file, 100.0, rng=Seeded(1)) as curator:
        file.unlink()
        with pytest.raises(TacitError, match="could not read the rows"):
            curator.count(epsilon=50)
        assert curator.remaining["epsilon"] == 50


# Files of other types than the first must be refused by their schema, before a charge.


def ask(folder, second):
    pq.write_table(pa.table({"x": pa.array([1, 2], pa.int32())}), folder / "a1.parquet")
    pq.write_table(pa.table({"x": second}), folder / "a2.parquet")
    try:
        curator = Curator(str(folder / "a*.parquet"), 100.0, bounds={"x": (0, 10)}, rng=Seeded(1))
        curator.sum("x", epsilon=9)
    except TacitError as error:
        return type(error)
    return "answer"


@pytest.mark.parametrize(
    ("mild", "harsh"),
    [
        (pa.array([3], pa.int64()), pa.array([2**40], pa.int64())),
        (pa.array(["3"]), pa.array(["x"])),
    ],
)
def test_no_row_of_another_file_decides(mild, harsh, tmp_path):
    assert ask(tmp_path, mild) == ask(tmp_path, harsh)


# A row of a file counts once, in the column that its own file names.


def count(source, **options):
    try:
        return Curator(source, 100.0, rng=Seeded(1), **options).count(epsilon=60).value
    except TacitError:
        return "refused"


def test_a_link_is_not_another_file(tmp_path):
    pq.write_table(pa.table({"x": [1] * 10}), tmp_path / "2024.parquet")
    (tmp_path / "latest.parquet").symlink_to(tmp_path / "2024.parquet")
    assert count(str(tmp_path / "*.parquet")) in (10, "refused")


def test_a_name_is_not_a_pattern_again(tmp_path):
    pq.write_table(pa.table({"x": [1] * 10}), tmp_path / "p1.parquet")
    pq.write_table(pa.table({"x": [1] * 3}), tmp_path / "p[1].parquet")
    assert count(str(tmp_path / "p*.parquet")) in (13, "refused")


def test_headers_agree(tmp_path):
    (tmp_path / "a.csv").write_text("id,age\n1,50\n1,60\n")
    (tmp_path / "b.csv").write_text("age,id\n33,1\n34,1\n35,1\n")
    assert count(str(tmp_path / "*.csv"), unit="id") in (1, "refused")


def test_folders_name_no_columns(tmp_path):
    (tmp_path / "sex=F").mkdir()
    file = tmp_path / "sex=F" / "x.parquet"
    pq.write_table(pa.table({"sex": ["M", "M"]}), file)
    groups = (
        Curator(file, 100.0, keys={"sex": ["F", "M"]}, rng=Seeded(1))
        .count(by="sex", epsilon=60)
        .groups
    )
    assert [one.value for one in groups.values()] == [0, 2]


# Rounding to steps belongs into the intervals.


def test_sum_beside_a_variance():
    x, missed = np.full(200_000, (19660 + 0.49) / 2**16), 0
    for seed in range(10):
        curator = Curator(pa.table({"x": x}), 100.0, bounds={"x": (0, 1)}, rng=Seeded(seed))
        asked = model.Several((model.Sum("x"), model.Variance("x")))
        low, high = curator.answer(asked, epsilon=5.0).parts[0].interval
        missed += not low <= x.sum() <= high
    assert missed <= 3


def test_variance():
    places = np.arange(200_000) % 2 == 0
    x, missed = np.where(places, 2.49 / 2**16, (2**16 - 2.49) / 2**16), 0
    for seed in range(10):
        curator = Curator(pa.table({"x": x}), 100.0, bounds={"x": (0, 1)}, rng=Seeded(seed))
        low, high = curator.variance("x", epsilon=5.0).interval
        missed += not low <= x.var() <= high
    assert missed <= 3


# No two groups share a name or a value.


def test_commas():
    keys = {"a": ["x,y", "x"], "b": ["z", "y,z"]}
    try:
        answer = Curator(
            pa.table({"a": ["x"], "b": ["z"]}), 9.0, keys=keys, rng=Seeded(1)
        ).contingency(["a", "b"], epsilon=1)
    except TacitError:
        return
    assert len(answer.to_dict()["groups"]) == 4


def test_one_date_twice():
    table = pa.table({"a": pa.array([date(2024, 1, 31)])})
    with pytest.raises(TacitError):
        Curator(table, 9.0, keys={"a": ["2024-01-31", "20240131"]}, rng=Seeded(1))


# A connection whose settings are locked is refused, or works, before a charge.


def test_locked_settings():
    connection = duckdb.connect()
    connection.execute("create table t as select 1 as x")
    connection.execute("set lock_configuration = true")
    try:
        curator = Curator(connection, 1.0, table="t", rng=Seeded(1))
    except TacitError:
        return
    try:
        curator.count(epsilon=0.5)
    except TacitError:
        assert curator.remaining["epsilon"] == 1.0


# Far moments must not raise.


def outcome(ask):
    """A value, or the kind of refusal."""
    try:
        return ask().value is not None
    except InvalidParameter:  # by the plan: fine, if it is the same for all data
        return "refused"


@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize("kind", ["where", "keys", "file", "duration"])
def test_a_far_moment_changes_no_outcome(unit, kind, tmp_path):
    def ask(last):
        values = pa.array(
            [0, last], pa.duration(unit) if kind == "duration" else pa.timestamp(unit)
        )
        source = pa.table({"x": values})
        if kind == "file":
            source = tmp_path / f"{last}.parquet"
            pq.write_table(pa.table({"x": pa.array([0, last], pa.timestamp("ms"))}), source)
        if kind == "keys":
            keys = {"x": ["1970-01-01"]}
            return outcome(
                lambda: (
                    Curator(source, 100.0, keys=keys, rng=Seeded(1))
                    .count(by="x", epsilon=9)
                    .groups["1970-01-01"]
                )
            )
        curator = Curator(source, 100.0, rng=Seeded(1))
        if kind == "where":
            return outcome(lambda: curator.count(where="x > '2020-01-01'", epsilon=9))
        return outcome(lambda: curator.count("x", epsilon=9))

    assert ask(1) == ask(2**62)


# A time with a zone, against a column without one: the same whatever the rows hold.


def zoned(unit, last):
    curator = Curator(
        pa.table({"x": pa.array([0, last], pa.timestamp(unit))}), 100.0, rng=Seeded(1)
    )
    try:
        curator.count(where=model.Compare("x", ">", datetime(1970, 1, 1, tzinfo=UTC)), epsilon=50)
    except TacitError as error:
        assert curator.remaining["epsilon"] == 100.0
        return type(error)
    return "answer"


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_same_zoned(unit):
    assert zoned(unit, 1) == zoned(unit, 2**62)


# No condition may fail on some rows only: it would read them exactly.

TABLE = pa.table({"s": ["ann", "bob"], "t": pa.array([0, 1], pa.timestamp("ns"))})


def said(ask):
    try:
        ask()
    except TacitError as error:
        return type(error)
    return "answer"


@pytest.mark.parametrize("day", ["2500-01-01", "0001-01-01"])
@pytest.mark.parametrize("file", [False, True])
def test_a_far_date_tells_nobody(day, file, tmp_path):
    source = TABLE
    if file:
        source = tmp_path / "a.parquet"
        pq.write_table(TABLE, source)

    def ask(name):
        curator = Curator(source, 100.0, rng=Seeded(1))
        return said(lambda: curator.count(where=f"s = '{name}' and t > '{day}'", epsilon=1))

    assert ask("ann") == ask("nobody")


def test_a_stream_is_no_oracle():
    stream = Curator(TABLE, 1.0, rng=Seeded(1)).above_threshold(10**6, epsilon=0.001)
    found = [
        said(lambda n=name: stream.ask(f"s = '{n}' and t > '2500-01-01'"))
        for name in ("ann", "eve", "bob")
    ]
    assert len(set(found)) == 1


def test_keys_far_away():
    def ask(rows):
        table = pa.table({"t": pa.array(rows, pa.timestamp("ns"))})
        curator = Curator(table, 9.0, keys={"t": ["2500-01-01"]}, rng=Seeded(1))
        return said(lambda: curator.count(by="t", epsilon=1))

    assert ask([]) == ask([0])


# The rows of an object column must not decide its type.


def object_outcome(values):
    try:
        frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
        Curator(frame, 1.0, bounds={"x": (0, 10)}, rng=Seeded(1)).sum("x", epsilon=1)
    except TacitError as error:
        return type(error)
    return "answer"


@pytest.mark.parametrize("row", ["x", 2**70, True, b"a"])
def test_one_row_does_not_decide(row):
    assert object_outcome([1, 2]) == object_outcome([1, 2, row])


# One row's value must not decide whether a sum answers or fails.


@pytest.mark.parametrize("unit", [None, "p"])
@pytest.mark.parametrize("name", ["sum", "mean", "variance"])
@pytest.mark.parametrize(
    ("kind", "low", "high"), [(pa.int8(), -100, 100), (pa.int16(), -32768, 32767)]
)
def test_every_value_of_a_small_type_is_added_up(kind, low, high, name, unit):
    table = pa.table({"x": pa.array([high, high, low, None], kind), "p": [1, 2, 3, 4]})
    curator = Curator(table, 100.0, bounds={"x": (low, high)}, unit=unit, rng=Seeded(1))
    assert getattr(curator, name)("x", epsilon=50).value is not None


# Text that cannot be written in UTF-8 is refused by the plan.


def test_lone_surrogate():
    curator = Curator(pa.table({"s": ["z"]}), 1.0, rng=Seeded(1))
    with pytest.raises(InvalidParameter):
        curator.count(where=model.Compare("s", "=", "\ud800"), epsilon=0.5)
    assert curator.remaining["epsilon"] == 1.0


# What is worked out while it is read may fail on one row: it is refused before a charge.


@pytest.mark.parametrize("b", [0, 1])
@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW v AS SELECT a / b AS x FROM t",
        "CREATE VIEW v AS SELECT CAST(s AS INTEGER) AS x FROM t",
        "CREATE TEMP VIEW v AS SELECT error(s) AS x FROM t",
        "CREATE TABLE v (a INTEGER, x INTEGER GENERATED ALWAYS AS (1 // a) VIRTUAL)",
        "CREATE TABLE u AS SELECT 1 AS x; CREATE SCHEMA s; CREATE TABLE s.v AS SELECT 1 AS x; "
        "CREATE VIEW v AS SELECT * FROM u",
    ],
)
def test_a_view_is_no_table(made, b):
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 1 AS a, {b} AS b, 'x{b}' AS s")
        connection.execute(made)
        with pytest.raises(InvalidParameter, match="table must be"):
            Curator(connection, 9.0, table="v", bounds={"x": (0, 10)}, rng=Seeded(1))
        with pytest.raises(InvalidParameter, match="table must be"):
            Curator(connection, 9.0, table="main.v", rng=Seeded(1))
        connection.register("frame", pd.DataFrame({"x": ["1", b]}))
        with pytest.raises(InvalidParameter, match=r"whose rows are stored, got .frame, a view"):
            Curator(connection, 9.0, table="frame", rng=Seeded(1))


def test_a_table_of_that_name_cannot_be_put_before_it():
    """The name is found once: a temporary view that comes later is not asked."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people AS SELECT range AS x FROM range(7)")
        curator = Curator(connection, 90.0, table="PEOPLE", rng=Seeded(1))
        connection.execute("CREATE TEMP VIEW people AS SELECT 1 / 0 AS x")
        assert curator.count(epsilon=50).value == 7
        with pytest.raises(InvalidParameter, match=r"got .2 of people"):
            Curator(connection, 9.0, table="people", rng=Seeded(1))
        assert Curator(connection, 90.0, table="memory.main.people").count(epsilon=50).value == 7
        with pytest.raises(TacitError, match="could not read the table"):
            Curator(connection, 9.0, table="nobody", rng=Seeded(1))


# No bounds that are accepted make a row fail, and the others are refused whatever the rows hold.

EDGE = [
    0.0,
    -0.0,
    5e-324,
    2.5e-308,
    1e-300,
    1e-101,
    1.0,
    1e100,
    1.7e308,
    float("inf"),
    float("nan"),
]
EXTREME = [
    (0, 1e-100),
    (-1e-100, 1e-100),
    (0, 1e100),
    (-1e100, 1e100),
    (1e100 * (1 - 2.0**-38), 1e100),
    (2.0**62, 2.0**62 + 2.0**28),
    (-(2.0**63), 2.0**63),
    (1e-300, 1e-99),
]
KINDS = {
    "double": pa.array([*EDGE, *(-one for one in EDGE), None]),
    "text": pa.array([repr(one) for one in EDGE] + ["", "x", "0x1p3", "1e-999", "9" * 400]),
    "int64": pa.array([0, 1, -1, 2**63 - 1, -(2**63), 2**62 + 5, None]),
    "uint64": pa.array([0, 2**64 - 1, None], pa.uint64()),
    "decimal": pa.array([0, 10**37, -(10**37), None], pa.decimal128(38, 0)),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("bounds", EXTREME, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_fails_at_extreme_bounds(kind, bounds, tmp_path):
    def ask(values, unit):
        people = pa.array(range(len(values)), pa.int64())
        source = pa.table(
            {"x": values, "p": pa.concat_arrays([people.slice(1), people.slice(0, 1)])}
        )
        if kind == "text":
            source = tmp_path / "c.csv"
            lines = [f"{one},{at // 2}" for at, one in enumerate(values.to_pylist())]
            source.write_text("\n".join(["x,p", *lines]) + "\n")
        given = {"unit": "p", "max_rows": 2} if unit else {}
        with Curator(
            source, 699.0, bounds={"x": bounds}, rng=Seeded(1), threads=1, **given
        ) as made:
            for asked in (
                model.Sum("x"),
                model.Mean("x"),
                model.Variance("x"),
                model.Quantile("x"),
            ):
                made.answer(asked, epsilon=9)
            made.histogram("x", [-1e300, -5e-324, 0.0, 5e-324, 1e-100, 1e300], epsilon=9)
            for value in (5e-324, -1e300, 2**63, -(2**70), 0):
                made.count(where=model.Compare("x", "<=", value), epsilon=9)

    for unit in (False, True):
        ask(KINDS[kind], unit)


@pytest.mark.parametrize("bounds", [(0, 1e-101), (1e-300, 2e-300), (0, 1e101)])
def test_bounds_whose_steps_overflow_are_refused(bounds):
    with pytest.raises(InvalidParameter, match="bounds must be"):
        Curator(pa.table({"x": [1.0]}), 9.0, bounds={"x": bounds}, rng=Seeded(1))
