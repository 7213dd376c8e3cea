"""The loop within Lightning and within transformers' `Trainer`, as the page shows it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.central.training import TrainingLoop

PAGE = Path(__file__).parents[3] / "docs" / "private_training.md"
GIVEN: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-5, "accountant": "rdp", "batch_size": 200}


def data() -> tuple[Tensor, Tensor]:
    inputs = torch.randn(2000, 8, generator=torch.Generator().manual_seed(1))
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()


def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(module(x), y, reduction="none")


def shown(name: str) -> dict[str, Any]:
    """What the page's code for this class defines."""
    (code,) = (
        block
        for block in re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        if f"class {name}(" in block
    )
    names: dict[str, Any] = {"torch": torch, "nn": nn}
    exec(code.partition("\n\n\n# ")[0], names)
    return names


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def learned(module: nn.Module) -> float:
    inputs, labels = data()
    return float((module(inputs).argmax(1) == labels).float().mean())


def watched(loop: TrainingLoop, optimizer_steps: list[int]) -> None:
    """Every gradient that is drawn is taken by a step of the optimiser, before the next one."""
    draw = loop._gradients.draw

    def drawn() -> Tensor:
        assert len(optimizer_steps) == loop.step - 1
        return draw()

    loop._gradients.draw = drawn  # type: ignore[method-assign]


def counting(steps: list[int]) -> type[torch.optim.Optimizer]:
    class Counting(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            found = super().step(closure)
            steps.append(len(steps))
            return found

    return Counting


def test_lightning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning = pytest.importorskip("lightning")
        module, steps = net(), list[int]()
        loop = TrainingLoop(module, data(), loss, **GIVEN, epochs=8)
        watched(loop, steps)
        made = shown("Private")["Private"](module, loop)
        optimizer = counting(steps)(module.parameters(), lr=0.03)
        made.configure_optimizers = lambda: optimizer
        trainer = lightning.Trainer(
            max_epochs=1, default_root_dir=tmp_path, logger=False, accelerator="cpu",
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(made)
    assert loop.step == loop.steps == len(steps)
    assert learned(module) > 0.85


def test_trainer(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
        pytest.importorskip("accelerate")
        module, steps = net(), list[int]()
        loop = TrainingLoop(module, data(), loss, **GIVEN, epochs=8)
        watched(loop, steps)
        optimizer = counting(steps)(module.parameters(), lr=0.03)
        rates = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, loop.steps)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=loop.steps, max_grad_norm=0.0, use_cpu=True,
            report_to=[], save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        made = shown("PrivateTrainer")["PrivateTrainer"](
            model=module, args=arguments, optimizers=(optimizer, rates)
        )
        made.loop = loop
        made.train()
    assert loop.step == loop.steps == len(steps)
    assert learned(module) > 0.85
