"""Settings of a server, each from the first place that states it.

Places in order: the command line, an environment variable (`TACIT_LIMITS_RATE` for `limits.rate`),
a TOML file, the default. An empty variable counts as not set. A name or value that is wrong is
refused with its place, and a value that may hold a password is never quoted.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from tacit.apps.service.door import DoorLimits
from tacit.apps.service.handling import Limits
from tacit.apps.service.server import GRACE, Listener
from tacit.privacy import errors

PREFIX = "TACIT_"
HIDDEN = "…"
_WHERE = "serve"
_BURST = 4
"""Requests at once, over requests per second, where only the latter is stated."""
_LARGEST_FILE = 1 << 20


@dataclass(frozen=True)
class Kind:
    """The values that a setting takes: how text becomes one, and which ones are allowed."""

    condition: str
    parse: Callable[[str], Any]
    allows: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value


def _is_text(value: Any) -> bool:
    return type(value) is str and value.strip() != "" and value.isprintable()


def _whole(least: int, most: float = math.inf) -> Kind:
    condition = f"a whole number from {least}" + ("" if math.isinf(most) else f" to {most}")
    return Kind(condition, int, lambda value: type(value) is int and least <= value <= most)


def _number(condition: str, allows: Callable[[float], bool]) -> Kind:
    return Kind(condition, float, lambda value: type(value) in (int, float) and allows(value))


_TEXT = Kind("text in one line", str, _is_text)
_PATH = Kind("a path", str, _is_text, Path)
_ABOVE_ZERO = _number("a number above 0 (inf for no limit)", lambda value: value > 0)
_AT_LEAST_ONE = _number("a number from 1", lambda value: value >= 1)


@dataclass(frozen=True)
class Setting:
    """A setting: its name, the values it takes, and its default."""

    name: str
    kind: Kind
    default: Any = None
    secret: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that states it."""
        return PREFIX + self.name.replace(".", "_").upper()


def _limits(section: str, of: type) -> Iterator[Setting]:
    """Yield a setting for each limit, so that none can be forgotten here."""
    for field in dataclasses.fields(of):
        kind = _whole(1) if str(field.type).startswith("int") else _ABOVE_ZERO
        if field.name.endswith("burst"):  # below 1, no request would ever be allowed
            kind = _AT_LEAST_ONE
        yield Setting(f"{section}.{field.name}", kind, field.default)


KNOWN = {
    setting.name: setting
    for setting in (
        Setting("db", _TEXT, "sqlite:///campaign.db", secret=True),
        Setting("db_password_file", _PATH),
        Setting("secret", _PATH),
        Setting("host", _TEXT, Listener.host),
        Setting("port", _whole(1, 65535), Listener.port),
        Setting("tls_cert", _PATH),
        Setting("tls_key", _PATH),
        Setting("trusted_proxies", _TEXT),
        Setting("cors", _TEXT),
        Setting("shutdown_seconds", _whole(1, 3600), GRACE),
        *_limits("limits", Limits),
        *_limits("door", DoorLimits),
    )
}
"""All settings by name."""


@dataclass(frozen=True)
class Applied:
    """The value of a setting, and the place that states it."""

    value: Any
    source: str


