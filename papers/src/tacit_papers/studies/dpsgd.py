r"""Models of images trained by DP-SGD, beside Abadi et al. (2016) and beside no privacy.

The model `paper` is theirs, a private projection to 60 principal components and 1,000 ReLU units.
`scattering-plain` is softmax regression on scattering features, which are fixed before any image is
seen, with all images in every step and the average of the last weights; `scattering` also sees
eight views of every image. For each ε, the study records the accuracy on the test images, the
noise, and the cost of the same run by Rényi accounting and by the privacy loss distribution.

References are models of the same shape trained by Adam without clipping and noise.

References
----------
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016.
.. [TB21] Tramèr, Boneh. Differentially private learning needs better features (or much more data).
   ICLR 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.data import datasets
from tacit.data.datasets.base import Dataset, Integers, Pools
from tacit.data.schema import ArraySchema
from tacit.privacy import errors, events
from tacit.privacy.accounting import privacy_loss
from tacit_papers.engine import checks, declare
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.record import Cell, Record, versions
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured, generator
from tacit_papers.engine.tables import Table, trials
from tacit_papers.parts import dpsgd_settings as settings

EPSILONS = (0.5, 2.0, 8.0)
PUBLISHED = {"0.5": 0.90, "2": 0.95, "8": 0.97, "inf": 0.983}
"""Accuracy on MNIST by ε at δ = 1e-5, as stated in the paper; the last is without privacy."""

PUBLISHED_DELTA = 1e-5
_SUFFIX = "_without_privacy"
_QUICK_ROWS = (600, 197)


@dataclass(frozen=True)
class DpsgdParameters(Parameters):
    """Parameters of the study."""

    data: str = declare.option("mnist", "mnist or digits.", quick="digits", kw_only=True)
    models: tuple[str, ...] = declare.option(settings.MODELS, choices=settings.MODELS)
    epsilons: tuple[float, ...] = declare.option(
        EPSILONS, "ε of a trained model.", check=checks.epsilon, quick=(2.0, 8.0)
    )
    delta: float = declare.delta(1e-5, "δ of a trained model.")
    trials: int = declare.trials("Trainings of each model.")
    seed: int = declare.seed()
    device: str = declare.device()
    quick: bool = declare.quick()


class Dpsgd:
    """The experiment; see the module."""

    name = "dpsgd"

    def __init__(self, dataset: Dataset, parameters: DpsgdParameters) -> None:
        if not isinstance(dataset.schema, ArraySchema) or dataset.schema.image is None:
            errors.refuse("study", "data", "images: mnist or digits", dataset.name)
        self.dataset = _few(dataset, parameters.seed) if parameters.quick else dataset
        self.parameters = parameters
        self._kept: dict[int | None, Any] = {}

    def record(self) -> Record:
        """Return an empty record."""
        parameters, (training, test) = self.parameters, self._split(0)
        recorded = {
            **parameters.recorded(),
            "data": self.dataset.name,
            "settings": self._settings(len(training)),
        }
        data = {
            "rows": len(self.dataset),
            "training": len(training),
            "test": len(test),
            "classes": [str(value) for value in self.dataset.classes],
            "sha256": dict(self.dataset.sha256),
            **self._published(),
        }
        return Record(self.name, recorded, versions(parameters.device), data)

    def _published(self) -> dict[str, Any]:
        """Return the paper's numbers, where images and δ are the same."""
        same = (self.dataset.name, self.parameters.delta) == ("mnist", PUBLISHED_DELTA)
        return {"published": PUBLISHED} if same else {}

    def _settings(self, rows: int) -> dict[str, Any]:
        """Return the settings of every network; part of the parameters in a record."""
        parameters = self.parameters
        return {
            f"{model} at {epsilon:g}": settings.of(model, epsilon, rows, quick=parameters.quick)
            for model in parameters.models
            for epsilon in parameters.epsilons
        }

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial: references, then every model at every ε."""
        parameters = self.parameters
        each: list[Cell] = [{"reference": model + _SUFFIX} for model in parameters.models]
        each += [
            {"model": model, "epsilon": epsilon}
            for model in parameters.models
            for epsilon in parameters.epsilons
        ]
        return [{**cell, "trial": trial} for trial in range(parameters.trials) for cell in each]

    def measure(self, cell: Cell) -> Measured:
        """Measure one training."""
        from tacit_papers.parts import dpsgd_models as models

        model = cell.get("model") or cell["reference"].removesuffix(_SUFFIX)
        training, test = self._split(cell["trial"])
        parameters, labels, rows = self.parameters, self.dataset.labels, self._rows(model)
        classes = len(self.dataset.classes)
        task = models.Task(rows[training], labels[training], rows[test], classes, parameters.device)
        if "reference" in cell:
            answers = models.without_privacy(task, model, parameters.seed + cell["trial"])
            return Measured({"accuracy": _right(answers, labels[test])})
        fit = models.network if model == "paper" else models.linear
        chosen = settings.of(model, cell["epsilon"], len(training), quick=parameters.quick)
        noise = generator(parameters.seed, cell)
        answers, event = fit(task, cell["epsilon"], parameters.delta, chosen, noise)
        return Measured({"accuracy": _right(answers, labels[test])}, spent(event, parameters.delta))

    def _rows(self, model: str) -> Any:
        """Return rows (n, views, columns) of all images; the first view is the image.

        They are computed once for all cells, with as many views as any model of the study has.
        """
        views = settings.VIEWS.get(model)
        most = views and max(settings.VIEWS.get(one, 0) for one in self.parameters.models)
        if most not in self._kept:
            self._kept[most] = self._made(most)
        return self._kept[most][:, :views]

    def _made(self, views: int | None) -> Any:
        pixels = self.dataset.schema.rows(self.dataset.rows).numbers
        if views is None:
            return pixels[:, None]
        from tacit_papers.parts.dpsgd_features import rows_of

        image = self.dataset.rows.shape[1:]
        return rows_of(pixels, image, views, self.parameters.device, quick=self.parameters.quick)

    def _split(self, trial: int) -> tuple[Integers, Integers]:
        """Split into training and test rows, as the makers did where they did."""
        rng = np.random.default_rng(self.parameters.seed + trial)
        return self.dataset.pools.halves(rng, len(self.dataset))


def _few(dataset: Dataset, seed: int) -> Dataset:
    """Keep a few images, in the same split for all trials."""
    rng = np.random.default_rng(seed)
    parts = dataset.pools.halves(rng, len(dataset))
    kept = [rng.permutation(part)[:most] for part, most in zip(parts, _QUICK_ROWS, strict=True)]
    chosen = np.concatenate(kept)
    pools = Pools(0, 0, 0, test=len(kept[1]), training=len(kept[0]))
    return replace(dataset, rows=dataset.rows[chosen], labels=dataset.labels[chosen], pools=pools)


def _right(answers: Any, truth: Any) -> float:
    return float((answers == truth).mean())


def spent(event: events.Event, delta: float) -> dict[str, Any]:
    """Return noise and steps of a training, and its ε at δ by both accountants."""
    steps = _sampled(event)
    sample = steps.event
    assert isinstance(sample, events.PoissonSampled)
    assert isinstance(sample.event, events.Gaussian)
    return {
        "delta": delta,
        "noise_multiplier": float(sample.event.noise_multiplier),
        "sampling_probability": sample.probability,
        "steps": steps.count,
        "epsilon_pld": privacy_loss.epsilon_pld_or_rdp(event, delta),
        "epsilon_rdp": privacy_loss.epsilon_rdp(event, delta),
    }


def _sampled(event: events.Event) -> events.Repeated:
    """Find the steps of the training among all that was released."""
    parts = event.events if isinstance(event, events.Composed) else (event,)
    (steps,) = [part for part in parts if _of_samples(part)]
    assert isinstance(steps, events.Repeated)
    return steps


def _of_samples(event: events.Event) -> bool:
    return isinstance(event, events.Repeated) and isinstance(event.event, events.PoissonSampled)


def table(record: Mapping[str, Any]) -> Table:
    """Return title, header and lines: one line per model and ε, beside the paper's numbers."""
    parameters, images = record["parameters"], record["data"]
    published = images.get("published", {})
    lines = [_line(one, published) for one in record["results"]]
    for name, reference in record["references"].items():
        model = name.removesuffix(_SUFFIX)
        theirs = _theirs(published, "inf") if model == "paper" else "–"
        lines.append((model, "∞", _shown(reference), theirs, *["–"] * 4))
    title = (
        f"dpsgd, {parameters['data']}, δ = {parameters['delta']:g}: "
        f"{images['training']:,} training images, {images['test']:,} test images; {trials(record)}"
    )
    head = ("model", "ε", "accuracy", "Abadi", "noise", "steps", "by PLD", "by Rényi")
    return title, head, lines


