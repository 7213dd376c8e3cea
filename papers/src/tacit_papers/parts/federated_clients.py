"""Clients of the federated study: seven partitions of training images, and own test images.

The global model is always tested on images of the pooled distribution: as they are, neither moved
nor renamed. The model that a client would use is also tested on images of *its* distribution:

===================  ==============================================================
partition            a client's own test images
===================  ==============================================================
iid, unbalanced,     those with a label that it holds
shards, dirichlet
covariate-shift      those of its stretch of the same direction
concept-drift        a share of its own, moved as its training images are
concept-shift        a share of its own, with its names of the classes
===================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tacit.federated import divergence, partition
from tacit.federated.model import Data

SETTINGS: dict[str, Any] = {
    "shards_per_client": 2,
    "concentration": 0.5,
    "least_rows": 32,
    "spread": 1.0,
    "covariate_strength": 1.0,
    "drift_strength": 1.0,
    "shift_strength": 0.3,
}
"""How far clients differ; part of the parameters in a record."""


class ClientSplit(NamedTuple):
    """The rows of all clients as they hold them, the rows of each, and their own test images."""

    held: Data
    parts: partition.Parts
    own_tests: list[Data]

    @property
    def clients(self) -> list[Data]:
        """Rows of each client."""
        return [_take(self.held, part) for part in self.parts]

    def divergence(self, seed: int) -> dict[str, float]:
        """Measure how far clients differ, in each of the five ways."""
        rows, labels = self.held.rows, self.held.labels
        return divergence.measure(rows, labels, self.parts, seed=seed)._asdict()


def federation(kind: str, training: Data, test: Data, clients: int, seed: int) -> ClientSplit:
    """Distribute the training images over clients.

    Parameters
    ----------
    kind : str
        One of `PARTITIONS`.
    training, test : Data
        Rows as they are.
    clients : int
        Number of clients.
    seed : int
        Seed of the partition, and of how rows move and labels change.
    """
    return _MADE[kind](training, test, clients, seed)


def _iid(training: Data, test: Data, clients: int, seed: int) -> ClientSplit:
    return _by_label(training, partition.iid(len(training), clients, seed=seed), test)


def _unbalanced(training: Data, test: Data, clients: int, seed: int) -> ClientSplit:
    spread = SETTINGS["spread"]
    parts = partition.unbalanced(len(training), clients, spread=spread, seed=seed)
    return _by_label(training, parts, test)


def _shards(training: Data, test: Data, clients: int, seed: int) -> ClientSplit:
    each = SETTINGS["shards_per_client"]
    parts = partition.shards(training.labels, clients, per_client=each, seed=seed)
    return _by_label(training, parts, test)


def _dirichlet(training: Data, test: Data, clients: int, seed: int) -> ClientSplit:
    parts = partition.dirichlet(
        training.labels,
        clients,
        concentration=SETTINGS["concentration"],
        least=max(min(SETTINGS["least_rows"], len(training) // (2 * clients)), 1),
        seed=seed,
    )
    return _by_label(training, parts, test)


def _covariate(training: Data, test: Data, clients: int, seed: int) -> ClientSplit:
    # One seed is one direction, so the stretches of the test rows are those of the clients.
    strength = SETTINGS["covariate_strength"]
    parts, own = (
        partition.by_feature(data.rows, clients, strength=strength, seed=seed)
        for data in (training, test)
    )
    return ClientSplit(training, parts, [_take(test, part) for part in own])


def _drift(training: Data, test: Data, clients: int, seed: int) -> ClientSplit:
    def moved(data: Data, parts: partition.Parts) -> Data:
        # Clients move in the order of parts: one seed moves client k's rows and tests alike.
        strength = SETTINGS["drift_strength"]
        rows = partition.drifted_rows(data.rows, data.labels, parts, strength=strength, seed=seed)
        return Data(rows.astype(np.float32), data.labels)

    return _changed(moved, training, test, clients, seed)


def _shift(training: Data, test: Data, clients: int, seed: int) -> ClientSplit:
    def renamed(data: Data, parts: partition.Parts) -> Data:
        strength = SETTINGS["shift_strength"]
        labels = partition.shifted_labels(data.labels, parts, strength=strength, seed=seed)
        return Data(data.rows, labels)

    return _changed(renamed, training, test, clients, seed)


def _changed(
    change: Callable[[Data, partition.Parts], Data],
    training: Data,
    test: Data,
    clients: int,
    seed: int,
) -> ClientSplit:
    """Distribute rows at random, then change those of each client, and its test images likewise."""
    parts, own = (partition.iid(len(data), clients, seed=seed) for data in (training, test))
    tests = change(test, own)
    return ClientSplit(change(training, parts), parts, [_take(tests, part) for part in own])


def _by_label(training: Data, parts: partition.Parts, test: Data) -> ClientSplit:
    known = [np.isin(test.labels, training.labels[part]) for part in parts]
    return ClientSplit(training, parts, [_take(test, mask) for mask in known])


def _take(data: Data, chosen: Any) -> Data:
    return Data(data.rows[chosen], data.labels[chosen])


_MADE: dict[str, Callable[[Data, Data, int, int], ClientSplit]] = {
    "iid": _iid,
    "unbalanced": _unbalanced,
    "covariate-shift": _covariate,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "concept-drift": _drift,
    "concept-shift": _shift,
}

PARTITIONS = tuple(_MADE)
