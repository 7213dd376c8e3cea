"""Draws in a real browser against Python's: the same words, the same tables, the same law."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.apps.service import device
from tacit.local.channels import PartitionedChannel
from tacit.local.inference.votes import Ballot
from tacit.local.learned.codebook import Codebook
from tacit.privacy.mechanisms import DiscreteLaplace, RandomizedResponse, SubsetSelection
from tacit.privacy.mechanisms.laplace import log_mass

from .browser import browser_fixture, call_fixture  # noqa: F401

pytestmark = pytest.mark.heavy

SIGNIFICANCE = 1e-6
DRAWS = 60_000

SETS = [
    SubsetSelection(categories=5, epsilon=1, size=2),
    SubsetSelection(categories=6, epsilon=0.5, size=4),
    SubsetSelection(categories=7, epsilon=4, size=1),
    SubsetSelection(categories=2, epsilon=0.1),
    Ballot(epsilon=1, classes=3).channel,
]
ANSWERS = [
    RandomizedResponse(categories=2, epsilon=2),
    RandomizedResponse(categories=11, epsilon=0.3),
    Ballot(epsilon=1).channel,
]
IMPORT = "const { channelOf } = m; const channel = channelOf(given.law);"
STREAM = "const at = [0], rng = { word: () => BigInt(given.words[at[0]++]) };"


def law(channel):
    return device._law(channel)


class Recorded:
    """A stream of words that remembers them."""

    secure = False

    def __init__(self, seed):
        self.rng, self.said = np.random.default_rng(seed), []

    def words(self, count):
        drawn = self.rng.integers(0, 2**64, size=count, dtype=np.uint64)
        self.said += [str(word) for word in drawn]
        return drawn


# --- exact -----------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", [*SETS, *ANSWERS], ids=repr)
def test_exact_tables_are_equal(call, channel):
    outputs = channel.outputs()
    told = call(
        "channels",
        f"""(m, given) => {{ {IMPORT} return given.outputs.map((y) => given.inputs.map(
            (x) => channel.probability(y, x).map(String))); }}""",
        {"law": law(channel), "outputs": np.array(outputs).tolist(), "inputs": [*channel.inputs()]},
    )
    table = [[Fraction(int(a), int(b)) for a, b in row] for row in told]
    assert table == [[exact(channel, y, x) for x in channel.inputs()] for y in outputs]
    assert all(sum(column) == 1 for column in zip(*table, strict=True))
    worst = max(max(row) / min(row) for row in table)
    assert worst <= Fraction(math.exp(channel.event.epsilon) * (1 + 1e-12))


def exact(channel, released, raw):
    """Python's law as a fraction: from the event's weights."""
    event, total = channel.event, 2**64
    if isinstance(channel, RandomizedResponse):
        found = Fraction(event.keep if released == raw else event.other, total)
    elif raw in released:
        ways = math.comb(event.categories - 1, event.size - 1)
        found = Fraction(event.inclusion, total * ways)
    else:
        ways = math.comb(event.categories - 1, event.size)
        found = Fraction(total - event.inclusion, total * ways)
    one = float(np.exp(channel.log_prob(released, raw)))
    assert float(found) == pytest.approx(one, rel=1e-12)
    return found


@pytest.mark.parametrize(
    "channel",
    [
        *SETS,
        *ANSWERS,
        SubsetSelection(categories=160, epsilon=4),
        SubsetSelection(categories=300, epsilon=0.2),
    ],
    ids=repr,
)
def test_the_same_words_give_the_same_report(call, channel):
    cases = []
    for seed in range(200):
        stream, raw = Recorded(seed), seed % channel.categories
        expected = channel.release(np.array([raw]), stream)[0].tolist()
        cases.append({"words": stream.said, "raw": raw, "expected": expected})
    draws_the_same(call, law(channel), cases)


def draws_the_same(call, told, cases):
    """The browser makes the same of recorded words, and uses all of them."""
    got = call(
        "channels",
        f"""(m, {{ law, cases }}) => cases.map((given) => {{
            given.law = law; {IMPORT} {STREAM}
            return [channel.release(given.raw, rng), at[0] - given.words.length]; }})""",
        {"law": told, "cases": cases},
    )
    assert got == [[case["expected"], 0] for case in cases]


def test_a_law_states_its_cost(call):
    for channel in (*SETS, *ANSWERS):
        cost = call("channels", f"(m, given) => {{ {IMPORT} return channel.cost.epsilon; }}",
                    {"law": law(channel)})  # fmt: skip
        assert cost == pytest.approx(float(channel.epsilon), abs=1e-12)


@pytest.mark.parametrize("channel", SETS[:4], ids=repr)
def test_the_best_guess_is_right_as_often_as_said(call, channel):
    """Over all outputs, the likelier of some equally likely inputs; mixtures of them tell less."""
    body = f"(m, given) => {{ {IMPORT} return channel.guess(given.count); }}"
    for count in range(2, channel.categories + 1):
        said = call("channels", body, {"law": law(channel), "count": count})
        table = [[exact(channel, y, x) for x in range(count)] for y in channel.outputs()]
        assert said == pytest.approx(float(sum(map(max, table)) / count), rel=1e-12)
    mixed = [[(row[0] + row[1]) / 2, row[-1]] for row in table]
    assert sum(map(max, mixed)) <= sum(max(row[0], row[-1]) for row in table)


def partitioned(size=2):
    law = SubsetSelection(categories=5, epsilon=1, size=size)
    return PartitionedChannel(law=law, partitions=3)


def partitioned_law(channel):
    return {"kind": "partitions", "partitions": channel.partitions, "law": law(channel.law)}


RAWS = [[0, 0, 0], [4, 1, 3], [2, 2, 1]]


def test_partitions_have_the_exact_law_of_python(call):
    channel = partitioned()
    outputs = [(p, s.tolist()) for p in range(channel.partitions) for s in channel.law.outputs()]
    told = call(
        "channels",
        f"""(m, given) => {{ {IMPORT} return given.outputs.map(([partition, symbols]) =>
            given.raws.map((raw) => channel.probability({{ partition, symbols }}, raw)
              .map(String))); }}""",
        {"law": partitioned_law(channel), "outputs": outputs, "raws": RAWS},
    )
    table = np.array([[Fraction(int(a), int(b)) for a, b in row] for row in told])
    assert (table.sum(axis=0) == 1).all()
    # Which partition is reported does not depend on the row.
    assert (table.reshape(channel.partitions, -1, len(RAWS)).sum(axis=1) == Fraction(1, 3)).all()
    assert max(max(row) / min(row) for row in table) <= Fraction(math.exp(1) * (1 + 1e-12))
    columns = {
        "partition": np.array([p for p, _ in outputs]),
        "symbols": np.array([s for _, s in outputs]),
    }
    for at, raw in enumerate(RAWS):
        expected = np.exp(channel.log_prob(columns, [raw] * len(outputs)))
        assert np.allclose(table[:, at].astype(float), expected, rtol=1e-12)


def test_partitions_draw_as_python_does_from_the_same_words(call):
    channel, cases = partitioned(), []
    for seed in range(100):
        stream, raw = Recorded(seed), RAWS[seed % 3]
        drawn = channel.release([raw], stream)
        expected = {name: column[0].tolist() for name, column in drawn.items()}
        cases.append({"words": stream.said, "raw": raw, "expected": expected})
    draws_the_same(call, partitioned_law(channel), cases)


def test_a_partition_outside_or_a_missing_cell_is_refused(call):
    from playwright.sync_api import Error

    told = partitioned_law(partitioned())
    body = f"(m, given) => {{ {IMPORT} return channel.release(given.raw, {{ word: () => 0n }}); }}"
    for change in ({"partitions": 0}, {"partitions": 1.5}, {"law": None}, {"law": law(ANSWERS[0])}):
        with pytest.raises(Error, match="would not protect you"):
            call("channels", body, {"law": {**told, **change}, "raw": RAWS[0]})
    for raw in ([0, 0], [0, 5, 0], [0, 0, None], [0, 0, 0, 0]):  # whichever would be drawn
        with pytest.raises(Error, match="channel: "):
            call("channels", body, {"law": told, "raw": raw})


def partitions_drawn(call, raw, mutant=""):
    return call(
        "channels",
        f"""async (m, given) => {{ {IMPORT}
            const {{ SystemEntropy }} = await import('/randomness.js'), rng = new SystemEntropy();
            {mutant}
            const seen = [0, 0, 0];
            for (let at = 0; at < given.draws; at++)
              seen[channel.release(given.raw, rng).partition]++;
            return seen; }}""",
        {"law": partitioned_law(partitioned()), "raw": raw, "draws": DRAWS},
    )


def test_a_partition_by_the_row_is_noticed(call):
    by_row = """const fair = channel.release.bind(channel);
        channel.release = (cells, rng) => {
          const drawn = fair(cells, rng);
          return rng.word() % 20n ? drawn : { ...drawn, partition: cells[0] % 3 }; };"""
    for raw in RAWS:
        assert p_value(partitions_drawn(call, raw), [1 / 3] * 3) > SIGNIFICANCE
        assert p_value(partitions_drawn(call, raw, by_row), [1 / 3] * 3) < SIGNIFICANCE


# --- by draws --------------------------------------------------------------------------------


def p_value(counts, chances):
    expected = DRAWS * np.array(chances)
    assert expected.min() > 5
    assert expected.sum() == pytest.approx(DRAWS)
    statistic = float(((np.array(counts) - expected) ** 2 / expected).sum())
    return float(chi2.sf(statistic, len(chances) - 1))


def counts_of(call, channel, raw, mutant=""):
    """How often each output was drawn from the browser's own entropy."""
    outputs = [json_key(y) for y in channel.outputs()]
    found = call(
        "channels",
        f"""async (m, given) => {{ {IMPORT}
            const {{ SystemEntropy }} = await import('/randomness.js');
            let rng = new SystemEntropy(); {mutant}
            const seen = {{}};
            for (let at = 0; at < given.draws; at++) {{
              const one = String(channel.release(given.raw, rng));
              seen[one] = (seen[one] ?? 0) + 1;
            }}
            return seen; }}""",
        {"law": law(channel), "raw": raw, "draws": DRAWS},
    )
    assert set(found) <= set(outputs)
    return [found.get(output, 0) for output in outputs]


