"""What is assumed of torch's kernels: at one shape, the bits of a row do not depend on other rows.

Forward and backward, over batch sizes, places, threads and instruction sets, with other rows that
are blank, ordinary, enormous, subnormal or no numbers at all.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.central.training.precision import whole_products

SIZES = (2, 7, 64)
FILLS = ("blank", "some zeros", "ordinary", "enormous", "subnormal", "nan", "infinite")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, x, x, need_weights=False)[0]


class Reductions(nn.Module):
    """Of `row_rules`: their derivatives must not ask what is anywhere in the batch."""

    def forward(self, x: Tensor) -> Tensor:
        made = [x.sum(1), x.mean(1), x.amax(1), x.amin(1), x.var(1), x.std(1), x.logsumexp(1)]
        made += [x.norm(dim=1, p=p) for p in (0.5, 1, 2, 3, torch.inf)]
        made += [torch.linalg.vector_norm(x, dim=1), x.nansum(1), x.median(1)[0], x.mode(1)[0]]
        made += [x.kthvalue(3, 1)[0], x.max(1)[0], x.min(1)[0]]
        made += [F.cosine_similarity(x[:, :8], x[:, 8:])]
        return torch.stack(made, 1)


class Running(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        made = [x.cumsum(1), x.logcumsumexp(1), x.sort(1)[0], x.softmax(1), F.glu(x, 1)]
        made += [x.topk(3, 1)[0], x.gather(1, x.argsort(1)), x.scatter_add(1, x.argsort(1), x)]
        return torch.cat(made, 1)


LAYERS = {
    "linear": (lambda: nn.Linear(67, 33), (67,)),
    "linear, positions": (lambda: nn.Linear(16, 16), (5, 16)),
    "conv 1": (lambda: nn.Conv2d(16, 16, 1), (16, 5, 5)),
    "conv 3": (lambda: nn.Conv2d(16, 16, 3, padding=1), (16, 5, 5)),
    "conv groups": (lambda: nn.Conv2d(16, 16, 3, groups=4), (16, 5, 5)),
    "conv 1d": (lambda: nn.Conv1d(8, 16, 3), (8, 12)),
    "layer norm": (lambda: nn.LayerNorm(33), (33,)),
    "group norm": (lambda: nn.GroupNorm(4, 16), (16, 5, 5)),
    "attention": (Attention, (7, 16)),
    "softmax": (lambda: nn.Sequential(nn.Linear(20, 10), nn.LogSoftmax(1)), (20,)),
    "pool": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.Tanh()), (16, 6, 6)),
    "reductions": (lambda: Reductions(), (16,)),
    "running sums": (lambda: Running(), (16,)),
    "embedding": (lambda: nn.Embedding(50, 16), (9,)),
}


def others(shape: tuple[int, ...], fill: str, generator: torch.Generator) -> Tensor:
    rows = torch.randn(shape, generator=generator)
    match fill:
        case "blank":
            return rows * 0
        case "some zeros":
            return rows * (rows > 0)
        case "enormous":
            return rows * 1e30
        case "subnormal":
            return rows * 1e-40
        case "nan":
            return rows * torch.nan
        case "infinite":
            return rows * torch.inf
    return rows


def bits(layer: nn.Module, batch: Tensor, place: int) -> list[Tensor]:
    """Of the row's output, and of the gradient of a sum of losses at the row's input."""
    if batch.dtype == torch.int64:
        return [layer(batch)[place].detach()]
    batch = batch.clone().requires_grad_()
    outputs = layer(batch)
    (gradient,) = torch.autograd.grad(F.softplus(outputs).flatten(1).sum(), batch)
    return [outputs[place].detach(), gradient[place]]


def check(name: str, device: str = "cpu") -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(3)
    generator, layer = torch.Generator().manual_seed(4), make().to(device)
    for size in SIZES:
        for place in sorted({0, 1, size // 2, size - 1}):
            row, seen = torch.randn(shape, generator=generator), []
            for fill in FILLS:
                batch = others((size, *shape), fill, generator)
                batch[place] = row
                if name == "embedding":
                    batch = batch.nan_to_num(0, 9, 9).abs().clamp(0, 9).long()
                seen.append(bits(layer, batch.to(device), place))
            for one in seen[1:]:
                assert all(map(torch.equal, one, seen[0])), (name, size, place)


@pytest.mark.quick(5)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", LAYERS)
def test_bits_of_a_row_do_not_depend_on_the_values_of_others(name: str, threads: int) -> None:
    torch.set_num_threads(threads)  # put back by the fixture
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_nor_with_other_instructions(capability: str) -> None:
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", LAYERS)
def test_nor_on_a_gpu(name: str) -> None:
    with whole_products():  # as training has it
        check(name, "cuda")


if __name__ == "__main__":
    with whole_products():
        for each in LAYERS:
            check(each, *sys.argv[1:])
