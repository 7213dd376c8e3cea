"""How values are shown: one line of text, or a small HTML table. Neither shows data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from html import escape
from typing import Any

_SCOPE = ("adjacency", "unit")
"""Fields that the guarantee names."""


def line(name: str, parameters: Mapping[str, Any], end: Any) -> str:
    """Write a value in one line: its parameters, and its guarantee last.

    Examples
    --------
    >>> line("Laplace", {"epsilon": Fraction(1, 2), "grid": None}, "0.5-DP")
    'Laplace(epsilon=0.5; 0.5-DP)'
    """
    known = {key: value for key, value in parameters.items() if value is not None}
    text = ", ".join(f"{key}={_value(value)}" for key, value in known.items())
    return f"{name}({text}; {end})" if text else f"{name}({end})"


def _value(value: Any) -> str:
    if isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, float | Fraction):
        return f"{float(value):g}"
    return f"{len(value)} values" if hasattr(value, "__len__") else repr(value)


def table(title: str, rows: Mapping[str, Any]) -> str:
    """Make an HTML table with one row per entry; every text is escaped.

    Examples
    --------
    >>> table("A & B", {"unit": "<record>"})
    '<table><caption>A &amp; B</caption><tr><th>unit</th><td>&lt;record&gt;</td></tr></table>'
    """
    cells = "".join(
        f"<tr><th>{escape(str(key))}</th><td>{escape(_cell(value))}</td></tr>"
        for key, value in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_cell(each)}" for key, each in value.items())
    return str(value)


class Shown:
    """Base of dataclasses with a guarantee: `repr` is one line. Use `dataclass(repr=False)`."""

    def __repr__(self) -> str:
        """Show parameters and guarantee."""
        shown = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if field.repr and field.name not in _SCOPE
        }
        return line(type(self).__name__, shown, self.guarantee)  # type: ignore[attr-defined]
