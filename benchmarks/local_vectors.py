"""Means of d numbers in [-1, 1] under local privacy: `LocalVector` and its rivals.

For each, the largest variance of one report's score of one number, over all vectors: how people
are assigned to numbers is part of it. Rivals: one number drawn at random and reported by
`LocalMean`; the best number of them, with the privacy parameter divided; and the textbook value of
PrivUnit for the ball around the box. "spread" is the same for a population in which each number is
uniform on [-1, 1]: noise and sampling of people. "noise" is the part of the first rival that is
left where everybody has the same vector, and each number is asked of as many people.

Draws of `LocalVector` (2e6 by default), at a vector from -1/2 to 1/2, must be within 2 % of theory.

    python benchmarks/local_vectors.py [--draws 2000000] [--epsilons 1 2 4 8]
"""

from __future__ import annotations

import argparse
import math
from functools import lru_cache

import numpy as np
from scipy import optimize, special, stats

import tacit

DIMENSIONS = (2, 4, 8, 16, 32)
NUMBERS = np.linspace(-1, 1, 2001)
CELLS = 4_000_000


@lru_cache
def single(epsilon: float) -> np.ndarray:
    """The variance of the score of one number, over numbers."""
    return tacit.LocalMean(lower=-1, upper=1, epsilon=epsilon).variance(NUMBERS)


def divided(dimension: int, epsilon: float, count: int) -> tuple[float, float]:
    """Report `count` numbers drawn at random: the largest variance, and the mean second moment."""
    moment = dimension / count * (single(epsilon / count) + NUMBERS**2)
    return float((moment - NUMBERS**2).max()), float(np.trapezoid(moment, NUMBERS) / 2)


def privunit(dimension: int, epsilon: float) -> float:
    """The variance of one entry of a report of a vector of length sqrt(d), of the best cap."""
    half = (dimension - 1) / 2

    def scale(log_odds: float) -> float:
        inside, cap = special.expit(epsilon + log_odds), special.expit(log_odds)
        threshold = 2 * stats.beta(half, half).isf(cap) - 1
        above = half * math.log1p(-(threshold**2)) - special.betaln(half, 0.5)
        return math.exp(above) / (2 * half) * (inside / cap - (1 - inside) / (1 - cap))

    best = optimize.minimize_scalar(
        lambda log_odds: -scale(log_odds), bounds=(-epsilon - 20.0, 0.0), method="bounded"
    )
    return 1 / scale(float(best.x)) ** 2


def drawn(mechanism: tacit.LocalVector, draws: int) -> float:
    """The drawn variance over that of theory, all entries together."""
    vector = np.linspace(-0.5, 0.5, mechanism.dimension)
    total, square, chunk = np.zeros(vector.size), 0.0, CELLS // vector.size
    for done in range(0, draws, chunk):
        size = min(chunk, draws - done)
        scores = mechanism.scores(mechanism.release(np.broadcast_to(vector, (size, vector.size))))
        total, square = total + scores.sum(axis=0), square + float((scores**2).sum())
    variance = square / draws - float(((total / draws) ** 2).sum())
    return variance / float(mechanism.variance(vector).sum())


def row(dimension: int, epsilon: float, draws: int) -> None:
    mechanism = tacit.LocalVector(dimension=dimension, lower=-1, upper=1, epsilon=epsilon)
    ours = float(mechanism.worst_variances[0])
    counts = [count for count in range(1, dimension + 1) if epsilon / count >= 0.25]
    rivals = {count: divided(dimension, epsilon, count) for count in counts}
    best = min(rivals, key=lambda count: rivals[count][0])
    spread = min(one[1] for one in rivals.values())
    off = drawn(mechanism, draws) - 1
    noise = dimension * float(single(epsilon).max())
    print(
        f"{epsilon:7g} {dimension:4d} {mechanism.event.told:4d} {mechanism.event.agreeing:8d} "
        f"{ours:9.3f} {off:+7.2%} {rivals[1][0]:9.3f} {rivals[best][0]:9.3f} {best:3d} "
        f"{privunit(dimension, epsilon):9.3f} {spread:9.3f} {noise:8.3f}",
        flush=True,
    )
    if not abs(off) <= 0.02:
        raise SystemExit("the drawn variance is more than 2 % off")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2_000_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0])
    arguments = parser.parse_args()
    print(
        f"{'epsilon':>7} {'d':>4} {'told':>4} {'agreeing':>8} {'ours':>9} {'drawn':>7} "
        f"{'one':>9} {'divided':>9} {'in':>3} {'privunit':>9} {'spread':>9} {'noise':>8}"
    )
    for epsilon in arguments.epsilons:
        for dimension in DIMENSIONS:
            row(dimension, epsilon, arguments.draws)


if __name__ == "__main__":
    main()
