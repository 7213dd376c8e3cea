"""Files of Unix compress are unpacked to the byte, and UNIPEN text becomes strokes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tacit.privacy import errors
from tacit_papers.data import unipen

TEXT = """.INCLUDE dene.doc
.HIERARCHY DIGIT

.SEGMENT DIGIT 0 ? "4"
.COMMENT 4 12 224
.PEN_DOWN
 10  20
 11  -3
.PEN_UP
.DT 100
.PEN_DOWN
 5  6
.PEN_UP
.DT 100

.SEGMENT DIGIT 2 ? "7"
.COMMENT 7 3 225
.PEN_DOWN
 1.5 2
.PEN_UP
"""


def compress(data: bytes, most: int = 16, blocks: bool = True, clear_after: int = 0) -> bytes:
    """What `compress` would write; with a clear code after so many codes."""
    first = 257 if blocks else 256
    codes: list[tuple[int, int]] = []  # with their widths
    table, width, prefix = {bytes([b]): b for b in range(256)}, 9, b""
    groups: list[list[tuple[int, int]]] = [codes]
    following = first
    for byte in data:
        longer = prefix + bytes([byte])
        if longer in table:
            prefix = longer
            continue
        groups[-1].append((table[prefix], width))
        if following < 1 << most:
            table[longer] = following
            following += 1
        prefix = bytes([byte])
        # The reader is one entry behind.
        if following - 1 == 1 << width and width < most:
            width += 1
            groups.append([])
        if clear_after and len(groups[-1]) == clear_after:
            groups[-1].append((256, width))
            groups.append([])
            table, width, following = {bytes([b]): b for b in range(256)}, 9, first
    if prefix:
        groups[-1].append((table[prefix], width))
    return bytes([0x1F, 0x9D, most | (0x80 if blocks else 0)]) + _packed(groups)


def _packed(groups: list[list[tuple[int, int]]]) -> bytes:
    out = b""
    for index, group in enumerate(groups):
        bits = "".join(f"{code:0{width}b}"[::-1] for code, width in group)
        if group and index < len(groups) - 1:
            whole = 8 * group[-1][1]
            bits += "0" * (-len(bits) % whole)
        bits += "0" * (-len(bits) % 8)
        out += bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits), 8))
    return out


CASES = {
    "empty": b"",
    "one": b"a",
    "a run, whose codes refer to themselves": b"a" * 5_000,
    "text": TEXT.encode() * 40,
    "noise that fills every table": np.random.default_rng(0).bytes(30_000),
}


@pytest.mark.parametrize("data", CASES.values(), ids=CASES)
@pytest.mark.parametrize("most", [9, 10, 12, 16])
@pytest.mark.parametrize("blocks", [True, False])
def test_what_was_compressed_comes_back(data: bytes, most: int, blocks: bool) -> None:
    assert unipen.decompress(compress(data, most, blocks), "x.Z") == data


@pytest.mark.parametrize("clear_after", [1, 7, 8, 100, 300])
def test_a_cleared_table_starts_anew(clear_after: int) -> None:
    data = (CASES["text"] + CASES["noise that fills every table"])[-500 * clear_after - 4000 :]
    assert unipen.decompress(compress(data, clear_after=clear_after), "x.Z") == data


@pytest.mark.skipif(shutil.which("gzip") is None, reason="gzip, which reads .Z files, is not here")
@pytest.mark.parametrize("clear_after", [0, 50])
def test_gzip_reads_the_same(tmp_path: Path, clear_after: int) -> None:
    packed = compress(CASES["text"] + CASES["noise that fills every table"], 12, True, clear_after)
    (tmp_path / "x.Z").write_bytes(packed)
    read = subprocess.run(["gzip", "-dc", tmp_path / "x.Z"], capture_output=True, check=True).stdout
    assert unipen.decompress(packed, "x.Z") == read


def test_files_of_another_kind_are_refused() -> None:
    with pytest.raises(errors.InvalidData, match=r"^x\.Z: it must be a file of Unix compress"):
        unipen.decompress(b"\x1f\x8b\x08", "x.Z")
    with pytest.raises(errors.InvalidData, match=r"^x\.Z: it must be a file of Unix compress"):
        unipen.decompress(b"\x1f\x9d", "x.Z")
    with pytest.raises(
        errors.InvalidData, match=r"^x\.Z: its codes must be of 9 to 16 bits, got 3"
    ):
        unipen.decompress(b"\x1f\x9d\x83ab", "x.Z")


def test_codes_that_cannot_be_are_refused() -> None:
    impossible = (300).to_bytes(2, "little")
    with pytest.raises(errors.InvalidData, match=r"^x\.Z: its codes must follow .* damaged\?$"):
        unipen.decompress(b"\x1f\x9d\x90" + impossible, "x.Z")


def test_strokes_labels_and_comments_are_read() -> None:
    four, seven = unipen.parse(TEXT, "x")
    assert (four.label, four.comment) == ("4", ("4", "12", "224"))
    assert [stroke.tolist() for stroke in four.strokes] == [[[10, 20], [11, -3]], [[5, 6]]]
    assert (seven.label, seven.comment[1], len(seven.strokes)) == ("7", "3", 1)
    assert seven.strokes[0].tolist() == [[1.5, 2]]


def test_other_line_ends_are_read() -> None:
    assert len(unipen.parse(TEXT.replace("\n", "\r\n"), "x")[0].strokes) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"7"', "7"),
        (" 1.5 2\n.PEN_UP\n", " 1.5 2\n"),
        (" 1.5 2\n", ""),
        (" 1.5 2\n", " 1.5 2 3\n"),
        (" 1.5 2\n", " 1.5\n"),
        (" 1.5 2\n", " 1.5 SECRET\n"),
        (" 1.5 2\n", " 1.5 nan\n"),
        (".PEN_DOWN\n 1.5 2\n.PEN_UP\n", ""),
    ],
)
def test_damaged_segments_are_one_line(old: str, new: str) -> None:
    assert old in TEXT
    with pytest.raises(errors.InvalidData) as caught:
        unipen.parse(TEXT.replace(old, new), "x")
    assert str(caught.value) == (
        "x: segment 2 must have a quoted label, and two numbers per line between .PEN_DOWN and "
        ".PEN_UP. Is it damaged?"
    )


def test_text_without_segments_is_refused() -> None:
    with pytest.raises(errors.InvalidData, match=r"^x: it must have lines that begin with"):
        unipen.parse("a,b\n1,2\n", "x")
