"""Clipped sums equal the naive loop, for every kind of layer and awkward option."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tacit.central.training import clipped_sum
from tacit.central.training.alone import Alone
from tacit.central.training.layers import outer_norms, squares
from tacit.central.training.operators import name_of
from tacit.central.training.probing import clipper
from tacit.central.training.tracing import Total
from tacit.privacy.errors import InvalidParameter

ROWS = 6


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(ROWS, *shape, dtype=torch.float64)


def tokens(*shape: int, most: int = 9) -> torch.Tensor:
    return torch.randint(0, most, (ROWS, *shape))


class Shared(nn.Module):
    """One layer several times in one pass: its cross terms count."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)) + self.layer(-x)).flatten(1)


class Tied(nn.Module):
    """Input and output embeddings are one parameter in two kinds of layer."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Embedding(9, 4)
        self.out = nn.Linear(4, 9, bias=False)
        self.out.weight = self.into.weight

    def forward(self, x):
        return self.out(self.into(x).mean(1))


class LanguageModel(nn.Module):
    """A table that is embedding and output layer at every position, twice."""

    def __init__(self, padding: int | None = None, cut: str = "") -> None:
        super().__init__()
        self.into, self.mix = nn.Embedding(9, 4, padding_idx=padding), nn.Linear(4, 4)
        self.out, self.cut = nn.Linear(4, 9), cut
        self.out.weight = self.into.weight

    def forward(self, x):
        words = self.into(x) + self.into(8 - x).mean(1, keepdim=True)
        words = words.detach() if self.cut == "into" else words
        y = self.out(torch.tanh(self.mix(words)))
        return y + self.out(words.mean(1))[:, None] / 2


class TiedLayers(nn.Module):
    """A weight in two layers of one kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Scale(nn.Module):
    """Owns a parameter, and has layers below it."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.rand(5))
        self.inner = nn.Linear(4, 5)

    def forward(self, x):
        return self.inner(x) * self.factor


class Attention(nn.Module):
    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.attend = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.out(self.attend(x, x, x, need_weights=False)[0])
        return x.mean(1) if self.batch_first else x.mean(0)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **settings) -> None:
        super().__init__()
        self.cells = kind(4, 3, batch_first=True, **settings)

    def forward(self, x):
        states, ends = self.cells(x)
        ends = ends if isinstance(ends, tuple) else (ends,)
        return torch.cat([states.flatten(1), *(one.transpose(0, 1).flatten(1) for one in ends)], 1)


class LearnedStart(nn.Module):
    """A recurrent layer from a trained state, over times on the first axis."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.start = nn.GRU(4, 3), nn.Parameter(torch.rand(1, 1, 3))

    def forward(self, x):
        return self.cells(x.transpose(0, 1), self.start.expand(-1, len(x), -1))[0][-1]


