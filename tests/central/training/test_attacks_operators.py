"""Attacks by operators and surroundings: each moved a clipped sum by more than the clip norm once.

They go through what torch does with a module that is innocent row by row: another order of addition
at another shape, rows of zeros that raise, `vmap`'s rules for indices, draws by value, autocast.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.central.training import clipped_sum, precision, probing, training
from tacit.central.training.clipping import Clipper
from tacit.central.training.scaling import Tally
from tacit.central.training.schedule import Schedule
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded

aten = torch.ops.aten
ONE_LINE = r"^attack: module must be one whose gradient of one example can be [^\n]*$"


def room(count: int) -> float:
    return Schedule(count, 2**32, 1, 1).rounding(torch.float32)  # type: ignore[arg-type]


def made(module: nn.Module, loss: Callable[..., Tensor], *batch: Tensor) -> Clipper:
    found = probing.clipper("attack", module, loss, batch)
    found.prepare(len(batch[0]))
    return found


def moved(clipper: Clipper, place: int, *batch: Tensor) -> float:
    """How far the sum moves where this row is blanked, at a clip norm of one, with equal draws."""
    sums = []
    for blank in (False, True):
        rows, there = tuple(part.clone() for part in batch), torch.ones(len(batch[0])).bool()
        if blank:
            there[place] = False
            for part in rows:
                part[place] = 0
        torch.manual_seed(0)
        sums.append(clipper.sums(rows, 1.0, present=there)[0].double())
    return float((sums[0] - sums[1]).norm())


class TimeFirst(nn.Module):
    """Works on (T, n, D), as many models of sequences do."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1))


@pytest.mark.parametrize(
    ("layer", "digits"), [(nn.LayerNorm(2), 25), (nn.Linear(2, 2), 54)], ids=["shift", "bias"]
)
def test_what_is_added_is_what_was_measured(layer: nn.Module, digits: int) -> None:
    """Over positions that cancel, a sum of the block and one of a part of it were two numbers."""
    count, shuffle = 258, random.Random(0)
    values = [1.0, -1.0, 2.0**-digits, 2.0**-digits, 0.0, 0.0, 0.0, 0.0]
    dtype = torch.float32 if digits == 25 else torch.float64
    for _ in range(500):
        shuffle.shuffle(values)
        z = torch.zeros(count, 8, 2)
        z[256:] = torch.tensor(values)[None, :, None] * 1e25
        rows = z.transpose(0, 1).contiguous().movedim(1, 0).to(dtype)
        part = rows[256:].reshape(2, -1, 2).sum(1)
        if bool(((rows.reshape(count, -1, 2).sum(1)[256:] == 0) & (part != 0)).any()):
            break

    def loss(module: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        return (module(x) * z.transpose(0, 1).contiguous()).sum((0, 2))

    x = torch.zeros(count, 8, 2)
    for place in (256, 257):
        one = torch.zeros_like(z)
        one[place] = z[place]
        clipper = made(TimeFirst(layer), loss, x, one)
        assert clipper.book_kept
        assert moved(clipper, place, x, one) <= 1 + room(count)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3))
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w + self.gate


def look_up(module: nn.Module, x: Tensor, index: Tensor) -> Tensor:
    table = torch.ones(4, 1)
    return (module(x) - 5) * F.embedding(index.abs().long(), table)[:, 0]


def by_weights(module: nn.Module, x: Tensor) -> Tensor:
    """An index that leaves the table for rows of zeros, once the gate has moved."""
    return look_up(module, x, module.gate.detach() * 1000 * (x == 0).all(1))


def by_draws(module: nn.Module, x: Tensor) -> Tensor:
    """The same in those slots alone that draw so."""
    drawn = (torch.rand(len(x)) > 0.5) * (module.gate.detach() != 0)
    return look_up(module, x, 1000.0 * drawn * (x == 0).all(1))


def by_place(module: nn.Module, x: Tensor) -> Tensor:
    """The same in the slots from 3 on."""
    places = torch.arange(len(x)) * module.gate.detach()
    return look_up(module, x, 10 * places * (x == 0).all(1))


def by_inverse(module: nn.Module, x: Tensor) -> Tensor:
    """Without an inverse for rows of zeros, once the gate is 0.1."""
    matrix = (module.gate.detach() - 0.1 + x[:, :1] ** 2)[..., None]
    return (module(x) - 5) * torch.linalg.inv(matrix)[:, 0, 0]


