"""The study of estimators: its rows and bounds, its record, its table, its figure, its page."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.privacy import errors
from tacit_papers import figures as plots
from tacit_papers.engine.running import run as run_study
from tacit_papers.engine.running import words
from tacit_papers.parts import classifier_data, classifier_models
from tacit_papers.parts.classifier_data import encodings
from tacit_papers.parts.classifier_models import CLASSIFIERS, REGRESSORS, Peer
from tacit_papers.studies.classifiers import Classifiers, ClassifiersParameters, table

Run = Callable[..., Any]
ROOT = Path(__file__).parents[3]
SCHEMA = TableSchema(
    (
        Continuous("age", 0, 100, missing="indicate", outside="clip"),
        Categorical("kind", ("a", "b", "c"), unseen="other"),
        Continuous("size", -1, 3),
        Categorical("sex", ("f", "m")),
    )
)
FAKE = """import json, sys
asked = json.load(sys.stdin)
print(json.dumps({"version": "9.9", "score": -1e6 / asked.get("epsilon", 1)}))
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Nothing is needed."""
    return tmp_path


@pytest.fixture(scope="module", name="found")
def _found() -> dict[str, Any]:
    case = classifier_data.load("diabetes")
    asked = ClassifiersParameters(("LinearRegression", "Ridge"), (0.1, 10.0), trials=2)
    return run_study(Classifiers(case, asked)).to_plain()


@pytest.fixture(name="peer")
def _peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """A Python that answers like diffprivlib would."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setattr(classifier_models.classifier_peer, "__file__", str(script))
    return Peer(sys.executable)


def rows(**columns: Any) -> Any:
    usual = {"age": [50.0, None, 999.0], "kind": ["a", "c", "?"], "size": [3.0, 1.0, -1.0]}
    return pa.table({**usual, "sex": ["m", "f", "m"], **columns})


def test_encodings_are_within_public_bounds_and_norm() -> None:
    indicators, numbered = encodings(SCHEMA, rows())
    # Numbers, the mark of a missing age, three kinds and others, two sexes.
    expected = [
        [0, 1, 0, 1, 0, 0, 0, 0, 1],
        [0, 0, 1, 0, 0, 1, 0, 1, 0],
        [1, -1, 0, 0, 0, 0, 1, 0, 1],
    ]
    assert indicators.X.tolist() == expected
    assert indicators.lower.tolist() == [-1, -1, *[0] * 7]
    assert indicators.norm == 2.0 == np.linalg.norm(indicators.X, axis=1).max()
    assert [bound.tolist() for bound in indicators.centred] == [[-1] * 9, [1] * 9]
    assert numbered.X.tolist() == [[0, 1, 0, 0, 1], [0, 0, 1, 2, 0], [1, -1, 0, 3, 1]]
    assert numbered.upper.tolist() == [1, 1, 1, 3, 1]
    assert numbered.norm is None


def test_bounds_do_not_follow_the_rows() -> None:
    """Nothing that estimators are told depends on the values."""
    for one, other in zip(
        encodings(SCHEMA, rows()),
        encodings(SCHEMA, rows(age=[1.0, 2.0, 3.0], kind=["a", "a", "a"])),
        strict=True,
    ):
        assert one.norm == other.norm
        assert np.array_equal([one.lower, one.upper], [other.lower, other.upper])


def test_loans_keep_the_rate_out_of_the_rows() -> None:
    columns = {column.name for column in classifier_data.LOANS.columns}
    assert not columns & {"int_rate", "installment", "grade", "sub_grade", "loan_status"}
    count = 5
    codes = {c.name: np.array([-1, 0, 0, 0, 0]) for c in classifier_data.LOANS.categorical}
    numbers = {c.name: np.full(count, np.nan) for c in classifier_data.LOANS.continuous[2:]}
    numbers |= {"loan_amnt": np.full(count, 1e9), "int_rate": np.arange(5.0) + 10}
    made = classifier_data.loans.Loans(np.full(count, 2010.0), codes["term"], numbers, codes)
    case = classifier_data.of_loans("lending_club", made, Path(__file__))
    assert case.measure == "r2"
    assert case.target.tolist() == [10, 11, 12, 13, 14]
    assert case.indicators.X[:, 1].tolist() == [1] * count  # held to its bound
    for rows_of in (case.indicators, case.numbered):
        assert (rows_of.lower <= rows_of.X).all()
        assert (rows_of.upper >= rows_of.X).all()


