"""Wrong mechanisms that the audits must refute, each beside the right one that they must not.

Every mutant claims ε = 1. `refuted` is one and the same call for a mutant and its sibling: same
inputs, same number of draws, same confidence; `exact_of` is the same for their laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from tacit.audit.exact import Table, smallest_epsilon, tabulate, tabulate_over
from tacit.audit.statistical import Bound, bound_from_draws, fineness, lower_bound
from tacit.privacy.events import Declared
from tacit.privacy.guarantees import Guarantee, PureDP
from tacit.privacy.mechanisms import (
    DiscreteLaplace,
    Geometric,
    LocalLaplace,
    RandomizedResponse,
    SparseVector,
    bounding,
)
from tacit.privacy.mechanisms.laplace import log_mass, log_tail
from tacit.privacy.randomness import Randomness, Seeded, discrete_laplace, source, uniform_below

CONFIDENCE = 0.999999
"""A right mechanism is refuted once in a million runs, whatever the seed."""

SCOPE: dict[str, Any] = {"adjacency": "any-two-inputs", "unit": "record"}
CLAIM: Guarantee = PureDP(epsilon=1.0, **SCOPE)


class Claims:
    """What all of these say of themselves."""

    guarantee = CLAIM
    event = Declared(CLAIM)


def audited(mechanism: Any, pair: tuple[Any, Any], samples: int = 40_000, seed: int = 1) -> Bound:
    return lower_bound(mechanism, *pair, samples=samples, confidence=CONFIDENCE, rng=Seeded(seed))


def refuted(mechanism: Any, pair: tuple[Any, Any], samples: int = 40_000) -> bool:
    return audited(mechanism, pair, samples).epsilon > mechanism.guarantee.epsilon


class BlackBox:
    """A mechanism whose law the audit is not told."""

    def __init__(self, inner: Any) -> None:
        self.guarantee, self.event = inner.guarantee, inner.event
        self.release = inner.release


# --- 1. floating-point Laplace ------------------------------------------------------------------


class FloatLaplace(Claims):
    """Textbook Laplace noise of scale 1, in float64."""

    def release(self, raw: Any, rng: Randomness | None = None) -> np.ndarray:
        seed = int(source(rng).words(1)[0])
        return np.asarray(raw) + np.random.default_rng(seed).laplace(size=np.shape(raw))


class GridLaplace(Claims):
    """The same noise as `tacit.mechanisms.Laplace` makes it: on a grid, exactly."""

    def release(self, raw: Any, rng: Randomness | None = None) -> np.ndarray:
        steps = bounding.quantize(raw, 2.0**-10)
        noise = DiscreteLaplace(epsilon=1.0, sensitivity=2**10, adjacency="replace-one")
        return noise.release(steps, rng) * 2.0**-10


def bound_through_fineness(mechanism: Any) -> Bound:
    stream = Seeded(2)
    draws = [mechanism.release(np.full(20_000, raw), stream) for raw in (0.0, 1.0)]
    return bound_from_draws(*draws, [fineness], confidence=0.99)


def test_floating_point_laplace_gives_itself_away() -> None:
    # Where 1.0 was added no digit finer than 2^-53 is left; small noise alone has some.
    assert bound_through_fineness(FloatLaplace()).epsilon > 5
    assert bound_through_fineness(GridLaplace()).epsilon < 0.5


@pytest.mark.parametrize("pair", [(0.0, 1.0), (1.0, 0.0)])
def test_floating_point_laplace_is_refuted_as_a_black_box(pair: tuple[float, float]) -> None:
    assert audited(FloatLaplace(), pair, seed=3).epsilon > 4
    assert not refuted(GridLaplace(), pair)


def test_laplace_on_the_grid_is_seen_through_its_value() -> None:
    # Not refuted is worth something only where the audit sees something.
    assert audited(GridLaplace(), (1.0, 0.0)).epsilon > 0.8


# --- 2. and 3. vectors --------------------------------------------------------------------------


class VectorLaplace(Claims):
    """`LocalLaplace`, with the norm it clips and the scale of its noise left open."""

    def __init__(self, *, order: int, sensitivity_per_radius: int) -> None:
        self._ball = bounding.GridBall("mutant", 1.0, None, order=order)
        sensitivity = sensitivity_per_radius * self._ball.radius_steps
        self._noise = DiscreteLaplace(epsilon=1.0, sensitivity=sensitivity, adjacency="replace-one")

    def release(self, raw: Any, rng: Randomness | None = None) -> np.ndarray:
        return self._noise.release(self._ball.clip(raw), rng) * self._ball.step

    def log_prob(self, released: Any, raw: Any) -> np.ndarray:
        steps = np.asarray(released) / self._ball.step
        return self._noise.log_prob(steps, self._ball.clip(raw)).sum(axis=-1)


VERTICES = ([1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0])
DIAGONAL = ([0.5] * 4, [-0.5] * 4)
"""On the ℓ2 sphere, and at ℓ1 distance 4 instead of 2."""


def test_the_frame_of_the_vector_mutants_is_right() -> None:
    right = VectorLaplace(order=1, sensitivity_per_radius=2)
    for pair in (VERTICES, DIAGONAL):
        assert not refuted(right, pair)
        ours = audited(LocalLaplace(epsilon=1.0, radius=1.0), pair).epsilon
        assert audited(right, pair).epsilon == pytest.approx(ours, rel=1e-12)


def test_half_the_scale_is_refuted() -> None:
    mutant = VectorLaplace(order=1, sensitivity_per_radius=1)
    assert refuted(mutant, VERTICES)
    assert audited(mutant, VERTICES).epsilon > 1.8
    assert not refuted(LocalLaplace(epsilon=1.0, radius=1.0), VERTICES)
    assert audited(LocalLaplace(epsilon=1.0, radius=1.0), VERTICES).epsilon > 0.85


@pytest.mark.quick(1)
@pytest.mark.parametrize("dimension", [4, 16])
def test_l2_clipping_under_l1_noise_is_refuted(dimension: int) -> None:
    pair = ([dimension**-0.5] * dimension, [-(dimension**-0.5)] * dimension)
    assert refuted(VectorLaplace(order=2, sensitivity_per_radius=2), pair)
    assert not refuted(LocalLaplace(epsilon=1.0, radius=1.0), pair)


def test_l2_clipping_is_not_refuted_where_the_norms_agree() -> None:
    # The pair matters: along an axis both norms are the same.
    assert not refuted(VectorLaplace(order=2, sensitivity_per_radius=2), VERTICES)


# --- 4. biased uniforms -------------------------------------------------------------------------


class Response(Claims):
    """K-ary randomized response that draws the other category with a given `uniform`."""

    def __init__(
        self, categories: int, uniform: Callable[[int, int, Randomness], np.ndarray]
    ) -> None:
        self.categories, self._uniform = categories, uniform
        self._keep = math.e / (math.e + categories - 1)

    def release(self, raw: Any, rng: Randomness | None = None) -> np.ndarray:
        stream, values = source(rng), np.asarray(raw)
        moved = (stream.words(values.size) >> np.uint64(11)) * 2.0**-53 >= self._keep
        slot = self._uniform(self.categories - 1, values.size, stream)
        return np.where(moved, slot + (slot >= values), values)


def half_range(bound: int, size: int, rng: Randomness) -> np.ndarray:
    return uniform_below(bound // 2, size, rng)


def modulo(bound: int, size: int, rng: Randomness) -> np.ndarray:
    """Four random bits, modulo: the first 16 mod bound values come up twice as often."""
    return ((rng.words(size) >> np.uint64(60)) % np.uint64(bound)).astype(np.int64)


def law_of(categories: int, chance: Iterable[float]) -> Table:
    """The table of `Response` for a uniform with these chances."""
    keep, chances = math.e / (math.e + categories - 1), list(chance)
    rows = np.zeros((categories, categories))
    for raw in range(categories):
        others = [y for y in range(categories) if y != raw]
        rows[raw, raw] = keep
        rows[raw, others] = (1 - keep) * np.array(chances)
    with np.errstate(divide="ignore"):
        pairs = tuple((i, j) for i in range(categories) for j in range(categories) if i != j)
        return Table(np.log(rows), pairs)


CATEGORIES = 12
UNIFORMS = {
    "half its range": (half_range, [0.2] * 5 + [0.0] * 6, math.inf),
    "modulo": (modulo, [2 / 16] * 5 + [1 / 16] * 6, 1 + math.log(16 / 11)),
    "right": (uniform_below, [1 / 11] * 11, 1.0),
}


@pytest.mark.parametrize("name", UNIFORMS)
def test_a_biased_uniform_is_refuted(name: str) -> None:
    uniform, chances, epsilon = UNIFORMS[name]
    mechanism = Response(CATEGORIES, uniform)
    # The last category is the one that a biased draw comes up with too rarely.
    assert refuted(mechanism, (CATEGORIES - 1, 0)) is (name != "right")
    assert smallest_epsilon(law_of(CATEGORIES, chances)) == pytest.approx(epsilon, abs=1e-12)


def test_shipped_randomized_response_is_not_refuted_there() -> None:
    shipped = RandomizedResponse(categories=CATEGORIES, epsilon=1.0)
    assert not refuted(BlackBox(shipped), (CATEGORIES - 1, 0))
    assert not refuted(shipped, (CATEGORIES - 1, 0))
    assert audited(BlackBox(shipped), (CATEGORIES - 1, 0)).epsilon > 0.7
    assert smallest_epsilon(tabulate(shipped)) <= 1 + 1e-12


def test_shipped_uniform_is_not_the_biased_one() -> None:
    counts = np.bincount(uniform_below(11, 110_000, Seeded(4)), minlength=11)
    biased = np.bincount(modulo(11, 110_000, Seeded(4)), minlength=11)
    assert np.abs(counts - 10_000).max() < 600 < np.abs(biased - 10_000).max()


# --- 5. sparse vectors of the literature --------------------------------------------------------


class PublishedSparseVector(Claims):
    """Threshold questions as in Lyu, Su, Li (2017), Figure 1, with discrete noise, Δ = 1, T = 0.

    Algorithm 4 (Lee, Clifton 2014): ε₁ = ε/4, comparison noise 1/ε₂ whatever the cut-off c.
    Algorithm 5 (Stoddard et al. 2014): ε₁ = ε/2, no noise on the comparisons, no cut-off.
    Algorithm 6 (Chen et al. 2015): ε₁ = ε/2, comparison noise 1/ε₂, no cut-off.
    """

    def __init__(
        self, threshold: Fraction, comparisons: Fraction | None, positives: int | None
    ) -> None:
        self._threshold, self._comparisons, self._positives = threshold, comparisons, positives

    def release(self, raw: Any, rng: Randomness | None = None) -> np.ndarray:
        answers, stream = np.asarray(raw), source(rng)
        noisy = answers.copy()
        if self._comparisons is not None:
            noise = discrete_laplace(self._comparisons, answers.size, stream)
            noisy = noisy + noise.reshape(answers.shape)
        bar = discrete_laplace(self._threshold, len(answers), stream)
        above = noisy >= bar[:, None]
        before = np.cumsum(above, axis=1) - above
        limit = answers.shape[1] if self._positives is None else self._positives
        return np.where(before < limit, above.astype(np.int64), -1)

    def log_prob(self, released: Any, raw: Any) -> np.ndarray:
        known: dict[bytes, float] = {}
        rows = np.stack(np.broadcast_arrays(released, raw), axis=-1)
        for row in rows:
            if row.tobytes() not in known:
                known[row.tobytes()] = self._log_prob(row[:, 0], row[:, 1])
        return np.array([known[row.tobytes()] for row in rows])

    def _log_prob(self, outcomes: np.ndarray, answers: np.ndarray) -> float:
        """Summed over the threshold's noise, to far beyond its weight."""
        reach = math.ceil(45 * self._threshold)
        bar = np.arange(-reach, reach + 1)
        asked = outcomes != -1
        needed = bar[:, None] - answers[asked]
        if self._comparisons is None:
            above = np.where(needed <= 0, 1.0, 0.0)
        else:
            above = np.exp(log_tail(self._comparisons, needed))
        chance = np.where(outcomes[asked] == 1, above, 1 - above).prod(axis=1)
        with np.errstate(divide="ignore"):
            return float(np.log((np.exp(log_mass(self._threshold, bar)) * chance).sum()))


