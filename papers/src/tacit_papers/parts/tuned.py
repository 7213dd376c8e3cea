"""The VLM with our own settings, and a learner that marginalizes over the noise.

Below ε = 3, latents that withstand heavy noise and the one-step classifier (`fit_score`) are used;
above, latents that keep more, and the best of a few networks by the likelihood of held-out reports.
The label gets half of ε. The settings were chosen on the splits of seeds 0 and 1 of MNIST.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.local.inference.marginal import fit_clean_network, fit_score
from tacit.local.inference.neural import Network, Settings
from tacit.local.reports import Reports
from tacit.privacy.randomness import Randomness
from tacit_papers.parts import paper
from tacit_papers.parts.collecting import kind_of
from tacit_papers.parts.contenders import Contenders, at

ENOUGH = 3.0
POINTS = 1500
"""Number of in-house latents over which the likelihood of a report is averaged."""

_TRAINING = {"epochs": 30, "batch_size": 256}
_FULL: dict[str, Any] = {"batch_size": 1 << 16, "epochs": 120, "patience": 15}
_NETWORKS = (
    Settings(hidden=(), weight_decay=1e-4, learning_rate=0.05, **_FULL),
    Settings(hidden=(50,), weight_decay=1e-4, learning_rate=0.02, **_FULL),
    Settings(hidden=(50,), weight_decay=1e-3, learning_rate=0.02, **_FULL),
)


@dataclass(frozen=True)
class Tuned:
    """A mechanism, and a classifier of its clean latents."""

    mechanism: Any
    network: Network
    inhouse: npt.NDArray[np.int64]

    def of_rows(self, rows: Any) -> npt.NDArray[np.float64]:
        """Return class probabilities of clean rows."""
        return self.network.predict_proba(self.mechanism.clean_features(rows))

    def of_reports(self, reports: Reports) -> npt.NDArray[np.float64]:
        """Return class probabilities of reported rows: posterior means over in-house latents."""
        clean = self.mechanism.released_features({"latent": self.inhouse})
        weights = reports.mechanism.posterior(reports, self.inhouse)
        return np.asarray(weights @ self.network.predict_proba(clean))


def learn(
    contenders: Contenders,
    epsilon: float,
    rows: Any,
    labels: Any,
    rng: Randomness,
) -> Tuned:
    """Fit a mechanism, let these people report, and learn a classifier."""
    mechanism = _mechanism(contenders, epsilon)
    reports = mechanism.release(rows, labels, rng)
    inhouse = mechanism.encode(contenders.rows[:POINTS])
    points = mechanism.released_features({"latent": inhouse})
    weights = mechanism.posterior(reports, inhouse)
    seen = (points, weights, reports.columns["label"], reports.channel.flip.matrix)
    if epsilon < ENOUGH:
        return Tuned(mechanism, fit_score(*seen), inhouse)
    device, seed = contenders.parameters.device, contenders.seed
    fits = [fit_clean_network(*seen, choice, seed=seed, device=device) for choice in _NETWORKS]
    return Tuned(mechanism, max(fits, key=lambda network: network.held_out), inhouse)


def _mechanism(contenders: Contenders, epsilon: float) -> Any:
    heavy = epsilon < ENOUGH
    settings: dict[str, Any] = {"radius": 5.0, "pretraining_epsilon": 6.0 if heavy else 27.0}
    if kind_of(contenders.schema) == paper.IMAGES:
        settings["likelihood"] = "logits" if heavy else "bernoulli"
    training = contenders.training(math.inf) if contenders.parameters.quick else dict(_TRAINING)
    networks = contenders.trained(settings, math.inf, training)
    return at(networks, epsilon, contenders.classes, 0.5)
