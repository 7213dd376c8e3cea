"""The statistical audit: it covers, it has power, and it never looks at what it counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom

from tacit.audit import statistical, subjects
from tacit.audit.exact import tabulate
from tacit.audit.statistical import Bound, black_box, bound_from_draws, fineness, lower_bound
from tacit.privacy.errors import InvalidParameter, TacitError
from tacit.privacy.events import Declared
from tacit.privacy.guarantees import ApproxDP, Guarantee, PureDP
from tacit.privacy.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Geometric,
    LocalLaplace,
    RandomizedResponse,
    SparseVector,
    SubsetSelection,
)
from tacit.privacy.randomness import Randomness, Seeded, source

FALSE_ALARM = 1e-6
SCOPE: dict[str, Any] = {"adjacency": "any-two-inputs", "unit": "record"}


def too_many(failures: int, repetitions: int, rate: float) -> bool:
    """Whether so many failures refute a failure rate, with a false alarm once in a million."""
    return bool(binom.sf(failures - 1, repetitions, rate) < FALSE_ALARM)


def value(draws: Any) -> np.ndarray:
    return np.asarray(draws, dtype=np.float64)


class BlackBox:
    """A mechanism without its law."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.guarantee: Guarantee = inner.guarantee
        self.event = inner.event

    def release(self, raw: Any, rng: Randomness | None = None) -> Any:
        return self._inner.release(raw, rng)


class Leak:
    """Gives its input (0 or 1) away with chance `delta`, else says nothing: (0, δ)-DP exactly."""

    def __init__(self, delta: float) -> None:
        self.delta = delta
        self.guarantee: Guarantee = ApproxDP(epsilon=0.0, delta=delta, **SCOPE)
        self.event = Declared(self.guarantee)

    def release(self, raw: Any, rng: Randomness | None = None) -> np.ndarray:
        words = source(rng).words(np.size(raw))
        return np.where(words < np.uint64(int(self.delta * 2**64)), np.asarray(raw), 7)


def same_half_bound(first: Any, second: Any, scores: list[Any], confidence: float) -> float:
    """A broken auditor: it counts on the very draws on which it chose its event."""
    doubled = [np.concatenate([draws, draws]) for draws in (first, second)]
    return bound_from_draws(*doubled, scores, confidence=confidence).epsilon


# --- the number itself --------------------------------------------------------------------------


def clopper_pearson(inside: int, outside: int, half: int, delta: float, level: float) -> float:
    lower = beta.ppf(level, inside, half - inside + 1) if inside else 0.0
    upper = beta.ppf(1 - level, outside + 1, half - outside) if outside < half else 1.0
    return max(math.log((lower - delta) / upper), 0.0) if lower > delta else 0.0


def zeros_and_ones(ones: int, total: int) -> np.ndarray:
    return np.concatenate([np.ones(ones), np.zeros(total - ones)])


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99, 0.999999])
@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize(("inside", "outside"), [(80, 20), (100, 0), (55, 1), (100, 99)])
def test_bound_is_clopper_pearson_of_the_second_half(
    inside: int, outside: int, delta: float, confidence: float
) -> None:
    # The first half is perfectly telling, so that the event is "one"; only the second counts.
    first = np.concatenate([np.ones(100), zeros_and_ones(inside, 100)])
    second = np.concatenate([np.zeros(100), zeros_and_ones(outside, 100)])
    level = (1 - confidence) / 2
    candidates = {
        clopper_pearson(inside, outside, 100, delta, level),
        clopper_pearson(100 - outside, 100 - inside, 100, delta, level),  # "zero", for the second
    }
    found = bound_from_draws(first, second, [value], delta=delta, confidence=confidence)
    assert any(found.epsilon == pytest.approx(known, rel=1e-9) for known in candidates)
    assert (found.delta, found.confidence, found.samples) == (delta, confidence, 200)


def test_what_the_first_half_shows_is_never_counted() -> None:
    first = np.concatenate([np.ones(500), zeros_and_ones(250, 500)])
    second = np.concatenate([np.zeros(500), zeros_and_ones(250, 500)])
    assert bound_from_draws(first, second, [value]).epsilon == 0.0
    assert bound_from_draws(first[::-1], second[::-1], [value]).epsilon < 0.5


