"""Images and labels in MNIST's format, IDX: 60,000 for training and 10,000 for testing."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tacit.data.datasets.base import Integers
from tacit.data.datasets.files import File, Progress

IMAGES = ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
LABELS = ("train-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
SIDE = 28
_IMAGES_HEADER, _LABELS_HEADER = 16, 8

Bytes = npt.NDArray[np.uint8]


def published(
    dataset: str, hashes: Mapping[str, tuple[int, str]], homes: tuple[str, ...]
) -> tuple[File, ...]:
    """Declare the four files, given the size and SHA-256 of each."""
    return tuple(File(dataset, name, *hashes[name], homes) for name in (*IMAGES, *LABELS))


def read(
    files: tuple[File, ...], *, fetch: bool, progress: Progress | None
) -> tuple[Bytes, Integers]:
    """Read all images and labels, those for training first."""
    contents = [gzip.decompress(file.content(fetch=fetch, progress=progress)) for file in files]
    images = np.concatenate([_bytes(content, _IMAGES_HEADER) for content in contents[:2]])
    labels = np.concatenate([_bytes(content, _LABELS_HEADER) for content in contents[2:]])
    return images.reshape(-1, SIDE, SIDE), labels.astype(np.int64)


def _bytes(content: bytes, header: int) -> Bytes:
    return np.frombuffer(content, np.uint8, offset=header)
