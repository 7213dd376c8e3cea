r"""Anonymized representations compared: accuracy on the task, and of attackers on the person.

For each training and strength λ, the study measures how accurately the regular label can be
predicted from a representation, and how accurately the person can, by the adversary of the training
and by freshly trained attackers. It also measures the paper's bound, linkage by reference rows, and
a second task that no training saw, where the data have one. With a local ε, all of this is measured
on what is then released.

References are a network of the same shape trained to name the person (`dedicated`), attackers on
the rows themselves (`raw`), the predicted regular label alone (`trivial`), and `chance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.anonymize.encoder import TRAININGS, AnonymizingEncoder
from tacit.data import datasets
from tacit.data.datasets.twice import TwiceLabelled, TwiceSplit
from tacit.local import ceilings
from tacit.privacy import errors
from tacit_papers.engine import checks, declare
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.record import Cell, Record, all_measures, versions
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured, generator
from tacit_papers.parts import anonymize_summary as summary
from tacit_papers.parts.anonymize_judging import Judge, Representations

STRENGTHS = (0.0, 0.25, 0.5, 1.0, 1.5)
EPSILONS = (1.0, 2.0, 4.0, 8.0)
EPSILON_STRENGTH = 0.5
EPSILON_STYLES = {"robust": 2, "toggled": 1}
"""Trainings with a local ε, and their numbers of styles: few, as each costs noise."""

REFERENCES = ("dedicated", "raw", "trivial", "chance")
_QUICK_ROWS = (300, 120, 120)
_QUICK_ATTACKERS = ("neighbours", "trees", "mlp-small")
_QUICK_EPOCHS = {"pretraining": 4, "adversary": 2, "rounds": 2, "patience": 2}


def _strength(name: str, value: float) -> float:
    if not 0 <= value < math.inf:
        errors.refuse("study", name, "finite numbers, 0 or more", value)
    return value


@dataclass(frozen=True)
class AnonymizeParameters(Parameters):
    """Parameters of the study."""

    data: str = declare.option(
        "pendigits",
        "pendigits, a folder of images, or a CSV or Parquet file of yours.",
        kw_only=True,
    )
    regular: str | None = declare.option(None, "The column of a file to keep.", kw_only=True)
    private: str | None = declare.option(None, "The column of a file to hide.", kw_only=True)
    schema: str | None = declare.option(
        None,
        "Bounds and categories of the other columns of a file.",
        record=False,
        otherwise="read off the rows",
        kw_only=True,
    )
    pattern: str | None = declare.option(
        None,
        "How paths in a folder name both labels: ferg, jaffe, or a pattern.",
        record=False,
        kw_only=True,
    )
    size: str | None = declare.option(
        None, "Size to which images of a folder are scaled, e.g. 50x50.", record=False, kw_only=True
    )
    strengths: tuple[float, ...] = declare.option(
        STRENGTHS, "Strengths λ of the trainings.", check=_strength, quick=(0.0, 1.0)
    )
    trainings: tuple[str, ...] = declare.option(TRAININGS, choices=TRAININGS)
    epsilons: tuple[float, ...] = declare.option(
        EPSILONS, "Local ε of a release, at λ = 0.5.", check=checks.epsilon, quick=(4.0,)
    )
    trials: int = declare.trials("Trials, each with its own split.")
    seed: int = declare.seed()
    device: str = declare.device()
    quick: bool = declare.quick()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "strengths", tuple(sorted(self.strengths)))


class Anonymize:
    """The experiment; see the module."""

    name = "anonymize"

    def __init__(self, dataset: TwiceLabelled, parameters: AnonymizeParameters) -> None:
        self.dataset, self.parameters = dataset, parameters
        self._trial = -1
        self._kept: dict[str, Any] = {}

    def record(self) -> Record:
        """Return an empty record."""
        parameters, dataset = self.parameters, self.dataset
        recorded = {
            **parameters.recorded(),
            "data": dataset.name,
            "regular": dataset.regular_name,
            "private": dataset.private_name,
            "epsilon_strength": EPSILON_STRENGTH,
        }
        split = self._split(0)
        data = {
            "rows": len(dataset),
            **{part: len(getattr(split, part)) for part in ("training", "validation", "test")},
            "classes": [str(value) for value in dataset.regular_classes],
            "private_classes": len(dataset.private_classes),
            "sha256": dict(dataset.sha256),
        }
        return Record(self.name, recorded, versions(parameters.device), data)

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial: references, strengths of each training, then every ε."""
        return [
            {**cell, "trial": trial}
            for trial in range(self.parameters.trials)
            for cell in self._each()
        ]

    def _each(self) -> list[Cell]:
        parameters = self.parameters
        private = [training for training in parameters.trainings if training in EPSILON_STYLES]
        return [
            *({"reference": name} for name in REFERENCES),
            *(
                {"training": training, "strength": strength, "epsilon": None}
                for training in parameters.trainings
                for strength in parameters.strengths
            ),
            *(
                {"training": training, "strength": EPSILON_STRENGTH, "epsilon": epsilon}
                for training in private
                for epsilon in parameters.epsilons
            ),
        ]

    def measure(self, cell: Cell) -> Measured:
        """Measure one representation or reference; frontiers are fitted once for all cells."""
        if self._trial != cell["trial"]:
            self._trial, self._kept = cell["trial"], {}
        reference = cell.get("reference")
        if reference == "chance":
            return Measured({"accuracy": self._judge.chance})
        if reference == "dedicated":
            return Measured({"accuracy": self._dedicated()})
        if reference == "raw":
            return self._raw()
        if reference == "trivial":
            encoder, shown, _, second = self._trivial()
            return self._judged(encoder, shown, second)
        encoder = self._fitted(cell)
        shown = self._shown(encoder, cell)
        second, _ = self._judge.second_task(shown, self._trivial()[2])
        return self._judged(encoder, shown, second)

    # --- what is fitted --------------------------------------------------------------------------

    def _once(self, what: str, make: Callable[[], Any]) -> Any:
        """Make what is first asked for, and keep it for the other cells of the trial."""
        if what not in self._kept:
            self._kept[what] = make()
        return self._kept[what]

    def _fitted(self, cell: Cell) -> AnonymizingEncoder:
        training, strength, epsilon = cell["training"], cell["strength"], cell["epsilon"]
        if epsilon is not None:
            styles = EPSILON_STYLES[training]
            encoder = self._encoder(strength, training=training, epsilon=epsilon, styles=styles)
            return encoder.fit(*self._rows("training"), **self._hidden())
        frontier = self._once(training, lambda: self._frontier(training))
        return frontier[strength]  # type: ignore[no-any-return]

    def _frontier(self, training: str) -> dict[float, AnonymizingEncoder]:
        encoders = self._encoder(training=training).frontier(
            self.parameters.strengths, *self._rows("training"), **self._hidden()
        )
        return {encoder.strength: encoder for encoder in encoders}

    def _trivial(self) -> tuple[AnonymizingEncoder, Representations, Any, dict[str, float]]:
        """Fit codes of one style: the predicted regular label alone."""

        def make() -> Any:
            encoder = self._encoder(training="robust", styles=1)
            encoder.fit(*self._rows("training"), **self._hidden())
            shown = self._shown(encoder)
            second, by_row = self._judge.second_task(shown)
            return encoder, shown, by_row, second

        return self._once("trivial", make)  # type: ignore[no-any-return]

    def _dedicated(self) -> float:
        """Measure the same network with the person as its regular label."""
        encoder = self._encoder(training="robust", styles=1)
        (rows, task, person), held = self._labelled("training"), self._labelled("validation")
        encoder.fit(rows, person, private=task, validation=(held[0], held[2], held[1]))
        test = self._labelled("test")
        return float(encoder.score(test[0], test[2]))

    def _encoder(self, strength: float = 0.0, **more: Any) -> AnonymizingEncoder:
        from tacit.anonymize.networks import PENDIGITS
        from tacit.anonymize.training import AdversarialSchedule

        shape: dict[str, Any] = PENDIGITS if self.dataset.name == "pendigits" else {}
        if self.parameters.quick:
            few = AdversarialSchedule(**_QUICK_EPOCHS)
            shape = {"encoder": (64, 64), "branches": (32,), "schedule": few, "styles": 2}
        seed = self.parameters.seed + self._trial
        chosen = {"seed": seed, "device": self.parameters.device, **shape, **more}
        return AnonymizingEncoder(strength, **chosen)

    # --- what is seen ----------------------------------------------------------------------------

    def _shown(self, encoder: AnonymizingEncoder, cell: Cell | None = None) -> Representations:
        """Return representations as they would be handed out."""
        noise = None if cell is None else generator(self.parameters.seed, cell)

        def of(indices: Any) -> Any:
            rows = self.dataset.take(indices)
            if encoder.epsilon is None:
                return encoder.represent(rows)
            return encoder.release(rows, noise)

        return Representations(of(self._judge.known), of(self._judge.split.test))

    def _raw(self) -> Measured:
        from tacit.anonymize.rows import RowReader

        judge, take = self._judge, self.dataset.take
        reader = RowReader.of(take(judge.split.training), "study")
        parts = (reader.read(take(i), "study").numpy() for i in (judge.known, judge.split.test))
        shown = Representations(*parts)
        attacked = judge.attacked(shown)
        second, _ = judge.second_task(shown)
        accuracy = attacked["strongest_accuracy"]
        return Measured({"accuracy": accuracy, **attacked, **_if_any(second)})

    def _judged(
        self, encoder: AnonymizingEncoder, shown: Representations, second: dict[str, float]
    ) -> Measured:
        judge = self._judge
        _, task, person = self._labelled("test")
        right = float((encoder.predict_from(shown.test) == task).mean())
        (chances,) = encoder.adversary(shown.test).values()
        (truth,) = encoder.classes_.private_codes("study", person).values()
        values = {"regular_accuracy": right, **judge.adversary(chances, truth)}
        if encoder.training == "robust":
            values["code_ceiling"] = judge.code_ceiling(shown)
        values |= {**judge.attacked(shown), **_if_any(second)}
        first = ("regular_accuracy", "adversary_accuracy", "strongest_accuracy")
        facts: dict[str, Any] = {"representation": int(shown.test.shape[1])}
        if encoder.local_ is not None:
            shares = np.bincount(truth) / len(truth)
            values["ceiling"] = ceilings.of_shares(shares, float(encoder.local_.epsilon))
        return Measured({**{name: values[name] for name in first}, **values}, facts)

    # --- rows ------------------------------------------------------------------------------------

    @property
    def _judge(self) -> Judge:
        def make() -> Judge:
            seed = self.parameters.seed + self._trial
            attackers = _QUICK_ATTACKERS if self.parameters.quick else None
            return Judge(self.dataset, self._split(self._trial), seed, attackers)

        return self._once("judge", make)  # type: ignore[no-any-return]

    def _split(self, trial: int) -> TwiceSplit:
        split = self.dataset.split(self.parameters.seed + trial)
        return _few(self.dataset, split) if self.parameters.quick else split

    def _labelled(self, part: str) -> tuple[Any, Any, Any]:
        indices = getattr(self._judge.split, part)
        dataset = self.dataset
        return dataset.take(indices), dataset.regular[indices], dataset.private[indices]

    def _rows(self, part: str) -> tuple[Any, Any]:
        return self._labelled(part)[:2]

    def _hidden(self) -> dict[str, Any]:
        return {
            "private": self._labelled("training")[2],
            "validation": self._labelled("validation"),
        }


