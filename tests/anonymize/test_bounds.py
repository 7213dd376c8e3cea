"""Bounds: exactly where the law is finite, else by sampling beside a mutant that must fail."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from scipy.special import xlogy
from scipy.stats import multinomial

from tacit.anonymize import bounds, information
from tacit.privacy.errors import InvalidData, InvalidParameter


def entropy(shares):
    return float(-xlogy(shares, shares).sum())


def conditional_entropy(joint):
    """H(Z | U) of a table of people by representations."""
    return entropy(joint.ravel()) - entropy(joint.sum(axis=0))


def best_accuracy(joint):
    return float(joint.max(axis=0).sum())


def joints(count, people, codes, seed=0, evenly=False):
    """Laws of all kinds: from nearly independent to nearly one person a code."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        joint = rng.gamma(10 ** rng.uniform(-2, 1), size=(people, codes)) + 1e-12
        if evenly:
            joint /= joint.sum(axis=1, keepdims=True)
        yield joint / joint.sum()


# --- Fano ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("people", [2, 3, 30, 10_000])
def test_the_inverse_is_one(people):
    most = 1 - 1 / people
    errors = np.linspace(0, most, 40)
    values = [bounds.g(t, people) for t in errors]
    assert np.all(np.diff(values) > 0)
    assert values[0] == 0
    assert values[-1] == pytest.approx(math.log(people), rel=1e-12)
    found = [bounds.inverse_g(value, people) for value in values]
    # At the end g is flat: there the inverse has half of the digits.
    assert found[:-1] == pytest.approx(errors[:-1], abs=1e-9)
    assert found[-1] == pytest.approx(most, abs=1e-6)
    assert bounds.inverse_g(-3.0, people) == 0
    assert bounds.inverse_g(math.log(people) + 5, people) == most


@pytest.mark.parametrize("people", [2, 5, 30])
def test_nobody_passes_the_bound(people):
    for joint in joints(150, people, 12, seed=people):
        bound = bounds.error_bound(conditional_entropy(joint), people)
        assert best_accuracy(joint) <= bound.accuracy + 1e-9
        # A guess drawn from a soft classifier is a guess, too: the paper's error is about that.
        soft = joint / joint.sum(axis=0)
        assert (joint * soft).sum() <= bound.accuracy + 1e-9


def test_the_bound_is_reached():
    people, error = 6, 0.4
    channel = np.full((people, people), error / (people - 1))
    np.fill_diagonal(channel, 1 - error)
    bound = bounds.error_bound(conditional_entropy(channel / people), people)
    assert bound.error == pytest.approx(error, abs=1e-9)


def as_printed(information, people):
    """Equation 13 with its log |Z|, whatever the shares of people."""
    return 1 - bounds.inverse_g(math.log(people) - information, people)


def test_equation_13_as_printed_promises_too_much_to_unequal_people():
    nothing = np.outer([0.9, 0.1], [0.5, 0.5])
    assert best_accuracy(nothing) == pytest.approx(0.9)
    assert as_printed(0.0, 2) == pytest.approx(0.5)
    ours = bounds.error_bound_from_information(0.0, entropy(nothing.sum(axis=1)), 2)
    assert ours.accuracy == pytest.approx(0.9)


def test_ours_holds_for_all_shares_and_agrees_for_equal_ones():
    broken = 0
    for joint in joints(150, 4, 8, seed=3):
        prior = entropy(joint.sum(axis=1))
        information = max(prior - conditional_entropy(joint), 0.0)
        ours = bounds.error_bound_from_information(information, prior, 4)
        assert best_accuracy(joint) <= ours.accuracy + 1e-9
        broken += best_accuracy(joint) > as_printed(information, 4) + 1e-9
    assert broken > 10
    for joint in joints(50, 4, 8, seed=4, evenly=True):
        information = max(math.log(4) - conditional_entropy(joint), 0.0)
        ours = bounds.error_bound_from_information(information, math.log(4), 4)
        assert ours.accuracy == pytest.approx(as_printed(information, 4), abs=1e-9)


def test_a_weak_adversary_makes_people_look_safe():
    rng = np.random.default_rng(5)
    for joint in joints(60, 5, 9, seed=5):
        weak = rng.dirichlet(np.ones(5), size=9).T
        loss = float(-(joint * np.log(weak)).sum())
        stated = bounds.error_bound_from_adversary(loss, 5)
        assert stated.error >= bounds.error_bound(conditional_entropy(joint), 5).error - 1e-9
    # The worst case: the representation is the name, and the adversary learned nothing.
    told = np.eye(30) / 30
    stated = bounds.error_bound_from_adversary(math.log(30), 30)
    assert stated.accuracy == pytest.approx(1 / 30)
    assert best_accuracy(told) == pytest.approx(1)
    assert stated.holds == "if the adversary is the best there is"
    assert bounds.error_bound(0.0, 30).accuracy == 1


