"""A checked subset of SQL: one SELECT of aggregates over one table, parsed into queries.

The text never reaches an engine. sqlglot parses it, every node of the tree and every argument of a
node must be on the list below, and the query is rebuilt as values of `tacit.queries.model`, from
which the engine's statement is written. So a statement cannot ask for anything that these values
cannot express: no function that could fail on some rows, no file, no setting.

The grammar is::

    SELECT [key, …,] aggregate [AS name], …
    FROM table [WHERE condition] [GROUP BY key, …]

Aggregates are count(*), count(x), sum(x), avg(x), variance(x) (of the population), median(x),
quantile(x, level) and percentile_cont(level) WITHIN GROUP (ORDER BY x). A condition compares
columns with literals (=, <>, <, <=, >, >=, BETWEEN, IN, IS NULL), joined by AND, OR and NOT.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from tacit.central.queries import model
from tacit.central.queries.compile import sqlglot
from tacit.privacy import errors

Node = Any
"""A node of a sqlglot tree; the package is imported when it is first used."""

LONGEST = 10_000
"""Largest number of characters in a statement, which limits the parser's work."""

_OPENINGS = 200  # parentheses, NOTs and signs: deep nesting would overflow the parser's stack
_LARGEST = 2**63 - 1  # engines have no larger integers
_REMEDY = (
    "Ask for count, sum, avg, variance, median or quantile of columns, with WHERE and GROUP BY; "
    "other queries are available in Python."
)
_COMPARISONS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_AGGREGATES: dict[str, type[model.Sum | model.Mean | model.Variance | model.Quantile]] = {
    "Sum": model.Sum,
    "Avg": model.Mean,
    "Variance": model.Variance,
    "VariancePop": model.Variance,
    "Median": model.Quantile,
}
_ALLOWED: dict[str, set[str]] = {
    "Select": {"expressions", "from_", "where", "group"},
    "From": {"this"},
    "Table": {"this"},
    "Identifier": {"this", "quoted"},
    "Column": {"this"},
    "Alias": {"this", "alias"},
    "Where": {"this"},
    "Group": {"expressions"},
    "Count": {"this", "big_int"},
    "Star": set(),
    **{kind: {"this"} for kind in _AGGREGATES},
    "Quantile": {"this", "quantile"},
    "PercentileCont": {"this", "expression"},
    "WithinGroup": {"this", "expression"},
    "Order": {"expressions"},
    "Ordered": {"this", "nulls_first"},  # NULLs are left out anyway
    **{kind: {"this", "expression"} for kind in _COMPARISONS},
    "And": {"this", "expression"},
    "Or": {"this", "expression"},
    "Not": {"this"},
    "Paren": {"this"},
    "Between": {"this", "low", "high"},
    "In": {"this", "expressions"},
    "Is": {"this", "expression"},
    "Null": set(),
    "Neg": {"this"},
    "Literal": {"this", "is_string"},
    "Boolean": {"this"},
}
_WORDS = {
    # parts of a node
    "with_": "WITH",
    "joins": "a join",
    "order": "ORDER BY",
    "distinct": "DISTINCT",
    "windows": "WINDOW",
    "sample": "a sample",
    "pivots": "PIVOT",
    "locks": "FOR UPDATE",
    "db": "a table of another schema",
    "table": "a column with a table's name",
    "all": "GROUP BY ALL",
    "desc": "ORDER BY … DESC",
    "except_": "EXCLUDE",
    # nodes
    "Select": "a subquery",
    "Subquery": "a subquery",
    "Exists": "a subquery",
    "Window": "a window function",
    "Cast": "a cast",
    "TableAlias": "another name for the table",
    "Placeholder": "a placeholder",
    "RawString": "a dollar-quoted string",
    "Order": "ORDER BY",
    "Star": "*",
    "NullSafeEQ": "IS NOT DISTINCT FROM",
    "NullSafeNEQ": "IS DISTINCT FROM",
    "Div": "division",
    **dict.fromkeys(("Add", "Sub", "Mul", "Mod", "IntDiv", "DPipe"), "arithmetic"),
}


@dataclass(frozen=True)
class Statement:
    """The table of a SELECT, the names of its columns, and its query."""

    table: str
    names: tuple[str, ...]
    query: model.Query | model.Several


