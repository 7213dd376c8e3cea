"""Every registered path is replayed on neighbours that an enemy chose; nothing may move too far."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path as File

import pytest

from .refuter import Path, refute
from .registry import ROOT, paths
from .tape import load_all

pytestmark = pytest.mark.heavy

KERNELS = {
    "haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "zen": {"OPENBLAS_CORETYPE": "Zen"},
    "skylake": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "plain torch": {"ATEN_CPU_CAPABILITY": "default"},
    "avx2 torch": {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"},
}

PATHS = paths()


@pytest.fixture(scope="module", autouse=True)
def _everything_is_loaded() -> None:
    load_all()


def marked(path: Path) -> object:
    return pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.slow else [])


@pytest.mark.parametrize("path", [marked(path) for path in PATHS])
def test_no_neighbour_refutes_it(path: Path) -> None:
    if not path.available():
        pytest.skip("what it needs is not here")
    verdict = refute(path)
    assert not verdict.faults, verdict.faults[:5]
    assert path.refused or not verdict.refusals, verdict.refusals[:3]
    assert path.refused or verdict.queries


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_nor_any_that_is_known_to_have_hurt(path: Path) -> None:
    if not path.available():
        pytest.skip("what it needs is not here")
    verdict = refute(path, everything=True)
    assert not verdict.faults, verdict.faults[:5]


@pytest.mark.slow
@pytest.mark.parametrize("kernels", KERNELS)
def test_nor_other_kernels(kernels: str) -> None:
    """In processes of their own: kernels are chosen when libraries are loaded."""
    environment = {**os.environ, **KERNELS[kernels], "PYTHONPATH": _path()}
    command = [sys.executable, "-m", "refute", "--quick"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def _path() -> str:
    given = [str(File(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(one for one in given if one)
