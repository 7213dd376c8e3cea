"""Codes: what is counted is the information, and a large λ leaves none of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score
from torch import nn

from tacit.anonymize import codes


class _FirstColumn(nn.Module):
    """A classifier that reads the task off its column."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([1.5 - rows[:, 0], rows[:, 0] - 1.5], dim=1)


@pytest.fixture
def rows(planted: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs = torch.tensor(planted.rows, dtype=torch.float32)
    return inputs, torch.tensor(planted.task), torch.tensor(planted.person)


def _coder(styles: int = 4) -> codes.CodeEncoder:
    torch.manual_seed(0)
    return codes.CodeEncoder(_FirstColumn(), 5, 2, styles)


def test_information_is_that_of_a_contingency_table(rows: tuple[torch.Tensor, ...]) -> None:
    inputs, _, person = rows
    coder = _coder()
    cells = coder.codes(inputs)
    found = float(codes.information(coder(inputs), person, 4))
    assert np.isclose(found, mutual_info_score(cells.numpy(), person.numpy()), atol=1e-5)


def test_unexplained_is_one_minus_the_share_that_cells_explain(
    rows: tuple[torch.Tensor, ...],
) -> None:
    inputs, task, _ = rows
    coder = _coder()
    cells = coder.codes(inputs).numpy()
    array = inputs.numpy().astype(np.float64)

    def within(groups: np.ndarray) -> float:
        parts = [array[groups == one] for one in np.unique(groups)]
        return float(sum(((part - part.mean(0)) ** 2).sum() for part in parts))

    member = coder(inputs)
    found = float(codes.unexplained(member, inputs, task, 2))
    assert np.isclose(found, within(cells) / within(task.numpy()), rtol=1e-3)
    soft = codes.membership(torch.zeros(len(inputs), 4), task, 2)
    assert np.isclose(float(codes.unexplained(soft, inputs, task, 2)), 1.0, rtol=1e-4)
    assert torch.allclose(soft.sum(1), torch.ones(len(inputs)))


def test_strength_decides_what_a_style_is_about(rows: tuple[torch.Tensor, ...]) -> None:
    """Unasked, styles are people: they vary most. With a price, they are the other label."""
    inputs, _, person = rows
    found = {}
    for strength in (0.0, 3.0):
        coder = _coder()
        codes.learn_styles(coder, inputs, [(person, 4)], strength, seed=0)
        member = coder(inputs)
        found[strength] = float(codes.information(member, person, 4))
        kept = float(codes.unexplained(member, inputs, coder.codes(inputs) // 4, 2))
        assert kept < (0.75 if strength else 0.5)
    assert found[0.0] > 0.5
    assert found[3.0] < 0.03


def test_reader_and_prototypes(rows: tuple[torch.Tensor, ...]) -> None:
    inputs, task, _ = rows
    coder = _coder(3)
    assert torch.equal(coder.reader()(coder(inputs)).argmax(1), task)
    shown = codes.prototypes(coder, inputs)
    cells = coder.codes(inputs)
    for cell in range(6):
        own = inputs[cells == cell]
        expected = own.mean(0) if len(own) else inputs[task == cell // 3].mean(0)
        assert torch.allclose(shown[cell], expected, atol=1e-4)


def test_one_style_is_the_predicted_class_alone(rows: tuple[torch.Tensor, ...]) -> None:
    inputs, task, person = rows
    coder = _coder(1)
    codes.learn_styles(coder, inputs, [(person, 4)], 1.0, seed=0)
    assert torch.equal(coder.codes(inputs), task)
