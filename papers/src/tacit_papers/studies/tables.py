"""Collections on many tables: how much is gained over one codebook, and where nothing is.

Each trial draws in-house rows, people and test rows anew, and every method gets the same ones.
`none` learns from the people's raw rows, without privacy and without in-house rows. Methods are in
`tacit_papers.parts.table_methods`, tables in `tacit_papers.data.tables`; those in `TUNED` were used
to choose the settings of `tacit.Collection`.

What a run draws depends on seed, trial, table, method and ε alone, so that tables can be run side
by side and their records merged.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.privacy import errors
from tacit_papers.data import labelled, tables
from tacit_papers.data.labelled import LabelledTable
from tacit_papers.engine import checks, declare
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.record import Cell, Record, versions
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured
from tacit_papers.engine.tables import Table, trials
from tacit_papers.parts.table_case import Case, split
from tacit_papers.parts.table_methods import METHODS, PRIVATE, WITHOUT, measures, none

EPSILONS = (1.0, 2.0, 4.0, 8.0)
QUICK_ROWS = 300
NAME = "tables"
_FILES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq", ".npz")


def _known(name: str, value: str) -> str:
    """Check the name of a table, or that a file exists."""
    if value in tables.NAMES or value.endswith(_FILES):
        if value not in tables.NAMES and not Path(value).is_file():
            errors.refuse("study", name, "existing files", value, "Check the path.")
        return value
    known = f"names of tables ({', '.join(tables.NAMES)}), or CSV or Parquet files"
    errors.refuse("study", name, known, value)


TABLES_ONLY = ("rounds", "direct")
"""Pictures are collected in one round, and pixels with noise are at chance in every record."""


@dataclass(frozen=True)
class TablesParameters(Parameters):
    """Parameters of the study."""

    data: tuple[str, ...] = declare.option(
        tables.NAMES,
        "Names of tables, or CSV or Parquet files of yours.",
        check=_known,
        quick=("wine", "breast_cancer"),
        record="tables",
        otherwise="all tables by name",
    )
    label: str | None = declare.option(None, "The column of labels of your files.")
    methods: tuple[str, ...] = declare.option(METHODS, "What to compare", choices=METHODS)
    epsilons: tuple[float, ...] = declare.option(
        EPSILONS, "Local ε of a report.", check=checks.epsilon, quick=(2.0, 8.0)
    )
    trials: int = declare.trials()
    seed: int = declare.seed()
    quick: bool = declare.quick()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label is not None and all(name in tables.NAMES for name in self.data):
            remedy = "It is for your own files."
            errors.refuse("study", "label", "left out for tables by name", self.label, remedy)


class Tables:
    """The experiment; see the module."""

    name = NAME

    def __init__(self, loaded: Sequence[LabelledTable], parameters: TablesParameters) -> None:
        self.tables = {one.name: one for one in loaded}
        if len(self.tables) < len(loaded):
            errors.refuse("study", "data", "files of different names", list(parameters.data))
        self.parameters = parameters
        self._last: tuple[tuple[str, int], Case] | None = None

    def record(self) -> Record:
        """Return an empty record."""
        only = next(iter(self.tables)) if not set(self.tables) & set(tables.NAMES) else NAME
        recorded = {**self.parameters.recorded(), "data": only}
        described = {name: self._described(name) for name in self.tables}
        return Record(self.name, recorded, versions("cpu"), {"tables": described})

    def _described(self, name: str) -> dict[str, Any]:
        table, case = self.tables[name], self._case(name, 0)
        return {
            "rows": len(table),
            "columns": table.columns,
            "pictures": table.is_picture,
            "classes": len(table.classes),
            "inhouse": len(case.inhouse),
            "people": len(case.labels),
            "test": len(case.truth),
            "tuned": name in tables.TUNED,
            "sha256": table.sha256,
        }

    def cells(self) -> Sequence[Cell]:
        """List the cells table by table and trial by trial."""
        return [
            {"task": name, "mechanism": method, "epsilon": epsilon, "trial": trial}
            for name in self.tables
            for trial in range(self.parameters.trials)
            for method in self.parameters.methods
            if not (method in TABLES_ONLY and self._described(name)["pictures"])
            for epsilon in ((None,) if method == WITHOUT else self.parameters.epsilons)
        ]

    def measure(self, cell: Cell) -> Measured:
        """Measure one method on one split of one table."""
        name, method, trial = cell["task"], cell["mechanism"], cell["trial"]
        case, seed = self._case(name, trial), self.parameters.seed + trial
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the record shows what the warnings are about
            if method == WITHOUT:
                likely = none(case, seed)
            else:
                likely = PRIVATE[method](case, cell["epsilon"], seed)
        described = self._described(name)
        facts = {key: described[key] for key in ("tuned", "pictures", "columns", "people")}
        facts["measure"] = "auc" if case.classes == 2 else "accuracy"
        return Measured(measures(case.truth, likely), facts)

    def _case(self, name: str, trial: int) -> Case:
        if self._last is None or self._last[0] != (name, trial):
            most = QUICK_ROWS if self.parameters.quick else None
            seed = self.parameters.seed + trial
            self._last = (name, trial), split(self.tables[name], seed, most)
        return self._last[1]


def table(record: Mapping[str, Any]) -> Table:
    """Return title, header and lines: one line per table and method, one column per ε."""
    epsilons = record["parameters"]["epsilons"]
    lines: dict[tuple[str, str], dict[float | None, str]] = {}
    for one in record["results"]:
        found = one[one["measure"]]
        deviation = f"\n±{found['std']:.3f}" if len(found["trials"]) > 1 else ""
        key = (one["task"], one["mechanism"])
        lines.setdefault(key, {})[one["epsilon"]] = f"{found['mean']:.3f}{deviation}"
    rows = [
        (f"{name}\n  {method}", *(line.get(e, line.get(None, "")) for e in epsilons))
        for (name, method), line in lines.items()
    ]
    title = f"tables: accuracy, or the area under the curve for two classes; {trials(record)}"
    return title, ("table, method", *(f"ε = {e:g}" for e in epsilons)), rows


def _load(name: str, parameters: TablesParameters, progress: Any) -> LabelledTable:
    if name in tables.NAMES:
        return tables.load(name, progress)
    return labelled.own(Path(name), parameters.label)


def _prepare(parameters: TablesParameters, progress: Any) -> Tables:
    return Tables([_load(name, parameters, progress) for name in parameters.data], parameters)


STUDY = Study(
    name=NAME,
    about="Compare collections with one codebook and simpler reports, on many tables or on yours.",
    question="On which tables does a collection gain over one codebook, and on which not?",
    parameters=TablesParameters,
    prepare=_prepare,
    measures=("accuracy",),
    table=table,
    example="--data people.csv --label loyal",
    epsilon_optional=True,
    place=14,
)
