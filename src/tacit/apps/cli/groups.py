"""Groups of commands: their help panels, their examples, and the answer to an unknown name."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

import click
import typer
from rich.markup import escape
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.utils import get_params_from_function

from tacit.apps.cli.options import panel_of
from tacit.apps.cli.wording import in_options
from tacit.privacy import errors

_WIDTH = 76  # of a line in an example: fits a terminal of 80 columns with its padding
_RENAMED = {"audit-model": "tacit train audit"}


class Command(TyperCommand):
    """A command whose options are in panels, and whose errors name its options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for one in self.params:
            if isinstance(one, TyperOption) and one.rich_help_panel is None:
                one.rich_help_panel = panel_of(str(one.name))
            elif isinstance(one, TyperArgument) and one.help is None:
                one.help = self._help_of(str(one.name))

    def _help_of(self, argument: str) -> str | None:
        """Read an argument's help off the function: from click 8.3 on typer loses it."""
        function = inspect.unwrap(self.callback) if self.callback else None
        return get_params_from_function(function)[argument].default.help if function else None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except errors.TacitError as error:
            error.args = (in_options(error, self), *error.args[1:])
            raise


class CommandGroup(TyperGroup):
    """A group that answers an unknown name with the whole spelling of what was meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the group's own options; an option of its commands is answered with these."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ctx.fail(f"No such option {error.option_name!r}.{_holders(error.option_name, ctx)}")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say in one line which one was probably meant."""
        name = args[0] if args else ""
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}.{_suggestion(name, ctx)}")
        return super().resolve_command(ctx, args)


def group(help_text: str, example: str) -> typer.Typer:
    """Make a group of commands.

    Parameters
    ----------
    help_text : str
        One line, shown by `tacit --help` too.
    example : str
        A whole command line that works.
    """
    return typer.Typer(
        cls=CommandGroup,
        help=help_text,
        epilog=_epilog(example),
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )


def command(
    app: typer.Typer,
    panel: str,
    example: str,
    name: str | None = None,
    context: dict[str, Any] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command to a group.

    Parameters
    ----------
    app : typer.Typer
        The group.
    panel : str
        The panel in which the group's help lists the command.
    example : str
        A whole command line that works, shown at the end of the command's help.
    name : str, optional
        The command's name, if it is not the function's.
    context : dict, optional
        Settings of its click context.
    """
    return app.command(
        name,
        cls=Command,
        rich_help_panel=panel,
        epilog=_epilog(example),
        context_settings=context,
    )


def _epilog(example: str) -> str:
    """Break the command line into lines that can be copied together."""
    lines, option = [""], ""
    for word in shlex.split(example, posix=False):  # quotes stay as they are
        part = f"{option} {word}".strip()
        option = part if word.startswith("--") else ""  # stays with its value
        if option:
            continue
        if len(lines[-1]) + len(part) + 3 > _WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {part}".strip()
    lines[-1] = f"{lines[-1]} {option}".strip()
    # The help renderer takes an empty line for a line break.
    return "Example:\n\n" + " \\\n\n".join(map(escape, lines))


def _suggestion(name: str, ctx: click.Context) -> str:
    """Look for the name in the whole tree: in this group first, then for similar names."""
    if name in _RENAMED:
        return _meant([_RENAMED[name]], ctx)
    spelled: dict[str, list[str]] = {}
    for path in _paths(ctx.find_root().command, "tacit"):
        spelled.setdefault(path.rpartition(" ")[2], []).append(path)
    near = [name] if name in spelled else get_close_matches(name, spelled, n=1)
    paths = [path for one in near for path in spelled[one]]
    here = [path for path in paths if path.rpartition(" ")[0] == ctx.command_path]
    return _meant(here or paths, ctx)


def _holders(option: str, ctx: click.Context) -> str:
    """Name the group's commands that have this option."""
    commands = [
        f"{ctx.command_path} {name}"
        for name, child in getattr(ctx.command, "commands", {}).items()
        if any(option in one.opts for one in child.params)
    ]
    return _meant(commands, ctx)


def _meant(paths: list[str], ctx: click.Context) -> str:
    if not paths:
        return f" See '{ctx.command_path} --help'."
    return f" Did you mean {' or '.join(map(repr, paths))}?"


def _paths(parent: Any, path: str) -> Iterator[str]:
    for name, child in getattr(parent, "commands", {}).items():
        yield f"{path} {name}"
        yield from _paths(child, f"{path} {name}")
