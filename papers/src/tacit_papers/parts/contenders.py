"""Mechanisms that the studies compare, fitted on the same in-house rows for one ε and central ε.

What several ε share is computed once: features of images, their projection, and the networks of a
VLM. Nothing depends on the order in which mechanisms are requested.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data import labels
from tacit.data.datasets.base import Dataset
from tacit.data.schema import Rows, Schema
from tacit.local.learned import features as features_of
from tacit.local.learned import quantizer
from tacit.local.learned.codebook import DEFAULTS, Codebook
from tacit.local.learned.direct import Direct
from tacit.local.learned.features import Features
from tacit.local.learned.provenance import vouch
from tacit.privacy import errors
from tacit.privacy.accounting import calibration
from tacit_papers.engine.record import infinity
from tacit_papers.engine.running import generator
from tacit_papers.parts import paper
from tacit_papers.parts.collecting import Collecting, kind_of

STUDENT_SHARE = 1 / 6
"""Share of a central budget for the student, which is taught on the in-house rows again."""

EQUAL = 1.2
"""Classes count as equal where the largest has less than this times 1 / (number of classes)."""

QUICK: dict[str, Any] = {"epochs": 3, "batch_size": 128}


@vouch
class CachedFeatures:
    """Fixed features that are computed once for every row, whatever the order of the rows.

    With a projection the vectors need no further one; without, a codebook treats them like the
    features themselves. Vectors of more than 1,000 numbers are kept in half precision: distances
    between images do not need more.
    """

    def __init__(self, inner: Features, projection: quantizer.Projection | None = None) -> None:
        self.inner, self.projection = inner, projection
        self.kind = inner.kind if projection is None else "projected"
        matrix = None if projection is None else projection.matrix
        self.dimension = inner.dimension if matrix is None else int(matrix.shape[1])
        self.reach = features_of.reach(inner)
        self._stored = np.float16 if self.dimension > 1000 else np.float32
        self._known: dict[bytes, npt.NDArray[Any]] = {}
        self._known_alone: dict[bytes, npt.NDArray[Any]] = {}

    def transform(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Return one vector per row."""

        def vectors(new: Rows) -> npt.NDArray[Any]:
            features = self.inner.transform(new)
            return features if self.projection is None else self.projection(features)

        return self._remembered(rows, self._known, vectors)

    def alone(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Return one vector per row, by arithmetic that sees each row alone."""

        def vectors(new: Rows) -> npt.NDArray[Any]:
            features = features_of.alone(self.inner, new)
            return features if self.projection is None else self.projection(features)

        return self._remembered(rows, self._known_alone, vectors)

    def _remembered(
        self,
        rows: Rows,
        known: dict[bytes, npt.NDArray[Any]],
        vectors: Callable[[Rows], npt.NDArray[Any]],
    ) -> npt.NDArray[np.float32]:
        keys = [blake2b(row.tobytes(), digest_size=16).digest() for row in rows.numbers]
        new = {key: place for place, key in enumerate(keys) if key not in known}
        if new:
            computed = vectors(rows[np.fromiter(new.values(), np.int64)])
            known |= dict(zip(new, computed.astype(self._stored), strict=True))
        return np.stack([known[key] for key in keys]).astype(np.float32)

    def parts(self) -> features_of.Parts:
        """Return nothing to save: studies keep no mechanisms."""
        return {}, {}


@dataclass
class Contenders:
    """Mechanisms fitted on one set of in-house rows.

    Parameters
    ----------
    rows, schema
        The in-house rows.
    people : int
        Number of people who will report.
    classes : int, optional
        Number of classes; None where no label is reported.
    parameters : Collecting
        Parameters of the study.
    seed : int
        Seed of this trial.
    shared : dict
        Features that do not depend on rows, kept for all trials.
    """

    rows: Any
    schema: Schema
    people: int
    classes: int | None
    parameters: Collecting
    seed: int
    shared: dict[str, Features] = field(default_factory=dict)
    networks: dict[Any, Any] = field(default_factory=dict)

    # --- codebook ------------------------------------------------------------------------------

    def codebook(self, epsilon: float, central: float, codewords: int | None = None) -> Codebook:
        """Fit a codebook. With labels, a sixth of a central ε is left for a student."""
        settings: dict[str, Any] = {"epsilon": epsilon, "features": self.features_name}
        settings["codewords"] = codewords
        if self.classes is not None:
            settings |= {"people": self.people, "classes": self.classes}
        rng = generator(self.seed, {"fit": "codebook", "for": [epsilon, infinity(central)]})
        fitting: dict[str, Any] = {"schema": self.schema, "seed": self.seed, "rng": rng}
        if central != math.inf:
            share = 1.0 if self.classes is None else 1 - STUDENT_SHARE
            settings |= {"central_epsilon": central * share}
            settings |= {"central_delta": paper.CENTRAL_DELTA * share}
            if self.features_name == "scattering":
                settings["features"] = self._scattering()
                settings["grouping"] = self._grouping()
                fitting["public_features"] = True  # wavelets read no row
        elif kind_of(self.schema) == paper.IMAGES:
            settings |= {"features": self._projected, "grouping": self._grouping()}
        return Codebook(**settings).fit(self.rows, device=self.parameters.device, **fitting)

    @property
    def features_name(self) -> str:
        """Name of the features: as requested, or those that fit the rows."""
        return str(self.parameters.features_of("codebook", self.schema))

    def _grouping(self) -> str:
        # Without labels a codeword has no main class to follow: compact ones tell more.
        return DEFAULTS[self.features_name][2] if self.classes is not None else "compact"

    def _scattering(self) -> Features:
        if "scattering" not in self.shared:
            self.shared["scattering"] = CachedFeatures(features_of.Scattering(self.schema))
        return self.shared["scattering"]

    @cached_property
    def _projected(self) -> Features:
        """Features with their projection, the same for every ε."""
        rows, device = self.schema.rows(self.rows), self.parameters.device
        learned = features_of.fit(self.features_name, self.schema, rows, self.seed, device=device)
        components, damped, _ = DEFAULTS[self.features_name]
        return CachedFeatures(
            learned, quantizer.fit_projection(learned, rows, components, damped, self.seed)
        )

    # --- VLM -----------------------------------------------------------------------------------

    def vlm(
        self, epsilon: float, line: paper.TableLine, central: float, *, two_stage: bool = False
    ) -> Any:
        """Fit a VLM at a line of the paper's tables; networks are trained once for every line."""
        settings: dict[str, Any] = {
            "radius": line.radius,
            "pretraining_epsilon": line.pretraining_epsilon,
            "latent_dimension": line.latent_dimension,
        }
        training = self.training(central, two_stage and central != math.inf)
        networks = self.trained(settings, central, training)
        return at(networks, epsilon, self.classes, round(1 - (line.row_share or 0.5), 9))

    def trained(self, settings: dict[str, Any], central: float, training: dict[str, Any]) -> Any:
        """Return a VLM with these settings at ε = 1, trained when it is first needed."""
        name = json.dumps([settings, infinity(central), training], sort_keys=True)
        if name not in self.networks:
            self.networks[name] = self._train(name, settings, central, training)
        return self.networks[name]

    def _train(
        self, name: str, settings: dict[str, Any], central: float, training: dict[str, Any]
    ) -> Any:
        from tacit.local.learned.vlm import VLM

        if central != math.inf:
            price = {"central_epsilon": central, "central_delta": paper.CENTRAL_DELTA}
            settings = {**settings, **price}
        device = self.parameters.device
        mechanism = VLM(epsilon=1, classes=self.classes, **settings).fit(
            self.rows,
            schema=self.schema,
            seed=self.seed,
            device=device,
            rng=generator(self.seed, {"fit": name}),
            **training,
        )
        return mechanism.on(device)

    def training(self, central: float, two_stage: bool = False) -> dict[str, Any]:
        """Return how to train: as the paper, or as the library for a joint fit with a guarantee."""
        kind = kind_of(self.schema)
        paper_way: dict[str, Any] = {"two_stage": "paper"} if two_stage else {}
        if self.parameters.quick:
            no_strokes = {} if central == math.inf or two_stage else {"public_rows": None}
            return QUICK | paper_way | no_strokes
        if central == math.inf:
            rate, batch = paper.STAGE_1[kind]
            return {"learning_rate": rate, "batch_size": batch, "epochs": paper.EPOCHS}
        if not two_stage:
            return {}
        line = paper.TABLE_2[min(paper.TABLE_2, key=lambda k: (k[0] != kind, abs(k[1] - central)))]
        count = len(self.schema.rows(self.rows))
        steps = calibration.steps_for(
            central,
            paper.CENTRAL_DELTA,
            noise_multiplier=line.noise_multiplier,
            sampling_probability=line.batch_size / count,
        )
        epochs = max(round(steps * line.batch_size / count), 1)
        rate, batch = line.learning_rate, line.batch_size
        return {"learning_rate": rate, "batch_size": batch, "epochs": epochs} | paper_way

    # --- direct --------------------------------------------------------------------------------

    def direct(self, epsilon: float) -> Direct:
        """Make direct noising. Nothing is learned: bounds and categories are public."""
        return Direct(epsilon=epsilon, classes=self.classes).fit(self.rows, schema=self.schema)


def at(mechanism: Any, epsilon: float, classes: int | None, label_share: float) -> Any:
    """Return the same networks at another ε and for these classes: networks see no label."""
    other = mechanism.at(epsilon)  # a copy without the channels of the old one
    if classes is not None:
        other.classes = labels.declare("study", classes)
        other.label_share = errors.rational("study", "label_share", label_share)
    return other


def learning(mechanism: Any, dataset: Dataset) -> dict[str, Any]:
    """Return settings for networks that learn from reports, where the library's do not fit.

    Under direct noising every column has a small part of ε, so the noise is always heavy. Where
    classes are not of equal size a network may learn that; the rule would take them as equal.
    """
    if not balanced(dataset):
        return {"output_bias": True}
    return {"hidden": (), "output_bias": False} if isinstance(mechanism, Direct) else {}


def balanced(dataset: Dataset) -> bool:
    """Say whether all classes are about equally large."""
    shares = np.bincount(dataset.labels) / len(dataset)
    return bool(shares.max() * len(shares) < EQUAL)
