"""Frequency oracles on very many categories: variance of one report, bytes, time; frequent texts.

Draws 2e7 points of `ProjectiveGeometryResponse` by default, and a tenth as many sets of
`SubsetSelection`, from the operating system. The variance of one report's estimate of a
category that nobody is in must be within 2 % of theory. Then frequent
texts among Zipf-distributed ones.

    python benchmarks/oracles.py [--draws 20000000] [--epsilons 1 2 4] [--people 50000]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import tacit

CHUNK = 500_000
MANY = (10_000, 1_000_000)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
RARE = np.arange(1, 9)


def theory(mechanism) -> float:
    p, q = mechanism.inclusion
    return q * (1 - q) / (p - q) ** 2


def variance_of(mechanism, draws: int) -> float:
    """The variance of one report's estimate of categories 1 to 8, where everybody is in 0."""
    p, q = mechanism.inclusion
    support = np.zeros(RARE.size)
    for done in range(0, draws, CHUNK):
        released = mechanism.release(np.zeros(min(CHUNK, draws - done), np.int64))
        if isinstance(mechanism, tacit.SubsetSelection):
            support += np.bincount(released.ravel(), minlength=mechanism.categories)[RARE]
        else:
            support += mechanism.estimate_counts(released, RARE).support
    rates = support / draws  # a report's estimate has two values
    return float((rates * (1 - rates)).mean() / (p - q) ** 2)


def variances(epsilons: list[float], draws: int) -> None:
    print(f"{'epsilon':>8} {'categories':>10} {'mechanism':>11} {'theory':>9} {'drawn':>9}  off")
    for epsilon in epsilons:
        kinds = [
            ("sets of 100", tacit.SubsetSelection(categories=100, epsilon=epsilon), draws // 10)
        ]
        for many in MANY:
            points = tacit.ProjectiveGeometryResponse(categories=many, epsilon=epsilon)
            kinds.append(("points", points, draws))
        for name, mechanism, count in kinds:
            stated, drawn = theory(mechanism), variance_of(mechanism, count)
            off = drawn / stated - 1
            row = f"{epsilon:8g} {mechanism.categories:10d} {name:>11} {stated:9.4f} {drawn:9.4f}"
            print(f"{row} {off:+.2%}", flush=True)
            if not abs(off) <= 0.02:
                raise SystemExit(f"{name}: the drawn variance is more than 2 % off")


def sizes(epsilons: list[float], people: int) -> None:
    header = f"{'epsilon':>8} {'categories':>10} {'variance':>9} {'of sets':>9} {'bytes':>6}"
    print(f"\n{header} {'of sets':>8} {'release':>8} {'counts':>8}")
    for epsilon in epsilons:
        for many in MANY:
            points = tacit.ProjectiveGeometryResponse(categories=many, epsilon=epsilon)
            sets = tacit.SubsetSelection(categories=many, epsilon=epsilon)
            raw = np.random.default_rng(0).integers(0, many, people)
            began = time.perf_counter()
            released = points.release(raw)
            between = time.perf_counter()
            points.estimate_counts(released)
            took = between - began, time.perf_counter() - between
            row = f"{epsilon:8g} {many:10d} {theory(points):9.4f} {theory(sets):9.4f}"
            row += f" {points.report_bytes:6d} {sets.report_bytes:8d}"
            print(f"{row} {took[0]:7.2f}s {took[1]:7.2f}s", flush=True)


def texts(epsilons: list[float], people: int, exponent: float = 1.2) -> None:
    rng = np.random.default_rng(0)
    made = ("".join(rng.choice(list(LETTERS), rng.integers(3, 13))) for _ in range(12_000))
    words = list(dict.fromkeys(made))[:10_000]
    weights = 1 / np.arange(1, len(words) + 1) ** exponent
    weights /= weights.sum()
    true: dict[str, float] = {}
    for word, weight in zip(words, weights, strict=True):
        true[word[:9]] = true.get(word[:9], 0) + weight
    print(f"\n{people} texts out of {len(words)}, Zipf {exponent}, nine letters count")
    print("epsilon  threshold  above  found  above half  found  in all  of nobody  time")
    for epsilon in epsilons:
        channel = tacit.HeavyHitters(alphabet=LETTERS, length=9, epsilon=epsilon)
        released = channel.release(rng.choice(words, people, p=weights))
        began = time.perf_counter()
        found = channel.estimate(released)
        took = time.perf_counter() - began
        above, half = (
            [word for word, share in true.items() if share >= found.threshold * factor]
            for factor in (1, 0.5)
        )
        hits = [sum(word in found.texts for word in group) for group in (above, half)]
        nobody = sum(text not in true for text in found.texts)
        row = f"{epsilon:7g} {found.threshold:10.4f} {len(above):6d} {hits[0]:6d} {len(half):11d}"
        print(f"{row} {hits[1]:6d} {len(found.texts):7d} {nobody:10d} {took:5.1f}s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20_000_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--people", type=int, default=50_000)
    arguments = parser.parse_args()
    variances(arguments.epsilons, arguments.draws)
    sizes(arguments.epsilons, arguments.people)
    texts(arguments.epsilons, arguments.people)


if __name__ == "__main__":
    main()