def test_the_event_may_speak_for_either_input() -> None:
    rng = np.random.default_rng(0)
    rare, never = (rng.random(20_000) < 0.2).astype(float), np.zeros(20_000)
    # A high score that only the first input shows; a low one that only the second shows.
    high = bound_from_draws(rare, never, [value]).epsilon
    low = bound_from_draws(1 - never, 1 - rare, [value]).epsilon
    assert high > 4
    assert low == pytest.approx(high, rel=1e-9)


@pytest.mark.parametrize("pair", [(1000, 0), (0, 1000)])
def test_a_black_box_is_audited_in_either_order(pair: tuple[int, int]) -> None:
    # Outputs hardly repeat, so their value must tell: it speaks for the input that is larger,
    # whichever of the two that is.
    mechanism = BlackBox(DiscreteLaplace(epsilon=1.0, sensitivity=1000, adjacency="replace-one"))
    assert lower_bound(mechanism, *pair, samples=20_000, rng=Seeded(37)).epsilon > 0.8


def test_the_best_of_several_scores_is_taken() -> None:
    first, second = zeros_and_ones(9_000, 10_000), zeros_and_ones(1_000, 10_000)
    rng = np.random.default_rng(0)
    rng.shuffle(first)
    rng.shuffle(second)
    alone = bound_from_draws(first, second, [value]).epsilon
    assert alone > 1.5
    blind = [lambda draws: np.zeros(len(draws)), value]
    assert bound_from_draws(first, second, blind).epsilon == alone
    assert bound_from_draws(first, second, blind[::-1]).epsilon == alone


def test_identical_draws_certify_nothing() -> None:
    assert bound_from_draws(np.zeros(1000), np.zeros(1000), [value]).epsilon == 0.0


@pytest.mark.parametrize(("half", "known"), [(10_000, 7.54), (100_000, 9.85), (1_000_000, 12.15)])
def test_certifiable_maximum_of_the_notes(half: int, known: float) -> None:
    bound = Bound(epsilon=0.0, delta=0.0, confidence=0.99, samples=2 * half)
    level = 0.005
    lower, upper = level ** (1 / half), 1 - level ** (1 / half)
    assert bound.certifiable == pytest.approx(math.log(lower / upper), rel=1e-6)
    assert bound.certifiable == pytest.approx(known, abs=0.01)


def test_certifiable_is_reached_by_a_channel_that_hides_nothing() -> None:
    first, second = np.ones(20_000), np.zeros(20_000)
    for delta in (0.0, 0.3):
        bound = bound_from_draws(first, second, [value], delta=delta)
        assert bound.epsilon == pytest.approx(bound.certifiable, rel=1e-12)
    assert bound.certifiable < 7.3  # ln 0.7 less than without δ


# --- coverage -----------------------------------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize("confidence", [0.99, 0.6])
@pytest.mark.parametrize(("samples", "categories"), [(200, 2), (1000, 2), (1000, 5)])
def test_coverage_on_randomized_response(confidence: float, samples: int, categories: int) -> None:
    epsilon, repetitions = 1.0, 400
    mechanism = RandomizedResponse(categories=categories, epsilon=epsilon)
    rng = Seeded(20)
    bounds = [
        lower_bound(mechanism, 0, 1, samples=samples, confidence=confidence, rng=rng).epsilon
        for _ in range(repetitions)
    ]
    failures = sum(bound > epsilon for bound in bounds)
    assert not too_many(failures, repetitions, 1 - confidence)
    assert max(bounds) > 0.1  # not by saying nothing
    if samples == 1000 and confidence == 0.6:
        assert failures > 0  # nor by being far off: two one-sided bounds at 0.2 do fail


