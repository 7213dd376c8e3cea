"""Released rows: what a table of them carries, writes, reads, and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tacit
from tacit.data.schema import ArraySchema
from tacit.local.learned.codebook import Codebook
from tacit.local.report_files import FORMAT
from tacit.local.reports import Reports, ReportsWriter, certify
from tacit.privacy import files
from tacit.privacy.artifact import ArtifactError
from tacit.privacy.certificate import Certificate
from tacit.privacy.errors import CertificateError, InvalidData, InvalidParameter, TacitError

ROWS = np.random.default_rng(0).random((150, 3))
LABELS = np.random.default_rng(1).integers(0, 2, 150)
KEYS = (b"tacit.reports", b"tacit.certificate", b"tacit.mechanism")


@pytest.fixture(scope="module")
def mechanism():
    return Codebook(epsilon=1, codewords=6, classes=2).fit(ROWS, schema=ArraySchema(3, 0, 1))


@pytest.fixture
def released(mechanism):
    return mechanism.release(ROWS, LABELS)


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def rewrite(path, *, columns=None, metadata=None):
    """The same file with other columns or metadata, as somebody would write it by hand."""
    table = pq.read_table(path)
    kept = {key: pq.read_metadata(path).metadata[key] for key in KEYS}
    if columns is not None:
        table = pa.table(columns)
    kept.update(metadata or {})
    kept = {key: value for key, value in kept.items() if value is not None}
    pq.write_table(table.replace_schema_metadata(kept), path)
    return path


def write(path, mechanism, *parts, then=None):
    """Batches into one file, and then an error where one is given."""
    channel = parts[0].channel if parts else mechanism.channel(True)
    with ReportsWriter(path, mechanism, channel) as writer:
        assert not path.exists()
        for part in parts:
            writer.add(part)
        if then is not None:
            raise then


def lists(sets):
    array = np.asarray(sets)
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])


# --- what a table carries ------------------------------------------------------------------------


def test_reports_carry_channel_guarantee_schema_and_count(mechanism, released):
    assert len(released) == 150
    assert released.schema == mechanism.schema
    assert released.guarantee == mechanism.channel(True).guarantee
    assert released.event == mechanism.channel(True).event
    assert mechanism.release(ROWS).event == mechanism.channel(False).event
    assert released.event != mechanism.channel(False).event
    released.certificate.verify()


def test_reports_take_little_room(mechanism, released):
    assert released.columns["symbols"].dtype == np.uint8
    wide = Codebook(epsilon=1, codewords=6, classes=50).fit(ROWS, schema=mechanism.schema)
    assert wide.channel(True).symbols.categories == 300
    assert wide.release(ROWS, LABELS).columns["symbols"].dtype == np.uint16


def test_a_part_is_reports_again(released):
    part = released[10:20]
    assert isinstance(part, Reports)
    assert np.array_equal(part.columns["symbols"], released.columns["symbols"][10:20])
    chosen = released[np.array([3, 1, 2])]
    assert np.array_equal(chosen.columns["symbols"], released.columns["symbols"][[3, 1, 2]])
    assert part.labelled
    assert len(released[:0]) == 0


def test_seeded_reports_are_marked(mechanism, tmp_path):
    seeded = mechanism.release(ROWS, LABELS, rng=tacit.Seeded(3))
    secure = mechanism.release(ROWS, LABELS)
    assert (seeded.seeded, secure.seeded) == (True, False)
    assert seeded.certificate.seeded
    assert not secure.certificate.seeded
    assert mechanism.release(ROWS, rng=np.random.default_rng(0)).seeded
    assert seeded[:5].certificate.seeded
    assert Reports.concatenate([secure, seeded]).certificate.seeded
    back = Reports.read(seeded.write(tmp_path / "seeded.parquet"))
    assert back.seeded
    assert back.certificate.seeded
    assert (
        b'"randomness": "seeded"' in pq.read_metadata(tmp_path / "seeded.parquet").metadata[KEYS[1]]
    )
    assert not Reports.read(secure.write(tmp_path / "secure.parquet")).seeded


# --- several parts -------------------------------------------------------------------------------


def test_parts_of_one_channel_are_put_together(mechanism, released, tmp_path):
    loaded = tacit.load(mechanism.save(tmp_path / "m"))
    other = loaded.release(ROWS[:7], LABELS[:7])
    both = Reports.concatenate([released, other])
    assert len(both) == 157
    assert np.array_equal(both.columns["symbols"][150:], other.columns["symbols"])
    assert both.guarantee == released.guarantee


def test_parts_of_other_channels_are_refused(mechanism, released):
    other = Codebook(epsilon=1, codewords=6, classes=2)
    other.fit(ROWS[:100], schema=mechanism.schema)
    wrong = (
        mechanism.at(2).release(ROWS, LABELS),  # another ε
        mechanism.at(1.0000001).release(ROWS, LABELS),
        mechanism.release(ROWS),  # no labels
        other.release(ROWS, LABELS),  # other codewords under the same numbers
        mechanism.regrouped([0, 1, 2, 3, 4, 4]).release(ROWS),
    )
    for part in wrong:
        for parts in ([released, part], [part, released], [released, released, part]):
            with pytest.raises(InvalidData, match="equal channels"):
                Reports.concatenate(parts)


def test_nothing_is_not_put_together():
    with pytest.raises(InvalidParameter, match="parts must be at least one"):
        Reports.concatenate([])


# --- what no channel can have released -----------------------------------------------------------


def bad_sets(size, symbols=12):
    good = np.arange(size)
    return {
        "too few": [good[:-1]],
        "too many": [np.arange(size + 1)],
        "out of range": [np.append(good[:-1], symbols)],
        "negative": [np.append([-1], good[1:])],
        "unsorted": [good[::-1]],
        "repeated": [np.append(good[:-1], good[-2])],
        "one of several": [good, good[::-1]],
        "fractions": [good + 0.5],
        "missing": [np.append(good[:-1].astype(float), np.nan)],
        "words": [good.astype(str)],
    }


@pytest.mark.parametrize("wrong", bad_sets(4))
def test_reports_outside_the_support_are_refused(mechanism, released, wrong, tmp_path):
    size = released.columns["symbols"].shape[1]
    assert size >= 2
    sets = np.array(bad_sets(size)[wrong])
    with pytest.raises(InvalidData):
        Reports(mechanism, {"symbols": sets}, mechanism.channel(True))
    path = rewrite(released.write(tmp_path / "r.parquet"), columns={"symbols": lists(sets)})
    with pytest.raises(InvalidData):
        Reports.read(path)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"symbols": np.arange(4)},
        {"other": np.arange(4)[None]},
        {"symbols": np.arange(4)[None], "label": np.zeros(1)},
    ],
)
def test_other_columns_are_refused(mechanism, columns):
    with pytest.raises(InvalidData, match="columns must be 'symbols' alone"):
        Reports(mechanism, columns, mechanism.channel(True))


def test_unlabelled_reports_are_not_labelled_ones(mechanism):
    """The two channels have other sets: one cannot be passed off as the other."""
    plain = mechanism.release(ROWS).columns
    assert mechanism.channel(True).event.size != mechanism.channel(False).event.size
    with pytest.raises(InvalidData):
        Reports(mechanism, plain, mechanism.channel(True))


# --- Parquet -------------------------------------------------------------------------------------


@pytest.mark.parametrize("labelled", [False, True])
def test_parquet_and_back(mechanism, tmp_path, labelled):
    released = mechanism.release(ROWS, LABELS if labelled else None)
    path = released.write(tmp_path / "reports.parquet")
    back = Reports.read(path)
    assert np.array_equal(back.columns["symbols"], released.columns["symbols"])
    assert back.columns["symbols"].dtype == released.columns["symbols"].dtype
    assert (back.labelled, back.seeded) == (labelled, False)
    assert back.guarantee == released.guarantee
    assert np.array_equal(back.mechanism.encode(ROWS), mechanism.encode(ROWS))
    assert back.releases == released.releases
    assert listing(tmp_path) == ["reports.parquet"]


def test_the_certificate_is_in_the_metadata(released, tmp_path):
    """Readable without Tacit's own reader, and true."""
    path = released.write(tmp_path / "reports.parquet")
    metadata = pq.read_metadata(path).metadata
    certificate = Certificate.from_json(metadata[b"tacit.certificate"])
    certificate.verify(certificate.artifact)
    with pytest.raises(CertificateError, match="artifact must be given"):
        certificate.verify()
    assert certificate.guarantee == released.guarantee
    assert certificate.event == released.event
    assert any("in-house rows" in sentence for sentence in certificate.not_protected)
    assert json.loads(metadata[b"tacit.reports"])["labelled"] is True


