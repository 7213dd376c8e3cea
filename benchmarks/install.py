"""The wheel in empty environments, alone and with each extra.

    make dist && python benchmarks/install.py

For each extra: the megabytes that it installs, the milliseconds of `import tacit`, and the
number of public names that load. A name that does not load must state which extra to install,
and that extra must provide it: a wrong hint ends the run with exit code 1. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("", "sign", "plots", "queries", "collect", "service", "learn", "federated")

LOAD = """
import importlib, json, re
import tacit
packages = ["tacit", *(f"tacit.{name}" for name in (
    "estimators", "federated", "anonymize", "queries", "mechanisms", "private_training",
    "private_statistics", "service"))]
loaded, hints, wrong = [], {}, {}
for package in packages:
    try:
        module = importlib.import_module(package)
        names = getattr(module, "__all__", [])
    except ImportError as error:
        names, module = [], None
        problem = str(error)
        (hints if "pip install 'tacit[" in problem else wrong)[package] = problem
    for name in names:
        try:
            getattr(module, name)
            loaded.append(f"{package}.{name}")
        except ImportError as error:
            problem = str(error)
            (hints if "pip install 'tacit[" in problem else wrong)[f"{package}.{name}"] = problem
        except Exception as error:
            wrong[f"{package}.{name}"] = repr(error)
print(json.dumps({"loaded": loaded, "hints": hints, "wrong": wrong}))
"""

TIME = "import time; t = time.perf_counter(); import tacit; print(time.perf_counter() - t)"


def environment(wheel: Path, extra: str, folder: Path) -> Path:
    """Install the wheel with one extra into a new environment; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    if extra in ("learn", "federated"):  # pinned, since otherwise GPU libraries are installed
        pins = (ROOT / "constraints.txt").read_text().splitlines()
        subprocess.run([*install, next(p for p in pins if p.startswith("torch=="))], check=True)
    subprocess.run([*install, f"{wheel}[{extra}]" if extra else str(wheel)], check=True)
    return python


def measured(python: Path) -> dict[str, object]:
    """Measure size and import time, and list the names that load."""
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    size = sum(p.stat().st_size for p in site.rglob("*") if p.is_file() and "/pip/" not in str(p))
    run = [python, "-c"]
    times = sorted(float(subprocess.check_output([*run, TIME])) for _ in range(5))
    loaded = json.loads(subprocess.check_output([*run, LOAD]))
    return {"megabytes": round(size / 1e6), "milliseconds": round(1e3 * times[2]), **loaded}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", default=",".join(EXTRAS))
    wheel = next((ROOT / "dist").glob("tacit-*.whl"))
    results = {}
    for extra in parser.parse_args().extras.split(","):
        with tempfile.TemporaryDirectory() as folder:
            results[extra] = measured(environment(wheel, extra, Path(folder) / "env"))
    wrong = {extra: one["wrong"] for extra, one in results.items() if one["wrong"]}
    for extra, one in results.items():  # the hint must be right
        for name, hint in one["hints"].items():
            promised = hint.rpartition("tacit[")[2].partition("]")[0]
            if promised in results and name in results[promised]["hints"]:
                wrong.setdefault(extra, {})[name] = f"{hint} It does not bring it."
    shown = {
        extra or "alone": {
            "megabytes": one["megabytes"],
            "import milliseconds": one["milliseconds"],
            "names that load": len(one["loaded"]),
            "names with a hint": len(one["hints"]),
        }
        for extra, one in results.items()
    }
    print(json.dumps({"installs": shown, "wrong": wrong}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
