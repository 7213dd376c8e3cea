"""Linkage: people are found by their references, and by many rows where one says little."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tacit.anonymize import linkage as module
from tacit.anonymize.linkage import RULES, linkage
from tacit.privacy.errors import InvalidData, InvalidParameter

PEOPLE = 12


def rows_of(leak, each=60, people=PEOPLE, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), each)
    rows = rng.normal(size=(len(person), columns))
    return rows + leak * rng.normal(size=(people, columns))[person], person


def halves(rows, person):
    return rows[::2], person[::2], rows[1::2], person[1::2]


def test_people_are_found_by_their_references():
    found = linkage(*halves(*rows_of(5.0)))
    assert found.top1 > 0.9
    assert found.top5 > 0.99
    assert found.chance == (1 / 12, 5 / 12)
    assert found.groups == 360
    (low, high), (low5, high5) = found.intervals
    assert low < found.top1 < high
    assert low5 < found.top5 <= high5


def test_nothing_is_found_in_noise():
    found = linkage(*halves(*rows_of(0.0)))
    for share, (low, high), chance in zip(
        (found.top1, found.top5), found.intervals, found.chance, strict=True
    ):
        assert low < chance < high
        assert low < share < high


def test_many_rows_of_one_person_say_what_one_does_not():
    given = halves(*rows_of(0.5, each=160))
    one, many = (linkage(*given, together=count) for count in (1, 20))
    assert one.top1 < 0.35
    assert many.top1 > 0.75
    assert many.groups == PEOPLE * 4
    assert many.intervals[0][0] > one.intervals[0][1]


def test_rows_are_not_mixed_between_people():
    """The mutant: groups across people would be led by whoever has most rows in them."""
    truth = np.repeat([0, 1, 2], [5, 4, 2])
    places = module._groups(truth, 2, np.random.default_rng(0))
    assert sorted(truth[places][:, 0].tolist()) == [0, 0, 1, 1, 2]
    assert (truth[places] == truth[places][:, :1]).all()
    assert len(np.unique(places)) == places.size


def codes_of(each=200, people=8, codes=6, even=1.0, seed=1):
    """Codes that all people use, each in shares of their own."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(codes, even), size=people)
    person = np.repeat(np.arange(people), each)
    drawn = (rng.random(len(person))[:, None] > shares.cumsum(axis=1)[person, :-1]).sum(axis=1)
    return np.eye(codes, dtype=bool)[drawn], person


def test_frequencies_of_codes_are_read():
    given = halves(*codes_of())
    found = linkage(*given, together=25)
    assert found.rule in ("codes", "logistic", "network", "mean")
    assert found.top1 > 0.7
    # Distances alone are blind here: everybody has every code among the references.
    assert ranked_first("nearest", *given, together=25) < 0.4


def ranked_first(rule, known, mine, others, truth, together):
    rng = np.random.default_rng(0)
    places = module._groups(truth, together, rng)
    scores = module._scores([rule], known * 1.0, mine, others * 1.0)[rule]
    return (module._ranks(scores, truth, places, rng) == 0).mean()


@pytest.mark.parametrize("rule", list(RULES))
def test_every_rule_finds_a_strong_leak(rule):
    rows, person = rows_of(8.0, each=30, people=5)
    rows = np.round(rows / 8) if rule == "codes" else rows
    assert ranked_first(rule, *halves(rows, person), together=3) > 0.85


@pytest.mark.parametrize("together", [1, 7])
def test_equal_fits_are_drawn(together):
    """The mutant that counts ties as found would say 100 %, the one that does not, 0."""
    person = np.repeat(np.arange(10), 70)
    found = linkage(np.ones((700, 2)), person, np.ones((700, 2)), person, together=together)
    assert found.intervals[0][0] < 0.1 < found.intervals[0][1]
    assert found.intervals[1][0] < 0.5 < found.intervals[1][1]


def unequal():
    """Ten times the references of one person, and all samples of the other."""
    rows, person = codes_of(each=400, people=2, even=3.0)
    kept = (person == 0) | (np.arange(len(person)) % 10 == 0)
    return rows[kept], person[kept], rows[~kept], person[~kept]


def test_whoever_has_most_references_does_not_choose_the_rule():
    assert linkage(*unequal(), together=20).top1 > 0.8


@pytest.mark.parametrize("rule", ["codes", "logistic", "network"])
def test_ten_times_the_references_do_not_make_a_person_likelier(rule):
    assert ranked_first(rule, *unequal(), together=20) > 0.8


def test_one_reference_a_person():
    rows, person = rows_of(8.0, each=10)
    first = np.arange(len(rows)) % 10 == 0
    found = linkage(rows[first], person[first], rows[~first], person[~first])
    assert found.rule == "nearest"
    assert found.top1 > 0.8


def test_two_people_and_words():
    rows, person = rows_of(4.0, people=2, each=80)
    words = np.array(["ann", "bob"])[person]
    found = linkage(*halves(rows, words))
    assert found.top1 > 0.9
    assert found.top5 == 1
    assert found.chance == (0.5, 1)


def test_a_person_who_never_varies():
    """Where nobody's rows differ the spread within people is zero, and everybody is found."""
    person = np.repeat(np.arange(6), 12)
    rows = np.eye(6)[person]
    assert linkage(*halves(rows, person)).top1 == 1


@pytest.mark.parametrize("far", [1, 15])
def test_far_rows_do_not_blind_it(far):
    """Beside them all others are alike: one is held, of many the ranks are left."""
    rows, person = rows_of(8.0, each=30, people=5)
    order = np.random.default_rng(0).permutation(len(rows))
    rows, person = rows[order], person[order]
    rows[: 2 * far : 2] = 1e30 * np.arange(1, far + 1)[:, None]
    assert linkage(*halves(rows, person)).top1 > 0.8


def test_it_repeats_prints_and_stores():
    given = halves(*rows_of(0.5))
    found = linkage(*given, together=3, seed=4)
    assert found == linkage(*given, together=3, seed=4)
    assert found != linkage(*given, together=3, seed=5)
    assert str(found).startswith("12 people, by 3 rows together: first ")
    assert json.loads(json.dumps(found.to_dict()))["together"] == 3


SECRET = "alexandra"
NAMES = [SECRET, "b"] * 5
ZEROS = np.zeros((10, 2))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reference": np.full((10, 2), np.nan)}, "finite"),
        ({"samples": np.full((10, 2), np.inf)}, "finite"),
        ({"samples": np.zeros((10, 3))}, "sample columns must be 2, got 3"),
        ({"reference_person": [SECRET] * 10}, "at least two people"),
        ({"reference_person": [*NAMES[:-1], None]}, "row 9 has none"),
        ({"sample_person": NAMES[:-1]}, "one label per row"),
        ({"sample_person": ["c"] * 10}, "row 0 is not"),
        ({"together": 0}, "together must be an integer"),
        ({"together": 6}, "at most the samples of a person"),
        ({"confidence": 0}, "confidence must be"),
        ({"seed": 1.5}, "seed must be"),
    ],
)
def test_refusals(change, says):
    given = {
        "reference": ZEROS,
        "reference_person": NAMES,
        "samples": ZEROS,
        "sample_person": NAMES,
    }
    with pytest.raises((InvalidParameter, InvalidData), match=says) as caught:
        linkage(**{**given, **change})
    assert str(caught.value).startswith("linkage: ")
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
