"""Several public partitions: the exact law of a report, who is assigned what, and storage."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare

import tacit
from tacit.data.columns import IgnoredColumnsWarning
from tacit.local.channels import PartitionedChannel
from tacit.local.learned import onnx
from tacit.local.learned.cells import Cells, joined
from tacit.local.learned.partitions import Partitions
from tacit.privacy import artifact, errors
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

EPSILON, PARTITIONS, SYMBOLS = 1.0, 3, 5


def channel(size=2):
    law = SubsetSelection(categories=SYMBOLS, epsilon=EPSILON, size=size)
    return PartitionedChannel(law=law, partitions=PARTITIONS)


def outputs(size=2):
    sets = list(itertools.combinations(range(SYMBOLS), size))
    pairs = [(p, s) for p in range(PARTITIONS) for s in sets]
    return {
        "partition": np.array([p for p, _ in pairs]),
        "symbols": np.array([s for _, s in pairs]),
    }


def law_of(raw, made=None, size=2):
    made, every = made or channel(size), outputs(size)
    count = len(every["partition"])
    return made.log_prob(every, np.repeat(np.array([raw]), count, axis=0))


RAW = [(0, 0, 0), (1, 2, 3), (4, 4, 4), (0, 4, 0), (1, 0, 0)]


@pytest.mark.parametrize("raw", RAW)
def test_the_law_sums_to_one(raw):
    assert math.fsum(np.exp(law_of(raw))) == pytest.approx(1, abs=1e-12)


def test_the_exact_profile_is_epsilon():
    """Over all pairs of rows, in whatever cells of whatever partitions they lie."""
    table = {raw: law_of(raw) for raw in itertools.product(range(3), repeat=PARTITIONS)}
    worst = max(
        float(np.abs(table[a] - table[b]).max()) for a, b in itertools.combinations(table, 2)
    )
    assert worst == pytest.approx(EPSILON, abs=1e-9)
    assert str(channel().guarantee) == "1-DP (local, any-two-inputs, unit: record)"


@pytest.mark.parametrize("raw", RAW[:3])
def test_draws_follow_the_law(raw):
    count = 60_000
    drawn = channel().release(np.repeat(np.array([raw]), count, axis=0), Seeded(1))
    sets = {tuple(s): i for i, s in enumerate(itertools.combinations(range(SYMBOLS), 2))}
    places = [
        p * len(sets) + sets[tuple(sorted(s))]
        for p, s in zip(drawn["partition"], drawn["symbols"].tolist(), strict=True)
    ]
    seen = np.bincount(places, minlength=PARTITIONS * len(sets))
    assert chisquare(seen, np.exp(law_of(raw)) * count).pvalue > 1e-6


def assigned(made, raw, count=4000):
    drawn = made.release(np.repeat(np.array([raw]), count, axis=0), Seeded(2))
    return np.bincount(drawn["partition"], minlength=PARTITIONS)


def test_nobodys_row_decides_on_their_partition():
    """With the same coins, any two rows are assigned the same partitions."""
    for raw in RAW:
        np.testing.assert_array_equal(assigned(channel(), raw), assigned(channel(), RAW[0]))


class ByTheRow(PartitionedChannel):
    """A mutant: the partition is read off the row."""

    def release(self, raw, rng=None):
        raw = np.asarray(raw)
        own = raw.sum(axis=1) % self.partitions
        symbols = np.take_along_axis(raw, own[:, None], axis=1)[:, 0]
        return {"partition": own, "symbols": self.law.release(symbols, rng)}


def test_a_partition_chosen_by_the_row_is_caught():
    mutant = ByTheRow(law=channel().law, partitions=PARTITIONS)
    first, second = assigned(mutant, RAW[0]), assigned(mutant, RAW[4])
    assert (first != second).any()
    # What one draw of each shows already refutes ε = 1: a partition that the other never gets.
    assert (first[second == 0] > 1000).any()


# --- the mechanism ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(900, 8)) * np.arange(1, 9)


@pytest.fixture(scope="module")
def mechanism(rows):
    return Partitions(epsilon=4, people=600, classes=2).fit(rows[:300])


def test_cells_are_nearest_centres(mechanism, rows):
    vectors = mechanism.vectors(rows)
    found = mechanism.encode(rows)
    for index in range(mechanism.partitions):
        block = mechanism.blocks_[index % len(mechanism.blocks_)]
        centres = mechanism.cells_.centres[index][:, block]
        distance = ((vectors[:, None, block] - centres) ** 2).sum(axis=2)
        nearest = np.take_along_axis(distance, found[:, [index]], axis=1)[:, 0]
        np.testing.assert_allclose(nearest, distance.min(axis=1), rtol=1e-3, atol=1e-3)


def test_adapted_cells_are_nearest_in_the_space_of_scores(mechanism, rows):
    width = mechanism.projection_.matrix.shape[1]
    scores = np.random.default_rng(1).normal(size=(width + 1, 2)).astype(np.float32)
    other = mechanism.adapted([scores], rows[:300], taught=mechanism.inhouse_)
    assert other.channel() == mechanism.channel()
    values = mechanism.vectors(rows) @ scores[:-1] + scores[-1]
    values -= values.mean(axis=1, keepdims=True)
    codes = other.encode(rows)
    assert (codes[:, 1::2] == mechanism.encode(rows)[:, 1::2]).all()  # every second one stays
    codes = codes[:, 0]
    means = np.stack([values[:300][codes[:300] == k].mean(axis=0) for k in np.unique(codes[:300])])
    nearest = ((values[:300, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    ranks = np.unique(codes[:300], return_inverse=True)[1]
    assert (nearest == ranks).mean() > 0.85  # k-means has nearly settled


def test_numbers_in_one_unit_have_two_blocks_and_mixed_tables_one(rows):
    table = pd.DataFrame(rows, columns=list("abcdefgh"))
    options = {"epsilon": 2, "people": 500, "classes": 2}
    assert len(Partitions(**options).fit(table[:300]).blocks_) == 2
    mixed = table.assign(kind=np.where(rows[:, 0] > 0, "u", "v"))
    assert len(Partitions(**options).fit(mixed[:300]).blocks_) == 1


def test_people_may_lack_what_no_inhouse_row_lacked(rows):
    table = pd.DataFrame(rows, columns=list("abcdefgh")).assign(kind="u")
    table.loc[:150, "kind"] = "v"
    made = Partitions(epsilon=2, people=500, classes=2).fit(table[:300])
    later = table[300:].copy().astype({"kind": object})
    later.loc[400, "a"], later.loc[401, "kind"], later.loc[402, "b"] = np.nan, "unheard of", 1e300
    later.loc[403, "c"], later.loc[404, "d"] = np.inf, -np.inf
    shuffled = later[["kind", *"hgfedcba"]].assign(extra=1.0)
    with pytest.warns(IgnoredColumnsWarning, match="ignored: extra"):
        found = made.encode(shuffled)
    np.testing.assert_array_equal(made.encode(later), found)
    assert len(made.release(later, np.zeros(600, int))) == 600


def test_the_onnx_encoder_gives_the_same_cells(mechanism, rows):
    checked = mechanism.schema.rows(rows)
    agree = onnx.run(mechanism.onnx(), checked) == mechanism.encode(rows)
    assert agree.mean() > 0.999


def test_a_packed_mechanism_is_the_same(mechanism, rows):
    again = artifact.unpack(artifact.pack(mechanism))
    np.testing.assert_array_equal(again.encode(rows), mechanism.encode(rows))
    assert again.channel() == mechanism.channel()
    assert artifact.fingerprint(again) == artifact.fingerprint(mechanism)


def test_reports_are_written_and_read(mechanism, rows, tmp_path):
    reports = mechanism.release(rows[300:], (rows[300:, 0] > 0).astype(int), Seeded(0))
    again = tacit.Reports.read(reports.write(tmp_path / "reports.parquet"))
    for name in ("partition", "symbols"):
        np.testing.assert_array_equal(again.columns[name], reports.columns[name])
    assert again.mechanism.kind == "partitions"


def test_a_partition_that_there_is_not_is_refused(mechanism, rows):
    reports = mechanism.release(rows[300:], np.zeros(600, int), Seeded(0))
    columns = {**reports.columns, "partition": np.full(600, mechanism.partitions)}
    with pytest.raises(errors.InvalidData, match="column 'partition'"):
        tacit.Reports(mechanism, columns, reports.channel)


def test_the_mechanism_must_stay_inside(mechanism, tmp_path):
    with pytest.raises(errors.TacitError, match="in-house"):
        mechanism.export(tmp_path / "people")
    alone = mechanism.shared("join")
    assert alone.channel() == mechanism.channel()
    assert artifact.unpack(artifact.pack(alone)).channel() == mechanism.channel()
    with pytest.raises(errors.InvalidParameter, match="hold its encoder"):
        alone.release(np.zeros((1, 8)))


def test_public_rows_may_leave(rows, tmp_path):
    made = Partitions(epsilon=2, people=500, classes=2).fit(rows[:300], inhouse_public=True)
    again = tacit.load(made.export(tmp_path / "people"))
    np.testing.assert_array_equal(again.encode(rows), made.encode(rows))


@pytest.mark.parametrize("name", ["centres", "offsets", "mean", "matrix"])
def test_weights_that_do_not_fit_are_refused(mechanism, name):
    parameters, arrays = mechanism.parts()
    with pytest.raises(errors.InvalidData, match="fit each other"):
        Partitions.from_parts(parameters, {**arrays, name: arrays[name][..., :1]})
    broken = {**arrays, name: np.full_like(arrays[name], np.nan)}
    with pytest.raises(errors.InvalidData, match="fit each other"):
        Partitions.from_parts(parameters, broken)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partitions": 0}, "partitions must be"),
        ({"people": 0}, "people must be"),
        ({"codewords": 1}, "codewords must be"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"classes": 1}, "classes must be"),
    ],
)
def test_parameters_are_checked(changes, message):
    good = {"epsilon": 1, "people": 500, "classes": 2}
    with pytest.raises(errors.InvalidParameter, match=message):
        Partitions(**{**good, **changes})


def test_too_few_or_equal_rows_are_refused():
    made = Partitions(epsilon=1, people=500, classes=2)
    with pytest.raises(errors.InvalidData, match="at least 16"):
        made.fit(np.random.default_rng(0).normal(size=(10, 3)))
    with pytest.raises(errors.InvalidData, match="all alike"):
        made.fit(np.ones((100, 3)))


def test_few_people_have_few_partitions():
    assert Partitions(epsilon=1, people=90, classes=2).partitions == 1
    assert Partitions(epsilon=1, people=10_000, classes=2).partitions == 8


def test_cells_take_blocks_of_any_length():
    cells = Cells(np.eye(3, dtype=np.float32)[None], np.zeros((1, 3), np.float32))
    vectors = np.random.default_rng(0).normal(size=(5000, 3)).astype(np.float32)
    np.testing.assert_array_equal(cells(vectors)[:, 0], vectors.argmax(axis=1))


def test_joined_cells_are_unions_of_small_ones():
    vectors = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
    cells = joined(vectors, 6, 4, seed=0)
    assert cells.groups.shape == (4, cells.centres.shape[1])
    assert cells.count == 6
    distance = ((vectors[:50, None] - cells.centres[0]) ** 2).sum(axis=2)
    expected = cells.groups[:, distance.argmin(axis=1)].T
    np.testing.assert_array_equal(cells(vectors[:50]), expected)


@pytest.mark.parametrize("change", [lambda g: g[:1], lambda g: g + 1, lambda g: g[:, :-1]])
def test_groups_that_do_not_fit_are_refused(change):
    images = np.random.default_rng(0).integers(0, 256, (200, 8, 8), np.uint8)
    made = Partitions(epsilon=2, people=400, classes=2).fit(images, inhouse_public=True)
    parameters, arrays = made.parts()
    kept = Partitions.from_parts(parameters, arrays)
    np.testing.assert_array_equal(kept.encode(images), made.encode(images))
    with pytest.raises(errors.InvalidData, match="weights must fit"):
        Partitions.from_parts(parameters, {**arrays, "groups": change(arrays["groups"])})
