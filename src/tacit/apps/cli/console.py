"""What commands share: printing, and the options that mean the same everywhere."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.privacy import errors
from tacit.privacy.decimals import above

WIDTH = 80

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def must_exist(*paths: Path | None) -> None:
    """Refuse a path that is no file."""
    for path in paths:
        if path is not None and not path.is_file():
            errors.refuse("command line", "path", "an existing file", str(path), "Check the path.")


def print_values(values: dict[str, Any], as_json: bool, title: str) -> None:
    """Names and values, as a table of those that there are or as JSON."""
    if as_json:
        return print_json(values)
    rows = [
        (name.replace("_", " "), _cell(name, value))
        for name, value in values.items()
        if value is not None
    ]
    print_table(title, ("", ""), rows)


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        is_bound = any(word in name for word in ("epsilon", "delta", "rho"))
        return above(value) if is_bound else f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def print_text(text: str, width: int = WIDTH) -> None:
    """Lines no wider than this, broken between words; what goes on is under what it goes on."""
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    for line in text.splitlines():
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip(" -")))
        print(wrapper.fill(line))


def print_json(values: dict[str, Any]) -> None:
    """One JSON object on one line."""
    finite = {
        name: str(value) if isinstance(value, float) and math.isinf(value) else value
        for name, value in values.items()
    }
    print(json.dumps(finite, ensure_ascii=False, allow_nan=False))


def print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Rows under a title."""
    table = Table(title=Text(title), title_justify="left", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")  # nothing is cut off, however narrow
    for row in rows:
        table.add_row(*map(Text, row))  # not markup: names and paths may hold brackets
    Console().print(table)