def runs(questions: int, positives: int | None) -> list[tuple[int, ...]]:
    """All outcomes, cut off after so many times "above"."""
    limit = questions if positives is None else positives
    cut = set()
    for run in product((0, 1), repeat=questions):
        before = np.cumsum(run) - run
        cut.add(tuple(np.where(before < limit, run, -1).tolist()))
    return sorted(cut)


def exact_of(mechanism: Any, pair: tuple[Any, Any], positives: int | None) -> float:
    outputs = runs(len(pair[0]), positives)
    return smallest_epsilon(tabulate_over(mechanism, list(pair), outputs, lambda a, b: True))


HALF = ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)
"""All answers move by one: no neighbours of a sparse vector are further apart."""

ALGORITHM_4 = PublishedSparseVector(Fraction(4), Fraction(4, 3), positives=4)
ALGORITHM_5 = PublishedSparseVector(Fraction(2), None, positives=None)
ALGORITHM_6 = PublishedSparseVector(Fraction(2), Fraction(2), positives=None)
RIGHT = SparseVector(epsilon=1.0, threshold=0, positives=4, adjacency="replace-one")


def test_algorithm_5_rules_an_input_out() -> None:
    assert exact_of(ALGORITHM_5, HALF, None) == math.inf
    assert refuted(ALGORITHM_5, HALF)
    assert refuted(BlackBox(ALGORITHM_5), HALF)