def _line(one: Mapping[str, Any], published: Mapping[str, float]) -> tuple[str, ...]:
    epsilon = f"{one['epsilon']:g}"
    return (
        one["model"],
        epsilon,
        _shown(one["accuracy"]),
        _theirs(published, epsilon),
        f"{one['noise_multiplier']:.3f}",
        f"{one['steps']:,}",
        *(f"{one[name]:.3f}" for name in ("epsilon_pld", "epsilon_rdp")),
    )


def _theirs(published: Mapping[str, float], epsilon: str) -> str:
    return f"{published[epsilon]:.3f}" if epsilon in published else "–"


def _shown(measure: Mapping[str, Any]) -> str:
    deviation = f" ±{measure['std']:.3f}" if len(measure["trials"]) > 1 else ""
    return f"{measure['mean']:.3f}{deviation}"


STUDY = Study(
    name="dpsgd",
    about="Train networks by DP-SGD, beside Abadi et al. and beside no privacy.",
    question="How accurate is a network that DP-SGD trained, and what does privacy cost it?",
    parameters=DpsgdParameters,
    prepare=lambda parameters, progress: Dpsgd(
        datasets.load(parameters.data, progress=progress), parameters
    ),
    measures=("accuracy",),
    table=table,
    needs={"torch": "learn"},
    example="--epsilons .5,2,8",
    place=8,
)