def test_the_upper_bounds_of_errors():
    rng = np.random.default_rng(6)
    passed = 0
    for joint in joints(150, 3, 6, seed=6):
        soft = rng.dirichlet(np.full(3, 10 ** rng.uniform(-1, 1)), size=6).T + 1e-9
        soft /= soft.sum(axis=0)
        loss = float(-(joint * np.log(soft)).sum())
        drawn = 1 - float((joint * soft).sum())
        decided = 1 - float(joint[soft.argmax(axis=0), np.arange(6)].sum())
        assert drawn <= bounds.guessing_error_ceiling(loss) + 1e-12
        assert decided <= bounds.deciding_error_ceiling(loss) + 1e-12
        passed += decided > bounds.guessing_error_ceiling(loss)
    assert passed  # Lemma 1 is not about decisions
    sure = -math.log(0.49)
    assert bounds.guessing_error_ceiling(sure) == pytest.approx(0.51)
    assert bounds.deciding_error_ceiling(sure) == 1


# --- information --------------------------------------------------------------------------------

LEAK = np.array([[0.30, 0.05, 0.05], [0.05, 0.20, 0.05], [0.02, 0.03, 0.25]])
PEOPLE = np.repeat([0, 1, 2], [160, 120, 120])
"""Fixed, in the shares of LEAK: the statement is about these shares."""
TRUE_INFORMATION = entropy(LEAK.sum(axis=1)) - conditional_entropy(LEAK)


def drawn_losses(rng, soft):
    given = LEAK / LEAK.sum(axis=1, keepdims=True)
    code = (rng.random(len(PEOPLE))[:, None] > given.cumsum(axis=1)[PEOPLE, :-1]).sum(axis=1)
    with np.errstate(divide="ignore"):
        return -np.log(soft[PEOPLE, code])


def test_the_information_is_at_least_the_lower_end():
    rng = np.random.default_rng(7)
    best = LEAK / LEAK.sum(axis=0)
    found = [information.mutual_information(drawn_losses(rng, best), PEOPLE) for _ in range(200)]
    assert np.mean([one.interval[0] <= TRUE_INFORMATION for one in found]) >= 0.95
    # The figure itself is no such bound: without the margin half of the runs say too much.
    assert np.mean([one.value <= TRUE_INFORMATION for one in found]) < 0.8
    assert np.median([one.interval[0] for one in found]) > 0.05  # and it says something
    assert found[0].entropy == pytest.approx(entropy(LEAK.sum(axis=1)))


def test_the_upper_end_is_about_this_attacker_alone():
    rng = np.random.default_rng(8)
    blind = np.full((3, 3), 1 / 3)
    found = information.mutual_information(drawn_losses(rng, blind), PEOPLE)
    assert found.interval[1] < TRUE_INFORMATION
    assert "no more than the information" in found.about


def test_an_attacker_that_ruled_the_truth_out():
    rng = np.random.default_rng(9)
    sure = np.eye(3)
    losses = drawn_losses(rng, sure)
    assert np.isinf(losses).any()
    found = information.mutual_information(losses, PEOPLE)
    assert math.isfinite(found.value)
    assert 0 <= found.interval[0] <= found.interval[1] <= found.entropy
    # A single row makes no interval but the whole range.
    assert information.mutual_information([0.1, 0.2], ["a", "b"]).interval == (0, math.log(2))


def drawn(joint, rows, rng):
    cell = rng.choice(joint.size, rows, p=joint.ravel())
    return cell % joint.shape[1], cell // joint.shape[1]


def test_the_information_of_codes():
    rng = np.random.default_rng(10)
    found = [information.code_information(*drawn(LEAK, 400, rng)) for _ in range(150)]
    assert np.mean([one.value for one in found]) == pytest.approx(TRUE_INFORMATION, abs=0.01)
    covered = [one.interval[0] <= TRUE_INFORMATION <= one.interval[1] for one in found]
    assert np.mean(covered) > 0.9


