"""A guarantee for clients: what one can change, the noise on it, what it costs, when it ends."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.federated import rounds
from tacit.federated.algorithms.registry import ALGORITHMS, algorithm
from tacit.federated.client_level import privacy as client_privacy
from tacit.federated.client_level.privacy import ClientPrivacy
from tacit.federated.payload import Layout, Payload, ReplyLimits
from tacit.federated.rounds import Reply, RunOptions
from tacit.privacy import errors
from tacit.privacy.accounting import privacy_loss
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ApproxDP, RenyiDP
from tacit.privacy.randomness import Seeded

ALIKE = {"weighted": False}
SCOPE: dict[str, Any] = {"adjacency": "zero-out", "unit": "client"}
GOLDEN = {"clients": 1000, "cohort": 100, "epsilon": 7.1, "noise_multiplier": 1, "rounds": 100}
LAYOUT = Layout((("left", (2, 2)), ("right", (2,))))


def privacy(clients: int = 5, **options: Any) -> ClientPrivacy:
    """Everyone in every round, unless told otherwise: then the noise has a closed form."""
    usual = {"cohort": clients, "epsilon": 8, "delta": 1e-5, "rounds": 4, "rng": Seeded(0)}
    return ClientPrivacy(clients, **{**usual, **options})


def opened(name: str = "fedavg", **options: Any) -> ClientPrivacy:
    """One that is in its first round."""
    found = privacy(**options)
    found.admit(algorithm(name), algorithm(name).config(**ALIKE), found.plan.clients)
    found.choose(1, found.plan.clients)
    return found


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, to see what is under it."""
    monkeypatch.setattr(client_privacy, "rounded_gaussian", lambda sigma, n, rng: np.zeros(n, int))


def steps_of(found: ClientPrivacy, taken: dict[int, Payload]) -> Any:
    """What the server sums, in whole grid steps."""
    phase = algorithm("fedavg").phases[0]
    averaged = found.gather(1, phase, taken, LAYOUT)
    steps = averaged.parts["update"] * found.plan.cohort * 2**20 / found.clip_norms["update"]
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
    return np.rint(steps).astype(int)


HONEST = {f"update/{name}": np.full(shape, 0.3, np.float32) for name, shape in LAYOUT.shapes}
HOSTILE: dict[str, Any] = {
    "zero": {name: 0 * array for name, array in HONEST.items()},
    "tiny": {name: array * np.float32(1e-40) for name, array in HONEST.items()},
    "nan": {name: array * np.nan for name, array in HONEST.items()},
    "one nan": {**HONEST, "update/right": np.array([0, np.nan], np.float32)},
    "inf": {name: array * np.inf for name, array in HONEST.items()},
    "1e30": {name: array * np.float32(1e30) for name, array in HONEST.items()},
    "1e6": {name: np.full_like(array, -1e6) for name, array in HONEST.items()},
    "integers": {name: np.full(array.shape, 9) for name, array in HONEST.items()},
    "shape": {**HONEST, "update/right": np.ones(3, np.float32)},
    "name": {**HONEST, "update/wrong": np.ones(2, np.float32)},
    "missing": {"update/left": HONEST["update/left"]},
    "no record": "anything",
}
REJECTED = {"nan", "one nan", "inf", "1e30", "integers", "shape", "name", "missing", "no record"}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("norm", [1e-3, 0.5, 1e3])
@pytest.mark.usefixtures("silent")
def test_any_reply_moves_the_sum_by_the_clip_norm_or_is_rejected(kind: str, norm: float) -> None:
    phase = algorithm("fedavg").phases[0]
    replies = {0: Reply(HONEST, 1.0), 1: Reply(HOSTILE[kind], 1.0), 3: Reply(HONEST, 1.0)}
    taken, refused = rounds.accept(phase, LAYOUT, replies, ReplyLimits())
    assert set(refused) == ({1} if kind in REJECTED else set())
    with_it = steps_of(opened(clip_norm=norm), taken)
    without = steps_of(opened(clip_norm=norm), {k: v for k, v in taken.items() if k != 1})
    moved = int(((with_it - without) ** 2).sum())
    assert moved <= 2**40
    if kind == "1e6":
        assert moved > 0.999 * 2**40  # clipped, not dropped