def test_coverage_of_the_black_box() -> None:
    # A scale of 1000: nearly every output is seen once, the worst case for a table of frequencies.
    mechanism = BlackBox(DiscreteLaplace(epsilon=1.0, sensitivity=1000, adjacency="replace-one"))
    rng = Seeded(21)
    bounds = [
        lower_bound(mechanism, 1000, 0, samples=400, confidence=0.99, rng=rng).epsilon
        for _ in range(100)
    ]
    assert not too_many(sum(bound > 1.0 for bound in bounds), 100, 0.01)
    assert max(bounds) > 0.1


def test_choosing_and_counting_on_the_same_half_is_caught() -> None:
    """The broken sibling fails the very coverage check that the auditor passes.

    On binary randomized response it would not: two outputs leave one event to choose, and an event
    that is certain to be chosen may be counted on the same draws. With outputs that rarely repeat
    the table of frequencies learns its draws by heart.
    """
    mechanism = DiscreteLaplace(epsilon=1.0, sensitivity=1000, adjacency="replace-one")
    rng = Seeded(22)
    broken, honest = 0, 0
    for _ in range(50):
        first, second = (mechanism.release(np.full(400, raw), rng) for raw in (0, 1000))
        scores = black_box(first[:200], second[:200])
        broken += same_half_bound(first[:200], second[:200], scores, 0.99) > 1.0
        honest += bound_from_draws(first, second, scores).epsilon > 1.0
    assert too_many(broken, 50, 0.01)
    assert not too_many(honest, 50, 0.01)


def test_the_same_half_does_no_harm_where_there_is_one_event() -> None:
    mechanism = RandomizedResponse(categories=2, epsilon=1.0)
    rng, failures = Seeded(23), 0
    for _ in range(400):
        first, second = (mechanism.release(np.full(500, raw), rng) for raw in (0, 1))
        score = statistical.likelihood_ratio(mechanism, 0, 1)
        failures += same_half_bound(first, second, [score], 0.99) > 1.0
    assert not too_many(failures, 400, 0.01)


@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_coverage_with_delta(delta: float) -> None:
    mechanism, rng = Leak(delta), Seeded(24)
    bounds = [
        lower_bound(mechanism, 0, 1, samples=400, delta=delta, rng=rng).epsilon for _ in range(200)
    ]
    assert not too_many(sum(bound > 0.0 for bound in bounds), 200, 0.01)
    # With too small a δ, or none, it is refuted.
    assert lower_bound(mechanism, 0, 1, samples=20_000, rng=rng).epsilon > 2
    assert lower_bound(mechanism, 0, 1, samples=20_000, delta=delta / 2, rng=rng).epsilon > 1


def test_coverage_of_the_discrete_gaussian_at_its_delta() -> None:
    mechanism = DiscreteGaussian(
        epsilon=1.0, delta=0.05, sensitivity=1, dimension=1, adjacency="replace-one"
    )
    rng = Seeded(25)
    bounds = [
        lower_bound(mechanism, [0], [1], samples=1000, delta=0.05, rng=rng).epsilon
        for _ in range(100)
    ]
    assert not too_many(sum(bound > 1.0 for bound in bounds), 100, 0.01)
    assert lower_bound(mechanism, [0], [1], samples=100_000, rng=rng).epsilon > 1.0  # at δ = 0


# --- power --------------------------------------------------------------------------------------

TIGHT: dict[str, tuple[Any, Any, Any]] = {
    "discrete-laplace": (
        DiscreteLaplace(epsilon=1.0, sensitivity=1, adjacency="replace-one"),
        0,
        1,
    ),
    "randomized-response-2": (RandomizedResponse(categories=2, epsilon=1.0), 0, 1),
    "randomized-response-10": (RandomizedResponse(categories=10, epsilon=1.0), 0, 1),
    "subset-selection": (SubsetSelection(categories=10, epsilon=1.0), 0, 1),
    "geometric": (Geometric(epsilon=1.0, lower=0, upper=20, adjacency="replace-one"), 10, 11),
    "geometric-at-the-end": (
        Geometric(epsilon=1.0, lower=0, upper=20, adjacency="replace-one"),
        0,
        1,
    ),
    "exponential": (
        Exponential(epsilon=1.0, sensitivity=1, adjacency="replace-one"),
        [-8.0, 0.0],
        [-7.0, -1.0],
    ),
    "sparse-vector": (
        SparseVector(epsilon=1.0, threshold=0, adjacency="replace-one"),
        [1] * 5 + [0],
        [0] * 5 + [1],
    ),
    "local-laplace": (LocalLaplace(epsilon=1.0, radius=1.0), [1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]),
}


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", TIGHT)
def test_power_on_tight_mechanisms(name: str) -> None:
    mechanism, first, second = TIGHT[name]
    found = lower_bound(mechanism, first, second, samples=200_000, rng=Seeded(30))
    # The run of a sparse vector that shows most is rare: its exact ε on this pair is 0.965.
    assert (0.75 if name == "sparse-vector" else 0.85) <= found.epsilon <= 1.0
    assert found.samples == 200_000


