"""What each defence promises, whatever attackers send, and the mean beside it, which does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tacit.federated import algorithm, rounds
from tacit.federated.attacks.defences import RULES, NormBounding, Robust, bounded_mean, combined
from tacit.federated.coordinator import Coordinator, PlainMean
from tacit.federated.rounds import Reply, RunOptions
from tacit.privacy import errors

SIZE = 5
Combine = Callable[[np.ndarray, int], np.ndarray]


def mean(replies: np.ndarray, attackers: int) -> np.ndarray:
    """The mutant: no defence at all."""
    return np.asarray(replies.mean(axis=0))


def rule(name: str) -> Combine:
    return lambda replies, attackers: combined(name, replies, attackers)


def scenes(name: str) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Honest replies and hostile ones, as few clients as the rule takes: anywhere and anyhow."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        attackers = int(rng.integers(1, 4))
        count = RULES[name].least(attackers) + int(rng.integers(0, 3))
        honest = rng.normal(size=(count - attackers, SIZE))
        far = 10.0 ** rng.uniform(-2, 6)
        centre = honest.mean(axis=0) + far * rng.normal(size=SIZE)
        together = centre + rng.normal(size=(attackers, SIZE)) * rng.choice([0.0, 1.0, far])
        yield honest, together, attackers


def in_range(combine: Combine, name: str, beyond: float) -> bool:
    for honest, hostile, attackers in scenes(name):
        found = combine(np.concatenate([hostile, honest]), attackers)
        low, high = honest.min(axis=0), honest.max(axis=0)
        slack = beyond * (high - low) + 1e-9
        if not ((low - slack <= found) & (found <= high + slack)).all():
            return False
    return True


@pytest.mark.parametrize(("name", "beyond"), [("median", 0), ("trimmed-mean", 0), ("bulyan", 1)])
def test_coordinates_stay_where_honest_ones_are(name: str, beyond: float) -> None:
    assert in_range(rule(name), name, beyond)
    assert not in_range(mean, name, beyond)


def test_a_trimmed_mean_cuts_as_many_as_it_was_told() -> None:
    """Told of one attacker less, the same replies take it out of the honest range."""
    told_less: Combine = lambda r, f: combined("trimmed-mean", r, f - 1)  # noqa: E731
    assert not in_range(told_less, "trimmed-mean", 0)
    for count in range(3, 60):  # Flower rounds a share of n down
        for attackers in range((count - 1) // 2 + 1):
            replies = np.arange(float(count))[:, None] ** 2
            kept = replies[attackers : count - attackers]
            assert combined("trimmed-mean", replies, attackers) == pytest.approx(kept.mean())


def near(combine: Combine, name: str) -> bool:
    for honest, hostile, attackers in scenes(name):
        count = len(honest) + attackers
        found = combine(np.concatenate([hostile, honest]), attackers)
        apart = np.linalg.norm(honest[:, None] - honest[None], axis=2).max()
        ratio = np.sqrt((count - attackers - 2) / (count - 2 * attackers - 1))
        # A mean of vectors that are each near some honest one: within that and a diameter of all.
        reach = ratio * apart + (apart if name == "multi-krum" else 0)
        if np.linalg.norm(honest - found, axis=1).min() > reach + 1e-9:
            return False
    return True


@pytest.mark.parametrize("name", ["krum", "multi-krum"])
def test_what_krum_takes_is_near_an_honest_reply(name: str) -> None:
    assert near(rule(name), name)
    assert not near(mean, name)


def test_krum_takes_one_reply_and_multi_krum_the_mean_of_some() -> None:
    for honest, hostile, attackers in scenes("krum"):
        replies = np.concatenate([hostile, honest])
        assert combined("krum", replies, attackers) in replies
        few = combined("multi-krum", replies, attackers)
        kept = len(replies) - attackers - 2
        distances = np.linalg.norm(replies[:, None] - replies[None], axis=2) ** 2
        scores = np.sort(distances, axis=1)[:, 1 : kept + 1].sum(axis=1)
        best = replies[np.argsort(scores, kind="stable")[:kept]]
        np.testing.assert_allclose(few, best.mean(axis=0), rtol=1e-9, atol=1e-9)


def test_one_client_moves_a_bounded_mean_by_little() -> None:
    rng, bound, count = np.random.default_rng(1), 0.7, 9
    moved = []
    for scale in (0.0, 0.1, 1.0, 1e3, 1e6):
        replies = rng.normal(size=(count, SIZE))
        other = replies.copy()
        other[3], replies[3] = scale * rng.normal(size=SIZE), -10 * replies[3]
        change = bounded_mean(other, bound) - bounded_mean(replies, bound)
        moved.append(np.linalg.norm(change))
        assert moved[-1] <= 2 * bound / count + 1e-12
    assert max(moved) > bound / count  # and a mean without bound moves much further
    short = rng.normal(size=(4, SIZE)) / 100
    np.testing.assert_allclose(bounded_mean(short, bound), short.mean(axis=0))


def run(quadratic: Any, coordinator: Coordinator, *, lost: int = 0, liar: float = 1.0) -> Any:
    def intercept(number: int, client: int, reply: Reply) -> Reply | None:
        if client < lost:
            return None
        return reply._replace(weight=reply.weight * liar if client == 4 else reply.weight)

    held = quadratic.held
    return rounds.run(
        "fedsgd", quadratic.model, held, 3, RunOptions(coordinator=coordinator, intercept=intercept)
    )


@pytest.mark.parametrize(
    "coordinator", [NormBounding(5.0), *(Robust(name, 0) for name in RULES), Robust("krum", 1)]
)
def test_a_claimed_weight_counts_for_nothing(quadratic: Any, coordinator: Coordinator) -> None:
    honest, lied = (run(quadratic, coordinator, liar=liar).model for liar in (1.0, 1e6))
    np.testing.assert_array_equal(honest, lied)
    plain = [run(quadratic, PlainMean(), liar=liar).model for liar in (1.0, 1e6)]
    assert np.abs(plain[0] - plain[1]).max() > 0.01


def test_too_few_replies_skip_the_round(quadratic: Any) -> None:
    enough = run(quadratic, Robust("median", 1), lost=2).history
    assert not any(one.skipped for one in enough)
    short = run(quadratic, Robust("median", 1), lost=3)
    assert all(one.skipped for one in short.history)
    np.testing.assert_array_equal(short.model, quadratic.model.start().astype(np.float32))
    assert run(quadratic, NormBounding(1.0), lost=5).history[0].skipped
    assert not run(quadratic, NormBounding(1.0), lost=4).history[0].skipped


def test_cohorts_that_are_too_small_are_refused(quadratic: Any) -> None:
    for name, attackers in [("median", 3), ("trimmed-mean", 3), ("krum", 2), ("bulyan", 1)]:
        with pytest.raises(errors.InvalidParameter, match=f"clients must be .* for {name}"):
            run(quadratic, Robust(name, attackers))
    run(quadratic, Robust("median", 1, PlainMean(participation=0.6)))
    with pytest.raises(errors.InvalidParameter, match="at least 3 in a round"):
        run(quadratic, Robust("median", 1, PlainMean(participation=0.4)))


class Private(Coordinator):
    """Stands for a coordinator with a guarantee, or a secure sum."""

    def choose(self, number: int, clients: int) -> list[int]:
        return list(range(clients))

    def gather(self, *given: Any) -> None:
        return None


@pytest.mark.parametrize("name", list(RULES))
def test_combinations_that_cannot_hold(name: str) -> None:
    with pytest.raises(errors.InvalidParameter, match="reads single replies: a secure sum hides"):
        Robust(name, 1, Private())
    with pytest.raises(errors.InvalidParameter, match="clips every reply itself"):
        NormBounding(1.0, Private())
    for kept in ("feddyn", "subfedavg"):
        chosen = algorithm(kept)
        for coordinator in (Robust(name, 0), NormBounding(1.0)):
            with pytest.raises(errors.InvalidParameter, match="clients keep no state"):
                coordinator.admit(chosen, chosen.config(), 20)


def test_refusals() -> None:
    for bound in (0, -1, float("nan")):
        with pytest.raises(errors.InvalidParameter, match="bound"):
            NormBounding(bound)
    with pytest.raises(errors.InvalidParameter, match="rule must be one of"):
        Robust("mean", 1)
    with pytest.raises(errors.InvalidParameter, match="attackers"):
        Robust("krum", -1)