def test_nothing_of_the_people_but_reports_is_in_the_file(released, tmp_path):
    table = pq.read_table(released.write(tmp_path / "reports.parquet"))
    assert table.column_names == ["symbols"]
    assert table.num_rows == 150


def test_batches_make_one_file(mechanism, tmp_path):
    path = tmp_path / "r.parquet"
    parts = [mechanism.release(ROWS[i : i + 50], LABELS[i : i + 50]) for i in (0, 50, 100)]
    with ReportsWriter(path, mechanism, mechanism.channel(True)) as writer:
        for part in parts:
            writer.add(part)
            assert not path.exists()
    assert writer.count == 150
    back = Reports.read(path)
    whole = np.concatenate([part.columns["symbols"] for part in parts])
    assert np.array_equal(back.columns["symbols"], whole)


def test_a_writer_wants_its_own_mechanism(mechanism, tmp_path):
    wrong = (mechanism.at(2).release(ROWS, LABELS), mechanism.release(ROWS))
    for part in wrong:
        with pytest.raises(InvalidData, match="writer's channel"):
            write(tmp_path / "r.parquet", mechanism, mechanism.release(ROWS, LABELS), part)
    assert listing(tmp_path) == []


def test_seeded_reports_cannot_hide_behind_secure_ones(mechanism, tmp_path):
    """Whichever batch is seeded: the file says so, or is not written."""
    path = tmp_path / "r.parquet"
    secure, seeded = mechanism.release(ROWS), mechanism.release(ROWS, rng=tacit.Seeded(1))
    for order in ((secure, seeded), (seeded, secure)):
        try:
            write(path, mechanism, *order)
        except InvalidData:
            assert listing(tmp_path) == []
            continue
        back = Reports.read(path)
        assert back.seeded
        assert back.certificate.seeded
        assert Certificate.from_json(pq.read_metadata(path).metadata[KEYS[1]]).seeded
        path.unlink()


