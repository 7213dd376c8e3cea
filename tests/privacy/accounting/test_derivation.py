"""Every kind of event, alone and in trees, against the law that it stands for."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from tacit.privacy import events, gaussian
from tacit.privacy.accounting import composition
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import IncompatibleGuarantees, InvalidParameter
from tacit.privacy.guarantees import (
    ZCDP,
    ApproxDP,
    ConcentratedDP,
    NotPrivate,
    PureDP,
    RenyiDP,
    Unproven,
)

ALL = 2**64
SCOPE = {"adjacency": "add-remove", "unit": "record"}
LAPLACE = events.Laplace(1, 2, **SCOPE)
GAUSSIAN = events.Gaussian(1, 2, **SCOPE)
SMOOTH = events.SmoothLaplace(1, Fraction(1, 100), 1e-3, **SCOPE)
SAMPLED = events.PoissonSampled(0.1, GAUSSIAN)
RESPONSE = events.RandomizedResponse(2, 2, 7 * ALL // 8, ALL // 8, **SCOPE)


def near(value, rel):
    """Relative closeness only: the absolute slack of `pytest.approx` hides small numbers."""
    return pytest.approx(float(value), rel=rel, abs=0)


def discrete_laplace(scale: float, shift: int, reach: int) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    return np.tanh(0.5 / scale) * np.exp(-np.abs(k - shift) / scale)


def hockey_stick(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


# --- leaves --------------------------------------------------------------------------------


@pytest.mark.parametrize(("sensitivity", "scale"), [(1, 1), (3, Fraction(7, 2)), (2, 10)])
def test_laplace_is_the_worst_odds_of_the_noise(sensitivity, scale):
    event = events.Laplace(sensitivity, scale, **SCOPE)
    first = discrete_laplace(float(scale), 0, 60)
    second = discrete_laplace(float(scale), sensitivity, 60)
    worst = np.abs(np.log(first / second)).max()
    stated = guarantee_of(event)
    assert stated == PureDP(stated.epsilon, **SCOPE)
    assert stated.epsilon == near(worst, 1e-12)
    ratio = Fraction(sensitivity) / scale
    assert stated.epsilon >= float(ratio)
    assert Fraction(stated.epsilon) <= ratio * (1 + Fraction(1, 2**50))


def test_laplace_on_vectors_is_bounded_in_l1():
    stated = guarantee_of(events.Laplace(3, 2, **SCOPE)).epsilon
    law = np.log(discrete_laplace(2.0, 0, 30))
    worst = 0.0
    for shift in itertools.product(range(-3, 4), repeat=2):
        if abs(shift[0]) + abs(shift[1]) <= 3:
            losses = [np.abs(law - np.roll(law, s))[10:-10].max() for s in shift]
            worst = max(worst, sum(losses))
    assert worst == near(stated, 1e-12)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_certified_table_gives_what_was_compared(delta):
    event = events.CertifiedTable(Fraction(1, 3), delta, 9, 9, "0" * 64, **SCOPE)
    stated = guarantee_of(event)
    assert type(stated) is (ApproxDP if delta else PureDP)
    assert stated.delta == delta
    assert Fraction(1, 3) <= Fraction(stated.epsilon) <= Fraction(1, 3) * (1 + Fraction(1, 2**50))
    if delta:
        assert guarantee_of(event, delta) == stated
        assert isinstance(guarantee_of(event, delta / 2), Unproven)


def test_a_loss_too_small_for_a_float_is_not_nothing():
    try:
        stated = guarantee_of(events.Laplace(1, Fraction(10) ** 400, **SCOPE))
    except InvalidParameter:
        return
    assert stated.epsilon > 0


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (events.Laplace, (10**400, 1)),
        (events.Gaussian, (10**400, 1)),
        (events.Gaussian, (1, 10**400)),
        (events.DiscreteGaussian, (10**400, 1, 1)),
    ],
    ids=["laplace", "gaussian-small", "gaussian-large", "discrete"],
)
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_numbers_beyond_floats_end_in_a_clear_error_or_an_explicit_value(kind, numbers, delta):
    try:
        stated = guarantee_of(kind(*numbers, **SCOPE), delta)
    except InvalidParameter:
        return
    assert isinstance(stated, NotPrivate | Unproven | PureDP | ZCDP | ApproxDP)


def test_response_and_subset_and_exponential_state_their_epsilon():
    assert guarantee_of(RESPONSE) == PureDP(2.0, **SCOPE)
    assert math.log(RESPONSE.keep / RESPONSE.other) <= 2
    subset = events.SubsetSelection(4, 2, 1, ALL * 7 // 10, **SCOPE)
    assert guarantee_of(subset) == PureDP(1.0, **SCOPE)
    assert guarantee_of(events.Exponential(1, 6, **SCOPE)).epsilon == near(1 / 3, 1e-15)


def selection_laws(scores, epsilon):
    """Exponential mechanism and permute-and-flip on scores of sensitivity 1, exactly."""
    weights = np.exp(epsilon * (np.array(scores) - max(scores)) / 2)
    exponential = weights / weights.sum()
    flip = np.zeros(len(scores))
    for order in itertools.permutations(range(len(scores))):
        left = 1.0
        for index in order:
            flip[index] += left * weights[index]
            left *= 1 - weights[index]
    return exponential, flip / math.factorial(len(scores))


def test_exponential_statement_holds_for_both_mechanisms():
    epsilon = 0.8
    stated = guarantee_of(events.Exponential(1, 2 / epsilon, **SCOPE)).epsilon
    worst = [0.0, 0.0]
    for scores in itertools.product(range(3), repeat=3):
        for move in itertools.product((-1, 0, 1), repeat=3):
            pair = zip(
                selection_laws(scores, epsilon),
                selection_laws(np.add(scores, move), epsilon),
                strict=True,
            )
            for kind, (first, second) in enumerate(pair):
                worst[kind] = max(worst[kind], np.abs(np.log(first / second)).max())
    assert max(worst) <= stated * (1 + 1e-12)
    assert min(worst) > stated / 2


def sparse_vector_law(values, threshold_scale, comparison_scale, positives, reach=400):
    """Chance of every answer pattern of "is it at least the noisy threshold?", summed exactly."""
    t = np.arange(-reach, reach + 1)
    mass = discrete_laplace(threshold_scale, 0, reach)
    tail = np.cumsum(discrete_laplace(comparison_scale, 0, 3 * reach)[::-1])[::-1]
    above = [tail[3 * reach + t - value] for value in values]  # P(noise ≥ t − value)
    law = {}
    for pattern in itertools.product((0, 1), repeat=len(values)):
        chance, seen, answered = mass.copy(), 0, []
        for bit, high in zip(pattern, above, strict=True):
            chance = chance * (high if bit else 1 - high)
            answered.append(bit)
            seen += bit
            if seen == positives:
                break
        law[tuple(answered)] = chance.sum()
    return law


def worst_sparse_vector(first, second, comparison_share, positives, monotonic=False):
    """Worst log-odds with ε₁ = first, ε₂ = second; the mutant divides the noise by more."""
    scale = (1 if monotonic else 2) * comparison_share / second
    worst = 0.0
    moves = [(1, 1, 1, 1), (0, 1, 1, 0)] if monotonic else [(1, 1, 1, -1), (1, 1, -1, -1)]
    for move in moves:
        for base in ((0, 0, 0, 0), (-2, -2, 3, 3), (-4, -4, -4, 4)):
            one = sparse_vector_law(base, 1 / first, scale, positives)
            two = sparse_vector_law(np.add(base, move), 1 / first, scale, positives)
            worst = max(worst, *(abs(math.log(one[key] / two[key])) for key in one))
    return worst


@pytest.mark.parametrize("monotonic", [False, True])
@pytest.mark.parametrize("positives", [1, 2])
def test_sparse_vector_statement_holds_for_the_documented_noise(positives, monotonic):
    event = events.SparseVector(
        1, 2, positives if monotonic else 2 * positives, 0, positives, monotonic, **SCOPE
    )
    stated = guarantee_of(event)
    assert stated == PureDP(1.5, **SCOPE)
    assert worst_sparse_vector(0.5, 1.0, positives, positives, monotonic) <= 1.5
    # The oracle can say no: comparisons with a quarter of that noise are not covered.
    assert worst_sparse_vector(0.5, 1.0, positives / 4, positives, monotonic) > 1.5


def test_sparse_vector_answers_are_charged():
    event = events.SparseVector(1, 2, 4, 8, 2, False, **SCOPE)
    assert guarantee_of(event) == PureDP(1.75, **SCOPE)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize("beta", [0.001, 0.02, 0.2])
@pytest.mark.parametrize("bound", [2.5, 10.0])
def test_smooth_laplace_statement_holds_at_the_ends_of_smoothness(alpha, beta, bound):
    """Two scales e^β apart and a shift of at most the smaller bound, both ways round."""
    delta = 1e-4
    event = events.SmoothLaplace(alpha, beta, delta, **SCOPE)
    stated = guarantee_of(event)
    assert isinstance(stated, ApproxDP)
    assert stated.delta == delta
    reach = int(40 * bound / alpha * math.exp(beta))
    worst = 0.0
    for other in (bound * math.exp(-beta), bound, bound * math.exp(beta)):
        shift = math.floor(min(bound, other))
        pair = (
            discrete_laplace(bound / alpha, 0, reach),
            discrete_laplace(other / alpha, shift, reach),
        )
        for first, second in (pair, pair[::-1]):
            assert hockey_stick(first, second, stated.epsilon) <= delta
            worst = max(worst, hockey_stick(first, second, 0.5 * stated.epsilon))
    assert worst > delta


def test_gaussian_is_concentrated_without_delta_and_exact_with_one():
    assert guarantee_of(GAUSSIAN) == ZCDP(0.0, 0.125, **SCOPE)
    assert guarantee_of(events.Gaussian(3, 6, **SCOPE)) == ZCDP(0.0, 0.125, **SCOPE)
    stated = guarantee_of(GAUSSIAN, 1e-6)
    z, e = mp.mpf(2), mp.mpf(stated.epsilon)
    exact = mp.ncdf(1 / (2 * z) - e * z) - mp.exp(e) * mp.ncdf(-1 / (2 * z) - e * z)
    assert exact == near(1e-6, 1e-9)
    assert stated.delta == 1e-6
    assert stated.epsilon < guarantee_of(GAUSSIAN).at_delta(1e-6).epsilon


def test_discrete_gaussian_is_exact_in_one_dimension_and_concentrated_in_more():
    one = events.DiscreteGaussian(4, 25, 1, **SCOPE)
    assert guarantee_of(one) == ZCDP(0.0, 0.08, **SCOPE)
    stated = guarantee_of(one, 1e-6)
    k = np.arange(-200, 201)
    law = np.exp(-(k**2) / 50)
    law /= law.sum()
    worst = max(
        hockey_stick(law[shift:], law[:-shift], stated.epsilon) for shift in (1, 2)
    )  # the tails beyond 195 are below 1e-300
    assert worst == near(1e-6, 1e-8)
    many = events.DiscreteGaussian(4, 25, 7, **SCOPE)
    assert guarantee_of(many, 1e-6) == ZCDP(0.0, 0.08, **SCOPE).at_delta(1e-6)
    assert guarantee_of(many, 1e-6).epsilon > stated.epsilon
    odd = events.DiscreteGaussian(3, 25, 1, **SCOPE)
    assert guarantee_of(odd, 1e-6) == ZCDP(0.0, 0.06, **SCOPE).at_delta(1e-6)


def test_discrete_gaussian_divergence_is_within_its_rho():
    """In two dimensions, by summing up the Rényi divergence over the grid."""
    k = np.arange(-120, 121)
    log_mass = -(k**2) / (2 * 9.0)
    normaliser = np.log(np.exp(log_mass).sum())
    stated = guarantee_of(events.DiscreteGaussian(5, 9, 2, **SCOPE))
    for order in (1.5, 2.0, 8.0):
        total = 0.0
        for shift in (1, 2):  # the vector (1, 2) has squared norm 5
            first, second = log_mass, -((k - shift) ** 2) / (2 * 9.0)
            powers = np.exp(order * first + (1 - order) * second).sum()
            total += (np.log(powers) - normaliser) / (order - 1)
        assert total <= stated.rho * order * (1 + 1e-9)
        assert total == near(stated.rho * order, 1e-3)


@pytest.mark.parametrize(
    "one",
    [
        PureDP(1.0, **SCOPE),
        ApproxDP(1.0, 1e-9, **SCOPE),
        ConcentratedDP(0.1, 0.4, **SCOPE),
        ZCDP(0.0, 0.1, **SCOPE),
        RenyiDP((2.0,), (0.1,), **SCOPE),
        NotPrivate(**SCOPE),
        Unproven("no proof", **SCOPE),
    ],
    ids=lambda one: type(one).__name__,
)
def test_declared_is_what_was_declared(one):
    assert guarantee_of(events.Declared(one)) == one
    assert guarantee_of(events.Declared(one), 0) == one
    at_delta = guarantee_of(events.Declared(one), 1e-6)
    if isinstance(one, NotPrivate | Unproven | PureDP):
        assert at_delta in (one, one.at_delta(1e-6))
    else:
        assert isinstance(at_delta, ApproxDP)
        assert at_delta.epsilon <= one.at_delta(1e-6).epsilon * (1 + 1e-5)
        assert at_delta.delta <= 1e-6


@pytest.mark.parametrize(
    "event",
    [
        SMOOTH,
        events.Declared(ApproxDP(1.0, 1e-3, **SCOPE)),
        events.Repeated(SMOOTH, 2),
        events.Composed((SMOOTH, LAPLACE)),
        events.Parallel((SMOOTH, LAPLACE)),
        events.PoissonSampled(0.5, SMOOTH),
    ],
    ids=["leaf", "declared", "repeated", "composed", "parallel", "sampled"],
)
def test_nothing_is_claimed_below_the_delta_of_a_part(event):
    """Asked at δ = 10⁻⁹, an (ε, 10⁻³) statement is no answer, nor is an infinite ε an error."""
    stated = guarantee_of(event, 1e-9)
    assert isinstance(stated, NotPrivate | Unproven)


# --- trees ---------------------------------------------------------------------------------


def test_composed_adds_in_the_strongest_common_notion():
    assert guarantee_of(events.Composed((LAPLACE, RESPONSE))) == PureDP(2.5, **SCOPE)
    assert guarantee_of(events.Composed((GAUSSIAN, GAUSSIAN))) == ZCDP(0.0, 0.25, **SCOPE)
    mixed = guarantee_of(events.Composed((LAPLACE, GAUSSIAN)))
    assert mixed == ZCDP(0.0, 0.25, **SCOPE)
    smooth = guarantee_of(events.Composed((SMOOTH, LAPLACE)))
    assert smooth.delta == 1e-3
    assert smooth.epsilon == near(SMOOTH.epsilon + 0.5, 1e-12)
    with pytest.raises(IncompatibleGuarantees, match="at_delta"):
        guarantee_of(events.Composed((SMOOTH, GAUSSIAN)))


@pytest.mark.parametrize(
    ("event", "count"),
    [
        (LAPLACE, 10**9),
        (GAUSSIAN, 10**9),
        (SMOOTH, 7),
        (events.Declared(ConcentratedDP(0.1, 0.4, **SCOPE)), 9),
        (events.Declared(RenyiDP((2.0, 4.0), (0.1, 0.2), **SCOPE)), 9),
        (events.Declared(NotPrivate(**SCOPE)), 9),
        (events.Declared(Unproven("no proof", **SCOPE)), 9),
        (events.Composed((LAPLACE, RESPONSE)), 4),
    ],
)
def test_repeated_is_the_sum_of_equal_parts(event, count):
    stated = guarantee_of(events.Repeated(event, count))
    if count < 10:
        listed = composition.sequential([guarantee_of(event)] * count)
        assert type(stated) is type(listed)
        for name in ("epsilon", "delta", "mu", "tau", "xi", "rho"):
            if hasattr(listed, name):
                assert getattr(stated, name) == near(getattr(listed, name), 1e-12)
        if isinstance(listed, RenyiDP):
            assert stated.epsilons == pytest.approx(listed.epsilons, rel=1e-12)
    elif isinstance(stated, PureDP):
        assert stated.epsilon == 0.5e9
    else:
        assert stated == ZCDP(0.0, 0.125e9, **SCOPE)


def test_repeated_gaussians_are_one_gaussian_exactly():
    for tree in (
        events.Repeated(GAUSSIAN, 16),
        events.Repeated(events.Repeated(GAUSSIAN, 4), 4),
        events.Repeated(events.PoissonSampled(1.0, GAUSSIAN), 16),
    ):
        stated = guarantee_of(tree, 1e-6).epsilon
        assert stated == near(gaussian.epsilon_of(0.5, 1e-6), 1e-9)


@pytest.mark.parametrize("wrap", [lambda e: events.Composed((e,)), lambda e: e])
def test_a_list_of_one_is_as_good_as_its_part(wrap):
    """Below a multiplier of 0.3 only the exact merger does better than Rényi."""
    tree = wrap(events.Repeated(events.Gaussian(1, Fraction(1, 5), **SCOPE), 4))
    assert guarantee_of(tree, 1e-6).epsilon == near(gaussian.epsilon_of(0.1, 1e-6), 1e-9)


def test_parallel_is_the_weakest_part_at_every_level():
    assert guarantee_of(events.Parallel((LAPLACE, RESPONSE))) == PureDP(2.0, **SCOPE)
    stated = guarantee_of(events.Parallel((LAPLACE, GAUSSIAN)), 1e-6)
    exact = gaussian.epsilon_of(2.0, 1e-6)
    assert stated.epsilon == near(max(0.5, exact), 1e-12)
    assert stated.delta == 1e-6
    nested = events.Composed((events.Parallel((LAPLACE, RESPONSE)), LAPLACE))
    assert guarantee_of(nested) == PureDP(2.5, **SCOPE)
    absorbed = events.Parallel((LAPLACE, events.Declared(Unproven("why", **SCOPE))))
    assert guarantee_of(absorbed) == Unproven("why", **SCOPE)


@pytest.mark.quick(14)
@pytest.mark.parametrize(
    "event",
    [
        events.Composed((events.Parallel((LAPLACE, RESPONSE)), LAPLACE)),
        events.Repeated(events.Parallel((LAPLACE, LAPLACE)), 5),
        events.PoissonSampled(0.1, events.Composed((LAPLACE, LAPLACE))),
        events.PoissonSampled(0.1, events.Repeated(LAPLACE, 2)),
        events.PoissonSampled(0.5, events.PoissonSampled(0.5, LAPLACE)),
        events.PoissonSampled(0.1, events.Parallel((LAPLACE, RESPONSE))),
        events.Repeated(events.PoissonSampled(0.1, events.Composed((LAPLACE, LAPLACE))), 3),
        events.Repeated(LAPLACE, 1),
        events.Repeated(LAPLACE, 3),
        events.Composed((LAPLACE, RESPONSE)),
        events.PoissonSampled(0.3, LAPLACE),
    ],
    ids=lambda event: str(event)[:20],
)
@pytest.mark.parametrize("delta", [1e-5, 1e-12])
def test_a_delta_never_makes_a_pure_statement_weaker(event, delta):
    natural = guarantee_of(event)
    assert isinstance(natural, PureDP)
    stated = guarantee_of(event, delta)
    assert isinstance(stated, PureDP | ApproxDP)
    assert stated.delta <= delta
    assert stated.epsilon <= natural.epsilon * (1 + 1e-12)


def test_sampled_leaves_are_amplified():
    stated = guarantee_of(events.PoissonSampled(0.1, LAPLACE))
    assert stated.epsilon == near(math.log(1 + 0.1 * math.expm1(0.5)), 1e-12)
    twice = guarantee_of(events.PoissonSampled(0.5, events.PoissonSampled(0.5, LAPLACE)))
    assert twice.epsilon == near(math.log(1 + 0.25 * math.expm1(0.5)), 1e-12)
    smooth = guarantee_of(events.PoissonSampled(0.1, SMOOTH))
    assert smooth.delta == near(1e-4, 1e-12)
    assert guarantee_of(events.PoissonSampled(1, GAUSSIAN)) == guarantee_of(GAUSSIAN)


@pytest.mark.parametrize("one", [NotPrivate(**SCOPE), Unproven("why", **SCOPE)])
def test_absorbing_values_survive_every_wrapper(one):
    declared = events.Declared(one)
    for tree in (
        events.Repeated(declared, 3),
        events.Composed((LAPLACE, declared)),
        events.Parallel((LAPLACE, declared)),
        events.PoissonSampled(0.1, declared),
        events.PoissonSampled(1, declared),
        events.Repeated(events.Composed((events.PoissonSampled(0.1, declared), LAPLACE)), 2),
    ):
        for delta in (None, 1e-6):
            assert guarantee_of(tree, delta) == one, (type(tree).__name__, delta)


@pytest.mark.parametrize(
    "one", [ConcentratedDP(0.1, 0.4, **SCOPE), ZCDP(0.0, 0.1, **SCOPE)], ids=["CDP", "zCDP"]
)
def test_declared_concentrated_guarantees_compose_at_a_delta(one):
    stated = guarantee_of(events.Composed((events.Declared(one), LAPLACE)), 1e-6)
    summed = composition.concentrated([one, PureDP(0.5, **SCOPE)]).at_delta(1e-6)
    assert isinstance(stated, ApproxDP)
    assert stated.epsilon <= summed.epsilon * 1.01


@pytest.mark.parametrize(
    "event",
    [
        SAMPLED,
        events.Repeated(SAMPLED, 10),
        events.Composed((LAPLACE, SAMPLED)),
        events.Parallel((LAPLACE, SAMPLED)),
        events.PoissonSampled(0.1, events.DiscreteGaussian(1, 4, 1, **SCOPE)),
        events.PoissonSampled(0.5, events.Repeated(GAUSSIAN, 2)),
    ],
    ids=["alone", "repeated", "composed", "parallel", "discrete", "nested"],
)
def test_a_sampled_gaussian_asks_for_a_delta(event):
    for delta in (None, 0, 0.0):
        with pytest.raises(InvalidParameter, match=r"delta must be given for a sampled Gaussian"):
            guarantee_of(event, delta)


@pytest.mark.parametrize(
    "inner",
    [events.DiscreteGaussian(1, 4, 1, **SCOPE), events.Repeated(GAUSSIAN, 2)],
    ids=["discrete", "repeated"],
)
def test_a_sampled_curve_without_a_theorem_is_never_a_smaller_number(inner):
    """Unproven, or no better than the amplified (ε, δ/q) statement allows."""
    stated = guarantee_of(events.PoissonSampled(0.1, inner), 1e-6)
    if isinstance(stated, Unproven):
        return
    lower = gaussian.epsilon_of(2.0, 1e-5)  # one draw at δ/q, amplified, is about tight
    assert stated.epsilon >= 0.5 * math.log(1 + 0.1 * math.expm1(lower))


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2, math.nan, math.inf, "x"])
def test_delta_must_be_one(delta):
    for event in (LAPLACE, GAUSSIAN, events.Repeated(LAPLACE, 2), events.Parallel((LAPLACE,))):
        with pytest.raises(InvalidParameter, match=r"guarantee_of: delta must be") as caught:
            guarantee_of(event, delta)
        assert f"got {delta!r}" in str(caught.value)


def test_delta_zero_claims_no_pure_statement_for_a_gaussian():
    for event in (GAUSSIAN, events.Repeated(GAUSSIAN, 3), events.Composed((GAUSSIAN, LAPLACE))):
        assert isinstance(guarantee_of(event, 0.0), ZCDP | Unproven)


def test_scope_is_carried_through():
    scope = {"adjacency": "any-two-inputs", "unit": "person"}
    leaf = events.Laplace(1, 2, **scope)
    for tree in (leaf, events.Repeated(leaf, 2), events.Composed((leaf, leaf))):
        for delta in (None, 1e-6):
            assert guarantee_of(tree, delta).scope == PureDP(1.0, **scope).scope


def test_a_kind_of_event_that_is_not_tacits_has_no_theorem():
    class Cheap(events.Laplace):
        def guarantee_at(self, delta=None):
            return PureDP(epsilon=1e-9, **self.scope)

    foreign = Cheap(1, 1, **SCOPE)
    for event in (foreign, events.Repeated(foreign, 2), events.Composed((LAPLACE, foreign))):
        with pytest.raises(InvalidParameter, match=r"event must be one of .*, got 'Cheap'"):
            guarantee_of(event)
