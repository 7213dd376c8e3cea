"""Fits with one step done wrong, which canaries must refute, each beside the right one.

`audit` is one and the same call for a mutant and its sibling: same records, same canary, same
number of fits, same confidence. Claims are derived from the event of the right one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import laplace
from torch import Tensor, nn

from tacit.audit import canaries
from tacit.audit.canaries import canary_bound, learned_scores, matched_filter, one_run_bound
from tacit.audit.statistical import Bound, bound_from_draws
from tacit.central import statistics as statistics
from tacit.central.statistics import moments
from tacit.central.training import Noise, probing, train
from tacit.central.training.clipping import Clipper
from tacit.central.training.gradients import NoisyGradients
from tacit.central.training.scaling import Clipped, Scaling, Tally
from tacit.central.training.schedule import Schedule
from tacit.central.training.training import optimizer_of
from tacit.data.schema import ArraySchema
from tacit.local.learned import features as features_of
from tacit.local.learned import private_quantizer
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.private_quantizer import Budget
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.events import Event
from tacit.privacy.gaussian import noise_multiplier_for
from tacit.privacy.guarantees import ApproxDP
from tacit.privacy.randomness import Randomness, Seeded

pytestmark = pytest.mark.heavy

CONFIDENCE, DELTA = 0.999999, 1e-5
RUNS = 120


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def audit(fit: Any, data: Any, canary: Any, *, runs: int = RUNS, **options: Any) -> Bound:
    return canary_bound(fit, data, canary, runs=runs, delta=DELTA, confidence=CONFIDENCE, **options)


def claimed(event: Event) -> float:
    promise = guarantee_of(event, DELTA)
    assert isinstance(promise, ApproxDP)
    return promise.epsilon


# --- the audit itself, where the truth is known -------------------------------------------------


def gaussian_sum(sigma: float, seed: int, width: int = 6) -> Callable[[Any], np.ndarray]:
    generator = np.random.default_rng(seed)
    return lambda rows: rows.sum(axis=0) + sigma * generator.standard_normal(width)


ZEROS, UNIT = np.zeros((5, 6)), np.eye(6)[2]


@pytest.mark.parametrize("scores", [None, [matched_filter(UNIT)]])
def test_a_known_gaussian_is_seen_and_not_refuted(scores: Any) -> None:
    # At δ = 1e-5 this is 8.9-DP; of that, 4,000 fits can show some, and never more than all.
    found = audit(gaussian_sum(0.55, 1), ZEROS, UNIT, runs=4000, scores=scores)
    epsilon = next(
        e for e in np.arange(0, 20, 0.01) if noise_multiplier_for(e + 0.01, DELTA) < 0.55
    )
    assert 1.5 < found.epsilon <= epsilon
    assert found.certifiable > 3


def test_nothing_is_found_where_there_is_nothing() -> None:
    # 200 audits of a fit that ignores its rows, at 80 %: the bound is above 0 in a fifth at most.
    refuted = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        fit = lambda rows, generator=generator: generator.integers(0, 3, 4)  # noqa: E731
        found = canary_bound(fit, ZEROS, UNIT, runs=80, confidence=0.8)
        refuted += found.epsilon > 0
    assert refuted <= 60  # P(Bin(200, 0.2) > 60) is about 4e-4, and far less as bounds are strict


def test_scores_must_be_judged_on_other_draws() -> None:
    # The same draws for learning and counting refute what ignores its rows: so they are not used.
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((2, 60, 400))
    scores = learned_scores(first, second)
    assert bound_from_draws(first, second, scores, confidence=CONFIDENCE).epsilon > 0.3
    fresh = generator.standard_normal((2, 60, 400))
    assert bound_from_draws(*fresh, scores, confidence=CONFIDENCE).epsilon == 0


def test_each_score_finds_what_it_is_for() -> None:
    generator = np.random.default_rng(3)

    def draws(change: Callable[[np.ndarray], None]) -> list[np.ndarray]:
        sides = generator.standard_normal((2, 400, 5))
        sides[..., 1] = generator.integers(0, 40, (2, 400))
        change(sides[0])
        return list(sides)

    def shifted(side: np.ndarray) -> None:
        side[:, 0] += 5

    def wider(side: np.ndarray) -> None:
        side[:, 0] *= 50

    def repeated(side: np.ndarray) -> None:  # same mean, about the same spread
        side[:, 1] = np.where(side[:, 1] < 20, 8.0, 31.0)

    for change, winner in ((shifted, 0), (shifted, 1), (shifted, 2), (wider, 3), (repeated, 4)):
        first, second = draws(change)
        scores = learned_scores(first[:100], second[:100])
        scores = scores[len(scores) // 2 :]  # uncut
        bounds = [
            bound_from_draws(first[100:], second[100:], [score], confidence=0.99).epsilon
            for score in scores
        ]
        assert bounds[winner] > 1
        assert bounds[winner] >= max(bounds) - 0.5


def test_a_length_that_depends_on_the_canary_is_a_release() -> None:
    found = audit(lambda rows: np.zeros(len(rows)), ZEROS, UNIT)
    assert found.epsilon > 0.9


def test_absent_keeps_the_number_of_records() -> None:
    seen = []
    audit(lambda rows: seen.append(len(rows)) or np.zeros(1), ZEROS, UNIT, absent=0 * UNIT)
    assert set(seen) == {6}
    seen.clear()
    audit(lambda rows: seen.append(len(rows)) or np.zeros(1), ZEROS, UNIT)
    assert set(seen) == {5, 6}


def test_refusals() -> None:
    with pytest.raises(InvalidParameter, match="runs must be"):
        canary_bound(len, ZEROS, UNIT, runs=10)
    with pytest.raises(InvalidParameter, match="canary must be of shape"):
        canary_bound(len, ZEROS, np.zeros(3), runs=40)
    with pytest.raises(InvalidParameter, match="guesses must be even"):
        one_run_bound(len, ZEROS, np.eye(6), np.sum, guesses=3)
    with pytest.raises(InvalidParameter, match="score must be of 6 numbers"):
        one_run_bound(lambda rows: rows, ZEROS, np.eye(6), np.sum, guesses=4)


# --- DP-SGD -------------------------------------------------------------------------------------


class TwoLayers(nn.Module):
    """Two linear layers side by side: the gradient of a record is that record, twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(width, 1, bias=False) for _ in range(2))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, rows: Tensor) -> Tensor:
        return (self.first(rows) + self.second(rows))[:, 0]


