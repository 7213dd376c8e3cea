"""Every study runs, is recorded and drawn; stopped ones go on; bad input is one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tacit.apps.cli import main
from tacit.data import datasets
from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.local.learned.codebook import Codebook
from tacit_papers import figures as plots
from tacit_papers.engine import registry
from tacit_papers.engine.running import generator
from tacit_papers.engine.running import run as run_study
from tacit_papers.parts.contenders import STUDENT_SHARE
from tacit_papers.studies.agnostic import Agnostic
from tacit_papers.studies.collect import MECHANISMS, Collect, CollectParameters
from tacit_papers.studies.join import Join
from tacit_papers.studies.novel_class import NovelClass

Run = Callable[..., Any]
STUDIES = ("collect", "novel-class", "join", "search", "agnostic")
FORM = {"study", "parameters", "versions", "data", "seconds", "results", "references", "runs"}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, never written to by what must fail."""
    return tmp_path_factory.mktemp("studies")


def quick(*mechanisms: str, epsilons: tuple[float, ...] = (4.0,), **more: Any) -> CollectParameters:
    return CollectParameters.quickly(mechanisms=mechanisms, epsilons=epsilons, **more)


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    runs = [{k: v for k, v in one.items() if k != "seconds"} for one in record["runs"]]
    return {**{k: v for k, v in record.items() if k != "seconds"}, "runs": runs}


def test_every_study_is_tried() -> None:
    """Here, or in a file of its own."""
    own = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(registry.names()) <= {*STUDIES, *own}


@pytest.mark.parametrize("study", STUDIES)
def test_a_quick_study(run: Run, tmp_path: Path, study: str) -> None:
    json_file, plot = tmp_path / "r.json", tmp_path / "r.png"
    outcome = run("study", study, "--quick", "--json", json_file, "--plot", plot)
    assert outcome.code == 0, outcome.err
    assert study in outcome.out
    record = json.loads(json_file.read_text())
    assert set(record) == FORM
    assert record["study"] == study
    assert record["parameters"]["data"] == "digits"
    assert set(record["versions"]) >= {"tacit", "python", "numpy", "torch", "device"}
    assert record["data"]["people"] > 100
    assert len(record["runs"]) == len(outcome.err.splitlines())  # progress: a line for each run
    measure = {"join": "semi_private_accuracy", "search": "test_accuracy"}.get(
        study, "clean_accuracy"
    )
    for result in record["results"]:
        assert 0 <= result[measure]["mean"] <= 1
        assert len(result[measure]["trials"]) == 1
        assert result["epsilon"] in (2.0, 8.0)
    # A figure has a line for what naming the largest class would get; of tasks, each its own.
    assert ("chance" in record["references"]) != (study == "agnostic")
    best = max(
        result[measure]["mean"]
        for result in record["results"]
        if result["mechanism"] == "codebook" and result["epsilon"] == 8
    )
    assert best > 0.75  # it learned, and not by chance
    with Image.open(plot) as picture:
        assert len(set(picture.convert("L").resize((80, 40)).get_flattened_data())) > 5


