"""Probes: planted leaks are found by the attackers that can see them, and noise by none."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from tacit.anonymize import attackers, probes
from tacit.anonymize.attackers import ATTACKERS
from tacit.anonymize.probes import probe
from tacit.anonymize.released import Ranks, Standard, White, split
from tacit.local.inference.validation import exact_interval
from tacit.privacy.errors import InvalidData, InvalidParameter

ROWS, PEOPLE = 600, 3
LEARNERS = ("boosting", "trees", "mlp-small", "mlp-medium")
QUICK = [name for name in ATTACKERS if name != "mlp-large"]
"""The large network is the medium one with more units: one leak, and the noise, are enough."""


def person(rows=ROWS, people=PEOPLE, seed=0):
    return np.random.default_rng(seed).permutation(np.arange(rows) % people)


def accuracy(rows, who, name, **given):
    return probe(rows, who, attackers=[name], **given).strongest.accuracy


def noise(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


# --- planted leaks ------------------------------------------------------------------------------


def linear():
    who = person()
    return noise(ROWS, 6) + 3 * np.eye(PEOPLE)[who] @ noise(PEOPLE, 6, seed=2), who


def exclusive():
    """Whose row it is is the product of two signs: no line separates them."""
    rows = noise(ROWS, 4)
    return rows, (rows[:, 0] * rows[:, 1] > 0).astype(int)


def spots():
    """Each person lives in forty small spots, strewn at random."""
    who = person()
    rng = np.random.default_rng(3)
    centres = rng.uniform(-1, 1, size=(PEOPLE, 40, 5))
    return centres[who, rng.integers(0, 40, ROWS)] + 0.01 * noise(ROWS, 5), who


def shrunk(wide=200):
    """Ten clusters far apart; within one the person is plain, at a thousandth of the distance."""
    who, rng = person(), np.random.default_rng(4)
    inner = np.hstack([300.0 * np.eye(10)[rng.integers(0, 10, ROWS)], 0.3 * noise(ROWS, 3)])
    inner[:, 10:] += np.eye(PEOPLE)[who]
    return inner @ rng.normal(size=(13, wide)), who


@pytest.mark.parametrize("name", list(ATTACKERS))
def test_everybody_sees_a_linear_leak(name):
    assert accuracy(*linear(), name) > 0.9


@pytest.mark.parametrize("name", LEARNERS)
def test_a_product_of_signs_is_seen_by_those_who_bend(name):
    assert accuracy(*exclusive(), name) > 0.8


def test_a_product_of_signs_is_not_seen_by_a_line():
    assert accuracy(*exclusive(), "logistic") < 0.65


def test_small_spots_are_seen_by_neighbours():
    assert accuracy(*spots(), "neighbours") > 0.9
    assert accuracy(*spots(), "logistic") < 0.5


def test_neighbours_choose_how_many():
    """One neighbour is as noisy as the row; among a hundred the noise is gone."""
    who = person(900, 2)
    rows = who[:, None] + 1.2 * noise(900, 1)
    assert accuracy(rows, who, "neighbours") > 0.58
    one = attackers._voted(np.array([[1, 0, 0], [0, 1, 2], [2, 1, 1]]))
    assert one.tolist() == [0, 0, 1]  # among equals the nearest


@pytest.mark.parametrize("name", ["logistic", "neighbours", "trees", "mlp-small", "mlp-medium"])
def test_what_was_shrunk_is_found(name):
    assert accuracy(*shrunk(), name) > 0.75


def test_a_network_on_plain_columns_would_have_missed_it():
    """The mutant: without whitened coordinates the same network stays near chance."""
    from sklearn.neural_network import MLPClassifier

    rows, who = shrunk()
    tried = split("test", who, 1 / 3, 0)
    standard = Standard.of(rows[~tried])
    model = MLPClassifier(64, max_iter=60, early_stopping=True, n_iter_no_change=5, random_state=0)
    model.fit(standard(rows[~tried]), who[~tried])
    assert model.score(standard(rows[tried]), who[tried]) < 0.5


def test_a_leak_in_the_last_bit():
    who = person(people=2)
    rows = np.where(who == 0, 1.0, np.nextafter(1.0, 2.0))
    assert accuracy(rows, who, "logistic") == 1
    assert accuracy(np.full(ROWS, 0.1), who, "logistic") < 0.6


def far_out(rows):
    """A column that says the person, and rows beside which all others are alike."""
    who = person(300)
    column = who[:, None].astype(np.float64)
    column[:rows, 0] = 1e12 * np.arange(1, rows + 1)
    return column, who


@pytest.mark.parametrize("name", ["logistic", "neighbours", "boosting", "trees", "mlp-small"])
def test_one_far_row_blinds_nobody(name):
    assert accuracy(*far_out(1), name) > 0.9


@pytest.mark.parametrize("name", ["neighbours", "boosting", "trees"])
def test_many_far_rows_do_not_blind_those_who_rank(name):
    assert accuracy(*far_out(30), name) > 0.8


def test_ranks_are_places_among_what_was_learned():
    ranks = Ranks.of(np.array([[1.0, 5], [2, 5], [2, 5], [np.nextafter(2, 3), 5]]))
    found = ranks(np.array([[0.0, 1], [1, 1], [1.5, 9], [2, 1], [1e300, 1]]))
    assert found.ravel().tolist() == [-1, -0.75, -0.5, 0, 1]
    assert np.array_equal(Ranks.of(np.ones((3, 2)))(np.ones((4, 2))), np.zeros((4, 1)))


def test_only_far_values_are_held():
    rows = noise(200, 3)
    rows[0, 0], rows[1:, 1] = 1e12, 0  # of the second column nothing may be lost
    low, high = Standard.of(rows).fences
    assert 10 < high[0] < 1e3
    assert high[1] == np.inf
    assert low[2] < rows[:, 2].min() < rows[:, 2].max() < high[2]


# --- nothing to find ----------------------------------------------------------------------------


@pytest.fixture(scope="module", name="blind")
def _blind():
    return probe(noise(600, 10), person(600, 10))


def test_noise_gives_chance_to_all(blind):
    assert [one.name for one in blind.results] == list(ATTACKERS)
    assert blind.chance == pytest.approx(0.1)
    assert blind.strongest.interval[0] < 0.1 < blind.strongest.interval[1]
    assert all(one.accuracy < 0.22 for one in blind.results)
    assert blind.rows == 200
    assert blind.people == 10


def test_the_strongest_is_the_one_most_often_right(blind):
    assert blind.strongest.accuracy == max(one.accuracy for one in blind.results)
    own = next(one for one in blind.results if one.name == blind.strongest.name)
    assert own.interval[0] > blind.strongest.interval[0]
    assert own.interval[1] < blind.strongest.interval[1]
    count = round(own.accuracy * blind.rows)
    assert own.interval == exact_interval(count, blind.rows, 1.0, 0.0, 0.95)


def test_it_prints_and_stores(blind):
    lines = str(blind).splitlines()
    assert len(lines) == 1 + len(ATTACKERS)
    assert lines[-1].startswith(f"strongest: {blind.strongest.name}, ")
    assert "chance 10.0%; 10 people, 200 rows" in lines[-1]
    stored = json.loads(json.dumps(blind.to_dict()))
    assert stored["strongest"]["name"] == blind.strongest.name
    assert len(stored["results"]) == len(ATTACKERS)


def test_the_interval_of_the_strongest_covers_all_at_once(monkeypatch):
    """Twenty attackers with one and the same accuracy: the luckiest one's own interval is off."""
    rng, truth = np.random.default_rng(5), person(300, 2)

    def guess(seen):
        right = rng.random(100) < 0.6
        tried = split("probe", truth, 1 / 3, 0)
        return np.where(right, truth[tried], 1 - truth[tried])

    monkeypatch.setattr(probes, "ATTACKERS", {f"guess-{i}": guess for i in range(20)})
    monkeypatch.setattr(probes, "_cores", lambda: 1)
    covered, naive = [], []
    for _ in range(60):
        found = probe(np.zeros((300, 1)), truth)
        covered.append(found.strongest.interval[0] <= 0.6 <= found.strongest.interval[1])
        own = next(one for one in found.results if one.name == found.strongest.name)
        naive.append(own.interval[0] <= 0.6)
    assert np.mean(covered) >= 0.95
    assert np.mean(naive) < 0.9


