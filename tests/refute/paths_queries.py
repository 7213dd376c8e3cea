"""Questions to the curator, on every engine and kind of file that it reads."""

from __future__ import annotations

import atexit
import csv
import importlib.util
import itertools
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path as File
from typing import Any

import duckdb
import pandas
import polars
import psycopg
import pyarrow
import pyarrow.parquet

from tacit.central.queries import model
from tacit.central.queries.curator import Curator
from tacit.privacy.guarantees import ZCDP, PureDP

from .refuter import Outcome, Pair, Path
from .tape import Coins

NAMES = ("person", "sex", "x", "n")
Record = tuple[Any, ...]
BASE: list[Record] = [(i // 2, "FM"[i % 2], i / 7 - 2, i % 5) for i in range(30)]
HOSTILE: dict[str, Record] = {
    "far above": (99, "F", 1e308, 2**31 - 1),
    "far below": (99, "M", -1e308, -(2**31)),
    "not a number": (99, "F", float("nan"), 0),
    "infinite": (99, "M", float("inf"), 1),
    "nothing": (None, None, None, None),
    "no key": (99, "?", 0.5, 3),
    "subnormal": (99, "F", 5e-324, 0),
    "one more of a person": (0, "F", 1.0, 4),
    "alone": (-(2**40), "M", 0.0, 0),
    "at the bound": (99, "F", 1.0, 3),
    "just beyond": (99, "F", 1.0000000000000002, 3),
    "half a step": (99, "F", 2.0**-30, 3),
}
FEW = ("far above", "not a number", "nothing", "one more of a person")
BOUNDS, KEYS = {"x": (-1.0, 1.0), "n": (0, 3)}, {"sex": ["F", "M"]}


def arrow(rows: list[Record]) -> Any:
    kinds = (pyarrow.int64(), pyarrow.string(), pyarrow.float64(), pyarrow.int64())
    columns = zip(*rows, strict=True)
    return pyarrow.table(
        {
            name: pyarrow.array(values, kind)
            for name, values, kind in zip(NAMES, columns, kinds, strict=True)
        }
    )


def parquet(rows: list[Record], folder: File) -> str:
    pyarrow.parquet.write_table(arrow(rows), folder / "people.parquet")
    return str(folder / "people.parquet")


def csv_file(rows: list[Record], folder: File) -> str:
    with (folder / "people.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([NAMES, *rows])
    return str(folder / "people.csv")


def duck(rows: list[Record], folder: File) -> Any:
    connection = duckdb.connect()
    connection.register("given", arrow(rows))
    connection.execute("CREATE TABLE people AS SELECT * FROM given")
    connection.unregister("given")
    return connection


def postgresql(rows: list[Record], folder: File) -> Any:
    with psycopg.connect(_server()) as connection:
        connection.execute("DROP TABLE IF EXISTS people")
        connection.execute("CREATE TABLE people (person bigint, sex text, x float8, n bigint)")
        with connection.cursor().copy("COPY people FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    return _server()


@cache
def _server() -> str:
    """The address of a database in a server of its own, which ends with this process."""
    started = _programs().started()
    atexit.register(started.__exit__, None, None, None)
    return str(started.__enter__().create().replace("+psycopg", ""))


@cache
def _programs() -> Any:
    place = File(__file__).parents[1] / "apps" / "service" / "postgres.py"
    spec = importlib.util.spec_from_file_location("refute_postgres", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCES: dict[str, Callable[[list[Record], File], Any]] = {
    "arrow": lambda rows, folder: arrow(rows),
    # Types are public: they must not follow from who is there, as pandas' own would.
    "pandas": lambda rows, folder: arrow(rows).to_pandas(types_mapper=pandas.ArrowDtype),
    "polars": lambda rows, folder: polars.from_arrow(arrow(rows)),
    "parquet": parquet,
    "csv": csv_file,
    "duckdb": duck,
    "postgresql": postgresql,
}


def question(name: str) -> Any:
    return {
        "count": model.Count(),
        "count by": model.Count(by=("sex",)),
        "sum": model.Sum("x"),
        "mean": model.Mean("x"),
        "mean of whole numbers": model.Mean("n", by=("sex",)),
        "variance": model.Variance("x"),
        "histogram": model.Histogram("x", (-1.0, -0.5, 0.0, 1.0)),
        "quantile": model.Quantile("x", 0.5, cells=16),
        "top": model.TopK("sex", 1),
        "several": model.Several((model.Count(), model.Sum("x"), model.Mean("n"))),
    }[name]


UNITS: dict[str, dict[str, Any]] = {
    "rows": {},
    "people": {"unit": "person", "max_rows": 2, "max_groups": 2},
}
BUDGETS: dict[str, Any] = {
    "pure": {"budget": 10.0, "epsilon": 0.5},
    "replaced": {"budget": "replace-one", "epsilon": 0.5},
    "zcdp": {"budget": "zcdp", "rho": 0.1},
}


def curator(source: Any, coins: Coins, budget: Any, **options: Any) -> Curator:
    whose = "person" if options.get("unit") else "record"
    if budget == "replace-one":
        budget = PureDP(10.0, adjacency="replace-one", unit=whose)
    elif budget == "zcdp":
        budget = ZCDP(0.0, 10.0, adjacency="add-remove", unit=whose)
    return Curator(source, budget, bounds=BOUNDS, keys=KEYS, rng=coins, **options)


def query(asked: str, source: str = "arrow", unit: str = "rows", budget: str = "pure") -> Path:
    amount = {key: value for key, value in BUDGETS[budget].items() if key != "budget"}
    place = {"table": "people"} if source in ("duckdb", "postgresql") else {}
    there = _programs().present if source == "postgresql" else lambda: True

    def run(rows: list[Record], coins: Coins) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            made = SOURCES[source](rows, File(folder))
            options = {**UNITS[unit], **place}
            with curator(made, coins, BUDGETS[budget]["budget"], **options) as house:
                answer = house.answer(question(asked), **amount)
                return Outcome(shown(answer), house.certificate().event)

    adjacency = "replace-one" if budget == "replaced" else "add-remove"
    covers = (f"queries.{type(question(asked)).__name__}", f"queries on {source}")
    name = f"Curator {asked}, {source}, {unit}, {budget}"
    given = (name, adjacency, run, lambda all_: pairs(adjacency, unit, all_), covers)
    return Path(*given, available=there)


def shown(answer: Any) -> Any:
    """Values and intervals, groups too."""
    return [(one.estimate, one.groups, one.remaining) for one in answer.parts or (answer,)]


LINES = [f"{i},ok,{20 + i % 50}".encode() for i in range(60)]
TEXTS = {
    "a quote": b'77,"hello,33',
    "a quote at the end": b'77,hello",33',
    "two quotes": b'77,"a""b",33',
    "a bare carriage return": b"77,he\rllo,33",
    "a null": b"77,he\0llo,33",
    "not UTF-8": b"77,\xff\xfe,33",
    "too many fields": b"77,a,b,c,33",
    "too few": b"77",
    "no number": b"seventy,ok,many",
    "a mark of order": b"\xef\xbb\xbf77,ok,33",
    "a comment": b"# 77,ok,33",
    "a backslash": b"77,ok\\,33",
    "a line separator": b"77,a\xe2\x80\xa8b,33",
    "long": b"77," + b"a" * 300_000 + b",33",
}


def text() -> Path:
    """A file of lines: somebody's text may be anything but the end of a line."""

    def run(lines: list[bytes], coins: Coins) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            file = File(folder) / "people.csv"
            file.write_bytes(b"\n".join([b"id,note,age", *lines, b""]))
            bounds = {"age": (0, 100)}
            with Curator(str(file), 10.0, bounds=bounds, rng=coins) as house:
                asked = model.Several((model.Count(), model.Sum("age"), model.Count("note")))
                return Outcome(shown(house.answer(asked, epsilon=1.0)), house.certificate().event)

    def lines(everything: bool) -> Iterator[Pair]:
        for name, line in TEXTS.items():
            for place in (0, 30, 60) if everything else (1,):
                yield Pair(f"{name} at {place}", [*LINES[:place], line, *LINES[place:]], LINES)

    return Path("Curator, lines of text", "add-remove", run, lines, ("queries on csv",))


def view() -> Path:
    """A view that fails on one row: refused, whatever the rows are."""

    def run(rows: list[Record], coins: Coins) -> Outcome:
        connection = duck(rows, File())
        connection.execute("CREATE VIEW seen AS SELECT CAST(sex AS INTEGER) AS x FROM people")
        with Curator(connection, 10.0, bounds={"x": (0, 1)}, table="seen", rng=coins) as house:
            found = house.answer(model.Sum("x"), epsilon=1.0)
            return Outcome(shown(found), house.certificate().event)

    def pairs(everything: bool) -> Iterator[Pair]:
        digits = [(i, str(i % 2), 0.0, 0) for i in range(9)]
        yield Pair("a word", [*digits, (9, "word", 0.0, 0)], digits)

    covers = ("queries on duckdb",)
    return Path("Curator on a view", "add-remove", run, pairs, covers, refused=True)


def stream() -> Path:
    def run(rows: list[Record], coins: Coins) -> Outcome:
        with curator(arrow(rows), coins, 10.0) as house:
            asked = house.above_threshold(15, epsilon=1.0, positives=3)
            said = [asked.ask(where) for where in (None, "x > 0", "n = 1")]
            return Outcome(said, house.certificate().event)

    name = "Curator.above_threshold"
    return Path(name, "add-remove", run, lambda all_: pairs("add-remove", "rows", all_), (name,))


def pairs(adjacency: str, unit: str, everything: bool) -> Iterator[Pair]:
    """A record more; with people, all the records of one more person; or another in its place."""
    names = HOSTILE if everything else FEW
    for name, place in itertools.product(names, (0, 15, 30) if everything else (3,)):
        record = HOSTILE[name]
        if unit == "people" and record[0] in {one[0] for one in BASE}:
            continue  # a record more of somebody is no neighbour there
        added = [record] * (5 if unit == "people" else 1)
        there = [*BASE[:place], *added, *BASE[place:]]
        if adjacency == "add-remove":
            yield Pair(f"{name} at {place}", there, BASE)
        else:
            other = (record[0], "M", 0.25, 2)
            changed = [*BASE[:place], *[other] * len(added), *BASE[place:]]
            yield Pair(f"{name} at {place}", there, changed)


ASKED = (
    "count",
    "count by",
    "sum",
    "mean",
    "mean of whole numbers",
    "variance",
    "histogram",
    "quantile",
    "top",
    "several",
)


def paths() -> list[Path]:
    return [
        *(query(asked) for asked in ASKED),
        *(query(asked, unit="people") for asked in ASKED if asked != "several"),
        *(query("several", source) for source in SOURCES if source != "arrow"),
        *(query(asked, "postgresql") for asked in ("mean", "quantile", "histogram")),
        *(query(asked, budget="replaced") for asked in ("count", "mean", "quantile", "top")),
        *(query(asked, budget="zcdp") for asked in ("count by", "mean", "histogram")),
        stream(),
        text(),
        view(),
    ]
