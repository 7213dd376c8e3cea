"""Splits are disjoint, seeded and of the promised sizes; impossible ones are one clear line."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from tacit.data import datasets
from tacit.data.datasets.base import Chronological, Dataset, Pools
from tacit.privacy import errors


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return datasets.load("digits")


def test_digits_are_images_within_public_bounds(digits: Dataset) -> None:
    assert digits.rows.dtype == np.uint8
    assert digits.rows.shape == (1797, 8, 8)
    assert digits.rows.max() == 16
    scaled = digits.schema.rows(digits.rows).numbers
    assert (scaled.min(), scaled.max()) == (0, 1)
    assert digits.taken_as_public == ()
    assert digits.sha256 == {}


def test_parts_are_disjoint_and_follow_the_seed(digits: Dataset) -> None:
    first, again, other = (digits.collection(seed) for seed in (0, 0, 1))
    together = np.concatenate(list(vars(first).values()))
    assert len(set(together.tolist())) == len(together) == 1797
    assert [len(part) for part in vars(first).values()] == [400, 1080, 120, 197]
    for name, part in vars(first).items():
        assert np.array_equal(part, getattr(again, name))
        assert not np.array_equal(part, getattr(other, name))


def test_limited_takes_the_first_of_each(digits: Dataset) -> None:
    split = digits.collection(0)
    small = split.limited(inhouse=30, people=20, voters=10, test=5000)
    assert np.array_equal(small.inhouse, split.inhouse[:30])
    assert [len(part) for part in vars(small).values()] == [30, 20, 10, 197]
    with pytest.raises(errors.InvalidParameter, match="people must be an integer from 1"):
        split.limited(1, 0, 1, 1)


@pytest.mark.parametrize("new", [None, 3, "3"])
def test_novel_rows_are_new_and_the_others_are_not(digits: Dataset, new: object) -> None:
    split = digits.novel(0, new)
    code = 9 if new is None else 3
    assert (digits.labels[split.people] == code).all()
    assert not (digits.labels[split.inhouse] == code).any()
    assert not (digits.labels[split.heldout] == code).any()
    assert np.array_equal(digits.labels[split.test] == code, split.is_new == 1)
    assert split.is_new.mean() == 0.5
    assert len(split.heldout) == len(split.people)
    indices = np.concatenate([split.inhouse, split.heldout, split.people, split.test])
    assert len(set(indices.tolist())) == len(indices)


def test_limited_novel_tests_stay_balanced(digits: Dataset) -> None:
    small = digits.novel(0).limited(inhouse=50, heldout=12, people=11, test=21)
    assert [len(part) for part in vars(small).values()] == [50, 12, 11, 20, 20]
    assert np.array_equal(digits.labels[small.test] == 9, small.is_new == 1)
    assert small.is_new.sum() == 10


def test_a_join_gives_every_column_to_one_party(digits: Dataset) -> None:
    assert digits.joins() == ("halves",)
    ours, theirs = digits.join()
    assert np.array_equal(np.concatenate([ours.rows, theirs.rows], axis=2), digits.rows)
    for part in (ours, theirs):
        assert part.schema.image == (8, 4)
        assert len(part.schema.rows(part.rows)) == 1797


def test_tasks_answer_for_every_class(digits: Dataset) -> None:
    assert digits.tasks["digit"] == digits.classes
    assert digits.tasks["has a loop"] == (1, 0, 0, 0, 0, 0, 1, 0, 1, 1)
    assert digits.tasks["at least 5"] == (0,) * 5 + (1,) * 5
    assert {len(answers) for answers in digits.tasks.values()} == {10}


def test_chronological_splits_train_on_the_oldest() -> None:
    split = Chronological(training=850, inhouse=0.8).draw(np.random.default_rng(0), 1000)
    assert [len(part) for part in vars(split).values()] == [680, 170, 75, 75]
    assert set(split.inhouse) | set(split.people) == set(range(850))
    assert np.array_equal(np.concatenate([split.voters, split.test]), np.arange(850, 1000))


@pytest.mark.parametrize(
    ("change", "ask", "said"),
    [
        ({}, lambda d: d.novel(0, 11), "the novel class must be one of the 10 classes, got '11'"),
        ({"classes": (0, 1)}, lambda d: d.novel(0), "classes must be at least 3 .* got 2"),
        ({"pools": Pools(400, 1200, 0, 197)}, lambda d: d.collection(0), "rows in voters must be"),
        ({"pools": Pools(1000, 100, 100, 3)}, lambda d: d.collection(0), "rows in test must be"),
        ({"pools": Pools(900, 400, 490, 7)}, lambda d: d.novel(0), "rows in test must be at"),
        ({}, lambda d: d.join("paper"), "join must be one of halves, got 'paper'"),
        ({"others": {}}, lambda d: d.join(), "data must be split by columns for a join"),
        ({}, lambda d: d.collection(-1), "seed must be an integer from 0"),
    ],
)
def test_what_cannot_be_is_one_line(digits: Dataset, change: dict, ask: object, said: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(errors.InvalidParameter, match=said) as caught:
        ask(dataclasses.replace(digits, **change))  # type: ignore[operator]
    assert str(caught.value).startswith("digits: ")
    assert "\n" not in str(caught.value)


def test_names_that_are_none_are_refused() -> None:
    with pytest.raises(
        errors.InvalidParameter, match=r"one of .*digits, .*mnist.*got 'minst'\. Check"
    ):
        datasets.load("minst")
    with pytest.raises(errors.InvalidParameter, match="schema must be left out for digits"):
        datasets.load("digits", "people.json")


def test_a_missing_scikit_learn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(errors.TacitError, match=r"pip install 'tacit\[collect\]'"):
        datasets.load("digits")


def test_importing_data_sets_loads_nothing_heavy() -> None:
    heavy = "{'sklearn', 'pyarrow', 'pandas', 'torch', 'matplotlib'}"
    code = f"import sys, tacit.data.datasets; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
