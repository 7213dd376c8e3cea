"""Tables of whole numbers: what is compared, what is drawn, and what must be refused."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tacit
from tacit.audit.exact import smallest_epsilon, tabulate
from tacit.audit.statistical import lower_bound
from tacit.privacy import events
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.mechanisms import FiniteChannel, IntegerTable, exact_pairs, integer_rows
from tacit.privacy.mechanisms.integer_rows import ListedRows, ScaledRows, Symmetry
from tacit.privacy.mechanisms.integer_table import from_log_weights

SIGNIFICANCE = 1e-6


@functools.cache
def exp_below(epsilon: str) -> Fraction:
    """A rational lower bound of e^ε, within 2^-500: Taylor, rounded down."""
    x, total, term = Fraction(epsilon), Fraction(0), Fraction(1)
    for k in range(400):
        total += term
        term *= x / (k + 1)
    return Fraction(math.floor(total * 2**500), 2**500)


def hockey_stick(first, second, odds):
    """Σ (P − odds P')₊ of two rows of integers, in rationals."""
    a, b = sum(first), sum(second)
    return sum(
        max(Fraction(x, a) - odds * Fraction(y, b), 0) for x, y in zip(first, second, strict=True)
    )


def really_holds(rows, pairs, epsilon, delta):
    """The definition, in rationals, for every pair both ways."""
    odds = exp_below(repr(epsilon))
    ways = [*pairs, *((y, x) for x, y in pairs)]
    return all(hockey_stick(rows[x], rows[y], odds) <= Fraction(repr(delta)) for x, y in ways)


def accepted(rows, pairs, epsilon, delta=0.0):
    try:
        IntegerTable(rows, pairs, epsilon=epsilon, delta=delta, adjacency="replace-one")
    except InvalidParameter:
        return False
    return True


def line(n):
    return [(x, x + 1) for x in range(n)]


def peaked(n, rate):
    """Log-weights −rate·|x − r|."""
    x = np.arange(n + 1)
    return -rate * np.abs(x[:, None] - x)


# --- what is compared ----------------------------------------------------------------------------

weights = st.integers(0, 9) | st.integers(2**60, 2**70) | st.integers(0, 2**200)


@settings(deadline=None, max_examples=200)
@given(data=st.data(), epsilon=st.sampled_from([0.1, 0.7, 2.0, 5.0]))
def test_a_table_is_accepted_if_and_only_if_it_holds(data, epsilon):
    columns = data.draw(st.integers(1, 4))
    row = st.lists(weights, min_size=columns, max_size=columns).filter(any)
    rows = data.draw(st.lists(row, min_size=2, max_size=4))
    pairs = list(itertools.combinations(range(len(rows)), 2))
    delta = data.draw(st.sampled_from([0.0, 1e-6, 0.05, 0.4, 0.9]))
    assert accepted(rows, pairs, epsilon, delta) == really_holds(rows, pairs, epsilon, delta)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 40.0])
