r"""Ways of accounting compared by what their noise costs: Jayaraman and Evans (2019).

The same training, on 10,000 records with Poisson sampling, gets the noise that each of five
accountants requires for (ε, δ): naive and advanced composition of amplified steps, zCDP, Rényi and
privacy loss distributions; see `tacit.accounting.accountants`. For each ε, the study measures the
accuracy lost, 1 − private / non-private, on 10,000 other records, and the advantage of an attacker
who sees the model in telling members from others (by the loss, [YGFJ18]_) and in guessing an
attribute of members. Beside these it records the largest advantage that ε allows, and the ε of the
noise by the tightest accountant. All five guarantees are true; they differ in how much noise their
proofs waste.

Advantages are true less false positive rates, or shares of right guesses on members less those on
others. Both are probabilities of events E about what a model tells about a record. Members are
compared with records that could have taken their place, so with p the probability of E where that
place is empty,

.. math:: P(E) \le 1 - e^{-\varepsilon}(1 - p - \delta), \qquad P'(E) \ge e^{-\varepsilon}(p -
          \delta), \qquad P(E) - P'(E) \le 1 - e^{-\varepsilon}(1 - 2\delta)

by (ε, δ)-DP under add-remove for the complement of E, and for E: the ceiling that is recorded.
The threshold of the first attacker is the mean loss of the members. It is known exactly, as in the
paper, which is more than the model tells; one record moves it by a ten-thousandth of its loss.

Beyond ε = 700 the library refuses to calibrate: at 1,000 the noise is that of 700, a stronger
guarantee. Where noise is below 0.3 clip norms, no loss distribution fits a grid, and Rényi
accounting is used instead.

References
----------
.. [JE19] Jayaraman, Evans. Evaluating differentially private machine learning in practice. USENIX
   Security 2019.
.. [YGFJ18] Yeom, Giacomelli, Fredrikson, Jha. Privacy risk in machine learning. CSF 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data import datasets
from tacit.data.datasets.base import Dataset
from tacit.privacy import errors, events
from tacit.privacy.accounting import accountants, plans, privacy_loss
from tacit_papers.engine import checks, declare
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.record import Cell, Record, all_measures, versions
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured, generator
from tacit_papers.parts import composition_summary as summary

DATA = ("mnist", "adult", "digits")
MODELS = ("logistic", "network")
EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0)
LARGEST = 10_000.0
RECORDS = 10_000
SAMPLING, EPOCHS, CLIP = 0.05, 20, 1.0
_QUICK_RECORDS, _QUICK_EPOCHS = 300, 2


@dataclass(frozen=True)
class CompositionParameters(Parameters):
    """Parameters of the study."""

    data: str = declare.option("mnist", choices=DATA, quick="digits", kw_only=True)
    models: tuple[str, ...] = declare.option(MODELS, choices=MODELS)
    accountants: tuple[str, ...] = declare.option(accountants.NAMES, choices=accountants.NAMES)
    epsilons: tuple[float, ...] = declare.option(
        EPSILONS, "ε of a model.", check=checks.within(1e-9, LARGEST), quick=(0.1, 100.0)
    )
    delta: float = declare.delta(1e-5, "δ of a model.")
    trials: int = declare.trials()
    seed: int = declare.seed()
    device: str = declare.device()
    quick: bool = declare.quick()


def ceiling(epsilon: float, delta: float) -> float:
    r"""Return the largest advantage under (ε, δ), :math:`1 - e^{-\varepsilon}(1 - 2\delta)`."""
    return 1 - math.exp(-epsilon) * (1 - 2 * delta)


class Composition:
    """The experiment; see the module."""

    name = "composition"

    def __init__(self, dataset: Dataset, parameters: CompositionParameters) -> None:
        errors.choice("study", "data", dataset.name, DATA)
        self.dataset, self.parameters = dataset, parameters
        self.records = min(_QUICK_RECORDS if parameters.quick else RECORDS, len(dataset) // 2)
        self.batch_size = round(SAMPLING * self.records)
        self.steps = round((_QUICK_EPOCHS if parameters.quick else EPOCHS) / SAMPLING)
        self._trial = -1
        self._kept: dict[Any, Any] = {}
        self._noise: dict[tuple[str, float], float] = {}

    def record(self) -> Record:
        """Return an empty record."""
        from tacit_papers.parts.composition_training import SETTINGS, attribute_of

        parameters = self.parameters
        recorded = {
            **parameters.recorded(),
            "data": self.dataset.name,
            "settings": {model: SETTINGS[model] for model in parameters.models},
            "run": {"batch_size": self.batch_size, "steps": self.steps, "clip_norm": CLIP},
        }
        data = {
            "rows": len(self.dataset),
            "training": self.records,
            "test": self.records,
            "classes": [str(value) for value in self.dataset.classes],
            "attribute": attribute_of(self.dataset).name,
            "sha256": dict(self.dataset.sha256),
        }
        return Record(self.name, recorded, versions(parameters.device), data)

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial: references, then each model with each accountant."""
        parameters = self.parameters
        each: list[Cell] = [{"reference": name} for name in ("chance", *parameters.models)]
        each += [
            {"mechanism": name, "task": model, "epsilon": epsilon}
            for model in parameters.models
            for name in parameters.accountants
            for epsilon in parameters.epsilons
        ]
        return [{**cell, "trial": trial} for trial in range(parameters.trials) for cell in each]

    def measure(self, cell: Cell) -> Measured:
        """Measure one training and the attacks on it."""
        if self._trial != cell["trial"]:
            self._trial, self._kept = cell["trial"], {}
        reference = cell.get("reference")
        if reference == "chance":
            labels = self._records.others[1].cpu().numpy()
            return Measured({"accuracy": float(np.bincount(labels).max() / len(labels))})
        if reference is not None:
            return Measured(self._without_privacy(reference))
        return self._private(cell)

    def _private(self, cell: Cell) -> Measured:
        from tacit.central.training import train
        from tacit_papers.parts import composition_training as training

        parameters, model = self.parameters, cell["task"]
        module = self._untrained(model)
        trained = train(
            module,
            self._records.members,
            training.losses,
            delta=parameters.delta,
            clip_norm=CLIP,
            batch_size=self.batch_size,
            steps=self.steps,
            rng=generator(parameters.seed, cell),
            **self._calibrated(cell),
            **training.SETTINGS[model],
        )
        if trained.steps != self.steps:
            raise AssertionError(f"{cell}: the noise affords {trained.steps} steps only")
        attacked = training.attacked(module, self._records)
        plain = self._without_privacy(model)["accuracy"]
        values = {"accuracy_loss": 1 - attacked["accuracy"] / plain, **attacked}
        return Measured(values, self._promised(cell["epsilon"], trained))

    def _calibrated(self, cell: Cell) -> dict[str, Any]:
        """Return arguments for `train`, which calibrates by Rényi and loss distributions itself.

        Other noise is given, and checked by Rényi accounting where that is tight enough, as it is
        faster.
        """
        name, epsilon = cell["mechanism"], min(cell["epsilon"], accountants.LARGEST)
        if name in ("rdp", "pld"):
            return {"epsilon": epsilon, "accountant": name}
        noise = self._noise_of(name, epsilon)
        run = privacy_loss.subsampled_gaussian(noise, self._sampling, self.steps)
        quick = privacy_loss.epsilon_rdp(run, self.parameters.delta) <= epsilon
        checked = "rdp" if quick else "pld"
        return {"epsilon": epsilon, "accountant": checked, "noise_multiplier": noise}

    @property
    def _sampling(self) -> float:
        """Sampling probability as the training rounds it, so that events are the same."""
        return plans.threshold(self.batch_size, self.records) / plans.WORDS

    def _noise_of(self, name: str, epsilon: float) -> float:
        """Compute the noise once; it does not depend on the data."""
        if (name, epsilon) not in self._noise:
            self._noise[name, epsilon] = accountants.noise_by(
                name,
                epsilon,
                self.parameters.delta,
                sampling_probability=self._sampling,
                steps=self.steps,
            )
        return self._noise[name, epsilon]

    def _promised(self, epsilon: float, trained: Any) -> dict[str, Any]:
        """Return what is claimed, and the ε of the same event by the tightest accountant."""
        delta, proved = self.parameters.delta, trained.guarantee.epsilon
        by_pld = _pld(trained.event, delta)
        return {
            "noise_multiplier": trained.noise_multiplier,
            "sampling_probability": trained.sampling_probability,
            "steps": trained.steps,
            "calibrated_epsilon": min(epsilon, accountants.LARGEST),
            "proved_epsilon": proved,
            "pld_epsilon": by_pld,
            "ceiling": ceiling(epsilon, delta),
            "proved_ceiling": ceiling(proved, delta),
        }

    # --- kept for the cells of a trial ------------------------------------------------------------

    def _once(self, what: Any, make: Callable[[], Any]) -> Any:
        if what not in self._kept:
            self._kept[what] = make()
        return self._kept[what]

    @property
    def _records(self) -> Any:
        from tacit_papers.parts.composition_training import records

        def make() -> Any:
            order = np.random.default_rng([self._seed, 1]).permutation(len(self.dataset))
            return records(self.dataset, order[: 2 * self.records], self.parameters.device)

        return self._once("records", make)

    @property
    def _seed(self) -> int:
        return self.parameters.seed + self._trial

    def _untrained(self, model: str) -> Any:
        from tacit_papers.parts.composition_training import untrained

        width, classes = self._records.width, self._records.classes
        return untrained(model, width, classes, self._seed).to(self.parameters.device)

    def _without_privacy(self, model: str) -> dict[str, Any]:
        from tacit_papers.parts import composition_training as training

        def make() -> Any:
            module = self._untrained(model)
            training.train_plainly(
                module,
                self._records.members,
                batch_size=self.batch_size,
                steps=self.steps,
                seed=self._seed,
                **training.SETTINGS[model],
            )
            return training.attacked(module, self._records)

        return dict(self._once(model, make))


def _pld(event: events.Event, delta: float) -> float | None:
    """Return ε by the loss distribution, or None where the noise is too small for one."""
    try:
        return privacy_loss.epsilon_pld(event, delta)
    except privacy_loss.Unsupported:
        return None


STUDY = Study(
    name="composition",
    about="Measure the accuracy that each way of accounting costs, and what attackers gain.",
    question="What does careless accounting cost, and what do attackers gain from a model?",
    parameters=CompositionParameters,
    prepare=lambda parameters, progress: Composition(
        datasets.load(parameters.data, progress=progress), parameters
    ),
    measures=("accuracy_loss",),
    table=summary.table,
    references=all_measures,
    needs={"torch": "learn"},
    example="--data adult",
    place=10,
)
