"""Which rows of which release: nobody counts twice, through slices and files."""

import sys

import numpy as np
import pytest

from tacit.data.schema import ArraySchema
from tacit.local import origins
from tacit.local.inference.votes import Ballot, Votes
from tacit.local.learned.codebook import Codebook
from tacit.local.reports import Reports, ReportsWriter
from tacit.privacy.errors import InvalidData, TacitError

ROWS = np.arange(50)


@pytest.fixture(scope="module")
def released():
    rows = np.random.default_rng(0).random((50, 2))
    mechanism = Codebook(epsilon=1, codewords=6).fit(rows, schema=ArraySchema(2, 0, 1))
    return mechanism.release(rows)


@pytest.fixture(scope="module")
def votes():
    return Ballot(epsilon=1.0).release([True] * 50)


@pytest.fixture(params=["votes", "reports"])
def table(request, votes, released):
    return votes if request.param == "votes" else released


def through(table, path):
    table.write(path)
    return type(table).read(path)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (slice(None), slice(None)),
        (slice(0, 30), slice(29, 50)),
        (ROWS[::-1], slice(3, 4)),
        (ROWS % 2 == 0, [7, 9, 10]),
        ([5, 3], slice(0, 4)),
    ],
)
def test_the_same_row_twice_is_refused(table, first, second, tmp_path):
    parts = [table[first], table[second]]
    kind = type(table)
    with pytest.raises(InvalidData, match="count twice"):
        kind.concatenate(parts)
    parts = [through(part, tmp_path / str(at)) for at, part in enumerate(parts)]
    with pytest.raises(InvalidData, match="count twice"):
        kind.concatenate(parts)
    with pytest.raises(InvalidData, match="count twice"):
        kind.concatenate([table, parts[1]])
    with pytest.raises(InvalidData, match="count twice"):
        kind.concatenate([parts[0], parts[0][0:1]])


def test_parts_go_together_again(table, tmp_path):
    kind, even = type(table), ROWS % 2 == 0
    parts = [table[even], table[~even][::-1]]
    parts = [through(part, tmp_path / str(at)) for at, part in enumerate(parts)]
    both = kind.concatenate(parts)
    assert len(both) == 50
    # A slice of what was put together knows its rows still.
    with pytest.raises(InvalidData, match="count twice"):
        kind.concatenate([both[20:30], table[48:49]])
    kind.concatenate([both[20:30], table[1:2]])
    kind.concatenate([both[:25], both[25:]])
    with pytest.raises(InvalidData, match="count twice"):
        _ = table[[1, 1]]


def test_a_writer_keeps_the_releases_of_its_batches(released, tmp_path):
    def twice():
        with ReportsWriter(tmp_path / "a", released.mechanism, released.channel) as writer:
            writer.add(released)
            writer.add(released[:1])

    with pytest.raises(InvalidData, match="count twice"):
        twice()
    assert not (tmp_path / "a").exists()
    with ReportsWriter(tmp_path / "b", released.mechanism, released.channel) as writer:
        writer.add(released[:20])
        writer.add(released[20:])
    with pytest.raises(InvalidData, match="count twice"):
        Reports.concatenate([Reports.read(tmp_path / "b"), released[49:]])


@pytest.mark.parametrize(
    "releases", [("a", "b"), ("a[0:49]",), ("a[0:51]",), ("a[50:0]",), ("a[0:50", "["), ("a[x]",)]
)
def test_releases_that_do_not_say_it_are_refused(votes, releases):
    with pytest.raises(TacitError, match="releases must"):
        Votes(votes.ballot, votes.symbols, releases=releases)


@pytest.mark.heavy
def test_memory_stays_small():
    many = 10**6
    whole = origins.settled("test", origins.fresh(), many)
    some = origins.chosen("test", whole, slice(5, many, 1))
    assert sum(map(sys.getsizeof, (*whole, *some))) < 500
    mask = np.random.default_rng(0).random(many) < 0.5
    (half,) = origins.chosen("test", whole, mask)
    assert len(half) < 20 * many
    (rest,) = origins.chosen("test", whole, ~mask)
    origins.must_be_once("test", (half, rest))
    with pytest.raises(InvalidData):
        origins.must_be_once("test", (half, rest, some[0]))
