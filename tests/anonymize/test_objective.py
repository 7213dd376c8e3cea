"""The objective has the sign of equation 12, and guessing is its floor."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from tacit.anonymize import objective


def _logits(rows: int, classes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed))


def test_formulas_by_hand() -> None:
    logits, codes = _logits(50, 3), torch.arange(50) % 3
    chances = torch.tensor([0.5, 0.3, 0.2])
    log = np.log(torch.softmax(logits, 1).numpy())
    guess = -(log * chances.numpy()).sum(1).mean()
    private = -log[np.arange(50), codes.numpy()].mean()
    regular = _logits(50, 2, 1)
    task = torch.arange(50) % 2
    found = objective.anonymizing(0.7, (regular, task), [(logits, codes, chances)] * 2)
    expected = float(F.cross_entropy(regular, task)) + 2 * 0.7 * abs(guess - private)
    assert np.isclose(float(found), expected, rtol=1e-5)
    assert np.isclose(float(objective.guessing_loss(logits, chances)), guess, rtol=1e-5)


def test_shares_and_entropy() -> None:
    chances = objective.shares(torch.tensor([0, 0, 1, 3]), 4)
    assert chances.tolist() == [0.5, 0.25, 0.0, 0.25]
    assert np.isclose(objective.entropy(chances), 1.5 * np.log(2))


def test_the_sign_is_that_of_equation_12_and_not_of_15() -> None:
    """One step down must make an adversary that knows worse; with the minus of (15), better."""
    codes = torch.arange(40) % 4
    chances = objective.shares(codes, 4)
    knows = (2 * F.one_hot(codes, 4).float()).requires_grad_()
    task = torch.zeros(40, 2), torch.arange(40) % 2
    loss = objective.anonymizing(1.0, task, [(knows, codes, chances)])
    loss.backward()
    assert knows.grad is not None
    before = F.cross_entropy(knows, codes)
    assert F.cross_entropy(knows - 5 * knows.grad, codes) > before
    assert F.cross_entropy(knows + 5 * knows.grad, codes) < before


def test_an_adversary_worse_than_a_guess_is_pulled_back() -> None:
    codes = torch.arange(40) % 4
    misled = (-2 * F.one_hot(codes, 4).float()).requires_grad_()
    task = torch.zeros(40, 2), torch.arange(40) % 2
    loss = objective.anonymizing(1.0, task, [(misled, codes, objective.shares(codes, 4))])
    loss.backward()
    assert misled.grad is not None
    assert F.cross_entropy(misled - 5 * misled.grad, codes) < F.cross_entropy(misled, codes)


def test_reversed_gradient() -> None:
    values = torch.tensor([1.0, -2.0], requires_grad=True)
    shown = objective.reversed_gradient(values, 0.25)
    assert torch.allclose(shown, values)
    shown.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [-0.25, -0.25]
