"""One step of DP-Adam on a device, beside plain Adam and Opacus: one JSON object on stdout.

    {"<case>": {"plain_ms", "ours_ms", "opacus_hooks_ms", "opacus_ghost_ms",
                "ours_mib", "plain_mib"}}

Cases are a small CNN, a WideResNet-16-4, a decoder transformer of 27 million parameters, a ViT and
the decoder with LoRA (`networks_gpu`). A step is forward pass, backward pass, clipping, noise and
the optimiser on a given batch, without sampling. Our noise is drawn by ChaCha20 on a GPU
(`DeviceStream`; --noise device), and by AES on the CPU (--noise host). That of Opacus is torch's
generator's.

All contenders of a case take turns in one process; a time is the median of the turns, with a
synchronisation before and after. MiB are peak memory above that before the contender's own steps,
with its module and optimiser in place: of torch's allocator on CUDA, of the resident set on a CPU
(where memory that was freed before can hide some). What a contender refuses or cannot run is null,
with the reason on stderr. Before a case is timed, ours and Opacus' clipped sums of four examples
are compared with the naive loop.

    python benchmarks/private_step_gpu.py --device cuda
    python benchmarks/private_step_gpu.py --device cpu --sizes tiny --turns 3

Opacus is installed in `.bench/opacus` on first use, as by `private_step.py`.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

from peers import say
from private_step import CLIP_NORM, MULTIPLIER, RATE, in_environment, resident

Step = Callable[[], object]
TOLERANCE = 1e-4


def adam(module: Any, device: Any) -> Any:
    import torch

    trained = [one for one in module.parameters() if one.requires_grad]
    return torch.optim.Adam(trained, lr=RATE, fused=device.type in ("cpu", "cuda"))


def plain(module: Any, batch: Any, noise: str) -> tuple[Step, Step | None]:
    from networks_gpu import losses

    optimizer = adam(module, batch[0].device)

    def step() -> None:
        optimizer.zero_grad()
        losses(module(batch[0]), batch[1]).mean().backward()
        optimizer.step()

    return step, None


def ours(module: Any, batch: Any, noise: str) -> tuple[Step, Step | None]:
    from tacit.private_training import DeviceStream, Noise, probing
    from tacit.private_training.gradients import NoisyGradients
    from tacit.private_training.schedule import Schedule
    from tacit.randomness import Keystream

    from networks_gpu import losses

    def loss(inner: Any, inputs: Any, targets: Any) -> Any:
        return losses(inner(inputs), targets)

    clipper = probing.clipper("benchmark", module, loss, batch)
    plan = Schedule(100 * len(batch[0]), 2**32 // 100, 1, Fraction(MULTIPLIER))
    stream = DeviceStream() if noise == "device" else Keystream()
    gradients = NoisyGradients(clipper, batch, Noise(MULTIPLIER, stream), plan, CLIP_NORM)
    optimizer = adam(module, batch[0].device)

    def step() -> None:
        clipper.give(gradients.of(batch))
        optimizer.step()
        clipper.take_back()

    return step, lambda: clipper.sums(batch, CLIP_NORM)[0]


def opacus_hooks(module: Any, batch: Any, noise: str) -> tuple[Step, Step | None]:
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    from networks_gpu import losses

    wrapped = GradSampleModule(module, loss_reduction="sum")
    optimizer = DPOptimizer(
        adam(wrapped, batch[0].device),
        noise_multiplier=MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(batch[0]),
        loss_reduction="sum",
    )

    def backward() -> None:
        optimizer.zero_grad()
        losses(wrapped(batch[0]), batch[1]).sum().backward()

    def step() -> None:
        backward()
        optimizer.step()

    def sums() -> Any:
        backward()
        optimizer.clip_and_accumulate()
        trained = [one for one in wrapped.parameters() if one.requires_grad]
        summed = torch.cat([one.summed_grad.flatten() for one in trained])
        optimizer.zero_grad()
        return summed

    return step, sums


def opacus_ghost(module: Any, batch: Any, noise: str) -> tuple[Step, Step | None]:
    import torch
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(
        module, max_grad_norm=CLIP_NORM, use_ghost_clipping=True, loss_reduction="sum"
    )
    optimizer = DPOptimizerFastGradientClipping(
        adam(wrapped, batch[0].device),
        noise_multiplier=MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(batch[0]),
        loss_reduction="sum",
    )
    criterion = DPLossFastGradientClipping(wrapped, optimizer, _PerExample(), loss_reduction="sum")

    def backward() -> None:
        optimizer.zero_grad()
        criterion(wrapped(batch[0]), batch[1]).backward()

    def step() -> None:
        backward()
        optimizer.step()

    def sums() -> Any:
        backward()
        optimizer.accumulate()
        trained = [one for one in wrapped.parameters() if one.requires_grad]
        summed = torch.cat([one.summed_grad.flatten() for one in trained])
        optimizer.zero_grad()
        return summed

    return step, sums


class _PerExample:
    """The criterion that Opacus asks for one number per example."""

    def __init__(self) -> None:
        self.reduction = "sum"  # Opacus compares it with its own, and sets it to "none"

    def __call__(self, outputs: Any, targets: Any) -> Any:
        from networks_gpu import losses

        return losses(outputs, targets)


CONTENDERS = {
    "plain": plain,
    "ours": ours,
    "opacus_hooks": opacus_hooks,
    "opacus_ghost": opacus_ghost,
}


def built(case: Any, name: str, device: Any, noise: str, most: int | None = None) -> Any:
    """Build a contender on the case's network and batch, which are the same for all."""
    import torch

    torch.manual_seed(0)
    module = case.network().to(device)
    torch.manual_seed(1)
    batch = tuple(part()[:most].to(device) for part in (case.inputs, case.targets))
    return CONTENDERS[name](module, batch, noise), module, batch


