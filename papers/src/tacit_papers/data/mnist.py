"""MNIST: 60,000 and 10,000 handwritten digits of 28 by 28 pixels."""

from __future__ import annotations

from tacit.data.datasets.base import Dataset, Pools
from tacit.data.datasets.digits import CLASSES, TASKS
from tacit.data.datasets.files import Progress
from tacit.data.schema import ArraySchema
from tacit_papers.data import idx

HOMES = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
FILES = idx.published(
    "mnist",
    {
        "train-images-idx3-ubyte.gz": (
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        "t10k-images-idx3-ubyte.gz": (
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        "train-labels-idx1-ubyte.gz": (
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        "t10k-labels-idx1-ubyte.gz": (
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    },
    HOMES,
)


def load(*, fetch: bool = True, progress: Progress | None = None) -> Dataset:
    """Load all 70,000 images, the 60,000 for training first.

    Collection as in "Learning to Noise", C.1.1: three quarters of the training images are in-house,
    the rest belong to people (9 in 10) and voters, and a quarter of the test images is for testing.
    Joins: we hold the left half of each image, the other party the right half.
    """
    images, labels = idx.read(FILES, fetch=fetch, progress=progress)
    return Dataset(
        name="mnist",
        rows=images,
        labels=labels,
        classes=CLASSES,
        schema=ArraySchema(784, 0, 255, image=(28, 28)),
        pools=Pools(inhouse=45_000, people=13_500, voters=1_500, test=2_500, training=60_000),
        sha256={file.name: file.sha256 for file in FILES},
        others={"halves": tuple(range(14, 28))},
        tasks=TASKS,
    )