def test_chance_is_the_best_constant_guess():
    who = np.repeat([0, 1, 2], [300, 60, 60])
    found = probe(noise(420, 3), who, attackers=["logistic"])
    assert found.chance == pytest.approx(300 / 420)
    assert found.strongest.accuracy == pytest.approx(found.chance, abs=0.02)


# --- splits and seeds ---------------------------------------------------------------------------


def test_every_person_is_in_both_parts_and_no_row_is():
    who = np.repeat(np.arange(40), np.arange(2, 42))
    tried = split("probe", who, 1 / 3, 0)
    assert set(who[tried]) == set(who[~tried]) == set(range(40))
    assert np.bincount(who[tried])[-1] == 14  # of 41
    assert split("probe", who, 0.999, 0).sum() == len(who) - 40


def test_a_seed_repeats_and_another_does_not():
    rows, who = (part[:150] for part in linear())
    rows = rows + 4 * noise(*rows.shape, seed=9)
    names = ["neighbours", "trees", "mlp-small"]
    first, again = (probe(rows, who, attackers=names, seed=3) for _ in range(2))
    assert first == again
    assert probe(rows, who, attackers=names, seed=4) != first


def test_rows_given_to_be_tried_on_are_used():
    rows, who = linear()
    found = probe(rows[:400], who[:400], rows[400:], who[400:], attackers="logistic")
    assert found.rows == 200
    assert found.strongest.accuracy > 0.9
    # Other people's labels on the same rows: what was learned is wrong for all of them.
    turned = probe(rows[:400], who[:400], rows[400:], (who[400:] + 1) % 3, attackers="logistic")
    assert turned.strongest.accuracy < 0.1
    words = np.array(["ann", "bob", "eve"])[who]
    same = probe(rows[:400], words[:400], rows[400:], words[400:].tolist(), attackers="logistic")
    assert same == found


