"""The Hellinger mechanism: distances to the last digit, and tables against their own integers."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from unittest import mock

import mpmath as mp
import numpy as np
import pytest
from scipy.special import gammaln

import tacit
from tacit.audit.exact import smallest_epsilon, tabulate
from tacit.central.posteriors import hellinger, hellinger_calibration, hellinger_distance
from tacit.central.posteriors.hellinger import build, counts, exact_epsilon, exponent, gamma, score
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.guarantees import ApproxDP, PureDP
from tacit.privacy.mechanisms import Geometric, IntegerTable
from tacit.privacy.mechanisms.exact_pairs import NeighbourPairs
from tacit.privacy.mechanisms.integer_rows import ScaledRows, Symmetry

PRIORS = [(1, 1), (0.5, 0.5), (4, 4), (1, 10)]
EPSILONS = [0.1, 0.5, 1.0, 3.0, 8.0]
DELTAS = [1e-2, 1e-4, 1e-8]
OFFERED = list(itertools.product(hellinger.SENSITIVITIES, hellinger.CALIBRATIONS))


@functools.cache
def exp_below(epsilon: str) -> Fraction:
    """A rational lower bound of e^ε, by Taylor: not the one that the table uses."""
    x, total, term = Fraction(epsilon), Fraction(0), Fraction(1)
    for k in range(150):
        total += term
        term *= x / (k + 1)
    return Fraction(math.floor(total * 2**200), 2**200)


def holds(table, epsilon, delta):
    """The definition on the integers that are sampled: every neighbour, both ways, all columns."""
    odds, most = exp_below(repr(float(epsilon))), Fraction(repr(delta))
    rows = [np.array(table.rows.weights(x), dtype=object) for x in table.inputs()]
    totals = [int(row.sum()) for row in rows]
    pairs = table.pairs.tolist()
    for x, y in [*pairs, *(pair[::-1] for pair in pairs)]:
        left, right = totals[y] * odds.denominator, totals[x] * odds.numerator
        excess = rows[x] * left - rows[y] * right
        if delta == 0 and max(excess) > 0:
            return False
        over = int(np.maximum(excess, 0).sum())
        if over * most.denominator > most.numerator * totals[x] * left:
            return False
    return True


def law_of(scores, c):
    weights = np.exp(-c * scores.scaled())
    rows = [scores.symmetry.row(weights, x) for x in range(len(scores.listed))]
    return np.array([row / row.sum() for row in rows])


# --- distances -----------------------------------------------------------------------------------


def exact_t(a, b):
    with mp.workdps(60):
        a, b = mp.mpf(a), mp.mpf(b)
        return (mp.loggamma(a) + mp.loggamma(b)) / 2 - mp.loggamma((a + b) / 2)


@pytest.mark.parametrize("prior", [1e-3, 0.5, 1.0, 10.0, 123.456, 1e6])
def test_coordinates_have_all_their_digits(prior):
    table = hellinger_distance.coordinate(prior, 40)
    for x, r in itertools.product((0, 1, 7, 20, 39, 40), repeat=2):
        if x != r:
            exact = exact_t(mp.mpf(prior) + x, mp.mpf(prior) + r)
            assert abs(float(table[x, r] / exact - 1)) < 1e-14
        else:
            assert table[x, r] == 0


def test_differences_of_log_gammas_would_not():
    prior = 1e6
    table = hellinger_distance.coordinate(prior, 4)
    naive = (gammaln(prior) + gammaln(prior + 1)) / 2 - gammaln(prior + 0.5)
    exact = float(exact_t(prior, prior + 1))
    assert abs(table[0, 1] / exact - 1) < 1e-14
    assert abs(naive / exact - 1) > 1e-6


@pytest.mark.parametrize("prior", [(1, 1), (0.5, 4), (1, 2, 3)])
def test_distances_are_those_of_the_densities(prior):
    """By the affinity of Dirichlet laws, in mpmath."""
    scores = score(prior, 5, epsilon=1.0)
    for x, r in itertools.product(range(0, len(scores.listed), 2), repeat=2):
        first, second = (np.add(prior, scores.listed[i]).astype(float) for i in (x, r))
        logs = sum(exact_t(a, b) for a, b in zip(first, second, strict=True))
        exact = float(mp.sqrt(-mp.expm1(-logs)))
        assert scores.symmetry.row(scores.distances, x)[r] == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize(("categories", "total"), [(2, 7), (3, 6), (4, 4), (5, 1)])
def test_counts_are_listed_and_found(categories, total):
    listed = counts(categories, total)
    every = [p for p in itertools.product(range(total + 1), repeat=categories) if sum(p) == total]
    assert [tuple(row) for row in listed.tolist()] == every
    assert np.array_equal(hellinger.places(listed, total), np.arange(len(every)))
    pairs = {
        tuple(sorted(pair)) for pair in hellinger_distance.neighbouring_counts(listed).tolist()
    }
    moved = np.abs(listed[:, None] - listed).sum(axis=-1) == 2
    assert pairs == {(i, j) for i, j in np.argwhere(moved).tolist() if i < j}


# --- sensitivities -------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [(1, 1), (1, 10), (1, 1, 1), (1, 2, 1)])
@pytest.mark.parametrize("delta", [1e-2, 1e-8])
def test_sensitivities_are_what_they_are_called(prior, delta):
    total = 14 if len(prior) == 2 else 6
    scores = score(prior, total, epsilon=8.0, delta=delta)
    distances = np.array(
        [scores.symmetry.row(scores.distances, x) for x in range(len(scores.listed))]
    )
    steps = np.abs(scores.listed[:, None] - scores.listed).sum(axis=-1) // 2
    local = np.where(steps == 1, distances, 0).max(axis=1)
    assert scores.local == pytest.approx(local, rel=1e-12)
    # By the triangle inequality it bounds the change of the distance to any r.
    change = np.abs(distances[:, None] - distances).max(axis=-1)
    assert np.all(np.where(steps == 1, change, 0).max(axis=1) <= local * (1 + 1e-12))
    g = math.log(1 - 8.0 / (2 * math.log(delta / (2 * len(scores.listed)))))
    assert scores.smoothing == gamma(8.0, delta, len(scores.listed)) == pytest.approx(g, rel=1e-12)
    smooth = (local * np.exp(-g * steps)).max(axis=1)
    assert scores.sensitivity == pytest.approx(smooth, rel=1e-12)
    assert np.ptp(smooth) > 0
    flat = score(prior, total, epsilon=8.0, sensitivity="global")
    assert flat.sensitivity == pytest.approx(np.full(len(local), local.max()), rel=1e-12)
    # Without δ the lemma's γ is 0, and smooth is global.
    assert np.array_equal(score(prior, total, epsilon=8.0).sensitivity, flat.sensitivity)


@pytest.mark.parametrize(
    ("prior", "spread"), list(zip(PRIORS, [1.21, 1.34, 1.07, 1.21], strict=True))
)
def test_the_spread_of_the_local_score_at_500(prior, spread):
    assert score(prior, 500, epsilon=1.0, sensitivity="local").spread() == pytest.approx(
        spread, abs=0.005
    )


def test_the_repaired_theorem_at_the_stated_parameters():
    """(1.5 ε − ln(1 − δ/2), δ/2) and no better."""
    smoothing = gamma(1.0, 1e-6, 101)
    found = hellinger.repaired_epsilon(0.5, smoothing, 101, 5e-7)
    assert found == pytest.approx(1.5 - math.log1p(-5e-7), rel=1e-12)


# --- every table against its own integers --------------------------------------------------------


def check(prior, total, epsilon, delta, sensitivity, calibration, *, in_integers):
    table = build(
        prior, total, epsilon=epsilon, delta=delta, sensitivity=sensitivity, calibration=calibration
    )
    claim = table.guarantee
    assert type(claim) is (ApproxDP if delta else PureDP)
    assert claim.delta == delta
    if calibration == "paper":
        assert claim.epsilon == max(table.exact_epsilon(), 1e-9)
    else:
        assert claim.epsilon == epsilon
        assert table.exact_epsilon() <= epsilon
    if calibration == "instance":
        assert table.exact_epsilon() > 0.97 * epsilon, "what is left could have been used"
    if in_integers:
        assert holds(table, claim.epsilon, delta)
    else:
        # Twelve digits: beyond them logarithms are rounded.
        found = smallest_epsilon(tabulate(table), delta)
        assert found <= claim.epsilon * (1 + 1e-6 * (delta > 0)) + 1e-9
    return table


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize(("sensitivity", "calibration"), OFFERED)
def test_the_profile_is_within_the_guarantee(prior, sensitivity, calibration):
    for total, epsilon, delta in [(20, 0.1, 0.0), (12, 8.0, 1e-2), (30, 1.0, 1e-8)]:
        check(prior, total, epsilon, delta, sensitivity, calibration, in_integers=True)


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize(("sensitivity", "calibration"), OFFERED)
@pytest.mark.parametrize("total", [1, 5, 20, 100, 500])
def test_the_profile_is_within_the_guarantee_over_the_grid(prior, sensitivity, calibration, total):
    for epsilon, delta in itertools.product(EPSILONS, [0.0, *DELTAS]):
        check(prior, total, epsilon, delta, sensitivity, calibration, in_integers=total <= 100)


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_five_hundred_records_in_integers(prior):
    for sensitivity, epsilon, delta in [("smooth", 1.0, 1e-6), ("local", 8.0, 0.0)]:
        check(prior, 500, epsilon, delta, sensitivity, "instance", in_integers=True)


@pytest.mark.parametrize("total", [20, 500])
def test_the_geometric_mechanism_is_within_its_guarantee(total):
    """What is offered beside it, by its exact law."""
    for epsilon in EPSILONS:
        if epsilon * total > 600:
            continue  # tails that are no floats any more; the conformance suite has the theorem
        channel = Geometric(epsilon=epsilon, lower=0, upper=total, adjacency="replace-one")
        assert smallest_epsilon(tabulate(channel)) == pytest.approx(epsilon, abs=1e-9)


def test_a_mutant_of_one_weight_is_refused():
    """A pair moved beyond ε: refused for every row that takes part in a tight pair."""
    table = build((1, 1), 20, epsilon=1.0, delta=1e-6)
    rows = [table.rows.weights(x) for x in table.inputs()]
    assert (
        IntegerTable(rows, table.pairs, epsilon=1.0, delta=1e-6, adjacency="replace-one").guarantee
        == table.guarantee
    )
    for x in (0, 10, 20):
        changed = [list(row) for row in rows]
        changed[x][x] *= 6
        with pytest.raises(InvalidParameter, match="further apart"):
            IntegerTable(changed, table.pairs, epsilon=1.0, delta=1e-6, adjacency="replace-one")
    assert not holds(build((1, 1), 20, epsilon=1.01, delta=1e-6), 1.0, 1e-6)


# --- what the paper states -----------------------------------------------------------------------


def shares(total, factor):
    """Exact ε over stated ε with exponent `factor`·ε/S, over priors, ε and δ."""
    found = []
    for prior, epsilon, delta in itertools.product(PRIORS, EPSILONS, DELTAS):
        scores = score(prior, total, epsilon=epsilon, delta=delta)
        found.append(exact_epsilon(scores, factor * epsilon, delta) / epsilon)
    return np.array(found)


@pytest.mark.parametrize("total", [20, 100])
def test_half_of_epsilon_over_s_is_not_refuted(total):
    found = shares(total, 0.5)
    assert found.max() < 0.75
    assert 0.45 < np.median(found) < 0.65


@pytest.mark.parametrize("total", [20, 100])
def test_epsilon_over_s_is_refuted(total):
    """The exponent of the accuracy section, in most settings and by up to 46 %."""
    found = shares(total, 1.0)
    assert (found > 1).mean() > 0.6
    assert 1.2 < found.max() < 1.47


@pytest.mark.parametrize("name", ["accuracy", "epsilon/S"])
def test_epsilon_over_s_is_refused_by_name(name):
    with pytest.raises(InvalidParameter, match="accuracy section is not") as caught:
        build((1, 1), 20, epsilon=1.0, delta=1e-6, calibration=name)
    assert str(caught.value).startswith("hellinger: calibration must be one of instance, theorem")


def test_the_paper_is_returned_with_what_it_really_costs():
    table = build((1, 1), 100, epsilon=1.0, delta=1e-6, calibration="paper")
    assert table.guarantee.epsilon == pytest.approx(0.53, abs=0.01)
    scores = score((1, 1), 100, epsilon=1.0, delta=1e-6)
    assert np.exp(table.log_prob(range(101), 30)) == pytest.approx(law_of(scores, 0.5)[30])


@pytest.mark.parametrize(
    ("total", "sensitivity", "calibration", "expected"),
    [
        (100, "smooth", "paper", (0.248, 0.735, 0.922)),
        (100, "smooth", "instance", (0.102, 0.513, 0.822)),
        (100, "local", "instance", (0.108, 0.255, 0.896)),
        (20, "smooth", "paper", (0.447, 0.590, 0.718)),
        (20, "smooth", "instance", (0.331, 0.460, 0.572)),
        (20, "local", "instance", (0.184, 0.366, 0.572)),
    ],
)
def test_expected_errors_are_the_known_ones(total, sensitivity, calibration, expected):
    """At Beta(1, 1), ε = 1, δ = 1e-6, x = n/2, n/10 and 0."""
    scores = score((1, 1), total, epsilon=1.0, delta=1e-6, sensitivity=sensitivity)
    c = exponent(scores, epsilon=1.0, delta=1e-6, calibration=calibration)
    law = law_of(scores, c)
    for x, error in zip((total // 2, total // 10, 0), expected, strict=True):
        found = law[x] @ scores.symmetry.row(scores.distances, x)
        assert found == pytest.approx(error, abs=0.0006)


def test_calibrations_are_in_order():
    for sensitivity, delta in itertools.product(hellinger.SENSITIVITIES, (0.0, 1e-6)):
        scores = score((1, 1), 60, epsilon=1.0, delta=delta, sensitivity=sensitivity)
        chosen = {
            name: exponent(scores, epsilon=1.0, delta=delta, calibration=name)
            for name in hellinger.CALIBRATIONS
        }
        assert chosen["instance"] >= chosen["theorem"] > 0
        assert chosen["paper"] == 0.5
        if sensitivity == "global":
            assert chosen["theorem"] == pytest.approx(0.5, rel=0.05)


# --- Dirichlet -----------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [(1, 1, 1), (1, 2, 1), (0.5, 1, 4)])
@pytest.mark.parametrize("calibration", hellinger.CALIBRATIONS)
def test_three_categories_are_within_the_guarantee(prior, calibration):
    for sensitivity, delta in [("smooth", 1e-4), ("local", 0.0)]:
        check(prior, 6, 1.0, delta, sensitivity, calibration, in_integers=True)


def test_four_categories_of_two_kinds():
    check((1, 2, 1, 2), 4, 0.5, 1e-6, "smooth", "instance", in_integers=True)


def test_symmetry_saves_pairs_and_changes_nothing(monkeypatch):
    folded = build((1, 1, 1), 7, epsilon=1.0, delta=1e-6)
    monkeypatch.setattr(
        "tacit.central.posteriors.hellinger_scores.distance.symmetry",
        lambda prior, listed: Symmetry.none(len(listed)),
    )
    whole = build((1, 1, 1), 7, epsilon=1.0, delta=1e-6)
    assert len(folded._comparison._pairs) < len(whole._comparison._pairs) / 4
    columns = np.arange(36)
    for x in range(36):
        assert folded.log_prob(columns, x) == pytest.approx(whole.log_prob(columns, x), abs=1e-7)
    listed = counts(3, 7)
    weights = np.array([folded.rows.weights(x) for x in range(36)], dtype=object)
    for order in itertools.permutations(range(3)):
        image = hellinger.places(listed[:, order], 7)
        assert np.array_equal(weights[image][:, image], weights)


# --- work ----------------------------------------------------------------------------------------


def counted(owner, name):
    """A patch that counts the calls of a function or method and changes nothing."""
    return mock.patch.object(owner, name, autospec=True, side_effect=getattr(owner, name))


def work(*arguments, **options):
    """Build a table; also return, per pair of neighbours, the comparisons that this took.

    Comparisons in floats while calibrating, comparisons while certifying, and rows of long integers
    that were read because floats did not settle a pair.
    """
    with (
        counted(hellinger_calibration, "_shares") as calibrating,
        counted(NeighbourPairs, "_hockey_stick") as certifying,
        counted(ScaledRows, "weights") as long,
    ):
        table = build(*arguments, **options)
    pairs = len(table._comparison._pairs)
    calibrated = sum(len(call.args[3]) for call in calibrating.call_args_list)
    return calibrated / pairs, certifying.call_count / pairs, long.call_count, table


def test_certifying_passes_over_the_pairs_a_few_times():
    for sensitivity, calibration in OFFERED:
        calibrating, certifying, long, _ = work(
            (1, 1), 100, epsilon=1.0, delta=1e-6, sensitivity=sensitivity, calibration=calibration
        )
        assert calibrating < 20
        assert certifying < 5
        assert long < 10


def test_the_work_grows_with_the_pairs_alone():
    """Ten times the records, ten times the pairs; and a draw reads a row's integers once."""
    calibrating, certifying, long, table = work((1, 1), 1000, epsilon=8.0, delta=1e-8)
    assert (certifying, long, len(table._comparison._pairs)) == (1, 0, 1001)
    assert calibrating < 10
    table.release([500])
    with counted(ScaledRows, "weights") as long:
        table.release(np.full(100_000, 500), tacit.Seeded(1))
    assert not long.called


