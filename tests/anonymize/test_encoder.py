"""The transformer: what it keeps, what it hides, what it refuses, and that it can be kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import nn

import tacit
from tacit import AnonymizingEncoder, NotPrivate, Seeded
from tacit.anonymize.training import AdversarialSchedule
from tacit.privacy import errors
from tacit.privacy.artifact import ArtifactError


def _advantage(
    encoder: AnonymizingEncoder, rows: Any, private: Any, name: str = "private"
) -> float:
    """What a fresh linear attacker finds, over chance."""
    shown = encoder.transform(rows)
    half = len(shown) // 2
    attacker = LogisticRegression(max_iter=500).fit(shown[:half], private[:half])
    chance = np.bincount(private[half:]).max() / (len(shown) - half)
    return float(attacker.score(shown[half:], private[half:]) - chance)


@pytest.fixture(scope="module")
def robust(planted: Any) -> AnonymizingEncoder:
    made = AnonymizingEncoder(
        3.0, training="robust", styles=4, encoder=(32,), branches=(16,), device="cpu"
    )
    return made.fit(planted.rows, planted.task, private=planted.person)


@pytest.mark.heavy
def test_robust_codes_keep_the_task_and_lose_the_person(
    planted: Any, robust: AnonymizingEncoder, small: dict[str, Any]
) -> None:
    assert robust.score(planted.rows, planted.task) > 0.97
    assert _advantage(robust, planted.rows, planted.person) < 0.1
    open_styles = AnonymizingEncoder(0.0, training="robust", styles=4, **small)
    open_styles.fit(planted.rows, planted.task, private=planted.person)
    assert _advantage(open_styles, planted.rows, planted.person) > 0.12
    assert robust.prototypes_.shape == (8, 5)
    assert set(np.unique(robust.transform(planted.rows))) == {0.0, 1.0}


@pytest.mark.parametrize("training", ["toggled", "simultaneous"])
def test_adversarial_training_moves_its_own_adversary(
    planted: Any, small: dict[str, Any], training: str
) -> None:
    small["schedule"] = AdversarialSchedule(20, 10, rounds=25, rate=0.1, encoder_rate=0.2)
    plain, strong = AnonymizingEncoder(training=training, **small).frontier(
        [2.0, 0.0], planted.rows, planted.task, private=planted.person
    )
    assert (plain.strength, strong.strength) == (0.0, 2.0)
    assert plain.history_ == []
    assert strong.score(planted.rows, planted.task) > 0.95

    def right(encoder: AnonymizingEncoder) -> float:
        found = encoder.adversary(encoder.transform(planted.rows))["private"]
        return float((found.argmax(1) == planted.person).mean())

    assert right(plain) > 0.6
    assert right(strong) < right(plain) - 0.3


@pytest.mark.heavy
def test_several_private_labels_are_hidden_at_once(planted: Any, small: dict[str, Any]) -> None:
    private = pd.DataFrame({"person": planted.person, "group": planted.group})
    made = AnonymizingEncoder(3.0, training="robust", styles=4, **small)
    made.fit(planted.rows, planted.task, private=private)
    shown = made.transform(planted.rows)
    assert {name: found.shape for name, found in made.adversary(shown).items()} == {
        "person": (800, 4),
        "group": (800, 2),
    }
    assert _advantage(made, planted.rows, planted.person) < 0.1
    assert _advantage(made, planted.rows, planted.group) < 0.1
    one = AnonymizingEncoder(3.0, training="robust", styles=4, **small)
    one.fit(planted.rows, planted.task, private=planted.person)
    assert _advantage(one, planted.rows, planted.group) > 0.25  # nobody asked to hide it


def test_images_tables_and_own_modules(planted: Any, small: dict[str, Any]) -> None:
    images = np.random.default_rng(0).integers(0, 60, (200, 4, 4), dtype=np.uint8)
    task = np.arange(200) % 2
    images[:, 0] += (180 * task).astype(np.uint8)[:, None]
    person = np.array(["ann", "bob", "cy", "di"])[np.arange(200) // 50]
    made = AnonymizingEncoder(0.0, training="toggled", **small).fit(images, task, private=person)
    assert made.transform(images).shape == (200, 32)
    assert made.score(images, task) > 0.9
    words = np.where(planted.task == 1, "yes", "no")
    table = pd.DataFrame({"a": planted.rows[:, 0], "word": words, "b": planted.rows[:, 2]})
    words_too = AnonymizingEncoder(0.0, **small).fit(table, words, private=planted.person)
    assert set(words_too.predict(table)) == {"no", "yes"}
    own = nn.Sequential(nn.Linear(5, 7), nn.Tanh())
    chosen = {**small, "encoder": own, "branches": lambda i, o: nn.Linear(i, o)}
    mine = AnonymizingEncoder(0.0, training="toggled", **chosen).fit(
        planted.rows, planted.task, private=planted.person
    )
    assert mine.transform(planted.rows).shape == (800, 7)
    assert torch.equal(
        own[0].weight, clone(mine).encoder[0].weight
    )  # the given module is not trained
    with pytest.raises(errors.InvalidParameter, match="encoder must be a module from"):
        AnonymizingEncoder(0.0, **{**small, "encoder": nn.Linear(3, 2)}).fit(
            planted.rows, planted.task, private=planted.person
        )


def test_the_same_seed_gives_the_same_encoder(planted: Any, small: dict[str, Any]) -> None:
    made = [
        AnonymizingEncoder(1.0, training="toggled", seed=seed, **small)
        .fit(planted.rows, planted.task, private=planted.person)
        .transform(planted.rows)
        for seed in (3, 3, 4)
    ]
    assert np.array_equal(made[0], made[1])
    assert not np.allclose(made[0], made[2])


def test_it_is_a_transformer(planted: Any, small: dict[str, Any]) -> None:
    made = AnonymizingEncoder(0.5, training="toggled", **small)
    with pytest.raises(NotFittedError, match="fitted first"):
        made.transform(planted.rows)
    line = make_pipeline(made, LogisticRegression())
    line.fit(planted.rows, planted.task, anonymizingencoder__private=planted.person)
    assert line.score(planted.rows, planted.task) > 0.95
    names = line[:-1].get_feature_names_out()
    assert len(names) == 32
    assert clone(made).get_params() == made.get_params()


# --- what is promised ----------------------------------------------------------------------------


def test_without_epsilon_nothing_is_promised(planted: Any, robust: AnonymizingEncoder) -> None:
    assert isinstance(robust.guarantee_, NotPrivate)
    assert "No differential privacy" in robust.certificate.to_json()
    assert np.array_equal(robust.transform(planted.rows), robust.transform(planted.rows))
    with pytest.raises(errors.InvalidParameter, match="release: epsilon must be given"):
        robust.release(planted.rows)


@pytest.mark.parametrize("training", ["robust", "toggled"])
def test_epsilon_is_bought_with_noise(planted: Any, small: dict[str, Any], training: str) -> None:
    made = AnonymizingEncoder(1.0, training=training, epsilon=2.0, styles=2, **small)
    made.fit(planted.rows, planted.task, private=planted.person)
    assert made.guarantee_.epsilon == 2
    assert "No differential privacy" not in made.certificate.to_json()
    made.certificate.verify()
    first, second = made.transform(planted.rows), made.transform(planted.rows)
    assert not np.array_equal(first, second)
    assert np.array_equal(
        made.release(planted.rows, Seeded(0)), made.release(planted.rows, Seeded(0))
    )
    assert np.abs(made.represent(planted.rows)).sum(1).max() <= 1 + 1e-5
    assert made.score(planted.rows, planted.task) > 0.6


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"private": None}, "private must be one label per row"),
        ({"private": np.zeros(800, int)}, "at least two values, got one"),
        ({"y": np.ones(800, int)}, "regular label must take at least two values"),
        ({"private": np.full(800, np.nan)}, "no missing values, got 800"),
        ({"private": np.r_[[None] * 3, ["a"] * 400, ["b"] * 397]}, "no missing values, got 3"),
        ({"private": np.arange(799)}, "private must be as long as the rows, 800, got 799"),
        ({"y": np.linspace(0, 1, 800)}, "strings or whole numbers"),
    ],
)
def test_labels_that_do_not_do(
    planted: Any, small: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    given = {"y": planted.task, "private": planted.person, **change}
    with pytest.raises(errors.TacitError, match=words) as caught:
        AnonymizingEncoder(**small).fit(planted.rows, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strength": -0.1}, "strength must be a finite number, 0 or more, got -0.1"),
        ({"strength": float("nan")}, "strength must be"),
        ({"training": "best"}, "training must be one of"),
        ({"epsilon": 0}, "epsilon"),
        ({"styles": 0}, "styles"),
        ({"dropout": 1.0}, "dropout"),
        ({"unit": "client"}, "unit"),
        ({"encoder": (0,)}, "a layer of encoder"),
        ({"encoder": 7}, "sizes of layers, or a torch module"),
    ],
)
def test_settings_that_do_not_do(
    planted: Any, small: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(errors.InvalidParameter, match=words):
        AnonymizingEncoder(**{**small, **settings}).fit(
            planted.rows, planted.task, private=planted.person
        )


def test_labels_unseen_in_training(planted: Any, robust: AnonymizingEncoder) -> None:
    with pytest.raises(errors.InvalidData, match="among the 2 values it was fitted on"):
        robust.score(planted.rows, planted.task + 5)
    with pytest.raises(errors.InvalidData, match="among the 4 values it was fitted on"):
        AnonymizingEncoder(device="cpu").fit(
            planted.rows,
            planted.task,
            private=planted.person,
            validation=(planted.rows, planted.task, planted.person + 1),
        )


def test_rows_that_do_not_do(planted: Any, robust: AnonymizingEncoder) -> None:
    with pytest.raises(errors.InvalidData, match="without missing values"):
        robust.transform(np.full((2, 5), np.nan))
    with pytest.raises(errors.InvalidData):
        robust.transform(planted.rows[:, :4])
    far = planted.rows * 1e6  # beyond what was seen: clipped, not refused
    assert np.isfinite(robust.transform(far)).all()
    with pytest.raises(errors.TacitError, match="rows must be at least 14"):
        AnonymizingEncoder(device="cpu").fit(
            planted.rows[:13], planted.task[:13], private=planted.person[:13]
        )


# --- storage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"training": "robust", "styles": 2},
        {"training": "simultaneous", "dimensions": 3},
        {"training": "toggled", "epsilon": 3.0},
    ],
)
def test_saved_and_loaded(
    planted: Any, small: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    small["schedule"] = AdversarialSchedule(pretraining=2, adversary=1, rounds=1)
    made = AnonymizingEncoder(0.5, **small, **settings)
    made.fit(planted.rows, planted.task, private=planted.person)
    found = tacit.load(made.save(tmp_path / "encoder"))
    assert np.array_equal(found.represent(planted.rows), made.represent(planted.rows))
    assert found.guarantee_ == made.guarantee_
    assert found.classes_ == made.classes_
    shown = made.represent(planted.rows)
    assert np.array_equal(found.adversary(shown)["private"], made.adversary(shown)["private"])


def test_a_changed_artifact_is_refused(
    planted: Any, robust: AnonymizingEncoder, tmp_path: Path
) -> None:
    folder = robust.save(tmp_path / "encoder")
    document = json.loads((folder / "mechanism.json").read_text())
    document["parameters"]["styles"] = 3
    (folder / "mechanism.json").write_text(json.dumps(document))
    with pytest.raises(ArtifactError):
        tacit.load(folder)
    parameters, arrays = robust.parts()
    with pytest.raises(errors.TacitError, match="of the stated layers"):
        AnonymizingEncoder.from_parts({**parameters, "styles": 3}, arrays)
    spoiled = {**arrays, "networks.encoder.style.0.bias": np.full(256, np.nan, np.float32)}
    with pytest.raises(errors.TacitError, match="finite numbers"):
        AnonymizingEncoder.from_parts(parameters, spoiled)


def test_a_module_of_ones_own_is_not_saved_and_in_house_rows_stay(
    planted: Any, robust: AnonymizingEncoder, small: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(errors.InvalidParameter, match="export: in-house rows must be public"):
        robust.export(tmp_path / "out")
    chosen = {**small, "encoder": nn.Linear(5, 3), "schedule": AdversarialSchedule(2, 1, 1)}
    made = AnonymizingEncoder(0.0, **chosen).fit(
        planted.rows, planted.task, private=planted.person, inhouse_public=True
    )
    with pytest.raises(errors.InvalidParameter, match="sizes of layers"):
        made.export(tmp_path / "out")
