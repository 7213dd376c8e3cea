r"""A classifier of clean rows, fitted through the noise of rows and of labels.

`tacit.inference.neural` classifies what was released. Whoever holds in-house rows
:math:`c_1, …, c_m` that look like the people's can do better for clean rows: what was hidden is
summed out through the law of the whole report,

.. math:: \max_\psi \; \frac{1}{n} \sum_{i=1}^n \log \sum_{j=1}^m w_{ij}
          \sum_{y=1}^C p(\tilde y_i \mid y)\, p_\psi(y \mid c_j), \qquad
          w_{ij} = \frac{p(\tilde z_i \mid c_j)}{\sum_k p(\tilde z_i \mid c_k)}

Notes
-----
Post-processing of reports, at no cost to those who reported. What is fitted depends on the in-house
rows: towards them it is not private.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import errors
from tacit.inference import neural
from tacit.inference.neural import Network, Settings

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
    rows, flip = neural._matrix("fit_clean_network", points), neural._flip(flip_matrix)
    if len(weights.shape) != 2 or weights.shape[1] != len(rows):
        raise errors.InvalidData("fit_clean_network: weights must have a column for every point.")
    labels = neural._labels(released_labels, len(weights), len(flip))
    keep, held = (
        torch.as_tensor(part, device=device)
        for part in neural._hold_out(len(weights), validation, seed)
    )
    share = torch.as_tensor(weights, dtype=torch.float32, device=device)
    seen = torch.as_tensor(flip[:, labels].T, dtype=torch.float32, device=device)
    center = rows.mean(axis=0)
    spread = np.full_like(center, max(float(rows.std()), 1e-6))
    x = torch.as_tensor((rows - center) / spread, device=device)[None]
    generator = torch.Generator().manual_seed(seed)
    sizes = (x.shape[2], *settings.hidden, len(flip))
    layers = [layer.to(device) for layer in neural._start(1, sizes, generator)]
    best, score = _train(layers, x, (share, seen), (keep, held), settings, generator)
    network = neural._networks(
        best, torch.as_tensor(center)[None], torch.as_tensor(spread)[None], score
    )[0]
    return replace(network, held_out=float(score[0]))


def _log_likelihood(layers: list[Tensor], x: Tensor, share: Tensor, seen: Tensor) -> Tensor:
    import torch

    proba = torch.softmax(neural._forward(layers, x)[0], dim=1)
    return ((share @ proba) * seen).sum(dim=1).clamp_min(1e-30).log().mean()


def _train(
    layers: list[Tensor],
    x: Tensor,
    reports: tuple[Tensor, Tensor],
    parts: tuple[Tensor, Tensor],
    settings: Settings,
    generator: Any,
) -> tuple[list[Tensor], Tensor]:
    """Adam on batches of reports; the parameters of the epoch that held-out reports like best."""
    import torch

    share, seen = reports
    keep, held = parts
    free = layers if settings.output_bias else layers[:-1]
    optimizer = torch.optim.Adam(
        [layer.requires_grad_(True) for layer in free], settings.learning_rate
    )
    best, score, stale = neural._snapshot(layers), x.new_full((1,), -torch.inf), 0
    for _ in range(settings.epochs):
        order = keep[torch.randperm(len(keep), generator=generator).to(x.device)]
        for chosen in torch.split(order, settings.batch_size):
            size = sum((weight**2).sum() for weight in layers[::2])
            likelihood = _log_likelihood(layers, x, share[chosen], seen[chosen])
            optimizer.zero_grad()
            (settings.weight_decay / 2 * size - likelihood).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            found = _log_likelihood(layers, x, share[held], seen[held])[None]
        stale += 1
        if bool(found > score):
            best, score, stale = neural._snapshot(layers), found, 0
        if stale > settings.patience:
            break
    return best, score
