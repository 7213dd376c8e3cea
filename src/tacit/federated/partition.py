r"""Partitions of rows among clients, and shifts between clients, for simulations.

A partition is a list of index arrays, one per client, that together contain every row once. Two
functions change the rows or labels themselves instead of assigning them. The five kinds of
difference are those of Kairouz et al. [KMA21]_, section 3.1:

=================  =====================================  =======================
kind               what differs between clients           made by
=================  =====================================  =======================
covariate shift    :math:`P(x)`, not :math:`P(y \mid x)`  `by_feature`
prior shift        :math:`P(y)`                           `dirichlet`, `shards`
concept drift      :math:`P(x \mid y)`, not :math:`P(y)`  `drifted_rows`
concept shift      :math:`P(y \mid x)`, not :math:`P(x)`  `shifted_labels`
unbalancedness     number of rows                         `unbalanced`
=================  =====================================  =======================

For simulations only: a partition is computed from all rows together, which a federation never has
in one place.

References
----------
.. [KMA21] Kairouz et al. Advances and open problems in federated learning. FnT Machine Learning
   2021.
.. [HQB19] Hsu, Qi, Brown. Measuring the effects of non-identical data distribution for federated
   visual classification. 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Indices = npt.NDArray[np.int64]
Parts = list[Indices]

_TRIES = 1000


def iid(rows: int, clients: int, *, seed: int = 0) -> Parts:
    """Assign rows at random; the numbers of rows differ by at most one between clients.

    Examples
    --------
    >>> sorted(len(part) for part in iid(10, 3))
    [3, 3, 4]
    """
    _check("iid", rows, clients)
    return _sorted(np.array_split(_rng(seed).permutation(rows), clients))


def unbalanced(rows: int, clients: int, *, spread: float = 1.0, seed: int = 0) -> Parts:
    """Assign rows at random, in log-normal numbers; every client has at least one.

    `spread` is the standard deviation of the logarithm of a client's share.
    """
    _check("unbalanced", rows, clients)
    errors.positive("unbalanced", "spread", spread)
    rng = _rng(seed)
    shares = rng.lognormal(0.0, float(spread), size=clients)
    cuts = _cuts(shares / shares.sum(), rows - clients) + np.arange(1, clients)
    return _sorted(np.split(rng.permutation(rows), cuts))


def dirichlet(
    labels: Any, clients: int, *, concentration: float = 0.5, least: int = 1, seed: int = 0
) -> Parts:
    r"""Make a prior shift: split each class by shares :math:`\sim \mathrm{Dir}(\alpha 1)` [HQB19]_.

    Parameters
    ----------
    labels : array
        Labels of all rows.
    clients : int
        Number of clients.
    concentration : float
        :math:`\alpha`. Towards 0 each class goes to one client, towards infinity all clients are
        alike.
    least : int
        Smallest number of rows of a client; shares are drawn again until it is reached.
    seed : int
        Seed of all draws.
    """
    known = _labels("dirichlet", labels)
    _check("dirichlet", len(known), clients * errors.whole("dirichlet", "least", least, least=1))
    alpha = float(errors.positive("dirichlet", "concentration", concentration))
    rng = _rng(seed)
    members = [np.flatnonzero(known == one) for one in np.unique(known)]
    for _ in range(_TRIES):
        pieces: list[Parts] = []
        for rows in members:
            shares = rng.dirichlet(np.full(clients, alpha))
            pieces.append(np.split(rng.permutation(rows), _cuts(shares, len(rows))))
        parts = [np.concatenate(held) for held in zip(*pieces, strict=True)]
        if min(len(part) for part in parts) >= least:
            return _sorted(parts)
    remedy = "Take more rows, fewer clients or a larger concentration."
    errors.refuse("dirichlet", "least", f"reached within {_TRIES} draws", least, remedy)


def shards(labels: Any, clients: int, *, per_client: int = 2, seed: int = 0) -> Parts:
    """Make a prior shift: cut rows sorted by label into shards, and deal each client `per_client`.

    Examples
    --------
    >>> labels = np.repeat(np.arange(10), 100)
    >>> parts = shards(labels, 10)
    >>> max(len(np.unique(labels[part])) for part in parts)
    2
    """
    known = _labels("shards", labels)
    each = errors.whole("shards", "per_client", per_client, least=1)
    _check("shards", len(known), clients * each)
    rng = _rng(seed)
    order = rng.permutation(len(known))
    order = order[np.argsort(known[order], kind="stable")]
    pieces = np.array_split(order, clients * each)
    dealt = rng.permutation(clients * each).reshape(clients, each)
    return _sorted([np.concatenate([pieces[shard] for shard in hand]) for hand in dealt])


def by_feature(rows: Any, clients: int, *, strength: float = 1.0, seed: int = 0) -> Parts:
    r"""Make a covariate shift: clients hold adjacent intervals along one random direction.

    Rows are sorted by :math:`s \cdot \mathrm{rank}(x^\top u) + (1 - s) \cdot \mathrm{uniform}` and
    cut evenly. Which client holds a row depends on x and chance alone, so :math:`P(y \mid x)` is
    the same for all clients.
    """
    flat = _flat("by_feature", rows)
    _check("by_feature", len(flat), clients)
    share = _share("by_feature", strength)
    rng = _rng(seed)
    along = (flat - flat.mean(axis=0)) @ rng.standard_normal(flat.shape[1])
    ranks = np.empty(len(flat))
    ranks[np.argsort(along, kind="stable")] = (np.arange(len(flat)) + 0.5) / len(flat)
    mixed = share * ranks + (1 - share) * rng.random(len(flat))
    return _sorted(np.array_split(np.argsort(mixed, kind="stable"), clients))


def drifted_rows(
    rows: Any, labels: Any, parts: Sequence[Indices], *, strength: float = 1.0, seed: int = 0
) -> npt.NDArray[np.float64]:
    r"""Make a concept drift: move rows of class c at client k by :math:`s\,\sigma \odot u_{kc}`.

    :math:`u_{kc}` is a standard normal vector, drawn for each client and class, and :math:`\sigma`
    holds the columns' standard deviations. Labels stay: :math:`P(y)` does not change.
    """
    flat, known = _flat("drifted_rows", rows).copy(), _labels("drifted_rows", labels)
    size = float(errors.positive("drifted_rows", "strength", strength))
    rng, spread = _rng(seed), flat.std(axis=0)
    classes, codes = np.unique(known, return_inverse=True)
    for part in parts:
        moves = size * spread * rng.standard_normal((len(classes), flat.shape[1]))
        flat[part] += moves[codes[part]]
    return flat.reshape(np.shape(rows))


def shifted_labels(
    labels: Any, parts: Sequence[Indices], *, strength: float = 1.0, seed: int = 0
) -> npt.NDArray[Any]:
    """Make a concept shift: each client permutes a fraction `strength` of the classes cyclically.

    Rows stay: P(x) does not change.
    """
    known = _labels("shifted_labels", labels)
    share, shifted, rng = _share("shifted_labels", strength), known.copy(), _rng(seed)
    classes, codes = np.unique(known, return_inverse=True)
    for part in parts:
        moved = rng.permutation(len(classes))[: max(round(share * len(classes)), 0)]
        names = np.arange(len(classes))
        names[moved] = np.roll(moved, 1)
        shifted[part] = classes[names[codes[part]]]
    return shifted


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(errors.whole("partition", "seed", seed, least=0))


def _check(where: str, rows: int, needed: int) -> None:
    errors.whole(where, "clients", needed, least=1)
    if rows < needed:
        errors.refuse(where, "rows", f"at least {needed}", rows, "Take fewer clients.")


def _share(where: str, strength: float) -> float:
    return errors.within(where, "strength", strength, "[0, 1]")


def _labels(where: str, labels: Any) -> npt.NDArray[Any]:
    known = np.asarray(labels)
    if known.ndim != 1 or len(known) == 0:
        raise errors.InvalidData(f"{where}: labels must be one per row, in one dimension.")
    return known


def _flat(where: str, rows: Any) -> npt.NDArray[np.float64]:
    return errors.reals(where, rows).reshape(len(rows), -1)


def _cuts(shares: npt.NDArray[np.float64], rows: int) -> Indices:
    """Compute where to cut `rows` rows so that the pieces have these shares."""
    cuts = np.floor(np.cumsum(shares)[:-1] * rows + 1e-9).astype(np.int64)
    return np.minimum(cuts, rows)


def _sorted(parts: Sequence[npt.NDArray[Any]]) -> Parts:
    return [np.sort(part).astype(np.int64) for part in parts]
