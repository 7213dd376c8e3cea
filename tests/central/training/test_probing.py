"""What is refused before a record is looked at, and that it is refused without looking."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import checkpoint

from tacit.central.training import clipped_sum
from tacit.privacy.errors import InvalidData, InvalidParameter

INPUTS = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def refused(module, loss, data=INPUTS, clip_norm=1.0) -> str:
    with pytest.raises((InvalidParameter, InvalidData)) as caught:
        clipped_sum(module, loss, data, clip_norm)
    message = str(caught.value)
    assert message.startswith("clipped_sum: ")
    assert "\n" not in message
    return message


class Counts(nn.Module):
    """Keeps a running mean: data would leave without noise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean += x.detach().mean(0)
        return self.layer(x)


class Packed(nn.Module):
    """A recurrent network that packs its rows by lengths that it reads off them."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.layer = nn.LSTM(1, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        lengths = (x > 0).sum(1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(
            x[:, :, None], lengths, batch_first=True, enforce_sorted=False
        )
        return self.layer(self.cells(packed)[1][0][-1])


def test_packed_sequences_are_refused_with_what_to_do_instead(naive):
    message = refused(Packed(), naive.squared)
    assert "Instead of pack_padded_sequence" in message
    assert "padded rows and mask" in message


class Mixed(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(4, 4), kind

    def forward(self, x):
        y = self.layer(x)
        match self.kind:
            case "centred":
                return y - y.mean(0)
            case "softmax":
                return torch.softmax(y, 0)
            case "flipped":
                return y + y.flip(0)
            case "gradient only":
                # Nothing of the others in the value, but in what is differentiated.
                return y + (y.mean(0) - y.mean(0).detach())
        raise AssertionError


@pytest.mark.parametrize("kind", ["centred", "softmax", "flipped"])
def test_a_loss_that_mixes_examples_is_refused(naive, kind):
    assert "depends on the others" in refused(Mixed(kind), naive.squared)


def test_a_contrastive_loss_is_refused():
    def loss(module, x):
        z = module(x)
        return nn.functional.cross_entropy(z @ z.T, torch.arange(len(x)), reduction="none")

    assert "depends on the others" in refused(nn.Linear(4, 4), loss)


def test_a_gradient_that_mixes_examples_never_counts_for_two(naive):
    """The value gives nothing away, so it is not refused; yet each record moves one share only."""
    module, clip_norm = Mixed("gradient only"), 0.5
    whole, _ = clipped_sum(module, naive.squared, INPUTS, clip_norm)
    less, _ = clipped_sum(module, naive.squared, INPUTS[1:], clip_norm)
    assert (naive.flat(whole) - naive.flat(less)).norm() <= clip_norm * (1 + 1e-6)


@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (lambda m, x: m(x).mean(), "()"),
        (lambda m, x: m(x), "(3, 2)"),
        (lambda m, x: m(x).sum(1, keepdim=True), "(3, 1)"),
        (lambda m, x: m(x)[:2].sum(1), "(2,)"),
    ],
    ids=["mean", "matrix", "column", "short"],
)
def test_a_loss_of_another_shape_is_refused_with_the_remedy(loss, shape):
    message = refused(nn.Linear(4, 2), loss)
    assert "reduction='none'" in message
    assert f"got {shape}" in message


def test_a_loss_that_is_no_tensor_is_refused():
    assert "a tensor" in refused(nn.Linear(4, 2), lambda m, x: 1.0)


def test_a_parameter_that_nothing_uses_is_named():
    module = nn.ModuleDict({"used": nn.Linear(4, 2), "spare": nn.Linear(4, 2)})
    message = refused(module, lambda m, x: m["used"](x).sum(1))
    assert "spare.weight" in message
    assert "requires_grad" in message


def test_a_loss_without_parameters_is_refused():
    assert "uses every parameter" in refused(nn.Linear(4, 2), lambda m, x: x.sum(1))


def test_buffers_that_change_are_refused_and_put_back(naive):
    module = Counts()
    assert "without noise" in refused(module, naive.squared)
    assert not module.mean.any()


@pytest.mark.parametrize("option", ["max_norm", "scale_grad_by_freq"])
def test_embeddings_that_look_at_other_examples_are_refused(naive, option):
    module = nn.Embedding(9, 4, **{option: True if option[0] == "s" else 1.0})
    assert option in refused(module, naive.squared, torch.randint(0, 9, (5, 3)))


@pytest.mark.parametrize("clip_norm", [0, -1, float("nan"), float("inf"), "x", None])
def test_clip_norms_that_are_none(naive, clip_norm):
    assert "clip_norm must be" in refused(nn.Linear(4, 2), naive.squared, clip_norm=clip_norm)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((INPUTS, INPUTS[:3]), "one length"),
        ((), "a tensor or a tuple"),
        ([[1.0]], "a tensor or a tuple"),
        (torch.tensor(1.0), "a tensor or a tuple"),
    ],
    ids=["lengths", "none", "lists", "scalar"],
)
def test_data_that_are_none(naive, data, words):
    assert words in refused(nn.Linear(4, 2), naive.squared, data)


def test_data_elsewhere_are_refused(naive):
    assert "device" in refused(nn.Linear(4, 2), naive.squared, torch.zeros(5, 4, device="meta"))


def test_python_never_sees_a_record(naive):
    """What the module's code runs on is the same whatever the data are: none of them are in it."""
    seen = []

    def loss(module, x):
        seen.append(x.detach())
        return naive.squared(module, x)

    for fill in (0.0, 7.0):
        clipped_sum(nn.Linear(4, 2), loss, torch.full((5, 4), fill), 1.0)
    half = len(seen) // 2
    fake = [isinstance(one, FakeTensor) for one in seen]
    assert fake[:half] == fake[half:]
    real = [one for one, is_fake in zip(seen, fake, strict=True) if not is_fake]
    assert all(map(torch.equal, real[: len(real) // 2], real[len(real) // 2 :]))
    assert not any((one == 7.0).all() for one in real)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.last, self.reentrant = nn.Linear(4, 6), nn.Linear(6, 3), reentrant

    def forward(self, x):
        return self.last(checkpoint(self.first, x.tanh(), use_reentrant=self.reentrant))


def test_gradient_checkpointing_does_not_change_a_sum(naive):
    module, inputs = Checkpointed(False), torch.randn(5, 4)
    sums, _ = clipped_sum(module, naive.squared, inputs, 0.5)
    expected = naive.clipped_sum(module, naive.squared, (inputs,), 0.5)
    assert (naive.flat(sums) - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_reentrant_checkpointing_is_refused_in_one_line(naive):
    module, inputs = Checkpointed(True), torch.randn(5, 4)
    for loss in (naive.squared, lambda m, x: naive.squared(m, x + 0 * m.last.bias.sum())):
        with pytest.raises(InvalidParameter, match=r"^clipped_sum: [^\n]* use_reentrant=False\.$"):
            clipped_sum(module, loss, inputs, 0.5)


def test_several_losses_are_one_number_per_example(naive):
    module, inputs = nn.Linear(4, 3), torch.randn(5, 4)
    with pytest.raises(InvalidParameter, match=r"loss must be a tensor, got 'tuple'\. Add up"):
        clipped_sum(module, lambda m, x: (m(x)[:, 0], m(x)[:, 1]), inputs, 0.5)

    def both(m, x):
        return naive.squared(m, x) + 0.1 * m(x)[:, 0].abs()

    expected = naive.clipped_sum(module, both, (inputs,), 0.5)
    found = naive.flat(clipped_sum(module, both, inputs, 0.5)[0])
    assert (found - expected).norm() <= 1e-4 * expected.norm()
