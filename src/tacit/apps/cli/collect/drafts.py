"""`tacit collect draft`: the schema of a table, with bounds and categories to be declared."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import print_json, print_text
from tacit.apps.cli.files import declared_parts, must_be_new, open_columns
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Data, Out
from tacit.privacy import errors, files

_LIKE = ("age=17:90", "work=private,public")
_MOST_ROWS = 200_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "Mechanisms", "tacit collect draft inhouse.csv --declare age=17:90 --out schema.json"
    )(draft)


def draft(
    data: Data,
    out: Out,
    label: Annotated[str | None, typer.Option(help="Column to leave out: the label.")] = None,
    declare: Annotated[
        list[str] | None,
        typer.Option(help="Bounds or categories of a column: age=17:90, work=private,public."),
    ] = None,
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="State that the rows are public: read bounds and categories."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Draft the schema of a table for fit and plan, to be completed by hand.

    Columns of numbers get bounds and others categories; numbers that are declared as a list are
    categories too. What is declared is written, and the rest is left open (null), unless the rows
    are stated to be public. Values that do not fit later are clipped, marked as missing, or count
    as other.
    """
    from tacit.data import tables

    must_be_new(out)
    table, _ = tables.sample(data, _MOST_ROWS, 0)
    table = tables.without_label(table, label, data)
    declared = declared_parts("draft", declare or [], table.column_names, *_LIKE)
    columns = [_column(name, table, declared.get(name), public) for name in table.column_names]
    plain = {"kind": "table", "columns": columns}
    files.replace(out, (json.dumps(plain, indent=2, ensure_ascii=False) + "\n").encode())
    left_open = open_columns(plain)
    read = [one["name"] for one in columns if public and one["name"] not in declared]
    if as_json:
        values = {"written": str(out), "columns": len(columns), "left_open": left_open}
        return print_json(values | {"read_off_rows": read})
    print_text(f"{out}: {len(columns)} columns. Their kinds were guessed from the values.")
    if left_open:
        print_text(f"Fill in what is null for: {', '.join(left_open)}. Do not copy it from rows.")
    if read:
        print_text(f"Read off the rows, which you state to be public: {', '.join(read)}.")


def _column(name: str, table: Any, declared: str | None, public: bool) -> dict[str, Any]:
    """Draft one column; what is neither declared nor public stays open."""
    from tacit.data import schema_inference

    found: dict[str, Any] = {}
    if public and declared is None:
        given = schema_inference.infer(table.select([name]), where="draft")
        (found,) = given.to_plain()["columns"]
    listed = declared is not None and "," in declared  # numbers may be codes of categories
    if _is_numeric(table.column(name)) and not listed:
        ends = (found.get("lower"), found.get("upper"))
        lower, upper = ends if declared is None else _ends(name, declared)
        bounds = {"lower": lower, "upper": upper, "missing": "indicate", "outside": "clip"}
        return {"kind": "continuous", "name": name, **bounds}
    categories = found.get("categories")
    if declared is not None:
        categories = [one.strip() for one in declared.split(",")]
    return {"kind": "categorical", "name": name, "categories": categories, "unseen": "other"}


def _is_numeric(column: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def _ends(name: str, declared: str) -> tuple[float, float]:
    lower, colon, upper = declared.partition(":")
    try:
        if not colon:
            raise ValueError
        return float(lower), float(upper)
    except ValueError:
        errors.refuse("draft", "--declare", f"two bounds, like {name}=17:90", declared)
