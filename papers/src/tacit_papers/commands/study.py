"""`tacit study`: one command per study, made from its parameters, and `figure` and `merge`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from tacit.apps.cli.console import must_exist
from tacit_papers.commands.making import command_of
from tacit_papers.commands.running import draw, must_be_writable
from tacit_papers.engine import registry


class Commands(Mapping[str, click.Command]):
    """Commands by name; that of a study is made when it is asked for, as its module loads then."""

    def __init__(self, others: Mapping[str, click.Command]) -> None:
        self._made = dict(others)
        self._names = [*registry.names(), *others]

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = command_of(registry.study(name))
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Studies(TyperGroup):
    """The group `tacit study`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands(self.commands)  # type: ignore[assignment]


app = typer.Typer(
    cls=Studies,
    help="Reproduce the results of the papers, with ours beside them: run, record, tabulate, draw.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Keep these commands of a group."""


@app.command()
def figure(
    records: Annotated[list[Path], typer.Argument(help="Records of one study.", metavar="RECORD")],
    plot: Annotated[Path, typer.Option(help="The figure: .png, .svg or .pdf.")],
) -> None:
    """Draw one figure from one or more records of the same study and data.

    Example: tacit study figure latent.json feature.json --plot figure1.png
    """
    from tacit_papers.engine.record import Record

    must_exist(*records)
    must_be_writable(None, plot)
    draw([Record.load(path).to_plain() for path in records], plot)
    print(f"figure: {plot}")


@app.command()
def merge(
    records: Annotated[list[Path], typer.Argument(help="Records of one study.", metavar="RECORD")],
    json_file: Annotated[Path, typer.Option("--json", help="The record of all runs.")],
) -> None:
    """Merge records of one study that was run in parts, such as one table each.

    Example: tacit study merge adult.json wine.json --json tables.json
    """
    from tacit_papers.engine.merging import merged
    from tacit_papers.engine.record import Record

    must_exist(*records)
    must_be_writable(json_file, None)
    merged([Record.load(path) for path in records]).save(json_file)
    print(f"record: {json_file}")
