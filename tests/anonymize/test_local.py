"""ε on top of an encoder: exact whatever the encoder gives, and its ceiling holds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from tacit import Seeded
from tacit.anonymize import networks
from tacit.anonymize.local import Local


def test_codes_go_out_by_randomized_response_of_exactly_epsilon() -> None:
    local = Local(Fraction(2), cells=6)
    matrix = np.exp([local.channel.log_prob(np.arange(6), np.full(6, c)) for c in range(6)])
    assert np.allclose(matrix.sum(1), 1)
    ratios = np.log(matrix[:, None] / matrix[None, :]).max()
    assert 1.99 < ratios <= 2 + 1e-9
    assert local.guarantee.epsilon == 2


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e9])
def test_no_representation_escapes_the_ball(scale: float) -> None:
    """The proof asks the encoder for nothing: the channel clips again, in integers."""
    local = Local(Fraction(1))
    rng = np.random.default_rng(0)
    first, second, seen = (scale * rng.normal(size=(200, 4)) for _ in range(3))
    released = local.channel.release(seen, Seeded(0))
    loss = local.channel.log_prob(released, first) - local.channel.log_prob(released, second)
    assert np.abs(loss).max() <= 1 + 1e-9
    corners = np.r_[scale * np.eye(4), -scale * np.eye(4)]
    spread = [local.channel.log_prob(released[:1], corner[None]) for corner in corners]
    if scale >= 1:
        assert np.ptp(spread) > 0.3


def test_what_is_not_finite_is_released_like_anything_else() -> None:
    bad = np.array([[np.nan, np.inf, -np.inf, 0.2]])
    assert np.isfinite(Local(Fraction(1)).release(bad, Seeded(0))).all()
    assert Local(Fraction(1), cells=4).release(bad, Seeded(0)).sum() == 1


def test_releases_are_indicators_drawn_anew() -> None:
    local = Local(Fraction(1), cells=5)
    hot = np.eye(5)[np.zeros(4000, int)]
    drawn = local.release(hot)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert (drawn.sum(1) == 1).all()
    truth = math.e / (math.e + 4)
    assert abs(drawn[:, 0].mean() - truth) < 5 * math.sqrt(truth * (1 - truth) / 4000)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(3)])
def test_noise_of_training_is_nearly_that_of_a_release(epsilon: Fraction) -> None:
    torch.manual_seed(0)
    local = Local(epsilon)
    drawn = local.noise()(torch.zeros(40_000, 1)).abs().mean()
    exact = np.abs(local.release(np.zeros((40_000, 1)), Seeded(1))).mean()
    assert abs(float(drawn) / exact - 1) < 0.05
    codes = Local(epsilon, cells=7)
    kept = codes.noise()(torch.eye(7)[[3] * 20_000])
    assert (kept.sum(1) == 1).all()
    truth = math.exp(float(codes.channel.log_prob(np.array([3]), np.array([3]))[0]))
    assert abs(float(kept[:, 3].mean()) - truth) < 0.02
    assert abs(float(kept[:, 0].mean()) - (1 - truth) / 6) < 0.02


def test_ceiling_is_what_the_best_attacker_reaches_and_no_more() -> None:
    """Each of m people always sends a cell of their own: the worst case of the theorem."""
    local = Local(Fraction(3, 2), cells=5)
    posterior = np.exp([local.channel.log_prob(np.arange(5), np.full(5, c)) for c in range(5)])
    best = posterior.max(axis=0).sum() / 5
    assert np.isclose(local.ceiling(5), best, atol=1e-9)
    assert local.ceiling(5) < 1 / (1 + 4 * math.exp(-1.6))


def test_ball_scales_and_keeps_direction() -> None:
    given = torch.tensor([[3.0, -1.0], [0.2, 0.1]])
    found = networks.L1Ball()(given)
    assert torch.allclose(found, torch.tensor([[0.75, -0.25], [0.2, 0.1]]))
