"""The study of DP-SGD: its models, its record, its accounting, its table and its figure."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tacit.central.training.probing import clipped_sum
from tacit.data import datasets
from tacit.data.datasets.base import Dataset
from tacit.privacy import errors, events, gaussian
from tacit.privacy.accounting import privacy_loss
from tacit.privacy.randomness import Seeded
from tacit_papers import figures as plots
from tacit_papers.engine.running import run as run_study
from tacit_papers.parts import dpsgd_features, dpsgd_models, dpsgd_settings
from tacit_papers.studies.dpsgd import PUBLISHED, Dpsgd, DpsgdParameters, spent, table

Run = Callable[..., Any]
LINEAR = ("scattering-plain", "scattering")
FEW = DpsgdParameters.quickly(models=LINEAR, epsilons=(8.0,), trials=2)


@pytest.fixture(scope="module", name="digits")
def _digits() -> Dataset:
    return datasets.load("digits")


@pytest.fixture(scope="module", name="found")
def _found(digits: Dataset) -> dict[str, Any]:
    return run_study(Dpsgd(digits, FEW)).to_plain()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Nothing is needed."""
    return tmp_path


def test_a_quick_study(run: Run, tmp_path: Path) -> None:
    json_file, plot = tmp_path / "r.json", tmp_path / "r.png"
    asked = ("study", "dpsgd", "--quick", "--models", "scattering-plain", "--json", json_file)
    outcome = run(*asked, "--plot", plot)
    assert outcome.code == 0, outcome.err
    record = json.loads(json_file.read_text())
    assert record["study"] == "dpsgd"
    assert record["parameters"]["data"] == "digits"
    assert [one["epsilon"] for one in record["results"]] == list(DpsgdParameters.quickly().epsilons)
    assert len(record["runs"]) == 3 == len(outcome.err.splitlines())
    assert "mean nothing" in outcome.out
    with Image.open(plot) as picture:
        assert len(set(picture.convert("L").resize((80, 40)).get_flattened_data())) > 5
    again = run(*asked)
    assert again.code == 0
    assert again.err == ""  # all runs were there


def test_what_a_record_holds(found: dict[str, Any]) -> None:
    assert [one["model"] for one in found["results"]] == list(LINEAR)
    for one in found["results"]:
        assert one["epsilon"] == 8.0
        assert one["delta"] == 1e-5
        assert set(one["accuracy"]) == {"mean", "std", "trials"}
        assert len(one["accuracy"]["trials"]) == 2
        assert one["accuracy"]["mean"] > 0.8  # of ten classes, from 600 images
    for model in LINEAR:
        assert found["references"][f"{model}_without_privacy"]["mean"] > 0.9
    assert "scattering at 8" in found["parameters"]["settings"]
    assert "published" not in found["data"]  # those are of other images


def test_accountants_agree_with_a_direct_computation(found: dict[str, Any]) -> None:
    """All images in every step: the steps are one Gaussian, whose ε is known exactly."""
    for one in found["results"]:
        assert one["sampling_probability"] == 1.0
        alone = one["noise_multiplier"] / one["steps"] ** 0.5
        assert one["epsilon_pld"] == pytest.approx(gaussian.epsilon_of(alone, 1e-5), rel=1e-6)
        assert one["epsilon_pld"] <= 8.0 < one["epsilon_rdp"]
    beside = events.Gaussian(1, 20, adjacency="add-remove", unit="record")
    training = privacy_loss.subsampled_gaussian(1.1, 0.02, 100)
    both = spent(events.Composed((beside, training)), 1e-5)
    assert (both["noise_multiplier"], both["steps"]) == (pytest.approx(1.1), 100)
    assert both["epsilon_rdp"] > both["epsilon_pld"] > spent(training, 1e-5)["epsilon_pld"]


