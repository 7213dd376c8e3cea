r"""Training of a variational mechanism with a central guarantee towards the in-house rows.

DP-Adam moves encoder and decoder together, from a start that does not depend on the in-house rows:
random weights, or weights fitted to public rows (for images, by default, to the pen strokes of
`tacit.learned.synthetic`). Then everything that a gradient depends on is private or public, and the
guarantee covers both networks.

Notes
-----
The two stages of [000]_ are offered for comparison, and nothing is proved of them: the first stage
fits the decoder to every in-house row without noise, so under a neighbouring data set *every*
gradient of the second stage changes, but DP-Adam is calibrated to a change of one gradient.

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Section 3.1.
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from tacit.central import training as private_training
from tacit.data.schema import ArraySchema, Rows, Schema
from tacit.local.inhouse import Protection, Target
from tacit.local.learned import synthetic, variational
from tacit.local.learned.encoders import Batch, to_batch
from tacit.local.learned.variational import Objective, Training
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness

USUAL = Training(epochs=100, batch_size=2048, learning_rate=4e-3)
"""Large batches and many passes: both reduce the noise for the same budget."""

TRAINED = ("both", "encoder", "decoder")
PUBLIC_START = "Training started from weights fitted to rows that their owner states are public."
_STROKES, _STROKE_STEPS = 8192, 2000


def reason(fixed: str) -> str:
    """Explain why nothing is proved of the paper's second stage."""
    return (
        f"the first stage fitted the {fixed} to every in-house row without noise, so that one row "
        "changes every gradient of the second stage, and not one"
    )


def checked_trained(trained: str | None, two_stage: str | None) -> str:
    """Check which networks DP-Adam trains: by default both; in two stages the encoder."""
    if two_stage is not None:
        errors.choice("VLM.fit", "two_stage", two_stage, ("paper",))
    usual = "both" if two_stage is None else "encoder"
    return errors.choice("VLM.fit", "trained", usual if trained is None else trained, TRAINED)


def start_rows(schema: Schema, public_rows: Any, seed: int) -> Rows | None:
    """Return synthetic or public rows that training starts from; None for random weights."""
    if isinstance(public_rows, str):
        errors.choice("VLM.fit", "public_rows", public_rows, ("synthetic",))
        if not isinstance(schema, ArraySchema) or schema.image is None:
            return None
        drawn = synthetic.strokes(_STROKES, schema.image, seed)
        return Rows(drawn, np.empty((len(drawn), 0), np.int64))
    return None if public_rows is None else schema.rows(public_rows, "VLM.fit")


@dataclass(frozen=True, repr=False)
class PrivateFit:
    """One fit of a variational mechanism within a central budget."""

    objective: Objective
    rows: Rows
    target: Target
    settings: Training
    trained: str
    public: bool
    seed: int
    device: str
    rng: Randomness | None
    progress: variational.Progress | None

    def from_public(self, schema: Schema, public_rows: Any) -> Protection:
        """Train by DP-Adam from weights fitted to public rows, or from random ones."""
        start, assumed = start_rows(schema, public_rows, self.seed), []
        if start is not None:
            passes = max(1, -(-_STROKE_STEPS * 128 // len(start)))
            self._plain(start, Training(epochs=passes))
            assumed = [] if isinstance(public_rows, str) else [PUBLIC_START]
        trained = self._train()
        return Protection.of(
            trained.event,
            self.target.delta,
            assumptions=[*trained.assumptions, *assumed],
            public=self.public,
            seeded=trained.seeded,
        )

    def two_stage(self, first: Training, fresh: Sequence[nn.Sequential]) -> Protection:
        """Train as in the paper: all without noise, then one network with it, from new weights."""
        if self.trained == "both":
            errors.refuse("VLM.fit", "trained", "encoder or decoder in two stages", self.trained)
        self._plain(self.rows, first)
        index = TRAINED.index(self.trained) - 1
        network = (self.objective.encoder, self.objective.decoder)[index]
        network.load_state_dict(fresh[index].state_dict())
        self._train()
        return Protection.unproven(reason(TRAINED[2 - index]), self.public)

    def _plain(self, rows: Rows, settings: Training) -> None:
        variational.train(self.objective, rows, settings, seed=self.seed, device=self.device)

    def _train(self) -> private_training.Trained:
        networks, data = self.objective.networks, to_batch(self.rows, self.device)
        fixed = [name for name in ("encoder", "decoder") if self.trained not in ("both", name)]
        for name in [*fixed, *(["spread"] if fixed else [])]:
            networks[name].requires_grad_(False)
        return private_training.train(
            networks,
            (data.numbers, data.codes),
            lambda _, numbers, codes: self.objective.losses(Batch(numbers, codes)),
            epsilon=self.target.epsilon,
            delta=self.target.delta,
            batch_size=min(self.settings.batch_size, len(self.rows)),
            epochs=self.settings.epochs,
            learning_rate=self.settings.learning_rate,
            decay=True,
            rng=self.rng,
            # The loss is not covered by the guarantee, so it is not shown.
            progress=lambda step, steps: self._say(step, steps),
        )

    def _say(self, step: int, steps: int) -> None:
        if self.progress is not None:
            self.progress(step, steps, math.nan)