@pytest.mark.heavy
def test_three_categories_of_a_hundred_are_compared_up_to_symmetry():
    calibrating, certifying, long, table = work((1, 1, 1), 100, epsilon=1.0, delta=1e-6)
    assert (table.event.inputs, table.event.outputs) == (5151, 5151)
    assert len(table._comparison._pairs) < len(table.pairs) / 2
    assert (certifying, long) == (1, 0)
    assert calibrating < 10


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"prior": (1,)},
        {"prior": (1, 0)},
        {"prior": (1, -1)},
        {"prior": (1, math.nan)},
        {"prior": (1, 1e-9)},
        {"total": 0},
        {"total": 2.5},
        {"total": 10**6},
        {"prior": (1,) * 10, "total": 100},
        {"epsilon": 0},
        {"delta": 1},
        {"delta": -1e-9},
        {"sensitivity": "x"},
        {"calibration": "x"},
        {"unit": "x"},
    ],
    ids=str,
)
def test_bad_parameters_are_refused(wrong):
    arguments = {"prior": (1, 1), "total": 10, "epsilon": 1.0, "delta": 1e-6} | wrong
    with pytest.raises(InvalidParameter, match=r"\A[^\n]* must be [^\n]*\Z"):
        build(**arguments)


def test_a_delta_below_what_floats_add_up_still_holds():
    table = build((1, 1), 20, epsilon=1.0, delta=1e-15)
    assert holds(table, 1.0, 1e-15)


def test_scores_are_drawn_from_as_they_are():
    """The integers of a table are those of its scores."""
    scores = score((1, 10), 30, epsilon=2.0, delta=1e-4)
    c = exponent(scores, epsilon=2.0, delta=1e-4)
    table = build((1, 10), 30, epsilon=2.0, delta=1e-4)
    assert np.exp(table.log_prob(range(31), 4)) == pytest.approx(law_of(scores, c)[4], rel=1e-9)
    assert table.event.sha256 != ScaledRows(-0.9 * c * scores.scaled(), scores.symmetry).digest()
