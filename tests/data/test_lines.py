"""One physical line is one record: no byte of one person's line reaches another's."""

from __future__ import annotations

import csv
import gzip
import io
import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

from tacit.data import lines
from tacit.privacy.errors import InvalidData

HOSTILE = {
    "an open quote": b'7,"hello',
    "a quote at the end": b'7,hello"',
    "text after a closing quote": b'7,"he"llo',
    "a bare carriage return": b"7,he\rllo",
    "carriage returns": b"\r\r7,\r\r\r",
    "a NUL": b"7,he\0llo",
    "no UTF-8": b"7,\xff\xfe",
    "half a character": b"7,\xe2\x80",
    "a byte order mark": b"\xef\xbb\xbf7,x",
    "a line separator": "7,he\u2028llo\u2029\x85\x0b\x0c".encode(),
    "too few fields": b"7",
    "too many fields": b"7,a,b,c",
    "only delimiters": b",,,,,",
    "only quotes": b'"""""""""',
    "an escape": b'7,"he\\"llo',
    "a comment": b"#7,x",
    "a very long line": b"7," + b"x" * (lines.LONGEST + 10),
    "a very long quoted line": b'7,"' + b"x" * (3 * lines.LONGEST),
    "a longer line than is read at once": b'"' + b"y," * (3 << 20),
    "the end of a file": b"7,\x1a",
    "nothing between quotes": b'"",""',
}
PLAIN = [f"{i},note {i}".encode() for i in range(50)] + [
    b'50,"a, b"',
    '51,"é ""q"""'.encode(),
]


def read(path, content: bytes, **options) -> list[tuple[str | None, ...]]:
    path.write_bytes(content)
    found = []
    for batch in lines.batches(path, **options):
        columns = [column.to_pylist() for column in batch.columns]
        found += list(zip(*columns, strict=True))
    return found


def of(body: list[bytes]) -> bytes:
    return b"\n".join([b"id,note", *body]) + b"\n"


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("place", [0, 20, len(PLAIN)])
def test_a_hostile_line_is_one_record_and_changes_no_other(tmp_path, line, place):
    path = tmp_path / "a.csv"
    without = read(path, of(PLAIN))
    found = read(path, of([*PLAIN[:place], line, *PLAIN[place:]]))
    assert len(found) == len(without) + 1
    assert found[:place] + found[place + 1 :] == without
    assert all(len(row) == 2 for row in found)


def test_what_does_not_fit_is_missing(tmp_path):
    rows = [b'1,"open', b"2", b"3,a,b", b'4,"a"b', b"5,\xff", b"6,\0", b"7,fine"]
    assert read(tmp_path / "a.csv", of(rows)) == [(None, None)] * 6 + [("7", "fine")]


def test_quotes_line_ends_and_empty_lines(tmp_path):
    content = b'\xef\xbb\xbfid,note\r\n1,"a, ""b"""\r\n\r\n\n2,say "x"\n"3",""\n4,last'
    expected = [("1", 'a, "b"'), ("2", 'say "x"'), ("3", ""), ("4", "last")]
    assert read(tmp_path / "a.csv", content) == expected
    path = tmp_path / "a.tsv"
    assert read(path, b'a\tb\n1,5\t"x\ty"\n', delimiter="\t") == [("1,5", "x\ty")]
    zipped = tmp_path / "a.csv.gz"
    assert read(zipped, gzip.compress(content)) == expected


def test_one_column(tmp_path):
    assert read(tmp_path / "a.csv", b'x\n1\n\n""\na,b\n') == [("1",), ("",), (None,)]


@pytest.mark.parametrize("content", [b"", b"\n1,2\n", b"a,,b\n", b'"a,b\n1,2\n', b"a,\xff\n1,2\n"])
def test_a_file_without_names_is_refused(tmp_path, content):
    with pytest.raises(InvalidData, match="must name its columns"):
        read(tmp_path / "a.csv", content)
    with pytest.raises(InvalidData, match="distinct"):
        read(tmp_path / "a.csv", b"a,a\n1,2\n")


def test_lines_are_read_alike_alone_and_in_company(tmp_path):
    """Lines that are plain are cut all at once, others one by one: by one and the same rule."""
    rng = random.Random(5)
    letters = [b"a", b",", b",", b'"', b'"', b"\r", b"1", "é".encode(), b"\xff", b"\0", b" "]
    body = [b"".join(rng.choices(letters, k=rng.randrange(1, 9))) for _ in range(4000)]
    body += [b",".join(rng.choices([b'"a"', b"b", b'""', b'"c,d"', b""], k=2)) for _ in range(2000)]
    together = read(tmp_path / "a.csv", of(body))
    expected = []
    for line in body:
        if stripped := line.removesuffix(b"\r"):
            row = lines.fields(stripped, ",")
            expected.append(tuple(row) if row and len(row) == 2 else (None, None))
    assert together == expected


def test_the_rule_is_that_of_csv(tmp_path):
    """Well-formed lines read as Python's own reader has them."""
    rng = random.Random(7)
    rows = [
        ["".join(rng.choices('ab,"é \t', k=rng.randrange(6))) for _ in range(3)] for _ in range(500)
    ]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["x", "y", "z"])
    writer.writerows(rows)
    found = read(tmp_path / "a.csv", buffer.getvalue().encode())
    assert [list(row) for row in found] == rows


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_blocks_do_not_show(tmp_path, monkeypatch, chunk):
    body = [line for line in HOSTILE.values() if len(line) < 100] + PLAIN
    expected = read(tmp_path / "a.csv", of(body))
    monkeypatch.setattr(lines, "_CHUNK", chunk)
    assert read(tmp_path / "a.csv", of(body)) == expected


def test_a_long_line_fills_no_memory(tmp_path):
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        file.write(b'id,note\n1,x\n2,"')
        for _ in range(64):
            file.write(b"z" * (1 << 20))
        file.write(b"\n3,y\n")
    before = pa.total_allocated_bytes()
    sizes = [batch.nbytes for batch in lines.batches(path)]
    assert sum(sizes) < 1 << 20
    assert pa.total_allocated_bytes() - before < 1 << 24


def test_private_rows_have_no_other_reader_of_text_files():
    """Other readers find records by their quotes, so that one person's could swallow others.

    Loaders of public data sets are what may use one.
    """
    source = Path(lines.__file__).parent
    readers = re.compile(r"read_csv|open_csv|csv\.reader|DictReader|genfromtxt|loadtxt|fromfile")
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if readers.search(path.read_text(encoding="utf-8"))
    }
    assert found <= {"datasets/adult.py", "datasets/loans.py"}
