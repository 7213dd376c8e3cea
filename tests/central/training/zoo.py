"""Modules that couple examples in every way that we could think of, and some that do not."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDE = 4
SEEN: list[Tensor] = []
CALLS = itertools.count()


class Animal(nn.Module):
    """Two layers; what is between them is the animal's own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(torch.tanh(self.first(x))))[:, 0]

    def between(self, x: Tensor) -> Tensor:
        return x


class Sorts(Animal):
    """By a value of its own, as for packing, and back."""

    def forward(self, x: Tensor) -> Tensor:
        order = torch.argsort(x.sum(1), descending=True, stable=True)
        hidden = torch.tanh(self.first(x[order]))
        return self.last(hidden[torch.argsort(order)])[:, 0]


class SortsByWord(Animal):
    """By a whole number that no made-up row has: they all have the same place there."""

    def forward(self, x: Tensor) -> Tensor:
        order = torch.argsort((x[:, 0] > 50).long(), stable=True)
        return self.last(torch.tanh(self.first(x[order]))[torch.argsort(order)])[:, 0]


class Gathers(Animal):
    def between(self, x: Tensor) -> Tensor:
        index = x[:, :1].argsort(dim=0, stable=True).expand_as(x)
        return x.gather(0, index)


class Selects(Animal):
    def between(self, x: Tensor) -> Tensor:
        return x.index_select(0, torch.arange(len(x)).flip(0))


class Rolls(Animal):
    def between(self, x: Tensor) -> Tensor:
        return x.roll(1, 0)


class RollsTwice(Animal):
    """Rows are elsewhere in the middle, and back at the end."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x.roll(1, 0))).roll(-1, 0))[:, 0]


class RollsFlat(Animal):
    """Without an axis: over everything."""

    def between(self, x: Tensor) -> Tensor:
        return x.roll(WIDE)


class Flips(Animal):
    def between(self, x: Tensor) -> Tensor:
        return x.flip(0)


class Chunks(Animal):
    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2)
        hidden = torch.tanh(self.first(torch.cat([second, first])))
        second, first = hidden.chunk(2)
        return self.last(torch.cat([first, second]))[:, 0]


class Reshapes(Animal):
    """Rows and columns change places in memory, and back."""

    def between(self, x: Tensor) -> Tensor:
        mixed = x.t().reshape(x.shape)
        return x + 0.01 * mixed


class Routes(Animal):
    """Reads values, in Python."""

    def between(self, x: Tensor) -> Tensor:
        return x if x[0, 0].item() > 0 else x.flip(0)


class Masks(Animal):
    """Reads values, by a mask of rows."""

    def between(self, x: Tensor) -> Tensor:
        chosen = x[:, 0] > 0
        return torch.cat([x[chosen], x[~chosen]])


class Rare(Animal):
    """A permutation that depends on a value which no probe has."""

    def forward(self, x: Tensor) -> Tensor:
        shift = (x == 60.0).any(1).sum()
        places = (torch.arange(len(x)) + shift) % len(x)
        return self.last(torch.tanh(self.first(x[places])))[:, 0]


class Experts(nn.Module):
    """Two experts that take eight rows each, in the order of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = (
            nn.Linear(WIDE, 2),
            nn.ModuleList([nn.Linear(WIDE, 1) for _ in "12"]),
        )

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(1)
        chosen = weights.argmax(1)
        values = torch.stack([one(x)[:, 0] for one in self.experts], 1) * weights
        room = [((chosen == e) & ((chosen == e).cumsum(0) <= 8)).to(weights) for e in range(2)]
        return (values * torch.stack(room, 1)).sum(1)


class Means(Animal):
    def between(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class FarMeans(Animal):
    """The mean matters only far out."""

    def between(self, x: Tensor) -> Tensor:
        return x + F.relu(x.sum(0) - 1e6)


class Peaks(Animal):
    def between(self, x: Tensor) -> Tensor:
        return x - x.amax(0, keepdim=True)


class Sums(Animal):
    def between(self, x: Tensor) -> Tensor:
        return x.cumsum(0)


class Caches(Animal):
    """Keeps the last rows in an attribute, and uses them."""

    kept: Tensor | None = None

    def between(self, x: Tensor) -> Tensor:
        if self.kept is not None and self.kept.shape == x.shape:
            x = x + self.kept
        self.kept = x.detach()
        return x


class Writes(Animal):
    """A buffer that forward writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(WIDE))

    def between(self, x: Tensor) -> Tensor:
        self.kept.add_(x.detach().sum(0))
        return x + self.kept


class Assigns(Animal):
    """A buffer that forward replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(WIDE))

    def between(self, x: Tensor) -> Tensor:
        self.kept = self.kept + x.detach().sum(0)
        return x + 1e-9 * self.kept