class CellByCell(nn.Module):
    """A loop of the user's own."""

    def __init__(self, kind: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.cell = kind(4, 3)

    def forward(self, x):
        state = None
        for part in x.unbind(1):
            state = self.cell(part, state)
        return state[0] if isinstance(state, tuple) else state


class Products(nn.Module):
    """Linear layers as products, with inputs on the rows of the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shift = nn.Parameter(torch.rand(4, 5)), nn.Parameter(torch.rand(5))
        self.second, self.third = nn.Parameter(torch.rand(5, 3)), nn.Parameter(torch.rand(3, 2))
        self.scaled = nn.Parameter(torch.rand(2))

    def forward(self, x):
        flat = torch.addmm(self.shift, x.flatten(0, -2), self.first)
        x = torch.tanh(flat).unflatten(0, x.shape[:-1]) @ self.second
        flat = torch.mm(torch.tanh(x).flatten(0, -2), self.third)
        eye = torch.eye(2, dtype=flat.dtype)
        return torch.addmm(self.scaled, flat, eye, beta=0.5).unflatten(0, x.shape[:-1])


class Positions(nn.Module):
    """Tokens, positions and kinds of tokens, as language models have them."""

    def __init__(self, own: bool = False) -> None:
        super().__init__()
        self.own = own  # whether kinds have memory of their own for every row
        self.tokens, self.places, self.kinds = (nn.Embedding(k, 4) for k in (9, 12, 2))
        self.register_buffer("order", torch.arange(12)[None])
        self.register_buffer("first", torch.zeros(1, 12, dtype=torch.long))
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        kinds = self.first[:, : x.shape[1]].expand(len(x), -1)
        kinds = kinds.contiguous() if self.own else kinds
        tokens, places = self.tokens(x), self.places(self.order[:, : x.shape[1]])
        x = tokens + self.kinds(kinds) + places.to(tokens.device)
        return self.last(torch.tanh(x))


class OtherWay(nn.Module):
    """Examples on the second axis: a row of what a layer sees is no example."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x.transpose(0, 1)).sum(0)


class Behind(nn.Module):
    """Uses a layer's weight behind its back, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return F.linear(torch.tanh(self.layer(x)), self.layer.weight)


class Overwritten(nn.Module):
    """Writes into the input of a layer after it has seen it; its weight, frozen, does not mind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.layer.weight.requires_grad_(False)

    def forward(self, x):
        x = x.clone()
        y = self.layer(x)
        x.mul_(2)
        return y + x


class Repeats(nn.Module):
    """Several rows of its own for every example."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return torch.tanh(self.layer(torch.cat([x, 2 * x]))).view(2, len(x), 3).sum(0)


class Token(nn.Module):
    """A trained row of its own before every example, as in vision transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.rand(1, 1, 4))
        self.place = nn.Parameter(torch.rand(6, 4))
        self.encode = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        return self.encode(x)[:, 0]


