r"""Proofs from guessed coins, for records that were each included or left out by a coin.

`tacit.audit.canaries` has the theorem [SNJ23]_: under (ε, δ)-DP with respect to each coin, it
bounds the probability that v of r guesses about m coins are right. It holds however the guesses are
made from what was released, as long as r was fixed beforehand.

The best number of guesses depends on the attack. So a few numbers are tried, each at its share of
the risk (Bonferroni), and the best bound is kept: it holds at the requested certainty.

References
----------
.. [SNJ23] Steinke, Nasr, Jagielski. Privacy auditing with one (1) training run. NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.audit.canaries import OneRun
from tacit.audit.coins import Booleans, apart, coins
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness

Reals = npt.NDArray[np.float64]

__all__ = ["Booleans", "Proof", "apart", "coins", "from_pairs", "from_singles"]

_SHARES = (1, 4, 16)
_LEAST = 8


@dataclass(frozen=True)
class Proof(OneRun):
    """The best of several bounds, each at its share of the risk; it holds with `confidence`."""

    tried: tuple[int, ...]
    """Number of guesses behind each bound."""

    @property
    def certifiable(self) -> float:
        """Return the largest ε that any of the bounds could certify."""
        each = _each(self.confidence, len(self.tried))
        known = {"delta": self.delta, "confidence": each}
        return max(OneRun.of(self.canaries, r, r, **known).epsilon for r in set(self.tried))


def from_singles(
    inside: Any,
    scores: Any,
    *,
    delta: float = 0.0,
    certainty: float = 0.99,
    guesses: int | None = None,
    rng: Randomness | None = None,
) -> Proof:
    """Return the best bound from records that were each included or left out by their own coin.

    Parameters
    ----------
    inside, scores : arrays of shape (m,)
        The coins, and a score per record that is larger where the record seems to be included.
    guesses : int, optional
        r, fixed beforehand. By default, all, a quarter and a sixteenth are tried, with the highest
        scores guessed in and the lowest out, and the latter two also with the highest alone,
        because some attacks recognize members well and non-members not at all.
    rng : Randomness, optional
        Breaks ties, so that they do not depend on an order in which members come first.
    """
    truth, seen = np.asarray(inside, dtype=np.bool_), np.asarray(scores, dtype=np.float64)
    count = len(truth)
    mixed = np.argsort(apart(rng).words(count), kind="stable")
    order = mixed[np.argsort(-seen[mixed], kind="stable")]
    tried = []
    for size in _sizes(count, guesses):
        high, low = order[: (size + 1) // 2], order[count - size // 2 :]
        tried.append((size, int(truth[high].sum() + (~truth[low]).sum())))
    if guesses is None:
        tried += [(size, int(truth[order[:size]].sum())) for size in _sizes(count, None)[1:]]
    return _best(count, tried, delta, certainty)


def from_pairs(
    first_inside: Any,
    ahead: Any,
    *,
    delta: float = 0.0,
    certainty: float = 0.99,
    guesses: int | None = None,
) -> Proof:
    """Return the best bound from pairs in which a coin included one and left out the other.

    Parameters
    ----------
    first_inside : array of bool, shape (m,)
        Whether the first of each pair is included. The order was fixed before the coin fell.
    ahead : array of shape (m,)
        The score of the first minus that of the second; the largest differences are guessed.
    guesses : int, optional
        r, fixed beforehand. By default, all, a quarter and a sixteenth are tried.
    """
    truth, lead = np.asarray(first_inside, dtype=np.bool_), np.asarray(ahead, dtype=np.float64)
    order = np.argsort(-np.abs(lead), kind="stable")
    right = truth == (lead >= 0)
    tried = [(size, int(right[order[:size]].sum())) for size in _sizes(len(truth), guesses)]
    return _best(len(truth), tried, delta, certainty)


def _sizes(count: int, guesses: int | None) -> list[int]:
    if guesses is not None:
        return [errors.whole("guesses", "guesses", guesses, least=1, most=count)]
    return sorted({max(count // part, min(count, _LEAST)) for part in _SHARES}, reverse=True)


def _best(count: int, tried: Sequence[tuple[int, int]], delta: float, certainty: float) -> Proof:
    """Return the largest of several bounds, each at its share of the risk."""
    each = _each(certainty, len(tried))
    runs = [OneRun.of(count, *one, delta=delta, confidence=each) for one in tried]
    best = max(runs, key=lambda run: run.epsilon)
    sizes = tuple(size for size, _ in tried)
    return Proof(**{**vars(best), "confidence": certainty}, tried=sizes)


def _each(certainty: float, bounds: int) -> float:
    """Return the confidence of each of several bounds that hold together (Bonferroni)."""
    return 1 - (1 - certainty) / bounds
