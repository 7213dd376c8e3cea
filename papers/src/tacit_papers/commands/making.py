"""A study's command, made from the fields of its parameters."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from tacit_papers.commands import running
from tacit_papers.engine import declare, parameters
from tacit_papers.engine.registry import Study

JSON = typer.Option("--json", help=declare.FILES["json"])
PLOT = typer.Option("--plot", help=declare.FILES["plot"])


def command_of(study: Study) -> click.Command:
    """Make the command of a study."""
    hints = typing.get_type_hints(study.parameters)
    fields = parameters.offered(study.parameters)

    def run(json_file: Path | None, plot: Path | None, **options: Any) -> None:
        read = {
            name: parameters.read(name, hints[name], value)
            for name, value in options.items()
            if value is not None
        }
        running.run_study(study, read, json_file, plot)

    options = [_parameter(one.name, hints[one.name], one) for one in fields if one.name != "quick"]
    files = [
        _keyword("json_file", Path, JSON),
        _keyword("plot", Path, PLOT),
    ]
    quick = [_parameter(one.name, bool, one) for one in fields if one.name == "quick"]
    # What Typer reads: a signature that holds an option for each field.
    run.__signature__ = inspect.Signature([*options, *files, *quick])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*options, *files, *quick]}
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(study.name, help=study.help)(run)
    return typer.main.get_command(alone)


def _parameter(name: str, hint: Any, field: dataclasses.Field[Any]) -> inspect.Parameter:
    """Make one option. Its default is None: what is not given is left to the parameters."""
    flag, kind = f"--{name.replace('_', '-')}", hint
    if hint is bool:
        flag = flag if field.default is False else f"{flag}/--no-{flag[2:]}"
    elif parameters.item_type(hint) is not None:
        kind = str
    text = f"{parameters.of(field).help}{_default(field)}"
    return _keyword(name, kind, typer.Option(flag, help=text))


def _default(field: dataclasses.Field[Any]) -> str:
    said = parameters.default_of(field)
    return f" Default: {said}." if said and field.name != "quick" else ""


def _keyword(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )
