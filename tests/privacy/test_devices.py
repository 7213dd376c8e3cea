"""Devices: which one is meant, one clear line where it is not there, and who is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from tacit import Codebook, JoinClassifier, NoiseAwareClassifier, StudentClassifier
from tacit.data.schema import ArraySchema, Rows
from tacit.local.inference import taught
from tacit.local.learned import autoencoder, features, invariant
from tacit.local.learned.direct import Direct
from tacit.local.learned.vlm import VLM
from tacit.privacy import artifact, devices, errors

IMAGES, DIGITS = load_digits(return_X_y=True)
SCHEMA = ArraySchema(width=64, lower=0, upper=16, image=(8, 8))


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let torch say that there are so many GPUs."""

    def pretend(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return pretend


def test_auto_is_a_gpu_where_there_is_one(gpus: Callable[[int], None]) -> None:
    gpus(0)
    assert devices.resolve("here", "auto") == "cpu"
    gpus(2)
    assert devices.resolve("here", "auto") == "cuda"
    assert devices.resolve("here", "cpu") == "cpu"
    assert devices.resolve("here", "cuda") == "cuda"
    assert devices.resolve("here", "cuda:1") == "cuda:1"


@pytest.mark.parametrize(
    ("count", "device", "said"),
    [
        (0, "cuda", "must be cpu or auto on this machine, got 'cuda'. .* sees no GPU"),
        (0, "cuda:0", "must be cpu or auto"),
        (2, "cuda:2", "must be below cuda:2, as there are 2"),
        (2, "cuda:-1", "must be auto, cpu, cuda or cuda:0"),
        (2, "cuda:", "must be auto, cpu"),
        (2, "tpu", "must be auto, cpu"),
        (2, None, "must be auto, cpu"),
        (2, "cuda:0\n", "must be auto, cpu"),
    ],
)
def test_what_is_not_there_is_one_line(
    gpus: Callable[[int], None], count: int, device: Any, said: str
) -> None:
    gpus(count)
    with pytest.raises(errors.InvalidParameter, match=said) as caught:
        devices.resolve("here", device)
    assert str(caught.value).startswith("here: device must be ")
    assert "\n" not in str(caught.value)


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert devices.resolve("here", "auto") == "cpu"
    assert devices.resolve("here", "cpu") == "cpu"
    with pytest.raises(errors.InvalidParameter, match=r"pip install 'tacit\[learn\]'"):
        devices.resolve("here", "cuda")


def test_what_trains_nothing_asks_torch_only_about_a_named_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked() -> bool:
        raise AssertionError("torch was asked")

    monkeypatch.setattr(torch.cuda, "is_available", asked)
    assert devices.resolve("here", "auto", used=False) == "cpu"
    Codebook(epsilon=2, people=500, classes=10).fit(IMAGES[:200], device="auto")
    with pytest.raises(AssertionError, match="asked"):
        devices.resolve("here", "cuda", used=False)


def rows(count: int = 120) -> Rows:
    return SCHEMA.rows(IMAGES[:count])


@pytest.mark.parametrize(
    "use",
    [
        lambda: VLM(epsilon=2).fit(IMAGES[:100], device="cuda"),
        lambda: Codebook(epsilon=2).fit(IMAGES[:100], device="cuda"),
        lambda: Codebook(epsilon=2, features="invariant").fit(IMAGES[:100], device="cuda"),
        lambda: Codebook(epsilon=2).fit(IMAGES[:100]).on("cuda"),
        lambda: autoencoder.fit(SCHEMA, rows(), 0, device="cuda"),
        lambda: invariant.fit(SCHEMA, rows(), 0, device="cuda"),
        lambda: NoiseAwareClassifier(device="cuda").fit(labelled(Direct(epsilon=9, classes=10))),
        lambda: NoiseAwareClassifier(device="cuda").fit(
            labelled(Codebook(epsilon=9, classes=10, codewords=8))
        ),
        lambda: StudentClassifier(inhouse=IMAGES[:200], device="cuda").fit(
            labelled(Codebook(epsilon=9, classes=10, codewords=8))
        ),
        lambda: JoinClassifier(device="cuda").fit(
            labelled(Direct(epsilon=9, classes=10)), clean=IMAGES[:200, :3]
        ),
    ],
)
def test_who_trains_refuses_a_gpu_that_is_not_there(
    gpus: Callable[[int], None], use: Callable[[], Any]
) -> None:
    gpus(0)
    with pytest.raises(errors.InvalidParameter, match="device must be cpu or auto"):
        use()


def labelled(mechanism: Any) -> Any:
    fitted = mechanism.fit(IMAGES[:200], schema=SCHEMA)
    return fitted.release(IMAGES[:200], DIGITS[:200])


class Trained:
    """Features that note where they were trained and where they compute."""

    kind, dimension = "autoencoder", 64

    def __init__(self, device: str) -> None:
        self.device, self.used_on = device, []  # type: ignore[var-annotated]

    def transform(self, rows: Rows) -> Any:
        self.used_on.append(self.device)
        return rows.numbers

    def on(self, device: str) -> Trained:
        return Trained(device)


def test_a_codebook_trains_on_the_device_and_then_computes_on_the_cpu(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(1)
    made: list[Trained] = []

    def fit(schema: Any, rows: Rows, seed: int, *, device: str) -> Trained:
        made.append(Trained(device))
        return made[0]

    monkeypatch.setattr(autoencoder, "fit", fit)
    mechanism = Codebook(epsilon=2, features="autoencoder").fit(IMAGES[:200], device="auto")
    assert made[0].device == "cuda"
    assert set(made[0].used_on) == {"cuda"}
    assert mechanism.features_.device == "cpu"  # type: ignore[attr-defined]
    assert mechanism.on("cuda:0").features_.device == "cuda:0"  # type: ignore[attr-defined]
    handed_in = Codebook(epsilon=2, features=made[0]).fit(IMAGES[:200])
    assert handed_in.features_ is made[0]  # whoever hands it in has chosen


def test_a_private_autoencoder_is_told_the_device(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(1)

    def fit_private(*arguments: Any, device: str, rng: Any) -> Any:
        raise NotImplementedError(device)

    monkeypatch.setattr(autoencoder, "fit_private", fit_private)
    mechanism = Codebook(epsilon=2, features="autoencoder", central_epsilon=4, central_delta=1e-5)
    with pytest.raises(NotImplementedError, match=r"^cuda$"):
        mechanism.fit(IMAGES[:200].astype(np.uint8), schema=SCHEMA, device="auto")


def test_a_private_student_is_told_the_device_and_another_one_asks_for_none(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(1)

    def taught_privately(*arguments: Any) -> Any:
        raise NotImplementedError(arguments[-1])

    monkeypatch.setattr(taught, "taught_privately", taught_privately)
    price = {"central_epsilon": 4, "central_delta": 1e-5}
    reports = labelled(Codebook(epsilon=9, classes=10, codewords=8, features="raw", **price))
    settings: dict[str, Any] = {"inhouse": IMAGES[:200], "prior": "none", "hidden": (5,)}
    with pytest.raises(NotImplementedError, match=r"^cuda$"):
        StudentClassifier(device="auto", **price, **settings).fit(reports)
    # Nothing moves to a GPU that is pretended: this one is taught by scikit-learn.
    StudentClassifier(device="cuda", **settings).fit(reports)


def test_fixed_features_and_mechanisms_stay_what_they_are_on_another_device(
    gpus: Callable[[int], None],
) -> None:
    gpus(1)
    raw = features.fit("raw", SCHEMA, rows(), device="cuda")
    assert features.on(raw, "cuda") is raw
    mechanism = Codebook(epsilon=2).fit(IMAGES[:200])
    other = mechanism.on("cuda")
    assert np.array_equal(other.encode(IMAGES[:50]), mechanism.encode(IMAGES[:50]))


@pytest.mark.parametrize("kind", [NoiseAwareClassifier, JoinClassifier])
def test_where_a_model_was_fitted_is_not_stored(
    tmp_path: Path, kind: Any, gpus: Callable[[int], None]
) -> None:
    clean = {"clean": IMAGES[:200, :3]} if kind is JoinClassifier else {}
    model = kind(device="cpu").fit(labelled(Direct(epsilon=9, classes=10)), **clean)
    model.device = "cuda:3"  # as if it had been fitted there
    model.save(tmp_path / "model")
    assert "cuda" not in (tmp_path / "model" / "model.json").read_text()
    gpus(0)
    loaded = artifact.load(tmp_path / "model")
    assert loaded.device == "cpu"
    here, there = (one.predict(IMAGES[:50], **one_clean(clean)) for one in (model, loaded))
    assert np.array_equal(here, there)


def one_clean(clean: dict[str, Any]) -> dict[str, Any]:
    return {name: values[:50] for name, values in clean.items()}