@pytest.mark.parametrize("moment", ["before", "after", "interrupt", "close", "rename", "empty"])
def test_a_writer_that_fails_leaves_nothing_behind(mechanism, tmp_path, monkeypatch, moment):
    def broken(*arguments, **options):
        raise OSError(28, "No space left on device", "disk")

    def broken_once(self):
        monkeypatch.undo()  # or the writer's own end would fail again
        self.close()
        broken()

    path = tmp_path / "r.parquet"
    if moment == "close":
        monkeypatch.setattr(pq.ParquetWriter, "close", broken_once)
    if moment == "rename":
        monkeypatch.setattr(os, "link", broken)
        monkeypatch.setattr(os, "replace", broken)
    expected = {"interrupt": KeyboardInterrupt, "close": OSError, "rename": OSError}
    then = {
        "before": InvalidData("bad row"),
        "after": InvalidData("bad row"),
        "interrupt": KeyboardInterrupt(),
    }
    parts = () if moment in ("before", "empty") else (mechanism.release(ROWS),)
    with pytest.raises(expected.get(moment, InvalidData)):
        write(path, mechanism, *parts, then=then.get(moment))
    assert listing(tmp_path) == []


def test_a_folder_that_does_not_exist_is_not_made(mechanism, tmp_path):
    """Or it would be left behind where a later row is bad."""
    with pytest.raises(InvalidParameter, match="folder must be an existing one"):
        mechanism.release(ROWS).write(tmp_path / "new" / "sub" / "r.parquet")
    assert listing(tmp_path) == []


