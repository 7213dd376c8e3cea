"""Votes: the ballot's exact law, what leaves a device, and how it is stored."""

import json
import math

import numpy as np
import pytest

from tacit.audit import exact
from tacit.local.inference.votes import KNOWN_GROUP, Ballot, Votes, cast, outcomes
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms import RandomizedResponse, SubsetSelection
from tacit.privacy.randomness import Seeded

BALLOTS = {
    "right or wrong": Ballot(epsilon=2),
    "classes": Ballot(epsilon=2, classes=3),
    "many classes": Ballot(epsilon=1, classes=6),
    "groups": Ballot(epsilon=3, groups=("north", "south")),
    "both": Ballot(epsilon=1, classes=("no", "yes"), groups=("a", "b", "c")),
}
every_ballot = pytest.mark.parametrize("ballot", BALLOTS.values(), ids=BALLOTS)


class Model:
    """Says what is in the first column."""

    classes_ = np.array(["no", "yes"])

    def predict(self, rows):
        return self.classes_[np.asarray(rows)[:, 0].astype(int)]


# --- the channel ---------------------------------------------------------------------------------


@every_ballot
def test_the_guarantee_is_what_the_law_gives_and_no_less(ballot):
    """The worst log-ratio over all outputs and any two symbols is ε, all of it spent on one."""
    found = exact.smallest_epsilon(exact.tabulate(ballot.channel))
    assert found <= float(ballot.epsilon) + 1e-12
    assert found == pytest.approx(float(ballot.epsilon), abs=1e-9)
    assert ballot.guarantee.epsilon == float(ballot.epsilon)
    assert ballot.guarantee.unit is Unit.PERSON


@every_ballot
def test_law_is_the_channels(ballot):
    outputs = np.asarray(list(ballot.channel.outputs())).reshape(-1, ballot.law.size)
    flat = outputs if ballot.law.size > 1 else outputs[:, 0]
    mass = np.exp(ballot.channel.log_prob(flat, np.zeros(len(outputs), int)))
    holds = [float(mass[(outputs == symbol).any(axis=1)].sum()) for symbol in (0, 1)]
    assert holds == pytest.approx([ballot.law.own, ballot.law.other])


def test_right_or_wrong_is_warners_coin():
    law = Ballot(epsilon=2).law
    assert law.other == pytest.approx(1 / (math.exp(2) + 1), abs=1e-15)
    assert law.own == pytest.approx(1 - law.other)


def test_the_channel_is_the_better_one():
    """By the variance of a count: sets where noise is heavy, a single symbol where it is light."""
    assert isinstance(Ballot(epsilon=1, classes=10).channel, SubsetSelection)
    assert isinstance(Ballot(epsilon=4, classes=10).channel, RandomizedResponse)
    for ballot in (Ballot(epsilon=1, classes=10), Ballot(epsilon=4, classes=10)):
        sizes = {
            size: SubsetSelection(categories=20, epsilon=ballot.epsilon, size=size).inclusion
            for size in range(1, 12)
        }
        spread = {size: q * (1 - q) / (p - q) ** 2 for size, (p, q) in sizes.items()}
        assert ballot.law.size == min(spread, key=spread.get)


@pytest.mark.parametrize("name", ["right or wrong", "both"])
def test_votes_are_drawn_from_the_law(name):
    """And a device that answered truthfully would be noticed."""
    ballot, count = BALLOTS[name], 40_000
    shape = ballot.shape
    given = {}
    if ballot.classes:
        given = {"classes": np.full(count, "yes"), "groups": np.full(count, "c")}
    votes = ballot.release(np.ones(count, bool), **given, rng=Seeded(4))
    symbol = np.ravel_multi_index((shape[0] - 1, shape[1] - 1, 1), shape)

    def distance(symbols):
        holds = np.bincount(symbols.ravel(), minlength=ballot.law.symbols)
        chance = np.full(ballot.law.symbols, ballot.law.other)
        chance[symbol] = ballot.law.own
        spread = np.sqrt(count * chance * (1 - chance))
        return float(np.abs((holds - count * chance) / spread).max())

    assert distance(votes.symbols) < 4
    truthful = np.full_like(votes.symbols, symbol)
    assert distance(truthful) > 40


