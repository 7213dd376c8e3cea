"""The wheel in empty environments, alone and with each extra.

    make dist && python benchmarks/install.py

For each extra: the megabytes that it installs, the milliseconds of `import tacit`, and the
number of public names that load. A name that does not load, and a command or call in `USES` that
lacks a package, must state which extra to install, and that extra must provide it: a wrong hint, or
a file of the papers in the wheel, ends the run with exit code 1. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("", "sign", "plots", "queries", "collect", "demo", "service", "learn", "federated")

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

USES = """
import contextlib, io, json, os, re, tempfile
import tacit
from tacit.apps.cli import main
os.chdir(tempfile.mkdtemp())
open("t.csv", "w").write("a,b\\n1,2\\n3,4\\n")
job = ['[job]', 'algorithm = "fedavg"', 'rounds = 1', '[data]', 'name = "digits"', 'clients = 2']
open("f.toml", "w").write("\\n".join(job))
question = "select count(*) from t"
open("key.pem", "w").write("x")
event = tacit.DiscreteLaplace(epsilon=1, sensitivity=1, adjacency="add-remove").event
certificate = tacit.Certificate.issue(event)
certificate.save("c.json")
def command(*words):
    def run():
        with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
            main(list(words))
        raise RuntimeError(said.getvalue())
    return run
uses = {
    "Certificate.sign": lambda: certificate.sign(b"x"),
    "Curator": lambda: tacit.Curator("t.csv", 1.0),
    "plots.picture": lambda: tacit.plots.picture([("a", [[0.0]])], [("b", [[1.0]])]),
    "datasets.load": lambda: tacit.datasets.load("digits"),
    "tacit demo": command("demo", "--epsilon", "-1"),
    "tacit account sign": command("account", "sign", "c.json", "--key", "key.pem"),
    "tacit release query": command("release", "query", "t.csv", question, "--epsilon", "1"),
    "tacit collect fit": command("collect", "fit", "t.csv", "--epsilon", "-1", "--out", "m"),
    "tacit collect learn": command("collect", "learn", "r.parquet", "--out", "m"),
    "tacit train audit": command("train", "audit", "t.csv", "--label", "b", "--epsilon", "1"),
    "tacit federate run": command("federate", "run", "f.toml", "--out", "o"),
    "tacit campaign results": command("campaign", "results", "http://localhost:1/x"),
}
hints, wrong = {}, {}
for name, use in uses.items():
    try:
        use()
    except Exception as error:
        text = " ".join(str(error).split())
        if "pip install" in text:
            (hints if "pip install 'tacit[" in text else wrong)[name] = text
        elif isinstance(error, ImportError) or "No module named" in text:
            wrong[name] = text
print(json.dumps({"hints": hints, "wrong": wrong}))
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
    named = json.loads(subprocess.check_output([*run, LOAD]))
    used = json.loads(subprocess.check_output([*run, USES]))
    return {
        "megabytes": round(size / 1e6),
        "milliseconds": round(1e3 * times[2]),
        "loaded": named["loaded"],
        "hints": {**named["hints"], **used["hints"]},
        "wrong": {**named["wrong"], **used["wrong"]},
    }


def papers_in(wheel: Path) -> list[str]:
    """List what is in the wheel and belongs to the papers, or to nothing."""
    names = zipfile.ZipFile(wheel).namelist()
    return [n for n in names if "papers" in n or not n.startswith(("tacit/", "tacit-"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", default=",".join(EXTRAS))
    wheel = next((ROOT / "dist").glob("tacit-*.whl"))
    results = {}
    for extra in parser.parse_args().extras.split(","):
        with tempfile.TemporaryDirectory() as folder:
            results[extra] = measured(environment(wheel, extra, Path(folder) / "env"))
    wrong = {extra: one["wrong"] for extra, one in results.items() if one["wrong"]}
    if papers := papers_in(wheel):
        wrong["wheel"] = dict.fromkeys(papers, "It does not belong there.")
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