# --- shapes of what is released -----------------------------------------------------------------


@pytest.mark.parametrize("name", QUICK)
def test_one_hot_codes(name):
    """Twelve distinct rows, four a person, and one row in five is anybody's."""
    who, rng = person(), np.random.default_rng(6)
    told = np.where(rng.random(ROWS) < 0.8, who, rng.integers(0, PEOPLE, ROWS))
    codes = np.eye(12, dtype=bool)[4 * told + rng.integers(0, 4, ROWS)]
    assert accuracy(codes, who, name) > 0.75


@pytest.mark.parametrize("name", QUICK)
def test_constant_columns_and_extreme_values(name):
    who = person(42, 2)
    rows = np.column_stack([np.full(42, 7.0), 1e300 * (who - 0.5), 1e-300 * noise(42)])
    assert accuracy(rows, who, name) == 1
    assert accuracy(np.full((42, 3), 2), who, name) == 0.5


def test_a_later_row_far_away_is_held():
    standard = Standard.of(1e-300 * noise(50, 2))
    held = standard(np.array([[1e300, -1e300]]))
    assert held.tolist() == [[np.float32(50**0.5), -np.float32(50**0.5)]]
    assert np.isfinite(White.of(held)(held)).all()


def test_images_and_very_many_columns():
    who = person(90, 2)
    images = noise(90, 40, 40) + 2.0 * who[:, None, None]
    assert accuracy(images, who, "logistic") == 1
    white = White.of(Standard.of(images.reshape(90, -1))(images.reshape(90, -1)))
    assert white.axes.shape == (1600, 89)