class Settings(Mapping[str, Any]):
    """The settings that apply, by name.

    Parameters
    ----------
    applied : dict of str to Applied
        A value and its place for every name of `KNOWN`.
    """

    def __init__(self, applied: dict[str, Applied]) -> None:
        self._applied = applied

    @classmethod
    def gather(
        cls,
        given: Mapping[str, tuple[Any, str]] | None = None,
        environment: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> Settings:
        """Read all places.

        Parameters
        ----------
        given : mapping, optional
            Values of the command line by name, each with the option that states it.
        environment : mapping, optional
            Variables; by default those of this process.
        file : Path, optional
            A TOML file.
        """
        values = os.environ if environment is None else environment
        stated = _of_file(file) | _of_environment(values) | _checked(given or {})
        applied = {
            name: stated.get(name, Applied(one.default, "default")) for name, one in KNOWN.items()
        }
        if "limits.burst" not in stated and "limits.rate" in stated:
            burst = max(1.0, _BURST * applied["limits.rate"].value)
            applied["limits.burst"] = Applied(burst, f"default, {_BURST} times limits.rate")
        return cls(applied)

    def __getitem__(self, name: str) -> Any:
        return self._applied[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._applied)

    def __len__(self) -> int:
        return len(self._applied)

    def source(self, name: str) -> str:
        """Return the place that states a setting."""
        return self._applied[name].source

    def shown(self) -> list[dict[str, Any]]:
        """Return names, values and places, without passwords, for whoever checks a server."""
        found = []
        for name, one in self._applied.items():
            value = without_password(one.value) if KNOWN[name].secret else one.value
            value = str(value) if isinstance(value, Path) or value == math.inf else value
            found.append({"setting": name, "value": value, "from": one.source})
        return found

    @property
    def listener(self) -> Listener:
        """Where to listen."""
        names = (field.name for field in dataclasses.fields(Listener))
        return Listener(**{name: self[name] for name in names})

    @property
    def database(self) -> str:
        """Address of the database, with the password of `db_password_file` if there is one."""
        path = self["db_password_file"]
        if path is None:
            return str(self["db"])
        try:
            address = make_url(self["db"])
            if address.get_backend_name() != "postgresql":
                raise ValueError
        except (ArgumentError, ValueError):
            condition = "given only with a PostgreSQL address in db"
            errors.refuse(_WHERE, "db_password_file", condition, str(path))
        password = _read(path, "db_password_file").decode("utf-8", "replace").strip("\r\n")
        return address.set(password=password).render_as_string(hide_password=False)

    @property
    def limits(self) -> Limits:
        """Limits on what a sender may send."""
        return Limits(**self._section("limits"))

    @property
    def at_door(self) -> DoorLimits:
        """Limits on connections and incomplete requests."""
        return DoorLimits(**self._section("door"))

    def _section(self, name: str) -> dict[str, Any]:
        start = f"{name}."
        return {key.removeprefix(start): self[key] for key in self if key.startswith(start)}


def of_command_line(
    options: Mapping[str, Any], pairs: Sequence[str] = ()
) -> dict[str, tuple[Any, str]]:
    """Return what a command line states: options by the setting's name, and `NAME=VALUE` of --set.

    A name may be stated once; an option that is None was not given.
    """
    found = {
        name: (value, f"--{name.rpartition('.')[2].replace('_', '-')}")
        for name, value in options.items()
        if value is not None
    }
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            errors.refuse(_WHERE, "--set", "NAME=VALUE, as in limits.rate=100", HIDDEN)
        setting = _known(name, "--set")
        if name in found:
            errors.refuse(_WHERE, f"{name} on the command line", "stated once", "twice")
        found[name] = _parsed(setting, text), "--set"
    return found


def without_password(address: str) -> str:
    """Return a database's address without what may be secret in it."""
    try:
        url = make_url(address)
    except ArgumentError:
        return HIDDEN
    # Parameters after the ? may hold a password, too.
    hidden = None if url.password is None else "***"
    return url.set(password=hidden, query={}).render_as_string(hide_password=True)


# --- places --------------------------------------------------------------------------------------


def _of_file(path: Path | None) -> dict[str, Applied]:
    if path is None:
        return {}
    found: dict[str, Applied] = {}
    for name, value in _flat(_toml(path)):
        setting = _known(name, path.name)
        found[name] = Applied(_allowed(setting, value, path.name), path.name)
    return found


def _of_environment(variables: Mapping[str, str]) -> dict[str, Applied]:
    found = {}
    known = {setting.variable: setting for setting in KNOWN.values()}
    for variable, text in variables.items():
        if variable in known and text != "":
            setting = known[variable]
            value = _allowed(setting, _parsed(setting, text), variable)
            found[setting.name] = Applied(value, variable)
        elif variable.startswith((f"{PREFIX}LIMITS_", f"{PREFIX}DOOR_")) and variable not in known:
            _unknown(variable, "the environment", list(known))
    return found


def _checked(given: Mapping[str, tuple[Any, str]]) -> dict[str, Applied]:
    found = {}
    for name, (value, source) in given.items():
        plain = str(value) if isinstance(value, Path) else value
        found[name] = Applied(_allowed(KNOWN[name], plain, source), source)
    return found


def _toml(path: Path) -> dict[str, Any]:
    content = _read(path, "settings")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        # The message may quote the line: only its place is passed on.
        place = re.search(r"at line \d+, column \d+|at end of document", str(error))
        where = f" ({place[0]})" if place else ""
        raise errors.InvalidParameter(f"{_WHERE}: {path.name} must be TOML{where}.") from None


def _read(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        reason = f"{path} ({error.strerror})"
        errors.refuse(_WHERE, name, "a file that this user can read", reason)
    if len(content) > _LARGEST_FILE:
        errors.refuse(_WHERE, name, "a file of at most 1 MiB", str(path))
    return content


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


# --- checks --------------------------------------------------------------------------------------


def _known(name: str, source: str) -> Setting:
    return KNOWN[name] if name in KNOWN else _unknown(name, source, list(KNOWN))


def _unknown(name: str, source: str, known: list[str]) -> NoReturn:
    near = get_close_matches(name, known, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    errors.refuse(_WHERE, f"a name in {source}", "one of the settings", name, meant.strip())


def _parsed(setting: Setting, text: str) -> Any:
    """Return the value that a text stands for; the text itself, which is refused, if none."""
    try:
        return setting.kind.parse(text.strip())
    except ValueError:
        return text


def _allowed(setting: Setting, value: Any, source: str) -> Any:
    if not setting.kind.allows(value):
        shown = HIDDEN if setting.secret else value
        errors.refuse(_WHERE, f"{setting.name} from {source}", setting.kind.condition, shown)
    return setting.kind.convert(value)
