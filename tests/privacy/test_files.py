"""Files and folders: whole or not there, never over another, with the right mode."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.privacy import files
from tacit.privacy.errors import InvalidParameter


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def broken(*arguments: object, **options: object) -> None:
    raise OSError(95, "Operation not supported")


@pytest.fixture(params=["as it is", "no nameless files", "no links"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file system here, or one that can do less."""
    if request.param == "no nameless files":
        monkeypatch.setattr(files, "_name_open", broken)
    elif request.param == "no links":
        monkeypatch.setattr(os, "link", broken)
    return str(request.param)


@pytest.mark.parametrize("wanted", [files.READABLE, files.OWN])
def test_a_new_file_has_its_mode_and_is_never_written_over(
    system: str, tmp_path: Path, wanted: int
) -> None:
    path = tmp_path / "a"
    files.create(path, b"first", wanted)
    assert mode(path) == wanted
    with pytest.raises(InvalidParameter, match="path must be new"):
        files.create(path, b"second", wanted)
    assert path.read_bytes() == b"first"
    assert listing(tmp_path) == ["a"]


def test_whoever_comes_first_is_kept(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".key"
    assert files.keep_first(path, b"one") == b"one"
    assert mode(path) == files.OWN
    synced: list[Path] = []
    monkeypatch.setattr(files, "_sync", synced.append)
    assert files.keep_first(path, b"two") == b"one"
    assert synced == [tmp_path]
    monkeypatch.setattr(Path, "exists", lambda self: False)  # the other came meanwhile
    assert files.keep_first(path, b"two") == b"one"
    assert listing(tmp_path) == [".key"]


def test_an_older_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"older")
    path.chmod(0o644)
    files.replace(path, b"newer", files.OWN)
    assert (path.read_bytes(), mode(path)) == (b"newer", files.OWN)
    assert listing(tmp_path) == ["a"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    files.replace(tmp_path / "a", b"newer")
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "b").read_bytes() == b"newer"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    files.replace(path, b"a")
    assert path.is_fifo()
    assert os.read(reader, 10) == b"a"
    os.close(reader)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_error_leaves_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"older")
    monkeypatch.setattr(os, call, broken)
    with pytest.raises(OSError, match="not supported"):
        files.replace(path, b"newer")
    assert path.read_bytes() == b"older"
    assert listing(tmp_path) == ["a"]


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    with files.folder(tmp_path / "made") as partial:
        (partial / "inner").mkdir()
        (partial / "inner" / "a").write_bytes(b"a")
        assert mode(partial) == 0o700
        assert not (tmp_path / "made").exists()
    assert mode(tmp_path / "made") == 0o755
    assert (tmp_path / "made" / "inner" / "a").read_bytes() == b"a"
    with pytest.raises(IsADirectoryError), files.folder(tmp_path / "other") as partial:
        partial.write_bytes(b"a")
    assert listing(tmp_path) == ["made"]


def test_a_folder_that_holds_something_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "theirs").write_bytes(b"a")
    with pytest.raises(OSError, match="not empty"), files.folder(tmp_path / "made"):
        pass
    assert listing(tmp_path) == ["made"]
    assert listing(tmp_path / "made") == ["theirs"]


def test_moving_removes_what_was_there(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(b"a")
    files.move(tmp_path / "new", tmp_path / "old")
    assert listing(tmp_path) == ["old"]
    assert listing(tmp_path / "old") == ["new"]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: files.create(path, b"a"),
        lambda path: files.keep_first(path, b"a"),
        lambda path: files.replace(path, b"a"),
    ],
)
def test_content_and_name_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> None:
    """First the content, without the name; then the folder, with it."""
    synced: list[tuple[bool, bool]] = []
    true = os.fsync

    def noted(handle: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(handle).st_mode), (tmp_path / "a").exists()))
        true(handle)

    monkeypatch.setattr(os, "fsync", noted)
    write(tmp_path / "a")
    assert synced[0] == (False, False)
    assert synced[-1] == (True, True)


KILLED = """
import os, signal, sys
from pathlib import Path
from tacit.privacy import files
os.replace = os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
getattr(files, sys.argv[1])(Path(sys.argv[2]), b"newer")
"""


@pytest.mark.parametrize("call", ["create", "keep_first", "replace"])
def test_a_process_that_is_killed_leaves_no_half(tmp_path: Path, call: str) -> None:
    path = tmp_path / "a"
    if call == "replace":
        path.write_bytes(b"older")
    subprocess.run([sys.executable, "-c", KILLED, call, str(path)], check=False)
    if call == "replace":
        assert path.read_bytes() == b"older"
        with pytest.raises(InvalidParameter, match="two draws of a row"):
            files.must_be_clear(path)
    else:
        assert listing(tmp_path) == []
