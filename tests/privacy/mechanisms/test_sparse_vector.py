"""Sparse vector: asking one at a time, impossible runs, far answers, and the published mutants."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import tacit
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.mechanisms import SparseVector

SIGNIFICANCE = 1e-6
FAR = 10_000
"""So far from a threshold that no noise of the tests below reaches it."""


def outcomes_of(questions, positives):
    found = set()
    for pattern in itertools.product((0, 1), repeat=questions):
        run = []
        for outcome in pattern:
            run.append(outcome if run.count(1) < positives else -1)
        found.add(tuple(run))
    return np.array(sorted(found))


def p_value(counts, chances):
    counts, expected = np.asarray(counts, float), np.asarray(chances) * np.sum(counts)
    small = expected < 20
    if small.any() and not small.all():
        counts = np.append(counts[~small], counts[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


@pytest.mark.parametrize("positives", [1, 2])
@pytest.mark.parametrize("monotonic", [False, True])
def test_asking_agrees_in_law_with_releasing(positives, monotonic):
    mechanism = SparseVector(
        epsilon=2.0, threshold=2, positives=positives, monotonic=monotonic, adjacency="replace-one"
    )
    answers = [1, 3, 2]
    outputs = outcomes_of(3, positives)
    chances = np.exp(mechanism.log_prob(outputs, np.broadcast_to(answers, outputs.shape)))
    stream = tacit.Seeded(1)
    place = {tuple(row): index for index, row in enumerate(outputs.tolist())}
    asked = np.zeros(len(outputs))
    for _ in range(1000):
        said = [outcome for outcome, _ in mechanism.ask(iter(answers), stream)]
        asked[place[(*said, *[-1] * (3 - len(said)))]] += 1
    assert p_value(asked, chances) > SIGNIFICANCE
    released = mechanism.release(np.broadcast_to(answers, (1000, 3)), stream)
    counts = np.bincount([place[tuple(row)] for row in released.tolist()], minlength=len(outputs))
    assert p_value(counts, chances) > SIGNIFICANCE
    # The same test tells a threshold that is two off.
    shifted = SparseVector(
        epsilon=2.0, threshold=4, positives=positives, monotonic=monotonic, adjacency="replace-one"
    )
    other = np.exp(shifted.log_prob(outputs, np.broadcast_to(answers, outputs.shape)))
    assert p_value(asked, other) < SIGNIFICANCE


def test_asked_values_follow_their_noise():
    mechanism = SparseVector(epsilon=4.0, threshold=-1000, numeric=True, adjacency="replace-one")
    stream = tacit.Seeded(2)
    values = np.array([next(mechanism.ask(iter([7]), stream))[1] for _ in range(1500)]) - 7
    scale = float(mechanism.scales[2])
    assert scale == 0.5  # c Δ / ε₃, ε₃ = 2
    z = values.mean() / math.sqrt(2 * scale**2 / values.size)
    assert abs(z) < 6
    zero = int((values == 0).sum())
    assert stats.binomtest(zero, 1500, math.tanh(0.5 / scale)).pvalue > SIGNIFICANCE


def test_asking_stops_after_its_positives_and_takes_no_more_answers():
    mechanism = SparseVector(epsilon=1.0, threshold=0, positives=2, adjacency="replace-one")
    taken = []

    def answers():
        for answer in (-FAR, FAR, -FAR, FAR, FAR, FAR):
            taken.append(answer)
            yield answer

    assert [outcome for outcome, _ in mechanism.ask(answers())] == [0, 1, 0, 1]
    assert len(taken) == 4


def test_later_questions_may_depend_on_earlier_outcomes():
    mechanism = SparseVector(epsilon=1.0, threshold=0, positives=3, adjacency="replace-one")
    seen = []

    def answers():
        while True:
            yield FAR if len(seen) % 2 else -FAR

    for outcome, _ in mechanism.ask(answers()):
        seen.append(outcome)
    assert seen == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("answer", [math.nan, 0.5, "x", None, [1, 2], []])
def test_asking_refuses_bad_answers(answer):
    with pytest.raises(InvalidData):
        next(SparseVector(epsilon=1.0, threshold=0, adjacency="replace-one").ask(iter([answer])))


def test_scales_are_those_of_the_theorem():
    """Δ/ε₁, 2cΔ/ε₂ (cΔ/ε₂ if monotonic), cΔ/ε₃, and the shares are ε in all."""
    for monotonic, numeric, c in itertools.product((False, True), (False, True), (1, 2, 7)):
        mechanism = SparseVector(
            epsilon=0.7,
            threshold=0,
            sensitivity=3,
            positives=c,
            numeric=numeric,
            monotonic=monotonic,
            adjacency="replace-one",
        )
        event = mechanism.event
        shares = event.shares
        assert sum(shares) == Fraction(7, 10)
        assert shares[2] == (Fraction(7, 20) if numeric else 0)
        factor = 1 if monotonic else 2
        assert mechanism.scales[0] == 3 / shares[0]
        assert mechanism.scales[1] == factor * c * 3 / shares[1]
        assert mechanism.scales[2] == (c * 3 / shares[2] if numeric else 0)


@pytest.mark.parametrize(
    "run", [[1, 0], [1, 1], [-1, 1], [-1, -1], [0, -1], [-1, 0], [2, 0], [0, 2], [0, -2]]
)
def test_impossible_runs_have_no_chance(run):
    assert (
        SparseVector(epsilon=1.0, threshold=0, adjacency="replace-one").log_prob(run, [0, 0])
        == -math.inf
    )


def test_a_value_where_none_was_released_is_impossible():
    """The second column is 0 unless the first says "above"."""
    mechanism = SparseVector(epsilon=1.0, threshold=0, numeric=True, adjacency="replace-one")
    assert np.isfinite(mechanism.log_prob([[0, 0], [1, 5]], [0, 0]))
    assert mechanism.log_prob([[0, 3], [1, 5]], [0, 0]) == -math.inf
    assert mechanism.log_prob([[1, 5], [-1, 3]], [0, 0]) == -math.inf


def exact_below(mechanism, answer):
    """Logarithm of the chance that an answer is below the bar at 0: a sum in mpmath."""
    with mp.workdps(60):
        first, second = (
            mp.exp(-1 / mp.mpf(s.numerator) * s.denominator) for s in mechanism.scales[:2]
        )
        # P(N₂ − N₁ ≤ −answer − 1): sum over the bar, as far as it takes.
        reach = 2 * answer + 1000
        total = mp.mpf(0)
        front = (1 - first) / (1 + first)
        for bar in range(-answer - 400, reach):
            k = answer - bar  # needs N₂ ≤ bar − answer − 1, i.e. −N₂ ≥ k + 1
            tail = (
                second ** (k + 1) / (1 + second)
                if k + 1 >= 0
                else 1 - second ** (-k) / (1 + second)
            )
            total += front * first ** abs(bar) * tail
        return float(mp.log(total))


@pytest.mark.parametrize("monotonic", [False, True])
@pytest.mark.parametrize("answer", [0, 20, 150, 400])
def test_the_law_far_from_the_threshold(monotonic, answer):
    """A sum over the bar that stops too soon loses what matters far out."""
    mechanism = SparseVector(epsilon=2.0, threshold=0, monotonic=monotonic, adjacency="replace-one")
    stated = float(mechanism.log_prob([0], [answer]))
    assert stated == pytest.approx(exact_below(mechanism, answer), rel=1e-9)


@pytest.mark.parametrize("epsilon", [50.0, 200.0, 700.0])
def test_large_epsilon_has_a_law_without_warnings(epsilon):
    mechanism = SparseVector(epsilon=epsilon, threshold=0, positives=1, adjacency="replace-one")
    outputs = outcomes_of(2, 1)
    found = mechanism.log_prob(outputs, np.broadcast_to([0, 1], outputs.shape))
    assert math.fsum(np.exp(found)) == pytest.approx(1, abs=1e-9)


def test_scales_beyond_int64_are_refused():
    """Noise of scale 2^60 wraps around in int64; such a mechanism must not exist."""
    for positives in (2**8, 2**14, 2**20):
        with pytest.raises(InvalidParameter):
            SparseVector(
                epsilon=0.001,
                threshold=0,
                sensitivity=2**40,
                positives=positives,
                adjacency="replace-one",
            )


def test_a_large_sensitivity_has_a_law_that_fits_into_memory():
    """Scales of tens of thousands: the sum over the bar is long."""
    mechanism = SparseVector(epsilon=0.1, threshold=0, sensitivity=1000, adjacency="replace-one")
    assert float(mechanism.log_prob([0], [0])) == pytest.approx(math.log(0.5), abs=1e-3)


def test_a_sum_that_is_too_long_is_refused_without_a_word_about_the_answers():
    """How long the sum would be depends on the data: it may not be in the message."""
    mechanism = SparseVector(epsilon=1.0, threshold=0, adjacency="replace-one")
    messages = set()
    for answer in (2**45, 2**45 + 123457):
        try:
            mechanism.log_prob([0], [answer])
        except (InvalidData, InvalidParameter) as error:
            messages.add(str(error))
    assert len(messages) <= 1


def worst_ratio(log_prob, pairs, outputs):
    worst = 0.0
    for raw, other in pairs:
        laws = [log_prob(outputs, np.broadcast_to(x, outputs.shape)) for x in (raw, other)]
        with np.errstate(invalid="ignore"):
            worst = max(worst, float(np.nanmax(np.abs(laws[0] - laws[1]))))
    return worst


def test_more_positives_than_noise_was_made_for_break_the_promise():
    """A mutant: c = 1 noise, but two positives (Lyu et al., Algorithm 5 taken to c = 2)."""
    questions = 6
    outputs = outcomes_of(questions, 2)
    pairs = [([0] * questions, [1] * questions), ([1] * 4 + [0, 0], [0] * 4 + [1, 1])]
    honest = SparseVector(epsilon=1.0, threshold=2, positives=2, adjacency="replace-one")
    assert worst_ratio(honest.log_prob, pairs, outputs) <= 1 + 1e-9

    single = SparseVector(epsilon=1.0, threshold=2, positives=1, adjacency="replace-one")

    class Mutant(SparseVector):
        @property
        def scales(self):
            return single.scales

    mutant = Mutant(epsilon=1.0, threshold=2, positives=2, adjacency="replace-one")
    assert worst_ratio(mutant.log_prob, pairs, outputs) > 1.1


def test_monotonic_noise_on_answers_that_are_not_breaks_the_promise():
    """The option is a statement about the answers: where it is false, so is the guarantee."""
    questions = 8
    outputs = outcomes_of(questions, 1)
    pairs = [([1] * (questions - 1) + [0], [0] * (questions - 1) + [1])]
    lied = SparseVector(epsilon=1.0, threshold=2, monotonic=True, adjacency="replace-one")
    assert worst_ratio(lied.log_prob, pairs, outputs) > 1.1
    honest = SparseVector(epsilon=1.0, threshold=2, adjacency="replace-one")
    assert worst_ratio(honest.log_prob, pairs, outputs) <= 1 + 1e-9


def test_rows_are_independent_runs():
    rows = np.array([[-FAR, FAR, FAR], [FAR, FAR, FAR], [-FAR, -FAR, -FAR]])
    mechanism = SparseVector(epsilon=1.0, threshold=0, positives=1, adjacency="replace-one")
    assert mechanism.release(rows).tolist() == [[0, 1, -1], [1, -1, -1], [0, 0, 0]]
    numeric = SparseVector(
        epsilon=1.0, threshold=0, positives=1, numeric=True, adjacency="replace-one"
    )
    released = numeric.release(rows[None])
    assert released.shape == (1, 3, 3, 2)
    assert released[0, ..., 0].tolist() == [[0, 1, -1], [1, -1, -1], [0, 0, 0]]
    values = released[0, ..., 1]
    assert (values[released[0, ..., 0] != 1] == 0).all()
    assert values[0, 1] == pytest.approx(FAR, abs=200)
