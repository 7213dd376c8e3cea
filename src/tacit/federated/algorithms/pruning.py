r"""Masks of Sub-FedAvg, which mark the parameters that a client keeps.

Unstructured pruning drops the entries with the smallest :math:`|w|` in every weight tensor.
Structured pruning drops the units (neurons, channels) with the smallest :math:`\|w_u\|_2`, together
with their bias; the units of the last layer are the classes, and stay. Biases are not pruned on
their own.

References
----------
.. [VML21] Vahidian, Morafah, Lin. Personalized federated learning by structured and unstructured
   pruning under data heterogeneity. ICDCS Workshops 2021.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.federated.config import Pruning
from tacit.federated.payload import Layout, Vector


def prunable(layout: Layout, kind: str) -> list[str]:
    """Return the names of the tensors that masks of this kind may prune."""
    tensors = [name for name, shape in layout.shapes if len(shape) >= 2]
    return tensors[:-1] if kind == "structured" else tensors


def pruned_share(mask: Vector, layout: Layout, kind: str) -> float:
    """Compute the fraction of the prunable parameters that a mask drops."""
    spans = [layout.spans[name] for name in prunable(layout, kind)]
    size = sum(span.stop - span.start for span in spans)
    kept = sum(int(np.count_nonzero(mask[span])) for span in spans)
    return 1 - kept / size if size else 0.0


def distance(first: Vector, second: Vector) -> float:
    """Compute the fraction of the entries in which two masks differ."""
    return float(np.mean(first != second))


def thinner(weights: Vector, mask: Vector, layout: Layout, pruning: Pruning) -> Vector:
    """Drop another fraction `step` of what the mask keeps in each tensor, down to the target."""
    thinned = mask.copy()
    named, shapes = layout.unflatten(thinned), dict(layout.shapes)
    values = layout.unflatten(np.abs(weights))
    for name in prunable(layout, pruning.kind):
        kept = named[name].reshape(shapes[name][0], -1)
        if pruning.kind == "unstructured":
            _drop_smallest(kept.reshape(-1), values[name].reshape(-1), pruning)
            continue
        units = kept[
            :, 0
        ].copy()  # a unit is dropped as a whole, so any of its entries shows whether it is kept
        lengths = np.linalg.norm(values[name].reshape(kept.shape), axis=1)
        _drop_smallest(units, lengths, pruning)
        kept *= units[:, None]
        bias = name.removesuffix("weight") + "bias"
        if shapes.get(bias) == units.shape:
            named[bias] *= units
    return thinned


def _drop_smallest(kept: Vector, sizes: Vector, pruning: Pruning) -> None:
    """Set the smallest of the kept entries to zero, in place."""
    alive = np.flatnonzero(kept)
    least = math.ceil((1 - pruning.target) * len(kept) - 1e-9)  # 0.3 · 10 is 3, not 4
    count = len(alive) - max(least, math.floor((1 - pruning.step) * len(alive)))
    if count > 0:
        kept[alive[np.argsort(sizes[alive], kind="stable")[:count]]] = 0
