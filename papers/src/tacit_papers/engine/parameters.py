"""Parameters of a study: fields of a dataclass that give options, checks and the record.

A study declares each parameter once, with `declare.option`. From these fields come the options of
its command, their help and defaults, the checks before anything is loaded, the smaller values of a
quick run, and `parameters` in the record.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from typing import Any, Self

from tacit.privacy import errors
from tacit_papers.engine.checks import WHERE, Check

AS_USUAL: Any = object()
"""The quick value of a parameter that has none of its own."""


@dataclass(frozen=True)
class Option:
    """Properties of a parameter beside its name, type and default.

    Parameters
    ----------
    help : str
        One sentence, for `--help` and the documentation.
    check : callable, optional
        Checks the value, or every item of a tuple.
    quick : object, optional
        The value in a quick run.
    record : str or bool
        The name in the record if it differs; False where the record does not hold the parameter.
    otherwise : str, optional
        The default in words, where the value does not tell.
    usual : bool
        Whether the default is left out when a command is written down.
    hidden : bool
        Whether the command does not offer the parameter.
    """

    help: str
    check: Check | None = None
    quick: Any = AS_USUAL
    record: str | bool = True
    otherwise: str | None = None
    usual: bool = False
    hidden: bool = False


@dataclass(frozen=True)
class Parameters:
    """Base of a study's parameters: every field is checked, and replaced by what its check returns.

    Every study has the field `quick`.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            kept = _checked(of(field).check, field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, kept)

    @classmethod
    def quickly(cls, **chosen: Any) -> Self:
        """Make parameters of a quick run: its own values where nothing else is given."""
        every = {field.name: of(field).quick for field in dataclasses.fields(cls)}
        few = {name: value for name, value in every.items() if value is not AS_USUAL}
        return cls(**{**few, "quick": True, **chosen})

    def recorded(self) -> dict[str, Any]:
        """Return what the record holds, ready for JSON: tuples as lists, ∞ as "inf"."""
        names = {name: field.name for field in dataclasses.fields(self) if (name := _kept(field))}
        return {name: _plain(getattr(self, field)) for name, field in names.items()}


def of(field: dataclasses.Field[Any]) -> Option:
    """Return the properties of a field."""
    option: Option = field.metadata.get("option", Option(""))
    return option


def offered(parameters: type[Parameters]) -> list[dataclasses.Field[Any]]:
    """List the fields that the command offers as options."""
    return [field for field in dataclasses.fields(parameters) if not of(field).hidden]


def record_name(field: dataclasses.Field[Any]) -> str:
    """Name a field as records do."""
    name = of(field).record
    return name if isinstance(name, str) else field.name


def _kept(field: dataclasses.Field[Any]) -> str | None:
    return record_name(field) if of(field).record else None


def _checked(check: Check | None, name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_checked(check, name, one) for one in value)
    return value if check is None or value is None else check(name, value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return "inf" if value == math.inf else value


def item_type(hint: Any) -> Any:
    """Return the type of the items of a tuple, or None for a single value."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None


def read(name: str, hint: Any, text: Any) -> Any:
    """Read a value as a command line gives it: words with commas between them are a tuple."""
    item = item_type(hint)
    if item is None:
        return text
    if item is str:
        return words(name, text)
    items = numbers(name, text)
    if item is int:
        return tuple(errors.whole(WHERE, name, one, least=1) for one in items)
    optional = isinstance(item, types.UnionType)  # float or None: without privacy
    return tuple(None if optional and one == math.inf else one for one in items)


def words(name: str, text: str) -> tuple[str, ...]:
    """Read words with commas between them."""
    parts = tuple(word.strip() for word in text.split(",") if word.strip())
    if not parts or len(set(parts)) != len(parts):
        errors.refuse(WHERE, name, "names with commas between them, each once", text)
    return parts


def numbers(name: str, text: str) -> tuple[float, ...]:
    """Read numbers with commas between them."""
    try:
        values = tuple(float(word) for word in words(name, text))
    except ValueError as error:
        if isinstance(error, errors.TacitError):
            raise
        values = ()
    if not values or any(math.isnan(number) for number in values):
        errors.refuse(WHERE, name, "numbers with commas between them", text)
    return values


def said(value: Any) -> str:
    """Write a value as a command line would give it; None in a list stands for no privacy."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join("inf" if one is None else said(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def default_of(field: dataclasses.Field[Any]) -> str:
    """Say the default, and the value of a quick run where it differs; "" where there is none."""
    option = of(field)
    usual = option.otherwise or ("" if field.default is None else said(field.default))
    return usual if option.quick is AS_USUAL else f"{usual}; with --quick {said(option.quick)}"
