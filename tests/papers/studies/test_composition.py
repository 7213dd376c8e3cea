"""The study of ways of accounting: noise, claims, attacks, its record, page and figure."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tacit.data import datasets
from tacit.privacy import errors
from tacit.privacy.accounting.accountants import NAMES
from tacit_papers import figures as plots
from tacit_papers.engine.record import Record
from tacit_papers.engine.running import run as run_study
from tacit_papers.parts.composition_summary import table
from tacit_papers.studies import composition
from tacit_papers.studies.composition import Composition, CompositionParameters, ceiling

torch = pytest.importorskip("torch")
training = importlib.import_module("tacit_papers.parts.composition_training")

Run = Callable[..., Any]
ROOT = Path(__file__).parents[3]


def study(**asked: Any) -> Composition:
    return Composition(datasets.load("digits"), CompositionParameters.quickly(**asked))


@pytest.fixture(scope="module", name="record")
def _record() -> Record:
    return run_study(study(models=("logistic",), epsilons=(0.1,)))


@pytest.fixture(scope="module", name="network")
def _network() -> dict[str, Any]:
    return run_study(study(models=("network",), accountants=("rdp",))).to_plain()


@pytest.fixture(scope="module", name="found")
def _found(record: Record) -> dict[str, Any]:
    return record.to_plain()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Nothing is needed."""
    return tmp_path


# --- the record ----------------------------------------------------------------------------------


def test_what_others_rely_on(found: dict[str, Any]) -> None:
    free = found["references"]["logistic"]
    assert set(found["references"]) == {"chance", "logistic"}
    assert free["accuracy"]["mean"] > 2 * found["references"]["chance"]
    assert [(one["mechanism"], one["epsilon"]) for one in found["results"]] == [
        (name, 0.1) for name in NAMES
    ]
    for one in found["results"]:
        right = one["accuracy"]["mean"] / free["accuracy"]["mean"]
        assert one["accuracy_loss"]["mean"] == pytest.approx(1 - right, abs=1e-5)
        for kind in ("membership", "attribute"):
            low, high = one[f"{kind}_interval"]["mean"]
            assert -1 <= low <= one[f"{kind}_advantage"]["mean"] <= high <= 1
        assert one["ceiling"] == ceiling(one["epsilon"], 1e-5)
        assert one["proved_ceiling"] <= one["ceiling"]
        assert one["steps"] == 40


def test_no_claim_is_broken_and_naive_noise_is_wasted(found: dict[str, Any]) -> None:
    by = {one["mechanism"]: one for one in found["results"]}
    for one in by.values():
        assert one["pld_epsilon"] <= 0.1
        assert one["proved_epsilon"] <= one["pld_epsilon"]
    noise = {name: by[name]["noise_multiplier"] for name in NAMES}
    assert noise["naive"] > noise["advanced"] > noise["rdp"] > noise["pld"]
    assert noise["zcdp"] > noise["rdp"]
    assert by["naive"]["proved_epsilon"] < 0.02
    assert by["pld"]["proved_epsilon"] > 0.099


def test_noise_below_any_grid_is_proved_by_renyi(network: dict[str, Any]) -> None:
    much, little = network["results"]
    assert little["pld_epsilon"] is None
    assert 99 < little["proved_epsilon"] <= 100
    assert little["accuracy"]["mean"] > much["accuracy"]["mean"] + 0.2


def test_an_epsilon_beyond_the_largest_is_trained_with_more_noise() -> None:
    asked = study(models=("logistic",), accountants=("rdp",), epsilons=(1000.0,))
    (one,) = run_study(asked).to_plain()["results"]
    assert one["calibrated_epsilon"] == 700
    assert 690 < one["proved_epsilon"] <= 700
    assert one["ceiling"] == 1


def test_a_run_depends_on_its_cell_alone(record: Record) -> None:
    cell = {"mechanism": "advanced", "task": "logistic", "epsilon": 0.1, "trial": 0}
    before = record.find(cell)
    assert before is not None
    assert study(models=("logistic",)).measure(cell).values == before["values"]