def test_entropy_is_the_systems_and_seeds_are_marked():
    right = np.ones(64, bool)
    first, second = (Ballot(epsilon=1).release(right) for _ in range(2))
    assert not np.array_equal(first.symbols, second.symbols)
    assert not first.seeded
    assert not first.certificate.seeded
    seeded = Ballot(epsilon=1).release(right, rng=Seeded(0))
    assert seeded.seeded
    assert seeded.certificate.seeded


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 0}, "epsilon must be"),
        ({"epsilon": float("nan")}, "epsilon must be"),
        ({"epsilon": 1, "classes": 1}, "classes must be"),
        ({"epsilon": 1, "groups": "north"}, "groups must be"),
        ({"epsilon": 1, "groups": [1, 2]}, "groups must be"),
        ({"epsilon": 1, "unit": "household"}, "unit must be"),
        ({"epsilon": 1, "classes": 2**15, "groups": ("a", "b", "c")}, "symbols must be"),
    ],
)
def test_ballots_that_are_refused(settings, words):
    with pytest.raises(InvalidParameter, match=words):
        Ballot(**settings)


def test_answers_that_are_refused():
    plain, asks = Ballot(epsilon=1), Ballot(epsilon=1, classes=("no", "yes"))
    with pytest.raises(InvalidParameter, match="classes must be None"):
        plain.release([True], classes=["no"])
    with pytest.raises(InvalidParameter, match="classes must be given"):
        asks.release([True])
    with pytest.raises(InvalidData, match="one per answer"):
        asks.release([True, False], classes=["no"])
    with pytest.raises(InvalidData, match="declared classes") as error:
        asks.release([True], classes=["secret"])
    assert "secret" not in str(error.value)
    for wrong in ([2], [[True]], [0.5], []):
        with pytest.raises(InvalidData):
            plain.release(wrong)


# --- voting --------------------------------------------------------------------------------------


def test_outcomes_are_of_the_own_row():
    right, classes = outcomes(Model(), [[0], [1], [1]], ["no", "no", "yes"])
    assert right.tolist() == [True, False, True]
    assert classes.tolist() == ["no", "no", "yes"]
    with pytest.raises(InvalidData, match="row 1 is not") as error:
        outcomes(Model(), [[0], [1]], ["no", "secret"])
    assert "secret" not in str(error.value)
    with pytest.raises(InvalidData, match="one per row"):
        outcomes(Model(), [[0], [1]], ["no"])


def test_cast_puts_class_and_group_into_one_symbol():
    """At an ε so large that the noise is gone, the symbol is what went in."""
    ballot = Ballot(epsilon=60, classes=("no", "yes"), groups=("a", "b", "c"))
    votes = cast(Model(), [[1], [0]], ["yes", "yes"], ballot, groups=["c", "a"])
    assert votes.symbols.tolist() == [(1 * 3 + 2) * 2 + 1, (1 * 3 + 0) * 2 + 0]
    assert votes.groups is None
    known = cast(Model(), [[1], [0]], ["yes", "yes"], Ballot(epsilon=60), known_groups=["c", "a"])
    assert known.symbols.tolist() == [1, 0]
    assert known.groups == ("c", "a")
    assert KNOWN_GROUP in known.certificate.not_protected
    assert KNOWN_GROUP not in votes.certificate.not_protected


def test_votes_that_no_channel_gave_are_refused():
    for symbols in ([2], [-1], [[0]], [0.5], []):
        with pytest.raises(InvalidData):
            Votes(Ballot(epsilon=1), np.array(symbols))
    wide = Ballot(epsilon=1, classes=6)
    assert wide.law.size > 1
    for symbols in ([0] * wide.law.size, list(range(wide.law.size))[::-1]):
        with pytest.raises(InvalidData):
            Votes(wide, np.array([symbols]))
    with pytest.raises(InvalidData, match="groups must be one per vote"):
        Votes(Ballot(epsilon=1), np.array([0, 1]), ("a",))


# --- storage -------------------------------------------------------------------------------------


