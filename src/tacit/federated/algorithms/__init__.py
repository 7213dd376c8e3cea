"""Federated algorithms as pure functions of clients and server."""

from tacit.federated.algorithms.registry import ALGORITHMS, Algorithm, Phase, algorithm

__all__ = ["ALGORITHMS", "Algorithm", "Phase", "algorithm"]
