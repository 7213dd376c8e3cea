"""Files and options as commands take them."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
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
from tacit.local.inhouse import Part, Protection
from tacit.privacy import errors
from tacit.privacy.guarantees import Unproven

InhousePublic = Annotated[
    bool, typer.Option("--inhouse-public", help="State that the in-house rows are public.")
]
CentralDelta = Annotated[
    float | None, typer.Option(help="Goes with --central-epsilon; 1e-5 is a usual choice.")
]
Out = Annotated[Path, typer.Option("--out", help="What to write; must not exist yet.")]
Data = Annotated[Path, typer.Argument(help="CSV (with a header) or Parquet.", metavar="DATA")]


def declared_classes(text: str | None) -> int | list[str] | None:
    """How many labels there are, or their values."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return [value.strip() for value in text.split(",")]


def image_size(text: str | None) -> tuple[int, int] | None:
    """Height and width from a text like 28x28."""
    if text is None:
        return None
    try:
        height, width = (int(side) for side in text.lower().split("x"))
    except ValueError:
        errors.refuse("command line", "image", "like 28x28", text)
    return height, width


def read_schema(path: Path) -> Any:
    """Public bounds and categories from JSON."""
    from tacit.data import schema

    must_exist(path)
    try:
        return schema.from_plain(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        reason = str(error) if isinstance(error, errors.TacitError) else "it must be JSON."
        raise errors.InvalidData(f"{path}: {reason}") from None


def must_be_new(path: Path, option: str = "--out") -> None:
    """Refuse to write over anything, or where there is no folder."""
    if path.exists():
        errors.refuse("command line", option, "new", str(path), "Remove it or choose another.")
    if not path.parent.is_dir():
        errors.refuse("command line", option, "in an existing folder", str(path), "Make it first.")


def must_have(thing: Any, needed: str, path: Path) -> Any:
    """What was loaded, if it is of the wanted kind; encoders and estimators are neither."""
    if not hasattr(thing, needed) or thing.kind in ("anonymizing-encoder", "estimator"):
        kind = "a mechanism, as fit writes" if needed == "release" else "a model, as learn writes"
        errors.refuse("command line", "directory", kind, str(path))
    return thing


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Warnings as lines of the command, not of Python."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        print(f"tacit: {warning.message}", file=sys.stderr)


@contextmanager
def rows_progress(total: int | None) -> Iterator[Any]:
    """A bar on standard error, where that is a terminal."""
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
    """A bar a stage on standard error, where that is a terminal."""
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
    """What protects in-house rows, set by set, in a cell of a table, and what follows."""
    said = [_described(part) for part in protection.parts]
    if protection.proved and sum(not part.public for part in protection.parts) > 1:
        # Parts of equal price are several all the same.
        said = [*dict.fromkeys(said), f"for whoever is in all: {protection.guarantee}"]
    return "; ".join(dict.fromkeys(said))


def _described(part: Part) -> str:
    if part.public:
        return "public, as their owner states"
    if not part.proved:
        known = "unproven" if isinstance(part.guarantee, Unproven) else "not protected"
        return f"{known}: keep it inside"
    return f"{part.guarantee}{'' if part.may_leave else ' (seeded, for tests): keep it inside'}"
