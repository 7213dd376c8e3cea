"""Private posteriors: the counts behind them, one record of which is another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tacit

from .refuter import Outcome, Pair, Path
from .tape import Coins

Counts = tuple[int, ...]


def posterior(kind: str, prior: tuple[float, ...], mechanism: str, **options: Any) -> Path:
    def run(counts: Counts, coins: Coins) -> Outcome:
        given = {"epsilon": 1.0, "mechanism": mechanism, **options}
        found = getattr(tacit, kind)(prior=prior).release(counts, **given, rng=coins)
        return Outcome((np.asarray(found.released), np.asarray(found.mean)), found.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        sizes = (1, 2, 9, 30) if everything else (1, 9)
        for total in sizes:
            for i in range(len(prior)):
                one = [0] * len(prior)
                one[i] = total
                for j in set(range(len(prior))) - {i}:
                    other = list(one)
                    other[i] -= 1
                    other[j] += 1
                    yield Pair(f"{one} and {other}", tuple(one), tuple(other))

    name = f"{kind} {mechanism}"
    return Path(name, "replace-one", run, pairs, (f"{kind}.{mechanism}",))


def paths() -> list[Path]:
    return [
        posterior("BetaBinomial", (1.0, 1.0), "geometric"),
        posterior("BetaBinomial", (1.0, 1.0), "laplace"),
        posterior("BetaBinomial", (1.0, 1.0), "hellinger", delta=1e-6),
        posterior("DirichletMultinomial", (1.0, 2.0, 0.5), "geometric"),
        posterior("DirichletMultinomial", (1.0, 2.0, 0.5), "laplace"),
        posterior("DirichletMultinomial", (1.0, 2.0, 0.5), "hellinger", delta=1e-6),
    ]