def test_a_failure_leaves_the_file_of_before(mechanism, released, tmp_path):
    path = released.write(tmp_path / "r.parquet")
    before = path.read_bytes()
    with pytest.raises(InvalidParameter, match="only draw"):
        write(path, mechanism, released)
    assert path.read_bytes() == before
    assert listing(tmp_path) == ["r.parquet"]


# --- files that are not what they say ------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidParameter, match=r"nowhere\.parquet"):
        Reports.read(tmp_path / "nowhere.parquet")


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"symbols\n1\n", b"PAR1" + b"\0" * 100 + b"PAR1"]
)
def test_what_is_no_parquet_is_refused(tmp_path, content):
    path = tmp_path / "r.parquet"
    path.write_bytes(content)
    with pytest.raises(InvalidData, match=r"r\.parquet: it must be a Parquet file of reports"):
        Reports.read(path)
    with pytest.raises(InvalidData, match="must be a Parquet file"):
        Reports.read(tmp_path)


def test_a_damaged_file_is_refused_or_the_same(mechanism, released, tmp_path):
    """One byte at a hundred places: an error of Tacit's, or reports of the channel."""
    path = released.write(tmp_path / "r.parquet")
    content = path.read_bytes()
    refused = []
    for place in np.unique(np.linspace(0, len(content) - 1, 100).astype(int)):
        changed = bytearray(content)
        changed[place] ^= 4
        path.write_bytes(changed)
        try:
            back = Reports.read(path)
        except TacitError as error:
            refused.append(str(error))
            continue
        assert back.guarantee == released.guarantee
        assert np.array_equal(back.mechanism.encode(ROWS), mechanism.encode(ROWS))
    assert len(refused) > 20
    assert all("r.parquet" in line and "\n" not in line for line in refused)


def test_half_a_file_is_refused(released, tmp_path):
    path = released.write(tmp_path / "r.parquet")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InvalidData, match="must be a Parquet file of reports"):
        Reports.read(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEYS[0], None),
        (KEYS[1], None),
        (KEYS[2], None),
        (KEYS[0], b"{}"),
        (KEYS[0], b"[]"),
        (KEYS[0], b"\xff"),
        (KEYS[0], b'{"format": "tacit-reports/3", "labelled": true, "seeded": false}'),
        (KEYS[1], b"{}"),
        (KEYS[2], b"{}"),
    ],
)
def test_metadata_of_another_form_are_refused(released, tmp_path, key, value):
    path = rewrite(released.write(tmp_path / "r.parquet"), metadata={key: value})
    with pytest.raises((InvalidData, ArtifactError, CertificateError), match=r"r\.parquet"):
        Reports.read(path)


def test_metadata_as_they_were_are_read(released, tmp_path):
    """What the tests around this one change is the only thing that is wrong in their files."""
    path = rewrite(released.write(tmp_path / "r.parquet"))
    assert np.array_equal(Reports.read(path).columns["symbols"], released.columns["symbols"])


def test_a_certificate_of_another_mechanism_is_refused(mechanism, released, tmp_path):
    path = released.write(tmp_path / "r.parquet")
    for channel in (mechanism.at(0.5).channel(True), mechanism.channel(False)):
        foreign = certify(mechanism, channel)
        rewrite(path, metadata={KEYS[1]: foreign.to_json().encode()})
        with pytest.raises(InvalidData, match="it names no artifact"):
            Reports.read(path)


def test_what_the_head_says_of_the_noise_is_what_the_certificate_says(mechanism, tmp_path):
    seeded = mechanism.release(ROWS, LABELS, rng=tacit.Seeded(0))
    head = json.dumps({"format": FORMAT, "labelled": True, "seeded": False}).encode()
    path = rewrite(seeded.write(tmp_path / "r.parquet"), metadata={KEYS[0]: head})
    try:
        back = Reports.read(path)
    except (InvalidData, CertificateError):
        return
    assert back.seeded


