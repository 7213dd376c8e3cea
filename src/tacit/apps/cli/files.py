"""Files as commands take them: schemas, directories, ledgers, progress while they are read."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from tacit.apps.cli.console import must_exist
from tacit.apps.cli.wording import spoken
from tacit.local.inhouse import Part, Protection
from tacit.privacy import errors, files
from tacit.privacy.guarantees import Unproven

if TYPE_CHECKING:
    from tacit.data.outcomes import Numeric


def declared_classes(text: str | None) -> int | list[str] | None:
    """Read the number of classes, or their values."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return [value.strip() for value in text.split(",")]


def declared_outcome(text: str | None) -> Numeric | None:
    """Read the bounds of a numeric outcome from a text like 0:80."""
    if text is None:
        return None
    from tacit.data.outcomes import Numeric

    lower, found, upper = text.partition(":")
    try:
        bounds = float(lower), float(upper)
    except ValueError:
        found = ""
    if not found:
        errors.refuse("fit", "--outcome", "like 0:80: its bounds", text)
    return Numeric(*bounds)


def image_size(text: str | None) -> tuple[int, ...] | None:
    """Read height, width and, in colour, channels from a text like 28x28 or 32x32x3."""
    return _sizes("--image", text, (2, 3), "like 28x28, or 32x32x3 in colour")


def signal_size(text: str | None) -> tuple[int, int] | None:
    """Read points in time and channels from a text like 128x9."""
    sizes = _sizes("--signal", text, (2,), "like 128x9: points in time, channels")
    return None if sizes is None else (sizes[0], sizes[1])


def _sizes(
    option: str, text: str | None, counts: tuple[int, ...], condition: str
) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) not in counts or not all(part.strip().isdecimal() for part in parts):
        errors.refuse("command line", option, condition, text)
    return tuple(map(int, parts))


def read_schema(path: Path) -> Any:
    """Read public bounds and categories from JSON; name the columns that a draft left open."""
    from tacit.data import schema

    must_exist(path)
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if left_open := open_columns(plain):
            wanted = "complete: bounds and categories must not be null"
            errors.refuse("schema", "columns", wanted, ", ".join(left_open), "Declare them.")
        return schema.from_plain(plain)
    except (ValueError, TypeError) as error:
        reason = str(error) if isinstance(error, errors.TacitError) else "it must be JSON."
        raise errors.InvalidData(f"{path}: {reason}") from None


def open_columns(plain: Any) -> list[str]:
    """Return the names of the columns whose bounds or categories a draft has left open."""
    columns = plain.get("columns") if isinstance(plain, dict) else None
    return [
        str(one.get("name"))
        for one in (columns if isinstance(columns, list) else ())
        if isinstance(one, dict)
        and any(one.get(part, 0) is None for part in ("lower", "upper", "categories"))
    ]


def declared_parts(where: str, given: list[str], names: list[str], *like: str) -> dict[str, str]:
    """Read what --declare says of columns, as texts by name: age=18:99."""
    declared = dict(one.partition("=")[::2] for one in given)
    for name, value in declared.items():
        errors.choice(where, "--declare", name, tuple(names))
        if not value:
            errors.refuse(where, "--declare", f"like {' or '.join(like)}", name)
    return declared


def must_be_new(path: Path, option: str = "--out") -> None:
    """Refuse to overwrite anything, or to write where there is no folder."""
    if path.exists():
        errors.refuse("command line", option, "new", str(path), "Remove it or choose another.")
    if not path.parent.is_dir():
        errors.refuse("command line", option, "in an existing folder", str(path), "Make it first.")


def must_be_new_outputs(out: Path | None, certificate: Path | None) -> None:
    """Check --out and --certificate before anything is charged."""
    for option, path in (("--out", out), ("--certificate", certificate)):
        if path is not None:
            must_be_new(path, option)
    if certificate is not None and certificate == out:
        errors.refuse("command line", "--certificate", "another file than --out", str(out))


def write_released(content: Any, out: Path | None, certificate: Path | None, issue: Any) -> None:
    """Write a release as JSON, and its certificate, which names that file if there is one.

    `issue` makes the certificate from the path of the release, or from None.
    """
    if out is not None:
        files.create(out, (json.dumps(content) + "\n").encode())
    if certificate is not None:
        issue(out).save(certificate)


def must_have(thing: Any, needed: str, path: Path) -> Any:
    """Return what was loaded if it is a mechanism ("release") or a model ("predict")."""
    if not hasattr(thing, needed) or thing.kind in ("anonymizing-encoder", "estimator"):
        kind = "a mechanism, as fit writes" if needed == "release" else "a model, as learn writes"
        errors.refuse("command line", "directory", kind, str(path))
    return thing


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print warnings as lines of the command, not of Python, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for line in dict.fromkeys(spoken(warning.message) for warning in caught):
        print(f"tacit: {line}", file=sys.stderr)


@contextmanager
def rows_progress(total: int | None) -> Iterator[Any]:
    """Show a progress bar on standard error, if that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("rows"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("rows", total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def stages_progress(transient: bool = False) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show one progress bar per stage on standard error, if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=transient
    ) as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield show


def described(protection: Protection) -> str:
    """Describe what protects each set of in-house rows, for a cell of a table."""
    said = [_described(part) for part in protection.parts]
    if protection.proved and sum(not part.public for part in protection.parts) > 1:
        # Parts with equal guarantees are still several parts.
        said = [*dict.fromkeys(said), f"for a person in all of them: {protection.guarantee}"]
    return "; ".join(dict.fromkeys(said))


def _described(part: Part) -> str:
    if part.public:
        return "public, as their owner states"
    if not part.proved:
        known = "unproven" if isinstance(part.guarantee, Unproven) else "not protected"
        return f"{known}: keep it inside"
    return f"{part.guarantee}{'' if part.may_leave else ' (seeded, for tests): keep it inside'}"


@contextmanager
def opened_ledger(path: Path | None, account: str | None) -> Iterator[Any]:
    """Open the ledger, if one is given; its account must exist."""
    if (path is None) != (account is None):
        present = "--account" if path is None else "--ledger"
        errors.refuse("command line", "--ledger and --account", "given together", present)
    if path is None:
        yield None
        return
    from tacit.privacy.accounting.ledger import Ledger

    if not path.is_file():
        remedy = f"Open an account first: tacit account ledger open {path} {account} …"
        errors.refuse("command line", "--ledger", "an existing file", str(path), remedy)
    with Ledger(path) as opened:
        opened.show(str(account))  # a missing account is refused before any work
        yield opened
