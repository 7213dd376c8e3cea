"""From in-house rows to a classifier on the command line, and every bad input on the way."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from sklearn.datasets import load_digits

import tacit
from tacit.apps.cli import main
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.reports import Reports

DIGITS, TARGET = load_digits(return_X_y=True)
PIXELS = [f"p{index}" for index in range(64)]
SECRET = "Zaphod7531"
Run = Callable[..., Any]


def images(start: int, stop: int, dtype: type = np.int64) -> pa.Table:
    """Digits as a table, the label last."""
    columns = {name: DIGITS[start:stop, i].astype(dtype) for i, name in enumerate(PIXELS)}
    return pa.table({**columns, "digit": TARGET[start:stop]})


def customers(count: int = 400, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, count)
    return pa.table(
        {
            "age": np.clip(rng.normal(30 + 30 * kind, 6), 0, 100),
            "job": np.array(["baker", "smith", "nurse"])[(kind + (rng.random(count) < 0.1)) % 3],
            "loyal": np.array(["no", "yes"])[kind],
        }
    )


SCHEMA = TableSchema((Continuous("age", 0, 100), Categorical("job", ("baker", "smith", "nurse"))))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mechanisms, reports, a model, and clean files: made once, never written to."""
    folder = tmp_path_factory.mktemp("collect")
    pq.write_table(images(0, 500), folder / "inhouse.parquet")
    pq.write_table(images(500, 1500), folder / "people.parquet")
    csv.write_csv(images(1500, 1797), folder / "test.csv")
    csv.write_csv(customers(), folder / "customers.csv")
    (folder / "schema.json").write_text(json.dumps(SCHEMA.to_plain()))
    pixels = ArraySchema(64, 0, 16, (8, 8), columns=tuple(PIXELS))
    (folder / "pixels.json").write_text(json.dumps(pixels.to_plain()))
    commands = (
        f"collect fit {folder}/inhouse.parquet --kind codebook --epsilon 4 --people 1000"
        f" --classes 10 --label digit --schema {folder}/pixels.json --out {folder}/images --json",
        f"collect privatize {folder}/images {folder}/people.parquet --label digit"
        f" --out {folder}/reports.parquet --json",
        f"collect learn {folder}/reports.parquet --out {folder}/model --json",
        f"collect fit {folder}/customers.csv --kind codebook --epsilon 3"
        " --codewords 6 --classes no,yes --label loyal"
        f" --schema {folder}/schema.json --out {folder}/table --json",
    )
    for command in commands:
        assert main(command.split()) == 0
    return folder


# --- the whole way -------------------------------------------------------------------------------


