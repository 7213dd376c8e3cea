"""One set of reports for many tasks, none of which the mechanism was fitted to.

People report a row and its label once. The same reports answer every task that is a function of the
label, by adding up probabilities. For comparison, reports are made for each task alone, at the same
ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.datasets.base import Dataset
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inference.student import StudentClassifier
from tacit.privacy import errors
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
from tacit_papers.parts.contenders import Contenders, learning
from tacit_papers.parts.trials import Trial, Trials, accuracy, unwarned

MECHANISMS = ("codebook", "vlm", "direct")


@dataclass(frozen=True)
class AgnosticParameters(Collecting):
    """Parameters of the study."""

    mechanisms: tuple[str, ...] = mechanisms(*MECHANISMS)
    level: tuple[str, ...] = one_level()
    central: tuple[float, ...] = unprotected()


class Agnostic:
    """The experiment; see the module."""

    name = "agnostic"

    def __init__(self, dataset: Dataset, parameters: Collecting) -> None:
        if not dataset.tasks:
            remedy = "Take digits or mnist."
            errors.refuse("agnostic", "data", "with several tasks", dataset.name, remedy)
        self.dataset, self.parameters = dataset, parameters
        self.trials = Trials(dataset, parameters)
        self._answers: dict[str, Any] = {}

    def record(self) -> Record:
        """Return an empty record."""
        tasks = {name: list(codes) for name, codes in self.dataset.tasks.items()}
        return self.parameters.record(self.name, self.dataset, self.trials.sizes(), tasks=tasks)

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial."""
        return [
            {
                "mechanism": mechanism,
                "features": self.parameters.features_of(mechanism, self.dataset.schema),
                "epsilon": epsilon,
                "task": task,
                "trial": trial,
            }
            for trial in range(self.parameters.trials)
            for mechanism in self.parameters.mechanisms
            for epsilon in self.parameters.epsilons
            for task in self.dataset.tasks
        ]

    def measure(self, cell: Cell) -> Measured:
        """Measure one task."""
        trial = self.trials[cell["trial"]]
        rows, labels = trial.test
        codes = np.asarray(self.dataset.tasks[cell["task"]])
        truth = codes[labels]
        shared = self._probabilities({**cell, "task": None}, trial) @ np.eye(codes.max() + 1)[codes]
        accuracies = {"clean_accuracy": accuracy(shared.argmax(axis=1), truth)}
        accuracies["dedicated_accuracy"] = accuracies["clean_accuracy"]
        if not np.array_equal(codes, np.arange(len(codes))):  # the task is the label itself
            accuracies["dedicated_accuracy"] = self._dedicated(cell, trial, codes, rows, truth)
        return Measured(accuracies, {"chance": references.largest(codes[self.dataset.labels])})

    def _probabilities(self, cell: Cell, trial: Trial) -> npt.NDArray[np.float64]:
        """Return label probabilities of every test row, from the reports that all tasks share."""
        name = str(cell)
        if name not in self._answers:
            model = self._model(cell, trial.contenders, *trial.people)
            self._answers = {name: model.predict_proba(trial.test[0])}
        return np.asarray(self._answers[name])

    def _dedicated(self, cell: Cell, trial: Trial, codes: Any, rows: Any, truth: Any) -> float:
        people, labels = trial.people
        inhouse, count = trial.contenders.rows, int(codes.max()) + 1
        contenders = self.trials.contenders(inhouse, labels, count, trial.seed)
        contenders.networks = trial.contenders.networks  # encoders see no label
        model = self._model(cell, contenders, people, codes[labels])
        return accuracy(model.predict(rows), truth)

    def _model(self, cell: Cell, contenders: Contenders, rows: Any, labels: Any) -> Any:
        epsilon, seed = cell["epsilon"], contenders.seed
        rng = generator(seed, cell)
        with unwarned():
            if cell["mechanism"] == "codebook":
                reports = contenders.codebook(epsilon, np.inf).release(rows, labels, rng)
                return StudentClassifier(inhouse=contenders.rows, seed=seed).fit(reports)
            mechanism: Any = contenders.direct(epsilon)
            if cell["mechanism"] == "vlm":
                table = paper.TABLE_4["clean", "latent", kind_of(self.dataset.schema)]
                mechanism = contenders.vlm(epsilon, paper.nearest(table, epsilon), np.inf)
            reports = mechanism.release(rows, labels, rng)
            settings = {
                "seed": seed,
                "device": self.parameters.device,
                **learning(mechanism, self.dataset),
            }
            return NoiseAwareClassifier(**settings).fit(reports)


STUDY = Study(
    name="agnostic",
    about="Answer many tasks from one set of reports, beside reports made for each task alone.",
    question="Do the same reports serve tasks that were not known before?",
    parameters=AgnosticParameters,
    prepare=lambda parameters, progress: Agnostic(parameters.load(progress), parameters),
    measures=("clean_accuracy",),
    example="--data mnist",
    place=5,
)
