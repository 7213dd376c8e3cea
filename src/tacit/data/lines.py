r"""Text files of records: one physical line is one record, whatever it contains.

A file is split at the byte ``\n`` before anything else is read, and every line is parsed on its
own. So nothing that one person wrote (an unclosed quote, a carriage return, bytes that are not
text) reaches another person's line: adding or removing a line adds or removes one record, and
changes no other.

The dialect is fixed and never inferred from the rows:

- lines end with ``\n`` or ``\r\n``; the last one may end with the file. Empty lines are ignored;
- fields are separated by the delimiter. A field that begins with ``"`` ends with ``"``, and ``""``
  inside it is a quote; elsewhere a quote is an ordinary character;
- the text is UTF-8, with or without a byte order mark in front of the header;
- the first line names the columns. A line with another number of fields, an open quote, text after
  a closing quote, a NUL, bytes that are not UTF-8, or more than `LONGEST` bytes is a record whose
  values are all missing: it is counted, and carries no other information.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Places = npt.NDArray[np.int64]

LONGEST = 1 << 17
"""The largest number of bytes in a line; a longer one is a record of missing values."""
_CHUNK = 1 << 22
_LF, _CR, _QUOTE = b'\n\r"'


def header(path: str | Path, delimiter: str = ",") -> list[str]:
    """Read the names of the columns, without looking at any record."""
    with _opened(Path(path)) as file:
        return _header(file, path, delimiter)


def batches(path: str | Path, delimiter: str = ",") -> Iterator[Any]:
    """Yield Arrow record batches of text, one row per line; None is a missing value."""
    import pyarrow as pa

    with _opened(Path(path)) as file:
        names = _header(file, path, delimiter)
        for block in _blocks(file):
            columns = _columns(block, len(names), delimiter)
            yield pa.RecordBatch.from_arrays(columns, names=names)


def _opened(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    return open(path, "rb")


def _header(file: IO[bytes], path: str | Path, delimiter: str) -> list[str]:
    line = file.readline(LONGEST + 2).removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n")
    names = fields(line.removesuffix(b"\r"), delimiter)
    if not names or not all(names):
        raise errors.InvalidData(f"{path}: its first line must name its columns.")
    if len(set(names)) != len(names):
        raise errors.InvalidData(f"{path}: its columns must have distinct names.")
    return names


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield whole lines, some megabytes at a time; cut a line that is too long."""
    rest = b""
    while chunk := file.read(_CHUNK):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield rest + chunk[:end]
            rest = b""
        rest += chunk[end : end + LONGEST + 2 - len(rest)]
    if rest:
        yield rest + b"\n"


def fields(line: bytes, delimiter: str) -> list[str] | None:
    """Split one line, without its end, into fields; None if it does not follow the dialect."""
    if b"\0" in line or len(line) > LONGEST:
        return None
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    cells, at = [], 0
    while at <= len(text):
        if not text.startswith('"', at):
            end = text.find(delimiter, at)
            end = len(text) if end < 0 else end
            cells.append(text[at:end])
        else:
            end = _closing(text, at + 1)
            if end < 0 or not (end == len(text) or text.startswith(delimiter, end)):
                return None
            cells.append(text[at + 1 : end - 1].replace('""', '"'))
        at = end + 1
    return cells


def _closing(text: str, at: int) -> int:
    """Return the position after the closing quote; −1 without one."""
    while (at := text.find('"', at)) >= 0:
        if not text.startswith('"', at + 1):
            return at + 1
        at += 2
    return -1


