"""Releasing tables in parts, and on a Ray cluster: the same reports as on one machine, in law."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from scipy import stats

from tacit import load
from tacit.apps.cli import main
from tacit.data import tables
from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.local import distributed
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors

Run = Callable[..., Any]

SECRET = "Zaphod7531"
JOBS = ("baker", "smith", "nurse")
SCHEMA = TableSchema((Continuous("age", 0, 100), Categorical("job", JOBS)))
ROWS, PARTS = 40_000, 4  # a part is more than a batch


def customers(count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, count)
    age = np.clip(rng.normal(30 + 30 * kind, 6), 0, 100)
    job = np.array(JOBS)[(kind + (rng.random(count) < 0.1)) % 3]
    return pa.table({"age": age, "job": job, "loyal": np.array(["no", "yes"])[kind]})


def in_parts(table: pa.Table, folder: Path, count: int = PARTS) -> Path:
    folder.mkdir()
    size = -(-len(table) // count)
    for index in range(count):
        pq.write_table(table.slice(index * size, size), folder / f"part-{index}.parquet")
    return folder


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mechanism, a table in parts, and parts with one bad row each: never written to."""
    folder = tmp_path_factory.mktemp("distributed")
    csv.write_csv(customers(400), folder / "inhouse.csv")
    (folder / "schema.json").write_text(json.dumps(SCHEMA.to_plain()))
    command = (
        f"collect fit {folder}/inhouse.csv --kind codebook --epsilon 2 --codewords 6"
        " --classes no,yes --label loyal"
        f" --schema {folder}/schema.json --out {folder}/mechanism --json"
    )
    assert main(command.split()) == 0
    people = customers(ROWS, seed=1)
    in_parts(people, folder / "people")
    csv.write_csv(people, folder / "people.csv")
    in_parts(pa.concat_tables([people.slice(0, 1)] * 800), folder / "alike")
    for name, column, value in (("label", "loyal", SECRET), ("bound", "age", 7531.25)):
        values = people.column(column).to_pylist()[:400]
        values[390] = value  # in the last part
        index = people.column_names.index(column)
        bad = people.slice(0, 400).set_column(index, column, pa.array(values))
        in_parts(bad, folder / f"bad-{name}")
    return folder


# --- parts, on one machine -----------------------------------------------------------------------


def test_a_folder_is_read_in_the_order_of_its_names(run: Run, work: Path, tmp_path: Path) -> None:
    files = distributed.parts(work / "people")
    assert [path.name for path in files] == [f"part-{index}.parquet" for index in range(PARTS)]
    assert distributed.count(files) == ROWS
    assert distributed.parts(work / "people.csv") == [work / "people.csv"]
    assert distributed.count([*files, work / "people.csv"]) is None
    out = tmp_path / "r.parquet"
    arguments = ("--label", "loyal", "--epsilon", 300, "--out", out, "--json")
    told = run("collect", "privatize", work / "mechanism", work / "people", *arguments).json
    assert told["reports"] == ROWS
    # At ε = 300 reports are the rows' own codewords and labels: in their order.
    mechanism = load(work / "mechanism").at(300)
    people = customers(ROWS, seed=1)
    codes = (np.asarray(people["loyal"]) == "yes").astype(int)
    symbols = mechanism.encode(people.drop_columns(["loyal"])) * 2 + codes
    assert np.array_equal(Reports.read(out).columns["symbols"][:, 0], symbols)


def test_parts_without_rows_and_hidden_ones_are_passed_over(tmp_path: Path) -> None:
    folder = in_parts(customers(10), tmp_path / "parts", 2)
    pq.write_table(customers(10).slice(0, 0), folder / "part-9.parquet")
    (folder / "_SUCCESS").touch()
    (folder / "._part-0.parquet").touch()
    assert [path.name for path in distributed.parts(folder)] == [
        "part-0.parquet",
        "part-1.parquet",
    ]


