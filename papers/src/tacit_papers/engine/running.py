"""The loop that runs every study: cell by cell, each with its own seed, resumable."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tacit.privacy.randomness import Seeded
from tacit_papers.engine.record import Cell, Record

Progress = Callable[[str, int, int, "dict[str, Any] | None"], None]
"""Called with a cell in words, the number of cells done, their total, and the measured values."""


@dataclass(frozen=True)
class Measured:
    """Outcome of one run: values that vary between trials, and facts that do not."""

    values: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)


class Experiment(Protocol):
    """A study with its parameters and data, ready to run."""

    def record(self) -> Record:
        """Return an empty record, with all parameters."""
        ...

    def cells(self) -> Sequence[Cell]:
        """List what is to be measured, trial by trial; `trial` is part of a cell."""
        ...

    def measure(self, cell: Cell) -> Measured:
        """Measure one cell. The result does not depend on earlier runs."""
        ...


def run(
    experiment: Experiment, path: Path | None = None, progress: Progress | None = None
) -> Record:
    """Measure the cells that are not in the record yet, and save after every run."""
    record, cells = experiment.record(), experiment.cells()
    if path is not None:
        record = record.resumed(path, cells)
    for done, cell in enumerate(cells):
        if record.find(cell) is not None:
            continue
        if progress is not None:
            progress(words(cell), done, len(cells), None)
        began = time.perf_counter()
        measured = experiment.measure(cell)
        seconds = round(time.perf_counter() - began, 2)
        run = {**cell, "values": measured.values, "facts": measured.facts, "seconds": seconds}
        record.runs.append(run)
        if path is not None:
            record.save(path)
        if progress is not None:
            progress(words(cell), done + 1, len(cells), measured.values)
    return record


def generator(seed: int, cell: Mapping[str, Any]) -> Seeded:
    """Make the randomness of one cell, whatever ran before it. Seeded reports protect nobody."""
    text = json.dumps(cell, sort_keys=True)
    return Seeded(np.random.default_rng([seed, zlib.crc32(text.encode())]))


def words(cell: Mapping[str, Any]) -> str:
    """Describe a cell in words."""
    kinds = ("mechanism", "reference", "training", "model", "estimator", "attack")
    names = [str(cell[key]) for key in kinds if key in cell]
    said = ["".join(names[:1]).replace("_", " ")]
    said += [
        str(cell[key]) for key in ("algorithm", "library", "defence", "partition") if cell.get(key)
    ]
    if "strength" in cell:
        said.append(f"λ = {cell['strength']:g}")
    if "task" in cell:
        said.append(str(cell["task"]))
    if cell.get("epsilon") is not None:
        said.append(f"ε = {cell['epsilon']:g}")
    if cell.get("central_epsilon", "inf") != "inf":
        said.append(f"central ε = {cell['central_epsilon']:g}")
    if "trial" in cell:
        said.append(f"trial {cell['trial'] + 1}")
    return ", ".join(said)