def parse(text: str) -> Statement:
    """Parse one SELECT; refuse anything beyond the subset by name.

    Examples
    --------
    >>> statement = parse("select sex, avg(age) as age from data where state = 'CA' group by sex")
    >>> statement.names
    ('age',)
    >>> statement.query
    Mean(where=Compare(column='state', operator='=', value='CA'), by=('sex',), column='age')
    """
    tree = _tree("statement", text)
    table, by = tree.args["from_"], _keys(tree)
    if type(table.this.this).__name__ != "Identifier":
        _unsupported(table.this.this)
    where = tree.args.get("where")
    scope = {"where": None if where is None else _condition(where.this), "by": by}
    aggregates = list(_aggregates(tree, by, scope))
    names, queries = tuple(name for name, _ in aggregates), tuple(one for _, one in aggregates)
    if not aggregates:
        _refuse("statement", "a SELECT with an aggregate", "none", _REMEDY)
    for name in names:
        if names.count(name) > 1 or name in by:
            _refuse("name", "given to one column only", name, "Choose names with AS.")
    query = queries[0] if len(queries) == 1 else model.Several(queries)
    return Statement(table.this.name, names, query)


def parse_where(text: str) -> model.Where:
    """Parse a condition, as after WHERE.

    Examples
    --------
    >>> parse_where("age between 18 and 30")
    Between(column='age', lower=18, upper=30)
    """
    tree = _tree("condition", text)
    if tree.args.get("group") is not None:
        _refuse("condition", "a condition alone", "GROUP BY", "Pass by=… to group.")
    return model.condition(_condition(tree.args["where"].this))


def _tree(kind: str, text: Any) -> Node:
    """Parse the text, and check that every part of it is on the list."""
    broken = sqlglot().errors
    if not isinstance(text, str) or not text.strip():
        _refuse(kind, "text with SQL", text)
    if len(text) > LONGEST:
        _refuse(kind, f"at most {LONGEST:,} characters", f"{len(text):,}")
    try:
        tree = _parsed(kind, text)
    except broken.ParseError as error:
        first = error.errors[0]
        place = f"an error at {first['highlight']!r}, column {first['col']}"
        _refuse(kind, "valid SQL", place, "Check the spelling there.")
    except broken.TokenError:
        _refuse(kind, "valid SQL", "an open quote or a broken token")
    except RecursionError:
        _refuse(kind, "SQL that is not nested too deeply", "a deeper one")
    if tree is None or type(tree).__name__ != "Select":
        _refuse(kind, "one SELECT … FROM", _called(tree), _REMEDY)
    if "from_" not in tree.args:
        _refuse(kind, "one SELECT … FROM", "no FROM", _REMEDY)
    _check(tree)
    return tree


def _parsed(kind: str, text: str) -> Node:
    dialect = sqlglot().Dialect.get_or_raise("duckdb")
    tokens = dialect.tokenize(text)
    if kind == "statement" and tokens and tokens[-1].text == ";":
        tokens = tokens[:-1]
    _check_tokens(kind, tokens)
    if kind == "condition":
        tokens = dialect.tokenize("SELECT COUNT(*) FROM data WHERE") + tokens
    (tree,) = dialect.parser().parse(tokens, text)
    return tree


def _check_tokens(kind: str, tokens: list[Any]) -> None:
    """Check what is easier to see before parsing, or would be lost by it."""
    types = [token.token_type.name for token in tokens]
    if any(token.comments for token in tokens):
        _refuse(kind, "without comments", "a comment", "Remove the comment.")
    if "SEMICOLON" in types:
        _refuse(kind, "one statement", "several", "Ask one query at a time.")
    if sum(map(types.count, ("L_PAREN", "L_BRACKET", "L_BRACE", "NOT", "DASH"))) > _OPENINGS:
        _refuse(kind, f"SQL with at most {_OPENINGS} parentheses, NOTs and signs", "more")
    if not types or (kind == "statement" and types[0] != "SELECT"):
        first = tokens[0].text.upper() if tokens else "nothing"
        _refuse(kind, "one SELECT … FROM", first, _REMEDY)


def _check(tree: Node) -> None:
    """Check that every node and argument is on the list, iteratively: chains of AND are deep."""
    for node in tree.walk():
        kind = type(node).__name__
        if kind not in _ALLOWED or (kind == "Select" and node is not tree):
            _unsupported(node)
        for name, value in node.args.items():
            absent = value is None or value is False or value == []
            if not absent and name not in _ALLOWED[kind]:
                _unsupported(value, name)


def _keys(tree: Node) -> tuple[str, ...]:
    group = tree.args.get("group")
    return () if group is None else tuple(_column(key) for key in group.expressions)


def _aggregates(
    tree: Node, by: tuple[str, ...], scope: dict[str, Any]
) -> Iterator[tuple[str, model.Query]]:
    """List names and queries of the selected columns; a plain column must be in GROUP BY."""
    for part in tree.expressions:
        named = type(part).__name__ == "Alias"
        inner = part.this if named else part
        if type(inner).__name__ == "Column":
            if named:
                _refuse("name", "given to an aggregate", part.alias, "Keys keep their names.")
            if _column(inner) not in by:
                remedy = "Single rows are never released."
                _refuse("column", "in GROUP BY or in an aggregate", _column(inner), remedy)
            continue
        query = _aggregate(inner, scope)
        name = model.column_name("query", part.alias) if named else query.label
        yield name, query


