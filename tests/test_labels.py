"""Labels: declared classes, their codes, and shares of ε that add up."""

from fractions import Fraction

import numpy as np
import pytest

from tacit import labels
from tacit.errors import InvalidData, InvalidParameter


def test_classes_are_counted_or_listed():
    assert labels.declare("x", 3) == (0, 1, 2)
    assert labels.declare("x", np.array([7, 3])) == (7, 3)
    assert labels.declare("x", ["no", "yes"]) == ("no", "yes")


@pytest.mark.parametrize("classes", [1, 0, 2.5, True, "yes", ["a"], ["a", "a"], [1, "a"], [0.5, 1]])
def test_other_classes_are_refused(classes):
    with pytest.raises(InvalidParameter, match="classes must be"):
        labels.declare("x", classes)


def test_codes_follow_the_declared_order():
    assert labels.codes("x", ["b", "a", "c"], ("c", "b", "a")).tolist() == [1, 2, 0]
    assert labels.codes("x", np.array([3.0, 7.0]), (7, 3)).tolist() == [1, 0]
    words = np.array(["no", "yes"], dtype=object)
    assert labels.codes("x", words, ("yes", "no")).tolist() == [1, 0]


@pytest.mark.parametrize("given", [[0, 3], [0, -1], [0.5], [np.nan], ["a"], [], [[0]], [None], 0])
def test_undeclared_labels_are_refused_and_not_echoed(given):
    with pytest.raises(InvalidData, match="x: labels must be") as error:
        labels.codes("x", given, (0, 1, 2))
    assert "nan" not in str(error.value)


def test_words_for_numbers_are_refused():
    with pytest.raises(InvalidData, match="must be words"):
        labels.codes("x", [0, 1], ("0", "1"))
    with pytest.raises(InvalidData, match="row 1 is not"):
        labels.codes("x", ["no", "perhaps"], ("no", "yes"))


def test_no_classes_no_labels():
    with pytest.raises(InvalidParameter, match="classes must be declared"):
        labels.codes("x", [0], None)
    with pytest.raises(InvalidParameter, match="classes must be declared"):
        labels.flip(None, 1, "x")


def test_shares_add_up_exactly():
    row, label = labels.split("x", 0.1, 0.3)
    assert row + label == Fraction(1, 10)
    assert label == Fraction(3, 100)
    for share in (0, 1, -0.1, float("nan")):
        with pytest.raises(InvalidParameter, match="label_share must be"):
            labels.split("x", 1, share)