def test_trials_have_members_of_their_own() -> None:
    asked = study()
    cells = [{"reference": "chance", "trial": trial} for trial in (0, 1)]
    first, second = (asked.measure(cell).values for cell in cells)
    assert first != second


# --- the ceiling ---------------------------------------------------------------------------------


def test_the_ceiling_is_reached_and_never_passed() -> None:
    """Chances of an event with the member, without it, and with another in its place."""
    rng = np.random.default_rng(0)
    for epsilon, delta in ((0.1, 0.0), (1.0, 0.0), (1.0, 0.05), (3.0, 1e-3)):
        empty = rng.uniform(size=20_000)
        most = np.minimum(
            np.exp(epsilon) * empty + delta, 1 - np.exp(-epsilon) * (1 - empty - delta)
        )
        least = 1 - np.minimum(
            np.exp(epsilon) * (1 - empty) + delta, 1 - np.exp(-epsilon) * (empty - delta)
        )
        gaps = np.minimum(most, 1) - np.maximum(least, 0)
        assert gaps.max() <= ceiling(epsilon, delta) + 1e-12
        assert gaps.max() > ceiling(epsilon, delta) - 1e-3
        # What holds where members are only added or removed is too little here.
        assert gaps.max() > math.tanh(epsilon / 2) + 0.01


# --- the attacks ---------------------------------------------------------------------------------


