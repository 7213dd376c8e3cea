"""Records: parameters, versions, the numbers of every trial, and their summary.

A record is a JSON file. It is rewritten atomically whenever a run is finished, so a study that was
killed goes on from its record: runs that are in it are not repeated.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from tacit.privacy import errors, files
from tacit_papers.engine import registry

Cell = dict[str, Any]
"""What identifies a run: mechanism, epsilon, …, or a reference; and its trial."""

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "pyarrow")
_FIELDS = ("study", "parameters", "versions", "data", "runs")


@dataclass
class Record:
    """Runs of one study.

    Parameters
    ----------
    study : str
        The name of the study.
    parameters : dict
        Everything that determines the numbers; a record goes on only with the same parameters.
    versions, data : dict
        Versions of what computed the numbers; a description of the data.
    runs : list of dict
        Each holds its cell (mechanism, epsilon, …, or `reference`, and `trial`), the `values` that
        were measured, `facts` that are the same in every trial, and `seconds`.
    """

    study: str
    parameters: dict[str, Any]
    versions: dict[str, str]
    data: dict[str, Any]
    runs: list[dict[str, Any]] = field(default_factory=list)

    def find(self, cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the run of this cell, or None."""
        return next((run for run in self.runs if cell_of(run) == dict(cell)), None)

    def results(self) -> list[dict[str, Any]]:
        """Summarize every cell but the references: mean, standard deviation and trials."""
        return [summary for cell, summary in self._summaries() if "reference" not in cell]

    def references(self) -> dict[str, Any]:
        """Summarize the references: a number for chance, else as the results."""
        every = {
            cell["reference"]: summary for cell, summary in self._summaries() if "reference" in cell
        }
        study = registry.get(self.study)
        if study is not None and study.references is not None:
            return study.references(every)
        return {
            name: summary["accuracy"]["mean"] if name == "chance" else summary["accuracy"]
            for name, summary in every.items()
        }

    def _summaries(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        groups: dict[str, list[dict[str, Any]]] = {}
        for run in self.runs:
            cell = {name: value for name, value in cell_of(run).items() if name != "trial"}
            groups.setdefault(json.dumps(cell), []).append(run)
        study = registry.get(self.study)
        measured = (study and study.measured) or _measured
        cells = [(json.loads(text), runs) for text, runs in groups.items()]
        return [(cell, {**cell, **measured(runs), **runs[0]["facts"]}) for cell, runs in cells]

    def to_plain(self) -> dict[str, Any]:
        """Return a dictionary that is ready for JSON."""
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
        """Write the record atomically: a reader never sees half of it."""
        text = json.dumps(self.to_plain(), indent=1, ensure_ascii=False, allow_nan=False)
        files.replace(path, (text + "\n").encode())

    @staticmethod
    def load(path: Path) -> Record:
        """Read a record, and refuse anything else in one line."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
            record = Record(**{name: plain[name] for name in _FIELDS})
            record._check()
            return record
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise errors.InvalidData(
                f"{path}: it must be the record of a study. Choose another file."
            ) from None

    def _check(self) -> None:
        """Raise where two runs are of one cell, or a part is missing."""
        cells = [json.dumps(cell_of(run), sort_keys=True) for run in self.runs]
        if len(set(cells)) != len(cells):
            raise ValueError
        parts = [self.parameters, self.versions, self.data]
        parts += [run[name] for run in self.runs for name in ("values", "facts")]
        if not all(isinstance(part, dict) for part in parts):
            raise TypeError
        self.to_plain()

    def resumed(self, path: Path, cells: Sequence[Mapping[str, Any]]) -> Record:
        """Return the record in this file; study, parameters, data and versions must be the same."""
        if not path.exists():
            return self
        earlier = Record.load(path)
        mine, others = self._identity(), earlier._identity()
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
        if any(cell_of(run) not in known for run in earlier.runs):
            raise errors.InvalidData(
                f"{path}: its runs must be those of this study. Choose another file."
            )
        earlier.parameters = self.parameters
        return earlier

    def _identity(self) -> dict[str, Any]:
        """Return what must be the same for a record to go on; there may be more trials."""
        made_by = {f"version of {name}": value for name, value in self.versions.items()}
        plain = {"study": self.study, **self.parameters, **self.data, **made_by}
        plain.pop("trials", None)
        return dict(json.loads(json.dumps(plain)))


def _measured(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = runs[0]["values"]
    return {name: summary([run["values"][name] for run in runs]) for name in names}


def all_measures(references: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the references: a number for chance, all measures for the others."""
    return {
        name: reference["accuracy"]["mean"]
        if name == "chance"
        else {key: value for key, value in reference.items() if key != "reference"}
        for name, reference in references.items()
    }


def summary(trials: Sequence[Any]) -> Any:
    """Return mean and sample standard deviation of numbers or lists of numbers.

    Anything else is listed trial by trial. Lists of dictionaries describe the same things in every
    trial, so the numbers in them are listed.
    """
    if all(isinstance(v, list) and v and isinstance(v[0], dict) for v in trials):
        return [_listed(same) for same in zip(*trials, strict=True)]
    if not all(_numeric(value) for value in trials):
        return list(trials)
    values = np.array(trials, float)
    mean = values.mean(axis=0)
    deviation = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    return {"mean": _rounded(mean), "std": _rounded(deviation), "trials": values.tolist()}


def versions(device: str) -> dict[str, str]:
    """Return the versions of what computes here."""
    from tacit import __version__

    known = {"tacit": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {**known, "device": _device_name(device)}


def infinity(value: float | str) -> float | str:
    """Write ∞ as "inf", since JSON has none."""
    return "inf" if float(value) == float("inf") else float(value)


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    return f"{platform.machine()} processor, {os.cpu_count()} cores, {sys.platform}"


def _no_number(name: str) -> float:
    raise ValueError(name)


def cell_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cell of a run."""
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