@pytest.mark.parametrize("loss", [by_weights, by_draws, by_place, by_inverse])
def test_weights_at_which_only_a_blank_row_raises(loss: Callable[..., Tensor]) -> None:
    """A block without blanks had a sum, and its neighbour none."""
    x, module = torch.rand(40, 3) + 0.5, Gated()
    clipper = made(module, loss, x)
    assert moved(clipper, 7, x) <= 1 + room(40)
    with torch.no_grad():
        module.gate.fill_(0.1)
    for place in (7, 8, 9, 20, 39):
        assert moved(clipper, place, x) <= 1 + room(40)


def test_training_with_such_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    plain = Clipper.tallied

    def watched(self: Clipper, *args: object, **more: object) -> tuple[Tensor, Tally]:
        seen.append(plain(self, *args, **more)[0])  # type: ignore[arg-type]
        return seen[-1].clone(), Tally(0)

    monkeypatch.setattr(Clipper, "tallied", watched)
    x = torch.rand(60, 3) + 0.5
    for blank in (False, True):
        rows = x.clone()
        rows[7] *= not blank
        training.train(Gated(), rows, by_weights, epsilon=1.0, delta=1e-6, batch_size=60, steps=2,
                       optimizer="sgd", learning_rate=0.1, rng=Seeded(1))  # fmt: skip
    assert seen[0].norm() > 10
    assert seen[1].norm() == seen[3].norm() == 0  # whoever is there


def test_usual_losses_need_no_second_pass() -> None:
    """Labels and tokens do not move with weights: rows of zeros were tried beforehand."""
    tokens = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Dropout(), nn.Linear(8, 3))
    labels = torch.zeros(9, dtype=torch.long)

    def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(module(x), y, reduction="none")

    book = made(tokens, loss, torch.zeros(9, 2, dtype=torch.long), labels)
    assert not book.prepare(9).blanks_may_raise
    alone = made(Alone(tokens), loss, torch.zeros(9, 2, dtype=torch.long), labels)
    assert not alone.book_kept
    assert not alone.prepare(9).blanks_may_raise


TOKENS = 64
Bags = Callable[[Tensor, Tensor], Tensor]


def by_derivative(tokens: Tensor, weights: Tensor) -> Tensor:
    rows = zip(tokens.unbind(0), weights.unbind(0), strict=True)
    made = [aten.embedding_dense_backward(w[:, None], t, TOKENS, -1, False)[:, 0] for t, w in rows]
    return torch.stack(made)


def beside_a_look_up(tokens: Tensor, weights: Tensor) -> Tensor:
    """With a forward operator, for a longer table."""
    unused = F.embedding(tokens, torch.zeros(99_999, 1)).sum((1, 2))
    return by_derivative(tokens, weights) + unused[:, None]


def by_pool(tokens: Tensor, weights: Tensor) -> Tensor:
    index, grad, x = _planes(tokens, weights)
    sides = [1, 1], [1, 1], [0, 0], [1, 1], False
    return aten.max_pool2d_with_indices_backward(grad, x, *sides, index).flatten(1)


def by_adaptive_pool(tokens: Tensor, weights: Tensor) -> Tensor:
    index, grad, x = _planes(tokens, weights)
    return aten.adaptive_max_pool2d_backward(grad, x, index).flatten(1)


def by_unpooling(tokens: Tensor, weights: Tensor) -> Tensor:
    index, grad, _ = _planes(tokens, weights)
    return F.max_unpool2d(grad, index, 1, output_size=(len(tokens), 1, TOKENS, 1)).flatten(1)


def by_segments(tokens: Tensor, weights: Tensor) -> Tensor:
    rows = zip(tokens.unbind(0), weights.unbind(0), strict=True)
    made = [aten.segment_reduce(w, "sum", lengths=t[:1], unsafe=True) for t, w in rows]
    return F.pad(torch.stack(made), (0, TOKENS - 1))


def by_tables_of_rows(tokens: Tensor, weights: Tensor) -> Tensor:
    rows = zip(tokens.unbind(0), weights.unbind(0), strict=True)
    return torch.stack([F.embedding(t, w[:, None])[:, 0] for t, w in rows])


def by_saved_shapes(tokens: Tensor, weights: Tensor) -> Tensor:
    """A derivative that takes its saved means by a shape that nobody checks."""
    x, means = weights[:, None], weights[:, :1]
    found = aten.native_layer_norm_backward(
        x, x, [1, TOKENS], means[:0], means[:0], None, None, [True, False, False]
    )
    return found[0][:, 0]