@pytest.mark.usefixtures("silent")
def test_a_sum_of_integers_does_not_depend_on_who_else_is_there() -> None:
    rng = np.random.default_rng(0)
    taken = {k: Payload({"update": rng.normal(0, 10.0**k, 6)}) for k in range(5)}
    whole = steps_of(opened(), taken)
    for left_out in range(5):
        rest = {k: v for k, v in taken.items() if k != left_out}
        alone = steps_of(opened(), {left_out: taken[left_out]})
        np.testing.assert_array_equal(whole, steps_of(opened(), rest) + alone)
        assert (alone**2).sum() <= 2**40


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e308])
def test_what_was_never_checked_still_moves_nothing_or_the_clip_norm(bad: float) -> None:
    clipped = client_privacy.clip(np.array([[bad] * 4, [0.6e-3, 0, 0, -0.8e-3]]), 1e-3)
    assert (clipped.steps[0] ** 2).sum() <= 2**40
    np.testing.assert_allclose(clipped.steps[1], 2**20 * np.array([0.6, 0, 0, -0.8]), atol=1)
    assert clipped.within.tolist() == [False, True]


def test_a_row_is_clipped_as_if_it_were_alone() -> None:
    rows = np.random.default_rng(0).normal(0, 1, (50, 1001)) * np.logspace(-6, 6, 50)[:, None]
    together = client_privacy.clip(rows, 3.0)
    for k in range(50):
        alone = client_privacy.clip(rows[k : k + 1], 3.0)
        np.testing.assert_array_equal(together.steps[k], alone.steps[0])
        assert together.within[k] == alone.within[0]


@pytest.mark.usefixtures("silent")
def test_replies_of_clients_that_were_not_asked_do_not_count() -> None:
    found = opened(**GOLDEN)
    outside = next(k for k in range(1000) if k not in found._asked)
    assert not steps_of(found, {outside: Payload({"update": np.ones(6)})}).any()


def test_the_noise_has_the_spread_that_is_stated() -> None:
    size, wide = 40_000, Layout((("all", (40_000,)),))
    found = opened(clients=50, clip_norm=0.5)
    noise = found.gather(1, algorithm("fedavg").phases[0], {}, wide).parts["update"]
    sigma = float(found.plan.multiplier) * 0.5 / 50
    assert abs(noise.std() / sigma - 1) < 4 / np.sqrt(2 * size)
    assert abs(noise.mean()) < 4 * sigma / np.sqrt(size)
    assert abs(np.mean((noise / sigma) ** 4) - 3) < 0.2  # a normal's


def test_randomness_is_the_systems_unless_given() -> None:
    phase = algorithm("fedavg").phases[0]
    drawn = [
        opened(rng=rng).gather(1, phase, {}, LAYOUT).parts["update"]
        for rng in (None, None, Seeded(1), Seeded(1))
    ]
    assert not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[2], drawn[3])
    assert opened(rng=Seeded(1)).certificate().seeded
    assert not opened(rng=None).certificate().seeded


class Words:
    """A stream that gives these 32-bit words."""

    secure = False

    def __init__(self, *words: int) -> None:
        self._words = np.array(words, dtype=np.uint32)

    def words(self, count: int) -> Any:
        return self._words.view(np.uint64)[:count]


def test_sampling_is_exactly_what_is_stated() -> None:
    found = privacy(**GOLDEN).plan
    assert found.threshold == 2**32 // 10
    assert found.probability * 2**32 == found.threshold
    words = Words(found.threshold - 1, found.threshold, 0, *[2**32 - 1] * 997)
    assert found.sample(words) == [0, 2]
    everyone = client_privacy.plan(3, cohort=9, epsilon=8, delta=1e-5, rounds=1)
    assert everyone.probability == 1
    assert everyone.cohort == 3
    assert everyone.sample(Words(2**32 - 1, 2**32 - 1, 2**32 - 1, 0)) == [0, 1, 2]


def test_golden_cost() -> None:
    found = privacy(**GOLDEN)
    found.run = 100
    assert found.spent == pytest.approx(7.05, abs=0.02)
    assert privacy_loss.epsilon_rdp(found.event, 1e-5) == pytest.approx(7.9, abs=0.05)
    assert str(found.guarantee.unit) == "client"


