"""One step of DP-Adam over one of plain Adam, compared with Opacus: one JSON object on stdout.

A step is forward pass, backward pass, clipping, noise and the optimiser on a given batch, without
sampling. The network is 784-400-150-50-8 with ReLU, the optimiser torch's fused Adam for all. Our
noise comes from AES-256 in counter mode; that of Opacus from torch's generator in its default mode,
which can be predicted.

All take turns in one process, with one thread (processor time) and with two (wall-clock time, which
is meaningful only on an idle machine); a time is the median of many turns. The figures on stdout
are the worse ones for us of one and two threads. The complete table, with peak memory, goes to
stderr, and to a file with --json FILE.

Peak memory is measured over 5 steps at batch size 1024 in a separate process: the highest resident
set minus that before weights and optimiser were made, after a warm-up on a small network.

With --against FOLDER, another source tree (say, `git worktree add FOLDER COMMIT`) takes turns with
this one, each in a separate process: `ours_over_before` is the ratio of their times per step.

Opacus is installed in `.bench/opacus` on first use; torch is that of the current environment.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median

from peers import ENVIRONMENTS, HERE, say

WANTED = ("opacus==1.6.0", "opt_einsum==3.4.0")
SIZES = (784, 400, 150, 50, 8)
BATCHES = (64, 1024)
THREADS = (1, 2)
TURNS = {64: 150, 1024: 32}
SELDOM = 8  # Opacus with hooks takes one second per step at 1024: one turn in this many rounds
CLIP_NORM, MULTIPLIER, RATE = 1.0, 1.0, 1e-3
RIVALS = ("opacus_hooks", "opacus_ghost")
MARK = "TACIT_BENCH_OPACUS"

Step = Callable[[], object]


def in_environment() -> None:
    """Run this file again in the environment of Opacus; without one, measure only ours."""
    if find_spec("opacus") or MARK in os.environ:
        return
    folder = ENVIRONMENTS / "opacus"
    python, stamp = folder / "bin" / "python", folder / ".requirements"
    try:
        if not stamp.exists() or stamp.read_text().split() != list(WANTED):
            say(f"opacus: making an environment with {', '.join(WANTED)}")
            shutil.rmtree(folder, ignore_errors=True)
            _quietly(sys.executable, "-m", "venv", folder)
            # Without dependencies: torch and the rest are those of the current environment.
            pip = (python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps")
            _quietly(*pip, *WANTED)
            stamp.write_text("\n".join(WANTED))
        library = next(folder.glob("lib/python*/site-packages"))
        (library / "project.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        say(f"opacus: not measured: {said.strip().splitlines()[-1]}")
        return
    path = os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path.strip(os.pathsep), MARK: "1"}
    os.execve(python, [str(python), *sys.argv], environment)


def _quietly(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def network(sizes: tuple[int, ...] = SIZES):
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for wide, high in pairwise(sizes):
        layers += [nn.Linear(wide, high), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def rows(batch: int, wide: int = SIZES[0]):
    import torch

    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(batch, wide, generator=generator)
    return inputs, torch.randint(0, SIZES[-1], (batch,), generator=generator)


def adam(module):
    import torch

    return torch.optim.Adam(module.parameters(), lr=RATE, fused=True)


def plain(module, batch) -> tuple[Step, Step]:
    import torch.nn.functional as F

    optimizer = adam(module)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(batch[0]), batch[1]).backward()
        optimizer.step()

    return step, lambda: None


def loss(module, inputs, labels):
    import torch.nn.functional as F

    return F.cross_entropy(module(inputs), labels, reduction="none")


def ours(module, batch) -> tuple[Step, Step]:
    from tacit.private_training import probing, training
    from tacit.private_training.gradients import NoisyGradients
    from tacit.private_training.noise import Noise
    from tacit.private_training.schedule import Schedule
    from tacit.randomness import Keystream

    clipper = probing.clipper("benchmark", module, loss, batch)
    records = 100 * len(batch[0])
    plan = Schedule(records, 2**32 // 100, 1, Fraction(MULTIPLIER))
    noise = Noise(MULTIPLIER * CLIP_NORM, Keystream())
    gradients = NoisyGradients(clipper, batch, noise, plan, CLIP_NORM)
    optimizer = training.optimizer_of("adam", clipper.trained, RATE, 0.0)

    def step() -> None:
        flat = gradients.of(batch)
        for parameter, part in zip(clipper.trained, clipper.views(flat), strict=True):
            parameter.grad = part
        optimizer.step()
        for parameter in clipper.trained:
            parameter.grad = None

    return step, lambda: clipper.sums(batch, CLIP_NORM)[0]


def opacus_hooks(module, batch) -> tuple[Step, Step]:
    import torch
    import torch.nn.functional as F
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped = GradSampleModule(module, loss_reduction="sum")
    optimizer = DPOptimizer(
        adam(wrapped),
        noise_multiplier=MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(batch[0]),
        loss_reduction="sum",
    )

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(wrapped(batch[0]), batch[1], reduction="sum").backward()
        optimizer.step()

    def sums():
        optimizer.zero_grad()
        F.cross_entropy(wrapped(batch[0]), batch[1], reduction="sum").backward()
        optimizer.clip_and_accumulate()
        summed = torch.cat([p.summed_grad.flatten() for p in wrapped.parameters()])
        optimizer.zero_grad()
        return summed

    return step, sums


def opacus_ghost(module, batch) -> tuple[Step, Step]:
    import torch
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(
        module, max_grad_norm=CLIP_NORM, use_ghost_clipping=True, loss_reduction="sum"
    )
    optimizer = DPOptimizerFastGradientClipping(
        adam(wrapped),
        noise_multiplier=MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(batch[0]),
        loss_reduction="sum",
    )
    criterion = DPLossFastGradientClipping(
        wrapped, optimizer, torch.nn.CrossEntropyLoss(reduction="sum"), loss_reduction="sum"
    )

    def step() -> None:
        optimizer.zero_grad()
        criterion(wrapped(batch[0]), batch[1]).backward()
        optimizer.step()

    def sums():
        optimizer.zero_grad()
        criterion(wrapped(batch[0]), batch[1]).backward()
        optimizer.accumulate()
        summed = torch.cat([p.summed_grad.flatten() for p in wrapped.parameters()])
        optimizer.zero_grad()
        return summed

    return step, sums


CONTENDERS = {
    "plain": plain,
    "ours": ours,
    "opacus_hooks": opacus_hooks,
    "opacus_ghost": opacus_ghost,
}


def contenders() -> list[str]:
    return [name for name in CONTENDERS if find_spec("opacus") or name not in RIVALS]


def check_sums() -> dict[str, float]:
    """Return the largest relative difference of a clipped sum from the loop over examples."""
    import torch

    batch, module = rows(64), network()
    total = 0
    for i in range(64):
        value = loss(module, batch[0][i : i + 1], batch[1][i : i + 1]).sum()
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(value, module.parameters())])
        total = total + gradient * min(1.0, CLIP_NORM / float(gradient.norm()))
    differences = {}
    for name in contenders()[1:]:
        sums = CONTENDERS[name](network(), batch)[1]()
        differences[name] = float((sums - total).abs().max() / total.norm())
        assert differences[name] < 1e-4, f"{name}: another clipped sum"
    return differences


def times(batch_size: int, threads: int) -> dict[str, float]:
    """Return the median seconds of a step; each contender has a turn in every round.

    With one thread this is processor time, which does not count waiting for a processor.
    """
    import torch

    clock = time.process_time if threads == 1 else time.perf_counter

    torch.set_num_threads(threads)
    batch = rows(batch_size)
    steps = {name: CONTENDERS[name](network(), batch)[0] for name in contenders()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(-3, TURNS[batch_size]):
        for name, step in steps.items():
            if name == "opacus_hooks" and turn % SELDOM:
                continue
            start = clock()
            step()
            if turn >= 0:
                seconds[name].append(clock() - start)
    return {name: median(values) for name, values in seconds.items()}


def answer_turns(batch_size: int, threads: int) -> None:
    """Run one step per input line, and print its time; called in a separate process."""
    import torch

    clock = time.process_time if threads == 1 else time.perf_counter
    torch.set_num_threads(threads)
    step = ours(network(), rows(batch_size))[0]
    for _ in range(3):
        step()
    for _ in sys.stdin:
        start = clock()
        step()
        print(clock() - start, flush=True)


def against(folder: Path, batch_size: int, threads: int) -> float:
    """Return the median time of a step of this tree over that of another, in turns."""
    script = [sys.executable, __file__, "--turns", str(batch_size), str(threads)]
    trees = [HERE.parent / "src", folder / "src"]
    processes = [
        subprocess.Popen(
            script,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for tree in trees
    ]
    elapsed: list[list[float]] = [[], []]
    for _ in range(TURNS[batch_size]):
        for one, seconds in zip(processes, elapsed, strict=True):
            assert one.stdin is not None
            assert one.stdout is not None
            one.stdin.write("\n")
            one.stdin.flush()
            seconds.append(float(one.stdout.readline()))
    for one in processes:
        one.communicate()
    return median(elapsed[0]) / median(elapsed[1])


def resident(field: str) -> int:
    """Read VmRSS or VmHWM, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(field)