def test_algorithm_6_has_no_cut_off() -> None:
    # Every question costs, so the longer the run the worse, and beyond every bound.
    lengths = [([0] * m + [1] * m, [1] * m + [0] * m) for m in (1, 2, 3, 4)]
    found = [exact_of(ALGORITHM_6, pair, None) for pair in lengths]
    assert found == sorted(found)
    assert found[-1] > 1.5
    assert found[-1] > found[-2] + 0.2
    assert refuted(ALGORITHM_6, HALF)


def test_algorithm_4_does_not_scale_with_the_cut_off() -> None:
    assert exact_of(ALGORITHM_4, HALF, 4) > 1.5
    assert refuted(ALGORITHM_4, HALF)
    # The theorem for it: (1 + 6c)/4 ε, above what it claims and above what is found.
    assert exact_of(ALGORITHM_4, HALF, 4) <= (1 + 6 * 4) / 4


@pytest.mark.heavy
def test_the_right_sparse_vector_is_not_refuted_there() -> None:
    assert exact_of(RIGHT, HALF, 4) <= 1 + 1e-9
    assert not refuted(RIGHT, HALF)
    assert not refuted(BlackBox(RIGHT), HALF)
    single = SparseVector(epsilon=1.0, threshold=0, positives=1, adjacency="replace-one")
    assert exact_of(single, HALF, 1) <= 1 + 1e-9
    assert 0.4 < audited(single, HALF[::-1]).epsilon <= 1