class Picked(nn.Module):
    """Indexing by rows' own numbers, means over places, einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.mix = nn.Embedding(9, 4), nn.Parameter(torch.rand(4, 5))

    def forward(self, x):
        y = torch.einsum("nte,ef->ntf", self.into(x), self.mix)
        y = y.mean(1).softmax(1)
        return torch.stack([y[torch.arange(len(x)), x[:, 0] % 5], y.amax(1)], 1)


BOOK_KEPT = {
    "mlp": (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), floats(4)),
    "in place": (nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)), floats(4)),
    "no bias": (nn.Sequential(nn.Linear(4, 6, bias=False), nn.Tanh()), floats(4)),
    "gram": (nn.Sequential(nn.Linear(12, 11), nn.Tanh(), nn.Linear(11, 9)), floats(3, 12)),
    "materialised": (nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)), floats(3, 7, 2)),
    "shared": (Shared(nn.Linear(4, 4)), floats(4)),
    "shared sequence": (Shared(nn.Linear(4, 4)), floats(3, 4)),
    "conv1d": (nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 2, 2)), floats(3, 9)),
    "conv2d": (nn.Conv2d(3, 4, 3, padding=1), floats(3, 6, 5)),
    "stride": (nn.Conv2d(3, 4, (3, 2), stride=(2, 3), padding=(2, 0)), floats(3, 8, 7)),
    "groups": (nn.Conv2d(6, 4, 3, groups=2, dilation=(1, 2), bias=False), floats(6, 7, 8)),
    "depthwise": (nn.Conv2d(4, 8, 3, groups=4, padding=1), floats(4, 5, 5)),
    "same": (nn.Conv2d(2, 3, (4, 3), padding="same", dilation=2), floats(2, 9, 9)),
    "valid": (nn.Conv1d(2, 3, 4, padding="valid"), floats(2, 9)),
    "reflect": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), floats(2, 5, 5)),
    "circular": (nn.Conv1d(2, 3, 3, padding=2, padding_mode="circular"), floats(2, 5)),
    "conv gram": (nn.Conv2d(8, 9, 3, stride=2), floats(8, 5, 5)),
    "conv3d": (nn.Conv3d(2, 4, 2, padding=1, groups=2, stride=2), floats(2, 4, 3, 5)),
    "shared conv": (Shared(nn.Conv2d(2, 2, 3, padding=1)), floats(2, 4, 4)),
    "layer norm": (nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)), floats(4)),
    "layer norm 2": (nn.LayerNorm((3, 4)), floats(2, 3, 4)),
    "layer norm no bias": (nn.LayerNorm(4, bias=False), floats(2, 4)),
    "layer norm plain": (
        nn.Sequential(nn.LayerNorm(4, elementwise_affine=False), nn.Linear(4, 2)),
        floats(4),
    ),
    "rms norm": (nn.Sequential(nn.Linear(4, 6), nn.RMSNorm(6)), floats(3, 4)),
    "group norm": (nn.Sequential(nn.Conv1d(2, 4, 2), nn.GroupNorm(2, 4)), floats(2, 6)),
    "group norm flat": (nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(3, 6)), floats(4)),
    "instance norm": (
        nn.Sequential(nn.Conv2d(2, 4, 2), nn.InstanceNorm2d(4, affine=True)),
        floats(2, 5, 5),
    ),
    "instance norm 1": (nn.InstanceNorm1d(3, affine=True), floats(3, 5)),
    "instance norm 3": (nn.InstanceNorm3d(2, affine=True), floats(2, 3, 3, 2)),
    "embedding": (nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)), tokens(7)),
    "embedding one": (nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)), tokens()),
    "embedding padded": (nn.Embedding(9, 4, padding_idx=3), tokens(8)),
    "embedding sparse": (nn.Embedding(9, 4, sparse=True), tokens(3, 4)),
    "shared embedding": (
        nn.Sequential(nn.Embedding(9, 4), Shared(nn.LayerNorm(4))),
        tokens(5),
    ),
    "tied": (Tied(), tokens(5)),
    "tied layers": (TiedLayers(), floats(4)),
    "language model": (LanguageModel(), tokens(5)),
    "language model, padded": (LanguageModel(padding=3), tokens(5)),
    "language model, no look-up": (LanguageModel(cut="into"), tokens(5)),
    "owner": (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Scale()), floats(4)),
    "prelu": (nn.Sequential(nn.Linear(4, 4), nn.PReLU()), floats(4)),
    "bilinear free": (nn.Sequential(nn.ConvTranspose1d(2, 3, 2), nn.Tanh()), floats(2, 5)),
    "weight norm": (
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
        floats(4),
    ),
    "attention": (Attention(batch_first=True), floats(5, 4)),
    "transformer": (
        nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True),
        floats(5, 4),
    ),
}

BOOK_KEPT |= {
    "lstm": (Recurrent(nn.LSTM), floats(5, 4)),
    "gru": (Recurrent(nn.GRU), floats(5, 4)),
    "rnn": (Recurrent(nn.RNN), floats(5, 4)),
    "rnn, rectified": (Recurrent(nn.RNN, nonlinearity="relu"), floats(5, 4)),
    "lstm, layers both ways": (Recurrent(nn.LSTM, num_layers=2, bidirectional=True), floats(3, 4)),
    "lstm, projected": (Recurrent(nn.LSTM, proj_size=2, num_layers=2), floats(3, 4)),
    "gru, layers without bias": (Recurrent(nn.GRU, num_layers=2, bias=False), floats(3, 4)),
    "gru, both ways": (Recurrent(nn.GRU, bidirectional=True), floats(ROWS, 4)),
    "learned start": (LearnedStart(), floats(5, 4)),
    "lstm cell": (CellByCell(nn.LSTMCell), floats(3, 4)),
    "gru cell": (CellByCell(nn.GRUCell), floats(3, 4)),
    "rnn cell": (CellByCell(nn.RNNCell), floats(3, 4)),
    "products": (Products(), floats(4)),
    "products over positions": (Products(), floats(3, 4)),
    "positions": (Positions(), tokens(5)),
    "positions, their own": (Positions(own=True), tokens(5)),
    "attention, other way": (Attention(batch_first=False), floats(5, 4)),
    "attention, as long as wide": (Attention(batch_first=False), floats(ROWS, 4)),
    "other way": (OtherWay(), floats(5, 4)),
    "other way, as long as wide": (OtherWay(), floats(ROWS, 4)),
    "behind": (Behind(), floats(4)),
    "overwritten": (Overwritten(), floats(4)),
    "class token": (Token(), floats(5, 4)),
    "picked": (Picked(), tokens(3)),
}

ALONE = {
    "repeats": (Repeats(), floats(4)),
}


def middle(norms: torch.Tensor) -> float:
    """A clip norm that clips about half of the examples."""
    return float(norms.median()) * 1.01


def assert_same(naive, module, loss, batch, clip_norm: float, rtol: float = 3e-6) -> None:
    sums, dropped = clipped_sum(module, loss, batch, clip_norm)
    expected = naive.clipped_sum(module, loss, batch, clip_norm)
    assert dropped == 0
    assert [part.shape for part in sums] == [
        p.shape for p in module.parameters() if p.requires_grad
    ]
    # Clipping overstates norms by a millionth.
    assert (naive.flat(sums) - expected).abs().max() <= rtol * len(batch[0]) * clip_norm


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", BOOK_KEPT)
def test_book_keeping_equals_the_loop(naive, name):
    module, inputs = BOOK_KEPT[name]
    module = module.double()
    norms = naive.gradients(module, naive.squared, (inputs,)).norm(dim=1)
    assert clipper("test", module, naive.squared, (inputs,)).book_kept
    for clip_norm in (middle(norms), float(norms.max()) * 2):
        assert_same(naive, module, naive.squared, (inputs,), clip_norm)


WRITTEN = {
    **dict.fromkeys(("lstm", "gru", "rnn", "lstm, layers both ways", "lstm, projected"), ()),
    **dict.fromkeys(("tied", "language model", "language model, padded"), ()),
    **dict.fromkeys(("lstm cell", "gru cell", "attention", "transformer", "positions"), ()),
    "positions, their own": (),
    "products": ("addmm",),  # with a factor
    "learned start": ("expand",),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_gradients_of_known_layers_are_not_written_out(naive, name):
    module, inputs = BOOK_KEPT[name]
    way = clipper("test", module.double(), naive.squared, (inputs,)).prepare(ROWS)
    assert tuple(name_of(site.node) for site in way.written) == WRITTEN[name]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ALONE)
def test_what_cannot_be_book_kept_is_differentiated_alone(naive, name):
    module, inputs = ALONE[name]
    module = module.double()
    norms = naive.gradients(module, naive.squared, (inputs,)).norm(dim=1)
    assert not clipper("test", module, naive.squared, (inputs,)).book_kept
    assert_same(naive, module, naive.squared, (inputs,), middle(norms))


@pytest.mark.parametrize("name", ["mlp", "gram", "materialised", "conv2d", "attention", "owner"])
def test_float32_agrees_too(naive, name):
    module, inputs = BOOK_KEPT[name]
    module, inputs = module.float(), inputs.float()
    norms = naive.gradients(module, naive.squared, (inputs,)).norm(dim=1)
    assert_same(naive, module, naive.squared, (inputs,), middle(norms), rtol=1e-4)
    module.double()


@pytest.mark.heavy
@settings(max_examples=25, deadline=None)
@given(
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2, 4]),
    size=st.integers(5, 8),
    clip_norm=st.floats(0.01, 100),
)
def test_any_convolution(naive, kernel, stride, padding, dilation, groups, size, clip_norm):
    module = nn.Conv2d(
        4, 4, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups
    ).double()
    assert_same(naive, module, naive.squared, (floats(4, size, size),), clip_norm)


@pytest.mark.heavy
@settings(max_examples=25, deadline=None)
@given(
    positions=st.integers(1, 6),
    wide=st.integers(1, 9),
    high=st.integers(1, 9),
    calls=st.integers(1, 3),
    clip_norm=st.floats(0.01, 100),
)
def test_any_linear_layer_called_any_number_of_times(
    naive, positions, wide, high, calls, clip_norm
):
    module = nn.Linear(wide, high).double()
    inputs = floats(calls, positions, wide)

    def loss(module, x):
        return sum(torch.tanh(module(part)).flatten(1).sum(1) for part in x.unbind(1))

    assert_same(naive, module, loss, (inputs,), clip_norm)


def test_cancelling_positions_do_not_understate_a_norm():
    # The gradients at two positions cancel but for a millionth: where inner products are summed
    # in float32, rounding alone is larger than what is left.
    torch.manual_seed(1)
    inputs = torch.randn(200, 1, 30)
    outputs = torch.randn(200, 1, 30) * 100
    shift = torch.randn(200, 1, 30) * 1e-4
    a = torch.cat([inputs, inputs + shift], 1)
    g = torch.cat([outputs, -outputs], 1)
    true = torch.einsum("ntp,ntq->npq", a.double(), g.double()).flatten(1).square().sum(1)
    assert (outer_norms(a, g, len(a)) >= true).all()
    plain = ((a @ a.transpose(1, 2)) * (g @ g.transpose(1, 2))).flatten(1).sum(1)
    assert (plain < true).any()  # what is added is needed


@pytest.mark.parametrize("size", [1e-25, 1e-15, 1.0, 1e15])
def test_squared_norms_are_rounded_up(size):
    rows = torch.rand(50, 1001) * size
    true = rows.double().square().sum(1)
    assert (squares(rows) >= true).all()
    assert (squares(rows) <= true * 1.001 + 1e-34).all()


@pytest.mark.parametrize("count", [512, 513, 1500, 300_000])
def test_long_norms_are_overstated_by_little(count):
    rows = torch.randn(3, count)
    true = rows.double().square().sum(1)
    found = squares(rows)
    assert (found >= true).all()
    assert (found <= true * (1 + 8e-5)).all()


@pytest.mark.parametrize("shape", [(32, 40, 50), (128, 300, 700), (500, 9, 16), (100, 60, 10)])
def test_norms_over_positions_are_overstated_by_little(shape):
    positions, wide, high = shape
    inputs, outputs = torch.randn(2, positions, wide), torch.randn(2, positions, high)
    products = outputs.double().transpose(1, 2) @ inputs.double()
    true = products.flatten(1).square().sum(1)
    found = outer_norms(inputs, outputs, 2)
    assert (found >= true).all()
    assert (found <= true * (1 + 2e-4)).all()


@pytest.mark.heavy
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_clipped_gradient_is_longer_than_the_clip_norm(naive, dtype):
    module = nn.Sequential(nn.Linear(50, 40), nn.ReLU(), nn.Linear(40, 10)).to(dtype)
    inputs = torch.randn(40, 50, dtype=dtype) * 10
    for i in range(40):
        sums, _ = clipped_sum(module, naive.squared, inputs[i : i + 1], 0.7)
        norm = float(naive.flat(sums).double().norm())
        assert 0.7 * (1 - 1e-4) <= norm <= 0.7


def test_clipping_is_per_example_and_not_of_the_mean(naive):
    """A mutant that clips the sum is far away, and moves by more than C with one record."""
    module, inputs = BOOK_KEPT["mlp"][0].double(), floats(4)
    rows = naive.gradients(module, naive.squared, (inputs,))
    clip_norm = middle(rows.norm(dim=1))
    total = rows.sum(0)
    mutant = total * min(1.0, len(rows) * clip_norm / float(total.norm()))
    sums, _ = clipped_sum(module, naive.squared, inputs, clip_norm)
    assert (naive.flat(sums) - mutant).norm() > 0.1 * clip_norm

    def grown(factor):
        changed = torch.cat([inputs[:1] * factor, inputs[1:]])
        return naive.gradients(module, naive.squared, (changed,)).sum(0) - rows[1:].sum(0)

    # Rectified units may all be off for one of the two signs, never for both.
    factor = max(1e3, -1e3, key=lambda one: float(grown(one).norm()))
    assert grown(factor).norm() > 10 * clip_norm
    inputs[0] *= factor
    for one in range(len(inputs)):
        others = torch.cat([inputs[:one], inputs[one + 1 :]])
        with_it, _ = clipped_sum(module, naive.squared, inputs, clip_norm)
        without, _ = clipped_sum(module, naive.squared, others, clip_norm)
        assert (naive.flat(with_it) - naive.flat(without)).norm() <= clip_norm * (1 + 1e-9)


def test_frozen_parameters_are_neither_counted_nor_touched(naive):
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.LayerNorm(3)).double()
    module[0].weight.requires_grad_(False)
    module[2].bias.requires_grad_(False)
    module[3].weight.requires_grad_(False)
    inputs = floats(4)
    norms = naive.gradients(module, naive.squared, (inputs,)).norm(dim=1)
    assert_same(naive, module, naive.squared, (inputs,), middle(norms))
    flags = [p.requires_grad for p in module.parameters()]
    assert flags == [False, True, True, False, False, True]


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", ["mlp", "conv2d", "gram", "attention", "owner", "layer norm"])
def test_micro_batches_give_the_same(naive, name):
    module, inputs = BOOK_KEPT[name][0].double(), BOOK_KEPT[name][1]
    whole, _ = clipped_sum(module, naive.squared, inputs, 0.5)
    for size in (1, 4, 100):
        parts, _ = clipped_sum(module, naive.squared, inputs, 0.5, microbatch=size)
        assert torch.allclose(naive.flat(parts), naive.flat(whole), atol=1e-12)


def test_an_empty_batch_sums_to_zero(naive):
    module = BOOK_KEPT["mlp"][0].double()
    sums, dropped = clipped_sum(module, naive.squared, floats(4)[:0], 1.0)
    assert dropped == 0
    assert not naive.flat(sums).any()


@pytest.mark.quick(8)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300])
@pytest.mark.parametrize("name", ["mlp", "gram", "conv2d", "layer norm", "owner", "repeats"])
def test_an_example_that_is_not_finite_contributes_nothing(naive, name, value):
    module, inputs = ({**ALONE, **BOOK_KEPT})[name]
    module, inputs = module.double(), inputs.clone()
    inputs[2].view(-1)[0] = value
    others = torch.cat([inputs[:2], inputs[3:]])
    sums, dropped = clipped_sum(module, naive.squared, inputs, 0.5)
    expected, none = clipped_sum(module, naive.squared, others, 0.5)
    if name in ("layer norm", "repeats") and value == 1e300:
        return  # normalised, or saturated, and quite finite
    assert (dropped, none) == (1, 0)
    assert torch.allclose(naive.flat(sums), naive.flat(expected), rtol=1e-12, atol=1e-12)


def test_a_loss_that_is_not_finite_drops_its_example_alone(naive):
    module, inputs = BOOK_KEPT["mlp"][0].double(), floats(4)

    def loss(module, x, poison):
        return naive.squared(module, x) / poison

    poison = torch.ones(ROWS, dtype=torch.float64)
    poison[4] = 0
    sums, dropped = clipped_sum(module, loss, (inputs, poison), 0.5)
    others = torch.cat([inputs[:4], inputs[5:]])
    expected, _ = clipped_sum(module, naive.squared, others, 0.5)
    assert dropped == 1
    assert torch.allclose(naive.flat(sums), naive.flat(expected), atol=1e-12)


@pytest.mark.parametrize("bad", [-1, 9, 10**6])
@pytest.mark.parametrize("name", ["embedding", "picked"])
def test_an_example_on_which_an_operator_raises_contributes_nothing(naive, name, bad):
    """What one record raises would tell of it."""
    module, inputs = BOOK_KEPT[name][0].double(), BOOK_KEPT[name][1].clone()
    expected, _ = clipped_sum(module, naive.squared, torch.cat([inputs[:2], inputs[3:]]), 0.5)
    inputs[2, -1] = bad
    sums, dropped = clipped_sum(module, naive.squared, inputs, 0.5)
    assert dropped == 1
    assert torch.allclose(naive.flat(sums), naive.flat(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.heavy
def test_blank_slots_count_for_nothing(naive):
    for name, (module, inputs) in {**BOOK_KEPT, **ALONE}.items():
        if inputs.is_floating_point() and name != "embedding":
            made = clipper("test", module.double(), naive.squared, (inputs,))
            there = torch.tensor([True, False, True, True, False, True])
            sums, dropped = made.sums((inputs.clone(),), 0.5, present=there)
            expected = naive.clipped_sum(module, naive.squared, (inputs[there],), 0.5)
            assert dropped == 0
            assert torch.allclose(sums, expected, atol=1e-5), name


def test_embedded_example_with_a_bad_weight_is_dropped(naive):
    module, inputs = BOOK_KEPT["embedding"][0].double(), tokens(7, most=8)
    with torch.no_grad():
        module[0].weight[8] = float("nan")
    inputs[1, 0] = 8
    sums, dropped = clipped_sum(module, naive.squared, inputs, 0.5)
    expected, _ = clipped_sum(module, naive.squared, torch.cat([inputs[:1], inputs[2:]]), 0.5)
    with torch.no_grad():
        module[0].weight[8] = 0
    assert dropped == 1
    assert torch.allclose(naive.flat(sums), naive.flat(expected), atol=1e-12)


def test_everything_is_put_back_even_after_an_error(naive):
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    module[2].bias.requires_grad_(False)
    flags = [p.requires_grad for p in module.parameters()]
    inputs, calls = floats(4), []

    def failing(module, x):
        calls.append(len(x))
        value = naive.squared(module, x)
        if len(calls) > 3:
            raise KeyError("on purpose")
        return value

    with pytest.raises(KeyError):
        clipped_sum(module, failing, inputs, 1.0)
    assert [p.requires_grad for p in module.parameters()] == flags
    assert not any(layer._forward_hooks for layer in module.modules())
    assert all(p.grad is None for p in module.parameters())


def test_dropout_is_the_modules_own_affair():
    module = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3)).double()
    inputs, state = floats(4), torch.get_rng_state()
    made = clipper("test", module, lambda m, x: m(x).sum(1), (inputs,))
    assert made.book_kept
    assert torch.equal(torch.get_rng_state(), state)  # the checks leave no trace


def test_nothing_is_said_where_vmap_is_slow(naive):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module, inputs = BOOK_KEPT["attention"]
        clipped_sum(module.double(), naive.squared, inputs, 1.0)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), "GroupNorm"),
        (nn.Sequential(nn.Linear(4, 4), nn.SyncBatchNorm(4)), "GroupNorm"),
        (nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True), nn.Linear(4, 4)), "running"),
        (nn.Linear(4, 4).requires_grad_(False), "require a gradient"),
        (nn.Linear(4, 4).half(), "float32 or float64"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).double()), "one type"),
    ],
    ids=["batch", "sync", "instance", "frozen", "half", "mixed"],
)
def test_modules_that_are_refused(naive, module, words):
    inputs = torch.randn(ROWS, 4)
    with pytest.raises(InvalidParameter, match=words) as caught:
        clipped_sum(module, naive.squared, inputs, 1.0)
    assert "\n" not in str(caught.value)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", ["mlp", "conv2d", "embedding", "owner", "shared", "attention"])
def test_nothing_of_what_memory_held_before_is_left(naive, monkeypatch, name):
    """Sums start in memory that nobody has cleared."""
    module, inputs = BOOK_KEPT[name]
    made = clipper("test", module.double(), naive.squared, (inputs,))
    clean = made.sums((inputs,), 0.5)[0]
    original = made._empty
    monkeypatch.setattr(made, "_empty", lambda: original().fill_(float("nan")))
    for microbatch in (None, 2):
        assert torch.allclose(made.sums((inputs,), 0.5, microbatch)[0], clean, atol=1e-12)
    total = Total(module, naive.squared)
    made._ways = {ROWS: Alone(total, made.trained, (inputs[:1],))}
    assert torch.allclose(made.sums((inputs,), 0.5)[0], clean, atol=1e-5)
    assert not made.sums((inputs[:0],), 0.5)[0].any()