def test_images_from_rows_to_accuracy(run: Run, work: Path, tmp_path: Path) -> None:
    fitted = run(
        *("collect", "fit", work / "inhouse.parquet", "--kind", "codebook"),
        *("--epsilon", 4, "--people", 1000),
        *("--classes", 10),
        *("--image", "8x8", "--label", "digit", "--out", tmp_path / "m", "--json"),
    ).json
    assert fitted["kind"] == "codebook"
    assert (fitted["rows"], fitted["rows_in_file"]) == (500, 500)
    assert 12 <= fitted["codewords"] <= 1280
    assert fitted["guarantee"].startswith("4-DP (local")
    assert fitted["in_house_rows"] == "not protected: keep it inside"
    assert 0 < fitted["bytes_per_report"] <= -(-fitted["codewords"] * 10 // 8)
    mechanism = tacit.load(tmp_path / "m")
    assert mechanism.features_.kind == "scattering"
    assert mechanism.codewords_ == fitted["codewords"]

    reports = tmp_path / "reports.parquet"
    released = run(
        *("collect", "privatize", tmp_path / "m", work / "people.parquet", "--label", "digit"),
        *("--epsilon", 6, "--out", reports, "--json"),
    ).json
    assert (released["reports"], released["labelled"]) == (1000, True)
    assert released["guarantee"].startswith("6-DP")
    table = Reports.read(reports)
    assert (len(table), table.labelled, table.seeded) == (1000, True, False)
    assert float(table.guarantee.epsilon) == 6

    learned = run("collect", "learn", reports, "--out", tmp_path / "model", "--json").json
    assert learned["reports"] == 1000
    assert learned["classes"] == [str(digit) for digit in range(10)]
    found = run(
        "collect", "evaluate", tmp_path / "model", work / "test.csv", "--label", "digit", "--json"
    )
    assert found.json["rows"] == 297
    assert found.json["accuracy"] > 0.75
    assert found.json["interval"][0] < found.json["accuracy"] < found.json["interval"][1]
    assert sum(one["rows"] for one in found.json["by_class"]) == 297
    model = tacit.load(tmp_path / "model")
    assert model.score(DIGITS[1500:], TARGET[1500:]) == pytest.approx(found.json["accuracy"])
    # The label is the one surplus column.
    assert (
        run("collect", "evaluate", tmp_path / "model", work / "test.csv", "--json").json
        == found.json
    )


def test_a_table_from_rows_to_accuracy(run: Run, work: Path, tmp_path: Path) -> None:
    """CSV in, words as labels, a schema file, a student on in-house rows."""
    reports = tmp_path / "r.parquet"
    csv.write_csv(customers(3000, 1), tmp_path / "people.csv")
    released = run(
        *("collect", "privatize", work / "table", tmp_path / "people.csv", "--label", "loyal"),
        *("--out", reports, "--json"),
    ).json
    assert released["reports"] == 3000
    assert run("collect", "learn", reports, "--out", tmp_path / "model", "--json").json[
        "classes"
    ] == [*("no", "yes")]
    csv.write_csv(customers(500, 2), tmp_path / "test.csv")
    found = run("collect", "evaluate", tmp_path / "model", tmp_path / "test.csv", "--json").json
    assert found["accuracy"] > 0.95
    assert [one["class"] for one in found["by_class"]] == ["no", "yes"]


def test_costs_and_a_threshold_without_a_new_fit(run: Run, work: Path, tmp_path: Path) -> None:
    """A model of two classes in a table is a student on the codebook's cells."""
    people, reports, model = (tmp_path / name for name in ("people.csv", "r.parquet", "model"))
    csv.write_csv(customers(2000, 1), people)
    run("collect", "privatize", work / "table", people, "--label", "loyal", "--out", reports)
    learned = run("collect", "learn", reports, "--priors", "no=.5,yes=.5", "--out", model, "--json")
    assert learned.json["model"] == "student"
    more = customers(500, 2)
    csv.write_csv(more.append_column("note", [["x"] * 500]), people)
    given = ("collect", "evaluate", model, people, "--label", "loyal", "--json")
    plain, strict = run(*given), run(*given, "--threshold", "0.999")
    assert plain.err.count("\n") == 1
    assert "columns that are not in the schema are ignored: note." in plain.err
    recalls = [found.json["by_class"][1]["recall"] for found in (plain, strict)]
    assert recalls[0] > recalls[1]
    assert strict.json["auc"] == plain.json["auc"]
    assert strict.json["auc"]["value"] > 0.9
    constant = run(*given, "--costs", "yes:no=100000,no:yes=0")
    assert "tacit: Every answer is 'yes'." in constant.err
    assert constant.json["balanced_accuracy"]["value"] == 0.5
    matrix = tmp_path / "costs.json"
    matrix.write_text("[[0, 0], [100000, 0]]")
    assert run(*given, "--costs", matrix).json == constant.json
    printed = run(*given[:-1]).out
    for word in ("balanced accuracy", "area under the ROC", "Brier score", "precision"):
        assert word in printed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--priors", "no=.5"), "--priors must be one for each of 2 classes"),
        (("--priors", "no=half,yes=.5"), "--priors must be like no=.94,yes=.06"),
        (("--costs", "no:maybe=2"), "--costs must be about the classes no, yes"),
        (("--costs", "nowhere.json"), "--costs must be like yes:no=5, or an existing file"),
        (("--threshold", "2"), "--threshold must be in [0, 1]"),
        (("--threshold", ".5", "--costs", "yes:no=2"), "--threshold must be None where costs"),
    ],
)
def test_wrong_decisions_are_refused(
    run: Run, work: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    reports = tmp_path / "r.parquet"
    csv.write_csv(customers(50, 1), tmp_path / "p.csv")
    given = ("collect", "privatize", work / "table", tmp_path / "p.csv", "--label", "loyal")
    run(*given, "--out", reports)
    refused = run("collect", "learn", reports, *options, "--out", tmp_path / "model")
    assert refused.code == 2
    assert said in refused.err
    assert not (tmp_path / "model").exists()


def test_a_student_is_marked(run: Run, work: Path, tmp_path: Path) -> None:
    learned = run(
        *("collect", "learn", work / "reports.parquet", "--inhouse", work / "inhouse.parquet"),
        *("--label", "digit", "--out", tmp_path / "student", "--json"),
    ).json
    assert "keep it inside" in learned["in_house_rows"]
    found = run("collect", "evaluate", tmp_path / "student", work / "test.csv", "--json").json
    assert found["accuracy"] > 0.6


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "tsv"])
def test_one_person_in_any_kind_of_file(run: Run, work: Path, tmp_path: Path, kind: str) -> None:
    table = customers(1).drop_columns(["loyal"])
    path = tmp_path / f"me.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        options = csv.WriteOptions(delimiter="\t" if kind == "tsv" else ",")
        with pa.output_stream(path) as stream:  # compresses by the name
            csv.write_csv(table, stream, options)
    out = tmp_path / "r.parquet"
    released = run("collect", "privatize", work / "table", path, "--out", out, "--json").json
    assert (released["reports"], released["labelled"]) == (1, False)
    assert Reports.read(out).columns["symbols"].shape[0] == 1