def minus_output(module: nn.Module, rows: Tensor) -> Tensor:
    return -module(rows)


WIDTH = 3
NOBODY = np.zeros(WIDTH, np.float32)
LOUD = np.array([0, 1e3, 0], np.float32)
"""Clipped to full norm whenever it is sampled, in a direction that the others leave alone."""

CROWD = np.tile(np.array([1, 0, 0], np.float32), (59, 1))
"""Others, whose gradients point elsewhere."""

WHOLE = Schedule(60, 2**32, 1, Fraction(5))
RARE = Schedule(1000, 2**32 // 1000, 8, Fraction(3, 5))
"""One step on everybody; eight on a thousandth of the records, with the noise that this allows."""


@dataclass(frozen=True)
class Parts:
    """What one training is made of; a mutant replaces one part."""

    plan: Schedule = WHOLE
    noise: Callable[[float, Randomness], Noise] = Noise
    clipper: type[Clipper] = Clipper

    def fit(self, stream: Randomness) -> Callable[[Any], np.ndarray]:
        @cache
        def made(width: int) -> Clipper:
            """One for all runs: tracing the module takes longer than a step."""
            like = (torch.zeros(0, width),)
            clipper = probing.clipper("test", TwoLayers(width), minus_output, like)
            clipper.__class__ = self.clipper
            return clipper

        def fitted(rows: np.ndarray) -> np.ndarray:
            clipper = made(rows.shape[1])
            module = clipper.module
            module.load_state_dict(TwoLayers(rows.shape[1]).state_dict())
            stepper = optimizer_of("sgd", clipper.trained, 1.0, 0.0)
            noise = self.noise(float(self.plan.noise_multiplier), stream)
            room = 1 / (1 + self.plan.rounding(torch.float32))
            data = (torch.from_numpy(rows),)
            gradients = NoisyGradients(clipper, data, noise, self.plan, room)
            with gradients.drawing():
                for _ in range(self.plan.steps):
                    clipper.give(gradients.draw())
                    stepper.step()
            return flat(module)

        return fitted


def flat(module: nn.Module) -> np.ndarray:
    return torch.cat([p.detach().flatten() for p in module.parameters()]).numpy()


class SparesOneLayer(Noise):
    """Noise on the first layer alone."""

    def add_to(self, sums: Tensor, divisor: float = 1.0) -> None:
        half = len(sums) // 2
        super().add_to(sums[:half], divisor)
        sums[half:] /= divisor


class FullBatches(Schedule):
    """Everybody in every batch; the accountant was told otherwise."""

    def layout(self, stream: Randomness) -> tuple[Tensor, Tensor]:
        self.__dict__["slots"] = self.records
        return torch.arange(self.records), torch.arange(self.records)


class ClippedAfterAveraging(Clipper):
    """The average gradient is clipped, not each: one huge gradient is all of it."""

    def tallied(self, batch: Any, scaling: Scaling, *layout: Any) -> tuple[Tensor, Tally]:
        total, tally = super().tallied(batch, Clipped((math.inf,)), *layout)
        size = max(len(batch[0]), 1)
        average = total / size
        (bound,) = scaling.bounds
        return average * min(1.0, bound / max(float(average.norm()), 1e-30)) * size, tally


class Unclipped(Clipper):
    """Gradients as they come."""

    def tallied(self, batch: Any, scaling: Scaling, *layout: Any) -> tuple[Tensor, Tally]:
        return super().tallied(batch, Clipped((math.inf,)), *layout)


@cache
def claim_of(plan: Schedule) -> float:
    return claimed(plan.event(Fraction(1), "record"))


STEP = {
    "right": Parts(),
    "no noise on one layer": Parts(noise=SparesOneLayer),
    "clipped after averaging": Parts(clipper=ClippedAfterAveraging),
    "not clipped": Parts(clipper=Unclipped),
}


@pytest.mark.parametrize("name", STEP)
def test_a_step_of_training(name: str) -> None:
    found = audit(STEP[name].fit(Seeded(5)), CROWD, LOUD, absent=NOBODY)
    assert found.certifiable > claim_of(WHOLE)
    assert (found.epsilon > claim_of(WHOLE)) is (name != "right")


@pytest.mark.parametrize("sampling", [Schedule, FullBatches])
def test_sampling_that_the_accountant_was_not_told(sampling: type[Schedule]) -> None:
    plan = sampling(RARE.records, RARE.threshold, RARE.steps, RARE.noise_multiplier)
    others = np.zeros((RARE.records - 1, WIDTH), np.float32)
    found = audit(Parts(plan=plan).fit(Seeded(6)), others, LOUD, absent=NOBODY)
    assert found.certifiable > claim_of(RARE)
    assert (found.epsilon > claim_of(RARE)) is (sampling is FullBatches)


class Same:
    """The same words at every call, whoever asks, and whatever for."""

    secure = False

    def words(self, count: int) -> np.ndarray:
        return Seeded(7).words(count)


def test_the_harness_is_train() -> None:
    # The same draws give the same weights: what is audited above is what ships.
    rows = np.concatenate([CROWD, LOUD[None]])
    module = TwoLayers(WIDTH)
    ran = train(
        module,
        torch.from_numpy(rows),
        minus_output,
        epsilon=1.0,
        delta=DELTA,
        batch_size=60,
        steps=2,
        optimizer="sgd",
        learning_rate=1.0,
        rng=Same(),
    )
    plan = replace(WHOLE, steps=2, noise_multiplier=Fraction(ran.noise_multiplier))
    assert Parts(plan=plan).fit(Same())(rows) == pytest.approx(flat(module), abs=0)


def trained_by(optimizer: str, seed: int, epsilon: float) -> Callable[[Any], np.ndarray]:
    stream = Seeded(seed)

    def fit(rows: np.ndarray) -> np.ndarray:
        module = TwoLayers(rows.shape[1])
        settings: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "optimizer": optimizer}
        data = torch.from_numpy(rows)
        train(module, data, minus_output, batch_size=len(rows), steps=1, rng=stream, **settings)
        return flat(module)

    return fit


