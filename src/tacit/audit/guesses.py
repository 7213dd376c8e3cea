r"""Proofs from guessed coins: scores of records that were each put in or left out by a coin.

`tacit.audit.canaries` has the theorem [SNJ23]_: under (ε, δ)-DP with respect to each coin, nobody
has v of r guesses about m coins right, but with a chance that it bounds. It holds for guesses that
are made in any way from what was released, as long as r was fixed beforehand.

How many guesses are best depends on the attack. So a few numbers are tried, each at its share of
the risk (Bonferroni), and the best bound is kept: it holds at the certainty asked for.

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
    """The best of several bounds, each at its share of the risk, so that it has `confidence`."""

    tried: tuple[int, ...]
    """How many guesses each of them made."""

    @property
    def certifiable(self) -> float:
        """The largest ε that any of them could certify."""
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
    """The best bound from records that were each in or out by a coin of its own.

    Parameters
    ----------
    inside, scores : arrays of shape (m,)
        The coins, and a number for each that is larger where the record seems to be in.
    guesses : int, optional
        r, fixed beforehand. Without it all, a quarter and a sixteenth are tried, with the highest
        guessed in and the lowest out; and the latter two with the highest alone, because some
        attacks know members well and others not at all.
    rng : Randomness, optional
        Breaks ties, so that they do not go by an order in which members come first.
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
    """The best bound from pairs of which a coin put one in and left the other out.

    Parameters
    ----------
    first_inside : array of bool, shape (m,)
        Whether the first of a pair is in. Which is the first was settled before the coin fell.
    ahead : array of shape (m,)
        By how much the first one's score is ahead; the pairs where it is furthest are guessed.
    guesses : int, optional
        r, fixed beforehand; without it all, a quarter and a sixteenth are tried.
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
    """The largest bound of several, each at its share of the risk."""
    each = _each(certainty, len(tried))
    found = [OneRun.of(count, *one, delta=delta, confidence=each) for one in tried]
    best = max(found, key=lambda run: run.epsilon)
    sizes = tuple(size for size, _ in tried)
    return Proof(**{**vars(best), "confidence": certainty}, tried=sizes)


def _each(certainty: float, bounds: int) -> float:
    """The confidence of each of several bounds that hold together (Bonferroni)."""
    return 1 - (1 - certainty) / bounds