def print_peak(name: str) -> None:
    """Print the peak memory of 5 steps above that before the network; in a separate process."""
    import torch

    torch.set_num_threads(1)
    small = CONTENDERS[name](network((20, 16, 8)), rows(32, 20))[0]
    batch = rows(1024)
    for _ in range(3):
        small()
    del small
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the high-water mark
    step = CONTENDERS[name](network(), batch)[0]
    for _ in range(5):
        step()
    print(resident("VmHWM") - before)


def peaks() -> dict[str, float | None]:
    memory: dict[str, float | None] = {}
    for name in contenders():
        command = [sys.executable, __file__, "--peak-of", name]
        runs = []
        for _ in range(1 if name == "opacus_hooks" else 3):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                runs.append(int(done.stdout))
        memory[name] = median(runs) if runs else None
    return memory


def ratios(seconds: dict[tuple[int, int], dict[str, float]]) -> dict[str, float | None]:
    """Return each figure with the number of threads that is worse for us."""
    figures: dict[str, float | None] = {}
    for batch in BATCHES:
        runs = [seconds[batch, threads] for threads in THREADS]
        figures[f"ours_over_plain_{batch}"] = max(run["ours"] / run["plain"] for run in runs)
    for rival in ("opacus_ghost", "opacus_hooks"):
        for batch in BATCHES:
            runs = [seconds[batch, threads] for threads in THREADS]
            known = all(rival in run for run in runs)
            worst = min(run[rival] / run["ours"] for run in runs) if known else None
            figures[f"{rival}_over_ours_{batch}"] = worst
    return figures


