"""Peers in separate environments, so that their dependencies do not conflict with ours.

A peer is a long-lived process that times one task per request: its imports are paid once, and
its measurements can be interleaved with ours. Only the standard library is used here,
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
"""A function to time, and the number of draws that one call makes."""


def say(line: str) -> None:
    """Print progress on stderr; stdout is for the result."""
    print(line, file=sys.stderr, flush=True)


def rate(task: Task, seconds: float = 0.9) -> float:
    """Measure draws per second in the fastest of the calls that fit into this turn.

    Other work on the machine only slows calls down, and a process that was just woken is slow at
    first, so an average would be unfair to the process that waited longest. Time is processor
    time; everything measured here uses one thread.
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
    """Run the peer's side: read a task's name per line, and print its rate as JSON."""
    for work, _ in tasks.values():
        work()  # caches and lazy imports
    print(json.dumps(sorted(tasks)), flush=True)
    for line in sys.stdin:
        print(json.dumps(rate(tasks[line.strip()])), flush=True)


class Peer:
    """Our side: the peer's process, or None if its environment cannot be made."""

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
        tasks = (
            self._read()
        )  # wait for the peer's imports, so that they do not disturb a measurement
        say(f"{self.name}: ready to time {', '.join(tasks)}")

    def _read(self) -> object:
        line = self._process.stdout.readline()
        if not line:
            raise ValueError("the peer's process ended; what it said is above")
        return json.loads(line)

    def rate(self, task: str) -> float | None:
        """Return the peer's answer to this line; None without a peer."""
        if self._process is None:
            return None
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the peer's loop by the end of its input."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def _environment(name: str, requirements: tuple[str, ...]) -> Path:
    """Return the environment's interpreter; the environment is made on first use and kept."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    # The stamp is written last, so that an incomplete environment is made again.
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
