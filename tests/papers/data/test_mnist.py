"""MNIST: read as published, split as in the paper."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tacit.data import datasets
from tacit.data.datasets import files
from tacit.data.datasets.base import Dataset
from tacit.privacy import errors
from tacit_papers.data import mnist

Published = Callable[[str], Dataset]


def test_images_and_labels_are_the_published_ones(published: Published) -> None:
    data = published("mnist")
    assert data.rows.shape == (70_000, 28, 28)
    assert data.rows.dtype == np.uint8
    assert data.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert data.labels[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    assert round(data.rows[:60_000].mean() / 255, 4) == 0.1307
    assert set(data.sha256) == {file.name for file in mnist.FILES}


def test_a_collection_is_split_as_in_the_paper(published: Published) -> None:
    split = published("mnist").collection(3)
    rng = np.random.default_rng(3)
    order = rng.permutation(60_000)
    assert np.array_equal(split.inhouse, order[:45_000])
    assert np.array_equal(split.people, order[45_000:58_500])
    assert np.array_equal(split.voters, order[58_500:])
    assert np.array_equal(split.test, 60_000 + rng.permutation(10_000)[:2_500])


def test_a_new_class_is_held_back(published: Published) -> None:
    data = published("mnist")
    split = data.novel(3)
    rng = np.random.default_rng(3)
    others = rng.permutation(np.flatnonzero(data.labels[:60_000] != 9))
    nines = rng.permutation(np.flatnonzero(data.labels[:60_000] == 9))
    assert np.array_equal(split.inhouse, others[: len(others) * 8 // 9])
    assert np.array_equal(split.people, nines[: len(nines) * 9 // 10])
    assert len(split.heldout) == len(split.people) == 5354
    assert (split.test >= 60_000).all()
    assert split.is_new.sum() == (data.labels[60_000:] == 9).sum() == len(split.test) // 2


def test_halves_of_images_are_joined(published: Published) -> None:
    ours, theirs = published("mnist").join("halves")
    assert ours.rows.shape == theirs.rows.shape == (70_000, 28, 14)
    assert ours.schema.image == (28, 14)


def test_a_missing_file_says_what_to_put_where(bare: Path) -> None:
    with pytest.raises(datasets.MissingFile) as caught:
        datasets.load("mnist", fetch=False)
    assert str(caught.value) == (
        "mnist: train-images-idx3-ubyte.gz must be in $TACIT_DATA/mnist (TACIT_DATA is not set) or "
        f"in {bare / 'mnist'}, got no such file. Get it from "
        "https://storage.googleapis.com/cvdf-datasets/mnist/train-images-idx3-ubyte.gz."
    )


def test_a_truncated_file_is_one_line(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published("mnist")
    folder = tmp_path / "given" / "mnist"
    folder.mkdir(parents=True)
    for file in mnist.FILES:
        path = files.find("mnist", [file.name])
        assert path is not None
        shutil.copyfile(path, folder / file.name)
    cut = folder / "t10k-images-idx3-ubyte.gz"
    cut.write_bytes(cut.read_bytes()[:1000])
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "given"))
    with pytest.raises(errors.InvalidData, match=r"published file of 1,648,877 bytes.* of 1,000\."):
        datasets.load("mnist")