def _aggregate(node: Node, scope: dict[str, Any]) -> model.Query:
    kind = type(node).__name__
    if kind == "Count":
        if node.this is None or type(node.this).__name__ == "Star":
            return model.Count(**scope)
        return model.Count(_column(node.this), **scope)
    if kind in _AGGREGATES:
        return _AGGREGATES[kind](_column(node.this), **scope)
    if kind == "WithinGroup" and type(node.this).__name__ == "PercentileCont":
        (ordered,) = node.expression.expressions[:1]
        if len(node.expression.expressions) > 1 or node.this.expression is not None:
            _refuse("percentile_cont", "ordered by one column", "several", _REMEDY)
        return model.Quantile(_column(ordered.this), level=_level(node.this.this), **scope)
    if kind in ("Quantile", "PercentileCont"):
        level = node.args.get("quantile") or node.expression
        return model.Quantile(_column(node.this), level=_level(level), **scope)
    _refuse("statement", "a SELECT of aggregates and keys", _called(node), _REMEDY)


def _level(node: Node) -> float:
    value = None if node is None else _literal(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse("level", "a number from 0 to 1", value, "As in quantile(age, 0.9).")
    return value


def _condition(node: Node) -> model.Where:
    """Rebuild a condition; chains of AND and OR become one node."""
    kind = type(node).__name__
    if kind == "Paren":
        return _condition(node.this)
    if kind == "Not":
        return model.Not(_condition(node.this))
    if kind in ("And", "Or"):
        parts = tuple(_condition(part) for part in node.flatten())
        return model.And(parts) if kind == "And" else model.Or(parts)
    if kind in _COMPARISONS:
        return _comparison(node, _COMPARISONS[kind])
    if kind == "Between":
        return model.Between(
            _column(node.this), _literal(node.args["low"]), _literal(node.args["high"])
        )
    if kind == "In":
        return model.OneOf(_column(node.this), tuple(_literal(one) for one in node.expressions))
    if kind == "Is" and type(node.expression).__name__ == "Null":
        return model.IsNull(_column(node.this))
    remedy = "Compare a column with a value, as in age > 30."
    _refuse("condition", "made of comparisons", _called(node), remedy)


def _comparison(node: Node, operator: str) -> model.Compare:
    left, right = node.this, node.expression
    if type(right).__name__ == "Column" and type(left).__name__ != "Column":
        left, right, operator = right, left, _FLIPPED.get(operator, operator)
    return model.Compare(_column(left), operator, _literal(right))


def _column(node: Node) -> str:
    if type(node).__name__ != "Column" or type(node.this).__name__ != "Identifier":
        remedy = "Name a column; compute expressions in the table first."
        _refuse("argument", "the name of a column", _called(node), remedy)
    return model.column_name("query", node.name)


def _literal(node: Node) -> model.Literal:
    """Read a number, text or Boolean; an integer stays an integer."""
    kind, negative = type(node).__name__, False
    while kind in ("Neg", "Paren"):
        negative ^= kind == "Neg"
        node = node.this
        kind = type(node).__name__
    if kind == "Boolean" and not negative:
        return bool(node.this)
    if kind != "Literal" or (negative and node.args["is_string"]):
        _refuse("value", "a number, text, true or false", _called(node), "As in sex = 'F'.")
    if node.args["is_string"]:
        return str(node.this)
    try:
        number: int | float = int(node.this)
    except ValueError:
        number = float(node.this)
    if not abs(number) <= _LARGEST:
        _refuse("value", "at most 2^63 in size", node.this)
    return -number if negative else number


def _called(node: Any) -> str:
    """Name a node in terms that a reader knows."""
    kind = type(node).__name__
    if kind in _WORDS:
        return _WORDS[kind]
    if kind == "Anonymous":
        return f"the function {node.name}"
    if kind in ("Column", "Literal"):
        return f"the {kind.lower()} {node.name}"
    return str(node.sql_name() if hasattr(node, "sql_name") else getattr(node, "key", kind)).upper()


def _unsupported(value: Any, part: str = "") -> NoReturn:
    node = value[0] if isinstance(value, list) else value
    if part in ("this", "expressions"):  # the node has too many arguments
        node = node.parent
    got = _WORDS.get(part) or (part.strip("_").upper() if node is True else _called(node))
    _refuse("SQL", "within the supported subset", got, _REMEDY)


def _refuse(name: str, condition: str, got: object, remedy: str = "") -> NoReturn:
    errors.refuse("query", name, condition, got, remedy)