def test_few_rows_of_many_people():
    who = np.repeat(np.arange(8), 2)
    rows = 9.0 * np.eye(8)[who] + 0.1 * noise(16, 8)
    found = probe(rows, who, attackers=[*ATTACKERS][:5])
    assert found.strongest.accuracy == 1


FRESH = """
import sys
import numpy as np
from tacit.anonymize import bounds, linkage, probes
assert not {"torch", "sklearn"} & set(sys.modules)
probes._cores = lambda: 7
probes.probe(np.arange(12.0), [0, 1] * 6, attackers=[*probes.ATTACKERS][:5])
assert "torch" not in sys.modules
"""


@pytest.mark.heavy
def test_a_fresh_start():
    """Nothing heavy is loaded before it is needed, and then not by several threads at once."""
    assert subprocess.run([sys.executable, "-W", "error", "-c", FRESH], check=False).returncode == 0


# --- refusals -----------------------------------------------------------------------------------

SECRET = "alexandra"
TWO = [SECRET, "b"] * 5
ZEROS = np.zeros((10, 2))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: probe(np.full((10, 2), np.nan), TWO), "finite"),
        (lambda: probe(np.full((10, 2), np.inf), TWO), "finite"),
        (lambda: probe([["x"]] * 10, TWO), "numbers"),
        (lambda: probe([], []), "empty"),
        (lambda: probe([[1.0], [1.0, 2.0]], TWO), "regular array"),
        (lambda: probe(ZEROS, [[SECRET], ["a", "b"]]), "regular array"),
        (lambda: probe(3.0, TWO), "rows of numbers"),
        (lambda: probe(ZEROS, [SECRET] * 10), "at least two people"),
        (lambda: probe(ZEROS, [*TWO[:-1], None]), "row 9 has none"),
        (lambda: probe(ZEROS, [*TWO[:-1], ""]), "row 9 has none"),
        (lambda: probe(ZEROS, [0.0, 1.0] * 4 + [np.nan, 1.0]), "row 8 has none"),
        (lambda: probe(ZEROS, np.array([*TWO[:-1], 3], object)), "all numbers or all strings"),
        (lambda: probe(ZEROS, TWO[:-1]), "one label per row"),
        (lambda: probe(ZEROS, np.zeros((10, 2))), "one label per row"),
        (lambda: probe(ZEROS, [*TWO[:-1], "c"]), "at least two rows"),
        (lambda: probe(ZEROS, TWO, ZEROS, ["c"] * 10), "among the 2 of the training"),
        (lambda: probe(ZEROS, TWO, ZEROS, [SECRET] * 9 + ["z"]), "row 9 is not"),
        (lambda: probe(ZEROS, TWO, ZEROS, [0] * 10), "strings in both parts"),
        (lambda: probe(ZEROS, TWO, ZEROS), "given together"),
        (lambda: probe(ZEROS, TWO, ZEROS[:, :1], TWO), "test columns must be 2"),
        (lambda: probe(ZEROS, TWO, attackers=["oracle"]), "one of logistic"),
        (lambda: probe(ZEROS, TWO, attackers=[]), "at least one"),
        (lambda: probe(ZEROS, TWO, share=0), "share must be"),
        (lambda: probe(ZEROS, TWO, share=1), "share must be"),
        (lambda: probe(ZEROS, TWO, confidence=1.0), "confidence must be"),
        (lambda: probe(ZEROS, TWO, seed=-1), "seed must be"),
    ],
)
def test_refusals(call, says):
    with pytest.raises((InvalidParameter, InvalidData), match=says) as caught:
        call()
    assert str(caught.value).startswith("probe: ")
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