def test_a_model_that_knows_its_members_is_found_out() -> None:
    """One weight for each member: its label, if the first columns are as they were."""
    count = 40
    labels = torch.arange(2 * count) % 2
    rows = torch.zeros(2 * count, count + 2)
    rows[range(count), range(count)] = 1.0
    rows[range(2 * count), count + (torch.arange(2 * count) // 2 % 2)] = 1.0
    attribute = training.Attribute("side", [count, count + 1], np.eye(2, dtype=np.float32))
    sides = (rows[:count], labels[:count]), (rows[count:], labels[count:])
    asked = training.MembershipRecords(*sides, 2, attribute, np.array([0.5, 0.5]))
    module = torch.nn.Linear(count + 2, 2)
    torch.nn.init.zeros_(module.weight)
    torch.nn.init.zeros_(module.bias)
    module.weight.data[labels[:count], torch.arange(count)] = 5.0
    found = training.attacked(module, asked)
    assert found["training_accuracy"] == 1.0
    assert found["membership_interval"][0] > 0.5
    assert abs(found["attribute_advantage"]) < 0.2  # it says nothing about the side
    broken = torch.nn.Linear(count + 2, 2)
    torch.nn.init.constant_(broken.weight, math.inf)
    assert training.attacked(broken, asked)["membership_advantage"] == 0.0


def test_attributes_stand_where_rows_have_them() -> None:
    digits = training.attribute_of(datasets.load("digits"))
    assert [divmod(column, 8) for column in digits.columns] == [(3, 3), (3, 4), (4, 3), (4, 4)]
    assert digits.values.shape == (2, 4)


def test_the_attribute_of_a_table_is_one_block_of_indicators() -> None:
    pa = pytest.importorskip("pyarrow")
    from tacit.data.datasets.base import Dataset, Pools
    from tacit.data.schema import Categorical, Continuous, TableSchema

    columns = (
        Categorical("race", ("a", "b"), "other"),
        Continuous("age", 0, 10),
        Categorical("marital_status", ("x", "y", "z")),
        Categorical("sex", ("f", "m")),
    )
    rows = {"race": ["a", "b"], "age": [1.0, 2.0], "marital_status": ["z", "x"], "sex": ["f", "m"]}
    pools = Pools(np.arange(2), 1, 1, 1)
    made = Dataset("adult", pa.table(rows), np.array([0, 1]), (0, 1), TableSchema(columns), pools)
    found = training.attribute_of(made)
    assert found.name == "marital status"
    assert found.columns == [4, 5, 6]
    seen = training.records(made, np.arange(2), "cpu")
    assert seen.members[0][0, found.columns].tolist() == [0.0, 0.0, 1.0]
    assert seen.prior.tolist() == [0.5, 0.0, 0.5]


# --- table, figure, page -------------------------------------------------------------------------


def test_a_line_for_each_accountant(found: dict[str, Any]) -> None:
    title, header, lines = table(found)
    assert "300 members" in title
    assert header == ("", "ε = 0.1")
    assert [line[0] for line in lines] == [f"logistic\n  {n}" for n in (*NAMES, "no privacy")]


def test_the_figure_of_two_records(
    found: dict[str, Any], network: dict[str, Any], tmp_path: Path
) -> None:
    figure = plots.draw([found, network])
    assert len(figure.axes) == 6
    named = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert named == ["no privacy"] * 4  # both models' references are there
    lines = {line.get_label() for line in figure.axes[0].get_lines()}
    assert lines  # curves
    plots.save(figure, tmp_path / "c.png")
    broken = json.loads(json.dumps(found))
    del broken["results"][0]["membership_interval"]
    with pytest.raises(errors.InvalidData, match="study of composition must have"):
        plots.draw([broken])


@pytest.fixture(name="site")
def _site(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return importlib.import_module("tacit_papers.pages.site")


def test_the_page(
    site: ModuleType, found: dict[str, Any], network: dict[str, Any], tmp_path: Path
) -> None:
    records = [json.loads(json.dumps(one)) for one in (found, network)]

    def page() -> str:
        for name, one in zip(("logistic", "network"), records, strict=True):
            one["parameters"]["data"] = "mnist"
            (tmp_path / f"composition-mnist-{name}.json").write_text(json.dumps(one))
        return str(site.pages(tmp_path)["composition.md"])

    text = page()
    section = text.partition("## MNIST")[2].partition("## Adult")[0]
    assert "{" not in section
    assert "Not measured" not in section
    assert "No claim is broken." in section
    assert "above its ceiling in 0" in section
    assert "There is no record of this study on `adult`" in text
    first = records[0]["results"][0]
    first |= {"proved_epsilon": 0.2, "pld_epsilon": None, "calibrated_epsilon": 0.05}
    for one in records[0]["results"]:
        one["membership_interval"]["mean"] = [-0.1, 0.1]
    first["membership_interval"]["mean"] = [0.5, 0.6]
    text = page()
    assert "**Broken: naive at ε = 0.1.**" in text
    assert "above 0 in 1 of 5 settings (least ε: 0.1), and above its ceiling in 1." in text
    assert "At ε = 0.1 some noise is so small" in text
    assert "At ε = 0.1 the noise is that of 0.05" in text


# --- the command ---------------------------------------------------------------------------------


def test_a_quick_study(run: Run, tmp_path: Path) -> None:
    json_file, plot = tmp_path / "r.json", tmp_path / "r.svg"
    asked = ("--quick", "--models", "logistic", "--accountants", "zcdp", "--epsilons", ".1")
    outcome = run("study", "composition", *asked, "--json", json_file, "--plot", plot)
    assert outcome.code == 0, outcome.err
    assert "mean nothing" in outcome.out
    kept = json.loads(json_file.read_text())
    assert len(kept["runs"]) == 2 + 1 == len(outcome.err.splitlines())
    assert plot.stat().st_size > 1000
    again = run("study", "composition", *asked, "--json", json_file)
    assert again.code == 0
    assert again.err == ""  # all runs were there


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--models", "forest"), "models must be one of"),
        (("--accountants", "moments"), "accountants must be one of"),
        (("--epsilons", "0"), "epsilons must be from 1e-9 to 10000, got 0"),
        (("--epsilons", "inf"), "epsilons must be from 1e-9 to 10000"),
        (("--delta", "0"), "delta must be in (0, 1)"),
        (("--trials", "0"), "trials must be an integer from 1"),
        (("--data", "lending_club"), "data must be one of"),
        (("--json", "no/folder.json"), "existing folder"),
        (("--device", "tpu"), "device must be auto"),
    ],
)
def test_refusals(refuse: Any, arguments: tuple[str, ...], message: str) -> None:
    assert message in refuse("study", "composition", "--quick", *arguments)


def test_the_grid_is_the_papers() -> None:
    assert (min(composition.EPSILONS), max(composition.EPSILONS)) == (0.01, 1000.0)