def test_counted_information_without_the_correction_is_too_large():
    rng = np.random.default_rng(11)
    nothing = np.full((30, 10), 1 / 300)
    codes, person = drawn(nothing, 1000, rng)
    found = information.code_information(codes, person)
    table = np.zeros((30, 10))
    np.add.at(table, (person, codes), 1 / 1000)
    counted = entropy(table.sum(axis=1)) + entropy(table.sum(axis=0)) - entropy(table.ravel())
    assert counted > 0.1
    assert abs(found.value) < 0.03
    assert found.interval[0] == 0


# --- ceilings -----------------------------------------------------------------------------------


def counted(codes, person):
    table = np.zeros((person.max() + 1, codes.max() + 1), int)
    np.add.at(table, (person, codes), 1)
    return int(table.max(axis=0).sum())


def missed(joint, rows, ceiling):
    """The exact probability that the ceiling is below what the best attacker gets."""
    cells = joint.size
    shape = [range(rows + 1)] * (cells - 1)
    counts = np.array([c for c in product(*shape) if sum(c) <= rows])
    counts = np.column_stack([counts, rows - counts.sum(axis=1)])
    weights = multinomial.pmf(counts, rows, joint.ravel())
    assert weights.sum() == pytest.approx(1)
    found = counts.reshape(-1, *joint.shape).max(axis=1).sum(axis=1)
    told = {value: ceiling(rows, value) for value in np.unique(found)}
    below = np.array([told[value] for value in found]) < best_accuracy(joint) - 1e-12
    return float(weights[below].sum())


def said(rows, found):
    """What `code_ceiling` says where so many of the rows are found: it sees nothing else."""
    codes = np.r_[np.zeros(rows - 1, int), 1]
    person = np.r_[np.zeros(found - 1, int), np.arange(rows - found) + 2, 1]
    assert counted(codes, person) == found
    return bounds.code_ceiling(codes, person, confidence=0.9).accuracy


@pytest.mark.parametrize("leak", [0.5, 0.6, 0.8, 0.95])
def test_every_attacker_is_below_the_ceiling_exactly(leak):
    joint = np.array([[leak, 1 - leak], [1 - leak, leak]]) / 2
    rows = 24
    assert missed(joint, rows, said) <= 0.1
    if leak > 0.7:  # nearer to 0.5 the count is too large by itself
        assert missed(joint, rows, lambda rows, found: found / rows) > 0.1


def test_few_found_rows_need_a_smaller_margin():
    """One person in twenty rows, many in one each: the second inequality is the sharper one."""
    rng = np.random.default_rng(12)
    rows, share, others = 1000, 0.05, 2000
    joint = np.r_[share, np.full(others, (1 - share) / others)][:, None]
    told, found = [], []
    for _ in range(150):
        codes, person = drawn(joint, rows, rng)
        told.append(bounds.code_ceiling(codes, person).accuracy)
        found.append(np.bincount(person).max() / rows)
    assert np.mean(np.array(told) >= share) >= 0.95
    assert np.mean(np.array(found) >= share) < 0.8
    assert np.median(told) - share < math.sqrt(math.log(1 / 0.05) / 2 / rows)


def test_the_count_is_self_bounding():
    rng = np.random.default_rng(13)
    for _ in range(200):
        codes, person = rng.integers(0, 4, 12), rng.integers(0, 3, 12)
        whole = counted(codes, person)
        without = [counted(np.delete(codes, i), np.delete(person, i)) for i in range(12)]
        drops = whole - np.array(without)
        assert set(drops) <= {0, 1}
        assert drops.sum() <= whole


def test_the_ceiling_is_above_what_was_counted_and_shrinks():
    few = bounds.code_ceiling([0, 1] * 50, ["a", "b"] * 50)
    assert few.accuracy == 1
    half = bounds.code_ceiling([0] * 1000, ["a", "b"] * 500)
    more = bounds.code_ceiling([0] * 100_000, ["a", "b"] * 50_000)
    assert 0.5 < more.accuracy < half.accuracy < 0.55
    assert "every attacker" in half.holds
    assert "0.95" in half.holds


def test_rows_of_numbers_and_words_are_codes():
    flags = np.array([[0, 1], [1, 0], [0, 1], [1, 0]] * 50)
    assert (
        bounds.code_ceiling(flags, ["a", "b"] * 100)
        == bounds.code_ceiling(["x", "y"] * 100, ["a", "b"] * 100)
        == bounds.code_ceiling(np.array([0.5, 7.0] * 100), ["a", "b"] * 100)
    )