def tell(seconds: dict[tuple[int, int], dict[str, float]], memory: dict[str, float | None]) -> None:
    say(f"{'batch':>5} {'threads':>7}  " + "  ".join(f"{name:>22}" for name in contenders()))
    for (batch, threads), run in seconds.items():
        shown = [f"{t * 1e3:9.2f} ms  {t / run['plain']:6.2f} x" for t in run.values()]
        say(f"{batch:>5} {threads:>7}  " + "  ".join(f"{cell:>22}" for cell in shown))
    base = memory.get("plain")
    if base:
        shown = [f"{m / 2**20:9.1f} MiB {m / base:5.2f} x" for m in memory.values() if m]
        say(f"{1024:>5} {'memory':>7}  " + "  ".join(f"{cell:>22}" for cell in shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument("--peak-of", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    parser.add_argument("--against", type=Path, help="compare with this other source tree only")
    parser.add_argument("--turns", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak_of:
        return print_peak(arguments.peak_of)
    if arguments.turns:
        return answer_turns(*arguments.turns)
    if arguments.against:
        rounded = {
            f"ours_over_before_{batch}": max(against(arguments.against, batch, t) for t in THREADS)
            for batch in BATCHES
        }
        return print(json.dumps({name: float(f"{v:.4g}") for name, v in rounded.items()}, indent=2))
    in_environment()
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # of Opacus
    differences = check_sums()
    worst = max(differences.values())
    say(f"clipped sums differ from the loop by at most {worst:.1e} of their norm")
    seconds = {(batch, t): times(batch, t) for t in THREADS for batch in BATCHES}
    memory = peaks()
    tell(seconds, memory)
    figures = {k: v and float(f"{v:.4g}") for k, v in ratios(seconds).items()}
    if arguments.json:
        everything = {
            **figures,
            "milliseconds": {
                f"batch {b}, threads {t}": {n: 1e3 * s for n, s in run.items()}
                for (b, t), run in seconds.items()
            },
            "peak_bytes_1024": memory,
            "clipped_sum_differences": differences,
        }
        arguments.json.write_text(json.dumps(everything, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
