"""Folders of images with two labels in their paths: FERG, JAFFE, or one's own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from tacit.data import datasets
from tacit.data.datasets import image_folder
from tacit.data.schema import ArraySchema
from tacit.privacy import errors

OWN = r"^(?P<private>\w+)-(?P<regular>\w+)-\d+\.png$"


def write(path: Path, pixels: npt.NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def own(folder: Path, people: tuple[str, ...] = ("ann", "bob"), size: int = 4) -> Path:
    for brightness, person in enumerate(people):
        for expression in ("joy", "fear"):
            for number in range(3):
                pixels = np.full((size, size), 50 * brightness + number, np.uint8)
                write(folder / f"{person}-{expression}-{number}.png", pixels)
    return folder


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    found = datasets.load_twice(own(tmp_path), "expression", "person", pattern=OWN)
    assert found.rows.shape == (12, 4, 4)
    assert found.rows.dtype == np.uint8
    assert (found.regular_name, found.private_name) == ("expression", "person")
    assert found.regular_classes == ("fear", "joy")
    assert found.private_classes == ("ann", "bob")
    # In the order of paths: ann-fear-0, ann-fear-1, …
    assert found.rows[:, 0, 0].tolist() == [0, 1, 2, 0, 1, 2, 50, 51, 52, 50, 51, 52]
    assert found.private.tolist() == [0] * 6 + [1] * 6
    assert found.regular.tolist() == [0, 0, 0, 1, 1, 1] * 2
    assert found.schema == ArraySchema(16, 0, 255, image=(4, 4))


def test_the_hash_is_of_names_and_contents(tmp_path: Path) -> None:
    def digest() -> str:
        return image_folder.load(tmp_path, OWN).sha256[tmp_path.name]

    first = (own(tmp_path), digest())[1]
    assert digest() == first
    (tmp_path / "ann-joy-0.png").rename(tmp_path / "ann-joy-9.png")
    renamed = digest()
    assert renamed != first
    write(tmp_path / "ann-joy-9.png", np.full((4, 4), 9, np.uint8))
    assert digest() not in (first, renamed)


def test_ferg_is_read_at_the_size_of_the_paper(tmp_path: Path) -> None:
    colours = np.zeros((100, 100, 3), np.uint8)
    colours[:, 50:] = [255, 0, 0]
    for person in ("aia", "mery"):
        for expression in ("anger", "joy"):
            folder = tmp_path / "FERG_DB_256" / person / f"{person}_{expression}"
            for number in range(2):
                write(folder / f"{person}_{expression}_{number}.png", colours)
    (tmp_path / "FERG_DB_256" / "README.txt").write_text("not an image")
    write(tmp_path / "FERG_DB_256" / ".thumbnails" / "x.png", colours)
    found = datasets.load_twice(tmp_path, pattern="ferg")
    assert found.rows.shape == (8, 50, 50)
    assert found.private_classes == ("aia", "mery")
    assert found.regular_classes == ("anger", "joy")
    assert found.rows[0, 0, 0] == 0
    assert found.rows[0, 0, -1] == 76  # red is dark


def test_jaffe_is_read_at_the_size_of_the_paper(tmp_path: Path) -> None:
    upper = np.zeros((256, 256), np.uint8)
    upper[:128] = 200
    for person in ("KA", "NA"):  # which is a person here, not a gap
        for expression in ("AN", "HA"):
            for number in range(1, 4):
                write(tmp_path / f"{person}.{expression}{number}.{30 + number}.tiff", upper)
    found = datasets.load_twice(tmp_path, pattern="jaffe")
    assert found.rows.shape == (12, 37, 29)
    assert found.private_classes == ("KA", "NA")
    assert found.regular_classes == ("AN", "HA")
    assert (found.rows[:, 0] == 200).all()
    assert (found.rows[:, -1] == 0).all()


def test_a_given_size_wins(tmp_path: Path) -> None:
    own(tmp_path)
    write(tmp_path / "bob-joy-7.png", np.zeros((9, 6), np.uint8))
    assert image_folder.load(tmp_path, OWN, (3, 2)).rows.shape == (13, 3, 2)
    with pytest.raises(errors.InvalidParameter) as caught:
        image_folder.load(tmp_path, OWN)
    assert str(caught.value) == (
        f"{tmp_path}: size must be given for images of 2 sizes, got None. "
        "Give the height and width that all should have."
    )


@pytest.mark.parametrize("size", [(0, 3), (2.5, 3), (3,), 3])
def test_a_size_is_two_whole_numbers(tmp_path: Path, size: object) -> None:
    with pytest.raises(errors.InvalidParameter, match=r"^image_folder: size must be"):
        image_folder.load(own(tmp_path), OWN, size)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", [None, "(", r"(?P<private>\w+)", "fergus"])
def test_a_pattern_names_both_labels(tmp_path: Path, pattern: str | None) -> None:
    with pytest.raises(errors.InvalidParameter, match=r"^image_folder: pattern must"):
        datasets.load_twice(own(tmp_path), pattern=pattern)


def test_images_that_do_not_match_are_counted_not_named(tmp_path: Path) -> None:
    own(tmp_path)
    write(tmp_path / "miriam.png", np.zeros((4, 4), np.uint8))
    with pytest.raises(errors.InvalidData) as caught:
        image_folder.load(tmp_path, OWN)
    assert str(caught.value) == (
        f"{tmp_path}: the path of every image must match the pattern, got 12 of 13. "
        "Correct the pattern, or remove the other images."
    )


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidData, match=r"it must have images .*, got none\.$"):
        image_folder.load(tmp_path, OWN)


def test_one_person_is_refused(tmp_path: Path) -> None:
    own(tmp_path, people=("miriam",))
    with pytest.raises(errors.InvalidData, match="'person' must have at least 2 values") as caught:
        image_folder.load(tmp_path, OWN, private="person")
    assert "miriam" not in str(caught.value).removeprefix(tmp_path.name)


@pytest.mark.parametrize("damage", ["cut", "text", "sixteen bits"])
def test_an_unreadable_image_is_one_line(tmp_path: Path, damage: str) -> None:
    path = own(tmp_path, size=64) / "ann-joy-0.png"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:60])
    elif damage == "text":
        path.write_text("no image")
    else:
        write(path, np.full((64, 64), 40_000, np.uint16))
    with pytest.raises(errors.InvalidData) as caught:
        image_folder.load(tmp_path, OWN)
    assert str(caught.value) == (
        f"{tmp_path}: image 4 of 12, in the order of their paths, must be readable and of 8 bits. "
        "It may be damaged."
    )


def test_without_pillow_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(errors.TacitError, match=r"need the Pillow package\. pip install pillow\.$"):
        image_folder.load(tmp_path, OWN)
