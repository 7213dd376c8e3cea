"""How commands print: tables, JSON, text; and their exit codes."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.privacy import errors
from tacit.privacy.decimals import above

WIDTH = 80

REFUSED, BAD_INPUT = 1, 2
"""Exit codes: the answer is no (refuted, refused, not verified); the input is wrong."""


def must_exist(*paths: Path | None) -> None:
    """Refuse a path that is not a file."""
    for path in paths:
        if path is not None and not path.is_file():
            errors.refuse("command line", "path", "an existing file", str(path), "Check the path.")


def print_values(values: dict[str, Any], as_json: bool, title: str) -> None:
    """Print names and values as a table, without those that are None, or as JSON."""
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
        return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value)
    return str(value)


def print_text(text: str, width: int = WIDTH) -> None:
    """Print lines broken between words at this width, with a hanging indent for lists."""
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    for line in text.splitlines():
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip(" -")))
        print(wrapper.fill(line))


def print_json(values: dict[str, Any]) -> None:
    """Print one JSON object on one line."""
    finite = {
        name: str(value) if isinstance(value, float) and math.isinf(value) else value
        for name, value in values.items()
    }
    print(json.dumps(finite, ensure_ascii=False, allow_nan=False))


def in_digits(number: float, digits: int = 3) -> str:
    """Write a number in the given number of digits, and one of up to a million without an exponent.

    Examples
    --------
    >>> in_digits(0.03352), in_digits(1404.6), in_digits(573.5, 2)
    ('0.0335', '1400', '570')
    """
    rounded = float(f"{number:.{digits}g}")
    return f"{rounded:.0f}" if 10**digits <= abs(rounded) < 1e6 else f"{number:.{digits}g}"


def print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows under a title."""
    table = Table(title=Text(title), title_justify="left", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")  # nothing is cut off on a narrow terminal
    for row in rows:
        table.add_row(*map(Text, row))  # not markup: names and paths may hold brackets
    Console().print(table)


def accuracy_cells(part: dict[str, Any]) -> tuple[str, str]:
    """Format an accuracy and its interval as two cells of a table."""
    low, high = part["interval"]
    accuracy = "–" if part["accuracy"] is None else f"{part['accuracy']:.4f}"
    return accuracy, f"{low:.4f} to {high:.4f}"


def error_cells(part: dict[str, Any]) -> tuple[str, str]:
    """Format a mean absolute error and its interval as two cells of a table."""
    low, high = part["interval"]
    error = "–" if part["mean_absolute_error"] is None else f"{part['mean_absolute_error']:.4g}"
    return error, f"{low:.4g} to {high:.4g}"
