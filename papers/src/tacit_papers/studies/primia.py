"""Three hospitals train one classifier of chest X-rays, and every image is protected in each.

After PriMIA (Kaissis et al. 2021): Matthews' correlation coefficient against ε, for a network that
is trained from scratch and for one whose features were learned on public images. Here the images
are PneumoniaMNIST, split at random over three hospitals; the public images are handwritten digits,
and the network is small. So the numbers are not comparable, and the published point is drawn for
orientation only.

Every hospital releases a noisy mean and standard deviation of its pixels and noisy gradients, all
within (ε, δ). It is compared with the same federation without privacy, and with one hospital alone
at the same ε, since a federation must be worth its effort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.data import datasets
from tacit.data.datasets.base import Dataset, Integers
from tacit.data.schema import ArraySchema
from tacit.federated import partition
from tacit.federated.model import Data
from tacit.privacy import errors
from tacit_papers.engine import checks, declare
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.record import Cell, Record, versions
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured, generator
from tacit_papers.engine.tables import Table, trials
from tacit_papers.parts import primia_settings as settings
from tacit_papers.parts.primia_settings import MODELS, PRETRAINED

HOSPITALS = 3
TOGETHER, ALONE = "three hospitals", "one hospital alone"
TASKS = (TOGETHER, ALONE)

EPSILONS = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
DELTA = 1.9e-4
"""δ of the paper."""

PUBLISHED = {"epsilon": 6.0, "mcc": 0.78}
"""Kaissis et al., supplement: ResNet-18 pretrained on chest X-rays, on larger images."""

_QUICK_ROWS, _QUICK_PUBLIC = 240, 512


@dataclass(frozen=True)
class PrimiaParameters(Parameters):
    """Parameters of the study; ε = None is without privacy."""

    models: tuple[str, ...] = declare.option(MODELS, choices=MODELS)
    epsilons: tuple[float | None, ...] = declare.option(
        (*EPSILONS, None),
        "ε of every hospital; inf is without privacy.",
        check=checks.epsilon,
        quick=(6.0, None),
    )
    alone: bool = declare.option(
        True, "Whether to train in one hospital alone, too.", quick=False, record=False
    )
    delta: float = declare.delta(DELTA, "δ of every hospital.")
    trials: int = declare.trials("Trials, each with its own split.")
    seed: int = declare.seed()
    device: str = declare.device("cpu")
    quick: bool = declare.quick()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks to measure: who trains."""
        return TASKS if self.alone else (TOGETHER,)


def _alone(recorded: dict[str, Any]) -> dict[str, Any]:
    """Say by the recorded tasks whether one hospital was to train alone."""
    return {**recorded, "alone": recorded.get("tasks") != [TOGETHER]}