def test_many_batches_are_as_one(
    run: Run, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.data import tables

    read = tables.batches
    seen = []

    def small(path, given=None, rows=0, **options):
        for batch in read(path, given, 64, **options):
            seen.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(tables, "batches", small)
    arguments = (
        *("collect", "privatize", work / "images", work / "people.parquet", "--label", "digit"),
    )
    assert run(*arguments, "--out", tmp_path / "r.parquet", "--json").json["reports"] == 1000
    assert len(seen) >= 16
    assert len(Reports.read(tmp_path / "r.parquet")) == 1000


def test_two_runs_draw_other_noise(run: Run, work: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(
            *("collect", "privatize", work / "images", work / "people.parquet"),
            *("--label", "digit", "--out", tmp_path / f"{name}.parquet"),
        )
    first, second = (Reports.read(tmp_path / f"{name}.parquet") for name in "ab")
    assert not np.array_equal(first.columns["symbols"], second.columns["symbols"])


def test_labels_that_look_like_something_else(run: Run, tmp_path: Path) -> None:
    """Declared as words, they are words: true is not True, 01 is not 1."""
    for index, classes in enumerate((("true", "false"), ("01", "02"))):
        rows = "".join(f"{i % 7},{i % 5},{classes[i % 2]}\n" for i in range(200))
        data, folder = tmp_path / f"{index}.csv", tmp_path / str(index)
        data.write_text("x,y,l\n" + rows)
        fit = (
            *("collect", "fit", data, "--kind", "codebook", "--epsilon", 1, "--codewords", 4),
            *("--classes", ",".join(classes)),
        )
        assert run(*fit, "--label", "l", "--out", folder).code == 0
        out = tmp_path / f"{index}.parquet"
        assert run(
            "collect", "privatize", folder, data, "--label", "l", "--out", out, "--json"
        ).json
        assert run("collect", "learn", out, "--out", tmp_path / f"m{index}", "--json").json[
            "classes"
        ] == [*classes]
        assert (
            run("collect", "evaluate", tmp_path / f"m{index}", data, "--json").json["rows"] == 200
        )


def test_rows_can_be_limited(run: Run, work: Path, tmp_path: Path) -> None:
    fitted = run(
        *("collect", "fit", work / "customers.csv", "--kind", "codebook"),
        *("--epsilon", 1, "--codewords", 4),
        *("--label", "loyal"),
        *("--rows", 100, "--out", tmp_path / "m", "--json"),
    ).json
    assert (fitted["rows"], fitted["rows_in_file"]) == (100, 400)


def test_direct_needs_no_codewords(run: Run, work: Path, tmp_path: Path) -> None:
    fitted = run(
        *("collect", "fit", work / "customers.csv", "--kind", "direct", "--epsilon", 2),
        *("--classes", "no,yes"),
        *("--label", "loyal", "--schema", work / "schema.json", "--out", tmp_path / "m", "--json"),
    ).json
    assert fitted["codewords"] is None
    assert fitted["guarantee"].startswith("2-DP")
    released = run(
        *("collect", "privatize", tmp_path / "m", work / "customers.csv", "--label", "loyal"),
        *("--out", tmp_path / "r.parquet", "--json"),
    ).json
    assert released["reports"] == 400


def test_tables_for_people_to_read(run: Run, work: Path, tmp_path: Path) -> None:
    privatize = run(
        *("collect", "privatize", work / "images", work / "people.parquet", "--label", "digit"),
        *("--out", tmp_path / "r.parquet"),
    )
    assert privatize.code == 0
    assert "Released" in privatize.out
    assert "1000" in privatize.out
    learned = run("collect", "learn", tmp_path / "r.parquet", "--out", tmp_path / "model")
    assert "Learned" in learned.out
    evaluated = run("collect", "evaluate", work / "model", work / "test.csv")
    assert "95 % interval" in evaluated.out
    assert "297" in evaluated.out
    planned = run("collect", "plan", "--classes", 10, "--epsilon", 1, "--target-accuracy", 0.9)
    assert "people" in planned.out
    assert "Nothing is known of your rows" in " ".join(planned.out.split())
    assert max(map(len, planned.out.splitlines())) <= 80


def test_plan_without_rows(run: Run) -> None:
    asked = ("collect", "plan", "--classes", 10, "--epsilon", 4, "--target-accuracy", 0.8)
    found = run(*asked, "--json").json
    assert found["basis"] == "record"
    assert set(found["accuracy"]) == set(found["people"]) == {"low", "high"}
    assert found["accuracy"]["low"] < 0.8 < found["accuracy"]["high"]
    assert found["people"]["high"] is None
    never = run(
        "collect", "plan", "--classes", 10, "--epsilon", 1, "--target-accuracy", 0.999, "--json"
    )
    assert never.json["people"] == {"low": None, "high": None}
    assert "no comparable table" in never.json["answer"]


@pytest.mark.heavy
def test_plan_with_rows_and_a_pilot(
    run: Run, refuse: Callable[..., str], work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.local.plan import planning, worlds

    monkeypatch.setattr(worlds, "WARM_UP", 100)
    monkeypatch.setattr(planning, "TRIALS", 2)
    asked = ("collect", "plan", "--epsilon", 3, "--people", 500, "--label", "loyal")
    rows = ("--inhouse", work / "customers.csv")
    bound = run(*asked, "--classes", 2, *rows, "--json").json
    assert bound["accuracy"]["low"] is None
    assert "Upper bound" in bound["answer"]
    found = run(*asked, *rows, "--pilot", work / "customers.csv", "--json").json
    assert found["basis"] == "pilot"
    assert 0 < found["accuracy"]["low"] < found["accuracy"]["high"] <= 1
    assert any("keep the plan in-house" in sentence for sentence in found["assumptions"])
    assert "--label must be given with --pilot" in refuse(
        *("collect", "plan", "--epsilon", 3, "--people", 500, "--pilot", work / "customers.csv")
    )


# --- bad rows ------------------------------------------------------------------------------------


def replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def with_value(table: pa.Table, name: str, value: Any) -> pa.Table:
    """The same table with this value near the end."""
    values = table[name].to_pylist()
    values[-3] = value
    return replaced(table, name, values)


BAD_IMAGES: dict[str, tuple[Callable[[], pa.Table], str]] = {
    "NaN": (
        lambda: with_value(images(0, 200, float), "p9", math.nan),
        "column 'p9' must be finite",
    ),
    "null": (lambda: with_value(images(0, 200), "p9", None), "column 'p9' must be finite"),
    "infinity": (lambda: with_value(images(0, 200, float), "p9", math.inf), "column 'p9' must be"),
    "out of range": (
        lambda: with_value(images(0, 200), "p60", 7531),
        "column 'p60' must be within [0, 16]",
    ),
    "negative": (lambda: with_value(images(0, 200), "p0", -1), "column 'p0' must be within"),
    "missing column": (lambda: images(0, 200).drop_columns(["p5"]), "column 'p5' must be present"),
    "text": (
        lambda: replaced(images(0, 200), "p7", [SECRET] * 200),
        "column 'p7' must be numbers",
    ),
    "other dtype": (
        lambda: replaced(images(0, 200), "p7", [True] * 200),
        "column 'p7' must be numbers",
    ),
    "undeclared label": (lambda: with_value(images(0, 200), "digit", 7531), "labels must be among"),
    "fractional label": (
        lambda: replaced(images(0, 200), "digit", [0.5] * 200),
        "column 'digit': labels must be whole numbers",
    ),
    "infinite label": (
        lambda: replaced(images(0, 200), "digit", [math.inf] * 200),
        "column 'digit': labels must be whole numbers",
    ),
    "gap in label": (lambda: with_value(images(0, 200), "digit", None), "column 'digit' must be"),
    "no label": (lambda: images(0, 200).drop_columns(["digit"]), "label must be a column of"),
    "no rows": (lambda: images(0, 0), "must have at least one row"),
}


@pytest.mark.parametrize("wrong", BAD_IMAGES)
@pytest.mark.parametrize("batch", [64, 8192])
def test_bad_rows_are_refused_and_nothing_is_written(
    refuse: Callable[..., str],
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: str,
    batch: int,
) -> None:
    """In the first batch, or after others were already released."""
    from tacit.data import tables

    read = tables.batches

    def small(path, given=None, rows=0, **options):
        return read(path, given, batch, **options)

    monkeypatch.setattr(tables, "batches", small)
    make, named = BAD_IMAGES[wrong]
    pq.write_table(make(), tmp_path / "bad.parquet")
    arguments = (tmp_path / "bad.parquet", "--label", "digit")
    line = refuse(
        "collect", "privatize", work / "images", *arguments, "--out", tmp_path / "r.parquet"
    )
    assert named in line
    assert "bad.parquet" in line
    assert "7531" not in line
    line = refuse("collect", "evaluate", work / "model", *arguments)
    assert "bad.parquet" in line
    assert "7531" not in line


def test_columns_beside_those_of_the_schema_are_left_out(
    run: Callable[..., Any], work: Path, tmp_path: Path
) -> None:
    """In any order, in a file and in a folder of parts; `labelled` tells of a forgotten --label."""
    wide = tmp_path / "wide.csv"
    wide.write_text('job,name,age,loyal\nbaker,"O""Neil, A",1,no\nsmith,B,2,yes\n')
    for more, labelled in ((("--label", "loyal"), True), ((), False)):
        out = tmp_path / f"reports{labelled}.parquet"
        told = run("collect", "privatize", work / "table", wide, "--out", out, "--json", *more)
        assert told.code == 0, told.err
        found = json.loads(told.out)
        assert (found["reports"], found["labelled"]) == (2, labelled)
    fit = (
        *("collect", "fit", wide, "--kind", "codebook", "--epsilon", 1, "--codewords", 2),
        *("--schema", work / "schema.json"),
    )
    told = run(*fit, "--classes", "no,yes", "--out", tmp_path / "m", "--json")
    assert told.code == 0, told.err
    assert json.loads(told.out)["columns"] == 2  # the label is no feature, named or not


BAD_CSV = {
    "empty file": ("", "its first line must name its columns"),
    "header alone": ("age,job,loyal\n", "must have at least one row"),
    "gap": ("age,job,loyal\n1,baker,no\n,smith,yes\n", "column 'age' must be without missing"),
    "NaN": ("age,job,loyal\n1,baker,no\nnan,smith,yes\n", "column 'age' must be without missing"),
    "infinity": ("age,job,loyal\ninf,baker,no\n", "column 'age' must be without missing"),
    "out of range": ("age,job,loyal\n7531,baker,no\n", "column 'age' must be within [0, 100]"),
    "text": (f"age,job,loyal\n{SECRET},baker,no\n", "column 'age' must be without missing"),
    "undeclared category": (f"age,job,loyal\n1,{SECRET},no\n", "column 'job' must be one of its 3"),
    "missing category": ("age,job,loyal\n1,,no\n", "column 'job' must be one of its 3"),
    "undeclared label": (f"age,job,loyal\n1,baker,{SECRET}\n", "labels must be among the 2"),
    "gap in label": ("age,job,loyal\n1,baker,\n", "column 'loyal' must be without missing values"),
    "other name": ("age,jobs,loyal\n1,baker,no\n", "column 'job' must be present"),
    "long line": (
        f"age,job,loyal\n1,baker,no,{SECRET}\n",
        "column 'loyal' must be without missing values",
    ),
    "no header": (f"{SECRET},baker,no\n1,baker,no\n", "label must be a column of"),
    "doubled name": ("age,job,loyal,loyal\n1,baker,no,no\n", "distinct names"),
    "no text": (b"\xff\xfe\x00\x01", "bad.csv"),
}


@pytest.mark.parametrize("wrong", BAD_CSV)
def test_bad_csv_is_refused_and_nothing_is_written(
    refuse: Callable[..., str], work: Path, tmp_path: Path, wrong: str
) -> None:
    content, named = BAD_CSV[wrong]
    bad = tmp_path / "bad.csv"
    bad.write_bytes(content if isinstance(content, bytes) else content.encode())
    arguments = ("collect", "privatize", work / "table", bad, "--label", "loyal")
    line = refuse(*arguments, "--out", tmp_path / "r.parquet")
    assert named in line
    assert "bad.csv" in line
    assert "7531" not in line
    if wrong not in ("undeclared label", "gap in label"):
        fit = (
            *("collect", "fit", bad, "--kind", "codebook"),
            *("--epsilon", 1, "--codewords", 2, "--label", "loyal"),
        )
        line = refuse(*fit, "--schema", work / "schema.json", "--out", tmp_path / "m")
        assert "bad.csv" in line
        assert "7531" not in line


@pytest.mark.parametrize("name", ["bad.parquet", "bad.csv.gz"])
@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1" * 20])
def test_files_that_are_not_what_they_say_are_named(
    refuse: Callable[..., str], work: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    bad = tmp_path / name
    bad.write_bytes(content)
    out = ("--out", tmp_path / "out")
    for arguments in (
        ("collect", "fit", bad, "--kind", "codebook", "--epsilon", 1, "--codewords", 2, *out),
        ("collect", "privatize", work / "table", bad, *out),
        ("collect", "learn", work / "reports.parquet", "--inhouse", bad, *out),
        ("collect", "evaluate", work / "model", bad),
        (
            *("collect", "plan", "--classes", 2, "--epsilon", 1, "--target-accuracy", 0.8),
            *("--inhouse", bad),
        ),
    ):
        line = refuse(*arguments)
        assert name in line
        assert "None" not in line


@pytest.mark.parametrize("more", [(), ("--kind", "vlm"), ("--kind", "direct")])
def test_a_gpu_that_is_not_there_is_refused_before_data_is_read(
    refuse: Callable[..., str],
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    fit = (
        *("collect", "fit", work / "missing.parquet", "--epsilon", 2, *more),
        *("--out", tmp_path / "m"),
    )
    learn = ("collect", "learn", work / "missing.parquet", "--out", tmp_path / "m")
    for command in (fit, learn):
        assert "device must be cpu or auto" in refuse(*command, "--device", "cuda")
        assert "device must be auto, cpu" in refuse(*command, "--device", "tpu")


def test_commands_train_on_the_device(
    run: Run, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU by default where there is one; what trains nothing does not ask for it."""
    from tacit.local.inference import noise_aware
    from tacit.local.learned.vlm import VLM

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    told: list[str] = []
    fit, fit_network = VLM.fit, noise_aware.fit_network

    def fitted(self: VLM, raw: Any, *, device: str, **more: Any) -> VLM:
        told.append(device)
        return fit(self, raw, epochs=1, **more)

    def fitted_network(*given: Any, device: str, **more: Any) -> Any:
        told.append(device)
        return fit_network(*given, **more)

    monkeypatch.setattr(VLM, "fit", fitted)
    monkeypatch.setattr(noise_aware, "fit_network", fitted_network)
    schema, label = ("--schema", work / "schema.json"), ("--label", "loyal")
    made, reports = tmp_path / "vlm", tmp_path / "r.parquet"
    command = (
        *("collect", "fit", work / "customers.csv", "--epsilon", 3, "--kind", "vlm", *schema),
        *label,
    )
    assert run(*command, "--classes", "no,yes", "--out", made).code == 0
    assert (
        run("collect", "privatize", made, work / "customers.csv", *label, "--out", reports).code
        == 0
    )
    assert run("collect", "learn", reports, "--out", tmp_path / "a").code == 0
    assert run("collect", "learn", reports, "--device", "cpu", "--out", tmp_path / "b").code == 0
    assert told == ["cuda", "cuda", "cpu"]


def test_what_is_not_there_is_named(refuse: Callable[..., str], work: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    lost = tmp_path / "lost"
    for arguments in (
        ("collect", "fit", lost, "--kind", "codebook", "--epsilon", 1, "--codewords", 2, *out),
        (
            *("collect", "fit", work / "customers.csv", "--kind", "codebook"),
            *("--epsilon", 1, "--codewords", 2),
            *("--schema", lost, *out),
        ),
        ("collect", "privatize", lost, work / "customers.csv", *out),
        ("collect", "privatize", work / "table", lost, *out),
        ("collect", "learn", lost, *out),
        ("collect", "learn", work / "reports.parquet", "--inhouse", lost, *out),
        ("collect", "evaluate", lost, work / "test.csv"),
        ("collect", "evaluate", work / "model", lost),
        (
            *("collect", "plan", "--classes", 2, "--epsilon", 1, "--target-accuracy", 0.8),
            *("--inhouse", lost),
        ),
    ):
        assert "lost" in refuse(*arguments)


def test_a_model_is_no_mechanism_and_the_other_way_round(
    refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    line = refuse(
        "collect", "privatize", work / "model", work / "people.parquet", "--out", tmp_path / "r.pq"
    )
    assert "must be a mechanism, as fit writes" in line
    line = refuse("collect", "evaluate", work / "images", work / "test.csv")
    assert "must be a model, as learn writes" in line


def test_what_exists_is_never_overwritten(
    refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mine"
    out.write_text("mine")
    for arguments in (
        (
            *("collect", "fit", work / "customers.csv", "--kind", "codebook"),
            *("--epsilon", 1, "--codewords", 2),
        ),
        ("collect", "privatize", work / "images", work / "people.parquet", "--label", "digit"),
        ("collect", "learn", work / "reports.parquet"),
    ):
        assert "--out must be new" in refuse(*arguments, "--out", out)


def test_no_folder_is_made_for_what_fails(
    refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    pq.write_table(with_value(images(0, 200), "p60", 7531), tmp_path / "bad.parquet")
    arguments = (
        *("collect", "privatize", work / "images", tmp_path / "bad.parquet", "--label", "digit"),
    )
    refuse(*arguments, "--out", tmp_path / "new" / "sub" / "r.parquet")
    fit = (
        *("collect", "fit", tmp_path / "bad.parquet", "--kind", "codebook"),
        *("--epsilon", 1, "--codewords", 4, "--schema"),
    )
    refuse(*fit, work / "pixels.json", "--label", "digit", "--out", tmp_path / "new" / "m")


# --- bad parameters ------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["0", "-1", "inf", "-inf", "nan", "1e-300", "701"])
def test_an_epsilon_that_protects_nobody_or_lets_nothing_through(
    refuse: Callable[..., str], work: Path, tmp_path: Path, epsilon: str
) -> None:
    out = ("--out", tmp_path / "out")
    for arguments in (
        ("collect", "fit", work / "customers.csv", "--kind", "codebook", "--codewords", 4, *out),
        ("collect", "fit", work / "customers.csv", "--kind", "direct", *out),
        (
            *("collect", "privatize", work / "images", work / "people.parquet"),
            *("--label", "digit", *out),
        ),
        ("collect", "plan", "--classes", 2, "--target-accuracy", 0.8),
    ):
        assert "epsilon must be" in refuse(*arguments, f"--epsilon={epsilon}")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--classes", 2), "people must be given"),
        (("--people", 0, "--classes", 2), "people must be"),
        (("--codewords", 1), "codewords must be"),
        (("--codewords", 401), "at least 401, one per codeword"),
        (("--codewords", 4, "--classes", 1), "classes must be"),
        (("--codewords", 4, "--classes", "a,a"), "classes must be"),
        (("--codewords", 4, "--classes", ""), "classes must be"),
        (("--codewords", 4, "--kind", "magic"), "kind must be one of"),
        (("--codewords", 4, "--features", "magic"), "features must be one of"),
        (("--codewords", 4, "--features", "scattering"), "images for scattering"),
        (("--codewords", 4, "--image", "8"), "image must be like 28x28"),
        (("--codewords", 4, "--image", "axb"), "image must be like 28x28"),
        (("--codewords", 4, "--image", "5x5"), "column"),
        (("--codewords", 4, "--label", "zzz"), "label must be a column of"),
        (("--codewords", 4, "--rows", 0), "rows must be"),
        (("--codewords", 4, "--rows", -5), "rows must be"),
        (("--codewords", "many"), "codewords"),
        (("--no-such-option",), "No such option"),
    ],
)
def test_fit_with_wrong_parameters(
    refuse: Callable[..., str], work: Path, tmp_path: Path, options: tuple[Any, ...], named: str
) -> None:
    arguments = ("collect", "fit", work / "customers.csv", "--kind", "codebook", "--epsilon", 1)
    assert named in refuse(*arguments, *options, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[1]",
        "{}",
        '{"kind": "table", "columns": []}',
        '{"kind": "table", "columns": [{"kind": "continuous", "name": "age"}]}',
        '{"kind": "array", "width": 2, "lower": 0, "upper": 1, "image": null,'
        ' "outside": "refuse", "columns": 5}',
        '{"kind": "array", "width": 2, "lower": 1, "upper": 0, "image": null,'
        ' "outside": "refuse", "columns": null}',
    ],
)
def test_a_schema_file_of_another_form(
    refuse: Callable[..., str], work: Path, tmp_path: Path, content: str
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(content)
    arguments = (
        *("collect", "fit", work / "customers.csv", "--kind", "codebook"),
        *("--epsilon", 1, "--codewords", 4),
    )
    assert "bad.json" in refuse(*arguments, "--schema", bad, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--classes", 1, "--epsilon", 1, "--target-accuracy", 0.9), "classes must be"),
        (("--classes", 10, "--epsilon", 1, "--target-accuracy", 1.5), "--target-accuracy must be"),
        (("--classes", 10, "--epsilon", 1, "--target-accuracy", 0), "--target-accuracy must be"),
        (
            ("--classes", 10, "--epsilon", 1, "--target-accuracy", "nan"),
            "--target-accuracy must be",
        ),
        (("--classes", 10, "--epsilon", 1, "--target-accuracy", 0.9, "--people", 3), "people must"),
        (("--classes", 10, "--epsilon", 1), "target-accuracy"),
    ],
)
def test_plan_with_wrong_parameters(
    refuse: Callable[..., str], options: tuple[Any, ...], named: str
) -> None:
    assert named in refuse("collect", "plan", *options)


def test_plan_with_few_rows(refuse: Callable[..., str], work: Path) -> None:
    options = ("--classes", 2, "--epsilon", 1, "--target-accuracy", 0.9)
    few = work / "few.csv"
    few.write_text("".join((work / "customers.csv").read_text().splitlines(True)[:40]))
    assert "must be at least 50" in refuse("collect", "plan", *options, "--inhouse", few)


def test_labels_for_a_mechanism_without_classes(
    run: Run, refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    fit = (
        *("collect", "fit", work / "customers.csv", "--kind", "codebook"),
        *("--epsilon", 1, "--codewords", 4),
        *("--label", "loyal"),
    )
    assert run(*fit, "--out", tmp_path / "m").code == 0
    arguments = ("collect", "privatize", tmp_path / "m", work / "customers.csv", "--label", "loyal")
    assert "classes must be declared" in refuse(*arguments, "--out", tmp_path / "r.parquet")


# --- damaged artifacts and reports ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["mechanism.json", "weights.safetensors", "encoder.onnx"])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.7, 1.0])
def test_an_artifact_with_one_byte_changed(
    refuse: Callable[..., str], work: Path, tmp_path: Path, name: str, place: float
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(work / "images", folder)
    if not (folder / name).exists():
        pytest.skip("written without onnx")
    content = bytearray((folder / name).read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    (folder / name).write_bytes(content)
    arguments = ("collect", "privatize", folder, work / "people.parquet", "--label", "digit")
    line = refuse(*arguments, "--out", tmp_path / "r.parquet")
    assert str(folder) in line
    assert name in line or "weights" not in name


def test_a_model_with_one_byte_changed(
    refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    for name in ("model.json", "weights.safetensors"):
        folder = tmp_path / name
        shutil.copytree(work / "model", folder)
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)
        assert name in refuse("collect", "evaluate", folder, work / "test.csv")


def test_damaged_reports_are_named(refuse: Callable[..., str], work: Path, tmp_path: Path) -> None:
    """Where a byte of the certificate or of the mechanism is another, nothing is learned."""
    content = (work / "reports.parquet").read_bytes()
    bad = tmp_path / "bad.parquet"
    for mark in (b"tacit-certificate/2", b"tacit-artifact/1", b"tacit-reports/2"):
        changed = bytearray(content)
        changed[content.index(mark) + 2] ^= 1
        bad.write_bytes(changed)
        assert "bad.parquet" in refuse("collect", "learn", bad, "--out", tmp_path / "model")
    bad.write_bytes(content[:-1])
    assert "bad.parquet" in refuse("collect", "learn", bad, "--out", tmp_path / "model")


def test_reports_without_labels_teach_nothing(
    run: Run, refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    pq.write_table(images(0, 100).drop_columns(["digit"]), tmp_path / "people.parquet")
    out = tmp_path / "r.parquet"
    assert (
        run("collect", "privatize", work / "images", tmp_path / "people.parquet", "--out", out).code
        == 0
    )
    line = refuse("collect", "learn", out, "--out", tmp_path / "model")
    assert "reports must hold labels" in line
    assert "r.parquet" in line


@pytest.mark.parametrize("name", ["people.parquet", "test.csv"])
def test_raw_rows_are_no_reports(
    refuse: Callable[..., str], work: Path, tmp_path: Path, name: str
) -> None:
    line = refuse("collect", "learn", work / name, "--out", tmp_path / "model")
    assert "must be a Parquet file of" in line
    assert name in line


def test_a_disk_that_is_full(
    refuse: Callable[..., str], work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device", "disk")

    monkeypatch.setattr("os.replace", full)
    monkeypatch.setattr("os.link", full)
    arguments = (
        *("collect", "privatize", work / "images", work / "people.parquet", "--label", "digit"),
    )
    assert "No space left" in refuse(*arguments, "--out", tmp_path / "r.parquet")
    assert "No space left" in refuse(
        "collect", "learn", work / "reports.parquet", "--out", tmp_path / "m"
    )
    fit = (
        *("collect", "fit", work / "customers.csv", "--kind", "codebook"),
        *("--epsilon", 1, "--codewords", 4),
    )
    assert "No space left" in refuse(*fit, "--out", tmp_path / "m")


def test_a_label_left_among_in_house_columns_is_found(
    refuse: Callable[..., str], tmp_path: Path
) -> None:
    table = pa.table({"x": [0.1, 0.4, 0.9, 0.2], "paid": ["no", "yes", "no", "no"]})
    pq.write_table(table, tmp_path / "inhouse.parquet")
    options = ("--epsilon", 1, "--people", 100, "--classes", "no,yes")
    line = refuse("collect", "fit", tmp_path / "inhouse.parquet", *options, "--out", tmp_path / "m")
    assert "--label paid" in line


def test_several_files_of_reports_are_learned_together(
    run: Run, work: Path, tmp_path: Path
) -> None:
    parts = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for part in parts:
        data = tmp_path / f"people-{part.name}"
        pq.write_table(images(0, 100), data)
        assert (
            run(
                "collect", "privatize", work / "images", data, "--label", "digit", "--out", part
            ).code
            == 0
        )
    done = run("collect", "learn", *parts, "--out", tmp_path / "model", "--json")
    assert '"reports": 200' in done.out


def test_explain_takes_reports_and_mechanisms(run: Run, work: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "people.parquet", tmp_path / "r.parquet"
    pq.write_table(images(0, 50), data)
    run("collect", "privatize", work / "images", data, "--label", "digit", "--out", out)
    for path in (out, work / "images"):
        assert "not protected" in run("account", "explain", path).out.lower()


# --- the mechanism that is chosen --------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "--classes must be given, or --outcome, got None. For reports without labels pass"),
        (("--classes", 2), "--people must be given"),
        (("--people", 9, "--classes", 2, "--codewords", 4), "--codewords must be absent with"),
        (("--people", 9, "--classes", 2, "--features", "raw"), "Pass --kind codebook to choose it"),
    ],
)
def test_a_collection_refuses_what_it_chooses_itself(
    refuse: Callable[..., str], work: Path, tmp_path: Path, options: tuple[Any, ...], named: str
) -> None:
    arguments = ("collect", "fit", work / "customers.csv", "--epsilon", 1, *options)
    assert named in refuse(*arguments, "--out", tmp_path / "out")


def test_fit_chooses_what_collection_chooses(run: Run, work: Path, tmp_path: Path) -> None:
    options = ("--epsilon", 2, "--people", 900, "--classes", "no,yes", "--label", "loyal")
    fit = ("collect", "fit", work / "customers.csv", *options)
    fitted = run(*fit, "--out", tmp_path / "m", "--json").json
    assert fitted["kind"] == "partitions"
    same = tacit.Collection(epsilon=2, people=900, classes=["no", "yes"])
    same.fit(csv.read_csv(work / "customers.csv").drop_columns(["loyal"]))
    made = tacit.load(tmp_path / "m")
    assert tacit.artifact.fingerprint(made) == tacit.artifact.fingerprint(same.mechanism_)


def test_protected_images_get_a_codebook(run: Run, work: Path, tmp_path: Path) -> None:
    options = ("--epsilon", 2, "--people", 900, "--classes", 10, "--label", "digit")
    central = ("--central-epsilon", 5, "--central-delta", 1e-5, "--schema", work / "pixels.json")
    fit = ("collect", "fit", work / "inhouse.parquet", *options, *central)
    assert run(*fit, "--out", tmp_path / "m", "--json").json["kind"] == "codebook"