def test_a_table_that_says_labelled_but_is_not_is_refused(mechanism, tmp_path):
    head = json.dumps({"format": FORMAT, "labelled": True, "seeded": False}).encode()
    path = mechanism.release(ROWS).write(tmp_path / "r.parquet")
    with pytest.raises(InvalidData):
        Reports.read(rewrite(path, metadata={KEYS[0]: head}))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[0, 1, 2], None], pa.list_(pa.int64(), 3)),
        pa.array([[0, 1, None]], pa.list_(pa.int64(), 3)),
        pa.array([[0, 1, 2]], pa.list_(pa.int64())),
        pa.array(["a"]),
        pa.array([1]),
        pa.array([{"a": 1}]),
    ],
)
def test_columns_of_another_type_are_refused(released, tmp_path, column):
    path = rewrite(released.write(tmp_path / "r.parquet"), columns={"symbols": column})
    with pytest.raises(InvalidData, match=r"reports|SubsetSelection"):
        Reports.read(path)


# --- what a hostile reader did, kept -------------------------------------------------------------


def metadata_of(path):
    return {key: pq.read_metadata(path).metadata[key] for key in KEYS}


def test_rows_under_the_metadata_of_another_file_are_refused(mechanism, tmp_path):
    """Reports released at epsilon = 8, read as if they were of epsilon = 1."""
    loud = mechanism.at(1.0000001).release(ROWS, LABELS).write(tmp_path / "loud.parquet")
    same = mechanism.release(ROWS, LABELS).write(tmp_path / "same.parquet")
    quiet = mechanism.release(ROWS, LABELS).write(tmp_path / "quiet.parquet")
    for path in (loud, same):
        rewrite(path, metadata=metadata_of(quiet))
        with pytest.raises(InvalidData, match="not the certified artifact"):
            Reports.read(path)


@pytest.mark.parametrize("change", ["order", "less", "more", "value", "width", "name", "release"])
def test_rows_that_were_changed_are_refused(mechanism, released, tmp_path, change):
    path = released.write(tmp_path / "r.parquet")
    rows = released.columns["symbols"].copy()
    metadata, columns = {}, {"symbols": lists(rows)}
    if change == "release":
        head = json.loads(metadata_of(path)[KEYS[0]])
        head["releases"] = ["0" * 32]
        metadata = {KEYS[0]: json.dumps(head, sort_keys=True).encode()}
    elif change == "name":
        columns = {"other": lists(rows)}
    else:
        other = mechanism.release(ROWS[:1], LABELS[:1]).columns["symbols"]
        changed = {
            "order": rows[::-1],
            "less": rows[1:],
            "more": np.concatenate([rows, other]),
            "value": np.concatenate([rows[1:2], rows[1:]]),
            "width": rows.astype(np.uint32),
        }
        columns = {"symbols": lists(changed[change])}
    rewrite(path, columns=columns, metadata=metadata)
    with pytest.raises(InvalidData):
        Reports.read(path)


def test_a_file_that_binds_nothing_is_refused_in_one_line(released, tmp_path):
    head = json.dumps({"format": "tacit-reports/1", "labelled": True, "seeded": False}).encode()
    path = rewrite(released.write(tmp_path / "r.parquet"), metadata={KEYS[0]: head})
    with pytest.raises(InvalidData, match="its rows must be bound to its certificate"):
        Reports.read(path)


def test_the_same_reports_are_not_twice_the_people(mechanism, released, tmp_path):
    first = released.write(tmp_path / "a.parquet")
    second = released.write(tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_bytes(first.read_bytes())
    other = mechanism.release(ROWS, LABELS)
    both = Reports.concatenate([Reports.read(first), other])
    joined = both.write(tmp_path / "d.parquet")
    for path in (second, tmp_path / "c.parquet", joined):
        with pytest.raises(InvalidData, match="every row of a release must occur once"):
            Reports.concatenate([Reports.read(first), Reports.read(path)])
    for parts in ([released, released], [both, other]):
        with pytest.raises(InvalidData, match="every row of a release must occur once"):
            Reports.concatenate(parts)
    assert len(Reports.concatenate([released[:70], released[70:]])) == 150
    assert Reports.read(joined).releases == (*released.releases, *other.releases)


def test_a_small_file_does_not_fill_the_memory(mechanism, released, tmp_path):
    """Half a megabyte of Parquet can be gigabytes of rows: refused by what the file says."""
    path = released.write(tmp_path / "r.parquet")
    kept, size = metadata_of(path), released.columns["symbols"].shape[1]
    block = pa.table({"symbols": lists(np.tile(np.arange(size, dtype=np.int64), (1 << 16, 1)))})
    schema = block.schema.with_metadata(kept)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(32):
            writer.write_table(block.cast(schema))
    assert path.stat().st_size < 1 << 20
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidParameter, match=r"at most 16,777,216 bytes when decoded"):
        Reports.read(path, most_bytes=1 << 24)
    assert pa.total_allocated_bytes() - before < 1 << 20
    small = released.write(tmp_path / "s.parquet")
    with pytest.raises(InvalidParameter, match="at most 100 bytes"):
        Reports.read(small, most_bytes=100)


