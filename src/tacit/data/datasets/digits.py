"""The 1,797 handwritten digits that come with scikit-learn: 8 by 8 pixels of 17 grey levels."""

from __future__ import annotations

import numpy as np

from tacit.data.datasets.base import Dataset, Pools
from tacit.data.schema import ArraySchema
from tacit.privacy import errors

CLASSES = tuple(range(10))
TASKS = {
    "digit": CLASSES,
    "parity": tuple(digit % 2 for digit in CLASSES),
    "at least 5": tuple(int(digit >= 5) for digit in CLASSES),
    "has a loop": tuple(int(digit in (0, 6, 8, 9)) for digit in CLASSES),
}
"""Tasks on handwritten digits, with the answer for each digit."""


def load() -> Dataset:
    """Load all digits; in a join, the other party holds the right half of each image.

    Examples
    --------
    >>> from tacit import datasets
    >>> digits = datasets.load("digits")
    >>> digits.rows.shape, digits.tasks["parity"]
    ((1797, 8, 8), (0, 1, 0, 1, 0, 1, 0, 1, 0, 1))
    >>> [len(part) for part in vars(digits.collection(seed=0)).values()]
    [400, 1080, 120, 197]
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise errors.TacitError(
            "digits: scikit-learn must be installed. pip install 'tacit[collect]'."
        ) from None
    bundle = load_digits()
    return Dataset(
        name="digits",
        rows=bundle.images.astype(np.uint8),
        labels=bundle.target.astype(np.int64),
        classes=CLASSES,
        schema=ArraySchema(64, 0, 16, image=(8, 8)),
        pools=Pools(inhouse=400, people=1080, voters=120, test=197),
        others={"halves": tuple(range(4, 8))},
        tasks=TASKS,
    )
