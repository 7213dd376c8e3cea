"""What tests share: a way to run commands, and published data sets where their files are."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before numpy or torch load: a forked child waits for ever for locks of its parent's threads.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import pytest  # noqa: E402

from tacit.data import datasets  # noqa: E402

_NOTES = ("differ from the in-house", "voters, ")
"""What a command may say before it fails: a shift of the people, what the voters allow."""


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        found = json.loads(self.out, parse_constant=lambda name: 1 / 0)
        assert isinstance(found, dict)
        return found


@pytest.hookimpl(tryfirst=True)  # before `-m` leaves out what is marked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as heavy all cases of a test but the n that `quick(n)` keeps, spread evenly."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("quick"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for several in cases.values():
        kept = several[0].get_closest_marker("quick").args[0]  # type: ignore[union-attr]
        step = max(-(-len(several) // kept), 1)
        for item in (one for place, one in enumerate(several) if place % step):
            item.add_marker("heavy")


@pytest.fixture(autouse=True, scope="session")
def _commands_once() -> Iterator[None]:
    """Make the tree of commands once; typer makes it at every call, in a tenth of a second."""
    import typer.main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(name="run")
def _run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    from tacit.apps.cli import main

    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def _snapshot(*folders: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() if path.is_file() else b"(folder)"
        for folder in folders
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(name="refuse")
def _refuse(
    run: Callable[..., Outcome], work: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., str]:
    """Run what must fail: one line at the end, nothing written, no `SECRET` of the module said."""

    def refuse(*arguments: object, code: int = 2) -> str:
        before = _snapshot(work, tmp_path)
        outcome = run(*arguments)
        assert outcome.code == code, outcome
        assert outcome.out == ""
        *notes, line = outcome.err.splitlines()
        assert all(any(known in note for known in _NOTES) for note in notes)
        assert line.startswith("tacit: ")
        assert "Traceback" not in line
        assert getattr(request.module, "SECRET", "\0") not in line
        assert _snapshot(work, tmp_path) == before
        return line

    return refuse


@functools.cache
def _local(name: str) -> datasets.Dataset:
    return datasets.load(name, fetch=False)


@pytest.fixture(name="published")
def _published() -> Callable[[str], datasets.Dataset]:
    """A data set whose files are on this machine; or else the test is skipped with the reason."""

    def published(name: str) -> datasets.Dataset:
        try:
            return _local(name)
        except datasets.MissingFile as error:
            pytest.skip(str(error))

    return published


@pytest.fixture(name="bare")
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no files of data sets and an empty cache, which is returned."""
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "tacit"
