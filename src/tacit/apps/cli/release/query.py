"""`tacit release query`: answer a query in SQL with noise, under a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import print_json, print_table, print_values
from tacit.apps.cli.files import must_be_new_outputs, opened_ledger, write_released
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import DATA, Account, AsJson, CertificateFile, LedgerFile
from tacit.privacy import errors
from tacit.privacy.decimals import below

Source = Annotated[
    str,
    typer.Argument(help="Parquet or CSV file, or a postgresql:// address.", metavar="DATA"),
]
Sql = Annotated[str, typer.Argument(help="One SELECT of aggregates.", metavar="SQL")]
Epsilon = Annotated[float | None, typer.Option(help="ε of the answer.")]
Delta = Annotated[
    float | None,
    typer.Option(help="δ of the answer; with it, the least Gaussian noise that gives (ε, δ)."),
]
Rho = Annotated[
    float | None, typer.Option(help="ρ (zCDP) of the answer, instead of --epsilon: Gaussian noise.")
]
Bounds = Annotated[
    list[str] | None, typer.Option(help="Public bounds of a column: age=0:100. Repeatable.")
]
Keys = Annotated[
    list[str] | None, typer.Option(help="Public keys of a column: sex=F,M. Repeatable.")
]
UnitColumn = Annotated[
    str | None,
    typer.Option(
        "--unit", help="Column that identifies the person of each row.", rich_help_panel=DATA
    ),
]
MaxRows = Annotated[int, typer.Option(help="Most rows of one person in one group, with --unit.")]
MaxGroups = Annotated[int, typer.Option(help="Most groups of one person, with --unit.")]
Adjacency = Annotated[
    str | None,
    typer.Option(
        help="Neighbours: add-remove, zero-out or replace-one.",
        show_default="those of the account, else add-remove",
    ),
]
PriceOnly = Annotated[bool, typer.Option("--price", help="Show the cost; read nothing.")]
OutFile = Annotated[Path | None, typer.Option("--out", help="File for the answer, as JSON.")]
Memory = Annotated[str, typer.Option(help="Memory limit of the engine.")]
Threads = Annotated[
    int | None, typer.Option(help="Threads of the engine.", show_default="all cores")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app,
        "Queries",
        "tacit release query data.parquet 'select sex, avg(age) from data group by sex' "
        "--epsilon 0.5 --bounds age=0:100 --keys sex=F,M",
    )(query)


def query(
    source: Source,
    statement: Sql,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    bounds: Bounds = None,
    keys: Keys = None,
    unit: UnitColumn = None,
    max_rows: MaxRows = 1,
    max_groups: MaxGroups = 1,
    adjacency: Adjacency = None,
    ledger: LedgerFile = None,
    account: Account = None,
    price: PriceOnly = False,
    out: OutFile = None,
    certificate: CertificateFile = None,
    memory: Memory = "2GB",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Answer a query about a table with noise; it is charged before a row is read.

    In a CSV file, count(x) counts fields that are not empty, or numbers if x has --bounds.
    """
    from tacit.central.queries import sql

    if price and (out or certificate):
        given = "--out" if out else "--certificate"
        errors.refuse("query", "--price", f"given without {given}", "both", "It releases nothing.")
    must_be_new_outputs(out, certificate)
    parsed = sql.parse(statement)
    table = _table_of(source, parsed.table)
    declared = {"bounds": _pairs("--bounds", bounds, _ends), "keys": _pairs("--keys", keys, _list)}
    limits = {"unit": unit, "max_rows": max_rows, "max_groups": max_groups}
    cost = _cost(epsilon, delta, rho)
    with (
        _budget(cost, adjacency, unit, ledger, account) as (budget, opened),
        _curator(
            source,
            budget,
            ledger=opened,
            account=account,
            table=table,
            memory=memory,
            threads=threads,
            **declared,
            **limits,
        ) as curator,
    ):
        if price:
            return _print_price(curator.price(parsed.query, **cost), delta, as_json)
        answer = curator.answer(parsed.query, **cost)
        content = _answered(answer, parsed.names, delta)
        write_released(content, out, certificate, lambda path: answer.certificate(artifact=path))
        _print_answer(answer, parsed.names, content, as_json)
        if not as_json:
            _print_limits(unit, max_rows, max_groups, answer)
            _print_remaining(opened is not None, answer.remaining)
            _print_texts(source, answer, declared["bounds"])


