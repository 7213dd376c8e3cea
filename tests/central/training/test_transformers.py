"""Networks of transformers, whole and with LoRA: book-kept, and summed like the naive loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.central.training import clipped_sum, train
from tacit.central.training.operators import name_of
from tacit.central.training.probing import clipper
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded

transformers: Any = pytest.importorskip("transformers", exc_type=ImportError)
peft: Any = pytest.importorskip("peft", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

ROWS, WORDS, KINDS = 7, 30, 3
SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def gpt2() -> nn.Module:
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": WORDS}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **drops, **ends))


def bert() -> nn.Module:
    settings = {"vocab_size": WORDS, "max_position_embeddings": 16, "num_labels": KINDS}
    config = transformers.BertConfig(**settings, **SMALL, **STILL)
    return transformers.BertForSequenceClassification(config)


def vit() -> nn.Module:
    settings = {"image_size": 8, "patch_size": 4, "num_labels": KINDS}
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**settings, **SMALL, **STILL)
    )


def next_word(module: nn.Module, words: Tensor) -> Tensor:
    scores = module(input_ids=words).logits[:, :-1].transpose(1, 2)
    return F.cross_entropy(scores, words[:, 1:], reduction="none").mean(1)


def of_words(module: nn.Module, words: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(module(input_ids=words).logits, labels, reduction="none")


def of_pixels(module: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(module(pixel_values=pixels).logits, labels, reduction="none")


Case = tuple[Callable[[], nn.Module], Callable[..., Tensor], list[str]]
CASES: dict[str, Case] = {
    "gpt2": (gpt2, next_word, ["c_attn", "c_fc"]),
    "bert": (bert, of_words, ["query", "value"]),
    "vit": (vit, of_pixels, ["q_proj", "v_proj"]),
}


def batch_of(name: str) -> tuple[Tensor, ...]:
    words, labels = torch.randint(0, WORDS, (ROWS, 6)), torch.randint(0, KINDS, (ROWS,))
    pixels = torch.randn(ROWS, 3, 8, 8)
    return {"gpt2": (words,), "bert": (words, labels), "vit": (pixels, labels)}[name]


def made(name: str, lora: bool) -> nn.Module:
    make, _, targets = CASES[name]
    if not lora:
        return make()
    config = peft.LoraConfig(r=2, target_modules=targets, fan_in_fan_out=name == "gpt2")
    return peft.get_peft_model(make(), config)


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_sums_equal_the_loop(naive, name, lora):
    module, loss, batch = made(name, lora), CASES[name][1], batch_of(name)
    if lora:
        for key, one in module.named_parameters():
            if "lora_B" in key:
                nn.init.normal_(one)  # zeros at first, so that A has no gradient
    found = clipper("test", module, loss, batch)
    assert found.book_kept
    rows = naive.gradients(module, loss, batch)
    clip_norm = float(rows.norm(dim=1).median())
    expected = naive.clipped_sum(module, loss, batch, clip_norm)
    sums, dropped = found.sums(tuple(part.clone() for part in batch), clip_norm)
    assert dropped == 0
    assert (sums - expected).norm() <= 1e-4 * expected.norm()


def test_what_is_written_out():
    """Layers are not, nor is the table that is input and output; what is added is."""
    written = {
        name: [name_of(site.node) for site in clipper("test", made(name, lora), CASES[name][1],
               batch_of(name)).prepare(ROWS).written]
        for name, lora in (("gpt2", False), ("bert", False), ("vit", False))
    }  # fmt: skip
    assert written["bert"] == written["gpt2"] == []
    assert sorted(written["vit"]) == ["add", "expand"]


@pytest.mark.parametrize("name", CASES)
def test_lora_trains_its_adapters_alone(name):
    module, loss, data = made(name, True), CASES[name][1], batch_of(name)
    before = {key: one.detach().clone() for key, one in module.named_parameters()}
    trained = train(module, data, loss, epsilon=8.0, delta=1e-3, batch_size=ROWS, steps=2,
                    learning_rate=0.1, accountant="rdp", rng=Seeded(1))  # fmt: skip
    assert trained.steps == 2
    for key, one in module.named_parameters():
        assert torch.equal(one, before[key]) == (not one.requires_grad), key
        assert one.requires_grad == ("lora_" in key)


def test_a_parameter_that_the_loss_does_not_use_is_refused():
    module = made("bert", True)
    module.register_parameter("idle", nn.Parameter(torch.zeros(2)))
    with pytest.raises(InvalidParameter, match="loss uses every parameter, got 'idle'"):
        clipped_sum(module, of_words, batch_of("bert"), 1.0)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_gradient_checkpointing_does_not_change_a_sum(naive, name):
    module, loss, batch = made(name, False), CASES[name][1], batch_of(name)
    expected = naive.clipped_sum(module, loss, batch, 0.5)
    module.gradient_checkpointing_enable()
    module.train()
    sums, _ = clipped_sum(module, loss, batch, 0.5)
    assert (naive.flat(sums) - expected).norm() <= 1e-4 * expected.norm()
    module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    with pytest.raises(InvalidParameter, match=r"^clipped_sum: [^\n]* use_reentrant=False\.$"):
        clipped_sum(module, loss, batch, 0.5)