def test_every_algorithm_is_known_and_one_is_the_default() -> None:
    for name, algorithms in {**CLASSIFIERS, **REGRESSORS}.items():
        assert sum(classifier_models.is_default(name, one) for one in algorithms) == 1


def test_a_quick_study(run: Run, tmp_path: Path) -> None:
    json_file, plot = tmp_path / "r.json", tmp_path / "r.png"
    asked = ("--estimators", "LinearSVC,SVC", "--json", json_file)
    outcome = run("study", "classifiers", "--quick", *asked, "--plot", plot)
    assert outcome.code == 0, outcome.err
    assert "mean nothing" in outcome.out
    assert "no diffprivlib" in outcome.out.replace("\n", " ")
    record = json.loads(json_file.read_text())
    assert record["study"] == "classifiers"
    assert len(record["runs"]) == 1 + 2 + 2 + 2
    for one in record["results"]:
        expected = (None, None) if one["library"] == "scikit-learn" else (3.0, 1e-6)
        assert (one["epsilon"], one["delta"]) == expected
        assert len(one["accuracy"]["trials"]) == 1
    assert 0 < record["references"]["chance"] < 0.3
    with Image.open(plot) as picture:
        assert len(set(picture.convert("L").resize((80, 40)).get_flattened_data())) > 5
    again = run("study", "classifiers", "--quick", *asked)
    assert again.code == 0
    assert again.err == ""  # all runs were there


def test_numbers(found: dict[str, Any]) -> None:
    assert found["data"]["measure"] == "r2"
    assert found["references"] == {}

    def mean(name: str, library: str, algorithm: str | None, epsilon: float | None) -> float:
        wanted = (name, library, algorithm, epsilon)
        keys = ("estimator", "library", "algorithm", "epsilon")
        (one,) = [r for r in found["results"] if tuple(r[k] for k in keys) == wanted]
        return float(one["r2"]["mean"])

    free = mean("LinearRegression", "scikit-learn", None, None)
    assert 0.3 < free < 0.6
    for algorithm in REGRESSORS["LinearRegression"]:
        strict, loose = (mean("LinearRegression", "tacit", algorithm, e) for e in (0.1, 10.0))
        assert strict < loose < free + 0.1
        assert loose > 0.2
    guarantees = {(r["algorithm"], r["delta"]) for r in found["results"] if r["library"] == "tacit"}
    assert guarantees == {("gradient", 1e-6), ("adassp", 1e-6), ("functional", 0.0)}


def test_the_same_seed_gives_the_same_numbers() -> None:
    case = classifier_data.load("diabetes")
    study = Classifiers(case, ClassifiersParameters(("Ridge",), (1.0,)))
    cells = [cell for cell in study.cells() if cell.get("algorithm") == "gradient"]
    first, second = (study.measure(cell) for cell in cells[:2])
    assert study.measure(cells[0]) == first != second
    other = Classifiers(case, ClassifiersParameters(("Ridge",), (1.0,), seed=1))
    assert other.measure(cells[0]) != first
    assert words(cells[0]) == "Ridge, gradient, tacit, ε = 1, trial 1"


def test_trials_split_anew_without_overlap() -> None:
    case = classifier_data.load("digits")
    train, test = case.split(case.indicators, 0)
    assert (len(train.y), len(test.y)) == (1438, 359)
    assert sorted([*train.y, *test.y]) == sorted(case.target)
    assert case.split(case.indicators, 1)[1].y.tolist() != test.y.tolist()


def test_a_peer(found: dict[str, Any], peer: Peer) -> None:
    case = classifier_data.load("diabetes")
    study = Classifiers(
        case, ClassifiersParameters(("LinearRegression",), (0.1, 10.0), trials=1), peer
    )
    record = study.record()
    assert record.versions["diffprivlib"] == "9.9"
    assert record.parameters["peer"] == "PYTHON"  # no path of a machine
    cells = [cell for cell in study.cells() if cell.get("library") == "diffprivlib"]
    assert [study.measure(cell).values["r2"] for cell in cells] == [-1e7, -1e5]
    found = run_study(study).to_plain()
    title, _, lines = table(found)
    assert "no diffprivlib" not in title
    assert ("LinearRegression\n  diffprivlib", "< −10", "< −10") in [line[:3] for line in lines]
    figure = plots.draw([found])
    texts = [text.get_text() for text in figure.axes[1].texts]
    assert "diffprivlib\n(below)" in texts


def test_what_only_the_peer_has(peer: Peer) -> None:
    case = classifier_data.load("digits")
    study = Classifiers(case, ClassifiersParameters(("LinearSVC",), (1.0,), trials=1), peer)
    theirs = [c["estimator"] for c in study.cells() if c.get("library") == "diffprivlib"]
    assert theirs == ["GaussianNB"]