class Hidden(Animal):
    """A tensor in no register, written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.zeros(WIDE)]

    def between(self, x: Tensor) -> Tensor:
        self.kept[0].add_(x.detach().sum(0))
        return x + self.kept[0]


class Global(Animal):
    def between(self, x: Tensor) -> Tensor:
        SEEN.append(x.detach())
        others = [one for one in SEEN[-3:] if one.shape == x.shape and type(one) is type(x)]
        return x + 1e-3 * sum(others)


class Counts(Animal):
    """Well behaved in its first calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def between(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x if self.calls < 40 else x.flip(0)


class CountsOutside(Animal):
    """The same, and the count is nowhere in the module."""

    def between(self, x: Tensor) -> Tensor:
        return x if next(CALLS) < 500 else x.flip(0)


class ForwardHook(Animal):
    def __init__(self) -> None:
        super().__init__()
        self.first.register_forward_hook(lambda layer, given, out: out * (1 + (out > 5).sum(0)))


class BackwardHook(Animal):
    def __init__(self) -> None:
        super().__init__()
        self.first.register_full_backward_hook(lambda layer, given, out: (given[0].flip(0),))
        self.before = nn.Linear(WIDE, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.before(x))


class TensorHook(Animal):
    def between(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            x.register_hook(lambda gradient: gradient + gradient.mean(0))
        return x


class _Mixing(torch.autograd.Function):
    """Nothing to see forwards."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient + gradient.sum(0)


class Backwards(Animal):
    def between(self, x: Tensor) -> Tensor:
        return _Mixing.apply(x)


class _Keeping(torch.autograd.Function):
    kept: Tensor | None = None

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        before, _Keeping.kept = _Keeping.kept, gradient.detach()
        usable = (
            before is not None and before.shape == gradient.shape and type(before) is type(gradient)
        )
        return gradient + before if usable else gradient


class KeepsBackwards(Animal):
    def between(self, x: Tensor) -> Tensor:
        return _Keeping.apply(x)


class _OwnMap(torch.autograd.Function):
    """A rule of its own for batches, which mixes them."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient

    @staticmethod
    def vmap(info, in_dims, x):
        return x + x.sum(in_dims[0], keepdim=True), in_dims[0]


class OwnMap(Animal):
    def between(self, x: Tensor) -> Tensor:
        return _OwnMap.apply(x).cumsum(0)  # not row-wise, so that it is differentiated alone


class InPlace(Animal):
    """Row 0 is written over by the others."""

    def between(self, x: Tensor) -> Tensor:
        x = x.clone()
        x[0] = x[1:].sum(0)
        return x


class InPlaceView(Animal):
    def between(self, x: Tensor) -> Tensor:
        x = x.clone()
        x.view(-1)[:WIDE].add_(x[-1])
        return x


class SharedDraw(Animal):
    """One draw for all rows: allowed, as it depends on nobody."""

    def between(self, x: Tensor) -> Tensor:
        return x * (1 + torch.randn(WIDE)) + torch.rand_like(x)


class DrawOfRows(Animal):
    """A draw whose law is that of other rows."""

    def between(self, x: Tensor) -> Tensor:
        return x + torch.bernoulli(x.mean(0).abs().clamp(0, 1))


class Numpy(Animal):
    def between(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(x.detach().numpy().sum(0))


class Steep(Animal):
    """Any last bit decides."""

    def between(self, x: Tensor) -> Tensor:
        return torch.tanh(1e9 * (x - x.round()))


class BatchAttention(nn.Module):
    """Attention over the examples of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.last = nn.MultiheadAttention(WIDE, 2), nn.Linear(WIDE, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.attend(x, x, x, need_weights=False)[0])[:, 0]


class ByHandNorm(Animal):
    def between(self, x: Tensor) -> Tensor:
        return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()


class FunctionalNorm(Animal):
    def between(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, training=True)


class Linalg(Animal):
    def between(self, x: Tensor) -> Tensor:
        return x @ torch.linalg.pinv(x.T @ x + torch.eye(WIDE))


class Distances(Animal):
    def between(self, x: Tensor) -> Tensor:
        return x + torch.cdist(x, x).amin(1, keepdim=True)


class Memory(Animal):
    """Memory that nobody has written, where rows have been before."""

    def between(self, x: Tensor) -> Tensor:
        return x + 0 * torch.empty_like(x).nan_to_num().clamp(-1, 1) + torch.empty(len(x), 1).tanh()


class Recurrent(nn.Module):
    """A sequence in every row; with examples on the axis of time, they are one sequence."""

    def __init__(self, kind: type[nn.RNNBase], *, batch_first: bool) -> None:
        super().__init__()
        self.cells, self.last = kind(2, WIDE, batch_first=batch_first), nn.Linear(WIDE, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.cells(x.unflatten(1, (2, 2)))[0]
        return self.last(found[:, -1])[:, 0]


class Lookup(Animal):
    """Embeddings whose gradient is scaled by how often a token is in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, WIDE))

    def between(self, x: Tensor) -> Tensor:
        tokens = (x[:, 0].abs() * 3).long().clamp(0, 8)
        return x + F.embedding(tokens, self.table, scale_grad_by_freq=True)


ANIMALS = {
    kind.__name__: kind
    for kind in (
        *(Sorts, SortsByWord, Gathers, Selects, Rolls, RollsTwice, RollsFlat, Flips, Chunks),
        *(Reshapes, Routes, Masks, Rare, Experts, Means, FarMeans, Peaks, Sums, Caches, Writes),
        *(Assigns, Hidden, Global, Counts, CountsOutside, ForwardHook, BackwardHook, TensorHook),
        *(Backwards, KeepsBackwards, OwnMap, InPlace, InPlaceView, SharedDraw, DrawOfRows, Numpy),
        *(Steep, BatchAttention, ByHandNorm, FunctionalNorm, Linalg, Distances, Memory, Lookup),
    )
} | {
    "LSTM": lambda: Recurrent(nn.LSTM, batch_first=True),
    "GRU": lambda: Recurrent(nn.GRU, batch_first=True),
    "GRU over rows": lambda: Recurrent(nn.GRU, batch_first=False),
}
