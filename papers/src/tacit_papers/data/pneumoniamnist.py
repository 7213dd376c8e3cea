"""PneumoniaMNIST: 5,856 chest X-rays of children, 28 by 28 pixels, normal or with pneumonia.

From MedMNIST v2 (Yang et al. 2023, CC BY 4.0): 4,708 images for training, 524 for choosing settings
and 624 for testing. The test images come from another collection than the others:
62.5 % of them have pneumonia, and 74.2 % of the others. So a classifier does worse on them than on
validation images.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.data.datasets.base import Dataset, Integers, Pools
from tacit.data.datasets.files import File, Progress, find
from tacit.data.schema import ArraySchema
from tacit.privacy import errors

FILE = File(
    "pneumoniamnist",
    "pneumoniamnist.npz",
    4_170_669,
    "e1792d3f03751cb101e99f19a63b3c1941436c988665f47853417b05be250cd8",
    ("https://zenodo.org/records/10519652/files/", "https://zenodo.org/records/6496656/files/"),
)
CONTENT = "ba90dd51264da72ace8e10d77a9793d1ee1e8082bac0bff967e53f75fe7cabb1"
"""SHA-256 of the arrays with their names, types and shapes, however they are compressed."""

CLASSES = ("normal", "pneumonia")
SIZES = {"train": 4_708, "val": 524, "test": 624}

_SIDE = 28
_UNREADABLE = (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError)


class Parts(NamedTuple):
    """Row indices of the parts that the makers published."""

    training: Integers
    validation: Integers
    test: Integers


def parts() -> Parts:
    """Return the row indices of the three parts."""
    first, second = SIZES["train"], SIZES["train"] + SIZES["val"]
    every = np.arange(sum(SIZES.values()))
    return Parts(every[:first], every[first:second], every[second:])


def load(*, fetch: bool = True, progress: Progress | None = None) -> Dataset:
    """Load all 5,856 images: those for training first, then validation, then test.

    `parts` tells the three apart. Where only training and testing are known, as in a collection,
    validation images belong to training. Joins: we hold the left half of each image.
    """
    arrays = _arrays(fetch, progress)
    images = np.concatenate([arrays[f"{part}_images"] for part in SIZES])
    labels = np.concatenate([arrays[f"{part}_labels"].ravel() for part in SIZES])
    return Dataset(
        name="pneumoniamnist",
        rows=images,
        labels=labels.astype(np.int64),
        classes=CLASSES,
        schema=ArraySchema(_SIDE * _SIDE, 0, 255, image=(_SIDE, _SIDE)),
        pools=Pools(
            inhouse=3_400,
            people=1_600,
            voters=232,
            test=SIZES["test"],
            training=SIZES["train"] + SIZES["val"],
        ),
        sha256={FILE.name: _digest(arrays)},  # the same, however they are compressed
        others={"halves": tuple(range(_SIDE // 2, _SIDE))},
    )


def _arrays(fetch: bool, progress: Progress | None) -> dict[str, npt.NDArray[np.uint8]]:
    """Read the arrays of the published file, or of a copy that was compressed again."""
    path = find(FILE.dataset, [FILE.name])
    if path is None:
        return _unpacked(FILE.content(fetch=fetch, progress=progress))
    try:
        content = path.read_bytes()
        arrays = _unpacked(content)
        if hashlib.sha256(content).hexdigest() == FILE.sha256 or _digest(arrays) == CONTENT:
            return arrays
    except _UNREADABLE:
        pass
    raise errors.InvalidData(
        f"{FILE.dataset}: {path} must hold the published images. Remove it, or put the right file "
        f"there from {FILE.homes[0]}{FILE.name}."
    )


def _unpacked(content: bytes) -> dict[str, npt.NDArray[np.uint8]]:
    with np.load(io.BytesIO(content), allow_pickle=False) as packed:
        return {
            f"{p}_{kind}": packed[f"{p}_{kind}"] for p in SIZES for kind in ("images", "labels")
        }


def _digest(arrays: dict[str, npt.NDArray[np.uint8]]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
