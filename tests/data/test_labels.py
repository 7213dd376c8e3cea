"""Labels: declared classes, their codes, and shares of ε that add up."""

from fractions import Fraction

import numpy as np
import pytest

from tacit.data import labels
from tacit.privacy.errors import InvalidData, InvalidParameter


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


@pytest.mark.parametrize("count", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_flip_is_randomized_response_over_the_classes(count, epsilon):
    """(1 − p) on the own label and p/(K − 1) on any other: the ratio is e^ε, and no more."""
    flip = labels.flip(tuple(range(count)), epsilon, "x")
    assert flip.matrix.shape == (count, count)
    keep = np.exp(epsilon) / (np.exp(epsilon) + count - 1)
    assert np.allclose(np.diag(flip.matrix), keep, rtol=1e-9)
    ratio = np.log(flip.matrix[:, None] / flip.matrix[None]).max()
    assert epsilon - 1e-6 < ratio <= epsilon + 1e-12
    assert flip.guarantee.epsilon == epsilon


def test_the_flip_takes_codes_not_values():
    """Classes far apart as numbers are as near as any others."""
    declared = (1000, -5, 7)
    codes = labels.codes("x", np.array([7, 1000, -5] * 2000), declared)
    assert codes[:3].tolist() == [2, 0, 1]
    released = labels.flip(declared, 50, "x").release(codes, np.random.default_rng(0))
    assert np.array_equal(released, codes)
    noisy = labels.flip(declared, 1e-9, "x").release(codes, np.random.default_rng(0))
    shares = np.bincount(noisy, minlength=3) / 6000
    assert np.allclose(shares, 1 / 3, atol=0.03)


@pytest.mark.parametrize("share", [0.3, 1 / 3, Fraction(1, 7), 1e-9])
@pytest.mark.parametrize("epsilon", [0.1, 1, 2.7, Fraction(1, 3)])
def test_a_hair_is_lost_by_splitting_and_nothing_won(epsilon, share):
    row, label = labels.split("x", epsilon, share)
    whole = Fraction(repr(epsilon)) if isinstance(epsilon, float) else Fraction(epsilon)
    assert whole * (1 - Fraction(1, 10**10)) < row + label <= whole
    if share == 0.3 and epsilon != Fraction(1, 3):
        assert row + label == whole  # short decimals stay what they are
    assert Fraction(repr(float(row))) == row  # and so does a sum of them in floats, as decimals
    assert 0 < row < whole
    assert 0 < label < whole
