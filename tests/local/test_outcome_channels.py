"""Channels of reports with numeric outcomes: exact laws, with the rounding included."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import chisquare

import tacit
from tacit.data.outcomes import STEPS, Numeric
from tacit.local.channels import PartitionedChannel, SymbolChannel
from tacit.local.outcome_channels import ContrastChannel, RoundedChannel
from tacit.privacy.errors import InvalidData
from tacit.privacy.mechanisms import LocalMean, SubsetSelection
from tacit.privacy.randomness import Seeded

EPSILON = 1.25
OUTCOME = Numeric(0, 10)
POSITIONS = (0, 1, STEPS // 3, STEPS // 2, STEPS)


def contrast():
    law = LocalMean(lower=-1, upper=1, epsilon=EPSILON)
    return ContrastChannel(law=law, partitions=2, outcome=OUTCOME)


def cells():
    law = SubsetSelection(categories=6, epsilon=EPSILON)
    inner = PartitionedChannel(law=law, partitions=2, classes=(0, 1))
    return RoundedChannel(inner=inner, outcome=OUTCOME)


def codewords():
    law = SubsetSelection(categories=6, epsilon=EPSILON)
    return RoundedChannel(inner=SymbolChannel(law=law, classes=(0, 1, 2)), outcome=OUTCOME)


def inputs(channel):
    """All encoded rows, with several outcomes each."""
    if isinstance(channel, ContrastChannel):
        rows = list(product(range(2), repeat=2))
    elif isinstance(channel.inner, PartitionedChannel):
        rows = list(product(range(3), repeat=2))
    else:
        rows = [(k,) for k in range(2)]
    return np.array([(*row, place) for row in rows for place in POSITIONS])


def outputs(channel):
    """All reports."""
    if isinstance(channel, ContrastChannel):
        both = list(product(range(2), range(len(channel.law.outputs()))))
        return {n: np.array([one[i] for one in both]) for i, n in enumerate(channel.forms())}
    size = channel.inner.law.event.size
    sets = list(combinations(range(6), size))
    if isinstance(channel.inner, SymbolChannel):
        return {"symbols": np.array(sets)}
    both = list(product(range(2), sets))
    symbols = np.array([one[1] for one in both])
    return {"partition": np.array([one[0] for one in both]), "symbols": symbols}


def table(channel):
    reports, rows = outputs(channel), inputs(channel)
    count = len(next(iter(reports.values())))
    return np.array([channel.log_prob(reports, np.repeat(row[None], count, 0)) for row in rows])


CHANNELS = pytest.mark.parametrize("make", [contrast, cells, codewords])


@CHANNELS
def test_the_law_is_a_law_and_the_guarantee_holds_for_any_two_inputs(make):
    channel = make()
    law = table(channel)
    np.testing.assert_allclose(np.exp(law).sum(axis=1), 1, rtol=1e-9)
    worst = float((law.max(axis=0) - law.min(axis=0)).max())
    assert worst <= EPSILON + 1e-9
    assert worst > EPSILON - 1e-3  # what is charged is used
    assert channel.guarantee.epsilon == pytest.approx(EPSILON)


@CHANNELS
def test_draws_follow_the_law(make):
    channel, reports = make(), outputs(make())
    row = inputs(channel)[2]  # an outcome between two levels
    drawn = channel.release(np.repeat(row[None], 40_000, 0), Seeded(1))
    count = len(next(iter(reports.values())))
    expected = np.exp(channel.log_prob(reports, np.repeat(row[None], count, 0))) * 40_000
    joined = [
        tuple(np.column_stack([c.reshape(count, -1) for c in reports.values()])[i])
        for i in range(count)
    ]
    place = {key: index for index, key in enumerate(joined)}
    flat = np.column_stack([c.reshape(40_000, -1) for c in drawn.values()])
    seen = np.bincount([place[tuple(one)] for one in flat], minlength=count)
    assert chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-6
    # The mutant: a law that leaves out the rounding is refuted by the same draws.
    wrong = row.copy()
    wrong[-1] = 0
    other = np.exp(channel.log_prob(reports, np.repeat(wrong[None], count, 0)))
    assert chisquare(seen, other * seen.sum() / other.sum()).pvalue < 1e-6


def test_scores_estimate_the_product_without_bias():
    channel = contrast()
    rows = np.repeat([[1, 0, 3 * STEPS // 4]], 100_000, 0)
    drawn = channel.release(rows, Seeded(2))
    scores = channel.law.values[drawn["symbol"]]
    for partition, sign in ((0, 1), (1, -1)):
        own = scores[drawn["partition"] == partition]
        assert own.mean() == pytest.approx(sign * 0.5, abs=5 * own.std() / np.sqrt(len(own)))


@CHANNELS
def test_positions_and_cells_beyond_their_range_stay_within_the_law(make):
    channel = make()
    row = inputs(channel)[:1].copy()
    row[0, -1] = STEPS + 5
    held = inputs(channel)[len(POSITIONS) - 1 : len(POSITIONS)]
    drawn = channel.release(held, Seeded(3))
    np.testing.assert_array_equal(channel.log_prob(drawn, row), channel.log_prob(drawn, held))


@CHANNELS
def test_the_compact_form_comes_back(make):
    channel = make()
    columns = channel.release(np.repeat(inputs(channel), 20, 0), Seeded(4))
    wire = channel.to_bytes(columns)
    assert wire.shape[1] == channel.report_bytes
    for name, column in channel.from_bytes(wire).items():
        np.testing.assert_array_equal(column, columns[name])


@CHANNELS
def test_foreign_reports_are_refused(make):
    channel = make()
    columns = channel.release(inputs(channel), Seeded(5))
    name = "symbol" if "symbol" in columns else "symbols"
    with pytest.raises(InvalidData):
        channel.check({**columns, name: columns[name] + 1000})


def test_readers_of_results_learn_less_than_from_any_channel():
    rounded, other = cells(), tacit.shuffled(contrast(), people=20_000, delta=1e-6)
    same = tacit.shuffled(rounded.inner.law, people=20_000, delta=1e-6)
    assert tacit.shuffled(rounded, people=20_000, delta=1e-6) == same
    assert other.epsilon < 0.1
