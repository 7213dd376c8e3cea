"""Pen digits: read as published, drawn upright and centred, split as in the paper."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tacit.data import datasets
from tacit.data.datasets import files
from tacit.data.datasets.twice import TwiceLabelled
from tacit.privacy import errors
from tacit_papers.data import pendigits, unipen


@functools.cache
def _loaded() -> TwiceLabelled:
    return datasets.load_twice("pendigits", fetch=False)


@pytest.fixture(name="digits")
def _digits() -> TwiceLabelled:
    """The data set, if its file is on this machine; or else the test is skipped with the reason."""
    try:
        return _loaded()
    except datasets.MissingFile as error:
        pytest.skip(str(error))


def test_digits_and_writers_are_the_published_ones(digits: TwiceLabelled) -> None:
    assert digits.rows.shape == (7_494, 20, 20)
    assert digits.rows.dtype == np.uint8
    # Counts of pendigits-orig.names: training, validation and writer-dependent test together.
    assert np.bincount(digits.regular).tolist() == [
        780, 779, 780, 719, 780, 720, 720, 778, 719, 719
    ]  # fmt: skip
    few = {0: 249, 16: 247, 26: 249, 29: 249}
    assert np.bincount(digits.private).tolist() == [few.get(code, 250) for code in range(30)]
    assert digits.regular_classes == tuple(range(10))
    assert digits.private_classes == tuple(range(1, 31))
    assert (digits.regular_name, digits.private_name) == ("digit", "writer")
    assert (digits.regular[0], digits.private_classes[digits.private[0]]) == (8, 12)
    assert dict(digits.sha256) == {pendigits.FILE.name: pendigits.FILE.sha256}
    assert len(digits.schema.rows(digits.rows)) == 7_494


def test_what_no_training_sees_is_kept_apart(digits: TwiceLabelled) -> None:
    strokes, count = digits.others["strokes"], digits.others["stroke_count"]
    assert strokes.shape == (7_494, 16)
    assert strokes.dtype == np.float32
    assert 0.04 < strokes.min() < strokes.max() < 0.96
    assert np.bincount(count).tolist() == [0, 5_564, 1_921, 9]
    # Fours and sevens are those that take a second stroke.
    assert count[digits.regular == 4].mean() > 1.5 > 1.1 > count[digits.regular == 0].mean()


def test_points_lie_on_the_ink(digits: TwiceLabelled) -> None:
    pixels = (digits.others["strokes"].reshape(-1, 8, 2) * 20).astype(int)
    ink = digits.rows[np.arange(len(digits))[:, None], pixels[:, :, 1], pixels[:, :, 0]]
    assert (ink > 0).mean() > 0.999
    assert (digits.rows > 0).mean() < 0.35  # so that points anywhere would not pass


def test_images_are_upright(digits: TwiceLabelled) -> None:
    means = np.stack([digits.rows[digits.regular == code].mean(axis=0) for code in range(10)])
    # A six has its weight below, a nine above; a seven's bar is at the top.
    assert means[6, 10:].sum() > 1.1 * means[6, :10].sum()
    assert means[9, :10].sum() > 1.1 * means[9, 10:].sum()
    assert means[7, :5].sum() > 1.2 * means[7, 15:].sum()
    # The upper half of a two bulges to the right, its stroke ends there at the bottom.
    assert means[2, 3:8, 10:].sum() > 1.2 * means[2, 3:8, :10].sum()


def test_images_fill_the_square(digits: TwiceLabelled) -> None:
    rows, columns = digits.rows.any(axis=2), digits.rows.any(axis=1)
    tall = rows[:, 0] & rows[:, -1]
    wide = columns[:, 0] & columns[:, -1]
    assert (tall | wide).all()


def test_a_split_is_that_of_the_paper(digits: TwiceLabelled) -> None:
    split = digits.split(3)
    order = np.random.default_rng(3).permutation(7_494)
    assert np.array_equal(split.training, order[:5_494])
    assert np.array_equal(split.validation, order[5_494:6_494])
    assert np.array_equal(split.test, order[6_494:])
    assert digits.take(split.test).shape == (1_000, 20, 20)
    assert not np.array_equal(digits.split(4).test, split.test)


def test_a_missing_file_says_what_to_put_where(bare: Path) -> None:
    with pytest.raises(datasets.MissingFile) as caught:
        datasets.load_twice("pendigits", fetch=False)
    assert str(caught.value) == (
        "pendigits: pendigits-orig.tra.Z must be in $TACIT_DATA/pendigits (TACIT_DATA is not set) "
        f"or in {bare / 'pendigits'}, got no such file. Get it from https://archive.ics.uci.edu/"
        "ml/machine-learning-databases/pendigits/pendigits-orig.tra.Z."
    )


def test_a_truncated_file_is_one_line(
    digits: TwiceLabelled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files.find("pendigits", [pendigits.FILE.name])
    assert path is not None
    cut = tmp_path / "pendigits" / path.name
    cut.parent.mkdir()
    cut.write_bytes(path.read_bytes()[:1000])
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    with pytest.raises(errors.InvalidData, match=r"published file of 1,011,395 bytes.* of 1,000\."):
        datasets.load_twice("pendigits")


@pytest.mark.parametrize("image", [0, 81, 30, "big"])
def test_images_are_of_a_size_that_divides(image: object) -> None:
    with pytest.raises(errors.InvalidParameter, match=r"^pendigits: image must be"):
        pendigits.load(fetch=False, image=image)  # type: ignore[arg-type]


def test_strokes_are_centred_and_keep_their_shape() -> None:
    wide = np.array([[0.0, 0.0], [100.0, 50.0]])
    (fitted,) = pendigits.fit([wide])
    reach = (pendigits.CANVAS - pendigits.PEN) / 2
    # Upward on the tablet is downward in rows of pixels.
    assert np.allclose(fitted - 40, [[-reach, reach / 2], [reach, -reach / 2]])
    moved = pendigits.fit([wide * 3 + [7, -200]])[0]
    assert np.allclose(moved, fitted)


def test_a_pen_draws_a_line_of_its_width() -> None:
    drawn = pendigits.draw([[np.array([[10.5, 40.5], [70.5, 40.5]])]], 80)[0]
    assert set(np.unique(drawn)) == {0, 255}
    across = drawn[:, 40]
    assert np.flatnonzero(across).tolist() == list(range(37, 44))
    assert np.flatnonzero(drawn[40]).tolist() == list(range(7, 74))
    assert drawn[37, 7] == 0  # the ends are round


def test_images_are_reduced_by_means_of_blocks() -> None:
    strokes = [[np.array([[10.0, 12.0], [60.0, 65.0]]), np.array([[30.0, 70.0]])]]
    fine = pendigits.draw(strokes, 80)[0]
    coarse = pendigits.draw(strokes, 20)[0]
    assert coarse[4, 4] == round(fine[16:20, 16:20].mean())
    assert abs(coarse.mean() - fine.mean()) < 0.5
    assert coarse[17, 7] > 0  # a dot is drawn too


def test_a_lifted_pen_leaves_no_ink() -> None:
    apart = [np.array([[10.0, 10.0], [10.0, 30.0]]), np.array([[60.0, 10.0], [60.0, 30.0]])]
    drawn = pendigits.draw([apart], 80)[0]
    assert not drawn[:, 20:50].any()
    points = pendigits.resample(apart).reshape(8, 2) * 80
    assert set(points[:, 0].tolist()) == {10.0, 60.0}
    assert np.allclose(points[[0, 3, 4, 7], 1], [10, 10 + 120 / 7, 10 + 20 / 7, 30], atol=1e-4)


def test_a_dot_is_a_digit_too() -> None:
    fitted = pendigits.fit([np.array([[3.0, 4.0]])])
    assert np.allclose(pendigits.resample(fitted), 0.5)
    assert pendigits.draw([fitted])[0].sum() > 0


def test_batches_draw_what_one_draws(digits: TwiceLabelled) -> None:
    content = unipen.decompress(pendigits.FILE.content(fetch=False), "x")
    path = files.find("pendigits", [pendigits.FILE.name])
    if path is not None and shutil.which("gzip") is not None:
        read = subprocess.run(["gzip", "-dc", path], capture_output=True, check=True)
        assert content == read.stdout
    segments = unipen.parse(content.decode(), "x")
    chosen = [0, 255, 256, 7_493]
    alone = [pendigits.draw([pendigits.fit(segments[index].strokes)])[0] for index in chosen]
    assert np.array_equal(np.stack(alone), digits.rows[chosen])
