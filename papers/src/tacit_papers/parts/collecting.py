"""Parameters, cells and records of the studies of "Learning to Noise"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tacit.data import datasets
from tacit.data.datasets.base import Dataset
from tacit.data.schema import ArraySchema, Schema
from tacit.local.learned.features import FIXED, TRAINED
from tacit.privacy import errors
from tacit_papers.engine import checks, declare
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.record import Cell, Record, infinity, versions
from tacit_papers.parts import paper

LEVELS = ("latent", "feature")
TWO_LEVELS = ("vlm", "vlm-paper")
PAPER_EPSILONS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
CLASS_SIZES = "Whether the classes are about equally large: networks are fitted accordingly."
QUICK_ROWS = 1500
"""Largest number of rows in each part of a split of a quick run."""


def _trainable(name: str, value: str) -> str:
    """Refuse a mechanism that is trained where torch is missing."""
    if value.startswith("vlm") and find_spec("torch") is None:
        remedy = "pip install 'tacit[learn]', or choose others."
        errors.refuse("study", name, "without VLM where torch is missing", value, remedy)
    return value


def mechanisms(*known: str, default: tuple[str, ...] = ("codebook", "vlm", "direct")) -> Any:
    """Declare the mechanisms that a study compares."""

    def check(name: str, value: str) -> str:
        return _trainable(name, checks.one_of(known)(name, value))

    return declare.option(default, f"One or more of {', '.join(known)}.", check=check)


def unprotected() -> Any:
    """Declare that a study knows no central guarantee."""
    return declare.option((math.inf,), hidden=True)


def one_level() -> Any:
    """Declare that networks learn from latents only."""
    return declare.option(("latent",), hidden=True)


@dataclass(frozen=True)
class Collecting(Parameters):
    """Parameters that the studies of "Learning to Noise" share.

    A codebook's report names a codeword, which is the same at both levels. δ of a central guarantee
    is 1e-5.
    """

    data: str = declare.option(
        "digits",
        "digits, mnist, pneumoniamnist, lending_club, adult, or a CSV or Parquet file of yours.",
        kw_only=True,
    )
    schema: str | None = declare.option(
        None, "Columns, bounds, categories and label of your file.", record=False, kw_only=True
    )
    mechanisms: tuple[str, ...] = mechanisms()
    features: str | None = declare.option(
        None,
        "Features of the codebook, as in tacit collect fit.",
        check=checks.one_of(FIXED + TRAINED),
        otherwise="those that fit the data",
    )
    level: tuple[str, ...] = declare.option(
        ("latent",), "What networks learn from", choices=LEVELS, usual=True
    )
    epsilons: tuple[float, ...] = declare.option(
        PAPER_EPSILONS, "Local ε of a report.", check=checks.epsilon, quick=(2.0, 8.0)
    )
    central: tuple[float, ...] = declare.option(
        (math.inf,),
        "Central ε towards the in-house rows; inf leaves them unprotected.",
        check=checks.epsilon_or_none,
        usual=True,
    )
    trials: int = declare.trials()
    seed: int = declare.seed()
    device: str = declare.device()
    quick: bool = declare.quick()

    def load(self, progress: Any) -> Dataset:
        """Load the data that were asked for."""
        return datasets.load(self.data, self.schema and Path(self.schema), progress=progress)

    def cells(
        self, schema: Schema, references: Sequence[str] = (), unprotected: Sequence[str] = ()
    ) -> list[Cell]:
        """List the cells trial by trial: references, then mechanisms by level, central and local ε.

        What is the same at both levels is measured once; `unprotected` mechanisms have no central
        ε, or need none.
        """
        return [
            cell
            for trial in range(self.trials)
            for cell in (
                *({"reference": name, "trial": trial} for name in references),
                *self._of_mechanisms(schema, trial, unprotected),
            )
        ]

    def _of_mechanisms(self, schema: Schema, trial: int, unprotected: Sequence[str]) -> list[Cell]:
        return [
            {
                "mechanism": mechanism,
                "features": self.features_of(mechanism, schema),
                "level": level,
                "epsilon": epsilon,
                "central_epsilon": infinity(central),
                "trial": trial,
            }
            for mechanism in self.mechanisms
            for level in (self.level if mechanism in TWO_LEVELS else self.level[:1])
            for central in ((math.inf,) if mechanism in unprotected else self.central)
            for epsilon in self.epsilons
        ]

    def features_of(self, mechanism: str, schema: Schema) -> str | None:
        """Name the features of a codebook: as asked for, or those that fit the rows."""
        from tacit.local.learned import codebook

        if mechanism != "codebook":
            return None
        return self.features or codebook.default_features(schema)

    def record(self, study: str, dataset: Dataset, sizes: dict[str, int], **more: Any) -> Record:
        """Return an empty record of these parameters."""
        parameters = {
            **self.recorded(),
            "data": dataset.name,
            "features": self.features_of("codebook", dataset.schema),
            **more,
        }
        data = {
            "rows": len(dataset.labels),
            **sizes,
            "classes": [str(value) for value in dataset.classes],
            "sha256": dict(dataset.sha256),
            "taken_as_public": [*dataset.taken_as_public, CLASS_SIZES],
        }
        return Record(study, parameters, versions(self.device), data)


def kind_of(schema: Schema) -> str:
    """Say whether rows are like the images or like the tables of the paper."""
    images = isinstance(schema, ArraySchema) and schema.image is not None
    return paper.IMAGES if images else paper.TABLES
