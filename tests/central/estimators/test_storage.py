"""Saved estimators: what comes back is what was fitted, and nothing of the house goes along."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import tacit
from central.estimators.cases import ESTIMATORS
from tacit import ApproxDP, Ledger, Seeded
from tacit.central import estimators
from tacit.central.estimators import storage
from tacit.central.estimators.base import MostlyNoise, PrivateEstimator
from tacit.privacy import artifact, errors
from tacit.privacy.artifact import ArtifactError

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.uniform(-1.2, 1.2, (300, 3))
NEW = GENERATOR.uniform(-1.2, 1.2, (200, 3))
TARGET = ROWS @ [0.5, -1.0, 0.2]
WORDS = np.array(["no", "yes"])[(TARGET > 0).astype(int)]
THREE = np.digitize(TARGET, [-0.4, 0.4])
WIDE: dict[str, Any] = {"epsilon": 4.0, "bounds": (-1, 1)}
LINE: dict[str, Any] = {**WIDE, "target_bounds": (-2.0, 2.0)}
SAMPLED: dict[str, Any] = {**WIDE, "algorithm": "sgd", "steps": 2, "batch_size": 300}
NETWORK: dict[str, Any] = {**WIDE, "batch_size": 300, "epochs": 2, "hidden_layer_sizes": [4]}

CASES: list[tuple[str, dict[str, Any], Any]] = [
    *(("LinearRegression", {**LINE, "algorithm": name}, TARGET)
      for name in ("gradient", "adassp", "functional")),
    ("LinearRegression", {**LINE, "bounds": (ROWS.min(axis=0), [1, 1, 1])}, TARGET),
    ("Ridge", {**LINE, "alpha": 0.5, "fit_intercept": False}, TARGET),
    *(("LogisticRegression", {**WIDE, "algorithm": name}, y)
      for name in ("auto", "objective", "functional") for y in (WORDS, THREE)),
    ("LogisticRegression", SAMPLED, WORDS),
    ("LogisticRegression", {**WIDE, "delta": 0.0, "classes": ["no", "yes"]}, WORDS),
    ("LogisticRegression", {**WIDE, "epsilon": Fraction(7, 2)}, WORDS.astype(object)),
    *(("LinearSVC", {**WIDE, "algorithm": name}, THREE)
      for name in ("objective", "output", "dual")),
    *(("SVC", {**WIDE, "algorithm": name, "n_components": 8}, THREE == 1)
      for name in ("objective", "output", "dual")),
    *(("RandomForestClassifier", {**WIDE, "algorithm": name, "max_depth": 3}, THREE)
      for name in ("histograms", "random-splits", "dprf")),
    ("RandomForestClassifier", {**WIDE, "max_depth": 1, "n_estimators": 1}, WORDS),
    ("MLPClassifier", {**NETWORK, "hidden_layer_sizes": (4, 3)}, WORDS),
    ("MLPClassifier", {**NETWORK, "hidden_layer_sizes": (), "components": 2}, THREE),
    ("MLPRegressor", {**NETWORK, "target_bounds": (-2, 2), "average": 0.5}, TARGET),
    ("StandardScaler", WIDE, None),
    ("MinMaxScaler", {**WIDE, "feature_range": (-2, 2)}, None),
    ("PCA", {**WIDE, "n_components": 2}, None),
    ("KMeans", {**WIDE, "n_clusters": 3, "init": ROWS[:3].clip(-1, 1)}, None),
]  # fmt: skip
LABELS: dict[str, Any] = {"classes": (TARGET > 0).astype(int), "numbers": TARGET, "none": None}
CASES += [(one.name, {**WIDE, **one.options}, LABELS[one.labels]) for one in ESTIMATORS]


def fitted(name: str, given: dict[str, Any], y: Any, rows: Any = ROWS) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MostlyNoise)
        return getattr(estimators, name)(**given).fit(rows, y)


def uses(model: Any, rows: Any = NEW) -> dict[str, Any]:
    names = ("predict", "predict_proba", "decision_function", "transform")
    return {name: getattr(model, name)(rows) for name in names if hasattr(model, name)}


@pytest.fixture(name="stored")
def _stored(tmp_path: Path) -> Path:
    return fitted("RandomForestClassifier", {**WIDE, "max_depth": 2}, THREE).save(tmp_path / "m")


@pytest.mark.parametrize(("name", "given", "y"), CASES)
def test_it_comes_back_to_the_last_bit(name: str, given: Any, y: Any, tmp_path: Path) -> None:
    model = fitted(name, given, y)
    path = model.save(tmp_path / "model")
    loaded = tacit.load(path)
    assert type(loaded) is type(model)
    before, after = uses(model), uses(loaded)
    assert before
    for use, value in before.items():
        assert value.dtype.kind == after[use].dtype.kind
        assert np.array_equal(value, after[use]), use
    assert loaded.guarantee_ == model.guarantee_
    assert loaded.certificate_ == model.certificate_
    assert loaded.event_ == model.event_
    assert artifact.fingerprint(loaded) == artifact.fingerprint(model)
    assert repr(clone(loaded)) == repr(clone(model))
    again = loaded.save(tmp_path / "again")
    assert (again / "model.json").read_bytes() == (path / "model.json").read_bytes()
    refit = fitted(name, clone(loaded).get_params(), y)
    assert refit.guarantee_ == model.guarantee_


def test_every_estimator_is_tried() -> None:
    """One that is new must have a case: here, or where the refuter tries it."""
    every = {
        name
        for name in estimators.__all__
        if issubclass(getattr(estimators, name), PrivateEstimator)
    }
    assert set(storage._known()) == every
    assert every <= {name for name, _, _ in CASES}


@pytest.mark.parametrize(("name", "given", "y"), CASES[::3])
def test_nothing_of_the_house_is_stored(name: str, given: Any, y: Any, tmp_path: Path) -> None:
    """What is written is the same for data that differ in what only the house may know."""
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("study", ApproxDP(50.0, 1e-4, adjacency="zero-out", unit="record"))
        more = {"ledger": ledger, "account": "study", "rng": Seeded(0)}
        try:
            model = fitted(name, {**given, **more}, y)
        except errors.BudgetExceeded:  # of what nothing is proved no account pays for
            model = fitted(name, {**given, "rng": Seeded(0)}, y)
    assert model.clipped_ > 0
    path = model.save(tmp_path / "model")
    loaded = tacit.load(path)
    assert not hasattr(loaded, "clipped_")
    assert (loaded.ledger, loaded.account, loaded.rng) == (None, None, None)
    assert loaded.certificate_.seeded
    model.clipped_ = 10**6
    model.rows_ = ROWS  # as somebody might leave them in a class, some day
    other = model.save(tmp_path / "other")
    for file in path.iterdir():
        assert file.read_bytes() == (other / file.name).read_bytes()


def test_columns_keep_their_names(tmp_path: Path) -> None:
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    bounds = (frame.min() * 0 - 1, frame.max() * 0 + 1)
    model = fitted("StandardScaler", {"epsilon": np.int64(4), "bounds": bounds}, None, frame)
    loaded = tacit.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.transform(frame), model.transform(frame))
    assert loaded.get_feature_names_out().tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame[["b", "a", "c"]])


def test_what_is_set_after_a_fit_does_not_change_what_was_promised(tmp_path: Path) -> None:
    model = fitted("LogisticRegression", SAMPLED, WORDS)
    before = model.certificate_
    later = fitted("LogisticRegression", SAMPLED, WORDS)
    later.set_params(epsilon=0.1, delta=0.5, algorithm="objective", classes=["no", "yes"])
    assert later.guarantee_ == before.guarantee
    assert later.certificate_.assumptions == before.assumptions
    assert tacit.load(later.save(tmp_path / "model")).guarantee_ == before.guarantee
    later.set_params(epsilon=1, delta=1e-6).fit(ROWS, WORDS)
    assert later.guarantee_.epsilon == pytest.approx(1)


# --- what is refused -----------------------------------------------------------------------------


def refused(path: Path) -> str:
    with pytest.raises(ArtifactError) as error:
        tacit.load(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """As somebody would write it who knows the format: the digest fits."""
    title = path / "model.json"
    body = json.loads(title.read_bytes())
    del body["digest"]
    change(body["parameters"])
    digest = hashlib.sha256(artifact._canonical(body)).hexdigest()
    title.write_bytes(artifact._canonical({**body, "digest": digest}))
    return path


def test_one_changed_byte_is_refused(stored: Path) -> None:
    for file in sorted(stored.iterdir()):
        content = file.read_bytes()
        for at in np.linspace(0, len(content) - 1, 40).astype(int):
            flipped = bytearray(content)
            flipped[at] ^= 1
            file.write_bytes(bytes(flipped))
            refused(stored)
        file.write_bytes(content)
    tacit.load(stored)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update({"class": "PrivateEstimator"}),
        lambda body: body.update({"class": "Popen"}),
        lambda body: body.update({"class": ["SVC"]}),
        lambda body: body.update({"class": "LinearSVC"}),
        lambda body: body["settings"].update(ledger="ledger.db"),
        lambda body: body["settings"].update(shell=True),
        lambda body: body["fitted"].update(rows_=[1]),
        lambda body: body["fitted"].pop("classes_"),
        lambda body: body["fitted"].update(n_features_in_=10**12),
        lambda body: body["fitted"].update(n_features_in_=0),
        lambda body: body["fitted"].update(estimators_={"record": {}, "of": "Popen"}),
        lambda body: body["fitted"].update(estimators_={"pickle": "gASV"}),
        lambda body: body["fitted"].update(classes_={"array": "nowhere"}),
        lambda body: body.update(certificate=body["certificate"].replace("1e-06", "1e-09")),
    ],
)
def test_forged_files_are_refused(stored: Path, change: Any) -> None:
    tacit.load(rewritten(stored, lambda body: None))
    refused(rewritten(stored, change))


def test_a_certificate_of_another_model_is_refused(stored: Path) -> None:
    other = fitted("RandomForestClassifier", {**WIDE, "epsilon": 0.1}, THREE).certificate_
    refused(rewritten(stored, lambda body: body.update(certificate=other.to_json())))


def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        estimators.LinearSVC(**WIDE).save(tmp_path / "m")
    model = fitted("LinearSVC", WIDE, WORDS)
    for value in (object(), np.nan, np.array([np.inf]), np.array(["2020"], "M8[s]")):
        with pytest.raises(errors.InvalidParameter, match="alpha must be finite numbers"):
            model.set_params(alpha=value).save(tmp_path / "m")
    model.set_params(alpha=None)

    class Own(estimators.LinearSVC):  # type: ignore[misc]
        pass

    with pytest.raises(errors.InvalidParameter, match="must be one of"):
        Own(**WIDE).fit(ROWS, WORDS).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
    model.save(tmp_path / "m")
    with pytest.raises(errors.InvalidParameter, match="new or an empty directory"):
        model.save(tmp_path / "m")