def naive(module: Any, batch: Any) -> Any:
    """Sum clipped gradients one example after another."""
    import torch

    from networks_gpu import losses

    trained, total = [one for one in module.parameters() if one.requires_grad], 0
    for i in range(len(batch[0])):
        value = losses(module(batch[0][i : i + 1]), batch[1][i : i + 1]).sum()
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(value, trained)])
        total = total + gradient * (CLIP_NORM / gradient.norm()).clamp(max=1)
    return total


def difference(case: Any, name: str, device: Any) -> float:
    """Return the largest difference from the naive sum, over its norm."""
    (_, sums), module, batch = built(case, name, device, "host", most=4)
    if sums is None:
        return 0.0
    found = sums()
    expected = naive(built(case, "plain", device, "host", most=4)[1], batch)
    del module
    return float((found - expected).abs().max() / expected.norm())


def peak(step: Step, device: Any) -> float:
    """Return the MiB that a few steps take above what is there before."""
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    else:
        Path("/proc/self/clear_refs").write_text("5")  # reset the high-water mark
        before = resident("VmRSS")
    for _ in range(2):
        step()
    if device.type == "cuda":
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    return (resident("VmHWM") - before) / 2**20


def milliseconds(step: Step, device: Any) -> float:
    import torch

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    wait()
    start = time.perf_counter()
    step()
    wait()
    return 1e3 * (time.perf_counter() - start)


def measured(name: str, case: Any, device: Any, noise: str, turns: int) -> dict[str, Any]:
    """Measure one case: all contenders that run, in turns."""
    steps: dict[str, Step] = {}
    memory: dict[str, float] = {}
    for one in CONTENDERS:
        try:
            off = difference(case, one, device)
            if not off < TOLERANCE:
                raise AssertionError(f"its clipped sum is off by {off:.1e} of the norm")
            steps[one] = built(case, one, device, noise)[0][0]
            steps[one]()
            memory[one] = peak(steps[one], device)
        except Exception as error:
            steps.pop(one, None)
            first = (str(error).strip().splitlines() or [""])[0][:200]
            say(f"{name}: {one}: {type(error).__name__}: {first}")
    times: dict[str, list[float]] = {one: [] for one in steps}
    for turn in range(-1, turns):
        for one, step in steps.items():
            taken = milliseconds(step, device)
            if turn >= 0:
                times[one].append(taken)
    found = {
        f"{one}_ms": rounded(median(times[one])) if one in times else None for one in CONTENDERS
    }
    return found | {f"{one}_mib": rounded(memory.get(one)) for one in ("ours", "plain")}


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def main() -> None:
    from networks_gpu import CASES, TINY

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda", help="a device of torch, such as cuda or cpu")
    parser.add_argument("--sizes", choices=("full", "tiny"), default="full")
    parser.add_argument("--cases", default=",".join(CASES), help="names, with commas between")
    parser.add_argument("--noise", choices=("device", "host"), help="where it is drawn")
    parser.add_argument("--turns", type=int, default=20)
    arguments = parser.parse_args()
    in_environment()
    import torch

    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # of Opacus
    device = torch.device(arguments.device)
    known = CASES if arguments.sizes == "full" else TINY
    noise = arguments.noise or ("host" if device.type == "cpu" else "device")
    wanted = arguments.cases.split(",")
    if unknown := [one for one in wanted if one not in known]:
        sys.exit(f"private_step_gpu: --cases must be among {', '.join(known)}, got {unknown[0]}.")
    print(
        json.dumps(
            {name: measured(name, known[name], device, noise, arguments.turns) for name in wanted},
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
