"""A file without a name until it is whole: a process that is killed leaves nothing to read.

Half of a file of noisy rows beside a second run of the same rows is two draws for whoever reads
both. So a draft has no name in any folder, and the operating system frees it with the process; it
gets its name in one step at the end. Where a file system cannot do that, it is copied at the end,
and a process that is killed within that copy leaves a hidden part; `must_be_clear` finds it.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from tacit.privacy import errors


class Draft:
    """A nameless file that becomes `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = _nameless(path.parent)

    def place(self) -> None:
        """Give the file its name, which must be free."""
        self.file.flush()
        number = self.file.fileno()
        os.fchmod(number, 0o644)
        os.fsync(number)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            # With a folder's descriptor, so that the system follows the link to the open file.
            opened = f"/proc/self/fd/{number}"
            os.link(opened, self.path, src_dir_fd=folder, follow_symlinks=True)
        except FileExistsError:
            errors.refuse("write", "path", "new", str(self.path), "Choose another.")
        except OSError:
            self._copy()
        finally:
            os.close(folder)

    def close(self) -> None:
        """Free it; what was placed stays."""
        self.file.close()

    def _copy(self) -> None:
        handle, name = tempfile.mkstemp(prefix=_prefix(self.path), dir=self.path.parent)
        try:
            self.file.seek(0)
            with os.fdopen(handle, "wb") as copy:
                shutil.copyfileobj(self.file, copy)
            Path(name).chmod(0o644)
            os.replace(name, self.path)
        finally:
            Path(name).unlink(missing_ok=True)


def must_be_clear(path: Path) -> None:
    """Refuse a path beside which a part of an earlier run lies."""
    if glob.glob(glob.escape(f"{path.parent}/{_prefix(path)}") + "*"):
        remedy = (
            f"A run was stopped: whoever reads its {_prefix(path)}… and what you make now has two "
            "draws of a row. Remove it if nobody has read it, else keep to what was drawn."
        )
        errors.refuse("write", "path", "without a part of it beside it", str(path), remedy)


def _prefix(path: Path) -> str:
    return f".{path.name}-"


def _nameless(folder: Path) -> IO[bytes]:
    try:
        return os.fdopen(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600), "w+b")
    except (AttributeError, OSError):  # of another system, or another file system
        return tempfile.TemporaryFile(dir=folder)
