"""Accuracy and time of private estimators, compared with scikit-learn and a peer.

    python benchmarks/estimators.py [--repeats 5]

Prints one JSON object. 50,000 rows of 20 standard-normal columns within [−3, 3], seed 0; ε = 1, and
δ = 10⁻⁶ where one is used. Losses are on 20,000 other rows, ours averaged over the repeats, each
with fresh noise. Times are medians of interleaved fits, ours over scikit-learn's, both with default
settings (both forests on one core). Points are hundredths of accuracy; for the forest they are ours
less diffprivlib's. null means not measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from estimator_cases import DELTA, DEPTH, EPSILON, LOWER, TREES, UPPER, Cases
from peers import Peer, say

BOUNDS = (LOWER, UPPER)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result, and the seconds that it took."""
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


def compared(
    ours: Callable[[], Any],
    plain: Callable[[], Any],
    rows: tuple[Any, Any],
    test: tuple[Any, Any],
    repeats: int,
) -> tuple[float, float, float]:
    """Return our mean score, scikit-learn's score, and the ratio of their median times."""
    scores, times, theirs = [], [], []
    for _ in range(repeats + 1):  # a warm-up for caches, which is not timed
        model, seconds = timed(lambda: ours().fit(*rows))
        scores.append(model.score(*test))
        times.append(seconds)
        other, seconds = timed(lambda: plain().fit(*rows))
        theirs.append(seconds)
    ratio = median(times[1:]) / median(theirs[1:])
    say(f"  ours {mean(scores):.4f}, scikit-learn {other.score(*test):.4f}, time {ratio:.2f}")
    return mean(scores), other.score(*test), ratio


def measured(repeats: int) -> dict[str, float | None]:
    from sklearn import ensemble, linear_model, svm

    from tacit.central import estimators

    cases = Cases()
    shared = {"epsilon": EPSILON, "bounds": BOUNDS}
    approximate = {**shared, "delta": DELTA}
    say("linear")
    ours, plain, linear_time = compared(
        lambda: estimators.LinearRegression(**approximate, target_bounds=cases.target_bounds),
        linear_model.LinearRegression,
        (cases.rows, cases.answers),
        (cases.test, cases.test_answers),
        4 * repeats,
    )
    linear = plain - ours
    labelled = (cases.rows, cases.labels), (cases.test, cases.test_labels)
    say("logistic")
    ours, plain, logistic_time = compared(
        lambda: estimators.LogisticRegression(**approximate),
        linear_model.LogisticRegression,
        *labelled,
        4 * repeats,
    )
    logistic = 100 * (plain - ours)
    say("svm")
    ours, plain, _ = compared(
        lambda: estimators.LinearSVC(**approximate), svm.LinearSVC, *labelled, repeats
    )
    support = 100 * (plain - ours)
    say("forest")
    ours, _, forest_time = compared(
        lambda: estimators.RandomForestClassifier(**shared, n_estimators=TREES, max_depth=DEPTH),
        lambda: ensemble.RandomForestClassifier(TREES, max_depth=DEPTH),
        (cases.rows, cases.grown),
        (cases.test, cases.test_grown),
        max(repeats // 2, 1),
    )
    peer = Peer(
        "diffprivlib", "diffprivlib==0.6.6", "scikit-learn<1.8", script="diffprivlib_models"
    )
    theirs = peer.rate("forest")
    say(f"  diffprivlib: forest {theirs}, linear R² {peer.rate('linear')}")
    peer.close()
    return {
        "linear_r2_lost": linear,
        "logistic_points_lost": logistic,
        "svm_points_lost": support,
        "forest_points_over_diffprivlib": None if theirs is None else 100 * (ours - theirs),
        "linear_time_over_sklearn": linear_time,
        "logistic_time_over_sklearn": logistic_time,
        "forest_time_over_sklearn": forest_time,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="number of fits of each estimator")
    print(json.dumps(measured(parser.parse_args().repeats), indent=1))


if __name__ == "__main__":
    main()