def json_key(output):
    return ",".join(map(str, np.atleast_1d(output).tolist()))


@pytest.mark.parametrize("channel", [*SETS[:2], SETS[4], *ANSWERS[:2]], ids=repr)
def test_draws_follow_the_exact_law(call, channel):
    raw = 1
    chances = [float(exact(channel, y, raw)) for y in channel.outputs()]
    assert p_value(counts_of(call, channel, raw), chances) > SIGNIFICANCE
    # A channel that tells the truth in a tenth of the cases where it should not is noticed.
    field = "inclusion" if isinstance(channel, SubsetSelection) else "keep"
    heavier = f"channel.{field} += (2n ** 64n - channel.{field}) / 10n;"
    if field == "keep":
        left = "(2n ** 64n - channel.keep)"
        heavier += f"channel.other = {left} / BigInt(channel.categories - 1) + 1n;"
    assert p_value(counts_of(call, channel, raw, heavier), chances) < SIGNIFICANCE


def test_modulo_bias_is_noticed(call):
    """Uniform numbers below 11 from four bits: what a remainder would do."""
    channel = SubsetSelection(categories=12, epsilon=1, size=1)
    chances = [float(exact(channel, y, 0)) for y in channel.outputs()]
    biased = """const own = rng;
        rng = { word: () => { const w = own.word(); const r = (w & 15n) % 11n;
          return this_is_first() ? w : r * (1n << 32n) / 11n + 1n; } };
        let turn = 0; function this_is_first() { return turn++ % 2 === 0; }"""
    assert p_value(counts_of(call, channel, 0), chances) > SIGNIFICANCE
    assert p_value(counts_of(call, channel, 0, biased), chances) < SIGNIFICANCE


