"""What everything here is compared with: one example at a time, written out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Naive:
    """The slow and obvious way."""

    @staticmethod
    def cross_entropy(module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(module(inputs), labels, reduction="none")

    @staticmethod
    def squared(module: nn.Module, inputs: Tensor) -> Tensor:
        """A loss for any shape of output."""
        return (module(inputs).flatten(1) - 0.3).square().sum(1)

    @staticmethod
    def gradients(module: nn.Module, loss, batch: tuple[Tensor, ...]) -> Tensor:
        """Of every example and all trained parameters, one row an example."""
        trained = [p for p in module.parameters() if p.requires_grad]
        rows = []
        for i in range(len(batch[0])):
            value = loss(module, *(part[i : i + 1] for part in batch)).sum()
            found = torch.autograd.grad(value, trained, allow_unused=True)
            parts = [
                torch.zeros_like(p) if g is None else g.to_dense()
                for g, p in zip(found, trained, strict=True)
            ]
            rows.append(torch.cat([part.flatten() for part in parts]))
        return torch.stack(rows)

    @classmethod
    def clipped_sum(cls, module: nn.Module, loss, batch, clip_norm: float) -> Tensor:
        rows = cls.gradients(module, loss, batch)
        factors = (clip_norm / rows.norm(dim=1).clamp(min=1e-300)).clamp(max=1)
        return (rows * factors[:, None]).sum(0)

    @staticmethod
    def flat(sums: list[Tensor]) -> Tensor:
        return torch.cat([part.flatten() for part in sums])


@pytest.fixture(scope="session")
def naive() -> type[Naive]:
    return Naive


@pytest.fixture(autouse=True)
def _one_thread_and_one_start():
    """Weights of test modules are the same in every run; the global generator is left alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)