DIRECTION = np.tile(LOUD, 2)


@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adam", marks=pytest.mark.slow)])
def test_train_end_to_end(optimizer: str) -> None:
    # Adam's first step is the gradient's sign: it shows less than sgd's, and no more is claimed.
    scores = [matched_filter(DIRECTION)]
    found = audit(
        trained_by(optimizer, 8, 16.0), CROWD, LOUD, absent=NOBODY, runs=120, scores=scores
    )
    assert 0.1 < found.epsilon <= 16.0


# --- a start that was fitted to the data ---------------------------------------------------------


class Decoded(nn.Module):
    """An encoder, one weight a column, seen through the sign that a decoder has."""

    def __init__(self, sign: float, width: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(width, 1, bias=False)
        nn.init.zeros_(self.encoder.weight)
        self.register_buffer("decoder", torch.tensor(sign))

    def forward(self, rows: Tensor) -> Tensor:
        return (self.decoder * self.encoder(rows))[:, 0]


def two_stages(fitted_start: bool, seed: int) -> Callable[[Any], np.ndarray]:
    """First a decoder without noise (or a public one), then the encoder with DP-SGD."""
    stream = Seeded(seed)

    def fit(rows: np.ndarray) -> np.ndarray:
        sign = float(np.sign(rows.sum())) if fitted_start else 1.0
        module = Decoded(sign, rows.shape[1])
        settings: dict[str, Any] = {"epsilon": 0.5, "delta": DELTA, "optimizer": "sgd"}
        data = torch.from_numpy(rows)
        train(module, data, minus_output, batch_size=len(rows), steps=1, rng=stream, **settings)
        return flat(module.encoder)

    return fit


@pytest.mark.parametrize("fitted_start", [False, True])
def test_a_start_fitted_to_the_data(fitted_start: bool) -> None:
    # One record turns the decoder round, and with it every gradient of the second stage.
    crowd = np.tile(np.array([1, 0, 0], np.float32), (99, 1))
    turned = np.array([-1e3, 0, 0], np.float32)
    found = audit(two_stages(fitted_start, 9), crowd, turned, absent=NOBODY)
    assert found.certifiable > 0.5
    assert (found.epsilon > 0.5) is fitted_start


# --- covariance and codebook --------------------------------------------------------------------


def diagonal_spared(spending: Any, sensitivity: int, share: Fraction, dimension: int) -> np.ndarray:
    """As `moments.symmetric_noise`, but for the diagonal."""
    noise = right_noise(spending, sensitivity, share, dimension)
    noise[np.diag_indices(dimension)] = 0
    return noise


right_noise = moments.symmetric_noise


@pytest.mark.parametrize("mutant", [False, True])
def test_covariance_without_noise_on_the_diagonal(
    mutant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant:
        monkeypatch.setattr(moments, "symmetric_noise", diagonal_spared)
    stream = Seeded(10)

    def fit(rows: np.ndarray) -> np.ndarray:
        found = statistics.covariance(rows, 1.0, epsilon=0.5, delta=DELTA, rng=stream)
        return found.value.matrix

    found = audit(fit, np.zeros((30, 3)), np.array([0.0, 1.0, 0.0]))
    assert (found.epsilon > 0.5) is mutant


QUERIES = ("norms", "mean", "distances", "covariance", "start", "steps", "counts", "prototypes")
"""In the order in which `private_quantizer.fit` asks, without a graph."""


@dataclass
class Sparing(Budget):
    """A budget that forgets the noise of one query."""

    spared: str | None = None
    asked: int = 0
    seen: list[Any] = field(default_factory=list)

    def share(self, part: float) -> dict[str, Any]:
        given = super().share(part)
        if QUERIES[self.asked] == self.spared:
            given["noise_multiplier"] = 1e-4
        self.asked += 1
        return given

    def take(self, released: Any) -> Any:
        """What the event covers may all be seen, not only what is kept in the end."""
        value = super().take(released)
        numbers = vars(value).values() if hasattr(value, "__dict__") else [value]
        self.seen += [np.append(np.ravel(number), np.sum(number)) for number in numbers]
        return value


GREY = np.repeat(np.array([[127], [128]], np.uint8), 4, axis=1).repeat(20, axis=0)
ALONE = np.array([0, 0, 0, 255], np.uint8)
"""In the others all columns are alike; this one is at the bound, far away, with a column apart."""

SCHEMA = ArraySchema(4, lower=0.0, upper=255.0)
CENTRAL = 0.4


def fit_within(budget: Budget, raw: np.ndarray) -> np.ndarray:
    rows, features = SCHEMA.rows(raw, "test"), features_of.Raw(SCHEMA)
    options: dict[str, Any] = {"grouping": "compact", "damped": False, "seed": 0}
    found = private_quantizer.fit(SCHEMA, features, rows, 3, budget=budget, **options)
    made = found.quantizer
    mean, matrix = made.projection.mean, made.projection.matrix
    return released(mean, matrix, made.cells, found.counts, found.prototypes)


def codebook_fit(
    spared: str | None, seed: int, *, everything: bool = False
) -> Callable[[Any], np.ndarray]:
    stream = Seeded(seed)
    multiplier = noise_multiplier_for(CENTRAL, DELTA)

    def fit(raw: np.ndarray) -> np.ndarray:
        budget = Sparing(multiplier, stream, spared=spared)
        try:
            end = fit_within(budget, raw)
        except InvalidParameter:  # a refusal is seen too
            end = np.zeros(0)
        return np.concatenate([end, *budget.seen]) if everything else end

    return fit


def released(mean: Any, matrix: Any, cells: Any, counts: Any, prototypes: Any) -> np.ndarray:
    """All arrays, and what of them does not depend on how codewords are numbered."""
    whole = [mean, matrix, cells, counts, prototypes]
    # In logarithms, as a prototype is a sum over a noisy count.
    apart = np.log(np.ptp(prototypes, axis=1).max() + 1e-9)
    said = [counts.sum(), counts.max(), apart]
    return np.concatenate([*(np.ravel(array) for array in whole), said])


def test_a_right_codebook_fit_costs_what_it_was_given() -> None:
    budget = Sparing(noise_multiplier_for(CENTRAL, DELTA), Seeded(11))
    fit_within(budget, GREY)
    assert budget.asked == len(QUERIES)
    assert CENTRAL - 1e-6 < claimed(budget.event) <= CENTRAL + 1e-9


@pytest.mark.parametrize("spared", [None, "counts", "prototypes"])
def test_codebook_without_noise_on_one_block(spared: str | None) -> None:
    found = audit(codebook_fit(spared, 11), GREY, ALONE, runs=80)
    assert found.certifiable > CENTRAL
    assert (found.epsilon > CENTRAL) is (spared is not None)


@pytest.mark.slow
@pytest.mark.parametrize("spared", [None, "norms", "mean", "start"])
def test_codebook_without_noise_on_what_is_not_kept(spared: str | None) -> None:
    # Nothing in the codebook shows them, and the guarantee covers them: the whole transcript does.
    found = audit(codebook_fit(spared, 12, everything=True), GREY, ALONE, runs=80)
    assert (found.epsilon > CENTRAL) is (spared is not None)


@pytest.mark.slow
def test_codebook_end_to_end() -> None:
    stream = Seeded(13)

    def fit(raw: np.ndarray) -> np.ndarray:
        central: dict[str, Any] = {"central_epsilon": 5.0, "central_delta": DELTA}
        made = Codebook(epsilon=1, codewords=3, features="raw", **central)
        try:
            made.fit(raw, schema=SCHEMA, rng=stream)
        except InvalidParameter:  # a refusal is seen too
            return np.zeros(0)
        assert claimed(made.inhouse_.certificate.event) <= 5.0 + 1e-9
        arrays = made.parts()[1]
        names = ("mean", "matrix", "cells", "counts", "prototypes")
        return released(*(arrays[name] for name in names))

    assert audit(fit, GREY, ALONE, runs=150).epsilon <= 5.0


# --- one run ------------------------------------------------------------------------------------


def test_published_figures_of_one_run_audits() -> None:
    # Steinke, Nasr, Jagielski (2023), Appendix D and Section 7.
    found = canaries._largest_refuted(1000, 100, 75, 1e-4, 0.05)
    assert found == pytest.approx(0.673, abs=1e-3)
    found = canaries._largest_refuted(100_000, 1510, 1439, 1e-5, 0.05)
    assert found == pytest.approx(2.675, abs=1e-3)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_chances_of_one_run_are_those_of_the_theorem(delta: float) -> None:
    # Term by term, in integers and floats of Python.
    m, r, v, epsilon = 50, 20, 15, 0.7
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    mass = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    worst = max(sum(mass[v - i : v]) * 2 * m / i for i in range(1, v + 1))
    expected = sum(mass[v:]) + delta * worst
    assert canaries.chance_of(m, r, v, epsilon, delta) == pytest.approx(expected, rel=1e-12)
    assert canaries.chance_of(m, r, 0, epsilon, delta) == 1


def flipped_coins(keep: float, seed: int) -> Callable[[Any], np.ndarray]:
    """Randomized response: every canary's coin, kept with this chance."""
    generator = np.random.default_rng(seed)

    def fit(rows: np.ndarray) -> np.ndarray:
        inside = rows.sum(axis=0) > 0
        return np.where(generator.random(len(inside)) < keep, inside, ~inside).astype(float)

    return fit


def test_one_run_of_a_tight_mechanism_is_valid_and_sees_most() -> None:
    # Randomized response at ε = 1 reaches the theorem's bound: at 90 %, a tenth may be refuted.
    keep, count = math.e / (1 + math.e), 400
    bounds = [
        one_run_bound(
            flipped_coins(keep, 1000 + seed),
            np.zeros((0, count)),
            np.eye(count),
            lambda released: released,
            guesses=count,
            confidence=0.9,
            rng=Seeded(seed),
        ).epsilon
        for seed in range(300)
    ]
    # Half of the guesses are ties where more or less than half of the coins fell on one side.
    assert sum(bound > 1 for bound in bounds) <= 50  # P(Bin(300, 0.1) > 50) < 2e-4
    assert np.median(bounds) > 0.6


@pytest.mark.parametrize("shared", ["seed", "generator"])
def test_coins_are_not_the_noise_of_a_fit_with_the_same_seed(shared: str) -> None:
    # A sound fit at ε = 0.1: the sign of a canary's noise is the top bit of the word that, in a
    # careless audit, was its coin.
    count = 400
    bounds = []
    for seed in range(20):
        stream = Seeded(seed)

        def fit(rows: np.ndarray, seed: int = seed, stream: Any = stream) -> np.ndarray:
            noise = (stream if shared == "generator" else Seeded(seed)).words(count)
            return rows.sum(axis=0) + laplace.ppf(noise / 2.0**64, scale=10)

        found = one_run_bound(
            fit,
            np.zeros((0, count)),
            np.eye(count),
            lambda released: released,
            guesses=count,
            absent=np.zeros(count),
            confidence=0.999,
            rng=stream,
        )
        bounds.append(found.epsilon)
    assert max(bounds) <= 0.1


@pytest.mark.parametrize("mutant", [False, True])
def test_one_run_of_training(mutant: bool) -> None:
    # 1,000 canaries in one training; the mutant's noise is a tenth of what is claimed.
    # δ is so small because the theorem adds 2mδ, some of it, to what is significant.
    count, claim, delta = 1000, 2.0, 1e-10
    multiplier = Fraction(noise_multiplier_for(claim, delta)) / (10 if mutant else 1)
    plan = Schedule(count, 2**32, 1, multiplier)
    found = one_run_bound(
        Parts(plan=plan).fit(Seeded(14)),
        np.zeros((0, count), np.float32),
        100 * np.eye(count, dtype=np.float32),
        lambda released: released[:count] + released[count:],
        guesses=300,
        absent=np.zeros(count, np.float32),
        delta=delta,
        confidence=CONFIDENCE,
        rng=Seeded(15),
    )
    assert found.certifiable > claim
    assert (found.epsilon > claim) is mutant
    if not mutant:
        assert found.right > 160  # not refuted, and not blind either