def test_the_record_of_a_collection(work: Path) -> None:
    dataset = datasets.load("digits")
    found = run_study(Collect(dataset, quick("codebook", "direct"))).to_plain()
    (codebook, direct) = found["results"]
    assert list(codebook)[:5] == ["mechanism", "features", "level", "epsilon", "central_epsilon"]
    assert (codebook["features"], direct["features"]) == ("scattering", None)
    assert codebook["guarantee"] == "4-DP (local, any-two-inputs, unit: record)"
    assert codebook["inhouse_guarantee"].startswith("not private")
    assert len(codebook["by_class"]["mean"]) == 10
    ceilings = codebook["ceilings"]
    assert ceilings["epsilon"] == pytest.approx(2.8)
    assert ceilings["laplace"] < ceilings["universal"]
    assert codebook["private_accuracy"]["mean"] < ceilings["universal"] + 0.15
    assert found["references"]["no_privacy"]["mean"] > 0.9 > found["references"]["chance"]
    # Whoever weighs classes by their rows gets the accuracy.
    truth = dataset.labels[dataset.collection(0).test]
    weights = np.bincount(truth) / len(truth)
    assert weights @ codebook["by_class"]["mean"] == pytest.approx(
        codebook["clean_accuracy"]["mean"], abs=1e-6
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_same_seed_gives_the_same_numbers_with_a_central_guarantee(mechanism: str) -> None:
    """In whatever order, and with or without what an earlier run left in memory."""
    options = quick(mechanism, epsilons=(2.0, 8.0), central=(5.0,))
    one, other = (Collect(datasets.load("digits"), options) for _ in range(2))
    cells = [cell for cell in one.cells() if "reference" not in cell]
    there = [one.measure(cell) for cell in cells]
    back = [other.measure(cell) for cell in reversed(cells)]
    assert there == back[::-1]
    towards = there[0].facts["inhouse_guarantee"]
    expected = {
        "codebook": "1e-05)-DP (central",
        "vlm": "(5, 1e-05)-DP (central",
        "vlm-paper": "unproven",
        "vlm-tuned": "not private",
        "direct": "",
    }
    assert expected[mechanism] in towards
    assert there[0].facts["central_proved"] is (mechanism in ("codebook", "vlm", "direct"))
    assert cells[0]["central_epsilon"] == ("inf" if mechanism in ("direct", "vlm-tuned") else 5)


def test_mechanism_and_student_stay_within_the_central_budget() -> None:
    study = Collect(datasets.load("digits"), quick("codebook", central=(5.0,)))
    cell = next(cell for cell in study.cells() if "reference" not in cell)
    towards = study.measure(cell).facts["inhouse_guarantee"]
    spent = float(towards.split(",")[0].lstrip("("))
    assert 4 < spent <= 5


def test_a_study_measures_the_codebook_that_the_library_makes() -> None:
    """Remembered features are the features: same noise, same codewords, same law."""
    options = quick("codebook", central=(5.0,))
    study = Collect(datasets.load("digits"), options)
    trial = study.trials[0]
    ours = trial.contenders.codebook(4.0, 5.0)
    share = 1 - STUDENT_SHARE
    library = Codebook(
        epsilon=4,
        people=trial.contenders.people,
        classes=10,
        central_epsilon=5 * share,
        central_delta=1e-5 * share,
    ).fit(
        trial.contenders.rows,
        schema=trial.dataset.schema,
        seed=trial.seed,
        rng=generator(trial.seed, {"fit": "codebook", "for": [4.0, 5.0]}),
    )
    assert np.allclose(ours.quantizer_.projection.matrix, library.quantizer_.projection.matrix)
    assert np.allclose(ours.quantizer_.cells, library.quantizer_.cells)
    assert np.array_equal(ours.quantizer_.groups, library.quantizer_.groups)
    plain, same = (
        trial.contenders.codebook(4.0, np.inf),
        Codebook(epsilon=4, people=1080, classes=10),
    )
    same.fit(trial.contenders.rows, schema=trial.dataset.schema, seed=trial.seed)
    rows = trial.test[0]
    assert np.array_equal(plain.encode(rows), same.encode(rows))


def test_levels(work: Path) -> None:
    """What is the same at both is measured once."""
    options = quick("codebook", "vlm", "direct", level=("latent", "feature"), central=(np.inf, 5.0))
    study = Collect(datasets.load("digits"), options)
    cells = [cell for cell in study.cells() if "reference" not in cell]
    assert [(c["mechanism"], c["level"], c["central_epsilon"]) for c in cells] == [
        ("codebook", "latent", "inf"),
        ("codebook", "latent", 5.0),
        ("vlm", "latent", "inf"),
        ("vlm", "latent", 5.0),
        ("vlm", "feature", "inf"),
        ("vlm", "feature", 5.0),
        ("direct", "latent", "inf"),
    ]


def test_one_set_of_reports_answers_all_tasks() -> None:
    study = Agnostic(datasets.load("digits"), quick("codebook", epsilons=(8.0,)))
    found = {r["task"]: r for r in run_study(study).to_plain()["results"]}
    assert set(found) == {"digit", "parity", "at least 5", "has a loop"}
    assert found["digit"]["clean_accuracy"] == found["digit"]["dedicated_accuracy"]
    for task in ("parity", "at least 5", "has a loop"):
        # Whoever reads the digit knows the answer; ties between digits may cost a little.
        least = found["digit"]["clean_accuracy"]["mean"] - 0.03
        assert found[task]["clean_accuracy"]["mean"] > least
        assert found[task]["dedicated_accuracy"]["mean"] > found[task]["chance"]


def test_what_is_said_of_rows_that_a_classifier_sees_once_more() -> None:
    """A central ε is the encoder's; a classifier that is taught in-house has none."""
    options = CollectParameters(mechanisms=("codebook",), epsilons=(4.0,), central=(5.0,), trials=1)
    study = NovelClass(datasets.load("digits"), options)
    facts = study.measure(study.cells()[1]).facts
    assert "-DP (central" in facts["encoder_guarantee"]
    assert facts["inhouse_guarantee"].startswith("not private")
    joined = Join(datasets.load("digits"), quick("codebook"))
    cell = joined.cells()[-1]
    assert joined.measure(cell).facts["inhouse_guarantee"].startswith("not private")


# --- stopped, and going on -----------------------------------------------------------------------

STOPPED = ("study", "collect", "--quick", "--mechanisms", "codebook", "--epsilons", "1,2,4,6,8,10")


def start(path: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from tacit.apps.cli import run; run()", *STOPPED]
    command += ["--json", str(path)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_killed_at_half_and_started_again(run: Run, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.json", tmp_path / "killed.json"
    assert run(*STOPPED, "--json", whole).code == 0
    count = len(json.loads(whole.read_text())["runs"])
    process = start(killed)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if killed.exists() and len(json.loads(killed.read_text())["runs"]) >= count // 2:
            break
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    half = len(json.loads(killed.read_text())["runs"])
    assert 0 < half < count
    again = run(*STOPPED, "--json", killed)
    assert again.code == 0
    assert len(again.err.splitlines()) == count - half  # the rest, and nothing twice
    records = [json.loads(path.read_text()) for path in (whole, killed)]
    assert timeless(records[0]) == timeless(records[1])


def test_figures_from_several_records(run: Run, tmp_path: Path) -> None:
    for number, epsilon in enumerate((2, 8)):
        options = ("--quick", "--mechanisms", "codebook", "--epsilons", epsilon)
        assert run("study", "collect", *options, "--json", tmp_path / f"{number}.json").code == 0
    both = (tmp_path / "0.json", tmp_path / "1.json")
    assert run("study", "figure", *both, "--plot", tmp_path / "both.svg").code == 0
    assert "<svg" in (tmp_path / "both.svg").read_text()
    clean = plots.draw([json.loads(path.read_text()) for path in both]).axes[0]
    assert {2.0, 8.0} <= {float(x) for line in clean.lines for x in line.get_xdata()}
    twice = run("study", "figure", both[0], both[0], "--plot", tmp_path / "twice.png")
    assert twice.code == 2
    assert not (tmp_path / "twice.png").exists()


# --- a table of one's own ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(work: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 1500)
    age = np.clip(rng.normal(30 + 30 * kind, 8), 0, 100).round(1)
    job = np.array(["baker", "smith"])[(kind + (rng.random(1500) < 0.2)) % 2]
    loyal = np.array(["no", "yes"])[kind]
    lines = [f"{a},{j},{y}" for a, j, y in zip(age, job, loyal, strict=True)]
    (work / "people.csv").write_text("age,job,loyal\n" + "\n".join(lines) + "\n")
    schema = TableSchema((Continuous("age", 0, 100), Categorical("job", ("baker", "smith"))))
    label = {"column": "loyal", "classes": ["no", "yes"]}
    plain = {**schema.to_plain(), "label": label, "join": ["job"]}
    (work / "people.json").write_text(json.dumps(plain))
    return work / "people.csv", work / "people.json"


@pytest.mark.parametrize("study", ["collect", "join", "search"])
def test_a_table_of_ones_own(
    run: Run, tmp_path: Path, table: tuple[Path, Path], study: str
) -> None:
    data, schema = table
    asked = ("--data", data, "--schema", schema, "--quick", "--mechanisms", "codebook")
    outcome = run("study", study, *asked, "--epsilons", 6, "--json", tmp_path / "r.json")
    assert outcome.code == 0, outcome.err
    (result,) = json.loads((tmp_path / "r.json").read_text())["results"]
    assert result["features"] == "quantile"
    measure = {"join": "semi_private_accuracy", "search": "test_accuracy"}.get(
        study, "clean_accuracy"
    )
    assert result[measure]["mean"] > 0.8
    if study == "collect":
        assert result["clean_auc"]["mean"] > result["clean_accuracy"]["mean"]


def test_a_record_does_not_go_on_with_another_schema(
    run: Run, tmp_path: Path, table: tuple[Path, Path]
) -> None:
    """Another label or other bounds are another study."""
    data, schema = table
    asked = ("study", "collect", "--data", data, "--quick", "--mechanisms", "codebook")
    record = tmp_path / "r.json"
    first = run(*asked, "--schema", schema, "--epsilons", 6, "--json", record)
    assert first.code == 0
    other = tmp_path / "other.json"
    other.write_text(schema.read_text().replace("100", "200"))
    before = record.read_bytes()
    again = run(*asked, "--schema", other, "--epsilons", 6, "--json", record)
    assert again.code == 2
    assert "data and schema must be those" in again.err
    assert record.read_bytes() == before


# --- bad input -----------------------------------------------------------------------------------

WRONG = {
    "data": (("collect", "--data", "nothing"), "data must be one of adult, cifar10, digits"),
    "mechanism": (("join", "--mechanisms", "vlm-paper"), "mechanisms must be one of"),
    "twice": (("collect", "--mechanisms", "vlm,vlm"), "each once"),
    "no mechanism": (("collect", "--mechanisms", ","), "names with commas"),
    "epsilon": (("collect", "--epsilons", "1,0"), "epsilon must be above 0"),
    "no number": (("collect", "--epsilons", "one"), "numbers with commas"),
    "nan": (("collect", "--central", "nan"), "numbers with commas"),
    "central": (("collect", "--central", "-1"), "epsilon must be above 0"),
    "infinite": (("collect", "--epsilons", "inf"), "epsilon must be"),
    "level": (("collect", "--level", "pixel"), "level must be one of latent, feature"),
    "features": (("collect", "--features", "nice"), "features must be one of"),
    "trials": (("collect", "--trials", "0"), "trials must be"),
    "seed": (("collect", "--seed", "-1"), "seed must be"),
    "device": (("collect", "--device", "abacus"), "device must be"),
    "no GPU": (("collect", "--device", "cuda"), "device must be cpu or auto"),
    "suffix": (("collect", "--plot", "figure.bmp"), "file must be one of .png"),
    "no folder": (("collect", "--json", "nowhere/r.json"), "in an existing folder"),
    "two classes": (("novel-class", "--data", "TABLE"), "classes must be at least 3"),
    "new": (("novel-class", "--new", "11"), "the novel class must be one of the 10 classes"),
    "columns": (("join", "--columns", "signal"), "join must be one of"),
    "tasks": (("agnostic", "--data", "TABLE"), "with several tasks"),
    "no schema": (("collect", "--data", "BARE"), "schema must be"),
    "no record": (("figure", "TABLE-CSV", "--plot", "f.png"), "must be the record of a study"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_one_line(
    refuse: Callable[..., str], table: tuple[Path, Path], case: str
) -> None:
    arguments, line = WRONG[case]
    asked: list[object] = []
    for argument in arguments:
        asked += {
            "TABLE": [table[0], "--schema", table[1]],
            "BARE": [table[0]],
            "TABLE-CSV": [table[0]],
        }.get(argument, [argument])
    more = () if arguments[0] == "figure" else ("--quick",)
    assert line in refuse("study", *asked, *more)


def test_every_study_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for study in (*STUDIES, "figure"):
        assert main(["study", study, "--help"]) == 0
        assert f"tacit study {study}" in capsys.readouterr().out
