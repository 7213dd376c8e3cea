"""Draws per second, ours over the peers', as one JSON object on stdout; above 1 ours is faster.

Our draws are exact and use the operating system's entropy. Among the peers only OpenDP is exact and
unpredictable; pure-ldp uses Python's Mersenne Twister, and the numpy lines are written for speed
alone: floating point and, unless stated otherwise, a predictable generator.

Machines are noisy, so all take turns, in several rounds. A rate is the median of
the rounds' rates, a ratio the quotient of two such rates; null means not measured.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from statistics import median

import numpy as np

import tacit
from peers import Peer, Task, rate, say

ROUNDS = 5
COUNT = 100_000
SUBSETS = 10_000  # fewer, because a draw is a row of 27 categories

Rival = Callable[[], float | None]


def data(categories: int, count: int = COUNT) -> np.ndarray:
    return np.arange(count) % categories


def ours(mechanism, values: np.ndarray) -> Task:
    task = (lambda: mechanism.release(values), len(values))
    task[0]()  # tables are made on first use
    return task


def numpy_noise(draw: Callable[..., np.ndarray]) -> Rival:
    values = data(100)
    return lambda: rate((lambda: values + np.rint(draw(0, 10, COUNT)).astype(np.int64), COUNT))


def numpy_krr(categories: int, words: Callable[[], np.ndarray]) -> Rival:
    """Draw randomized response in floating point, from any source of COUNT 64-bit words."""
    values = data(categories)
    stay = math.e / (math.e + categories - 1)

    def release() -> np.ndarray:
        other = (words() % np.uint64(categories - 1)).astype(np.int64)
        other += other >= values
        return np.where((words() >> np.uint64(11)) * 2.0**-53 < stay, values, other)

    return lambda: rate((release, COUNT))


def system_words() -> np.ndarray:
    return np.frombuffer(os.urandom(8 * COUNT), dtype=np.uint64)


def cases(opendp: Peer, pure_ldp: Peer) -> dict[str, tuple[Task, dict[str, Rival]]]:
    """Return our function and its rivals, by the name in the results."""
    generator = np.random.default_rng()

    def generator_words() -> np.ndarray:
        return generator.integers(0, 2**64, COUNT, dtype=np.uint64)

    def krr(categories: int) -> tuple[Task, dict[str, Rival]]:
        mechanism = tacit.RandomizedResponse(categories=categories, epsilon=1)
        return ours(mechanism, data(categories)), {
            "pure_ldp": lambda: pure_ldp.rate(f"krr{categories}"),
            "numpy": numpy_krr(categories, generator_words),
            "numpy_os_entropy": numpy_krr(categories, system_words),
        }

    return {
        "discrete_laplace": (
            ours(
                tacit.DiscreteLaplace(epsilon=0.1, sensitivity=1, adjacency="replace-one"),
                data(100),
            ),  # scale 10
            {
                "opendp": lambda: opendp.rate("discrete_laplace"),
                "numpy": numpy_noise(generator.laplace),
            },
        ),
        "discrete_gaussian": (
            ours(
                tacit.DiscreteGaussian(sigma=10, sensitivity=1, adjacency="replace-one"), data(100)
            ),
            {
                "opendp": lambda: opendp.rate("discrete_gaussian"),
                "numpy": numpy_noise(generator.normal),
            },
        ),
        "krr10": krr(10),
        "krr100": krr(100),
        "subset_selection": (
            ours(tacit.SubsetSelection(categories=100, epsilon=1), data(100, SUBSETS)),
            {
                "pure_ldp": lambda: (
                    None
                ),  # it has no subset selection; unary encoding comes closest
                "pure_ldp_unary": lambda: pure_ldp.rate("unary100"),
            },
        ),
    }


def measure(opendp: Peer, pure_ldp: Peer) -> dict[str, float | None]:
    contests = cases(opendp, pure_ldp)
    seen: dict[str, list[float | None]] = {}
    for number in range(ROUNDS):
        for name, (task, rivals) in contests.items():
            seen.setdefault(name, []).append(rate(task))
            for rival, theirs in rivals.items():
                seen.setdefault(f"{name}_{rival}", []).append(theirs())
        say(f"round {number + 1} of {ROUNDS}")
    rates = {key: None if None in values else median(values) for key, values in seen.items()}
    results = {f"{key}_per_second": value for key, value in rates.items()}
    for name, (_, rivals) in contests.items():
        for rival in rivals:
            other = rates[f"{name}_{rival}"]
            results[f"{name}_over_{rival}"] = other and rates[name] / other
    return results


def main() -> None:
    opendp = Peer("opendp", "opendp==0.16.0")
    # pure-ldp imports the other two without declaring them.
    pure_ldp = Peer("pure_ldp", "pure-ldp==1.2.0", "scikit-learn", "statsmodels")
    say("subset_selection_over_pure_ldp is null: pure-ldp 1.2.0 has no subset selection")
    try:
        results = measure(opendp, pure_ldp)
    finally:
        opendp.close()
        pure_ldp.close()
    print(json.dumps({k: v and float(f"{v:.4g}") for k, v in results.items()}, indent=2))


if __name__ == "__main__":
    main()
