"""Atomic and durable writing of files and folders: complete or not there, even after power loss.

One rule of durability: content is on disk before it gets its name, and the name is on disk before
the call returns. One rule of modes: unfinished files can be read only by their owner; finished ones
are `READABLE`, or `OWN` if they hold secrets or are made from raw rows.

- `Draft`, `create`: a new file; an existing one is not changed.
- `keep_first`: a file that is made once, by the first process.
- `replace`: a file that replaces an older one; `remove`: none in its place.
- `folder`, `move`: the same for folders.

Half of a file of noisy rows next to a second run of the same rows gives a reader two draws. So a
draft has no name in any folder, and the operating system frees it with the process; it gets its
name in one step at the end. If a file system does not support that, the draft is copied at the end,
and a process that is killed during the copy leaves a hidden part; `must_be_clear` finds it.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from tacit.privacy import errors

READABLE, OWN = 0o644, 0o600
_FOLDER = 0o755
_UNABLE = (errno.EINVAL, errno.ENOTSUP)


class Draft:
    """A file without a name that becomes `path`."""

    def __init__(self, path: Path, mode: int = READABLE) -> None:
        self.path, self.mode = path, mode
        self.file = _nameless(path.parent)

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def place(self) -> None:
        """Give the file its name, which must be free."""
        try:
            self.link()
        except FileExistsError:
            errors.refuse("write", "path", "new", str(self.path), "Choose another.")

    def link(self) -> None:
        """Give the file its name; raise FileExistsError if that is taken."""
        self.file.flush()
        os.fsync(self.file.fileno())
        try:
            _name_open(self.file.fileno(), self.path, self.mode)
        except FileExistsError:
            raise
        except (AttributeError, OSError):  # another system, or another file system
            self._copy()
        _sync(self.path.parent)

    def close(self) -> None:
        """Free the draft; a file that was placed stays."""
        self.file.close()

    def _copy(self) -> None:
        self.file.seek(0)
        with _part(self.path, self.mode) as (copy, part):
            shutil.copyfileobj(self.file, copy)
            _flush(copy)
            try:
                os.link(part, self.path)
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links
                if os.path.lexists(self.path):
                    raise FileExistsError(self.path) from None
                os.replace(part, self.path)


def create(path: Path, content: bytes, mode: int = READABLE) -> None:
    """Write a new file; refuse a path that exists."""
    with Draft(path, mode) as draft:
        draft.file.write(content)
        draft.place()


def keep_first(path: Path, content: bytes, mode: int = OWN) -> bytes:
    """Write a file unless it exists already; return its content."""
    if not path.exists():
        with Draft(path, mode) as draft, suppress(FileExistsError):
            draft.file.write(content)
            draft.link()
    _sync(path.parent)  # the process that made it may not have synced yet
    return path.read_bytes()


def replace(path: Path, content: bytes, mode: int = READABLE) -> None:
    """Replace a file in one step, following links; readers see the old content or the new."""
    if path.is_char_device() or path.is_fifo():  # such as /dev/stdout, which must not be replaced
        path.write_bytes(content)
        return
    path = path.resolve()
    with _part(path, mode) as (file, part):
        file.write(content)
        _flush(file)
        os.replace(part, path)
    _sync(path.parent)


def remove(path: Path) -> None:
    """Remove a file, if it is there; it is gone from the disk before the call returns."""
    path.unlink(missing_ok=True)
    _sync(path.parent)


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    """Provide a hidden folder to fill, which becomes `path` unless an error is raised.

    `path` must be free, or an empty folder.
    """
    partial = Path(tempfile.mkdtemp(prefix=_prefix(path), dir=path.parent))
    try:
        yield partial
        _sync_all(partial)
        partial.chmod(_FOLDER)
        os.replace(partial, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def move(made: Path, path: Path) -> None:
    """Move a file or folder to `path`, and remove what was there before.

    For an instant neither exists; a process that is killed then leaves the older one in a hidden
    folder.
    """
    _sync_all(made)
    with tempfile.TemporaryDirectory(prefix=_prefix(path), dir=path.parent) as aside:
        if os.path.lexists(path):
            os.replace(path, Path(aside) / path.name)
        os.replace(made, path)
    _sync(path.parent)


def must_be_free(draws: str, path: Path) -> None:
    """Refuse a path for draws (reports, votes) that exists, or next to a part of earlier ones."""
    if not path.parent.is_dir():
        errors.refuse(draws, "folder", "an existing one", str(path.parent))
    if path.exists():
        remedy = f"It may be the only draw of these {draws}: choose another."
        errors.refuse(draws, "path", "new", str(path), remedy)
    must_be_clear(path)


def must_be_clear(path: Path) -> None:
    """Refuse a path next to a part of an earlier run."""
    if glob.glob(glob.escape(f"{path.parent}/{_prefix(path)}") + "*"):
        remedy = (
            f"An earlier run was stopped: a reader of its {_prefix(path)}… and of the new file has "
            "two draws of a row. Remove it if nobody has read it, otherwise use what was drawn."
        )
        errors.refuse("write", "path", "without a part of an earlier run", str(path), remedy)


def _prefix(path: Path) -> str:
    return f".{path.name.removeprefix('.')}-"


def _nameless(folder: Path) -> IO[bytes]:
    try:
        return os.fdopen(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600), "w+b")
    except (AttributeError, OSError):  # another system, or another file system
        return tempfile.TemporaryFile(dir=folder)


def _name_open(number: int, path: Path, mode: int) -> None:
    os.fchmod(number, mode)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        # With a descriptor of the folder, so that the system follows the link to the open file.
        opened = f"/proc/self/fd/{number}"
        os.link(opened, path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


@contextmanager
def _part(path: Path, mode: int) -> Iterator[tuple[IO[bytes], Path]]:
    """Provide a hidden file next to `path`, which is removed unless it was moved."""
    handle, name = tempfile.mkstemp(prefix=_prefix(path), dir=path.parent)  # mode 0600
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            part.chmod(mode)
            yield file, part
    finally:
        part.unlink(missing_ok=True)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_all(made: Path) -> None:
    """Flush a file, or a folder and everything in it, to disk."""
    if not made.is_dir():
        return _sync(made)
    for one in made.iterdir():
        _sync_all(one)
    _sync(made)


def _sync(path: Path) -> None:
    """Flush a file or the names of a folder to disk, if the system can."""
    if os.name == "nt":  # it cannot open folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
    finally:
        os.close(handle)