@pytest.mark.parametrize("scale", [Fraction(7, 3), Fraction(1, 2), Fraction(40)])
def test_noise_on_whole_numbers_follows_the_exact_law(call, scale):
    reach = int(3 * scale) + 1
    tail = range(-reach, reach + 1)
    channel = DiscreteLaplace(epsilon=1 / scale, sensitivity=1, adjacency="replace-one")
    draw = """async (m, given) => { const { SystemEntropy } = await import('/randomness.js');
        const rng = new SystemEntropy(), channel = m.channelOf(given.law);
        return Array.from({ length: given.draws }, () => channel.release([0], rng)[0]); }"""
    drawn = np.array(call("channels", draw, {"law": law(channel), "draws": DRAWS}))
    inner = np.exp(log_mass(scale, np.array(tail)))
    counts = [*(np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1))]
    inner[[0, -1]] += (1 - inner.sum()) / 2
    assert p_value(counts, inner) > SIGNIFICANCE
    # The law of noise with a tenth more spread is another one.
    wider = np.exp(log_mass(scale * Fraction(11, 10), np.array(tail)))
    wider[[0, -1]] += (1 - wider.sum()) / 2
    assert p_value(counts, wider) < SIGNIFICANCE


def test_a_campaign_sized_channel_holds_the_truth_as_often_as_stated(call):
    """160 symbols have too many sets to count: how often each symbol is in one."""
    channel = Codebook(epsilon=4, codewords=16, classes=10, people=500)
    channel = SubsetSelection(categories=160, epsilon=channel.epsilon)
    held = call(
        "channels",
        f"""async (m, given) => {{ {IMPORT}
            const {{ SystemEntropy }} = await import('/randomness.js');
            const rng = new SystemEntropy(), held = new Array(160).fill(0);
            for (let at = 0; at < given.draws; at++)
              for (const symbol of channel.release(7, rng)) held[symbol] += 1;
            return held; }}""",
        {"law": law(channel), "draws": DRAWS},
    )
    own, other = channel.inclusion
    assert sum(held) == DRAWS * channel.event.size
    deviations = (np.array(held) - DRAWS * other) / math.sqrt(DRAWS * other * (1 - other))
    deviations[7] = (held[7] - DRAWS * own) / math.sqrt(DRAWS * own * (1 - own))
    assert np.abs(deviations).max() < 6  # one in 500 million each


def test_all_subsets_are_equally_likely(call):
    found = call(
        "randomness",
        """(m, given) => { const rng = new m.SystemEntropy(), seen = {};
            for (let at = 0; at < given; at++) {
              const one = String([...m.subset(6, 4, rng)].sort());
              seen[one] = (seen[one] ?? 0) + 1; }
            return seen; }""",
        DRAWS,
    )
    every = [",".join(map(str, one)) for one in combinations(range(6), 4)]
    assert p_value([found.get(one, 0) for one in every], [1 / 15] * 15) > SIGNIFICANCE
