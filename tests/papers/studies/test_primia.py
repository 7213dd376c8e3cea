"""The study of hospitals: its runs, its guarantee, its table, its figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tacit.data import datasets
from tacit.federated.model import Data
from tacit.privacy import errors
from tacit_papers import figures as plots
from tacit_papers.engine.running import run as run_study
from tacit_papers.parts import primia_settings as settings
from tacit_papers.parts import primia_training as training
from tacit_papers.parts.primia_settings import MODELS
from tacit_papers.studies.primia import ALONE, TASKS, TOGETHER, Primia, PrimiaParameters, table

Run = Callable[..., Any]
Images = tuple[datasets.Dataset, datasets.Dataset]


@pytest.fixture(scope="module", name="images")
def _images() -> Images:
    try:
        found = [datasets.load(name, fetch=False) for name in ("pneumoniamnist", "mnist")]
    except datasets.MissingFile as error:
        pytest.skip(str(error))
    return found[0], found[1]


@pytest.fixture(scope="module", name="found")
def _found(images: Images) -> dict[str, Any]:
    return run_study(Primia(*images, PrimiaParameters.quickly(alone=True))).to_plain()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Nothing is needed."""
    return tmp_path


def test_every_hospital_spends_what_was_asked_and_no_more(found: dict[str, Any]) -> None:
    private = [one for one in found["results"] if one["epsilon"] is not None]
    assert len(private) == len(MODELS) * len(TASKS)
    for one in private:
        assert 0.95 * one["epsilon"] < one["spent_epsilon"] <= one["epsilon"]
        assert (one["delta"], one["rounds"]) == (1.9e-4, 2)
        assert one["hospitals"] == (3 if one["task"] == TOGETHER else 1)
        assert one["pretrained"] == (one["model"] == "pretrained")
    assert found["data"]["hospitals"] == [80, 80, 80]


def test_a_table_and_a_figure(found: dict[str, Any], tmp_path: Path) -> None:
    title, head, lines = table(found)
    assert "3 hospitals with 240 images" in title
    assert [line[:2] for line in lines] == [(m, e) for m in MODELS for e in ("6", "∞")]
    assert {len(line) for line in lines} == {len(head)}
    plots.save(plots.draw([found]), tmp_path / "p.png")
    with Image.open(tmp_path / "p.png") as picture:
        assert len(set(picture.convert("L").resize((80, 40)).get_flattened_data())) > 5
    for one in found["results"]:
        one = {k: v for k, v in one.items() if k != "mcc_validation"}
        with pytest.raises(errors.InvalidData, match="plots"):
            plots.draw([{**found, "results": [one]}])


def test_a_quick_study(run: Run, images: Images, tmp_path: Path) -> None:
    json_file = tmp_path / "r.json"
    asked = ("study", "primia", "--quick", "--models", "scratch", "--epsilons", "2,inf")
    outcome = run(*asked, "--json", json_file)
    assert outcome.code == 0, outcome.err
    record = json.loads(json_file.read_text())
    assert [one["epsilon"] for one in record["results"]] == [2.0, None]
    assert record["parameters"]["settings"]["scratch at ∞"]["momentum"] == 0.9
    assert "mean nothing" in outcome.out


def test_all_is_tried_in_turn(images: Images) -> None:
    study = Primia(*images, PrimiaParameters())
    assert len(study.cells()) == 3 * len(MODELS) * len(TASKS) * 8
    sizes = [len(one) for one in study._hospitals(1)]
    assert sum(sizes) == 4708
    assert max(sizes) - min(sizes) <= 1
    assert {one["task"] for one in study.cells()} == {TOGETHER, ALONE}


def test_public_images_must_fit(images: Images) -> None:
    few = replace(images[1], rows=images[1].rows[:, :14])
    with pytest.raises(errors.InvalidParameter, match="same size"):
        Primia(images[0], few, PrimiaParameters())
    with pytest.raises(errors.InvalidParameter, match="two classes"):
        Primia(images[1], images[1], PrimiaParameters())


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 10.0, 50.0, None])
def test_every_epsilon_has_settings(epsilon: float | None) -> None:
    for model in MODELS:
        chosen = settings.of(model, epsilon)
        assert chosen.frozen == (model == "pretrained" and epsilon is not None)


def test_a_normal_image_counts_more() -> None:
    outputs, labels = torch.tensor([[0.3, 0.1], [0.3, 0.1]]), torch.tensor([0, 1])
    each = torch.nn.functional.cross_entropy(outputs, labels, reduction="none")
    found = training.weighted(3.0)(outputs, labels)
    assert found.item() == pytest.approx((3 * each[0] + each[1]).item() / 2)


def test_features_of_public_images_repeat(images: Images) -> None:
    few = replace(images[1], rows=images[1].rows[:200], labels=images[1].labels[:200])
    one, same = (training.pretrain(few, epochs=1, seed=4) for _ in range(2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    model = training.network((28, 28), settings.of("pretrained", 1.0), one, seed=0)
    assert model.layout.size == 2 * 64 * 49 + 2


@pytest.mark.slow
def test_hospitals_together_learn_under_noise(images: Images) -> None:
    study = Primia(*images, PrimiaParameters())
    chosen = replace(settings.of("pretrained", 6.0), rounds=10, learning_rate=16.0)
    model = training.network((28, 28), chosen, study._pretrained(0), seed=0)
    found = training.private(model, study._hospitals(0), chosen, epsilon=6.0, delta=1.9e-4)
    assert found.epsilon is not None
    assert found.epsilon <= 6.0
    assert found.quality(study._data("validation")).mcc > 0.75
    shuffled = study._data("validation")
    labels = np.random.default_rng(0).permutation(shuffled.labels)
    assert abs(found.quality(Data(shuffled.rows, labels)).mcc) < 0.2