def test_the_network_of_the_paper(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shape and settings reach the estimator; what that runs is what is accounted."""
    made: list[dict[str, Any]] = []

    class Stand:
        event_ = privacy_loss.subsampled_gaussian(2.0, 0.1, 30)

        def __init__(self, **given: Any) -> None:
            made.append(given)

        def fit(self, rows: Any, labels: Any) -> None:
            assert rows.shape == (600, 64)
            assert 0 <= rows.min() < rows.max() <= 1

        def predict(self, rows: Any) -> Any:
            return np.zeros(len(rows), np.int64)

    monkeypatch.setattr(dpsgd_models, "MLPClassifier", Stand)
    study = Dpsgd(digits, replace(FEW, models=("paper",), epsilons=(2.0,)))
    measured = study.measure({"model": "paper", "epsilon": 2.0, "trial": 0})
    (given,) = made
    assert given["hidden_layer_sizes"] == (1000,)
    assert given["components"] == 60
    assert (given["epsilon"], given["delta"], given["batch_size"]) == (2.0, 1e-5, 60)
    assert measured.facts["steps"] == 30
    assert measured.values["accuracy"] < 0.2


@pytest.mark.slow
def test_the_network_of_the_paper_learns(digits: Dataset) -> None:
    study = Dpsgd(digits, replace(FEW, models=("paper",), trials=1))
    found = run_study(study).to_plain()
    (one,) = found["results"]
    assert one["accuracy"]["mean"] > 0.6
    assert 7.6 < one["epsilon_pld"] <= 8.0
    assert found["references"]["paper_without_privacy"]["mean"] > 0.9


def test_an_image_is_clipped_once_whatever_its_views() -> None:
    """One image moves the sum by the clip norm at most, and its views count as one."""
    rows = torch.randn(1, 8, 21, generator=torch.Generator().manual_seed(0))
    layer = torch.nn.Linear(21, 10, bias=False)
    labels = torch.tensor([3])
    (many,), _ = clipped_sum(layer, dpsgd_models._losses, (rows, labels), 1e-3)
    assert many.norm() == pytest.approx(1e-3, rel=1e-3)
    (whole,), _ = clipped_sum(layer, dpsgd_models._losses, (rows, labels), 1e6)
    each = [
        clipped_sum(layer, dpsgd_models._losses, (rows[:, i : i + 1], labels), 1e6)[0][0]
        for i in range(8)
    ]
    assert torch.allclose(whole, torch.stack(each).mean(0), atol=1e-5)


def test_rows_depend_on_their_own_image_alone(digits: Dataset) -> None:
    """Wherever it stands and whoever is beside it; the first view is the image itself."""
    pixels = digits.schema.rows(digits.rows[:40]).numbers
    rows = dpsgd_features.rows_of(pixels, (8, 8), 3, "cpu", quick=True)
    others = dpsgd_features.rows_of(pixels[::-1][:25].copy(), (8, 8), 1, "cpu", quick=True)
    assert rows.shape[:2] == (40, 3)
    np.testing.assert_allclose(np.linalg.norm(rows[..., :-1], axis=2), 1, rtol=1e-5)
    np.testing.assert_array_equal(rows[..., -1], np.float32(dpsgd_features.CONSTANT))
    np.testing.assert_allclose(others[:, 0], rows[::-1][:25, 0], atol=2e-5)
    again = dpsgd_features.rows_of(pixels[7:9], (8, 8), 3, "cpu", quick=True)
    np.testing.assert_allclose(again, rows[7:9], atol=2e-5)
    assert np.abs(rows[:, 1] - rows[:, 0]).max() > 0.05


def test_views_are_small_changes() -> None:
    """A lit corner stays near it; no change at all gives the image back."""
    image = np.zeros((1, 28, 28), np.float32)
    image[0, 4:8, 4:8] = 1
    still = torch.tensor([[[1.0, 0, 0], [0, 1.0, 0]]])
    there = torch.from_numpy(image)
    torch.testing.assert_close(dpsgd_features._changed(there, still), there)
    maps = dpsgd_features._maps(image, 200)[0]
    drawn = torch.cat([dpsgd_features._changed(there, one[None]) for one in maps])
    mass = drawn.sum((1, 2))
    places = torch.stack([(drawn.sum(2 - axis) @ torch.arange(28.0)) / mass for axis in (0, 1)])
    assert (places - 5.5).abs().max() < 6
    assert places.std(dim=1).min() > 0.5


def test_features_are_those_of_scattering(digits: Dataset) -> None:
    """The path for a GPU, run on the processor."""
    pixels = torch.from_numpy(digits.schema.rows(digits.rows[:5]).numbers).reshape(-1, 8, 8)
    usual = dpsgd_features.features(pixels, (8, 8), "cpu")
    other = dpsgd_features.features(pixels, (8, 8), "cpu:0")
    torch.testing.assert_close(other, usual, atol=1e-5, rtol=1e-4)


def test_the_same_seed_gives_the_same_numbers(digits: Dataset) -> None:
    cell = {"model": "scattering-plain", "epsilon": 2.0, "trial": 0}
    asked = replace(FEW, models=("scattering-plain",), epsilons=(2.0,))
    task = Dpsgd(digits, asked)
    assert task.measure(cell) == task.measure(cell)
    rows = np.random.default_rng(0).normal(size=(60, 2, 5)).astype(np.float32)
    made = dpsgd_models.Task(rows, np.arange(60) % 3, rows, 3, "cpu")
    chosen = {**dpsgd_settings.of("scattering", 2.0, 60, quick=True), "steps": 3}
    first, other = (dpsgd_models.linear(made, 2.0, 1e-5, chosen, Seeded(i)) for i in (1, 2))
    assert (first[0] != other[0]).any()


def test_settings_of_the_nearest_epsilon() -> None:
    near = dpsgd_settings.of("scattering", 3.0, 60_000)
    assert near == dpsgd_settings.of("scattering", 2.0, 60_000)
    assert near["batch_size"] == 60_000
    assert near != dpsgd_settings.of("scattering", 5.0, 60_000)
    assert dpsgd_settings.of("paper", 0.01, 3)["batch_size"] == 1


def as_of_mnist(found: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(json.dumps(found))
    record["parameters"]["data"], record["data"]["published"] = "mnist", PUBLISHED
    record["references"]["paper_without_privacy"] = record["references"].popitem()[1]
    return record


def test_a_line_for_each_model(found: dict[str, Any]) -> None:
    title, header, lines = table(as_of_mnist(found))
    assert "600 training images" in title
    assert "2 trials" in title
    assert all(len(line) == len(header) for line in lines)
    published = [dict(zip(header, line, strict=True))["Abadi"] for line in lines]
    assert published == ["0.970", "0.970", "–", "0.983"]


def test_the_figure_shows_what_was_published(found: dict[str, Any], tmp_path: Path) -> None:
    figure = plots.draw([as_of_mnist(found)])
    plots.save(figure, tmp_path / "f.svg")
    (panel,) = figure.axes
    points = [(x, y) for line in panel.lines for x, y in zip(*line.get_data(), strict=True)]
    assert {(0.5, 0.9), (2.0, 0.95), (8.0, 0.97)} <= {(x, y) for x, y in points}
    low, high = panel.get_xlim()
    assert low < 0.5 < 8.0 < high
    assert panel.get_xscale() == "log"
    assert len(plots.draw([found]).axes[0].lines) < len(panel.lines)  # not theirs on other images
    broken = json.loads(json.dumps(found))
    del broken["results"][0]["model"]
    with pytest.raises(errors.InvalidData, match="DP-SGD must have"):
        plots.draw([broken])


def test_only_images() -> None:
    schema = replace(datasets.load("digits").schema, image=None)
    dataset = replace(datasets.load("digits"), schema=schema)
    with pytest.raises(errors.InvalidParameter, match="data must be images"):
        Dpsgd(dataset, FEW)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--models", "magic"), "models must be one of"),
        (("--epsilons", "0"), "epsilon must be above 0"),
        (("--epsilons", "x"), "epsilons must be numbers"),
        (("--delta", "0"), "delta must be in (0, 1)"),
        (("--trials", "0"), "trials must be"),
        (("--device", "abacus"), "device must be"),
        (("--json", "no/folder.json"), "existing folder"),
    ],
)
def test_refusals(refuse: Any, arguments: tuple[str, ...], message: str) -> None:
    assert message in refuse("study", "dpsgd", "--quick", *arguments)


def test_the_page(found: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers beside the paper's, and a word where ours are below."""
    results = importlib.import_module("tacit_papers.pages.site")
    record = as_of_mnist(found)
    first, second = record["results"]
    first["accuracy"] |= {"mean": 0.96, "std": 0.005}
    second["accuracy"] |= {"mean": 0.985, "std": 0.005}
    record["references"] = {f"{model}_without_privacy": {"mean": 0.99} for model in LINEAR}
    for free in record["references"].values():
        free |= {"std": 0.0, "trials": [0.99]}
    (tmp_path / "dpsgd.json").write_text(json.dumps(record))
    page = results.pages(tmp_path)["dpsgd.md"]
    assert "- `scattering-plain`: **below it** at ε = 8 (in points −1.0)." in page
    assert "- `scattering`: above the paper at ε = 8 (in points +1.5)." in page
    assert "- ε = 8: `scattering`, 98.50%; 0.5 points below" in page
    assert "| *Abadi et al.* | 0.970 | 0.983 |" in page
    assert "--models scattering-plain,scattering" in page
    assert "Not measured yet" not in page
    first["accuracy"]["std"] = 0.01  # of two trials: a point is no difference
    (tmp_path / "dpsgd.json").write_text(json.dumps(record))
    level = results.pages(tmp_path)["dpsgd.md"]
    assert "- `scattering-plain`: level with it at ε = 8 (in points −1.0)." in level
