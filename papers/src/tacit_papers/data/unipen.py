"""Handwriting in the UNIPEN format, and files compressed by Unix `compress`.

Neither Python nor any package that Tacit builds on reads `.Z` files, hence the few lines here.

References
----------
.. [1] T. A. Welch (1984). "A technique for high-performance data compression". Computer 17(6).
.. [2] I. Guyon et al. (1994). "UNIPEN project of on-line data exchange and recognizer benchmarks".
       ICPR.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.privacy.errors import InvalidData

Points = npt.NDArray[np.float64]

_MAGIC = b"\x1f\x9d"
_CLEAR = 256
_BLOCK_MODE, _WIDTH_MASK = 0x80, 0x1F


@dataclass(frozen=True, eq=False)
class Segment:
    """One piece of handwriting.

    Parameters
    ----------
    label : str
        What was written.
    comment : tuple of str
        The words of the comment that follows; data sets say there who wrote it.
    strokes : tuple of array (k, 2)
        x and y of the pen from where it was put down to where it was lifted; y grows upward.
    """

    label: str
    comment: tuple[str, ...]
    strokes: tuple[Points, ...]


def decompress(content: bytes, where: str) -> bytes:
    """Decompress a `.Z` file."""
    if content[:2] != _MAGIC or len(content) < 3:
        raise InvalidData(f"{where}: it must be a file of Unix compress (.Z). Was it unpacked?")
    most, blocks = content[2] & _WIDTH_MASK, bool(content[2] & _BLOCK_MODE)
    if not 9 <= most <= 16:
        raise InvalidData(f"{where}: its codes must be of 9 to 16 bits, got {most}.")
    single = [bytes([value]) for value in range(256)] + ([b""] if blocks else [])
    table, previous, out = single.copy(), b"", []
    width, start, bit = 9, 24, 24
    while bit + width <= 8 * len(content):
        three = int.from_bytes(content[bit >> 3 : (bit >> 3) + 3], "little")
        code = three >> (bit & 7) & ((1 << width) - 1)
        bit += width
        if blocks and code == _CLEAR:
            start = bit = _next_group(start, bit, width)
            table, previous, width = single.copy(), b"", 9
            continue
        if code > len(table) or (code == len(table) and not previous):
            raise InvalidData(f"{where}: its codes must follow from those before. Is it damaged?")
        entry = table[code] if code < len(table) else previous + previous[:1]
        out.append(entry)
        if previous and len(table) < 1 << most:
            table.append(previous + entry[:1])
        previous = entry
        if len(table) == 1 << width and width < most:
            start = bit = _next_group(start, bit, width)
            width += 1
    return b"".join(out)


def _next_group(start: int, bit: int, width: int) -> int:
    """Skip to the next group: codes come in groups of eight, and a new width begins a new group."""
    group = 8 * width
    return start + -(-(bit - start) // group) * group


def parse(text: str, where: str) -> list[Segment]:
    """Parse the segments of a file; keywords other than segments, pens and comments are skipped.

    A coordinate is two numbers on a line between `.PEN_DOWN` and `.PEN_UP`.
    """
    # What comes before the first segment is about the file.
    blocks = ("\n" + text).split("\n.SEGMENT")[1:]
    if not blocks:
        raise InvalidData(f"{where}: it must have lines that begin with .SEGMENT. Is it UNIPEN?")
    segments = []
    for number, block in enumerate(blocks, 1):
        try:
            segments.append(_segment(block))
        except (ValueError, IndexError):
            raise InvalidData(
                f"{where}: segment {number} must have a quoted label, and two numbers per line "
                "between .PEN_DOWN and .PEN_UP. Is it damaged?"
            ) from None
    return segments


def _segment(block: str) -> Segment:
    head, _, body = block.partition("\n")
    label = head.split('"')[1]
    comments = [line.split()[1:] for line in body.split("\n") if line.startswith(".COMMENT")]
    strokes = []
    for piece in body.split(".PEN_DOWN")[1:]:
        inside, lifted, _ = piece.partition(".PEN_UP")
        lines = [line.split() for line in inside.strip().split("\n")]
        if not lifted:
            raise ValueError
        strokes.append(np.array([[float(x), float(y)] for x, y in lines]))
    if not strokes or not all(np.isfinite(stroke).all() for stroke in strokes):
        raise ValueError
    return Segment(label, tuple(comments[0]) if comments else (), tuple(strokes))
