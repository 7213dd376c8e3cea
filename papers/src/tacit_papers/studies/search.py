"""The private search for hyper-parameters that Tables 2 to 4 of "Learning to Noise" come from.

Candidates are fitted in-house; each person reports to one of them with the whole ε, and each voter
tries one classifier, or the winner, and answers through randomized response with the whole ε
(`tacit.inference.search`). The paper lets everybody report to every candidate and counts one
report: its winners are chosen with more ε than it states.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.datasets.base import Dataset
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inference.search import Candidate
from tacit.local.inference.search import search as private_search
from tacit_papers.engine.record import Cell, Record
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured, generator
from tacit_papers.parts import paper, references
from tacit_papers.parts.collecting import (
    Collecting,
    kind_of,
    mechanisms,
    one_level,
    unprotected,
)
from tacit_papers.parts.trials import Trial, Trials, accuracy, unwarned

MECHANISMS = ("codebook", "vlm")

GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "codebook": {"codewords": (10, 20, 40, 80, 160)},
    "vlm": {
        "row_share": (0.7,),
        "radius": (5.0, 10.0),
        "pretraining_epsilon": (5.0, 15.0, 27.0),
    },
}
"""There are few candidates, because each gets a part of the people. λ = 0.7 is nearly everywhere in
Table 4; `paper.GRID` holds every value there."""

QUICK_GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "codebook": {"codewords": (10, 40)},
    "vlm": {"row_share": (0.7,), "radius": (5.0,), "pretraining_epsilon": (5.0, 15.0)},
}


@dataclass(frozen=True)
class SearchParameters(Collecting):
    """Parameters of the study."""

    mechanisms: tuple[str, ...] = mechanisms(*MECHANISMS, default=MECHANISMS)
    level: tuple[str, ...] = one_level()
    central: tuple[float, ...] = unprotected()


class Search:
    """The experiment; see the module."""

    name = "search"

    def __init__(
        self, dataset: Dataset, parameters: Collecting, grid: dict[str, Sequence[Any]] | None = None
    ) -> None:
        self.dataset, self.parameters = dataset, parameters
        self.trials = Trials(dataset, parameters)
        grids = QUICK_GRIDS if parameters.quick else GRIDS
        self.grids = {name: {**grids[name], **(grid or {})} for name in parameters.mechanisms}

    def record(self) -> Record:
        """Return an empty record."""
        grids = {name: {k: list(v) for k, v in grid.items()} for name, grid in self.grids.items()}
        return self.parameters.record(self.name, self.dataset, self.trials.sizes(), grids=grids)

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial."""
        return self.parameters.cells(self.dataset.schema, references.NAMES)

    def measure(self, cell: Cell) -> Measured:
        """Measure one search, or one reference."""
        trial = self.trials[cell["trial"]]
        if "reference" in cell:
            return Measured({"accuracy": references.measure(cell["reference"], trial)})
        return self._searched(cell, trial)

    def _searched(self, cell: Cell, trial: Trial) -> Measured:
        settings = {_name(line): line for line in self._candidates(cell["mechanism"])}
        learner = NoiseAwareClassifier(seed=trial.seed, device=self.parameters.device)
        listed = [
            Candidate(name, self._fitted(cell, line, trial), learner)
            for name, line in settings.items()
        ]
        with unwarned():
            outcome = private_search(
                listed,
                people=trial.people,
                voters=trial.voters,
                epsilon=cell["epsilon"],
                unit="record",
                rng=generator(trial.seed, cell),
            )
        rows, truth = trial.test
        values = {
            "estimated_accuracy": float(outcome.estimate.accuracy),
            "test_accuracy": accuracy(outcome.model.predict(rows), truth),
            "interval": [float(end) for end in outcome.estimate.interval],
            "winner": settings[outcome.winner],
            "candidates": [
                {
                    "settings": settings[one.name],
                    "estimated": float(one.estimate.accuracy),
                    "test": accuracy(model.predict(rows), truth),
                }
                for one, model in zip(outcome.candidates, outcome.models, strict=True)
            ],
        }
        facts: dict[str, Any] = {"guarantee": str(outcome.guarantee), "paper": self._paper(cell)}
        return Measured(values, facts)

    def _candidates(self, mechanism: str) -> list[dict[str, Any]]:
        grid = self.grids[mechanism]
        return [
            dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
        ]

    def _fitted(self, cell: Cell, line: dict[str, Any], trial: Trial) -> Any:
        if cell["mechanism"] == "codebook":
            return trial.contenders.codebook(cell["epsilon"], np.inf, line["codewords"])
        return trial.contenders.vlm(cell["epsilon"], paper.TableLine(**line), np.inf)

    def _paper(self, cell: Cell) -> dict[str, Any] | None:
        """Return the settings that the paper's search found at the nearest ε."""
        if cell["mechanism"] != "vlm":
            return None
        table = paper.TABLE_4["clean", "latent", kind_of(self.dataset.schema)]
        line = paper.nearest(table, cell["epsilon"])
        return {name: getattr(line, name) for name in self.grids["vlm"]}


def _name(line: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in line.items())


STUDY = Study(
    name="search",
    about="Choose hyper-parameters by private votes, beside those of the paper's tables.",
    question="Do private votes find good settings, and estimate their accuracy right?",
    parameters=SearchParameters,
    prepare=lambda parameters, progress: Search(parameters.load(progress), parameters),
    measures=("test_accuracy",),
    example="--data mnist",
    place=4,
)