def _curator(*given: Any, **named: Any) -> Any:
    from tacit.central.queries.curator import Curator

    return Curator(*given, **named)


def _cost(epsilon: float | None, delta: float | None, rho: float | None) -> dict[str, float | None]:
    """Convert the cost to what a curator takes: an ε or a ρ."""
    from tacit.privacy.accounting.calibration import concentration_for

    if (epsilon is None) == (rho is None):
        errors.refuse("command line", "exactly one of --epsilon, --rho", "given", (epsilon, rho))
    if delta is None:
        return {"epsilon": epsilon, "rho": rho}
    if epsilon is None:
        errors.refuse("command line", "--delta", "given with --epsilon", delta)
    return {"epsilon": None, "rho": concentration_for(epsilon, delta)}


@contextmanager
def _budget(
    cost: dict[str, float | None],
    adjacency: str | None,
    unit: str | None,
    ledger: Path | None,
    account: str | None,
) -> Iterator[tuple[Any, Any]]:
    """Find the account's budget and ledger, or make a budget that this query uses up."""
    from tacit.privacy.guarantees import ZCDP, PureDP

    epsilon, rho = cost["epsilon"], cost["rho"]
    with opened_ledger(ledger, account) as opened:
        if opened is not None:
            budget = opened.show(account).budget
            if (rho is None) == isinstance(budget, ZCDP):
                kinds = "--epsilon alone", "--rho, or --epsilon with --delta"
                given, wanted = kinds if rho is None else kinds[::-1]
                condition = f"given as {wanted}, as the account is {budget}"
                errors.refuse("query", "cost", condition, given)
            if adjacency not in (None, str(budget.adjacency)):
                remedy = "Leave it out, or open another account."
                errors.refuse("query", "--adjacency", f"{budget.adjacency}", adjacency, remedy)
            yield budget, opened
            return
        scope: dict[str, Any] = {
            "adjacency": adjacency or "add-remove",
            "unit": "person" if unit else "record",
        }
        if epsilon is not None:
            yield PureDP(float(errors.epsilon_in_range("query", epsilon)), **scope), None
        else:
            yield ZCDP(0.0, float(errors.positive("query", "--rho", rho)), **scope), None


def _table_of(source: str, table: str) -> str | None:
    """Return the table of a database, or None for a file, whose table is `data` or its name."""
    if "://" in source:
        return table
    if table not in ("data", Path(source).stem):
        name = f"data, or the file's name without its suffix ({Path(source).stem})"
        errors.refuse("query", "table", name, table, "A query reads only the given file.")
    return None


def _pairs(option: str, texts: list[str] | None, read: Callable[[str, str], Any]) -> dict[str, Any]:
    """Read the declarations of columns from texts like age=0:100."""
    declared: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            example = "age=0:100" if option == "--bounds" else "sex=F,M"
            errors.refuse("command line", option, f"like {example}", text)
        if name in declared:
            errors.refuse("command line", option, "given once for each column", name)
        declared[name] = read(text, value)
    return declared


def _ends(text: str, value: str) -> tuple[float, float]:
    try:
        lower, upper = map(float, value.split(":"))
    except ValueError:
        errors.refuse("command line", "--bounds", "like age=0:100", text)
    return lower, upper


