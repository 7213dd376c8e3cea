"""Variance of one report of a number in [-1, 1] under local privacy: `LocalMean` and others.

Every mechanism is drawn at the number where its variance is largest, 2e7 times by default; what is
drawn must be within 2 % of theory. The others are textbook laws in floats, for comparison only:
Laplace noise, Duchi et al. (two reports), the piecewise mechanism, and the hybrid of these two
(Wang, Xiao, Yang, Zhao et al., ICDE 2019).

    python benchmarks/local_means.py [--draws 20000000] [--epsilons 1 2 4]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator

import numpy as np

import tacit

Draw = Callable[[int, np.random.Generator], np.ndarray]
CHUNK = 1_000_000


def laplace(epsilon: float) -> tuple[float, Draw]:
    return 8 / epsilon**2, lambda size, rng: rng.laplace(0, 2 / epsilon, size)


def duchi(epsilon: float, number: float = 0.0) -> tuple[float, Draw]:
    reach = 1 / math.tanh(epsilon / 2)
    above = 0.5 + number / (2 * reach)
    return reach**2 - number**2, lambda size, rng: reach * np.sign(above - rng.random(size))


def piecewise(epsilon: float, number: float = 1.0) -> tuple[float, Draw]:
    root = math.exp(epsilon / 2)
    reach = (root + 1) / (root - 1)
    left = (reach + 1) / 2 * number - (reach - 1) / 2
    right = left + reach - 1

    def draw(size: int, rng: np.random.Generator) -> np.ndarray:
        near = rng.random(size) < root / (root + 1)
        uniform = rng.random(size)
        far = -reach + uniform * (reach + 1)  # the two outer pieces, joined
        far += np.where(far > left, right - left, 0)
        return np.where(near, left + uniform * (right - left), far)

    return number**2 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2), draw


def hybrid(epsilon: float, number: float = 1.0) -> tuple[float, Draw]:
    """Mix both so that the variance is the same for every number (epsilon above 0.61)."""
    share = 1 - math.exp(-epsilon / 2)
    (one, pieces), (other, signs) = piecewise(epsilon, number), duchi(epsilon, number)

    def draw(size: int, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(size) < share, pieces(size, rng), signs(size, rng))

    return share * one + (1 - share) * other, draw


def ours(epsilon: float) -> tuple[float, Draw]:
    mechanism = tacit.LocalMean(lower=-1, upper=1, epsilon=epsilon)
    numbers = np.linspace(-1, 1, 20_001)
    number = numbers[np.argmax(mechanism.variance(numbers))]
    return (
        mechanism.worst_variance,
        lambda size, rng: mechanism.values[
            mechanism.release(np.full(size, number))
        ],  # from OS entropy
    )


def variance_of(draw: Draw, draws: int, rng: np.random.Generator) -> float:
    total = square = 0.0
    for done in range(0, draws, CHUNK):
        scores = draw(min(CHUNK, draws - done), rng)
        total, square = total + float(scores.sum()), square + float(scores @ scores)
    return square / draws - (total / draws) ** 2


def measured(epsilon: float, draws: int) -> Iterator[tuple[str, float, float]]:
    rng = np.random.default_rng(1)
    for kind in (ours, hybrid, piecewise, duchi, laplace):
        theory, draw = kind(epsilon)
        yield kind.__name__, theory, variance_of(draw, draws, rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20_000_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    arguments = parser.parse_args()
    print(f"{'epsilon':>8} {'mechanism':>10} {'theory':>9} {'drawn':>9}  off")
    for epsilon in arguments.epsilons:
        for name, theory, drawn in measured(epsilon, arguments.draws):
            off = drawn / theory - 1
            print(f"{epsilon:8g} {name:>10} {theory:9.4f} {drawn:9.4f} {off:+.2%}", flush=True)
            if not abs(off) <= 0.02:
                raise SystemExit(f"{name}: the drawn variance is more than 2 % off")


if __name__ == "__main__":
    main()