def _few(dataset: TwiceLabelled, split: TwiceSplit) -> TwiceSplit:
    """Keep few rows of each part, with labels that the training rows have."""
    training, validation, test = _QUICK_ROWS
    kept = split.training[:training]
    labels = (dataset.regular, dataset.private)

    def known(indices: Any) -> Any:
        there = [np.isin(codes[indices], codes[kept]) for codes in labels]
        return indices[np.logical_and(*there)]

    return replace(
        split,
        training=kept,
        validation=known(split.validation)[:validation],
        test=known(split.test)[:test],
    )


def _if_any(second: dict[str, float]) -> dict[str, Any]:
    return {"second_task": second} if second else {}


def _prepare(parameters: AnonymizeParameters, progress: Any) -> Anonymize:
    from tacit.apps.cli.files import image_size

    folder: Any = {"pattern": parameters.pattern, "size": image_size(parameters.size)}
    columns = (
        parameters.regular,
        parameters.private,
        parameters.schema and Path(parameters.schema),
    )
    dataset = datasets.load_twice(parameters.data, *columns, progress=progress, **folder)
    return Anonymize(dataset, parameters)


STUDY = Study(
    name="anonymize",
    about="Train representations that keep the task and hide the person, and attack them.",
    question="Can a representation keep the task and hide the person, whoever attacks?",
    parameters=AnonymizeParameters,
    prepare=_prepare,
    measures=("regular_accuracy",),
    table=summary.table,
    measured=summary.measured,
    references=all_measures,
    needs={"torch": "learn"},
    example="--data pendigits --strengths 0,.5,1",
    epsilon_optional=True,
    place=7,
)
