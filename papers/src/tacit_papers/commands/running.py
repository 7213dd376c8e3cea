"""Run a study with a progress line, print its table, draw its figure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tacit.apps.cli.console import print_table
from tacit.apps.cli.files import stages_progress
from tacit.privacy import errors
from tacit_papers.engine.registry import Study


def run_study(
    study: Study, options: dict[str, Any], json_file: Path | None, plot: Path | None
) -> None:
    """Check the parameters, load the data, run the study, print its table, and draw its figure."""
    from tacit_papers.engine.running import run

    study.need_packages()
    quick = options.get("quick", False)
    parameters = study.parameters.quickly(**options) if quick else study.parameters(**options)
    must_be_writable(json_file, plot)
    with stages_progress() as progress:
        experiment = study.prepare(parameters, progress)
    with _cells() as shown, _stoppable(json_file):
        record = run(experiment, json_file, shown).to_plain()
    print_table(*study.table(record))
    if quick:
        print(study.quick_note)
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
    """Draw one figure from records of one study."""
    from tacit_papers import figures as plots

    plots.save(plots.draw(records), path)


def must_be_writable(json_file: Path | None, plot: Path | None) -> None:
    """Refuse a file that cannot be written, before hours of work."""
    for option, path in (("--json", json_file), ("--plot", plot)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            errors.refuse("study", option, "a file in an existing folder", str(path))
    if plot is not None:
        from tacit_papers import figures as plots

        plots.check_target(plot)


@contextmanager
def _cells() -> Iterator[Callable[..., None]]:
    """Show a live line on a terminal, and print one line per run elsewhere."""
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
            measured = _said(values)
            bar.update(task, completed=done, total=total, description=f"{words}{measured}")
            if values is not None:
                if console.is_terminal:
                    bar.console.print(f"{words}{measured}", highlight=False)
                else:
                    print(f"{done}/{total} {words}{measured}", file=sys.stderr, flush=True)

        yield progress


def _said(values: dict[str, Any] | None) -> str:
    if values is None:
        return " …"
    shown = [f"{name.replace('_', ' ')} {v:.3f}" for name, v in values.items() if _number(v)]
    return ": " + ", ".join(shown[:3])


def _number(value: Any) -> bool:
    return isinstance(value, float)
