"""`tacit study`: commands that the package tacit-papers adds."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click
import typer

from tacit.apps.cli.groups import command

_STUDY = "study"
_PANEL = "Research"
_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Add the groups of installed packages, or a command that says what to install."""
    commands: dict[str, EntryPoint] = {
        one.name: one for one in entry_points(group="tacit.commands")
    }
    for name in sorted(commands):
        app.add_typer(commands[name].load(), name=name, rich_help_panel=_PANEL)
    if _STUDY not in commands:
        command(app, _PANEL, "tacit study --help", context=_ANYTHING)(study)


def study() -> None:
    """Repeat the papers' results (needs the package tacit-papers)."""
    raise click.UsageError("tacit study needs the package tacit-papers. pip install tacit-papers.")
