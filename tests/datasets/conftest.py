"""What tests of data sets share: published files, where they are, and a machine without any."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit import datasets


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
