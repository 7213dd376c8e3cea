"""At most so many reports of a person: the rows, the guarantee, and what a certificate says."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import tacit
from tacit.apps.cli import main
from tacit.data.schema import Continuous, TableSchema
from tacit.local.distributed import Persons, _released_part, release
from tacit.local.persons import ASSUMED_ONE, ONE_EACH, PerPerson, chosen, joined
from tacit.local.reports import Reports
from tacit.privacy import artifact
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.events import Repeated

SCHEMA = TableSchema((Continuous("age", 0, 100),))


@pytest.fixture(scope="module", name="mechanism")
def _mechanism():
    rows = {"age": np.linspace(0, 100, 200)}
    made = tacit.Codebook(epsilon=1, classes=["no", "yes"], codewords=4, unit="person")
    return made.fit(rows, schema=SCHEMA, inhouse_public=True)


@pytest.fixture(name="table")
def _table():
    """Thirty people with hundreds of rows each, and a few rows of nobody."""
    rng = np.random.default_rng(0)
    names = [f"person {n}" for n in rng.integers(0, 30, 6_000)]
    for place in rng.integers(0, 6_000, 40):
        names[place] = None
    columns = {"who": names, "age": rng.uniform(0, 100, 6_000).tolist()}
    return pa.table({**columns, "label": rng.choice(["no", "yes"], 6_000).tolist()})


# --- which rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_each_person_has_at_most_so_many_rows(table, most):
    names = table["who"].to_pylist()
    kept = chosen(names, most)
    assert not kept[[name is None for name in names]].any()
    for name in {*names} - {None}:
        own = np.array([one == name for one in names])
        assert kept[own].sum() == min(most, own.sum())


def test_rows_are_drawn_uniformly():
    """Not the first: a file may be in the order of what is asked."""
    counts = np.zeros(5)
    for seed in range(4_000):
        counts += chosen(["a"] * 5 + ["b"], 2, tacit.Seeded(seed))[:5]
    assert np.abs(counts - 1_600).max() < 5 * np.sqrt(4_000 * 0.4 * 0.6)


def test_rows_are_drawn_from_names_alone():
    """The draw does not take other columns, so it cannot depend on them."""
    first, again = (chosen(list("abab"), 1, tacit.Seeded(7)) for _ in range(2))
    assert first.tolist() == again.tolist()
    assert chosen([], 1).tolist() == []


@pytest.mark.parametrize("missing", [None, float("nan"), "", "  ", np.nan])
def test_rows_without_a_name_are_left_out(missing):
    assert chosen([missing, "Ada", missing], 2).tolist() == [False, True, False]


def test_names_that_compare_equal_are_one_person():
    assert chosen([1, np.float64(1), "Ada", " Ada"], 1).sum() == 2
    with pytest.raises(InvalidData, match="words or numbers") as refusal:
        chosen([("secret", 1)], 1)
    assert "secret" not in str(refusal.value)
    with pytest.raises(InvalidParameter, match="most must be an integer from 1"):
        chosen(["Ada"], 0)


# --- the guarantee ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Every answer is")  # what is learned does not matter
def test_the_guarantee_is_of_all_reports_of_a_person(mechanism, table):
    rows = {"age": np.array(table["age"])}
    labels, names = table["label"].to_pylist(), table["who"].to_pylist()
    for most, epsilon in ((1, 1), (3, 3)):
        reports = mechanism.release(rows, labels, persons=names, most=most)
        assert len(reports) == 30 * most
        assert reports.guarantee.epsilon == epsilon
        assert str(reports.guarantee.unit) == "person"
        assert reports.certificate.guarantee == reports.guarantee
        reports.certificate.verify()
        said = " ".join((*reports.certificate.assumptions, *reports.certificate.not_protected))
        assert "The names in the table are right" in said
        assert ONE_EACH not in said
        assert ("How many rows a person has, up to 3" in said) == (most == 3)
    model = tacit.NoiseAwareClassifier(seed=0).fit(reports)
    assert model.guarantee_.epsilon == 3
    assert model.certificate_.guarantee.epsilon == 3


def test_mutant_reports_of_all_rows_are_not_certified_as_people(mechanism, table):
    """Without names each row counts as a person, and the certificate says that this is assumed."""
    reports = mechanism.release({"age": np.array(table["age"])}, table["label"].to_pylist())
    assert len(reports) == 6_000
    assert ONE_EACH in reports.certificate.assumptions
    assert ONE_EACH in mechanism.certificate.assumptions


def test_records_assume_nothing_of_people_and_take_no_names(mechanism):
    made = tacit.Codebook(epsilon=1, classes=["no", "yes"], codewords=4)
    made.fit({"age": np.linspace(0, 100, 200)}, schema=SCHEMA, inhouse_public=True)
    assert ONE_EACH not in made.certificate.assumptions
    with pytest.raises(InvalidParameter, match=r"unit must be 'person', got 'record'"):
        made.release({"age": [1.0]}, ["no"], persons=["Ada"])
    by_name = made.for_persons().release({"age": [1.0]}, ["no"], persons=["Ada"])
    assert str(by_name.guarantee) == "1-DP (local, any-two-inputs, unit: person)"
    assert str(made.guarantee.unit) == "record"
    with pytest.raises(InvalidData, match="persons must be one per row"):
        made.for_persons().release({"age": [1.0, 2.0]}, ["no", "no"], persons=["Ada"])


def test_joined_releases_may_share_people(mechanism):
    rows, labels, names = {"age": [1.0, 2.0]}, ["no", "yes"], ["Ada", "Ada"]
    parts = [mechanism.release(rows, labels, persons=names, most=most) for most in (1, 2)]
    both = Reports.concatenate(parts)
    assert both.per_person == PerPerson(2) == joined([one.per_person for one in parts])
    assert "nobody is in more than one" in " ".join(both.certificate.assumptions)
    assert both.guarantee.epsilon == 2
    assert parts[1][:1].per_person == PerPerson(2, enforced=True)


def test_a_file_keeps_it_and_refuses_another_certificate(mechanism, tmp_path):
    rows, names = {"age": [1.0, 2.0, 3.0]}, ["Ada", "Ada", "Grace"]
    reports = mechanism.release(rows, ["no", "yes", "no"], persons=names, most=2)
    read = Reports.read(reports.write(tmp_path / "reports.parquet"))
    assert read.per_person == PerPerson(2, enforced=True)
    assert read.guarantee.epsilon == 2
    assert read.certificate.event == Repeated(read.channel.event, 2)
    writer = tacit.reports.ReportsWriter(tmp_path / "b", mechanism, reports.channel)
    with pytest.raises(InvalidData, match="as many rows of a person"):
        writer.add(reports)
    assert PerPerson(1, enforced=False) == ASSUMED_ONE


# --- files and commands ----------------------------------------------------------------------


@pytest.fixture(name="folder")
def _folder(mechanism, table, tmp_path):
    mechanism.save(tmp_path / "mechanism")
    pa.csv.write_csv(table, tmp_path / "people.csv")
    (tmp_path / "parts").mkdir()
    pa.parquet.write_table(table[:2_500], tmp_path / "parts" / "a.parquet")
    pa.parquet.write_table(table[2_500:], tmp_path / "parts" / "b.parquet")
    return tmp_path


@pytest.mark.parametrize("data", ["people.csv", "parts"])
def test_a_person_in_two_files_is_one_person(folder, data, capsys):
    given = ["collect", "privatize", str(folder / "mechanism"), str(folder / data)]
    given += ["--label", "label", "--out", str(folder / "reports.parquet"), "--json"]
    assert main([*given, "--person", "who", "--most", "2"]) == 0
    said = capsys.readouterr().out
    assert '"reports": 60' in said
    assert '"guarantee": "2-DP (local, any-two-inputs, unit: person)"' in said
    assert "6000" not in said
    assert len(Reports.read(folder / "reports.parquet")) == 60


def test_a_mechanism_for_persons_needs_names_or_a_statement(folder, capsys):
    given = ["collect", "privatize", str(folder / "mechanism"), str(folder / "people.csv")]
    given += ["--label", "label", "--out", str(folder / "reports.parquet")]
    for more, reason in (
        ((), "--person must be the column that names people: the mechanism is for persons"),
        (("--most", "2"), "--person must be given with --most"),
        (("--person", "who", "--one-row-each"), "--one-row-each must be left out with --person"),
        (("--person", "age"), "--person must be no column that is reported"),
        (("--person", "label"), "--person must be no column that is reported"),
        (("--person", "nobody"), "--person must be a column of"),
    ):
        assert main([*given, *more]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert reason in line
        assert not (folder / "reports.parquet").exists()
    assert main([*given, "--one-row-each"]) == 0
    reports = Reports.read(folder / "reports.parquet")
    assert len(reports) == 6_000
    assert ONE_EACH in reports.certificate.assumptions


def test_names_are_texts_whatever_they_look_like(mechanism, tmp_path):
    """Numbers before a word: the column does not become one of numbers with missing values."""
    lines = [f"{n},50,no" for n in ("007", "7", "Ada", "Ada", "NA", "")]
    (tmp_path / "people.csv").write_text("\n".join(["who,age,label", *lines]) + "\n")
    limit = mechanism.per_person(1)
    drawn = Persons.drawn([tmp_path / "people.csv"], mechanism.schema, "who", limit)
    (kept,) = drawn.kept
    assert (kept.sum(), kept[:2].tolist(), kept[4:].tolist()) == (3, [True, True], [False, False])
    (reports,) = release("local", mechanism, [tmp_path / "people.csv"], "label", drawn)
    assert len(reports) == 3


def test_a_worker_releases_the_rows_that_were_drawn(mechanism, table, folder):
    kept = chosen(table["who"].to_pylist(), 1)
    item = pa.table({"part": [0], "path": [str(folder / "people.csv")], "kept": [kept.tobytes()]})
    lines = _released_part(item, artifact.pack(mechanism), "label", "who")
    assert [line["refusal"].to_pylist() for line in lines] == [[""]]


def test_importing_the_library_does_not_load_it():
    code = "import sys, tacit; print('tacit.local.persons' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False"
