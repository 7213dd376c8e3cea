"""What every study is asked for, checked before anything is loaded or fitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Self

from tacit.data.datasets.base import Dataset
from tacit.data.schema import ArraySchema, Schema
from tacit.local.learned.features import FIXED, TRAINED
from tacit.privacy import devices, errors
from tacit_papers.studies import paper
from tacit_papers.studies.record import Cell, Record, infinity, versions

LEVELS = ("latent", "feature")
TWO_LEVELS = ("vlm", "vlm-paper")
PAPER_EPSILONS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
CLASS_SIZES = "Whether the classes are about equally large: networks are fitted accordingly."
QUICK_EPSILONS = (2.0, 8.0)
QUICK_ROWS = 1500
"""With `quick`, every part of a split has at most so many rows: networks are hardly trained."""


@dataclass(frozen=True)
class Options:
    """What a study was asked for.

    Parameters
    ----------
    mechanisms : tuple of str
        Those to compare.
    epsilons, central : tuple of float
        Local ε of a report; central ε towards the in-house rows, ∞ for none. δ is 1e-5.
    features : str, optional
        Of the codebook; by default those that fit the data.
    level : tuple of str
        "latent" or "feature": what a network learns from. A codebook's report names a codeword,
        and that is the same at both.
    trials, seed
        Trial t is split, noised and fitted from seed + t.
    device : str
        As resolved: never "auto".
    quick : bool
        Few rows and hardly any training: to see whether it runs.
    """

    mechanisms: tuple[str, ...]
    epsilons: tuple[float, ...] = PAPER_EPSILONS
    central: tuple[float, ...] = (math.inf,)
    features: str | None = None
    level: tuple[str, ...] = ("latent",)
    trials: int = 3
    seed: int = 0
    device: str = "cpu"
    quick: bool = False

    @classmethod
    def of(cls, known: Sequence[str], **given: Any) -> Self:
        """Checked; `known` are the mechanisms that the study has."""
        made = cls(**given)
        where = "study"
        for name in made.mechanisms:
            errors.choice(where, "mechanisms", name, tuple(known))
        trained = [name for name in made.mechanisms if name.startswith("vlm")]
        if trained and find_spec("torch") is None:
            remedy = "pip install 'tacit[learn]', or choose others."
            errors.refuse(
                where, "mechanisms", "without VLM where torch is missing", trained, remedy
            )
        if made.features is not None:
            errors.choice(where, "features", made.features, FIXED + TRAINED)
        for name in made.level:
            errors.choice(where, "level", name, LEVELS)
        for epsilon in made.epsilons:
            errors.epsilon_in_range(where, epsilon)
        for central in made.central:
            if central != math.inf:
                errors.epsilon_in_range("study --central", central)
        errors.whole(where, "trials", made.trials, least=1, most=1000)
        errors.whole(where, "seed", made.seed, least=0)
        return replace(made, device=devices.resolve(where, made.device))

    def cells(
        self, schema: Schema, references: Sequence[str] = (), unprotected: Sequence[str] = ()
    ) -> list[Cell]:
        """Trial by trial: references, then every mechanism at every level, central and local ε.

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
        """Of a codebook: as asked for, or what fits the rows. The others have none."""
        from tacit.local.learned import codebook

        if mechanism != "codebook":
            return None
        return self.features or codebook.default_features(schema)

    def record(self, study: str, dataset: Dataset, sizes: dict[str, int], **more: Any) -> Record:
        """An empty record of these parameters."""
        parameters = {
            "data": dataset.name,
            "mechanisms": list(self.mechanisms),
            "features": self.features_of("codebook", dataset.schema),
            "level": list(self.level),
            "epsilons": list(self.epsilons),
            "central": [infinity(central) for central in self.central],
            "trials": self.trials,
            "seed": self.seed,
            "device": self.device,
            "quick": self.quick,
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
    """Which of the paper's data these rows are most like."""
    images = isinstance(schema, ArraySchema) and schema.image is not None
    return paper.IMAGES if images else paper.TABLES