def test_counting_codes_a_label():
    rng = np.random.default_rng(14)
    for _ in range(100):
        joint = rng.gamma(0.3, size=(6, 5, 3))  # people, labels, three codes of each
        joint /= joint.sum()
        by_label = best_accuracy(joint.sum(axis=2))
        found = best_accuracy(joint.reshape(6, 15))
        assert found <= bounds.counting_ceiling(by_label, 3).accuracy + 1e-12
    # Reached, where within a label each code is one person's: a smaller factor would not do.
    sorted_out = np.tile(np.eye(3)[:, None, :], (1, 4, 1)) / 12
    stated = bounds.counting_ceiling(best_accuracy(sorted_out.sum(axis=2)), 3)
    assert best_accuracy(sorted_out.reshape(3, 12)) == pytest.approx(stated.accuracy)
    assert bounds.counting_ceiling(0.4, 3).accuracy == 1


def test_a_ceiling_from_another_keeps_its_condition():
    codes, person = np.arange(4000) % 4, np.arange(4000) // 4 % 10
    counted = bounds.code_ceiling(codes, person, confidence=0.9)
    found = bounds.counting_ceiling(counted, 3)
    assert found.accuracy == pytest.approx(3 * counted.accuracy)
    assert found.accuracy < 1
    assert counted.holds in found.holds
    assert "if the label alone gives away at most 10.0%" in bounds.counting_ceiling(0.1, 3).holds


@pytest.mark.parametrize("codes", [[0.0, -0.0], [[1.0, 0.0], [1.0, -0.0]]])
def test_codes_are_told_apart_by_bytes(codes):
    """As numbers they are equal; whoever sees the file tells them apart."""
    given = np.array(codes * 200)
    assert bounds.code_ceiling(given, [0, 1] * 200).accuracy == 1
    assert bounds.code_ceiling(np.abs(given), [0, 1] * 200).accuracy < 0.6


def test_the_information_of_very_many_cells_is_too_large():
    """What the docstring warns of: nearly a code a row, and nothing told."""
    rng = np.random.default_rng(15)
    found = information.code_information(rng.integers(0, 10_000, 300), rng.integers(0, 3, 300))
    assert found.interval[0] > 0.3


# --- values and refusals ------------------------------------------------------------------------


def test_bounds_are_said_and_stored():
    bound = bounds.error_bound_from_adversary(3.0, 30)
    assert str(bound).endswith("right, if the adversary is the best there is")
    assert json.loads(json.dumps(bound.to_dict()))["accuracy"] == bound.accuracy
    found = information.code_information([0, 1] * 20, [0, 0, 1, 1] * 10)
    assert json.loads(json.dumps(found.to_dict()))["interval"] == list(found.interval)


SECRET = "alexandra"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bounds.g(1.5, 3), "t must be in"),
        (lambda: bounds.g(math.nan, 3), "t must be in"),
        (lambda: bounds.g(0.5, 1), "people must be"),
        (lambda: bounds.inverse_g(math.nan, 3), "value must be finite"),
        (lambda: bounds.inverse_g(1.0, 1), "people must be"),
        (lambda: bounds.error_bound(-1, 3), "conditional_entropy must be at least 0"),
        (lambda: bounds.error_bound(math.log2(30), 30), "at most the logarithm of people"),
        (lambda: bounds.error_bound_from_adversary(-1, 3), "loss must be at least 0"),
        (lambda: bounds.error_bound_from_information(-1, 1, 3), "information must be"),
        (lambda: bounds.error_bound_from_information(0, 9, 3), "entropy must be at most"),
        (lambda: bounds.guessing_error_ceiling("x"), "loss must be a number"),
        (lambda: bounds.counting_ceiling(0.0, 3), r"label_accuracy must be in \(0, 1\]"),
        (lambda: bounds.counting_ceiling(0.1, 0), "codes_per_label must be"),
        (lambda: information.mutual_information([-1.0, 1], [0, 1]), "losses must be"),
        (lambda: information.mutual_information([1.0, 1], [0, 1], mixing=0), "mixing must be"),
        (lambda: information.mutual_information([1.0, 1], [SECRET] * 2), "at least two people"),
        (lambda: bounds.code_ceiling([0, 1], [SECRET, None]), "row 1 has none"),
        (lambda: bounds.code_ceiling([0, 1, 2], [0, 1]), "one label per row"),
        (lambda: bounds.code_ceiling([0, math.inf], [0, 1]), "codes must be finite"),
        (lambda: bounds.code_ceiling([0, 1], [0, 1], confidence=1), "confidence must be"),
        (lambda: information.code_information([], []), "codes must be"),
    ],
)
def test_refusals(call, says):
    with pytest.raises((InvalidParameter, InvalidData), match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