def _columns(block: bytes, width: int, delimiter: str) -> list[Any]:
    """Parse whole lines into columns: plain ones all at once, the others one by one."""
    import pyarrow as pa

    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == _LF)
    starts = np.concatenate([[0], ends[:-1] + 1])
    ends = ends - ((ends > starts) & (data[ends - 1] == _CR))
    some = ends > starts
    starts, ends = starts[some], ends[some]
    separators, plain = _plain(data, block, starts, ends, width, ord(delimiter))
    columns = _cut(data, block, starts[plain], ends[plain], separators, width)
    if plain.all():
        return columns
    lines = [block[a:b] for a, b in zip(starts[~plain], ends[~plain], strict=True)]
    read = [fields(line, delimiter) for line in lines]
    nothing = [None] * width
    rows = [row if row is not None and len(row) == width else nothing for row in read]
    order = np.argsort(np.concatenate([np.flatnonzero(plain), np.flatnonzero(~plain)]))
    others = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
    return [
        pa.concat_arrays([one, other]).take(order)
        for one, other in zip(columns, others, strict=True)
    ]


def _plain(
    data: Any, block: bytes, starts: Places, ends: Places, width: int, delimiter: int
) -> tuple[Places, npt.NDArray[np.bool_]]:
    """Return the separators of plain lines, and which lines are plain.

    A plain line is UTF-8 without NUL, not too long, with the right number of fields; of its
    quotes the first, third, … begin a field and the second, fourth, … end one. Then, and only
    then, each such pair encloses a field, and text between pairs is outside quotes.
    """
    quotes, commas = np.flatnonzero(data == _QUOTE), np.flatnonzero(data == delimiter)
    line = np.searchsorted(starts, quotes, "right") - 1
    rank = np.arange(len(quotes)) - np.searchsorted(quotes, starts)[line]
    opens = (quotes == starts[line]) | (data[quotes - 1] == delimiter)
    closes = (quotes + 1 == ends[line]) | (data[quotes + 1] == delimiter)
    plain = ends - starts <= LONGEST
    plain[line[~np.where(rank % 2 == 0, opens, closes)]] = False
    plain &= _within(quotes, starts, ends) % 2 == 0
    for odd in (np.flatnonzero(data == 0), _no_text(data, block)):
        plain &= _within(odd, starts, ends) == 0
    # A comma after an odd number of quotes in its line is inside quotes.
    before = np.searchsorted(quotes, commas)
    owner = np.searchsorted(starts, commas, "right") - 1
    outside = (owner >= 0) & ((before - np.searchsorted(quotes, starts)[owner]) % 2 == 0)
    commas, owner = commas[outside], owner[outside]
    plain &= np.bincount(owner, minlength=len(starts)) == width - 1
    return commas[plain[owner]], plain


def _within(places: Places, starts: Places, ends: Places) -> Places:
    """Count the positions that lie in each line."""
    return np.searchsorted(places, ends) - np.searchsorted(places, starts)


def _no_text(data: Any, block: bytes) -> Places:
    """Find bytes that must be checked line by line: none if the whole block is UTF-8."""
    try:
        block.decode()
    except UnicodeDecodeError:
        return np.flatnonzero(data >= 0x80)
    return np.empty(0, np.int64)


def _cut(
    data: Any, block: bytes, starts: Places, ends: Places, separators: Places, width: int
) -> list[Any]:
    """Cut the fields out of plain lines: every second piece between the cuts."""
    import pyarrow as pa

    inner = separators.reshape(len(starts), width - 1)
    lefts = np.column_stack([starts, inner + 1])
    rights = np.column_stack([inner, ends])
    if len(starts):
        quoted = (rights > lefts) & (data[np.minimum(lefts, len(data) - 1)] == _QUOTE)
        lefts, rights = lefts + quoted, rights - quoted
    cuts = np.stack([lefts, rights], axis=-1).reshape(-1).astype(np.int32)
    offsets = np.append(cuts, np.int32(len(block)))
    pieces = pa.StringArray.from_buffers(len(cuts), pa.py_buffer(offsets), pa.py_buffer(block))
    places = np.arange(0, 2 * len(starts) * width, 2).reshape(len(starts), width)
    return [pieces.take(pa.array(places[:, column])) for column in range(width)]