@pytest.mark.parametrize("bits", [5, 20, 53, 64])
def test_the_largest_weight_is_accepted_and_one_unit_more_is_not(epsilon, bits):
    """Two columns, mirrored: the odds of a column are keep/other."""
    other = 2**bits
    keep = math.floor(other * exp_below(repr(epsilon)))
    assert accepted([[keep, other], [other, keep]], [(0, 1)], epsilon)
    assert not accepted([[keep + 1, other], [other, keep + 1]], [(0, 1)], epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_beyond_its_bits_the_bound_errs_on_the_safe_side(epsilon):
    other = 2**300
    keep = math.floor(other * exp_below(repr(epsilon)))
    less = keep - (keep >> 120)
    assert accepted([[less, other], [other, less]], [(0, 1)], epsilon)
    assert not accepted([[keep + 1, other], [other, keep + 1]], [(0, 1)], epsilon)


@pytest.mark.parametrize("power", [500, 1100, 5000])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_rows_of_another_scale_are_compared_as_they_are(power, delta):
    """A row may be multiplied by anything; no float may overflow or vanish over it."""
    for scale, wide in itertools.product((1, 2**power), repeat=2):
        rows = [[2 * scale, scale], [wide, 2 * wide]]
        assert accepted(rows, [(0, 1)], 0.7, delta)
        assert not accepted(rows, [(0, 1)], 0.6, delta)
        found = IntegerTable(
            rows, [(0, 1)], epsilon=0.7, delta=delta, adjacency="replace-one"
        ).exact_epsilon()
        assert found == pytest.approx(math.log(2 - 3 * delta), abs=1e-9)
    tiny = [[2**power, 1], [2**power, 3]]
    assert not accepted(tiny, [(0, 1)], 1.0)
    assert accepted(tiny, [(0, 1)], 1.1)
    assert accepted(tiny, [(0, 1)], 0.1, 1e-9)


def test_delta_is_used_to_the_last_unit():
    """P = (1 + D, 1 − D)/2 against the uniform: at ε = 1e-9 the sum is next to D/2."""
    total, epsilon = 2**80, 1e-9
    odds = exp_below(repr(epsilon))
    delta = Fraction(1, 1000)
    gap = math.floor((delta + (odds - 1) / 2) / odds * total)
    rows = lambda extra: [[total // 2 + gap + extra, total // 2 - gap - extra], [1, 1]]  # noqa: E731
    assert really_holds(rows(0), [(0, 1)], epsilon, 0.001)
    assert not really_holds(rows(1), [(0, 1)], epsilon, 0.001)
    # The float 0.001 lies above the decimal: the decimal counts.
    assert Fraction(0.001) > delta
    assert accepted(rows(0), [(0, 1)], epsilon, 0.001)
    assert not accepted(rows(1), [(0, 1)], epsilon, 0.001)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_floats_only_save_time(monkeypatch, delta):
    """Without them, whole numbers come to the same verdicts."""
    rng = np.random.default_rng(1)
    tables = [peaked(6, 0.4) + 0.3 * rng.random((7, 7)) for _ in range(60)]
    judged = []
    for clear in (exact_pairs._CLEAR, 2.0):
        monkeypatch.setattr(exact_pairs, "_CLEAR", clear)
        found = [
            exact_pairs.NeighbourPairs(ScaledRows(logs), np.array(line(6))).violation(
                Fraction(7, 10), delta
            )
            for logs in tables
        ]
        judged.append(found)
    assert judged[0] == judged[1]
    assert 5 < sum(one is None for one in judged[0]) < 55


@pytest.mark.quick(4)
@pytest.mark.parametrize("delta", [0.0, 1e-8, 1e-4])
@pytest.mark.parametrize("factor", [1.001, 20.0])
def test_one_weight_beyond_epsilon_is_refused(delta, factor):
    """Mutants: one number of a tight table larger, by a hair or by far."""
    n, logs = 8, peaked(8, 0.5)
    tight = (
        from_log_weights(
            logs, line(n), epsilon=1.0, delta=delta, adjacency="replace-one"
        ).exact_epsilon()
        + 1e-9
    )
    rows = [ScaledRows(logs).weights(x) for x in range(n + 1)]
    assert accepted(rows, line(n), tight, delta)
    refused = []
    for x, r in itertools.product(range(n + 1), repeat=2):
        changed = [list(row) for row in rows]
        changed[x][r] = int(changed[x][r] * Fraction(factor))
        found = accepted(changed, line(n), tight, delta)
        assert found == really_holds(changed, line(n), tight, delta)
        assert found == accepted(ScaledRows(logarithms(changed)), line(n), tight, delta)
        refused.append(not found)
    assert all(refused) if factor > math.exp(2) else 2 <= sum(refused) < len(refused)


def logarithms(rows):
    return np.array([[math.log(weight) for weight in row] for row in rows])


def test_the_refusal_names_the_rows():
    with pytest.raises(InvalidParameter, match="rows 1 and 2 further apart") as caught:
        IntegerTable([[1, 1], [1, 1], [1, 9]], line(2), epsilon=1, adjacency="replace-one")
    assert str(caught.value).startswith("IntegerTable: weights must be within e^1 of a neighbour's")


def test_pairs_that_are_not_neighbours_are_not_compared():
    rows = [[1, 1], [1, 2], [1, 4]]
    assert accepted(rows, line(2), 0.7)
    assert not accepted(rows, [(0, 2)], 0.7)


@pytest.mark.parametrize(
    "pairs",
    [[], [(0, 0)], [(0, 2)], [(-1, 0)], [0, 1], [(0, 1, 1)], [(0.5, 1)], None, "x", [[0], [1, 2]]],
)
def test_pairs_that_are_none_are_refused(pairs):
    with pytest.raises(InvalidParameter, match=r"pairs must be"):
        IntegerTable([[1, 1], [1, 1]], pairs, epsilon=1, adjacency="replace-one")


@pytest.mark.parametrize(
    "logs",
    [
        [[0.0, math.nan], [0, 0]],
        [[-math.inf] * 2, [0, 0]],
        [[math.inf, 0], [0, 0]],
        [0, 1],
        "x",
        [[0, 1], [2]],
    ],
)
def test_logarithms_that_are_none_are_refused(logs):
    with pytest.raises(InvalidParameter, match=r"log_weights must be"):
        from_log_weights(logs, [(0, 1)], epsilon=1, adjacency="replace-one")


def test_weights_too_far_apart_are_refused():
    with pytest.raises(InvalidParameter, match=r"within 2\^-32768 of the largest"):
        from_log_weights(
            [[0.0, -30_000.0], [0.0, 0.0]], [(0, 1)], epsilon=1, adjacency="replace-one"
        )


# --- the smallest ε ------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-8, 1e-3, 0.2])
@pytest.mark.parametrize("rate", [0.05, 0.5, 3.0])
def test_the_smallest_epsilon_is_that_of_the_audit(rate, delta):
    table = from_log_weights(
        peaked(15, rate), line(15), epsilon=20.0, delta=delta, adjacency="replace-one"
    )
    found = table.exact_epsilon()
    assert found == pytest.approx(smallest_epsilon(tabulate(table), delta), abs=1e-9)
    assert accepted(table.rows, line(15), found or 1e-9, delta)
    if found:
        assert not accepted(table.rows, line(15), found - 1e-9, delta)


def test_equal_rows_cost_nothing_and_a_forbidden_output_everything():
    assert (
        IntegerTable(
            [[1, 3], [2, 6]], [(0, 1)], epsilon=1e-9, adjacency="replace-one"
        ).exact_epsilon()
        == 0.0
    )
    table = IntegerTable(
        [[1, 99], [0, 100]], [(0, 1)], epsilon=1.0, delta=0.01, adjacency="replace-one"
    )
    assert table.exact_epsilon(0.0) == math.inf
    assert table.exact_epsilon(0.005) == math.inf
    assert table.exact_epsilon(0.01) == 0.0
    # A share of δ beyond what floats see: no ε will do.
    hair = IntegerTable(
        [[10**20 + 1, 99 * 10**20], [0, 1]],
        [(0, 1)],
        epsilon=1,
        delta=0.02,
        adjacency="replace-one",
    )
    assert hair.exact_epsilon(0.01) == math.inf


def test_the_guarantee_is_that_of_the_event():
    table = IntegerTable([[2, 1], [1, 2]], [(0, 1)], epsilon=0.7, adjacency="replace-one")
    assert str(table.guarantee) == "0.7-DP (central, replace-one, unit: record)"
    looser = IntegerTable(
        [[2, 1], [1, 2]], [(0, 1)], epsilon="1/2", delta=0.2, unit="person", adjacency="replace-one"
    )
    assert str(looser.guarantee) == "(0.5, 0.2)-DP (central, replace-one, unit: person)"
    assert isinstance(looser.event, events.CertifiedTable)
    assert (looser.event.inputs, looser.event.outputs) == (2, 2)
    tacit.Certificate.issue(looser.event).verify()
    assert looser.event.sha256 in tacit.Certificate.issue(looser.event).explain()


def test_the_digest_is_that_of_every_weight():
    def make(rows):
        return IntegerTable(rows, [(0, 1)], epsilon=5, adjacency="replace-one").event.sha256

    assert make([[2, 1], [1, 2]]) == make([[2, 1], [1, 2]])
    assert (
        len({make(rows) for rows in ([[2, 1], [1, 2]], [[2, 1], [1, 3]], [[2, 11], [2, 1]])}) == 3
    )
    logs = peaked(3, 0.5)
    changed = logs.copy()
    changed[1, 2] += 1e-12
    assert (
        ScaledRows(logs).digest()
        == ScaledRows(logs.copy()).digest()
        != ScaledRows(changed).digest()
    )


# --- integers from logarithms --------------------------------------------------------------------


def test_integers_are_as_near_as_floats_are():
    """The smallest has all its bits: a fixed width would round it away."""
    logs = peaked(100, 1.0)
    rows = ScaledRows(logs)
    for x in (0, 50, 100):
        weights, total = rows.weights(x), rows.total(x)
        assert total == sum(weights)
        assert min(weights) >= 2**52
        stated = np.exp(logs[x]) / np.exp(logs[x]).sum()
        found = [float(Fraction(weight, total)) for weight in weights]
        assert found == pytest.approx(stated, rel=1e-12, abs=0)
        assert rows.law(x) == pytest.approx(stated, rel=1e-12, abs=0)
    # e^-1 and two roundings: a geometric table at ε needs no more than a few 1e-14 of slack.
    table = from_log_weights(logs, line(100), epsilon=2.0, adjacency="replace-one")
    assert table.exact_epsilon() <= 2.0


def test_impossible_outputs_have_no_weight():
    logs = np.array([[0.0, -math.inf, -1.0], [0.0, -math.inf, -2.0]])
    table = from_log_weights(logs, [(0, 1)], epsilon=1.0, adjacency="replace-one")
    assert table.rows.weights(0)[1] == 0
    assert table.log_prob([1], [0])[0] == -math.inf
    assert not np.any(table.release(np.zeros(20_000, dtype=int)) == 1)


def test_listed_and_scaled_rows_say_the_same():
    scaled = ScaledRows(peaked(8, 3.7))
    listed = ListedRows([scaled.weights(x) for x in range(9)])
    for x in range(9):
        assert listed.weights(x) == scaled.weights(x)
        assert listed.total(x) == scaled.total(x)
        assert np.array_equal(np.ldexp(*listed.leading(x)), np.ldexp(*scaled.leading(x)))
        assert np.array_equal(listed.law(x), scaled.law(x))


# --- symmetry ------------------------------------------------------------------------------------


def reflection(n):
    return Symmetry(np.array([np.arange(n + 1), np.arange(n + 1)[::-1]]))


@pytest.mark.parametrize("n", [5, 6])
def test_a_symmetric_table_is_the_whole_one(n):
    rng = np.random.default_rng(2)
    symmetry = reflection(n)
    half = peaked(n, 0.3)[symmetry.firsts] + 0.01 * rng.random((len(symmetry.firsts), n + 1))
    folded = from_log_weights(
        half, line(n), epsilon=1.0, symmetry=symmetry, adjacency="replace-one"
    )
    rows = [folded.rows.weights(x) for x in range(n + 1)]
    for x, r in itertools.product(range(n + 1), repeat=2):
        assert rows[x][r] == rows[n - x][n - r]
    whole = IntegerTable(rows, line(n), epsilon=1.0, adjacency="replace-one")
    assert folded.exact_epsilon() == pytest.approx(whole.exact_epsilon(), abs=1e-12)
    assert len(folded._comparison._pairs) <= len(whole._comparison._pairs) / 2 + 1
    assert np.array_equal(
        folded.release([n] * 99, tacit.Seeded(1)), whole.release([n] * 99, tacit.Seeded(1))
    )
    for x in range(n + 1):
        assert folded.log_prob(range(n + 1), x) == pytest.approx(whole.log_prob(range(n + 1), x))


@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_a_violation_behind_a_symmetry_is_seen(delta):
    """Each row of a folded table in turn, one weight too large."""
    n, symmetry = 7, reflection(7)
    half = peaked(n, 0.3)[symmetry.firsts]
    tight = from_log_weights(
        half, line(n), epsilon=1.0, delta=delta, symmetry=symmetry, adjacency="replace-one"
    )
    for row, r in itertools.product(range(len(half)), range(n + 1)):
        changed = half.copy()
        changed[row, r] += 1.0
        folded = ScaledRows(changed, symmetry)
        whole = [folded.weights(x) for x in range(n + 1)]
        found = accepted(folded, line(n), tight.exact_epsilon() + 1e-9, delta)
        assert found == accepted(whole, line(n), tight.exact_epsilon() + 1e-9, delta)


def test_a_group_without_identity_or_with_rows_too_many_is_refused():
    with pytest.raises(InvalidParameter, match="led by the identity"):
        Symmetry([[1, 0]])
    with pytest.raises(InvalidParameter, match="one row an orbit, 3 in all"):
        ScaledRows(peaked(5, 1.0), reflection(5))


# --- what is drawn -------------------------------------------------------------------------------


class Scripted:
    secure = False

    def __init__(self, words):
        self.left = [int(word) for word in words]

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


@pytest.mark.parametrize(
    "row", [[1, 1], [1, 2, 3], [7, 0, 2**90, 1], [2**64, 2**64 - 1, 1], [0, 5, 0]]
)
def test_draws_invert_the_exact_sums(row):
    """Words next to every edge, two deep: the column is the number of edges at or below U."""
    table = IntegerTable([row, row], [(0, 1)], epsilon=1, adjacency="replace-one")
    total, sums = sum(row), list(itertools.accumulate(row))
    for edge in sums[:-1]:
        at = (edge << 128) // total
        for value in {
            min(max(at + step, 0), 2**128 - 1) for step in (-(2**64), -9, -1, 1, 9, 2**64)
        }:
            words = [value >> 64, value % 2**64, 2**63 + 1]
            uniform = Fraction(value, 2**128) + Fraction(2**63 + 1, 2**192)
            expected = sum(Fraction(one, total) <= uniform for one in sums)
            assert int(table.release([0], Scripted(words))[0]) == expected


def test_draws_follow_the_law_and_not_its_neighbours():
    table = from_log_weights(peaked(20, 0.25), line(20), epsilon=0.6, adjacency="replace-one")
    draws = table.release(np.full(200_000, 7))
    seen = np.bincount(draws, minlength=21)
    chances = np.array([np.exp(table.log_prob(range(21), x)) for x in (7, 8)])
    assert chances.sum(axis=1) == pytest.approx(1)
    p = [stats.chisquare(seen, len(draws) * law).pvalue for law in chances]
    assert p[0] > SIGNIFICANCE > p[1]


def test_rows_of_one_call_are_drawn_for_alone():
    rows = np.eye(4, dtype=object) * 10**6 + 1
    table = IntegerTable(rows.tolist(), line(3), epsilon=20, adjacency="replace-one")
    raw = np.random.default_rng(3).integers(0, 4, (50, 3))
    assert (table.release(raw) == raw).mean() > 0.99
    assert table.release(2).shape == ()


def counted(name):
    """Count the calls of a method of `ScaledRows`, which still does its work."""
    return mock.patch.object(ScaledRows, name, autospec=True, side_effect=getattr(ScaledRows, name))


def test_draws_of_a_known_row_read_no_long_integers():
    table = from_log_weights(peaked(1000, 0.01), line(1000), epsilon=0.1, adjacency="replace-one")
    table.release([500])
    with counted("weights") as long:
        table.release(np.full(200_000, 500))
    assert not long.called


def test_floats_settle_nearly_all_pairs_of_a_thousand_rows():
    with counted("weights") as long:
        table = from_log_weights(
            peaked(1000, 0.5), line(1000), epsilon=1.0, delta=1e-6, adjacency="replace-one"
        )
        table.exact_epsilon()
    assert long.call_count < 2 * len(table.pairs)


# --- as a channel --------------------------------------------------------------------------------


def test_it_is_a_finite_channel():
    table = from_log_weights(peaked(4, 0.5), line(4), epsilon=1.0, adjacency="replace-one")
    assert isinstance(table, FiniteChannel)
    assert list(table.inputs()) == list(table.outputs()) == list(range(5))
    assert table.adjacent(1, 2)
    assert table.adjacent(2, 1)
    assert not table.adjacent(0, 2)
    assert not table.adjacent(1, 1)
    assert smallest_epsilon(tabulate(table)) <= 1.0 + 1e-12


@pytest.mark.parametrize("raw", [[5], [-1], [0.5], ["x"], []])
def test_rows_that_are_not_there_are_refused(raw):
    table = from_log_weights(peaked(4, 0.5), line(4), epsilon=1.0, adjacency="replace-one")
    for call in (
        table.release,
        lambda one: table.log_prob([0], one),
        lambda one: table.log_prob(one, [0]),
    ):
        with pytest.raises(InvalidData):
            call(raw)


def test_the_audit_finds_no_fault_and_sees_a_sharper_table():
    honest = from_log_weights(peaked(10, 0.5), line(10), epsilon=1.0, adjacency="replace-one")
    sharper = from_log_weights(peaked(10, 1.0), line(10), epsilon=2.0, adjacency="replace-one")
    found = [
        lower_bound(one, 0, 1, samples=40_000, confidence=0.999999, rng=tacit.Seeded(4)).epsilon
        for one in (honest, sharper)
    ]
    assert 0.4 < found[0] <= honest.exact_epsilon() < 1.0 < found[1]


def test_blocks_do_not_change_the_integers(monkeypatch):
    logs = peaked(30, 0.7)
    whole = ScaledRows(logs)
    monkeypatch.setattr(integer_rows, "_BLOCK", 64)
    assert ScaledRows(logs).digest() == whole.digest()
