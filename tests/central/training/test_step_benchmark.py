"""The benchmark of a step runs: its networks are kept in books, and its sums are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.heavy
def test_every_case_runs_on_a_cpu() -> None:
    """In tiny sizes, without Opacus: every sum is compared with the naive loop there."""
    script = ROOT / "benchmarks" / "private_step_gpu.py"
    settings = ["--device", "cpu", "--sizes", "tiny", "--turns", "1"]
    done = subprocess.run(
        [sys.executable, script, *settings],
        env={**os.environ, "TACIT_BENCH_OPACUS": "1"},  # it makes no environment for its peer
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert list(found) == ["cnn", "wideresnet", "transformer", "vit", "lora"]
    for case in found.values():
        assert case["plain_ms"] > 0
        assert case["ours_ms"] > 0
        assert case.keys() >= {"opacus_hooks_ms", "opacus_ghost_ms", "ours_mib", "plain_mib"}


def test_its_networks_are_kept_in_books(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from networks_gpu import TINY, losses
    from tacit.central.training import probing

    for name, case in TINY.items():
        batch = case.inputs(), case.targets()
        made = probing.clipper("test", case.network(), lambda m, x, y: losses(m(x), y), batch)
        assert made.book_kept, name