def test_two_releases_of_a_round_share_its_noise_exactly() -> None:
    one, two = opened("fedavg"), opened("fsvrg")
    assert one.event == two.event
    assert 2 / two.update_multiplier**2 <= 1 / two.plan.multiplier**2
    assert float(two.update_multiplier) == pytest.approx(2**0.5 * float(two.plan.multiplier))
    assert one.update_multiplier - one.plan.multiplier < Fraction(1, 2**31)


def test_two_releases_on_one_sample_cost_more_than_on_two() -> None:
    # So FSVRG is not two Poisson-sampled Gaussians a round, but one of z/√2: as it is stated.
    found, orders = privacy(**GOLDEN).plan, (2.0, 8.0)
    both = replace(found, multiplier=errors.rational("test", "z", 0.5**0.5))
    apart = privacy_loss.renyi_of(found.event(2), orders).epsilons
    together = privacy_loss.renyi_of(both.event(), orders).epsilons
    assert all(one > 1.2 * two for one, two in zip(together, apart, strict=True))


def test_noise_beyond_measure_is_refused() -> None:
    with pytest.raises(errors.InvalidParameter, match="noise of an update must be at most"):
        opened(epsilon=1e-7, delta=1e-9, rounds=10**6)


def test_fsvrg_is_noised_in_both_phases_over_the_expected_cohort(quadratic: Any) -> None:
    found = privacy(clip_norm={"gradient": 2.0, "update": 0.5})
    config = algorithm("fsvrg").config(**ALIKE)
    end = rounds.run(
        "fsvrg", quadratic.model, quadratic.held, 4, RunOptions(config=config, coordinator=found)
    )
    assert not any(one.skipped for one in end.history)
    with pytest.raises(errors.TacitError, match="released once"):
        found.gather(5, algorithm("fsvrg").phases[0], {}, quadratic.model.layout)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "subfedavg"])
def test_without_noise_and_clipping_it_is_the_plain_mean(
    name: str, quadratic: Any, silent: None
) -> None:
    given = {"config": algorithm(name).config(**ALIKE)}
    plain = rounds.run(name, quadratic.model, quadratic.held, 4, RunOptions(**given))
    found = privacy(clip_norm=100.0)
    private = rounds.run(
        name, quadratic.model, quadratic.held, 4, RunOptions(coordinator=found, **given)
    )
    np.testing.assert_allclose(private.model, plain.model, atol=5e-3)  # steps of 1e-4


def test_the_run_ends_before_the_round_that_would_overdraw(quadratic: Any) -> None:
    given = {"config": algorithm("fedavg").config(**ALIKE)}
    found = privacy(noise_multiplier=2, rounds=None)
    within = found.plan.rounds
    assert found.plan.epsilon(within) <= 8 < found.plan.epsilon(within + 1)
    end = rounds.run(
        "fedavg",
        quadratic.model,
        quadratic.held,
        within + 5,
        RunOptions(coordinator=found, **given),
    )
    assert len(end.history) == found.run == within
    assert "rounds must be at most" in end.stopped
    assert found.spent <= 8
    with pytest.raises(errors.BudgetExceeded):
        found.choose(99, 5)


def test_a_short_run_costs_what_it_ran_and_a_chosen_stop_the_whole_plan() -> None:
    found = opened()
    certified, planned = found.certificate(), found.certificate(whole_plan=True)
    assert certified.guarantee.epsilon == found.spent < planned.guarantee.epsilon <= 8
    assert any("did not depend on what was released" in line for line in certified.assumptions)
    assert not any("did not depend on what was released" in line for line in planned.assumptions)
    certified.verify()


def test_drop_outs_cost_nothing_and_stop_nothing(quadratic: Any) -> None:
    rng = np.random.default_rng(0)
    given = {"config": algorithm("fedavg").config(**ALIKE)}

    def drop(number: int, client: int, reply: Reply) -> Reply | None:
        return None if rng.random() < 0.1 or number == 2 else reply

    ends, costs = [], []
    for intercept in (None, drop):
        found = privacy(rounds=20)
        run = {"coordinator": found, "intercept": intercept, **given}
        ends.append(rounds.run("feddyn", quadratic.model, quadratic.held, 20, RunOptions(**run)))
        costs.append(found.spent)
    assert costs[0] == costs[1] <= 8
    assert len(ends[1].history) == 20
    assert not any(one.skipped for one in ends[1].history)
    assert ends[1].history[1].counted == 0  # and yet noise was released
    assert sum(one.counted for one in ends[1].history) < 96


