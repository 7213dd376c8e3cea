"""Hostile text wherever text goes in: statements, names, values, keys, files. Nothing gets out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tacit.central.queries import model, sql
from tacit.central.queries.curator import Curator
from tacit.central.queries.model import Compare
from tacit.privacy.errors import BudgetExceeded, InvalidParameter, TacitError
from tacit.privacy.guarantees import PureDP

LOUD = 600.0  # an ε without noise to speak of: what comes back is what was counted
SCOPE = {
    None: PureDP(1e5, adjacency="add-remove", unit="record"),
    "who": PureDP(1e5, adjacency="add-remove", unit="person"),
}
NAMES = [
    "plain",
    'a"b',
    "a'b",
    'x"; DROP TABLE data; --',
    "x) FROM read_csv('/etc/passwd'); --",
    "select",
    "from",
    "data",
    "a b",
    " ",
    "a.b",
    "a;b",
    "a:b",
    ":x",
    "$1",
    "?",
    "%s",
    "{x}",
    "/* x */",
    "-- x",
    "\\",
    "größe",
    "用户",
    "ａｇｅ",
    "ﬁ",
    # names that the engine's own statements use
    *("n", "t", "u", "v", "c", "s", "c0", "s0", "q0", "b0"),
    *("a0_0", "a0_1", "place", "cell", "count", "rowid"),
]
VALUES = [
    "'",
    "''",
    '"',
    "\\",
    "\\'",
    "' OR 1=1 --",
    "'; DROP TABLE data; --",
    "/*",
    ":x",
    ":a",
    "$1",
    "?",
    "%",
    "%s",
    "{x}",
    "NULL",
    "true",
    "1",
    "a\nb",
    "",
    " ",
    "用户",
    "e\u0301",
    "\u00e9",
    "\u202e",
]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module", name="table")
def _table() -> pd.DataFrame:
    """Columns of all those names. Ten people of two groups, one of them with three rows more."""
    person = [*range(10), 0, 0, 0]
    columns = {name: [float(one % 5) for one in person] for name in NAMES}
    return pd.DataFrame({**columns, "group_": [one % 2 for one in person], "who": person})


@pytest.mark.heavy
@pytest.mark.parametrize(("unit", "rows"), [(None, 8), ("who", 5)])
def test_a_column_may_have_any_name(table: pd.DataFrame, unit: str | None, rows: int) -> None:
    declared = {"bounds": dict.fromkeys(NAMES, (0, 10)), "keys": {"group_": [0, 1]}}
    with Curator(table, SCOPE[unit], **declared, unit=unit) as curator:  # type: ignore[arg-type]
        for name in NAMES:
            column = quoted(name)
            text = f"select group_, avg({column}) a, count(*) n, sum({column}) s from data"
            text += f" where {column} >= 0 group by group_"
            mean, count, total = curator.answer(sql.parse(text).query, epsilon=LOUD).parts
            assert mean.groups is not None
            assert count.groups is not None
            assert total.groups is not None
            assert [round(one.value) for one in count.groups.values()] == [rows, 5], name
            assert mean.groups[0].value == pytest.approx(10 / rows, abs=0.2), name
            assert total.groups[1].value == pytest.approx(10, abs=1), name


def test_keys_and_quantiles_may_be_of_columns_of_any_name(table: pd.DataFrame) -> None:
    whole = table.astype(int)
    declared = {"bounds": {"who": (0, 10)}, "keys": dict.fromkeys(NAMES, (0, 1, 9))}
    with Curator(whole, SCOPE[None], **declared) as curator:  # type: ignore[arg-type]
        for name in NAMES:
            found = curator.count(by=name, epsilon=LOUD).groups
            assert found is not None
            assert {key: one.value for key, one in found.items()} == {0: 5, 1: 2, 9: 0}, name
            middle = curator.median("who", where=f"{quoted(name)} = 0", epsilon=LOUD)
            assert middle.value == 0, name


def test_a_unit_may_have_any_name(table: pd.DataFrame) -> None:
    for name in NAMES[::4]:
        with Curator(table, LOUD, unit=name, keys={"group_": [0, 1]}) as curator:
            assert curator.count(epsilon=LOUD / 2).value == 5, name
            found = curator.count(by="group_", epsilon=LOUD / 2).groups
            assert found is not None
            assert sum(one.value for one in found.values()) == 5, name


@pytest.mark.parametrize("name", ["tacit_k", "TACIT_P", "tacit_frame"])
def test_names_of_the_engine_itself_are_refused(name: str) -> None:
    with pytest.raises(InvalidParameter, match="tacit_"):
        Curator(pd.DataFrame({name: [1]}), 1.0)


def test_a_value_is_a_value() -> None:
    """As a literal of a statement, of the Python API, and as a key."""
    table = pd.DataFrame({"word": [*VALUES, *VALUES, "other", None]})
    with Curator(table, SCOPE[None], keys={"word": [*VALUES, "none"]}) as curator:
        for value in VALUES:
            literal = value.replace("'", "''")
            for where in (f"word = '{literal}'", Compare("word", "=", value)):
                assert curator.count(where=where, epsilon=LOUD).value == 2, value  # type: ignore[arg-type]
            others = curator.count(where=f"word <> '{literal}'", epsilon=LOUD).value
            assert others == 2 * len(VALUES) - 1, value
        groups = curator.count(by="word", epsilon=LOUD).groups
        assert groups is not None
        assert [one.value for one in groups.values()] == [2] * len(VALUES) + [0]


HOSTILE = [
    "select count(*) from data; drop table data",
    "select count(*) from read_csv('/etc/passwd')",
    "select count(*) from '/etc/passwd'",
    "copy data to '/tmp/stolen'",
    "attach '/tmp/x' as x",
    "set enable_external_access = true",
    "pragma database_list",
    "select * from data",
    "select age from data",
    "select count(*) from data where age > (select max(age) from data)",
    "select count(*) over (partition by age) from data",
    "select count(distinct age) from data",
    "select sum(1 / age) from data",
    "select sum(cast(word as int)) from data",
    "select count(*) from data where error(word) = 1",
    "select count(*) from data where word = 'x' or 1 = 1",
    "select avg(age) from data",  # no bounds
    "select count(*) from data group by age",  # no keys
    "select count(nobody) from data",
    "select count(*) from data where word > 3",
    "select count(*) from data where age = 'x'",
    "select count(*) from data where nobody is null",
    "select sum(word) from data",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_refusal_charges_nothing_and_reads_nothing(text: str) -> None:
    table = pd.DataFrame({"age": [0.0, 1.0], "word": ["secret", "x"]})
    with Curator(table, 1.0) as curator:
        with pytest.raises(InvalidParameter) as refusal:
            # A table of any name can be written, but no engine ever sees it: see the CLI's tests.
            curator.answer(checked(text), epsilon=0.5)
        assert "secret" not in str(refusal.value)
        assert curator.remaining == {"epsilon": 1.0, "delta": 0.0}
        assert curator.statements == 0


def checked(text: str) -> model.Query | model.Several:
    asked = sql.parse(text)
    if asked.table != "data":
        raise InvalidParameter(asked.table)
    return asked.query


def test_an_overdraw_charges_nothing_and_reads_nothing() -> None:
    with Curator(pd.DataFrame({"age": [1.0]}), 1.0) as curator:
        with pytest.raises(BudgetExceeded):
            curator.answer(checked("select count(*) from data"), epsilon=1.5)
        assert curator.remaining["epsilon"] == 1.0
        assert curator.statements == 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('{other}')",
        "SELECT * FROM read_parquet('{other}')",
        "SELECT * FROM '{other}'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '{folder}/stolen.csv'",
        "ATTACH '{folder}/x.db' AS x",
        "EXPORT DATABASE '{folder}/x'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '1TB'",
        "SET lock_configuration = false",
        "SET allowed_paths = ['/etc/passwd']",
        "SELECT * FROM local",
    ],
)
def test_the_engine_itself_reaches_nothing_else(text: str, tmp_path: Path) -> None:
    """The second wall: had a statement come through, it would find the doors locked."""
    import duckdb

    table = pd.DataFrame({"age": [1.0]})
    table.to_parquet(tmp_path / "data.parquet")
    table.to_parquet(tmp_path / "other.parquet")
    local = table  # a replacement scan would find it by its name
    assert len(local) == 1
    with Curator(tmp_path / "data.parquet", 1.0) as curator:
        connection = curator._engine._connection  # type: ignore[attr-defined]
        with pytest.raises(duckdb.Error):
            connection.execute(text.format(folder=tmp_path, other=tmp_path / "other.parquet"))
        assert curator.count(epsilon=0.5).remaining["epsilon"] == 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.parquet", "other.parquet"]


@pytest.mark.parametrize("name", ["a'b", "a;b --", 'a"b', "a b", "用户", "x'); ATTACH 'y"])
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_file_may_have_any_name(name: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / (name + ending)
    table = pd.DataFrame({'x"; --': [1, 2, 3]})
    table.to_parquet(path) if ending == ".parquet" else table.to_csv(path, index=False)
    with Curator(path, LOUD) as curator:
        assert curator.count('x"; --', epsilon=LOUD).value == 3


def test_a_condition_as_large_as_allowed_runs() -> None:
    table = pd.DataFrame({"a": list(range(1000))})
    wide = " or ".join(f"a = {i}" for i in range(800))
    deep = "not (" * 20 + "a < 500" + ")" * 20
    with Curator(table, LOUD) as curator:
        assert curator.count(where=wide, epsilon=100).value == 800
        assert curator.count(where=deep, epsilon=100).value == 500
        assert curator.count(where=f"a in ({', '.join(map(str, range(900)))})", epsilon=100).value


def test_messages_of_the_engine_do_not_quote_rows(tmp_path: Path) -> None:
    """A file that breaks after it was opened: the charge stays, the line tells nothing."""
    path = tmp_path / "data.parquet"
    pd.DataFrame({"word": ["secret"] * 100}).to_parquet(path)
    with Curator(path, 1.0) as curator:
        path.write_bytes(b"secret" * 50)
        with pytest.raises(TacitError) as refusal:
            curator.count("word", epsilon=0.5)
        assert "secret" not in str(refusal.value)
        assert refusal.value.__cause__ is None
        assert refusal.value.__context__ is None
        assert curator.remaining["epsilon"] == 0.5