def released(ballot, count=20, **more):
    rng = np.random.default_rng(0)
    asked = {
        "classes": None if ballot.classes is None else rng.choice(ballot.classes, count),
        "groups": None if ballot.groups is None else rng.choice(ballot.groups, count),
    }
    votes = ballot.release(rng.random(count) < 0.7, **asked, **more)
    return votes


@every_ballot
def test_a_file_is_read_back(ballot, tmp_path):
    votes = released(ballot)
    again = Votes.read(votes.write(tmp_path / "v.json"))
    assert again.ballot == ballot
    np.testing.assert_array_equal(again.symbols, votes.symbols)
    assert (again.groups, again.about, again.seeded) == (None, "", False)
    assert again.guarantee == votes.guarantee
    with pytest.raises(InvalidParameter, match="path must be new"):
        votes.write(tmp_path / "v.json")
    assert [path.name for path in tmp_path.iterdir()] == ["v.json"]


def test_a_file_says_what_it_is(tmp_path):
    seeded = released(Ballot(epsilon=2), rng=Seeded(0))
    votes = Votes(seeded.ballot, seeded.symbols, ("a",) * 20, "model", True)
    again = Votes.read(votes.write(tmp_path / "v.json"))
    assert (again.groups, again.about, again.seeded) == (("a",) * 20, "model", True)
    assert again.certificate.seeded


def test_a_changed_file_is_refused(tmp_path):
    path = released(Ballot(epsilon=2)).write(tmp_path / "v.json")
    good = path.read_bytes()
    body = json.loads(good)
    for place in range(0, len(good), 97):
        spoiled = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
        path.write_bytes(spoiled)
        with pytest.raises(InvalidData, match="unchanged file"):
            Votes.read(path)
    for spoiled in (b"", b"[]", b"{}", b"\xff", json.dumps(body).encode()[:-5]):
        path.write_bytes(spoiled)
        with pytest.raises(InvalidData, match="unchanged file"):
            Votes.read(path)
    with pytest.raises(InvalidParameter, match="existing file"):
        Votes.read(tmp_path / "none.json")


def test_a_certificate_of_another_epsilon_is_refused(tmp_path):
    """Also where whoever changed the file has sealed it again."""
    from tacit.local.inference.votes import _sealed

    votes = released(Ballot(epsilon=2))
    body = votes._body() | {"certificate": Ballot(epsilon=1).certificate.to_json()}
    (tmp_path / "v.json").write_bytes(_sealed(body))
    with pytest.raises(InvalidData, match="about other votes"):
        Votes.read(tmp_path / "v.json")


def test_votes_add_up_only_if_they_are_about_the_same():
    one = released(Ballot(epsilon=2))
    assert len(Votes.concatenate([one, released(Ballot(epsilon=2))])) == 40
    known, more = (Votes(one.ballot, one.symbols, ("a",) * 20) for _ in range(2))
    assert Votes.concatenate([known, more]).groups == ("a",) * 40
    others = (
        Votes(one.ballot, one.symbols, about="another model"),
        released(Ballot(epsilon=1)),
        known,
    )
    for other in others:
        with pytest.raises(InvalidData, match="the same model"):
            Votes.concatenate([one, other])
    with pytest.raises(InvalidParameter, match="at least one"):
        Votes.concatenate([])
    assert len(one[:5]) == 5
    assert known[np.arange(20) < 3].groups == ("a",) * 3


def test_the_same_votes_are_not_twice_the_people(tmp_path):
    ballot = Ballot(epsilon=1)
    one, other = ballot.release(np.ones(20, bool)), ballot.release(np.ones(30, bool))
    path = one.write(tmp_path / "v.json")
    for parts in ([one, one], [one, Votes.read(path)], [Votes.concatenate([one, other]), other]):
        with pytest.raises(InvalidData, match="every row of a release must occur once"):
            Votes.concatenate(parts)
    assert len(Votes.concatenate([one, other])) == 50
    assert len(Votes.concatenate([one[:5], one[5:]])) == 20


def test_votes_are_drawn_once_beside_a_part_of_an_earlier_run(tmp_path):
    (tmp_path / ".v.json-x1").write_bytes(b"half")
    with pytest.raises(InvalidParameter, match="two draws of a row"):
        Ballot(epsilon=1).release(np.ones(20, bool)).write(tmp_path / "v.json")