@pytest.mark.parametrize("name", ["discrete-laplace", "randomized-response-10", "geometric"])
def test_a_black_box_shows_nearly_as_much(name: str) -> None:
    mechanism, first, second = TIGHT[name]
    found = lower_bound(BlackBox(mechanism), first, second, samples=100_000, rng=Seeded(31))
    assert 0.85 <= found.epsilon <= 1.0


def test_rows_of_a_black_box_are_told_apart() -> None:
    mechanism = BlackBox(SubsetSelection(categories=6, epsilon=1.0, size=2))
    found = lower_bound(mechanism, 0, 1, samples=50_000, rng=Seeded(32))
    assert 0.8 <= found.epsilon <= 1.0


def test_opposite_vertices_are_the_worst_pair() -> None:
    mechanism = LocalLaplace(epsilon=4.0, radius=1.0)
    vertex = np.zeros(8)
    vertex[0] = 1.0
    worst = lower_bound(mechanism, vertex, -vertex, samples=50_000, rng=Seeded(33)).epsilon
    assert 3.5 < worst <= 4.0
    rng = np.random.default_rng(34)
    for _ in range(2):
        pair = rng.laplace(size=(2, 8))
        pair /= np.abs(pair).sum(axis=1, keepdims=True)
        random = lower_bound(mechanism, *pair, samples=50_000, rng=Seeded(33)).epsilon
        assert random < worst - 0.5


def test_more_draws_certify_more() -> None:
    mechanism = RandomizedResponse(categories=2, epsilon=1.0)
    found = [
        lower_bound(mechanism, 0, 1, samples=samples, rng=Seeded(35)).epsilon
        for samples in (200, 2_000, 20_000, 200_000)
    ]
    assert found == sorted(found)
    assert found[0] < 0.8 < 0.95 < found[-1]


def test_less_confidence_certifies_more() -> None:
    mechanism = RandomizedResponse(categories=2, epsilon=1.0)
    bounds = [
        lower_bound(mechanism, 0, 1, samples=2_000, confidence=level, rng=Seeded(36)).epsilon
        for level in (0.999999, 0.99, 0.5)
    ]
    assert bounds == sorted(set(bounds))


# --- fineness -----------------------------------------------------------------------------------


def test_fineness_counts_binary_digits() -> None:
    numbers = [1.0, 3.0, 4.0, -0.75, 2.0**-52 + 1, 2.0**60, 5e-324]
    assert fineness(numbers).tolist() == [0, 0, -2, 2, 52, -60, 1074]
    assert fineness([0.0])[0] < fineness([2.0**1000])[0]


def test_fineness_of_the_far_ends_is_a_number() -> None:
    # A black box may release anything; it must not stop the audit.
    found = fineness([math.inf, -math.inf, math.nan, 1e308])
    assert found.shape == (4,)


# --- refusals -----------------------------------------------------------------------------------

RESPONSE = RandomizedResponse(categories=2, epsilon=1.0)


@pytest.mark.parametrize(
    "samples", [0, 1, 99, -1000, 100.5, math.nan, math.inf, True, "1000", None]
)
def test_bad_samples_are_refused(samples: Any) -> None:
    with pytest.raises(InvalidParameter, match="samples"):
        lower_bound(RESPONSE, 0, 1, samples=samples)