def test_the_mutants_agree_with_the_shipped_law_where_they_are_right() -> None:
    # The same frame with the right scales is the shipped mechanism.
    threshold, comparisons, _ = RIGHT.scales
    frame = PublishedSparseVector(threshold, comparisons, positives=4)
    outputs = np.array(runs(8, 4))
    for raw in HALF:
        repeated = np.broadcast_to(raw, outputs.shape)
        ours = RIGHT.log_prob(outputs, repeated)
        assert frame.log_prob(outputs, repeated) == pytest.approx(ours, abs=1e-9)


# --- 6. a case that is forgotten ----------------------------------------------------------------


class UnaryEncoding(Claims):
    """Symmetric unary encoding: every bit is flipped with chance 1/(1 + e^{ε/2})."""

    def __init__(self, categories: int, forgets: str = "nothing") -> None:
        self.categories, self._forgets = categories, forgets
        self._flip = 1 / (1 + math.exp(0.5))

    def _chances(self, raw: Any) -> np.ndarray:
        """Chance of a one in each place."""
        truth = np.eye(self.categories)[np.asarray(raw)]
        noisy = np.where(truth == 1, 1 - self._flip, self._flip)
        if self._forgets == "zeros":  # zeros stay zeros: a one can only be the true bit
            return np.where(truth == 1, noisy, 0.0)
        if self._forgets == "the last bit":
            noisy[..., -1] = truth[..., -1]
        return noisy

    def release(self, raw: Any, rng: Randomness | None = None) -> np.ndarray:
        chances = self._chances(raw)
        words = source(rng).words(chances.size).reshape(chances.shape)
        return ((words >> np.uint64(11)) * 2.0**-53 < chances).astype(np.int64)

    def log_prob(self, released: Any, raw: Any) -> np.ndarray:
        chances = self._chances(raw)
        with np.errstate(divide="ignore"):
            return np.log(np.where(np.asarray(released) == 1, chances, 1 - chances)).sum(axis=-1)


