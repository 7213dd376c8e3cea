"""Pen digits: 7,494 digits that 30 people wrote on a tablet, and who wrote which.

UCI's original, unnormalised recordings. Each digit is drawn as "Learning Anonymized Representations
with Adversarial Neural Networks" (Feutry, Piantanida, Bengio, Duhamel 2018) says: centred, fitted
into 80 × 80, reduced to 20 × 20. The paper does not say how thick its pen is; ours is `PEN`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tacit.data.datasets.files import File, Progress
from tacit.data.datasets.twice import TwiceLabelled, labelled
from tacit.data.schema import ArraySchema
from tacit.privacy import errors
from tacit_papers.data.unipen import Points, Segment, decompress, parse

FILE = File(
    "pendigits",
    "pendigits-orig.tra.Z",
    1_011_395,
    "ceae25d05f1ccfed4d27ca2e5766370fb32ddd685a647567e84cf7685aa7ac8b",
    ("https://archive.ics.uci.edu/ml/machine-learning-databases/pendigits/",),
)
SIZES = (5_494, 1_000, 1_000)
CANVAS = 80
PEN = 7
"""Diameter of the round pen on the canvas; 1¾ pixels of the reduced image."""

RESAMPLED = 8
_BATCH = 256


def load(*, fetch: bool = True, progress: Progress | None = None, image: int = 20) -> TwiceLabelled:
    """Load the 30 writers' digits as images, with digit and writer; splits are random.

    The other 14 writers' file is left out, as in the paper: its people are in no training row.

    Parameters
    ----------
    fetch, progress
        As for `datasets.load`.
    image : int
        Height and width; a divisor of 80.

    Notes
    -----
    `others` has two labels that no training sees: `strokes`, eight points (x and y in turn, within
    [0, 1], y downward as rows are) at equal distances along the ink, in the order of writing; and
    `stroke_count`, the number of times the pen was put down.
    """
    size = errors.whole("pendigits", "image", image, least=1, most=CANVAS)
    if CANVAS % size:
        errors.refuse("pendigits", "image", f"a divisor of {CANVAS}", image)
    content = decompress(FILE.content(fetch=fetch, progress=progress), FILE.name)
    segments = parse(content.decode("ascii", "replace"), FILE.name)
    fitted = [fit(segment.strokes) for segment in segments]
    return labelled(
        "pendigits",
        draw(fitted, size),
        [int(segment.label) for segment in segments],
        [_writer(segment) for segment in segments],
        ArraySchema(size * size, 0, 255, image=(size, size)),
        regular_name="digit",
        private_name="writer",
        sizes=SIZES,
        others={
            "strokes": np.stack([resample(strokes) for strokes in fitted]),
            "stroke_count": np.array([len(strokes) for strokes in fitted], np.int64),
        },
        sha256={FILE.name: FILE.sha256},
    )


def _writer(segment: Segment) -> int:
    """Read the writer from a comment: digit, writer, serial number."""
    return int(segment.comment[1])


def fit(strokes: Sequence[Points]) -> tuple[Points, ...]:
    """Centre strokes on the canvas, as large as the width of the pen allows; y downward."""
    every = np.concatenate(strokes)
    low, high = every.min(axis=0), every.max(axis=0)
    extent = max(float((high - low).max()), 1e-9)  # a dot has none
    scale = np.array([1, -1]) * (CANVAS - PEN) / extent
    return tuple((stroke - (low + high) / 2) * scale + CANVAS / 2 for stroke in strokes)


def draw(digits: Sequence[Sequence[Points]], size: int = 20) -> npt.NDArray[np.uint8]:
    """Draw fitted strokes with a round pen, then take the mean of each block of pixels."""
    starts = range(0, len(digits), _BATCH)
    return np.concatenate([_reduced(_inked(digits[at : at + _BATCH]), size) for at in starts])


def _inked(digits: Sequence[Sequence[Points]]) -> npt.NDArray[np.bool_]:
    """Mark the pixels that the pen touches: a disc around every point of the line."""
    radius = PEN // 2
    line = np.zeros((len(digits), CANVAS + 2 * radius, CANVAS + 2 * radius), bool)
    for index, strokes in enumerate(digits):
        pixels = np.concatenate([_along(stroke) for stroke in strokes]).astype(int)
        line[index, pixels[:, 1] + radius, pixels[:, 0] + radius] = True
    ink = np.zeros((len(digits), CANVAS, CANVAS), bool)
    for down, right in _disc():
        ink |= line[:, down : down + CANVAS, right : right + CANVAS]
    return ink


def _along(stroke: Points) -> Points:
    """Return points on a stroke, at most half a pixel apart."""
    steps = np.ceil(2 * np.hypot(*np.diff(stroke, axis=0).T)).astype(int).clip(1)
    corners = np.concatenate([[0], np.cumsum(steps)])
    fine = np.arange(corners[-1] + 1)
    return np.stack([np.interp(fine, corners, axis) for axis in stroke.T], axis=1)


def _disc() -> Iterator[tuple[int, int]]:
    """Return the offsets of the pixels within the pen, all of them at least 0."""
    radius = PEN // 2
    for down in range(PEN):
        for right in range(PEN):
            if np.hypot(down - radius, right - radius) < PEN / 2:
                yield down, right


def _reduced(ink: npt.NDArray[np.bool_], size: int) -> npt.NDArray[np.uint8]:
    block = CANVAS // size
    means = ink.reshape(-1, size, block, size, block).mean(axis=(2, 4))
    return np.asarray(np.rint(255 * means), np.uint8)


def resample(strokes: Sequence[Points], count: int = RESAMPLED) -> npt.NDArray[np.float32]:
    """Return points at equal distances along the ink of fitted strokes, as shares of the canvas."""
    every = np.concatenate(strokes)
    # Moving a lifted pen takes no ink.
    lengths = [np.hypot(*np.diff(stroke, axis=0, prepend=stroke[:1]).T) for stroke in strokes]
    travelled = np.cumsum(np.concatenate(lengths))
    wanted = np.linspace(0, travelled[-1], count)
    points = np.stack([np.interp(wanted, travelled, axis) for axis in every.T], axis=1)
    return np.asarray(points.ravel() / CANVAS, np.float32)
