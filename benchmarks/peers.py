"""Peers in environments of their own, so that their dependencies never meet ours.

A peer is a long-lived process that times one task each time it is asked: its imports are paid
once, and its measurements can be interleaved with ours. Only the standard library is used here,
because the peers' own scripts import `serve` and `rate` from this module.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / ".bench"

Task = tuple[Callable[[], object], int]
"""What to time, and how many draws one call of it makes."""


def say(line: str) -> None:
    """Progress goes to stderr: stdout is for the result alone."""
    print(line, file=sys.stderr, flush=True)


def rate(task: Task, seconds: float = 0.9) -> float:
    """Draws a second in the fastest of the calls that fit into this turn.

    Other work on the machine only ever slows a call, and a process that has just been woken runs
    slowly at first: an average would charge that to whoever waited longest. Processor time is
    counted, not waiting for a processor; everything measured here uses one thread.
    """
    work, draws = task
    fastest = math.inf
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.process_time()
        work()
        fastest = min(fastest, time.process_time() - start)
    return draws / fastest


def serve(tasks: dict[str, Task]) -> None:
    """The peer's side: a line with a task's name comes in, its rate goes out as JSON."""
    for work, _ in tasks.values():
        work()  # caches and lazy imports
    print(json.dumps(sorted(tasks)), flush=True)
    for line in sys.stdin:
        print(json.dumps(rate(tasks[line.strip()])), flush=True)


class Peer:
    """Our side: the peer's process, or nothing where its environment cannot be made."""

    def __init__(self, name: str, *requirements: str, script: str | None = None) -> None:
        self.name, self._script = name, script or name
        self._process: subprocess.Popen[str] | None = None
        try:
            self._start(_environment(name, requirements))
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            say(f"{name}: not measured: {said.strip().splitlines()[-1]}")
            self.close()

    def _start(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, HERE / f"peer_{self._script}.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        tasks = self._read()  # waits for the peer's imports, so that they disturb no measurement
        say(f"{self.name}: ready to time {', '.join(tasks)}")

    def _read(self) -> object:
        line = self._process.stdout.readline()
        if not line:
            raise ValueError("the peer's process ended; what it said is above")
        return json.loads(line)

    def rate(self, task: str) -> float | None:
        """What the peer answers to this line; None without a peer."""
        if self._process is None:
            return None
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End of input ends the peer's loop."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def _environment(name: str, requirements: tuple[str, ...]) -> Path:
    """The environment's interpreter; the environment is made on first use and kept."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    # The stamp is written last, so that a half-made environment is made again.
    stamp = folder / ".requirements"
    if stamp.exists() and stamp.read_text().split() == list(requirements):
        return python
    say(f"{name}: making an environment with {', '.join(requirements)}")
    shutil.rmtree(folder, ignore_errors=True)
    _quietly(sys.executable, "-m", "venv", folder)
    _quietly(python, "-m", "pip", "install", "--disable-pip-version-check", *requirements)
    stamp.write_text("\n".join(requirements))
    return python


def _quietly(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
