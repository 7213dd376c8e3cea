"""Attacks on sums: one record blanked must move a clipped sum by the clip norm at the most.

Each of these moved it by more once, or let one record end the process or decide what is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.central.training import layers, probing
from tacit.central.training.schedule import Schedule
from tacit.privacy import errors


def moved(
    module: nn.Module, batch: tuple[Tensor, ...], blank: int, clip_norm: float = 1.0
) -> float:
    """How far the sum moves, in clip norms, where this slot is blanked; the module is the loss."""
    made = probing.clipper("attack", module, lambda m, *rows: m(*rows), batch)
    count = len(batch[0])
    made.prepare(count)

    def total(there: Tensor) -> Tensor:
        rows = tuple(part.clone() for part in batch)
        for part in rows:
            part[~there] = 0
        return made.sums(rows, clip_norm, present=there)[0].double()

    everyone = torch.ones(count, dtype=torch.bool)
    without = everyone.clone()
    without[blank] = False
    return float((total(everyone) - total(without)).norm()) / clip_norm


class Of(nn.Module):
    """A few layers, and what is made of them."""

    def __init__(self, forward: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *rows: Tensor) -> Tensor:
        return self._forward(self, *rows)


def room(count: int, dtype: torch.dtype = torch.float32) -> float:
    return Schedule(count, 2**32, 1, 1).rounding(dtype)  # type: ignore[arg-type]


def test_a_loss_without_an_axis_of_rows_is_not_taken_for_rows() -> None:
    table = torch.full((8, 64), -1.0)
    table[0] = 1

    def forward(m: Of, x: Tensor) -> Tensor:
        far = (x[:, 0] - 1e6).clamp(0, 1)
        everyone = F.cross_entropy(far * 0, far, reduction="none")  # over the batch
        return m.w(x.clamp(0, 100))[:, 0] * F.embedding(everyone.long(), table[:, : len(x)])

    x = torch.full((64, 1), 50.0)
    x[5] = 1e7
    assert moved(Of(forward, w=nn.Linear(1, 1)), (x,), 5) <= 1 + room(64)


@pytest.mark.parametrize(
    "product", [lambda y: y.prod(1), lambda y: y.cumprod(1)[:, 3]], ids=["prod", "cumprod"]
)
def test_a_zero_in_another_row_does_not_change_a_derivative(
    product: Callable[[Tensor], Tensor],
) -> None:
    layer = nn.Linear(4, 4)
    nn.init.zeros_(layer.weight)
    with torch.no_grad():
        layer.weight[0, 0] = 1
        layer.bias.copy_(torch.tensor([1.0, 1e-30, 1e-30, 1e38]))
    x = torch.tensor([[5.0, 0, 0, 0]]).repeat(256, 1)
    x[0, 0] = -1  # a zero behind the layer
    assert moved(Of(lambda m, x: product(m.w(x)), w=layer), (x,), 0) <= 1 + room(256)


def test_a_module_that_raises_on_blank_rows_is_refused_whoever_is_there() -> None:
    table = torch.zeros(3, 1)

    def forward(m: Of, x: Tensor) -> Tensor:
        return (m.w(x) + F.embedding((x[:, 0] == 0).long() * 1000, table))[:, 0] ** 2

    for value in (1.0, 0.0):
        with pytest.raises(errors.TacitError, match="rows of zeros"):
            moved(Of(forward, w=nn.Linear(2, 1)), (torch.full((8, 2), value),), 0)


def test_where_blanks_raise_at_later_weights_a_block_is_zero() -> None:
    table = torch.zeros(3, 1)

    def forward(m: Of, x: Tensor) -> Tensor:
        public = (m.w.bias.detach() > 100).long() * 1000
        return (m.w(x) + F.embedding(public, table))[:, 0]

    module = Of(forward, w=nn.Linear(2, 1))
    made = probing.clipper("attack", module, lambda m, x: m(x), (torch.ones(8, 2),))
    made.prepare(8)
    with torch.no_grad():
        module.w.bias.fill_(200)
    total, dropped = made.sums((torch.ones(8, 2),), 1.0)
    assert not total.any()
    assert dropped == 8


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "divide",
    [
        "torch.remainder(k[:, 0], k[:, 1] + (k[:, 1] == 0))",
        "torch.fmod(k[:, 0], k[:, 1] + (k[:, 1] == 0))",
        "torch.div(k[:, 0], k[:, 1] + (k[:, 1] == 0), rounding_mode='floor')",
        "torch.div(k[:, 0], k[:, 1] + (k[:, 1] == 0), rounding_mode='trunc')",
        "k[:, 0] // (k[:, 1] - k[:, 1] - 1)",
        "k[:, 0] % -1",
    ],
)
def test_whole_numbers_are_not_divided_by_what_may_end_the_process(divide: str) -> None:
    def forward(m: Of, x: Tensor, k: Tensor) -> Tensor:
        return m.w(x)[:, 0] ** 2 + 0 * eval(divide, {"torch": torch, "k": k})

    batch = torch.ones(8, 1), torch.ones(8, 2, dtype=torch.long)
    with pytest.raises(errors.TacitError):
        moved(Of(forward, w=nn.Linear(1, 1)), batch, 0)


def test_they_are_by_other_numbers() -> None:
    def forward(m: Of, x: Tensor, k: Tensor) -> Tensor:
        return m.w(x)[:, 0] ** 2 + k[:, 0] // 2 + k[:, 1] % 3

    k = torch.full((8, 2), -(2**63), dtype=torch.long)
    assert moved(Of(forward, w=nn.Linear(1, 1)), (torch.ones(8, 1), k), 0) <= 1 + room(8)


def test_a_weight_that_is_the_bias_too() -> None:
    layer = nn.LayerNorm(2)
    layer.bias = layer.weight
    x = torch.tensor([[-100.0, 100.0]]).repeat(8, 1)
    g = torch.tensor([[0.0, 50.0]]).repeat(8, 1)
    assert moved(Of(lambda m, x, g: (m.n(x) * g).sum(1), n=layer), (x, g), 0) <= 1 + room(8)


def test_norms_without_an_epsilon_on_blank_rows() -> None:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    module = Of(lambda m, x: m.n(x).square().sum(1), n=nn.LayerNorm(4, eps=0))
    assert moved(module, (x,), 0) <= 1 + room(8)


def cancelling(
    count: int, positions: int, wide: int, digits: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Short gradients of huge terms that cancel, so that a running sum hovers at a power of two."""
    x, g = torch.zeros(2, count, positions, wide, dtype=dtype)
    x[0, 0], g[0, 0] = wide**-0.5, 0.9 * wide**-0.5
    top = digits - {8: 11, 16: 12, 32: 13}[wide] + (positions == 16)
    unit, small = 2.0 ** (top - digits), 2.0 ** ((top - digits) // 2)
    large = 2.0 ** (top // 2)
    x[1:], x[1:, 0], x[1:, -1] = small, large, large
    g[1:, 0] = (2.0**top - 0.5 / wide) / large
    g[1:, -1] = -g[1:, 0]
    g[1:, 1:-1:2], g[1:, 2:-1:2] = unit * 1.02 / small, -unit * 0.98 / small
    return x, g


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(16, 32, 8), (64, 32, 8), (256, 16, 16)])
def test_terms_that_cancel_over_positions(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    count, _, wide = shape
    x, g = cancelling(*shape, 24 if dtype == torch.float32 else 53, dtype)
    linear = nn.Linear(wide, wide, bias=False, dtype=dtype)
    module = Of(lambda m, x, g: (m.w(x) * g).sum((1, 2)), w=linear)
    assert moved(module, (x, g), 0) <= 0.9 + room(count, dtype)
    module.w = nn.Conv1d(wide, wide, 1, bias=False, dtype=dtype)
    rows = tuple(part.transpose(1, 2).contiguous() for part in (x, g))
    assert moved(module, rows, 0) <= 0.9 + room(count, dtype)


def test_terms_that_cancel_on_one_token() -> None:
    tokens, x = torch.ones(256, 2, dtype=torch.long), torch.ones(256, 2)
    x[-1] = torch.tensor([2.0**60, -(2.0**60)])
    module = Of(lambda m, t, x: (m.e(t).sum(-1) * x).sum(-1), e=nn.Embedding(4, 8))
    assert moved(module, (tokens, x), 255) <= 1 + room(256)


@pytest.mark.parametrize("size", [2.0**20, 2.0**60])
def test_terms_that_cancel_between_a_look_up_and_a_product(size: float) -> None:
    tokens, x = torch.ones(256, 1, dtype=torch.long), torch.ones(256, 2)
    x[-1] = torch.tensor([size, -size])
    table = nn.Embedding(4, 8)

    def forward(m: Of, t: Tensor, x: Tensor) -> Tensor:
        scores = F.linear(torch.ones(len(x), 1, 8) * (1 + 0 * x[:, :1, None]), m.e.weight)
        return m.e(t).sum((1, 2)) * x[:, 0] + scores[:, 0, 1] * x[:, 1]

    assert moved(Of(forward, e=table), (tokens, x), 255) <= 1 + room(256)


def test_terms_that_cancel_in_a_bias() -> None:
    x = torch.ones(256, 2, 1)
    x[-1] = torch.tensor([[2.0**60], [-(2.0**60)]])
    layer = nn.Linear(1, 1)
    layer.weight.requires_grad_(False)
    module = Of(lambda m, x: (m.w(x * 0) * x).sum((1, 2)), w=layer)
    assert moved(module, (x,), 255) <= 1 + room(256)


@pytest.mark.parametrize("clip_norm", [2.5e-7, 1e-6, 1e-5])
def test_clipped_gradients_are_not_lost_among_subnormals(clip_norm: float) -> None:
    x, y = torch.full((4, 1), 3e38), torch.full((4,), 1e-15)
    layer = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(layer.weight)
    module = Of(lambda m, x, y: m.w(x)[:, 0] * y, w=layer)
    assert moved(module, (x, y), 1, clip_norm) <= 1 + room(4)


def test_clip_norms_that_float32_cannot_hold_are_refused() -> None:
    with pytest.raises(errors.TacitError, match="1e-9"):
        moved(Of(lambda m, x: m.w(x)[:, 0], w=nn.Linear(1, 1)), (torch.ones(4, 1),), 0, 1e-12)


def test_honest_examples_do_not_notice_the_limit_on_cancelling_terms() -> None:
    generator = torch.Generator().manual_seed(1)
    x, g = (torch.randn(256, 64, 8, generator=generator) for _ in "xg")
    true = torch.einsum("nti,ntj->nij", g.double(), x.double()).flatten(1).norm(dim=1)
    found = layers.outer_norms(x, g, 256).sqrt()
    assert bool((found >= true).all())
    assert bool((found <= 1.001 * true).all())


def test_the_room_is_small() -> None:
    assert room(100) < 0.003
    assert max(room(1280), room(10**6)) < 0.01
    assert room(10**6, torch.float64) < 0.002