def test_a_dictionary_does_not_fill_the_memory(released, tmp_path):
    """Few rows, and a dictionary of values that none of them has: refused by what the file says."""
    path = released.write(tmp_path / "r.parquet")
    kept = metadata_of(path)
    values = pa.array(["x" * 100 + str(i) for i in range(50_000)])
    coded = pa.DictionaryArray.from_arrays(pa.array(np.arange(5), pa.int32()), values)
    table = pa.table({"symbols": coded}).replace_schema_metadata(kept)
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidData, match="pages must not be far larger"):
        Reports.read(path, most_bytes=1 << 16)
    assert pa.total_allocated_bytes() - before < 1 << 20


KILLED = """
import sys, time
import numpy as np
import tacit
from tacit.reports import ReportsWriter
mechanism = tacit.load(sys.argv[1])
rows, labels = np.zeros((40_000, 3)), np.zeros(40_000, int)
with ReportsWriter(sys.argv[2], mechanism, mechanism.channel(True)) as writer:
    writer.add(mechanism.release(rows, labels))
    print("drawn", flush=True)
    time.sleep(60)
"""


@pytest.mark.heavy
def test_a_process_that_is_killed_leaves_no_draw(mechanism, tmp_path):
    """A second run beside what the first one left would be two draws of every row in it."""
    saved, folder = mechanism.save(tmp_path / "m"), tmp_path / "out"
    folder.mkdir()
    arguments = [sys.executable, "-c", KILLED, str(saved), str(folder / "r.parquet")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "drawn\n"
            assert listing(folder) == []
        finally:
            process.kill()
    assert listing(folder) == []
    mechanism.release(ROWS, LABELS).write(folder / "r.parquet")


def test_a_part_of_an_earlier_run_is_not_passed_over(mechanism, released, tmp_path):
    (tmp_path / ".r.parquet-k3j2").write_bytes(b"half of it")
    with pytest.raises(InvalidParameter, match="two draws of a row"):
        released.write(tmp_path / "r.parquet")
    assert listing(tmp_path) == [".r.parquet-k3j2"]
    released.write(tmp_path / "other.parquet")


@pytest.mark.parametrize("lacks", ["O_TMPFILE", "link"])
def test_file_systems_without_nameless_files(released, tmp_path, monkeypatch, lacks):
    def broken(*arguments, **options):
        raise OSError(95, "Operation not supported")

    if lacks == "link":
        monkeypatch.setattr(os, "link", broken)
    else:
        opened = partial(tempfile.TemporaryFile, "w+b")
        monkeypatch.setattr(files, "_nameless", lambda folder: opened(dir=folder))
    path = released.write(tmp_path / "r.parquet")
    assert listing(tmp_path) == ["r.parquet"]
    assert len(Reports.read(path)) == 150


def test_a_file_that_came_meanwhile_is_not_written_over(mechanism, released, tmp_path):
    path = tmp_path / "r.parquet"
    writer = ReportsWriter(path, mechanism, mechanism.channel(True)).__enter__()
    writer.add(released)
    path.write_bytes(b"somebody's")
    with pytest.raises(InvalidParameter, match="path must be new"):
        writer.__exit__(None, None, None)
    assert path.read_bytes() == b"somebody's"
    assert listing(tmp_path) == ["r.parquet"]
