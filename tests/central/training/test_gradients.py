"""One private step: what it is without noise, how large its noise is, and where it may be taken."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from tacit.central.training import probing
from tacit.central.training.gradients import NoisyGradients, clip_norm_within
from tacit.central.training.noise import Noise
from tacit.central.training.schedule import Schedule
from tacit.privacy import errors
from tacit.privacy.randomness import Seeded

ROWS = torch.rand(40, 30, generator=torch.Generator().manual_seed(1))


def loss(module: nn.Module, rows: Tensor) -> Tensor:
    return (module(rows) ** 2).sum(dim=1)


def made(sigma: float, threshold: int = 2**32) -> tuple[nn.Module, NoisyGradients]:
    module = nn.Linear(30, 40)
    clipper = probing.clipper("test", module, loss, (ROWS,))
    plan = Schedule(len(ROWS), threshold, 1, Fraction(1))
    return module, NoisyGradients(clipper, (ROWS,), Noise(sigma, Seeded(2)), plan, 1e6)


def test_without_noise_it_is_the_mean_gradient() -> None:
    module, gradients = made(sigma=1e-6)
    with gradients.drawing():
        found = gradients.draw()
    loss(module, ROWS).mean().backward()
    expected = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    assert torch.allclose(found, expected, atol=1e-5)
    assert gradients.dropped == 0


@pytest.mark.parametrize("threshold", [2**32, 2**30])
def test_the_noise_has_its_spread(threshold: int) -> None:
    """Over the expected size, whoever is sampled."""
    _, gradients = made(sigma=3e4, threshold=threshold)
    with gradients.drawing():
        found = gradients.draw()
    expected = 3e4 / (40 * threshold / 2**32)
    assert float(found.std()) == pytest.approx(expected, rel=0.1)  # 1,240 numbers: 5 deviations


def test_what_is_not_finite_is_dropped_and_counted() -> None:
    _, gradients = made(sigma=1e-6)
    gradients.rows = (torch.cat([ROWS, torch.full((1, 30), torch.nan)]),)
    gradients.plan = Schedule(41, 2**32, 1, Fraction(1))
    with gradients.drawing():
        assert torch.isfinite(gradients.draw()).all()
    assert gradients.dropped == 1


def test_draws_need_what_surrounds_them() -> None:
    _, gradients = made(sigma=1.0)
    with pytest.raises(errors.TacitError, match="draws must be within"):
        gradients.draw()
    with gradients.drawing():
        gradients.draw()
    with pytest.raises(errors.TacitError, match="draws must be within"):
        gradients.draw()


def test_room_for_rounding_is_left() -> None:
    plan = Schedule(1000, 2**31, 1, Fraction(1))
    assert 0.99 < clip_norm_within(1.0, plan, torch.float32) < 1
