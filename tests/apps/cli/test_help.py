"""The help of every command: groups in order, one line each, panels, examples, defaults."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main

from tacit.apps import cli
from tacit.apps.cli import groups, study

GROUPS = ["demo", "ask", "collect", "survey", "release", "train", "federate", "account"]
GROUPS += ["campaign", "study"]
PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
Run = Callable[..., Any]


def walk(parent: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, child in parent.commands.items():
        yield f"{path} {name}", child
        if hasattr(child, "commands"):
            yield from walk(child, f"{path} {name}")


ROOT: Any = typer.main.get_command(cli.app)
OWN = {path: one for path, one in walk(ROOT, "tacit") if not path.startswith("tacit study")}
COMMANDS = {path: one for path, one in OWN.items() if not hasattr(one, "commands")}


def example_of(command: click.Command) -> list[str]:
    """The words of a command's example."""
    head, _, text = str(command.epilog).partition("\n\n")
    assert head == "Example:"
    return shlex.split(text.replace("\\\n\n", " "))


def test_groups_are_in_order_with_one_line_each(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(ROOT.commands) == GROUPS
    monkeypatch.setenv("COLUMNS", "80")
    printed = run("--help")
    assert printed.code == 0
    for name in GROUPS[:-1]:
        (line,) = [one for one in printed.out.splitlines() if one.startswith(f"│ {name} ")]
        assert line.rstrip(" │").endswith(".")
    assert "Example:" in printed.out
    assert run().out == printed.out


def test_only_the_demonstration_and_questions_are_commands_at_the_top() -> None:
    assert [name for name, one in ROOT.commands.items() if not hasattr(one, "commands")] == [
        "demo",
        "ask",
    ]


@pytest.mark.parametrize("path", OWN)
def test_help_has_an_example_that_parses(run: Run, path: str) -> None:
    """Shown so that it can be copied, and read without a missing or unknown option."""
    words = example_of(OWN[path])
    assert " ".join(words).startswith(path)
    printed = run(*path.split()[1:], "--help")
    assert printed.code == 0
    assert printed.err == ""
    lines = printed.out.partition("Example:")[2].splitlines()
    shown = "\n".join(line.rstrip() for line in lines).replace("\\\n", " ")
    assert shlex.split(shown) == words
    context: Any = click.Context(ROOT, info_name="tacit")
    command, rest = ROOT, words[1:]
    while hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context("example", [*rest], parent=context)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_has_panels_and_a_sentence(path: str) -> None:
    command = COMMANDS[path]
    assert isinstance(command, groups.Command)
    assert command.rich_help_panel
    first = inspect.cleandoc(command.help).split("\n\n")[0]
    assert first.endswith((".", ")"))
    for one in command.params:
        if one.name in ("help", "as_json"):
            continue
        assert one.help, f"{path} {one.name} has no help"
        assert one.help[0] != "…"
        if isinstance(one, click.Option):
            assert one.rich_help_panel, f"{path} {one.name} is in no panel"
    assert path.endswith("node") or any(one.name == "as_json" for one in command.params)


def test_help_shows_defaults(run: Run) -> None:
    printed = run("collect", "fit", "--help").out
    for text in ("[default: collection]", "[default: 200000]", "[default: (read off the rows)]"):
        assert text in printed
    assert "[default: (16)]" in run("train", "audit", "--help").out


@pytest.mark.parametrize("path", OWN)
def test_every_command_is_in_the_page(path: str) -> None:
    assert f"## {path}\n" in PAGE.read_text()


def test_the_page_has_no_other_command() -> None:
    found = re.findall(r"^## (tacit .*)$", PAGE.read_text(), re.MULTILINE)
    ours = [path for path in found if not path.startswith("tacit study")]
    assert [path for path in ours if path not in OWN] == []
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("privatize", "'tacit collect privatize'"),
        ("fit", "'tacit collect fit'"),
        ("query", "'tacit release query'"),
        ("audit-model", "'tacit train audit'"),
        ("calibrate", "'tacit account calibrate'"),
        ("ledger show", "'tacit account ledger'"),
        ("take-part", "'tacit campaign take-part'"),
        ("collect privatise", "'tacit collect privatize'"),
        ("collect verify", "'tacit account verify'"),
        ("learn", "'tacit collect learn' or 'tacit campaign learn'"),
        ("serve", "'tacit federate serve' or 'tacit campaign serve'"),
        ("account ledger chage", "'tacit account ledger charge'"),
        ("feder", "'tacit federate'"),
    ],
)
def test_an_old_or_mistyped_name_is_answered_with_the_new_one(
    run: Run, typed: str, meant: str
) -> None:
    outcome = run(*typed.split())
    assert outcome.code == 2
    wrong = [word for word in typed.split() if word not in ("collect", "account", "show")]
    name = "ledger" if typed == "ledger show" else wrong[-1]
    assert outcome.err == f"tacit: No such command {name!r}. Did you mean {meant}?\n"


def test_options_of_an_old_command_are_answered_with_the_new_one(run: Run) -> None:
    outcome = run("account", "--noise-multiplier", 1, "--steps", 10, "--delta", "1e-5")
    assert outcome.code == 2
    assert (
        "No such option '--noise-multiplier'. Did you mean 'tacit account compose'" in outcome.err
    )
    assert run("xyzzy").err == "tacit: No such command 'xyzzy'. See 'tacit --help'.\n"
    assert run("collect", "--magic").err.endswith("See 'tacit collect --help'.\n")


def test_studies_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "entry_points", lambda group: [])
    app = groups.group("Without the papers.", "tacit demo")
    study.register(app)
    app.command()(lambda: None)
    for words in (["study"], ["study", "collect", "--data", "mnist"], ["study", "--help"]):
        with pytest.raises(click.UsageError, match="pip install tacit-papers"):
            app(args=words, standalone_mode=False)


def test_starting_is_quick() -> None:
    """Help loads none of the large packages."""
    heavy = ("torch", "sklearn", "pyarrow", "duckdb", "flwr", "fastapi", "sqlalchemy", "matplotlib")
    code = (
        "import sys; from tacit.apps.cli import main; main(['--help']); main(['collect'])\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_examples_that_need_no_model_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one folder, in this order: a ledger is opened before it is charged."""
    monkeypatch.chdir(tmp_path)
    rows = {"sex": ["F", "M"] * 50, "age": [20, 60] * 50}
    pq.write_table(pa.table(rows), "data.parquet")
    paths = (
        *("account compose", "account audit"),
        *("account ledger open", "account ledger charge", "account ledger raise"),
        *("account ledger show", "account", "release", "release query"),
        *("release posterior", "release needed", "collect plan"),
    )
    for path in paths:
        words = example_of(OWN[f"tacit {path}"])
        outcome = run(*words[1:])
        assert (outcome.code, outcome.err) == (0, ""), " ".join(words)