@pytest.mark.parametrize("delta", [math.nan, -0.1, 1.0, math.inf, "x", None])
def test_bad_delta_is_refused(delta: Any) -> None:
    with pytest.raises(InvalidParameter, match="delta"):
        lower_bound(RESPONSE, 0, 1, samples=100, delta=delta)


@pytest.mark.parametrize("confidence", [math.nan, -0.1, 0.0, 1.0, 99, math.inf, "x", None])
def test_bad_confidence_is_refused(confidence: Any) -> None:
    with pytest.raises(InvalidParameter, match="confidence"):
        lower_bound(RESPONSE, 0, 1, samples=100, confidence=confidence)


@pytest.mark.parametrize(
    "call",
    [
        lambda: bound_from_draws(np.zeros(0), np.zeros(0), [value]),
        lambda: bound_from_draws(np.zeros(1), np.zeros(1), [value]),
        lambda: bound_from_draws(np.zeros(100), np.zeros(0), [value]),
        lambda: bound_from_draws(np.zeros(100), np.zeros(100), []),
    ],
    ids=["no draws", "one draw", "one side empty", "no scores"],
)
def test_nothing_to_count_is_refused(call: Callable[[], Bound]) -> None:
    with pytest.raises(TacitError):
        call()


def test_inputs_outside_the_mechanism_are_refused() -> None:
    with pytest.raises(TacitError):
        lower_bound(RESPONSE, 0, 2, samples=100)


# --- the named subjects -------------------------------------------------------------------------


def test_a_report_is_refuted_by_either_audit() -> None:
    def report(exact: float | None, lower: float) -> subjects.MechanismAudit:
        return subjects.MechanismAudit("x", 1.0, 0.0, exact, lower, 0.99, 1000)

    assert not report(1.0, 0.9).refuted
    assert not report(None, 0.9).refuted
    assert not report(1.0 + 1e-12, 1.0).refuted
    assert report(1.001, 0.9).refuted
    assert report(math.inf, 0.0).refuted
    assert report(None, 1.001).refuted
    assert report(0.5, 1.001).refuted


@pytest.mark.heavy
def test_subjects_state_what_is_exact() -> None:
    known = {
        name: subjects.audit(name, epsilon=1.0, samples=2_000).exact_epsilon
        for name in subjects.SUBJECTS
    }
    assert [name for name, exact in known.items() if exact is None] == [
        *("discrete-laplace", "discrete-gaussian", "laplace", "gaussian", "local-laplace"),
        *("local-gaussian", "lattice-geometric", "smooth-laplace"),
    ]
    for name in ("geometric", "randomized-response", "subset-selection"):
        assert known[name] == pytest.approx(1.0, abs=1e-9)
    for name in ("exponential", "sparse-vector"):
        assert 0.95 < known[name] <= 1.0  # type: ignore[operator]


def test_subjects_catch_a_mechanism_that_claims_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Liar:
        """Randomized response at 2 that claims 1."""

        def __init__(self) -> None:
            self._inner = RandomizedResponse(categories=2, epsilon=2.0)
            self.guarantee = PureDP(epsilon=1.0, **SCOPE)
            self.event = Declared(self.guarantee)
            self.release, self.log_prob = self._inner.release, self._inner.log_prob

    channel = Liar()
    for table in (None, tabulate(RandomizedResponse(categories=2, epsilon=2.0))):
        subject = subjects.Subject(channel, 0, 1, table)
        monkeypatch.setitem(subjects.SUBJECTS, "liar", lambda epsilon, delta, s=subject: s)
        report = subjects.audit("liar", epsilon=1.0, samples=20_000)
        assert report.refuted
        assert report.lower_bound > 1.5
        assert report.claimed_epsilon == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_coverage_over_many_repetitions(seed: int) -> None:
    mechanism, rng = RandomizedResponse(categories=2, epsilon=1.0), Seeded(1000 + seed)
    failures = sum(
        lower_bound(mechanism, 0, 1, samples=1000, confidence=0.95, rng=rng).epsilon > 1.0
        for _ in range(5000)
    )
    assert not too_many(failures, 5000, 0.05)
    assert failures > 0