def test_a_cohort_may_be_empty(quadratic: Any) -> None:
    given = {"config": algorithm("fedavg").config(**ALIKE)}
    found = privacy(cohort=1e-6, noise_multiplier=1, rounds=3, accountant="rdp")
    end = rounds.run(
        "fedavg", quadratic.model, quadratic.held, 3, RunOptions(coordinator=found, **given)
    )
    assert [one.asked for one in end.history] == [0, 0, 0]
    assert not any(one.skipped for one in end.history)
    assert found.run == 3


def test_a_ledger_is_charged_before_a_round(tmp_path: Path, quadratic: Any) -> None:
    given = {"config": algorithm("fedavg").config(**ALIKE)}
    orders = (2.0, 8.0, 32.0)
    with Ledger(tmp_path / "ledger") as ledger:
        one = privacy_loss.renyi_of(privacy().plan.event(), orders).epsilons
        budget = RenyiDP(orders=orders, epsilons=tuple(2.5 * cost for cost in one), **SCOPE)
        ledger.open("rounds", budget)
        found = privacy(ledger=ledger, account="rounds")
        run = {"coordinator": found, **given}
        end = rounds.run("fedavg", quadratic.model, quadratic.held, 4, RunOptions(**run))
        assert len(end.history) == found.run == len(ledger.show("rounds").charges) == 2
        assert end.stopped.startswith("Ledger.charge: ")
        again = privacy(ledger=ledger, account="rounds")
        with pytest.raises(errors.BudgetExceeded):
            rounds.run(
                "fedavg", quadratic.model, quadratic.held, 4, RunOptions(coordinator=again, **given)
            )
        ledger.open("whole", ApproxDP(epsilon=8.001, delta=1e-5, **SCOPE))
        found = privacy(ledger=ledger, account="whole")
        rounds.run(
            "fedavg", quadratic.model, quadratic.held, 2, RunOptions(coordinator=found, **given)
        )
        (charge,) = ledger.show("whole").charges
        assert charge.event == found.plan.event(4)


@pytest.mark.parametrize(
    ("name", "config", "clients", "message"),
    [
        ("fedavg", {"weighted": True}, 5, "weighted must be False"),
        ("subfedavg", ALIKE, 5, "got 'subfedavg with its mask'"),
        ("fedavg", ALIKE, 6, "clients must be 5, got 6"),
    ],
)
def test_what_cannot_hold_is_refused(
    name: str, config: dict[str, Any], clients: int, message: str
) -> None:
    with pytest.raises(errors.InvalidParameter, match=f"^ClientPrivacy: .*{message}"):
        privacy().admit(algorithm(name), algorithm(name).config(**config), clients)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": None}, "rounds must be given"),
        ({"cohort": 1e-12}, "cohort must be at least"),
        ({"cohort": -1}, "cohort must be"),
        ({"delta": 0}, "delta must be"),
        ({"clip_norm": 0}, "clip_norm must be"),
        ({"clip_norm": {"update": np.inf}}, "clip_norm of update must be"),
        ({"account": "a"}, "ledger and account must be given together"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=f"^ClientPrivacy: {message}"):
        privacy(**options)


def test_a_clip_norm_is_needed_for_every_unit() -> None:
    with pytest.raises(errors.InvalidParameter, match="clip_norm must be given for gradient"):
        opened("fsvrg", clip_norm={"update": 1.0})


def test_one_object_serves_one_run() -> None:
    found = opened()
    with pytest.raises(errors.InvalidParameter, match="settled once"):
        found.admit(algorithm("fedavg"), algorithm("fedavg").config(**ALIKE), 5)
    with pytest.raises(errors.TacitError, match="admitted"):
        privacy().choose(1, 5)
    with pytest.raises(errors.TacitError, match="no round has run"):
        privacy().certificate()
