"""Sampling is Poisson with exactly the stated probability; steps and noise fit the target."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.central.training.schedule import Schedule, schedule
from tacit.privacy import events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.privacy_loss import epsilon_rdp
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Keystream, Seeded

SIGNIFICANCE = 1e-6
TARGET = {"epsilon": 2.0, "delta": 1e-5, "accountant": "rdp"}
USUAL = {**TARGET, "batch_size": 10, "epochs": None, "steps": None, "noise_multiplier": None}


class Words:
    secure = False

    def __init__(self, *halves: int) -> None:
        self._halves = np.array(halves, dtype=np.uint32)

    def words(self, count: int) -> np.ndarray:
        return np.resize(self._halves, 2 * count).view(np.uint64)


def is_poisson(batches: list[torch.Tensor], records: int, probability: float) -> bool:
    """Sizes are binomial in mean and in spread, and every record is as likely as the next."""
    rounds = len(batches)
    sizes = np.array([len(batch) for batch in batches])
    spread = records * probability * (1 - probability)
    mean = (sizes.mean() - records * probability) / np.sqrt(spread / rounds)
    square = ((sizes - records * probability) ** 2).sum() / spread
    seen = np.bincount(torch.cat(batches).numpy(), minlength=records)
    rarest, commonest = stats.binom(rounds, probability).cdf([seen.min(), seen.max() - 1])
    chances = [
        2 * stats.norm.sf(abs(mean)),
        2 * min(stats.chi2.sf(square, rounds), stats.chi2.cdf(square, rounds)),
        records * rarest,
        records * (1 - commonest),
    ]
    return min(chances) > SIGNIFICANCE


@pytest.mark.parametrize("size", [1, 30, 700])
@pytest.mark.parametrize("stream", [Seeded(1), Keystream()], ids=["seeded", "keystream"])
def test_sampling_is_poisson(size, stream):
    plan = Schedule(1001, size * 2**32 // 1001, 1, 1)
    assert is_poisson([plan.sample(stream) for _ in range(3000)], 1001, plan.probability)


def test_mutants_of_sampling_are_rejected():
    generator = np.random.default_rng(2)
    size, records, rounds = 30, 1000, 3000
    fixed = [torch.from_numpy(generator.permutation(records)[:size]) for _ in range(rounds)]
    assert not is_poisson(fixed, records, size / records)

    def taken(chance) -> list[torch.Tensor]:
        draws = generator.random((rounds, records)) < chance
        return [torch.from_numpy(np.flatnonzero(row)) for row in draws]

    favoured = np.full(records, 0.03)
    favoured[7] = 0.1
    assert is_poisson(taken(0.03), records, size / records)
    assert not is_poisson(taken(0.032), records, size / records)
    assert not is_poisson(taken(favoured), records, size / records)


def test_a_record_is_taken_exactly_below_the_threshold():
    plan = Schedule(4, 1000, 1, 1)
    assert plan.sample(Words(999, 1000, 0, 2**32 - 1)).tolist() == [0, 2]
    assert plan.probability * 2**32 == 1000


def test_a_batch_of_everyone_takes_everyone():
    plan = schedule(3, **{**USUAL, "noise_multiplier": 20.0, "steps": 1})
    assert plan.probability == 1
    assert plan.sample(Words(2**32 - 1)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(("records", "size"), [(2, 1), (1000, 10), (1000, 300), (60_000, 1024)])
def test_slots_have_room_for_all_but_one_step_in_a_thousand(records, size):
    plan = Schedule(records, size * 2**32 // records, 1, 1)
    law = stats.binom(records, plan.probability)
    assert law.sf(plan.slots) <= 1e-3
    assert plan.slots == records or law.sf(plan.slots - 1) > 1e-3
    assert Schedule(records, 2**32, 1, 1).slots == records


def test_every_layout_is_as_likely():
    """The places of some records have one law, whoever else is sampled: that of an injection."""
    plan, stream = Schedule(4, 2**31, 1, 1), Seeded(3)
    plan.__dict__["slots"] = 3
    seen: dict[tuple[int, ...], Counter[tuple[int, ...]]] = {}
    for _ in range(6000):
        chosen, slots = plan.layout(stream)
        assert len(set(slots.tolist())) == len(chosen) <= 3
        seen.setdefault(tuple(chosen.tolist()), Counter())[tuple(slots.tolist())] += 1
    for chosen, places in seen.items():
        if chosen:
            assert len(places) == math.perm(3, len(chosen))
            assert stats.chisquare(list(places.values())).pvalue > SIGNIFICANCE
    assert (0, 1, 2, 3) not in seen  # too many: nobody
    assert sum(seen[()].values()) == pytest.approx(6000 / 8, rel=0.25)


def test_everyone_keeps_a_place_where_there_is_one_for_each():
    chosen, slots = Schedule(4, 2**31, 1, 1).layout(Words(0, 2**32 - 1, 0, 2**32 - 1))
    assert chosen.tolist() == slots.tolist() == [0, 2]


def test_the_probability_is_rounded_down():
    plan = schedule(7, **{**USUAL, "batch_size": 2, "noise_multiplier": 9.0, "steps": 1})
    assert plan.threshold == 2 * 2**32 // 7
    assert plan.probability <= 2 / 7
    assert plan.expected_size == pytest.approx(2)


def test_noise_is_calibrated_to_the_steps():
    plan = schedule(1000, **{**USUAL, "steps": 200})
    assert plan.steps == 200
    assert 1.99 < epsilon_rdp(plan.event(1, "record"), 1e-5) <= 2.0


@pytest.mark.slow
def test_the_tighter_accountant_needs_less_noise():
    plan = schedule(1000, **{**USUAL, "steps": 200})
    tighter = schedule(1000, **{**USUAL, "steps": 200, "accountant": "pld"})
    assert tighter.noise_multiplier < plan.noise_multiplier
    assert 1.99 < guarantee_of(tighter.event(1, "record"), 1e-5).epsilon <= 2.0


def test_epochs_are_counted_in_expectation():
    assert schedule(1000, **{**USUAL, "epochs": 3}).steps == 300
    assert schedule(1000, **{**USUAL, "epochs": 0.5}).steps == 50
    assert schedule(1000, **USUAL).steps == 2000  # 20 epochs where nothing is said


def test_given_noise_trains_until_the_target_is_reached():
    plan = schedule(1000, **{**USUAL, "noise_multiplier": 1.5})
    step = events.Gaussian(1, plan.noise_multiplier, adjacency="zero-out", unit="record")
    sampled = events.PoissonSampled(plan.probability, step)
    assert epsilon_rdp(events.Repeated(sampled, plan.steps), 1e-5) <= 2.0
    assert epsilon_rdp(events.Repeated(sampled, plan.steps + 1), 1e-5) > 2.0
    sooner = schedule(1000, **{**USUAL, "noise_multiplier": 1.5, "steps": 7})
    assert sooner.steps == 7
    later = schedule(1000, **{**USUAL, "noise_multiplier": 1.5, "steps": 10**6})
    assert later.steps == plan.steps


def test_the_event_says_what_runs():
    plan = schedule(1000, **{**USUAL, "noise_multiplier": 1.5, "steps": 7})
    event = plan.event(plan.noise_multiplier / 3, "person")
    assert isinstance(event, events.Repeated)
    assert event.count == 7
    assert event.event.probability == plan.probability
    assert event.event.event.noise_multiplier == 1.5
    assert events.scope_of(event) == {"adjacency": "zero-out", "unit": "person"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": 1e-8}, "noise"),
        ({"delta": 0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": float("nan")}, "epochs"),
        ({"epochs": 2, "steps": 3}, "left out"),
        ({"steps": 0}, "steps"),
        ({"noise_multiplier": 0}, "noise_multiplier"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier"),
        ({"noise_multiplier": 0.2, "epsilon": 0.1}, "enough for one step"),
        ({"accountant": "moments"}, "accountant"),
    ],
    ids=str,
)
def test_what_is_refused(changed, words):
    with pytest.raises(InvalidParameter, match=words) as caught:
        schedule(1000, **{**USUAL, **changed})
    assert "\n" not in str(caught.value)


def test_more_records_than_words_can_tell_apart():
    with pytest.raises(InvalidParameter, match="larger batches"):
        schedule(2**33, **{**USUAL, "batch_size": 1})
