"""Statistics and estimators: tables of numbers that one house holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tacit.central import estimators
from tacit.central import statistics as private_statistics

from .adversary import Columns, at_an_edge, neighbours
from .refuter import Outcome, Pair, Path
from .tape import Coins

LOW, HIGH = -1.0, 1.0
DELTA = {"epsilon": 1.0, "delta": 1e-5}


def table(rows: int = 40, columns: int = 3, classes: int = 2) -> Columns:
    drawn = np.random.default_rng(7)
    return drawn.uniform(LOW, HIGH, (rows, columns)), drawn.integers(0, classes, rows)


def undated(certificate: str) -> dict[str, Any]:
    """A certificate without the time at which it was issued, and the digest that covers it."""
    found = json.loads(certificate)
    return {key: value for key, value in found.items() if key not in ("issued", "digest")}


def statistic(
    name: str, *arguments: Any, column: bool = False, wide: int = 3, **options: Any
) -> Path:
    """A function of `tacit.private_statistics`; rows of numbers, or (column) their first one."""
    function = getattr(private_statistics, name)

    def run(data: Columns, coins: Coins) -> Outcome:
        rows = data[0][:, 0] if column else data[0]
        found = function(rows, *arguments, **{**DELTA, **options}, rng=coins)
        return Outcome(found.value, found.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        yield from neighbours(table(columns=wide)[:1], "add-remove", LOW, HIGH, everything)
        if everything and not column:
            rows = table(columns=wide)[0]
            yield from at_an_edge(made, rows[0] * 0.1, rows[1], 300)

    covers = (f"private_statistics.{name}",)
    title = f"private_statistics.{name}{f', {wide} columns' if wide > 3 else ''}"
    made = Path(title, "add-remove", run, pairs, covers, slow=wide > 3)
    return made


def estimator(
    name: str,
    told: str = "",
    *,
    adjacency: str,
    labels: str = "classes",
    last: bool = False,
    replaced: bool = False,
    **options: Any,
) -> Path:
    """A fit; what leaves is what `save` would write, with the guarantee."""
    kind = getattr(estimators, name)

    def run(data: Columns, coins: Coins) -> Outcome:
        model = kind(bounds=(LOW, HIGH), **{**DELTA, **options}, rng=coins)
        told = () if labels == "none" else (data[1] / (1 if labels == "classes" else 2),)
        model.fit(data[0], *told)
        parameters, arrays = model.parts()
        parameters["certificate"] = undated(parameters["certificate"])
        return Outcome((parameters, arrays), model.event_)

    def pairs(everything: bool) -> Iterator[Pair]:
        beside = () if labels == "none" else (0, 1)
        base = table()[: 1 if labels == "none" else 2]
        how = "replace-one" if replaced else "add-remove"
        given = (base, how, LOW, HIGH, everything, beside)
        yield from neighbours(*given, finite=True, last=last)

    covers = (f"estimators.{name}{told and '.' + told}",)
    title = f"estimators.{name}{told and ' ' + told}"
    return Path(title, adjacency, run, pairs, covers, steps=2 if replaced else 1)


def counts() -> Path:
    """Codes, those outside the categories included."""

    def run(data: Columns, coins: Coins) -> Outcome:
        found = private_statistics.counts(data[0], 4, **DELTA, rng=coins)
        return Outcome(found.value, found.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        codes = np.random.default_rng(0).integers(0, 4, 30)
        for code in (0, 3, -1, 4, 2**40, -(2**62)):
            for place in (0, 15, 30):
                yield Pair(f"code {code} at {place}", (np.insert(codes, place, code),), (codes,))

    return Path(
        "private_statistics.counts", "add-remove", run, pairs, ("private_statistics.counts",)
    )


def paths() -> list[Path]:
    classes = {"classes": [0, 1], "adjacency": "add-remove"}
    target = {"target_bounds": (-1, 1), "labels": "numbers", "adjacency": "add-remove"}
    alone = {"labels": "none", "adjacency": "add-remove"}
    # A blank record cannot be given to these: two that differ are two steps apart.
    trained = {"adjacency": "zero-out", "replaced": True, "batch_size": 41}
    network = {**trained, "hidden_layer_sizes": (4,), "epochs": 2}
    return [
        estimator("LogisticRegression", "sgd", algorithm="sgd", steps=2, classes=[0, 1], **trained),
        estimator("MLPClassifier", classes=[0, 1], **network),
        estimator("MLPRegressor", target_bounds=(-1, 1), labels="numbers", **network),
        statistic("mean", 1.0),
        statistic("vector_sum", 1.0),
        statistic("covariance", 1.0),
        statistic("pca", 2, 1.0),
        statistic("kmeans", 3, 1.0),
        statistic("quantiles", (0.1, 0.5), LOW, HIGH, column=True),
        statistic("standardize", LOW, HIGH),
        counts(),
        statistic("mean", 40.0, wide=9000),
        statistic("covariance", 4.0, wide=300),
        *(
            estimator("LinearRegression", a, algorithm=a, **target)
            for a in ("adassp", "functional", "gradient")
        ),
        estimator("Ridge", **target),
        *(
            estimator("LogisticRegression", a, algorithm=a, **classes)
            for a in ("gradient", "functional")
        ),
        estimator("RandomForestClassifier", n_estimators=3, max_depth=2, last=True, **classes),
        estimator(
            "RandomForestClassifier",
            "pure",
            n_estimators=3,
            max_depth=2,
            last=True,
            **{**classes, "delta": 0},
        ),
        estimator(
            "RandomForestClassifier",
            "dprf",
            algorithm="dprf",
            n_estimators=2,
            max_depth=2,
            last=True,
            **{**classes, "delta": 0, "adjacency": "zero-out"},
        ),
        estimator("StandardScaler", **alone),
        estimator("MinMaxScaler", **alone),
        estimator("PCA", n_components=2, **alone),
        estimator("KMeans", n_clusters=2, **alone),
        estimator("LinearSVC", "output", algorithm="output", **classes),
    ]