def test_bad_folders_and_engines_are_one_line(
    refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    def said(data: Path, *more: object) -> str:
        return refuse(
            "collect", "privatize", work / "mechanism", data, *more, "--out", tmp_path / "r.parquet"
        )

    (tmp_path / "empty").mkdir()
    assert "folder must be one that holds Parquet parts" in said(tmp_path / "empty")
    assert "engine must be one of local, ray, got 'spark'" in said(
        work / "people", "--engine", "spark"
    )
    empty = tmp_path / "nobody"
    empty.mkdir()
    pq.write_table(customers(10).slice(0, 0), empty / "part-0.parquet")
    assert "at least one row" in said(empty)
    label = said(work / "bad-label", "--label", "loyal")
    assert "bad-label/part-3.parquet" in label
    assert "among the 2 declared" in label


def test_without_ray(
    refuse: Callable[..., str], work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    line = refuse(
        *("collect", "privatize", work / "mechanism", work / "people", "--engine", "ray"),
        *("--out", tmp_path / "r.parquet"),
    )
    assert line == (
        "tacit: privatize: --engine ray needs the ray package. pip install 'tacit[ray]'."
    )


def test_a_cluster_of_ones_own_is_closed_to_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens on the network, and who joins it can read what its workers read."""
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "local")  # Ray's word for one of our own
    distributed._lock()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    first = os.environ["RAY_AUTH_TOKEN"]
    assert len(first) == 64
    distributed._lock()  # the same cluster, or the next one of this program
    assert os.environ["RAY_AUTH_TOKEN"] == first
    # Ray reads them when it is imported: afterwards it is too late.
    monkeypatch.delenv("RAY_AUTH_MODE")
    imported = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", imported)
    with pytest.raises(errors.TacitError, match="RAY_AUTH_MODE=token"):
        distributed._lock()
    imported.is_initialized = lambda: True  # the user's own affair
    distributed._lock()
    assert "RAY_AUTH_MODE" not in os.environ


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with pytest.raises(errors.TacitError, match=f"answer at RAY_ADDRESS={address}, got Conn"):
        distributed._start(None)


# --- what a worker does --------------------------------------------------------------------------


def worked(mechanism: Any, path: Path, label: str | None) -> list[dict[str, Any]]:
    given = pa.table({"part": [2], "path": [str(path)]})
    lines = distributed._released_part(given, artifact.pack(mechanism), label)
    return [row for line in lines for row in line.to_pylist()]


def test_a_worker_sends_reports_and_no_rows(work: Path) -> None:
    mechanism = load(work / "mechanism")
    rows = worked(mechanism, work / "people" / "part-0.parquet", "loyal")
    places = [(row["part"], row["batch"], row["refusal"]) for row in rows]
    assert places == [(2, 0, ""), (2, 1, "")]
    columns = [distributed._unpacked(row["reports"]) for row in rows]
    assert [set(each) for each in columns] == [{"symbols"}] * 2
    counts = [len(Reports(mechanism, each, mechanism.channel(True))) for each in columns]
    assert counts == [tables.BATCH_ROWS, ROWS // PARTS - tables.BATCH_ROWS]


def test_errors_on_a_worker_are_values_that_quote_nobody(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism, path = load(work / "mechanism"), work / "bad-bound" / "part-3.parquet"
    (row,) = worked(mechanism, path, "loyal")
    assert row["reports"] == b""
    assert "'age'" in row["refusal"]
    assert "7531" not in row["refusal"]

    def broken(*given: Any) -> Iterator[Reports]:
        raise KeyError(SECRET)

    monkeypatch.setattr(distributed, "reports_of", broken)
    (row,) = worked(mechanism, path, "loyal")
    assert row["refusal"] == f"{path}: a worker failed with KeyError. Try --engine local."


def test_nothing_is_written_twice(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should Ray ever hand over a batch again: its rows would pay twice."""
    mechanism, path = load(work / "mechanism"), work / "people" / "part-0.parquet"
    lines = [tuple(row.values()) for row in worked(mechanism, path, "loyal")]
    lines = [(0, *line[1:]) for line in lines]
    monkeypatch.setattr(distributed, "_cluster", lambda: nullcontext(MagicMock()))
    monkeypatch.setattr(distributed, "_arrived", lambda data: iter([*lines, lines[1]]))
    released = distributed.release("ray", mechanism, [path], "loyal")
    assert [len(next(released)), len(next(released))] == [8192, 1808]
    with pytest.raises(errors.TacitError, match="repeated"):
        next(released)
    # Nor may rows be missing from a file that says nothing of it.
    for lost in (lines[1:], lines[:1], []):
        monkeypatch.setattr(distributed, "_arrived", lambda data, lost=lost: iter(lost))
        files = [path] if lost != lines[:1] else [path, path]
        with pytest.raises(errors.TacitError, match="lost"):
            list(distributed.release("ray", mechanism, files, "loyal"))


# --- on a cluster of two workers -----------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.CRITICAL,
    )
    yield ray
    ray.shutdown()


slow = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class TestRay:
    pytestmark = slow

    def released(self, run: Run, work: Path, out: Path, *more: object) -> Reports:
        """Through the command, by Ray."""
        told = run(
            "collect", "privatize", work / "mechanism", *more, "--engine", "ray", "--out", out
        )
        assert told.code == 0, told.err
        assert told.err == ""
        return Reports.read(out)

    def test_the_same_guarantee_certificate_and_law(
        self, cluster: Any, run: Run, work: Path, tmp_path: Path
    ) -> None:
        label = ("--label", "loyal")
        ours = self.released(run, work, tmp_path / "ray.parquet", work / "people", *label)
        out = tmp_path / "local.parquet"
        assert (
            run(
                "collect", "privatize", work / "mechanism", work / "people", *label, "--out", out
            ).code
            == 0
        )
        local = Reports.read(out)
        assert (len(ours), ours.seeded, ours.labelled) == (ROWS, False, True)
        assert ours.guarantee == local.guarantee
        assert ours.certificate.to_json() == local.certificate.to_json()
        assert p_value(ours, local) > 1e-6
        other = tmp_path / "other.parquet"
        mutant = self.released(run, work, other, work / "people", *label, "--epsilon", 3)
        assert p_value(mutant, local) < 1e-6
        assert cluster.is_initialized()  # it was not started here, and goes on

    def test_reports_come_in_the_order_of_the_rows(
        self, cluster: Any, run: Run, work: Path, tmp_path: Path
    ) -> None:
        for name in ("people", "people.csv"):
            more = (work / name, "--label", "loyal", "--epsilon", 300)
            ours = self.released(run, work, tmp_path / f"{name}.parquet", *more)
            here = [*distributed.release("local", ours.mechanism, [work / "people.csv"], "loyal")]
            local = Reports.concatenate(here)
            assert np.array_equal(ours.columns["symbols"], local.columns["symbols"])

    def test_workers_draw_each_for_itself(
        self, cluster: Any, run: Run, work: Path, tmp_path: Path
    ) -> None:
        alike = (work / "alike", "--label", "loyal")
        ours = self.released(run, work, tmp_path / "r.parquet", *alike)
        parts = np.split(np.sort(ours.columns["symbols"], axis=1), PARTS)
        for index, one in enumerate(parts):
            assert len(np.unique(one, axis=0)) > 1
            for other in parts[index + 1 :]:
                assert not np.array_equal(one, other)
        again = self.released(run, work, tmp_path / "again.parquet", *alike)
        assert not np.array_equal(again.columns["symbols"], ours.columns["symbols"])

    @pytest.mark.parametrize("bad", ["label", "bound"])
    def test_one_bad_row_in_one_part_is_the_same_line_and_writes_nothing(
        self, cluster: Any, refuse: Callable[..., str], work: Path, tmp_path: Path, bad: str
    ) -> None:
        arguments = (
            *("collect", "privatize", work / "mechanism", work / f"bad-{bad}", "--label", "loyal"),
        )
        out = ("--out", tmp_path / "r.parquet")
        line = refuse(*arguments, *out, "--engine", "ray")
        assert line == refuse(*arguments, *out)
        assert "7531" not in line
        assert f"bad-{bad}/part-3.parquet" in line


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_of_its_own_is_started_and_ended(work: Path, tmp_path: Path) -> None:
    """In a process of its own, as a user runs it, with a relative path."""
    pytest.importorskip("ray")
    import subprocess

    code = (
        "import sys, ray\nfrom tacit.apps.cli import main\ncode = main(sys.argv[1:])\n"
        "assert not ray.is_initialized()\nsys.exit(code)"
    )
    for data, wanted in (("people", 0), ("bad-label", 2)):
        arguments = [
            *("collect", "privatize", "mechanism", data, "--label", "loyal", "--engine", "ray"),
        ]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments, "--out", str(tmp_path / f"{data}.parquet")],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == wanted, done.stderr
        assert (tmp_path / f"{data}.parquet").exists() == (wanted == 0)
        if wanted:
            assert done.stderr.startswith("tacit: bad-label/part-3.parquet: ")
            assert done.stderr.count("\n") == 1
        else:
            assert done.stderr == ""
    assert not list(tmp_path.glob(".*"))


def p_value(one: Reports, other: Reports) -> float:
    """Of equal laws: how often each symbol is in a report, by chi-square over both files."""
    categories = one.mechanism.channel(one.labelled).symbols.categories
    counts = [
        np.bincount(each.columns["symbols"].ravel(), minlength=categories) for each in (one, other)
    ]
    return float(stats.chi2_contingency(np.array(counts)).pvalue)
