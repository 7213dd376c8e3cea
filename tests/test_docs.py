"""Documentation that runs, and that cannot forget a public name, a command or a module."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import tacit
from tacit.apps import cli
from tacit_papers.pages import notebooks
from tacit_papers.pages.reference import LISTED, with_names

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- numbers within (\S+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?!\w)")
CHECKER = doctest.OutputChecker()


def fuzzy(expected: str, printed: str, within: float) -> str:
    """Put the page's own numbers in the place of printed ones that are close enough."""
    ours, theirs = NUMBER.findall(printed), iter(NUMBER.findall(expected))
    close = {}
    for place, (number, said) in enumerate(zip(ours, theirs, strict=False)):
        if abs(float(number) - float(said)) <= within:
            close[place] = said
    places = iter(range(len(ours)))
    return NUMBER.sub(lambda match: close.get(next(places), match[0]), printed)


def assert_same(expected: str, printed: str, where: str, within: str = "") -> None:
    """Equal but for white space; `...` stands for anything, and noise moves numbers."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if within:
        printed = fuzzy(expected, printed, float(within))
    assert CHECKER.check_output(expected, printed, flags), (
        f"{where} prints\n{printed}\nbut the page says\n{expected}"
    )


def run_console(block: str, page: str, within: str = "") -> None:
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", block, re.MULTILINE):
        words = shlex.split(command)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, "PATH": path, "COLUMNS": "80"}
        )
        assert_same(expected, done.stdout + done.stderr, f"{page}: {command}", within)


# Once in a thousand runs chance alone gives this warning; it is not what a page is about.
@pytest.mark.filterwarnings("ignore::tacit.local.inference.noise_aware.ShiftWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    printed = ""
    for within, language, block in BLOCK.findall(page.read_text()):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block, page.name, "exec"), namespace)
            printed = out.getvalue()
        elif language == "text":
            assert_same(block, printed, page.name, within)
        elif language == "console":
            run_console(block, page.name, within)


@pytest.mark.filterwarnings("ignore::tacit.local.inference.noise_aware.ShiftWarning")
@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.name)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for cell, ran in notebooks.run(path):
        kept = notebooks.stored(cell)
        within = str(cell["metadata"].get("within", ""))
        assert_same(kept.printed, ran.printed, f"{path.name}: {notebooks.source(cell)}", within)
        assert (kept.svg is None) == (ran.svg is None)


def test_the_gallery_shows_every_notebook() -> None:
    folder = ROOT / "docs" / "notebooks"
    assert sorted(folder.glob("*.ipynb")) == sorted(notebooks.paths())
    assert (folder / "index.md").read_text() == notebooks.gallery(), (
        "run: python -m tacit_papers.pages.notebooks"
    )
    for path in notebooks.paths():
        (shown,) = (one.svg for one in map(notebooks.stored, notebooks.code(path)) if one.svg)
        assert path.with_suffix(".svg").read_text() == shown


def test_fuzzy_numbers_are_close_and_in_their_places() -> None:
    assert_same("a 0.84, b 3\n", "a 0.86, b 3\n", "", within="0.05")
    for printed in ("a 0.95, b 3\n", "a 0.86, c 3\n", "a 0.86\n", "b 3, a 0.86\n", "a 0.86, b 4\n"):
        with pytest.raises(AssertionError):
            assert_same("a 0.84, b 3\n", printed, "", within="0.05")


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(tacit.__path__, "tacit.")]
    return [name for name in found if name != "tacit.apps.cli"]


@pytest.mark.parametrize("name", modules())
def test_doctests(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


REFERENCE = (
    "tacit",
    "tacit.anonymize",
    "tacit.datasets",
    "tacit.estimators",
    "tacit.federated",
    "tacit.federated.app",
    "tacit.federated.secure",
    "tacit.mechanisms",
    "tacit.private_statistics",
    "tacit.private_training",
    "tacit.service",
)


@pytest.mark.parametrize("package", REFERENCE)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    docs = ROOT / "docs"
    pages = [with_names(page.read_text(), docs) for page in (docs / "reference").glob("*.md")]
    shown = {name for page in pages for name in LISTED.findall(page)}
    shown |= {f"{package}.{name.rpartition('.')[2]}" for name in shown if name.count(".") == 1}
    constants = {"__version__", "NAMES", "TWICE_NAMES"}
    names = set(importlib.import_module(package).__all__) - constants
    assert {f"{package}.{name}" for name in names} <= shown


def test_every_public_name_is_documented() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    missing = [n for n in tacit.__all__ if n != "__version__" and f"`{n}" not in text]
    assert not missing


def test_every_command_and_option_is_documented() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    missing = []

    def section_of(path: str) -> str:
        return text.partition(f"## {path}\n")[2].partition("\n## ")[0]

    def visit(command: object, path: str) -> None:
        for name, sub in getattr(command, "commands", {}).items():
            visit(sub, f"{path} {name}")
        if not hasattr(command, "commands"):
            # What all commands of a group share stands once, in the section of the group.
            section = "".join(map(section_of, (path, path.rpartition(" ")[0])))
            options = [o for p in command.params for o in p.opts if o.startswith("--")]  # type: ignore[attr-defined]
            missing.extend(f"{path} {o}" for o in options if o != "--help" and o not in section)

    visit(typer.main.get_command(cli.app), "tacit")
    assert not missing


def test_rooms_in_the_architecture_page_are_the_rooms() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))
    rooms = {p.name for p in (ROOT / "src" / "tacit").iterdir() if p.is_dir() and p.name[0] != "_"}
    assert named == rooms
    assert len(list((ROOT / "src" / "tacit").glob("[!_]*"))) + 1 <= 10
