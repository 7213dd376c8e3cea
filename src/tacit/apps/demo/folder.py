"""The files of the demonstration: it replaces its own files, and nobody else's."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tacit.apps import plots
from tacit.apps.demo.collection import DemoCollection
from tacit.local.reports import Reports
from tacit.privacy import errors, files
from tacit.privacy.certificate import Artifact, Certificate

LIST = "demo.json"
"""List of the files that a demonstration wrote, with hashes, so that the next one knows them."""

NAMES = ("mechanism", "reports.parquet", "certificate.json", "model", "picture.png", LIST)
_MAKER = "tacit demo"


@dataclasses.dataclass
class DemoFolder:
    """A folder that the demonstration may write to."""

    path: Path
    paths: tuple[Path, ...] = ()
    """Files and directories that were written."""

    @classmethod
    def opened(cls, path: Path) -> DemoFolder:
        """Open a folder, make it if it is missing, and refuse it if others' files would be lost."""
        if path.exists() and not path.is_dir():
            errors.refuse("demo", "--out", "a folder", str(path), "Choose another.")
        path.mkdir(parents=True, exist_ok=True)
        opened = cls(path)
        opened._must_be_ours()
        return opened

    def _must_be_ours(self) -> None:
        path, known = self.path, _listed(self.path / LIST)
        for name in NAMES:
            if not all(_is_known(file, path, known) for file in _files(path / name)):
                condition = f"a folder whose {name}, if it has one, is as a demo left it"
                errors.refuse("demo", "--out", condition, str(path), "Choose another.")

    def write(
        self, collection: DemoCollection, pictures: tuple[Any, Any]
    ) -> tuple[Certificate, str | None]:
        """Write all files, then replace the old ones.

        Returns the certificate, and why there is no picture (None if there is one).
        """
        reports = collection.reports
        with tempfile.TemporaryDirectory(prefix=".demo-", dir=self.path) as temporary:
            partial = Path(temporary)
            reports.mechanism.save(partial / "mechanism")
            collection.model.save(partial / "model")
            certificate = _certificate(reports, reports.write(partial / "reports.parquet"))
            certificate.save(partial / "certificate.json")
            no_picture = _draw(pictures, partial / "picture.png")
            _list(partial)
            self._must_be_ours()  # again: the files may have changed in the meantime
            self._replace(partial)
        self.paths = tuple(self.path / name for name in NAMES if (self.path / name).exists())
        return certificate, no_picture

    def _replace(self, partial: Path) -> None:
        for name in NAMES:
            if (partial / name).exists():
                files.move(partial / name, self.path / name)
            else:  # the picture, without matplotlib
                (self.path / name).unlink(missing_ok=True)


def _certificate(reports: Reports, path: Path) -> Certificate:
    """Return the certificate of the reports, bound to the file that holds them."""
    certificate = dataclasses.replace(reports.certificate, artifact=Artifact.of(path))
    certificate.verify(path)
    return certificate


def _draw(pictures: tuple[Any, Any], path: Path) -> str | None:
    try:
        plots.check_target(path)
    except errors.TacitError as error:  # without matplotlib
        return str(error)
    plots.save(plots.picture(*pictures), path)
    return None


def _list(folder: Path) -> None:
    """Write the list of files in the folder."""
    listed = [file for name in NAMES for file in _files(folder / name)]
    hashes = {file.relative_to(folder).as_posix(): _sha256(file) for file in listed}
    text = json.dumps({"made_by": _MAKER, "sha256": hashes}, indent=1)
    (folder / LIST).write_text(text + "\n", encoding="utf-8")


def _listed(path: Path) -> dict[str, str]:
    """Read hashes by name. The list itself is included, if it can be read as one of ours."""
    try:
        listing = json.loads(path.read_bytes())
        if listing["made_by"] == _MAKER:
            return {**listing["sha256"], LIST: _sha256(path)}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {}


def _files(path: Path) -> list[Path]:
    """Return a file, or the content of a directory; our directories contain only files."""
    if path.is_dir() and not path.is_symlink():
        return sorted(path.iterdir())
    return [path] if os.path.lexists(path) else []


def _is_known(file: Path, folder: Path, known: dict[str, str]) -> bool:
    if file.is_symlink() or not file.is_file():
        return False
    return known.get(file.relative_to(folder).as_posix()) == _sha256(file)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
