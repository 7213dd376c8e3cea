"""What a study found: parameters, versions, every trial's numbers, and their summary.

A record is a JSON file. It is written anew, atomically, whenever a run is finished, so a study that
was killed goes on from its record: runs that are in it are not done again.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

from tacit.privacy import errors, files

Cell = dict[str, Any]
"""What one run is of: mechanism, epsilon, …, or a reference; and its trial."""

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "pyarrow")
_FIELDS = ("study", "parameters", "versions", "data", "runs")


@dataclass
class Record:
    """Runs of one study.

    Parameters
    ----------
    study : str
        Its name.
    parameters : dict
        All that determines the numbers; a record goes on only with the same ones.
    versions, data : dict
        Of what computed it; of what it was computed from.
    runs : list of dict
        Each a cell (mechanism, epsilon, …, or `reference`), `trial`, `values` that were measured,
        `facts` that are the same in every trial, and `seconds`.
    """

    study: str
    parameters: dict[str, Any]
    versions: dict[str, str]
    data: dict[str, Any]
    runs: list[dict[str, Any]] = field(default_factory=list)

    def find(self, cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """The run of this cell, if it is done."""
        return next((run for run in self.runs if _cell(run) == dict(cell)), None)

    def results(self) -> list[dict[str, Any]]:
        """Cells with mean, deviation and list of what was measured, without the references."""
        return [found for cell, found in self._summaries() if "reference" not in cell]

    def references(self) -> dict[str, Any]:
        """What results are compared with: a number for chance, else mean, deviation and trials."""
        every = {
            cell["reference"]: found for cell, found in self._summaries() if "reference" in cell
        }
        own = _own_summary(self.study)
        if own is not None:
            return dict(own.references(every))
        return {
            name: found["accuracy"]["mean"] if name == "chance" else found["accuracy"]
            for name, found in every.items()
        }

    def _summaries(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        groups: dict[str, list[dict[str, Any]]] = {}
        for run in self.runs:
            cell = {name: value for name, value in _cell(run).items() if name != "trial"}
            groups.setdefault(json.dumps(cell), []).append(run)
        found = []
        for text, runs in groups.items():
            cell = json.loads(text)
            own = _own_summary(self.study)
            measured = own.measured(runs) if own else _measured(runs)
            found.append((cell, {**cell, **measured, **runs[0]["facts"]}))
        return found

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "study": self.study,
            "parameters": self.parameters,
            "versions": self.versions,
            "data": self.data,
            "seconds": round(sum(run["seconds"] for run in self.runs), 1),
            "results": self.results(),
            "references": self.references(),
            "runs": self.runs,
        }

    def save(self, path: Path) -> None:
        """All or nothing: a reader never sees half a record."""
        text = json.dumps(self.to_plain(), indent=1, ensure_ascii=False, allow_nan=False)
        files.replace(path, (text + "\n").encode())

    @staticmethod
    def load(path: Path) -> Record:
        """Read a record; anything else is refused in one line."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
            found = Record(**{name: plain[name] for name in _FIELDS})
            found._check()
            return found
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise errors.InvalidData(
                f"{path}: it must be the record of a study. Choose another file."
            ) from None

    def _check(self) -> None:
        """Runs of different cells, with what a run has; raises whatever comes first."""
        cells = [json.dumps(_cell(run), sort_keys=True) for run in self.runs]
        if len(set(cells)) != len(cells):
            raise ValueError
        parts = [self.parameters, self.versions, self.data]
        parts += [run[name] for run in self.runs for name in ("values", "facts")]
        if not all(isinstance(part, dict) for part in parts):
            raise TypeError
        self.to_plain()

    def resumed(self, path: Path, cells: Sequence[Mapping[str, Any]]) -> Record:
        """The record in this file, if it is one of the same study, asked the same, made alike."""
        if not path.exists():
            return self
        found = Record.load(path)
        mine, others = self._identity(), found._identity()
        for name in sorted({*mine, *others}):
            if mine.get(name) != others.get(name):
                if name == "sha256":
                    raise errors.InvalidParameter(
                        f"{path}: data and schema must be those that the record there began with. "
                        "Choose another file, or remove it."
                    )
                raise errors.InvalidParameter(
                    f"{path}: {name} must be as in the record that is there, "
                    f"{others.get(name)!r}, got {mine.get(name)!r}. Choose another file, or "
                    "remove it."
                )
        known = [dict(json.loads(json.dumps(cell))) for cell in cells]
        if any(_cell(run) not in known for run in found.runs):
            raise errors.InvalidData(
                f"{path}: its runs must be those of this study. Choose another file."
            )
        found.parameters = self.parameters
        return found

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a record to go on; there may be more trials."""
        made_by = {f"version of {name}": value for name, value in self.versions.items()}
        plain = {"study": self.study, **self.parameters, **self.data, **made_by}
        plain.pop("trials", None)
        return dict(json.loads(json.dumps(plain)))


def _own_summary(study: str) -> Any:
    """The module that puts trials together, of a study that pools what it counted."""
    if study not in ("anonymize", "composition"):
        return None
    return import_module(f"tacit_papers.studies.{study}_summary")


def _measured(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = runs[0]["values"]
    return {name: summary([run["values"][name] for run in runs]) for name in names}


def summary(trials: Sequence[Any]) -> Any:
    """Mean and sample deviation of numbers, or of lists of numbers; anything else trial by trial.

    Lists of dictionaries are of the same things in every trial: their numbers are listed.
    """
    if all(isinstance(v, list) and v and isinstance(v[0], dict) for v in trials):
        return [_listed(same) for same in zip(*trials, strict=True)]
    if not all(_numeric(value) for value in trials):
        return list(trials)
    values = np.array(trials, float)
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    return {"mean": _rounded(mean), "std": _rounded(spread), "trials": values.tolist()}


def versions(device: str) -> dict[str, str]:
    """What computes here."""
    from tacit import __version__

    found = {"tacit": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {**found, "device": _device_name(device)}


def infinity(value: float | str) -> float | str:
    """JSON has no ∞: "inf" stands for it."""
    return "inf" if float(value) == float("inf") else float(value)


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    return f"{platform.machine()} processor, {os.cpu_count()} cores, {sys.platform}"


def _no_number(name: str) -> float:
    raise ValueError(name)


def _cell(run: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in run.items() if k not in ("values", "facts", "seconds")}


def _listed(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = same[0]
    return {
        name: [one[name] for one in same] if _numeric(value) else value
        for name, value in first.items()
    }


def _numeric(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_numeric(one) for one in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rounded(values: Any) -> Any:
    return np.round(values, 6).tolist()