def _planes(tokens: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    zeros = torch.zeros(len(tokens), 1, TOKENS, 1)
    return tokens[:, None, :, None], weights[:, None, :, None], zeros


@pytest.mark.parametrize(
    "bag",
    [
        *(by_derivative, beside_a_look_up, by_pool, by_adaptive_pool, by_unpooling, by_segments),
        *(by_tables_of_rows, by_saved_shapes),
    ],
)
def test_operators_that_fold_rows_into_one_space_of_indices_are_refused(bag: Bags) -> None:
    tokens, weights = torch.zeros(40, TOKENS, dtype=torch.long), torch.zeros(40, TOKENS)
    with pytest.raises(InvalidParameter, match=ONE_LINE):
        made(nn.Linear(TOKENS, 1), lambda m, t, w: m(bag(t, w))[:, 0], tokens, weights)


class Alone(nn.Module):
    """Not proved to keep rows apart, so that examples are differentiated alone."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.flip(0).flip(0))


PLAIN = {
    "embedding": (nn.Sequential(nn.Embedding(5, 4, padding_idx=0), nn.Flatten()), "tokens"),
    "max_pool": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, 1, 1), nn.Flatten()), "image"),
    "adaptive": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveMaxPool2d(2), nn.Flatten()), "image"),
    "average": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten()), "image"),
    "groups": (nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()), "image"),
    "norm": (nn.Sequential(nn.Flatten(), nn.Linear(25, 4), nn.LayerNorm(4), nn.GLU()), "image"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_derivatives_that_autograd_calls_are_mapped(name: str, naive) -> None:
    inner, kind = PLAIN[name]
    rows = torch.randint(0, 5, (6, 3)) if kind == "tokens" else torch.randn(6, 1, 5, 5)
    module = Alone(inner)

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return (module(x) - 0.3).square().sum(1)

    assert not made(module, loss, rows).book_kept
    sums, _ = clipped_sum(module, loss, rows, 1.0)
    expected = naive.clipped_sum(module, loss, (rows,), 1.0)
    assert torch.allclose(naive.flat(sums), expected, atol=1e-5)


DRAWS = {
    "poisson": lambda x: torch.poisson(x.abs()),
    "gamma": lambda x: torch._standard_gamma(x.abs() + 1),
    "binomial": lambda x: torch.binomial(x.abs().round() + 1, torch.full_like(x, 0.5)),
    "dirichlet": lambda x: torch._sample_dirichlet(x.abs() + 1),
    "multinomial": lambda x: torch.multinomial(x.abs() + 1, 1).expand_as(x).float(),
    "rrelu": lambda x: F.rrelu(x, training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_by_value_are_refused(name: str) -> None:
    """One row would shift everybody's draws; they do not show in rows that are made up."""

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return module(x + DRAWS[name](x) * (x == 7))[:, 0]

    with pytest.raises(InvalidParameter, match=ONE_LINE):
        made(nn.Linear(2, 1), loss, torch.rand(40, 2))


def test_draws_by_shape_are_not() -> None:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        draws = torch.randn_like(x) + torch.rand(2) + torch.bernoulli(x.sigmoid())
        return module(F.dropout(x, 0.5) + draws + F.rrelu(x, training=False))[:, 0]

    assert made(nn.Linear(2, 1), loss, torch.rand(40, 2)).book_kept


def test_autocast_around_a_step() -> None:
    """Norms were measured in bfloat16, and sums made in float64."""
    x, g = torch.zeros(6, 64, 12), torch.zeros(6, 64, 12)
    x[0, 0, 0], x[0, 1, 0], g[0, 0, 0], g[0, 1, 0] = 1.001, 1.0, 1e6, -1e6
    module = nn.Linear(12, 12, bias=False)

    def loss(module: nn.Module, x: Tensor, g: Tensor) -> Tensor:
        return (module(x) * g).sum((1, 2))

    clipper = made(module, loss, x, g)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert 0.5 < moved(clipper, 0, x, g) <= 1 + room(6)
        assert 0.5 < moved(made(module, loss, x, g), 0, x, g) <= 1 + room(6)
        assert 0.5 < float(clipped_sum(module, loss, (x, g), 1.0)[0][0].norm()) <= 1 + room(6)


def test_no_setting_of_the_backends_lowers_precision() -> None:
    """Nor is one left behind."""
    conv = torch.backends.mkldnn.conv
    before = conv.fp32_precision
    conv.fp32_precision = "bf16"
    try:
        with precision.whole_products():
            assert conv.fp32_precision == "ieee"
        assert conv.fp32_precision == "bf16"
    finally:
        conv.fp32_precision = before