class ForgetfulResponse(Claims):
    """Randomized response that lets one category through."""

    def __init__(self) -> None:
        self._inner = RandomizedResponse(categories=4, epsilon=1.0)

    def release(self, raw: Any, rng: Randomness | None = None) -> np.ndarray:
        return np.where(np.asarray(raw) == 3, 3, self._inner.release(raw, rng))

    def log_prob(self, released: Any, raw: Any) -> np.ndarray:
        certain = np.where(np.asarray(released) == 3, 0.0, -math.inf)
        return np.where(np.asarray(raw) == 3, certain, self._inner.log_prob(released, raw))


@pytest.mark.parametrize("forgets", ["zeros", "the last bit", "nothing"])
def test_unary_encoding_that_forgets_a_bit_is_refuted(forgets: str) -> None:
    mechanism = UnaryEncoding(4, forgets)
    is_mutant = forgets != "nothing"
    assert refuted(mechanism, (3, 0)) is is_mutant
    assert refuted(BlackBox(mechanism), (3, 0)) is is_mutant
    outputs = list(product((0, 1), repeat=4))
    table = tabulate_over(mechanism, range(4), outputs, lambda a, b: a != b)
    assert smallest_epsilon(table) == (math.inf if is_mutant else pytest.approx(1.0, abs=1e-12))


def test_randomized_response_that_forgets_a_category_is_refuted() -> None:
    mutant, right = ForgetfulResponse(), RandomizedResponse(categories=4, epsilon=1.0)
    for wrap in (lambda one: one, BlackBox):
        assert refuted(wrap(mutant), (3, 0))
        assert not refuted(wrap(right), (3, 0))
        assert not refuted(wrap(mutant), (1, 0))  # the case is only wrong where it is forgotten
    table = tabulate_over(mutant, range(4), range(4), lambda a, b: a != b)
    assert smallest_epsilon(table) == math.inf
    assert smallest_epsilon(tabulate(right)) <= 1 + 1e-12


# --- 7. renormalised instead of clamped ---------------------------------------------------------


class RenormalisedGeometric(Claims):
    """Two-sided geometric noise conditioned on the range: its normaliser depends on the data."""

    def __init__(self, upper: int) -> None:
        self.upper = upper
        y = np.arange(upper + 1)
        weight = np.exp(-np.abs(y[:, None] - y[None, :]).astype(np.float64))
        self._log_law = np.log(weight / weight.sum(axis=1, keepdims=True))

    def release(self, raw: Any, rng: Randomness | None = None) -> np.ndarray:
        uniform = (source(rng).words(np.size(raw)) >> np.uint64(11)) * 2.0**-53
        cumulative = np.exp(self._log_law).cumsum(axis=1)[np.asarray(raw)]
        return np.minimum((cumulative <= uniform[:, None]).sum(axis=1), self.upper)

    def log_prob(self, released: Any, raw: Any) -> np.ndarray:
        return self._log_law[np.asarray(raw), np.asarray(released)]

    def inputs(self) -> range:
        return range(self.upper + 1)

    outputs = inputs

    def adjacent(self, first: int, second: int) -> bool:
        return abs(first - second) == 1


def test_renormalising_is_refuted_and_clamping_is_not() -> None:
    mutant, right = (
        RenormalisedGeometric(20),
        Geometric(epsilon=1.0, lower=0, upper=20, adjacency="replace-one"),
    )
    # At the end of the range the normalisers are Σ e^-k and Σ e^-k + e^-1 (but for the far end).
    r = math.exp(-1)
    known = 1 + math.log((1 / (1 - r) + r) / (1 / (1 - r)))
    assert smallest_epsilon(tabulate(mutant)) == pytest.approx(known, abs=1e-6)
    assert smallest_epsilon(tabulate(right)) <= 1 + 1e-12
    for wrap in (lambda one: one, BlackBox):
        assert refuted(wrap(mutant), (0, 1))
        assert not refuted(wrap(right), (0, 1))
    assert not refuted(mutant, (10, 11))  # in the middle it is right
