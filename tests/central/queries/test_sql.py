"""The SQL subset: what is read is read right, and everything else is refused by name."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from tacit.central.queries import model, sql
from tacit.central.queries.model import And, Between, Compare, IsNull, Not, OneOf, Or
from tacit.privacy.errors import InvalidParameter, TacitError

FROM = "select count(*) from data where "


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("count(*)", model.Count()),
        ("COUNT ( * )", model.Count()),
        ("count()", model.Count()),
        ("count(age)", model.Count("age")),
        ("sum(age)", model.Sum("age")),
        ("avg(age)", model.Mean("age")),
        ("variance(age)", model.Variance("age")),
        ("var_samp(age)", model.Variance("age")),
        ("var_pop(age)", model.Variance("age")),
        ("median(age)", model.Quantile("age")),
        ("quantile(age, 0.9)", model.Quantile("age", level=0.9)),
        ("quantile_cont(age, 1)", model.Quantile("age", level=1)),
        (
            "percentile_cont(.25) within group (order by age)",
            model.Quantile("age", level=Fraction(1, 4)),
        ),
        ('avg("Weird ""Col""; drop table data")', model.Mean('Weird "Col"; drop table data')),
        ("avg(größe)", model.Mean("größe")),
    ],
)
def test_aggregates(text: str, query: model.Query) -> None:
    assert sql.parse(f"select {text} from data") == sql.Statement("data", (query.label,), query)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("state = 'CA'", Compare("state", "=", "CA")),
        ("state != 'it''s'", Compare("state", "<>", "it's")),
        ("age >= -1.5", Compare("age", ">=", -1.5)),
        ("30 < age", Compare("age", ">", 30)),
        ("30 >= age", Compare("age", "<=", 30)),
        ("30 = age", Compare("age", "=", 30)),
        ("(((age))) > (+3)", None),
        ("age > -(-3)", Compare("age", ">", 3)),
        ("smoker = true", Compare("smoker", "=", True)),
        ("age between 18 and 30", Between("age", 18, 30)),
        ("age not between 18 and 30", Not(Between("age", 18, 30))),
        ("sex in ('F', 'M')", OneOf("sex", ("F", "M"))),
        ("sex not in (1)", Not(OneOf("sex", (1,)))),
        ("sex is null", IsNull("sex")),
        ("sex is not null", Not(IsNull("sex"))),
        ("not a = 1", Not(Compare("a", "=", 1))),
        (
            "a = 1 and b = 2 and c = 3",
            And((Compare("a", "=", 1), Compare("b", "=", 2), Compare("c", "=", 3))),
        ),
        (
            "a = 1 or b = 2 and c = 3",
            Or((Compare("a", "=", 1), And((Compare("b", "=", 2), Compare("c", "=", 3))))),
        ),
        (
            "(a = 1 or b = 2) and c = 3",
            And((Or((Compare("a", "=", 1), Compare("b", "=", 2))), Compare("c", "=", 3))),
        ),
        ("name = ''' or 1 = 1 --'", Compare("name", "=", "' or 1 = 1 --")),
        ("name = 'a;b'", Compare("name", "=", "a;b")),
        ("n = 9223372036854775807", Compare("n", "=", 2**63 - 1)),
    ],
)
def test_conditions(text: str, where: model.Where | None) -> None:
    if where is None:  # a column between parentheses is an expression: not read
        with pytest.raises(InvalidParameter, match="name of a column"):
            sql.parse_where(text)
        return
    assert sql.parse_where(text) == where
    assert sql.parse(FROM + text).query == model.Count(where=where)


def test_whole_numbers_stay_whole_and_truth_is_no_number() -> None:
    assert type(sql.parse_where("a = 1").value) is int  # type: ignore[union-attr]
    assert type(sql.parse_where("a = 1.0").value) is float  # type: ignore[union-attr]
    assert type(sql.parse_where("a = true").value) is bool  # type: ignore[union-attr]
    assert type(sql.parse_where("a = '1'").value) is str  # type: ignore[union-attr]


def test_several_aggregates_with_names_and_groups() -> None:
    text = """select sex, avg(age) as years, count(*), region from people
              where age > 17 group by sex, region;"""
    scope = {"where": Compare("age", ">", 17), "by": ("sex", "region")}
    asked = sql.parse(text)
    assert asked.table == "people"
    assert asked.names == ("years", "count(*)")
    assert asked.query == model.Several((model.Mean("age", **scope), model.Count(**scope)))


REFUSED = {
    # more than one statement, or another one
    "select count(*) from data; drop table data": "several",
    "select count(*) from data;;": "several",
    "copy data to 'x'": "COPY",
    "attach 'x' as y": "ATTACH",
    "pragma database_list": "PRAGMA",
    "set memory_limit = '1TB'": "SET",
    "install httpfs": "INSTALL",
    "load httpfs": "LOAD",
    "drop table data": "DROP",
    "insert into data values (1)": "INSERT",
    "update data set age = 1": "UPDATE",
    "create table x as select 1": "CREATE",
    "explain select count(*) from data": "EXPLAIN",
    "values (1)": "VALUES",
    "from data select count(*)": "FROM",
    "with a as (select 1) select count(*) from a": "WITH",
    "(select count(*) from data)": "'\\('",
    "select count(*) from data union select 1": "UNION",
    "select count(*) from data except select 1": "EXCEPT",
    # comments
    "select count(*) from data -- all": "a comment",
    "select /* all */ count(*) from data": "a comment",
    "select count(*) from data /* x": "valid SQL",
    "-- nothing": "nothing",
    # tables
    "select count(*)": "no FROM",
    "select count(*) from data, other": "a join",
    "select count(*) from data join other using (x)": "a join",
    "select count(*) from (select * from data)": "a subquery",
    "select count(*) from (data)": "a subquery",
    "select count(*) from data as d": "another name for the table",
    "select count(*) from other.data": "another schema",
    "select count(*) from read_csv('/etc/passwd')": "READ_CSV",
    "select count(*) from parquet_scan('x')": "parquet_scan",
    "select count(*) from glob('*')": "glob",
    "select count(*) from data tablesample 10%": "a sample",
    "select count(*) from data using sample 5": "a sample",
    "select count(*) from data pivot (sum(a) for b in (1))": "PIVOT",
    "select count(*) into x from data": "INTO",
    "select count(*) from data for update": "FOR UPDATE",
    # clauses
    "select distinct count(*) from data": "DISTINCT",
    "select count(*) from data order by 1": "ORDER BY",
    "select count(*) from data limit 5": "LIMIT",
    "select count(*) from data offset 5": "OFFSET",
    "select sex, count(*) from data group by sex having count(*) > 5": "HAVING",
    "select count(*) from data qualify true": "QUALIFY",
    "select count(*) from data group by all": "GROUP BY ALL",
    "select count(*) from data group by 1": "literal 1",
    "select count(*) from data group by rollup (sex)": "ROLLUP",
    "select count(*) from data group by cube (sex)": "CUBE",
    "select count(*) from data group by upper(sex)": "UPPER",
    # what is selected
    "select * from data": "'\\*'",
    "select data.* from data": "a table's name",
    "select * exclude (a) from data": "EXCLUDE",
    "select columns('a') from data": "COLUMNS",
    "select age from data": "'age'",
    "select 1 from data": "literal 1",
    "select sex from data group by sex": "aggregate",
    "select count(distinct age) from data": "DISTINCT",
    "select sum(distinct age) from data": "DISTINCT",
    "select mean(a) from data": "mean",
    "select avg(*) from data": "'\\*'",
    "select count(1) from data": "literal 1",
    "select count(a, b) from data": "COUNT",
    "select sum(a + b) from data": "arithmetic",
    "select sum(a) / count(*) from data": "division",
    "select sum(1 / a) from data": "division",
    "select sum(cast(a as int)) from data": "a cast",
    "select sum(a::int) from data": "a cast",
    "select sum(case when a > 1 then 1 end) from data": "CASE",
    "select sum(sqrt(a)) from data": "SQRT",
    "select sum(error('now')) from data": "error",
    "select avg(avg(a)) from data": "AVG",
    "select stddev(a) from data": "STDDEV",
    "select min(a) from data": "MIN",
    "select first(a) from data": "FIRST",
    "select list(a) from data": "ARRAY_AGG",
    "select mode(a) from data": "MODE",
    "select approx_quantile(a, .5) from data": "APPROX_QUANTILE",
    "select count(*) over () from data": "a window function",
    "select row_number() over (order by a) from data": "a window function",
    "select count(*) filter (where a > 1) from data": "FILTER",
    "select avg(a order by b) from data": "ORDER BY",
    "select quantile(a) from data": "level",
    "select quantile(a, 'x') from data": "level",
    "select quantile(a, true) from data": "level",
    "select quantile(a, 1.01) from data": "level",
    "select quantile(a, [.1, .2]) from data": "ARRAY",
    "select percentile_cont(.5) within group (order by a desc) from data": "DESC",
    "select percentile_cont(.5) within group (order by a, b) from data": "one column",
    "select getenv('HOME') from data": "getenv",
    # names
    "select count(*) as a, sum(b) as a from data": "'a'",
    "select count(*), count(*) from data": "one column only",
    "select sex, count(*) as sex from data group by sex": "'sex'",
    "select sex as s, count(*) from data group by sex": "'s'",
    'select count(*) as "a\x07" from data': "printable",
    'select avg("a\x00") from data': "printable",
    # conditions
    FROM + "a": "comparisons",
    FROM + "a = b": "column b",
    FROM + "1 = 1": "literal 1",
    FROM + "a is true": "IS",
    FROM + "a = null": "NULL",
    FROM + "a = ?": "a placeholder",
    FROM + "a = $1": "a placeholder",
    FROM + "a = :b": "a placeholder",
    FROM + "a like 'x%'": "LIKE",
    FROM + "a ~ 'x'": "REGEXP_LIKE",
    FROM + "a is distinct from 1": "DISTINCT FROM",
    FROM + "a in (select 1)": "a subquery",
    FROM + "a = (select max(a) from data)": "a subquery",
    FROM + "exists (select 1)": "a subquery",
    FROM + "a in ()": "1 to 1000",
    FROM + "(a, b) = (1, 2)": "TUPLE",
    FROM + "a + 1 > 2": "arithmetic",
    FROM + "a / 0 > 2": "division",
    FROM + "-a > 1": "NEG",
    FROM + "a = -'x'": "value",
    FROM + "a = date '2024-01-01'": "a cast",
    FROM + "a = $$x$$": "a dollar-quoted string",
    FROM + "a = 'x' 'y'": "CONCAT",
    FROM + "a = 1e999": "2\\^63",
    FROM + "a = 9223372036854775808": "2\\^63",
    FROM + "a between symmetric 1 and 2": "SYMMETRIC",
    FROM + "data.a = 1": "a table's name",
    FROM + "a[1] = 1": "BRACKET",
    FROM + "a = 'x": "open quote",
    FROM + "count(*) > 1": "column",
    # broken
    "": "text with SQL",
    " \n": "text with SQL",
    "select": "no FROM",
    "select count(* from data": "'from'",
    "select count(*) frm data": "'data'",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:60])
def test_what_is_not_supported_is_named_on_one_line(text: str) -> None:
    with pytest.raises(InvalidParameter, match=REFUSED[text]) as refusal:
        sql.parse(text)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 group by sex",
        "a = 1 limit 5",
        "a = 1 union select count(*) from data",
        "a = 1; drop table data",
        "a = 1;",
        "a = 1) or (b = 2",
        "a = 1 -- x",
        "a = 1 from data",
        "select 1",
        "",
    ],
)
def test_a_condition_is_a_condition_alone(text: str) -> None:
    with pytest.raises(InvalidParameter):
        sql.parse_where(text)


@pytest.mark.parametrize("text", [None, 7, b"select count(*) from data", ["select"]])
def test_what_is_no_text_is_refused(text: object) -> None:
    with pytest.raises(InvalidParameter, match="text with SQL"):
        sql.parse(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 10**6,
        FROM + "(" * 400 + "a = 1" + ")" * 400,
        FROM + "(" * 150 + "a = 1" + ")" * 150,
        FROM + "not " * 150 + "a = 1",
        FROM + "not " * 2000 + "a = 1",
        FROM + "a = " + "+" * 5000 + "1",
        FROM + "case when " * 900,
        FROM + "a = [" * 100,
        FROM + " and ".join(["a = 1"] * 1_001),
        FROM + "a in (" + "1, " * 1_200 + "1)",
        "select " + "a." * 4000 + "b from data",
    ],
    ids=lambda text: f"{text[32:48]} {len(text)}",
)
def test_size_and_depth_are_bounded(text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        sql.parse(text)
    assert len(str(refusal.value)) < 400


def test_a_long_chain_is_one_node() -> None:
    where = sql.parse_where(" or ".join(["a = 1"] * 900))
    assert isinstance(where, Or)
    assert len(where.parts) == 900


WORDS = """select from where group by and or not in is null count sum avg ( ) * , = < ; ' " -- /* */
data age sex 1 1.5 'x' union join as having limit over distinct case when end cast :: $1 ? [ ] { }
read_csv attach é \0 \\ %"""


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=25).map(" ".join) | st.text(max_size=60))
@example("select count(*) from data where a = 1 and")
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (sql.parse, sql.parse_where, lambda tail: sql.parse(f"select {tail}")):
        with contextlib.suppress(TacitError):
            read(text)