def _list(text: str, value: str) -> list[Any]:
    """Read keys as integers or Booleans if all of them are, else as text; 'quotes' mean text."""
    words = [word.strip() for word in value.split(",")]
    if all(word.lstrip("-").isdecimal() and str(int(word)) == word for word in words):
        return [int(word) for word in words]
    if all(word in ("true", "false") for word in words):
        return [word == "true" for word in words]
    quoted = [len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" for word in words]
    return [word[1:-1] if inner else word for word, inner in zip(words, quoted, strict=True)]


def _at(guarantee: Any, delta: float | None) -> Any:
    return guarantee if delta is None else guarantee.at_delta(delta)


def _print_price(price: Any, delta: float | None, as_json: bool) -> None:
    from tacit.central.queries.answers import stated

    guarantee = _at(price.guarantee, delta)
    if as_json:
        return print_json({"guarantee": stated(guarantee), "remaining": price.remaining_after})
    values = {"cost": str(guarantee), "remaining after": _amounts(price.remaining_after)}
    print_values(values, False, "Price")


def _answered(answer: Any, names: tuple[str, ...], delta: float | None) -> dict[str, Any]:
    """Return the answer as JSON-ready data, which is printed and written alike."""
    from tacit.central.queries.answers import stated

    guarantee = stated(_at(answer.guarantee, delta))
    return {**_content(answer, names), "guarantee": guarantee, "remaining": answer.remaining}


def _print_answer(
    answer: Any, names: tuple[str, ...], content: dict[str, Any], as_json: bool
) -> None:
    if as_json:
        return print_json(content)
    counts = _counts(answer, names)
    rows = [
        (*map(str, key), name, *_in_text(one, whole=name in counts))
        for key, name, one in _lines(answer, names)
    ]
    print_table("Answer", (*answer.query.by, "", "value", "95 % interval"), rows)
    print(f"{content['guarantee']['text']}.")


def _counts(answer: Any, names: tuple[str, ...]) -> set[str]:
    """Return the names of the columns that are counts."""
    from tacit.central.queries.model import Count

    parts = answer.parts or (answer,)
    return {name for name, one in zip(names, parts, strict=True) if isinstance(one.query, Count)}


def _in_text(estimate: Any, *, whole: bool) -> tuple[str, str]:
    """Write value and interval; counts beside means have fractions, which are rounded outwards."""
    value, (low, high) = estimate.value, estimate.interval
    if whole:
        value, low, high = round(value), math.floor(low), math.ceil(high)
    return _shown(value), f"{_shown(low)} to {_shown(high)}"


def _print_limits(unit: str | None, max_rows: int, max_groups: int, answer: Any) -> None:
    from tacit.central.queries.model import Count

    clipped = any(not isinstance(part.query, Count) for part in answer.parts or (answer,))
    omitted = ["the rows left out"] * (unit is not None) + ["values clipped to --bounds"] * clipped
    if unit is not None:
        rows = f"at most {max_rows} row{'s' * (max_rows > 1)} per person and group"
        groups = f"in at most {max_groups} group{'s' * (max_groups > 1)}"
        print(f"Counted: {rows}, {groups}.")
    if omitted:
        print(f"Intervals cover the noise, not {', nor '.join(omitted)}.")


def _print_remaining(charged: bool, remaining: dict[str, float]) -> None:
    if charged:
        print(f"Remaining: {_amounts(remaining)}.")
    else:
        print("No ledger: this cost is not recorded, and the costs of several queries add up.")


def _print_texts(source: str, answer: Any, bounds: dict[str, Any]) -> None:
    """Print what counts as a value of a text column; this depends on the query, not on rows."""
    from tacit.central.queries.model import Count

    if not source.lower().endswith(".csv"):
        return
    queries = [part.query for part in answer.parts or (answer,)]
    names = {one.column for one in queries if isinstance(one, Count) and one.column is not None}
    for name in sorted(names - bounds.keys()):
        print(
            f"count({name}) counts every field that is not empty, including words such as NA. "
            f"With --bounds {name}=LOWER:UPPER, it counts only numbers."
        )


def _amounts(remaining: dict[str, float]) -> str:
    return ", ".join(f"{name} {below(amount)}" for name, amount in remaining.items())


def _lines(answer: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], str, Any]]:
    """Iterate over all estimates, each with its group's key and its column's name."""
    parts = answer.parts or (answer,)
    if parts[0].groups is None:
        yield from (((), name, part.estimate) for name, part in zip(names, parts, strict=True))
        return
    for key in parts[0].groups:
        whole = key if isinstance(key, tuple) else (key,)
        for name, part in zip(names, parts, strict=True):
            yield whole, name, part.groups[key]


def _content(answer: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return `value` and `interval`, by name if there are several, under each key of `groups`."""
    from tacit.central.queries.answers import key_text

    groups: dict[str, dict[str, Any]] = {}
    for key, name, estimate in _lines(answer, names):
        groups.setdefault(key_text(key if len(key) > 1 else key[0]) if key else "", {})[name] = (
            estimate.to_dict()
        )

    def all_of(estimates: dict[str, Any], field: str) -> Any:
        if len(names) == 1:
            return estimates[names[0]][field]
        return {name: estimates[name][field] for name in names}

    cells = {
        key: {field: all_of(estimates, field) for field in ("value", "interval")}
        for key, estimates in groups.items()
    }
    if not answer.query.by:
        return cells[""]
    return {"groups": cells, "interval": {key: cell["interval"] for key, cell in cells.items()}}


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
