"""Modules of `tacit` that a task passes through: a table, and with --list the modules.

    python benchmarks/flows.py [--list] [--json FILE]

A module counts where one of its functions runs. Every task runs twice, at two values of ε: the
first run imports what is needed and is not counted, and at another ε no result of it is reused.
Only public names are used, so that other source trees can be measured with PYTHONPATH=FOLDER/src.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tacit

SOURCE = str(Path(tacit.__file__).parent)
DRAWN = np.random.default_rng(0)
ROWS = DRAWN.uniform(-1, 1, (400, 4))
CLASSES = (ROWS[:, 0] > 0).astype(int)
Run = Callable[[], Any]


def modules_of(run: Run) -> list[str]:
    """List the modules in which a function runs during the call."""
    files: set[str] = set()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            files.add(frame.f_code.co_filename)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return sorted(str(Path(one).relative_to(SOURCE).with_suffix("")) for one in files)


def logistic(epsilon: float, folder: Path) -> Run:
    """`LogisticRegression.fit` on rows in memory."""
    from tacit.estimators import LogisticRegression

    model = LogisticRegression(epsilon=epsilon, bounds=(-1, 1))
    return lambda: model.fit(ROWS, CLASSES)


def codebook(epsilon: float) -> Any:
    schema = tacit.ArraySchema(4, -1.0, 1.0)
    made = tacit.Codebook(epsilon=epsilon, codewords=8, classes=2)
    return made.fit(ROWS, schema=schema)


def release(epsilon: float, folder: Path) -> Run:
    """`Codebook.release`: one report per person, with a label."""
    made = codebook(epsilon)
    return lambda: made.release(ROWS, CLASSES)


def learn(epsilon: float, folder: Path) -> Run:
    """A classifier from the reports of a campaign, as its owner downloads them."""
    path = folder / f"reports-{epsilon}.parquet"
    codebook(epsilon).release(ROWS, CLASSES).write(path)
    classifier, reports = tacit.NoiseAwareClassifier, tacit.Reports
    return lambda: classifier().fit(reports.read(path))


def learn_command(epsilon: float, folder: Path) -> Run:
    """The same from the command line: `tacit collect learn`."""
    from tacit.apps.cli import main

    path = folder / f"reports-{epsilon}.parquet"
    codebook(epsilon).release(ROWS, CLASSES).write(path)
    given = ["collect", "learn", str(path), "--out", str(folder / f"model-{epsilon}"), "--json"]

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main(given)

    return run


def silo_round(epsilon: float, folder: Path) -> Run:
    """One round of a silo that trains privately and pays from its ledger."""
    from tacit.federated import (
        Data,
        RecordPrivacy,
        RunOptions,
        Silo,
        SiloServer,
        TorchModel,
        algorithm,
    )
    from tacit.federated import run as run_rounds
    from tacit.federated.torch_model import mlp

    chosen = algorithm("fedavg")
    config = chosen.config(epochs=1, batch_size=100)
    privacy = RecordPrivacy(epsilon=epsilon, delta=1e-4, rounds=1, clip_norm=0.5)
    ledger = tacit.Ledger(folder / f"ledger-{epsilon}")
    budget = tacit.ApproxDP(epsilon=10, delta=1e-3, adjacency="zero-out", unit="record")
    ledger.open("rows", budget)
    held, model = Data(ROWS.astype(np.float32), CLASSES), TorchModel(mlp(4, 2))
    paid = {"ledger": ledger, "account": "rows", "run": "once"}
    silo = Silo(TorchModel(mlp(4, 2)), held, privacy, chosen, config, **paid)
    options = RunOptions(config=config, coordinator=SiloServer(delta=1e-4))
    return lambda: run_rounds(chosen, model, [silo], 1, options)


def count(epsilon: float, folder: Path) -> Run:
    """`Curator.count` over a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    path = folder / "people.parquet"
    parquet.write_table(pa.table({"age": ROWS[:, 0]}), path)
    curator = tacit.Curator(str(path), 10.0)
    return lambda: curator.count(epsilon=epsilon)


FLOWS: dict[str, Callable[[float, Path], Run]] = {
    "LogisticRegression.fit": logistic,
    "learn from a campaign's reports": learn,
    "tacit collect learn": learn_command,
    "a silo's round": silo_round,
    "Codebook.release": release,
    "Curator.count": count,
}


def measured(flow: Callable[[float, Path], Run]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flow(0.9, Path(folder))()
        return modules_of(flow(1.0, Path(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    passed = {name: measured(flow) for name, flow in FLOWS.items()}
    for name, modules in passed.items():
        print(f"{name:34} {len(modules):3}")
        if given.list:
            print(*(f"    {one}" for one in modules), sep="\n")
    if given.json:
        given.json.write_text(json.dumps(passed, indent=2))


if __name__ == "__main__":
    main()