def test_table_figure_and_page(
    found: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    title, header, lines = table(found)
    assert "R²" in title
    assert "--peer" in title
    assert header == ("", "ε = 0.1", "ε = 10", "ε = ∞")
    assert [line[0] for line in lines][:2] == [
        "LinearRegression\n  gradient*",
        "LinearRegression\n  adassp",
    ]
    figure = plots.draw([found])
    plots.save(figure, tmp_path / "f.svg")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Defaults",
        "Linear regression",
        "Ridge",
    ]
    broken = json.loads(json.dumps(found))
    del broken["results"][-1]["algorithm"]
    with pytest.raises(errors.InvalidData, match="study of classifiers must have"):
        plots.draw([broken])
    (tmp_path / "r.json").write_text(json.dumps(found))
    page = importlib.import_module("tacit_papers.pages.site").pages(tmp_path)["classifiers.md"]
    assert "| LinearRegression | gradient (default) |" in page
    assert "- ε = 10: **" in page
    assert "*Not measured yet: diffprivlib.*" in page
    assert "tacit study classifiers --data diabetes --estimators LinearRegression,Ridge" in page


def result(algorithm: str, epsilon: float | None, mean: float, **more: Any) -> dict[str, Any]:
    # The split moves every trial by much, and all of them alike; the noise by little.
    noise = [0.01, -0.01, 0.0] if algorithm == "gradient" else [0.0] * 3
    moves = zip((0.1, -0.1, 0.0), noise, strict=True)
    measured = {"mean": mean, "std": 0.01, "trials": [mean + a + b for a, b in moves]}
    library = more.pop("library", "tacit")
    usual = {"library": library, "estimator": "LogisticRegression", "algorithm": algorithm}
    return {**usual, "epsilon": epsilon, "accuracy": measured, **more}


def test_sentences_follow_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    page = importlib.import_module("tacit_papers.pages.classifiers")
    evidence = importlib.import_module("tacit_papers.pages.evidence").StudyEvidence

    def said(gradient: float, objective: float) -> Any:
        results = [
            result("gradient", 1.0, gradient, default=True, mostly_noise=[False]),
            result("objective", 1.0, objective, default=False, mostly_noise=[True]),
            {**result("", None, 0.9, library="scikit-learn"), "algorithm": None},
            {**result("", 1.0, 0.7, library="diffprivlib"), "algorithm": None},
        ]
        record = {"file": "a.json", "results": results, "references": {"chance": 0.6}}
        return evidence([{**record, "data": {"measure": "accuracy"}}])

    ahead, behind = said(0.85, 0.8), said(0.65, 0.8)
    assert "gradient has the highest mean at every ε" in page.defaults(ahead)
    assert "objective at ε = 1 by 0.150 (**more than one standard deviation**)" in page.defaults(
        behind
    )
    assert "(within one standard deviation)" in page.defaults(said(0.795, 0.8))
    assert "**LogisticRegression (gradient)**, 0.850" in page.best(ahead)
    assert "diffprivlib's LogisticRegression, −0.150" in page.best(ahead)
    assert "ours less theirs: −0.050 at ε = 1." in page.peer(behind)
    assert "LogisticRegression: −0.250 at ε = 1" in page.price(behind)
    assert page.trivial(ahead).startswith("Everything is better")
    lost = page.trivial(said(0.6, 0.55))
    assert "LogisticRegression (gradient) at ε = 1; LogisticRegression (objective)" in lost
    assert "did not warn in these cases: LogisticRegression (gradient) at ε = 1." in lost


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--estimators", "magic"), "estimators must be one of"),
        (("--estimators", "Ridge"), "estimators for digits must be one of"),
        (("--data", "mars"), "data must be one of"),
        (("--epsilons", "0"), "epsilon must be above 0"),
        (("--delta", "0"), "delta must be in (0, 1)"),
        (("--trials", "0"), "trials must be"),
        (("--peer", "no-such-python"), "--peer must be a Python with diffprivlib"),
        (("--json", "no/folder.json"), "existing folder"),
    ],
)
def test_refusals(refuse: Any, arguments: tuple[str, ...], message: str) -> None:
    assert message in refuse("study", "classifiers", "--quick", *arguments)


def test_quick_is_quick() -> None:
    assert ClassifiersParameters.quickly().trials == 1
    study = Classifiers(classifier_data.load("digits"), ClassifiersParameters.quickly())
    assert study.record().data["training"] == 400
