r"""A classifier of clean rows, fitted through the noise of rows and of labels.

`tacit.inference.neural` classifies released rows. With in-house rows :math:`c_1, …, c_m` that are
distributed like the people's, clean rows can be classified better: the hidden row and label are
summed out through the law of the whole report,

.. math:: \max_\psi \; \frac{1}{n} \sum_{i=1}^n \log \sum_{j=1}^m w_{ij}
          \sum_{y=1}^C p(\tilde y_i \mid y)\, p_\psi(y \mid c_j), \qquad
          w_{ij} = \frac{p(\tilde z_i \mid c_j)}{\sum_k p(\tilde z_i \mid c_k)}

Under heavy noise (ε of 2 or less) the maximum overfits the noise. Then the gradient of a linear
classifier's likelihood at zero weights is used instead: up to a factor,

.. math:: u_y = \frac{1}{n} \sum_{i=1}^n \Bigl(1[\tilde y_i = y] - \frac{n_y}{n}\Bigr)
          \sum_{j=1}^m w_{ij}\, (c_j - \bar c)

with :math:`n_y` reports of label y; a clean row gets the label y of largest
:math:`u_y \cdot (c - \bar c)`.

Notes
-----
Post-processing of reports, at no cost to those who reported. What is fitted depends on the in-house
rows: towards them it is not private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.local.inference import inputs, stack
from tacit.local.inference.inputs import Floats
from tacit.local.inference.neural import Network, Settings, to_networks
from tacit.privacy import errors

if TYPE_CHECKING:
    from torch import Tensor


def fit_clean_network(
    points: Any,
    weights: Any,
    released_labels: Any,
    flip_matrix: Any,
    settings: Settings | None = None,
    *,
    validation: float = 0.1,
    seed: int = 0,
    device: str = "cpu",
) -> Network:
    """Fit a classifier of clean rows to reports of other people's rows.

    Parameters
    ----------
    points : array (m, D)
        Clean features of in-house rows.
    weights : array or tensor (n, m)
        P(in-house row j | released row i), as `VLM.posterior` gives them.
    released_labels, flip_matrix, settings, validation, seed, device
        As in `tacit.inference.neural.fit_network`.
    """
    import torch

    settings = settings or Settings()
    rows, labels, flip = _checked(
        "fit_clean_network", points, weights, released_labels, flip_matrix
    )
    keep, held = (
        torch.as_tensor(part, device=device)
        for part in inputs.hold_out(len(labels), validation, seed)
    )
    share = torch.as_tensor(weights, dtype=torch.float32, device=device)
    seen = torch.as_tensor(flip[:, labels].T, dtype=torch.float32, device=device)
    center, spread = _scaling(rows)
    x = torch.as_tensor((rows - center) / spread, device=device)[None]
    generator = torch.Generator().manual_seed(seed)
    sizes = (x.shape[2], *settings.hidden, len(flip))
    layers = [layer.to(device) for layer in stack.start(1, sizes, generator)]
    best, score = _train(layers, x, (share, seen), (keep, held), settings, generator)
    return to_networks(best, torch.as_tensor(center)[None], torch.as_tensor(spread)[None], score)[0]


def fit_score(points: Any, weights: Any, released_labels: Any, flip_matrix: Any) -> Network:
    """Fit the linear classifier u of the module's second formula: one step, nothing to tune.

    Parameters
    ----------
    points, weights, released_labels, flip_matrix
        As in `fit_clean_network`. The flip only scales u, and so the confidence of the classifier.

    Notes
    -----
    Classes count as equally frequent. u is scaled as if rows had unit variance in every
    direction; the probabilities rank classes and are not calibrated.
    """
    rows, labels, flip = _checked("fit_score", points, weights, released_labels, flip_matrix)
    center, spread = _scaling(rows)
    expected = np.asarray(weights, np.float32) @ ((rows - center) / spread)
    indicator = np.eye(len(flip), dtype=np.float32)[labels]
    kept = float(flip[0, 0] - flip[0, 1]) or 1.0
    direction = expected.T @ (indicator - indicator.mean(axis=0)) * (len(flip) / len(labels) / kept)
    bias = np.zeros(len(flip), np.float32)
    return Network(center, spread, (direction.astype(np.float32),), (bias,))


def _checked(
    where: str, points: Any, weights: Any, released_labels: Any, flip_matrix: Any
) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    rows, flip = inputs.matrix(where, points), inputs.flip_law(flip_matrix)
    if len(weights.shape) != 2 or weights.shape[1] != len(rows):
        raise errors.InvalidData(f"{where}: weights must have one column per point.")
    return rows, inputs.codes(released_labels, len(weights), len(flip)), flip


def _scaling(rows: Floats) -> tuple[Floats, Floats]:
    """Return centre and one spread for all coordinates: the noise has the same scale in each."""
    center = rows.mean(axis=0)
    return center, np.full_like(center, max(float(rows.std()), 1e-6))


def _log_likelihood(layers: list[Tensor], x: Tensor, share: Tensor, seen: Tensor) -> Tensor:
    import torch

    proba = torch.softmax(stack.forward(layers, x)[0], dim=1)
    return ((share @ proba) * seen).sum(dim=1).clamp_min(1e-30).log().mean()


def _train(
    layers: list[Tensor],
    x: Tensor,
    reports: tuple[Tensor, Tensor],
    parts: tuple[Tensor, Tensor],
    settings: Settings,
    generator: Any,
) -> tuple[list[Tensor], Tensor]:
    """Train by Adam; return the parameters of the epoch with the best held-out likelihood."""
    import torch

    share, seen = reports
    keep, held = parts
    free = layers if settings.output_bias else layers[:-1]
    optimizer = torch.optim.Adam(
        [layer.requires_grad_(True) for layer in free], settings.learning_rate
    )
    best, score, stale = stack.snapshot(layers), x.new_full((1,), -torch.inf), 0
    for _ in range(settings.epochs):
        order = keep[torch.randperm(len(keep), generator=generator).to(x.device)]
        for chosen in torch.split(order, settings.batch_size):
            likelihood = _log_likelihood(layers, x, share[chosen], seen[chosen])
            optimizer.zero_grad()
            (settings.weight_decay / 2 * stack.size(layers)[0] - likelihood).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            latest = _log_likelihood(layers, x, share[held], seen[held])[None]
        stale += 1
        if bool(latest > score) or not settings.early_stopping:
            best, score, stale = stack.snapshot(layers), latest, 0
        if stale > settings.patience:
            break
    return best, score
