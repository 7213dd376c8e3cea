"""Files of data sets: where they are looked for, and how they are downloaded.

A file is looked for in ``$TACIT_DATA/<data set>``, then in the user's cache directory, then at its
official address. A downloaded file is checked before it is kept.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import platform
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tacit.privacy import errors, files

Progress = Callable[[str, int, int | None], None]
"""Called while fetching, with the file's name, the bytes so far and the total bytes."""

_CHUNK = 1 << 16
_TIMEOUT = 30.0


class MissingFile(errors.TacitError):
    """A file of a data set is neither on this machine nor at its addresses."""


@dataclass(frozen=True)
class File:
    """A published file.

    Parameters
    ----------
    dataset, name : str
        Folder and name.
    size : int
        Size in bytes.
    sha256 : str
        Hash of the content.
    homes : tuple of str
        Addresses of folders, ending with a slash; tried in this order.
    """

    dataset: str
    name: str
    size: int
    sha256: str
    homes: tuple[str, ...]

    def content(self, *, fetch: bool = True, progress: Progress | None = None) -> bytes:
        """Read the content from disk, or download it and keep it in the cache directory."""
        if (path := find(self.dataset, [self.name])) is not None:
            return self._checked(path)
        reasons = []
        for home in self.homes if fetch else ():
            try:
                content = self._fetched(home + self.name, progress)
            except _FetchFailed as error:
                reasons.append(f"{home} {error}")
            else:
                _keep(content, cache() / self.dataset / self.name)
                return content
        refuse_missing(self.dataset, self.name, f"Get it from {self.homes[0]}{self.name}.", reasons)

    def _checked(self, path: Path) -> bytes:
        try:
            content = path.read_bytes()
        except OSError as error:
            reason = error.strerror
            raise errors.InvalidData(
                f"{self.dataset}: {path} must be readable, got {reason}."
            ) from None
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise errors.InvalidData(
                f"{self.dataset}: {path} must be the published file of {self.size:,} bytes, got "
                f"another of {len(content):,}. Remove it, or put the right one there from "
                f"{self.homes[0]}{self.name}."
            )
        return content

    def _fetched(self, url: str, progress: Progress | None) -> bytes:
        content = b""
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
                # One byte too many shows that it is another file.
                while len(content) <= self.size and (chunk := response.read(_CHUNK)):
                    content += chunk
                    if progress is not None:
                        progress(self.name, min(len(content), self.size), self.size)
        except urllib.error.HTTPError as error:
            error.close()
            raise _FetchFailed(f"answered {error.code}") from None
        except (OSError, http.client.HTTPException):
            raise _FetchFailed("cannot be reached") from None
        if len(content) < self.size:
            raise _FetchFailed(f"sent {len(content):,} of {self.size:,} bytes")
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise _FetchFailed("sent a file with another checksum")
        return content


class _FetchFailed(Exception):
    """Why a download failed."""


def cache() -> Path:
    """Return the user's cache directory for Tacit."""
    system = platform.system()
    if system == "Windows":
        folder = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif system == "Darwin":
        folder = Path.home() / "Library" / "Caches"
    else:
        folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "tacit"


def find(dataset: str, names: Sequence[str]) -> Path | None:
    """Return the first of these files that exists."""
    given = os.environ.get("TACIT_DATA")
    for name in names:
        for folder in [Path(given), cache()] if given else [cache()]:
            if (path := folder / dataset / name).is_file():
                return path
    return None


def refuse_missing(dataset: str, name: str, remedy: str, reasons: Sequence[str] = ()) -> NoReturn:
    """Raise an error that says where the file must be."""
    given = os.environ.get("TACIT_DATA")
    first = Path(given) / dataset if given else f"$TACIT_DATA/{dataset} (TACIT_DATA is not set)"
    tried = "".join(f"; {reason}" for reason in reasons)
    raise MissingFile(
        f"{dataset}: {name} must be in {first} or in {cache() / dataset}, got no such file{tried}. "
        f"{remedy}"
    )


def sha256_of(path: Path) -> str:
    """Compute the SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _keep(content: bytes, path: Path) -> None:
    """Write the whole file or nothing: a reader never sees half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, content)
    except OSError as error:
        raise errors.TacitError(
            f"{path}: the cache directory must be writable, got {error.strerror}. "
            "Set TACIT_DATA to a folder with the files, or XDG_CACHE_HOME to another cache."
        ) from None
