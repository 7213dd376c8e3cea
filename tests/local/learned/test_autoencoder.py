import json

import numpy as np
import pytest
import torch

from tacit.data.schema import ArraySchema, Categorical, Continuous, Rows, TableSchema
from tacit.local.learned import autoencoder
from tacit.privacy.errors import InvalidData, InvalidParameter

torch.set_num_threads(1)

IMAGES = ArraySchema(36, 0, 1, (6, 6))
TABLE = TableSchema(
    (Continuous("a", 0, 1, missing="indicate"), Categorical("b", ("x", "y", "z"), unseen="other"))
)


def bars(count: int) -> Rows:
    """Images of one bright row or column: twelve kinds."""
    rng = np.random.default_rng(0)
    images = 0.05 * rng.random((count, 6, 6))
    for image, line in zip(images, rng.integers(12, size=count), strict=True):
        (image if line < 6 else image.T)[line % 6] = 0.9
    return IMAGES.rows(images.reshape(count, 36))


def table_rows(count: int) -> Rows:
    rng = np.random.default_rng(1)
    letters = rng.choice(["x", "y", "z", "?"], count)
    numbers = np.where(letters == "?", np.nan, 0.2 * (letters == "y") + 0.1 * rng.random(count))
    return TABLE.rows({"a": numbers, "b": letters})


@pytest.fixture(scope="module")
def images():
    return bars(600)


@pytest.fixture(scope="module")
def fitted(images):
    return autoencoder.fit(IMAGES, images, 0, outputs=4, epochs=25, batch=64)


def test_the_loss_goes_down_and_kinds_of_images_come_apart(images, fitted):
    assert fitted.losses[-1] < 0.7 * fitted.losses[0]
    kinds = images.numbers.reshape(-1, 6, 6) > 0.5
    row = np.flatnonzero(kinds[:, 0].all(axis=1))
    column = np.flatnonzero(kinds[:, :, 0].all(axis=1))
    latents = fitted.transform(images)
    between = np.linalg.norm(latents[row].mean(axis=0) - latents[column].mean(axis=0))
    assert between > 2 * np.linalg.norm(latents[row].std(axis=0))


def test_features_say_what_they_are(images, fitted):
    assert (fitted.kind, fitted.dimension) == ("autoencoder", 4)
    assert fitted.sizes == (36, 400, 150, 50, 4)
    latents = fitted.transform(images)
    assert latents.shape == (600, 4)
    assert latents.dtype == np.float32


def test_transform_in_blocks_is_the_transform(images, fitted, monkeypatch):
    whole = fitted.transform(images)
    monkeypatch.setattr(autoencoder, "_BLOCK_ROWS", 7)
    np.testing.assert_allclose(fitted.transform(images), whole, atol=1e-5)


def test_parts_rebuild_the_features_without_a_decoder(images, fitted):
    params, arrays = fitted.parts()
    assert sum(array.size for array in arrays.values()) < 90_000  # decoder included: 170,000
    back = autoencoder.from_parts(IMAGES, json.loads(json.dumps(params)), arrays)
    np.testing.assert_array_equal(back.transform(images), fitted.transform(images))
    moved = fitted.on("cpu")
    np.testing.assert_array_equal(moved.transform(images), fitted.transform(images))


def test_parts_of_other_rows_are_refused(fitted):
    with pytest.raises(InvalidParameter, match="inputs must be 49"):
        autoencoder.from_parts(ArraySchema(49, 0, 1, (7, 7)), *fitted.parts())


def test_a_seed_fixes_everything_and_touches_nothing(images):
    before = torch.random.get_rng_state()
    first, again, other = (
        autoencoder.fit(IMAGES, images[:100], seed, epochs=1) for seed in (3, 3, 4)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    few = images[:5]
    np.testing.assert_array_equal(first.transform(few), again.transform(few))
    assert not np.allclose(first.transform(few), other.transform(few))


def test_tables_with_gaps_train_too():
    rows = table_rows(400)
    features = autoencoder.fit(TABLE, rows, 0, outputs=2, epochs=8, batch=50)
    assert features.sizes == (6, 500, 500, 2)
    assert features.losses[-1] < features.losses[0] - 1
    assert np.isfinite(features.transform(rows)).all()


def test_progress_is_told_every_epoch(images):
    told: list[tuple[int, int, float]] = []
    fitted = autoencoder.fit(
        IMAGES, images[:50], 0, epochs=2, progress=lambda *state: told.append(state)
    )
    assert told == [(1, 2, fitted.losses[0]), (2, 2, fitted.losses[1])]


@pytest.mark.parametrize(
    "setting", [{"epochs": 0}, {"batch": 0}, {"outputs": 0}, {"learning_rate": float("nan")}]
)
def test_settings_out_of_range_are_refused(images, setting):
    with pytest.raises(InvalidParameter, match=rf"autoencoder\.fit: {next(iter(setting))}"):
        autoencoder.fit(IMAGES, images, 0, **setting)


def test_no_rows_are_refused(images):
    with pytest.raises(InvalidData, match=r"autoencoder\.fit: rows"):
        autoencoder.fit(IMAGES, images[:0], 0)
