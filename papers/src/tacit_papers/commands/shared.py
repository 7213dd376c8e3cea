"""What every `tacit study …` shares: options, the run with its progress, table and figure."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tacit.apps.cli.console import print_table
from tacit.privacy import errors

QUICK = "A quick run, on few rows and hardly trained: its numbers mean nothing."

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:0, …")]
Seed = Annotated[int, typer.Option(help="Of the first trial; the next ones count on from it.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="The record; a study that was stopped goes on from it."),
]
Plot = Annotated[Path | None, typer.Option(help="The figure: .png, .svg or .pdf.")]
Quick = Annotated[bool, typer.Option("--quick", help="Few rows, one trial: does it run?")]


def run_study(
    study: Any,
    json_file: Path | None,
    plot: Path | None,
    as_table: Callable[[dict[str, Any]], Any] | None = None,
) -> None:
    """Run, show, and draw."""
    from tacit_papers.studies.running import run
    from tacit_papers.studies.tables import table

    with _cells() as progress, _stoppable(json_file):
        record = run(study, json_file, progress).to_plain()
    title, header, lines = (as_table or table)(record)
    print_table(title, header, lines)
    if as_table is None and record["parameters"]["quick"]:
        print(QUICK)
    for name, path in (("record", json_file), ("figure", plot)):
        if path is not None:
            print(f"{name}: {path}")
    if plot is not None:
        draw([record], plot)


@contextmanager
def _stoppable(json_file: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if json_file is not None:
            print(f"\nThe same command goes on from {json_file}.", file=sys.stderr)
        raise


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """One figure of records of one study."""
    from tacit_papers import figures as plots

    plots.save(plots.draw(records), path)


def must_be_writable(json_file: Path | None, plot: Path | None) -> None:
    """Hours of work must not end in a folder that is not there."""
    for option, path in (("--json", json_file), ("--plot", plot)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            errors.refuse("study", option, "a file in an existing folder", str(path))
    if plot is not None:
        from tacit_papers import figures as plots

        plots.check_target(plot)


def read_words(name: str, text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words or len(set(words)) != len(words):
        errors.refuse("study", name, "names with commas between them, each once", text)
    return words


def read_numbers(name: str, text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    words = read_words(name, text)
    try:
        numbers = tuple(float(word) for word in words)
    except ValueError:
        numbers = ()
    if not numbers or any(math.isnan(number) for number in numbers):
        errors.refuse("study", name, "numbers with commas between them", text)
    return numbers


@contextmanager
def _cells() -> Iterator[Callable[..., None]]:
    """A live line on a terminal; a line for each run elsewhere."""
    console = Console(stderr=True)
    columns = (
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def progress(words: str, done: int, total: int, values: dict[str, Any] | None) -> None:
            found = _said(values)
            bar.update(task, completed=done, total=total, description=f"{words}{found}")
            if values is not None:
                if console.is_terminal:
                    bar.console.print(f"{words}{found}", highlight=False)
                else:
                    print(f"{done}/{total} {words}{found}", file=sys.stderr, flush=True)

        yield progress


def _said(values: dict[str, Any] | None) -> str:
    if values is None:
        return " …"
    shown = [f"{name.replace('_', ' ')} {v:.3f}" for name, v in values.items() if _number(v)]
    return ": " + ", ".join(shown[:3])


def _number(value: Any) -> bool:
    return isinstance(value, float)
