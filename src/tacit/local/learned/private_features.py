"""Features for a codebook with a central guarantee: their cost, and what is proved."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tacit.central import statistics as statistics
from tacit.data.schema import Rows, Schema, TableSchema
from tacit.local.inhouse import Protection, Target
from tacit.local.learned import features as features_of
from tacit.local.learned.features import Features, QuantileTransform, RandomFourier, Raw, Scattering
from tacit.local.learned.private_quantizer import Budget
from tacit.local.learned.provenance import as_written
from tacit.privacy import events
from tacit.privacy.guarantees import Adjacency
from tacit.privacy.randomness import Randomness

SHARE = 0.1
"""The share of the budget for features that read quantiles and frequencies off the rows."""

ALIKE = "Features that were handed in give a row that is alone the same numbers every time."
GIVEN = "The features were learned without the in-house rows, as their owner states."
CONTRASTIVE = (
    "a contrastive encoder compares examples with each other, so no bound on what one of them "
    "changes is known"
)
ELSEWHERE = "features were fitted elsewhere, and nobody stated that it was without these rows"

_READ_NO_ROW = (Scattering, Raw)
"""Exact types of features that are fixed: a name, or a base class, proves nothing."""


@dataclass(repr=False)
class Learning:
    """One fit within a central budget: features first, then everything else."""

    kind: str | Features
    schema: Schema
    rows: Rows
    target: Target
    seed: int
    rng: Randomness | None = None
    public_features: bool = False
    device: str = "cpu"
    assumptions: list[str] = field(default_factory=list)
    unproven: str | None = None
    trained: events.Event | None = None

    def __post_init__(self) -> None:
        self.budget = Budget(self.target.noise_multiplier, self.rng)

    def features(self) -> Features:
        """Fit the requested features; `budget` is then what remains."""
        kind, schema = self.kind, self.schema
        if not isinstance(kind, str):
            return self._handed_in(kind)
        if kind == "quantile" or (kind == "random" and isinstance(schema, TableSchema)):
            quantile = _quantile(schema, self.rows, self.budget.part(SHARE))
            self.budget = self.budget.part(1 - SHARE)
            return (
                quantile if kind == "quantile" else RandomFourier.draw(schema, quantile, self.seed)
            )
        if kind == "autoencoder":
            return self._autoencoder()
        if kind == "invariant":
            self.unproven = CONTRASTIVE
        return features_of.fit(kind, schema, self.rows, self.seed, device=self.device)

    def _handed_in(self, features: Features) -> Features:
        if not features_of.provably_alone(features):
            self.assumptions.append(ALIKE)
        if self.public_features:
            self.assumptions.append(GIVEN)
        elif type(features) not in _READ_NO_ROW or not as_written(features):
            self.unproven = ELSEWHERE
        return features

    def _autoencoder(self) -> Features:
        """Train with DP-Adam on half of ε and δ: basic composition leaves the other half."""
        from tacit.local.learned import autoencoder

        half = Target(self.target.epsilon / 2, self.target.delta / 2)
        learned, trained = autoencoder.fit_private(
            self.schema, self.rows, self.seed, half, device=self.device, rng=self.rng
        )
        self.trained = trained.event
        self.assumptions += trained.assumptions
        self.budget = Budget(half.noise_multiplier, self.rng)
        return learned

    def protection(self, public: bool) -> Protection:
        """Return the protection of the in-house rows by everything that ran."""
        if self.unproven is not None:
            return Protection.unproven(self.unproven, public)
        event = self.budget.event
        if self.trained is not None:
            both = (self.trained, event)
            event = events.Composed(tuple(events.towards(e, Adjacency.ZERO_OUT) for e in both))
        return Protection.of(
            event,
            self.target.delta,
            assumptions=self.assumptions,
            public=public,
            seeded=self.budget.seeded,
        )


def _quantile(schema: Schema, rows: Rows, budget: Budget) -> QuantileTransform:
    numbers = rows.numbers.shape[1]
    each = 1 / (numbers + 1)
    levels = np.linspace(0, 1, features_of.QUANTILES + 1)
    quantiles = np.empty((numbers, levels.size), np.float32)
    for index, column in enumerate(rows.numbers.T):
        share = budget.share(each)
        quantiles[index] = budget.take(statistics.quantiles(column, levels, 0.0, 1.0, **share))
    return QuantileTransform.of(schema, quantiles, _shares(schema, rows, budget, each))


def _shares(schema: Schema, rows: Rows, budget: Budget, part: float) -> npt.NDArray[np.float64]:
    """Estimate how often each indicator is 1: noisy counts over the noisy number of rows.

    The exact number would let one more row move the features of all others.
    """
    counts = features_of.indicator_counts(schema, rows)
    if not counts.size:
        return counts.astype(np.float64)
    # A row adds one to at most one count of each column, and one to the number of rows.
    columns = len(schema.names) + 1
    noisy = budget.noisy(np.append(counts, len(rows)), columns, part)[0]
    return np.asarray(np.clip(noisy[:-1] / max(noisy[-1], 1), 0, 1))
