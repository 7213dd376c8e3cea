"""PneumoniaMNIST: the published images, whichever way they are packed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.data import datasets
from tacit.data.datasets import files
from tacit.data.datasets.base import Dataset
from tacit.privacy import errors
from tacit_papers.data import pneumoniamnist

Published = Callable[[str], Dataset]


@pytest.fixture(name="data")
def _data(published: Published) -> Dataset:
    """Read before `folder` hides where it is."""
    return published("pneumoniamnist")


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    folder = tmp_path / "pneumoniamnist"
    folder.mkdir()
    return folder


def _arrays(data: Dataset) -> dict[str, Any]:
    rows = dict(zip(pneumoniamnist.SIZES, pneumoniamnist.parts(), strict=True))
    images = {f"{part}_images": data.rows[at] for part, at in rows.items()}
    labels = {f"{part}_labels": data.labels[at, None].astype(np.uint8) for part, at in rows.items()}
    return images | labels


def test_images_and_labels_are_the_published_ones(data: Dataset) -> None:
    assert data.rows.shape == (5_856, 28, 28)
    assert data.rows.dtype == np.uint8
    assert data.classes == ("normal", "pneumonia")
    parts = pneumoniamnist.parts()
    assert [len(part) for part in parts] == [4_708, 524, 624]
    assert [round(float(data.labels[part].mean()), 3) for part in parts] == [0.742, 0.742, 0.625]


def test_a_collection_tests_on_the_test_images(data: Dataset) -> None:
    split = data.collection(3)
    assert np.array_equal(np.sort(split.test), pneumoniamnist.parts().test)
    assert [len(part) for part in vars(split).values()] == [3_400, 1_600, 232, 624]


def test_a_copy_that_was_packed_anew_is_as_good(data: Dataset, folder: Path) -> None:
    np.savez(folder / "pneumoniamnist.npz", **_arrays(data))
    again = datasets.load("pneumoniamnist", fetch=False)
    assert np.array_equal(again.rows, data.rows)
    assert again.sha256 == data.sha256


def test_other_images_are_refused(data: Dataset, folder: Path) -> None:
    arrays = _arrays(data)
    arrays["val_images"] = arrays["val_images"].copy()
    arrays["val_images"][0, 0, 0] ^= 1
    np.savez(folder / "pneumoniamnist.npz", **arrays)
    with pytest.raises(errors.InvalidData, match="must hold the published images"):
        datasets.load("pneumoniamnist", fetch=False)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x93NUMPY"])
def test_a_broken_file_is_one_line(folder: Path, content: bytes) -> None:
    (folder / "pneumoniamnist.npz").write_bytes(content)
    with pytest.raises(errors.InvalidData, match="must hold the published images"):
        datasets.load("pneumoniamnist", fetch=False)


def test_a_missing_file_says_where_it_comes_from(bare: Path) -> None:
    assert files.find("pneumoniamnist", ["pneumoniamnist.npz"]) is None
    with pytest.raises(datasets.MissingFile, match=r"zenodo.org/records/10519652/files/pneu"):
        datasets.load("pneumoniamnist", fetch=False)
