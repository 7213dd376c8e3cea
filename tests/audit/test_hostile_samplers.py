"""Samplers that are not what they state: `log_prob` is right, draws are not; and right ones.

Every mutant claims what its mechanism claims, and states its exact law. Each must be refuted by
`tacit account audit` at its default number of draws; all pairs of mechanism and fault run under
`slow`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from tacit.audit import law, subjects
from tacit.audit.statistical import lower_bound
from tacit.privacy import mechanisms
from tacit.privacy.mechanisms import DiscreteLaplace, RandomizedResponse, SubsetSelection
from tacit.privacy.randomness import Seeded

EPSILON = 1.0
Release = Callable[..., Any]
Fault = Callable[[Any, Any, np.random.Generator], Any]


class Hostile:
    """A channel that states its law, and draws by another."""

    def __init__(self, inner: Any, fault: Fault) -> None:
        self.inner, self.fault = inner, fault
        self.guarantee, self.event, self.log_prob = inner.guarantee, inner.event, inner.log_prob
        self.generator = np.random.default_rng(5)

    def release(self, raw: Any, rng: Any = None) -> Any:
        return self.fault(self, np.asarray(raw), self.generator)

    def honest(self, raw: Any, rng: Any = None) -> Any:
        return np.array(self.inner.release(raw, rng))


# --- faults that any sampler can have -----------------------------------------------------------


def one_in(share: int, size: int, generator: np.random.Generator) -> Any:
    return generator.integers(0, share, size) == 0


def stuck(channel: Any, raw: Any, generator: Any) -> Any:
    """Says what it said before, in one of fifty draws."""
    draws = channel.honest(raw)
    for index in np.flatnonzero(one_in(50, len(draws), generator)):
        draws[index] = draws[index - 1]
    return draws


def favourite(channel: Any, raw: Any, generator: Any) -> Any:
    """Says the same rare thing in one of fifty draws."""
    draws = channel.honest(raw)
    draws[one_in(50, len(draws), generator)] = channel.rare
    return draws


def half_the_noise(channel: Any, raw: Any, generator: Any) -> Any:
    return np.array(channel.sharper.release(raw))


def same_seed(channel: Any, raw: Any, generator: Any) -> Any:
    return channel.honest(raw, Seeded(7))


def repeats(channel: Any, raw: Any, generator: Any) -> Any:
    """The same five hundred draws over and over."""
    draws = channel.honest(raw)
    return draws[np.arange(len(draws)) % 500]


def alike_in_pairs(channel: Any, raw: Any, generator: Any) -> Any:
    """Every eighth draw is that of its neighbour."""
    draws = channel.honest(raw)
    draws[1::8] = draws[: len(draws) - 1 : 8]
    return draws


def leaves_one_out(channel: Any, raw: Any, generator: Any) -> Any:
    """Never says one thing that it should say about once in a hundred draws."""
    draws = channel.honest(raw)
    if len(raw) == 1:
        return draws
    example = np.asarray(channel.inner.release(law.repeated(raw[0], 20_000), Seeded(3)))
    kinds, index, counts = np.unique(law.keys(example), return_index=True, return_counts=True)
    rare = np.argmin(np.abs(np.log(counts / 200)))
    left_out = law.keys(draws) == kinds[rare]
    draws[left_out] = channel.honest(raw)[left_out]
    left_out = law.keys(draws) == kinds[rare]
    draws[left_out] = example[index[np.argmax(counts)]]
    return draws


def none_alone(channel: Any, raw: Any, generator: Any) -> Any:
    """Has hardly any noise where one is asked for."""
    return np.array((channel.sharpest if len(raw) == 1 else channel.inner).release(raw))


def sharp_elsewhere(channel: Any, raw: Any, generator: Any) -> Any:
    """Has half the noise at one further input."""
    odd = np.array_equal(raw[0], np.asarray(channel.elsewhere))
    return half_the_noise(channel, raw, generator) if odd else channel.honest(raw)


ANY: dict[str, Fault] = {
    "stuck": stuck,
    "favourite": favourite,
    "half the noise": half_the_noise,
    "same seed": same_seed,
    "repeats": repeats,
    "alike in pairs": alike_in_pairs,
    "leaves one out": leaves_one_out,
    "no noise alone": none_alone,
    "half the noise elsewhere": sharp_elsewhere,
}

# --- faults of noise that is added --------------------------------------------------------------


def numbers(raw: Any, draws: Any) -> Any:
    """The input in the shape of the draws; the first of a pair where the second is a bound."""
    return raw if raw.shape == draws.shape else raw[:, 0]


def clamped(channel: Any, raw: Any, generator: Any) -> Any:
    """Noise ends at the 95th percentile of its size."""
    draws = channel.honest(raw)
    value = numbers(raw, draws)
    far = np.quantile(np.abs(channel.reference), 0.95)
    return np.rint((value + np.clip(draws - value, -far, far)) / channel.grid) * channel.grid


def one_sided(channel: Any, raw: Any, generator: Any) -> Any:
    draws = channel.honest(raw)
    value = numbers(raw, draws)
    return value + np.abs(draws - value)


def rounded_where_odd(channel: Any, raw: Any, generator: Any) -> Any:
    """Even multiples of the grid only, where the input is not zero."""
    draws = channel.honest(raw)
    double = 2 * channel.grid
    return np.where(numbers(raw, draws) == 0, draws, np.floor(draws / double) * double)


def shared_by_entries(channel: Any, raw: Any, generator: Any) -> Any:
    """One noise for all entries of a vector."""
    draws = channel.honest(raw)
    if draws.ndim > 1 and draws.shape[1] > 1:
        value = numbers(raw, draws)
        draws[:, 1:] = value[:, 1:] + (draws - value)[:, :1]
    return draws


NOISE: dict[str, Fault] = {
    "clamped": clamped,
    "one-sided": one_sided,
    "rounded where odd": rounded_where_odd,
}
ADDED = {
    "discrete-laplace": 1.0,
    "discrete-gaussian": 1.0,
    "gaussian": 1.0,
    "laplace": subjects._GRID,
    "local-laplace": 0.5,
    "local-gaussian": 0.25,
    "smooth-laplace": 1.0,
}
"""Subjects that add noise, with their grids."""
VECTORS = ("discrete-laplace", "discrete-gaussian", "gaussian", "local-laplace", "local-gaussian")
ONE_AT_A_TIME = ("permute-and-flip", "smooth-laplace")
EVERY = [
    *((name, fault) for name in subjects.SUBJECTS for fault in ANY.values()),
    *((name, fault) for name in ADDED for fault in NOISE.values()),
    *((name, shared_by_entries) for name in VECTORS),
]
# Two mechanisms with every fault, and every other mechanism with one.
QUICK = [pair for pair in EVERY if pair[0] in ("discrete-laplace", "randomized-response")]
OTHERS = [n for n in subjects.SUBJECTS if n not in {name for name, _ in QUICK} | {*ONE_AT_A_TIME}]
QUICK += [(name, list(ANY.values())[index % len(ANY)]) for index, name in enumerate(OTHERS)]


def hostile(name: str, fault: Fault) -> subjects.Subject:
    subject = subjects.SUBJECTS[name](EPSILON, 0.0)
    channel: Any = Hostile(subject.channel, fault)
    channel.sharper, channel.sharpest = sharper(name, subject, 2), sharper(name, subject, 20)
    example = np.asarray(subject.channel.release(law.repeated(subject.first, 300), Seeded(1)))
    _, index, counts = np.unique(law.keys(example), return_index=True, return_counts=True)
    channel.rare = example[index[np.argmin(counts)]]
    channel.elsewhere = subject.others[-1]
    channel.grid = ADDED.get(name, 1.0)
    raw = law.repeated(subject.first, 4000)
    if fault is clamped:
        drawn = np.asarray(subject.channel.release(raw, Seeded(9)))
        channel.reference = drawn - numbers(raw, drawn)
    return replace(subject, channel=channel)


def sharper(name: str, subject: subjects.Subject, factor: int) -> Any:
    """The same mechanism with a larger ε, and outputs of the same shape."""
    if isinstance(subject.channel, SubsetSelection):
        return replace(subject.channel, epsilon=factor * EPSILON, size=subject.channel.event.size)
    return subjects.SUBJECTS[name](factor * EPSILON, 0.0).channel


def audited(name: str, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> subjects.MechanismAudit:
    subject = hostile(name, fault)
    monkeypatch.setitem(subjects.SUBJECTS, name, lambda epsilon, delta: subject)
    return subjects.audit(name, epsilon=EPSILON)


def named(pairs: list[tuple[str, Fault]]) -> list[Any]:
    return [pytest.param(name, fault, id=f"{name}-{fault.__name__}") for name, fault in pairs]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("name", "fault"), named(QUICK))
def test_a_hostile_sampler_is_refuted(
    name: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert audited(name, fault, monkeypatch).refuted


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault"), named([p for p in EVERY if p not in QUICK]))
def test_every_hostile_sampler_is_refuted(
    name: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert audited(name, fault, monkeypatch).refuted


def test_every_mechanism_can_be_audited() -> None:
    made = {type(make(1.0, 0.0).channel) for make in subjects.SUBJECTS.values()}
    inner = {
        type(getattr(make(1.0, 0.0).channel, "inner", None)) for make in subjects.SUBJECTS.values()
    }
    shipped = {getattr(mechanisms, name) for name in mechanisms.__all__}
    assert {one for one in shipped if not getattr(one, "_is_protocol", False)} <= made | inner


# --- the attacks that were found ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "fault"),
    [
        ("discrete-laplace", "DiscreteLaplace", lambda x, y: x + np.clip(y - x, -3, 3)),
        (
            "randomized-response",
            "RandomizedResponse",
            lambda x, y: np.where((x == 0) & (y == 2), 3, y),
        ),
        ("geometric", "Geometric", lambda x, y: np.where((x == 10) & (y == 5), 6, y)),
    ],
)
def test_an_outcome_that_rules_an_input_out_is_refuted_by_epsilon(
    name: str, kind: str, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = getattr(mechanisms, kind).release
    broken = lambda self, raw, rng=None: fault(np.asarray(raw), release(self, raw, rng))  # noqa: E731
    monkeypatch.setattr(getattr(mechanisms, kind), "release", broken)
    report = subjects.audit(name, epsilon=1.0)
    assert report.refuted
    assert not report.follows_law
    assert report.lower_bound > report.claimed_epsilon
    assert "draws do not follow the stated law" in report.words


# --- sound ones ---------------------------------------------------------------------------------


def too_many(failures: int, repetitions: int, rate: float) -> bool:
    return bool(binom.sf(failures - 1, repetitions, rate) < 1e-6)


SOUND = [
    (RandomizedResponse(categories=3, epsilon=1.0), (0, 1, 2), lambda raw: np.arange(3)),
    (
        DiscreteLaplace(epsilon=0.5, sensitivity=1, adjacency="replace-one"),
        (0, 1),
        lambda raw: np.asarray(raw) + np.arange(-40, 41),
    ),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("channel", "raws", "outputs"), SOUND, ids=["response", "laplace"])
def test_sound_draws_are_refuted_no_more_often_than_stated(
    channel: Any, raws: Any, outputs: Any
) -> None:
    rng, repetitions = Seeded(31), 40
    found = [
        law.follows(channel, raws, outputs, samples=800, entrywise=True, rng=rng).p_value
        for _ in range(repetitions)
    ]
    for level in (0.01, 0.1, 0.5):
        assert not too_many(sum(p < level for p in found), repetitions, level)
    assert min(found) < 1.0  # not by saying nothing


@pytest.mark.slow
@pytest.mark.parametrize("name", subjects.SUBJECTS)
def test_sound_mechanisms_are_not_refuted(name: str) -> None:
    for _ in range(3):
        assert not subjects.audit(name, epsilon=EPSILON, confidence=1 - 1e-7).refuted


def test_pooling_costs_a_sound_mechanism_nothing_to_speak_of() -> None:
    channel = RandomizedResponse(categories=10, epsilon=1.0)
    rng = Seeded(32)
    bounds = [lower_bound(channel, 0, 1, samples=100_000, rng=rng).epsilon for _ in range(4)]
    assert np.mean(bounds) > 0.9
    assert sum(bound > 1.0 for bound in bounds) < 2


def test_an_output_that_cannot_be_is_seen_once() -> None:
    stated = law.Stated.of(RandomizedResponse(categories=3, epsilon=1.0), np.arange(3), 0)
    draws = RandomizedResponse(categories=3, epsilon=1.0).release(np.zeros(1000, int), Seeded(3))
    checks = law.frequencies("all", stated, stated.places(draws))
    assert law.verdict(checks).p_value > 1e-6
    draws[17] = 3
    assert law.verdict(law.frequencies("all", stated, stated.places(draws))).p_value < 1e-6