class Primia:
    """The experiment; see the module.

    Parameters
    ----------
    dataset : Dataset
        PneumoniaMNIST.
    public : Dataset
        Images of the same size, of nobody who is to be protected: MNIST.
    parameters : PrimiaParameters
        The parameters.
    """

    name = "primia"

    def __init__(self, dataset: Dataset, public: Dataset, parameters: PrimiaParameters) -> None:
        schema = dataset.schema
        if not isinstance(schema, ArraySchema) or schema.image is None or len(dataset.classes) != 2:
            errors.refuse("study", "data", "images of two classes", dataset.name)
        if dataset.rows.shape[1:] != public.rows.shape[1:]:
            errors.refuse("study", "public images", "of the same size", public.rows.shape[1:])
        self.dataset, self.public, self.parameters = dataset, public, parameters
        self._pixels = np.asarray(schema.rows(dataset.rows).numbers, dtype=np.float32)
        self._parts = _parts(parameters.quick)
        self._features: dict[int, Any] = {}

    def record(self) -> Record:
        """Return an empty record."""
        parameters = self.parameters
        recorded = {
            "data": self.dataset.name,
            "public_data": self.public.name,
            **parameters.recorded(),
            "tasks": list(parameters.tasks),
            "settings": self._settings(),
        }
        data = {
            "rows": len(self.dataset),
            **{name: len(rows) for name, rows in self._parts.items()},
            "hospitals": [len(one) for one in self._hospitals(0)],
            "ill": {
                k: round(float(self.dataset.labels[v].mean()), 4) for k, v in self._parts.items()
            },
            "classes": list(self.dataset.classes),
            "sha256": {**self.dataset.sha256, **self.public.sha256},
            "published": PUBLISHED,
        }
        return Record(self.name, recorded, versions(parameters.device), data)

    def _settings(self) -> dict[str, Any]:
        """Return the settings of every training; part of the parameters in a record."""
        chosen: dict[str, Any] = {
            f"{model} at {'∞' if epsilon is None else format(epsilon, 'g')}": asdict(
                settings.of(model, epsilon, quick=self.parameters.quick)
            )
            for model in self.parameters.models
            for epsilon in self.parameters.epsilons
        }
        return {**chosen, "channels": list(settings.CHANNELS), "pretraining": settings.PRETRAINING}

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial: both models at every ε, together and alone."""
        parameters = self.parameters
        return [
            {"model": model, "task": task, "epsilon": epsilon, "trial": trial}
            for trial in range(parameters.trials)
            for model in parameters.models
            for task in parameters.tasks
            for epsilon in parameters.epsilons
        ]

    def measure(self, cell: Cell) -> Measured:
        """Measure one training. A hospital that trains alone is another one in every trial."""
        from tacit_papers.parts import primia_training as training

        parameters, seed = self.parameters, self.parameters.seed + cell["trial"]
        hospitals = self._hospitals(cell["trial"])
        if cell["task"] == ALONE:
            hospitals = [hospitals[cell["trial"] % HOSPITALS]]
        chosen = settings.of(cell["model"], cell["epsilon"], quick=parameters.quick)
        features = self._pretrained(seed) if cell["model"] == PRETRAINED else None
        height, width = self.dataset.rows.shape[1:]
        model = training.network(
            (height, width), chosen, features, seed=seed, device=parameters.device
        )
        if cell["epsilon"] is None:
            trained = training.without_privacy(model, hospitals, chosen, seed=seed)
        else:
            trained = training.private(
                model,
                hospitals,
                chosen,
                epsilon=cell["epsilon"],
                delta=parameters.delta,
                rng=lambda silo: generator(parameters.seed, {**cell, "silo": silo}),
                seed=seed,
            )
        test, validation = (trained.quality(self._data(part)) for part in ("test", "validation"))
        values = {
            "mcc": test.mcc,
            "accuracy": test.accuracy,
            "mcc_validation": validation.mcc,
            "accuracy_validation": validation.accuracy,
        }
        facts = {"pretrained": features is not None, "hospitals": len(hospitals), **trained.facts}
        return Measured(values, facts)

    def _data(self, part: str) -> Data:
        rows = self._parts[part]
        return Data(self._pixels[rows], self.dataset.labels[rows])

    def _hospitals(self, trial: int) -> list[Data]:
        """Split the training images at random, anew in every trial."""
        every = self._data("training")
        parts = partition.iid(len(every), HOSPITALS, seed=self.parameters.seed + trial)
        return [Data(every.rows[part], every.labels[part]) for part in parts]

    def _pretrained(self, seed: int) -> Any:
        """Learn the features, once per seed."""
        from tacit_papers.parts import primia_training as training

        if seed not in self._features:
            epochs = settings.PRETRAINING["epochs"]
            few = _first(self.public, _QUICK_PUBLIC) if self.parameters.quick else self.public
            options: Any = {"epochs": epochs, "seed": seed, "device": self.parameters.device}
            self._features[seed] = training.pretrain(few, **options)
        return self._features[seed]


def _parts(quick: bool) -> dict[str, Integers]:
    from tacit_papers.data import pneumoniamnist

    parts = pneumoniamnist.parts()._asdict()
    return {k: v[:_QUICK_ROWS] if quick else v for k, v in parts.items()}


def _first(dataset: Dataset, most: int) -> Dataset:
    from dataclasses import replace

    return replace(dataset, rows=dataset.rows[:most], labels=dataset.labels[:most])


def table(record: Mapping[str, Any]) -> Table:
    """Return title, header and lines: one line per model and ε, three hospitals beside one."""
    parameters, images = record["parameters"], record["data"]
    results = {(one["model"], one["task"], one["epsilon"]): one for one in record["results"]}
    lines: list[tuple[str, ...]] = []
    for model in parameters["models"]:
        for epsilon in parameters["epsilons"]:
            both = [results.get((model, task, epsilon)) for task in TASKS]
            if any(both):
                lines.append((model, "∞" if epsilon is None else f"{epsilon:g}", *_line(*both)))
    title = (
        f"primia, {parameters['data']}, δ = {parameters['delta']:g}: "
        f"{len(images['hospitals'])} hospitals with {images['training']:,} images, "
        f"{images['validation']:,} validation images, "
        f"{images['test']:,} test images; {trials(record)}"
    )
    head = ("model", "ε", "MCC", "accuracy", "MCC,\nvalidation", "MCC, one\nhospital", "spent ε")
    return title, head, lines


def _line(
    together: Mapping[str, Any] | None, alone: Mapping[str, Any] | None
) -> tuple[str, str, str, str, str]:
    spent = next(
        (one["spent_epsilon"] for one in (together, alone) if one and "steps" in one), None
    )
    return (
        _shown(together, "mcc"),
        _shown(together, "accuracy"),
        _shown(together, "mcc_validation"),
        _shown(alone, "mcc"),
        "–" if spent is None else f"{spent:.3f}",
    )


def _shown(one: Mapping[str, Any] | None, measure: str) -> str:
    if one is None:
        return "–"
    deviation = f" ±{one[measure]['std']:.3f}" if len(one[measure]["trials"]) > 1 else ""
    return f"{one[measure]['mean']:.3f}{deviation}"


def _prepare(parameters: PrimiaParameters, progress: Any) -> Primia:
    images, public = (
        datasets.load(name, progress=progress) for name in ("pneumoniamnist", "mnist")
    )
    return Primia(images, public, parameters)


STUDY = Study(
    name="primia",
    about="Let three hospitals train on chest X-rays and protect every image.",
    question=(
        "How good is a model of hospitals that protect every image, and is it worth training "
        "together?"
    ),
    parameters=PrimiaParameters,
    prepare=_prepare,
    measures=("mcc",),
    table=table,
    needs={"torch": "learn"},
    requested=_alone,
    epsilon_optional=True,
    place=12,
)
