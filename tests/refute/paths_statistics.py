"""Statistics and estimators: tables of numbers that one house holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from central.estimators.cases import ESTIMATORS, Case
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


def estimator(case: Case) -> Path:
    """A fit; what leaves is what `save` would write, with the guarantee."""

    def run(data: Columns, coins: Coins) -> Outcome:
        model = case.make(**{**DELTA, **case.options}, bounds=(LOW, HIGH), rng=coins)
        told = () if case.labels == "none" else (data[1] / (1 if case.labels == "classes" else 2),)
        model.fit(data[0], *told)
        parameters, arrays = model.parts()
        parameters["certificate"] = undated(parameters["certificate"])
        return Outcome((parameters, arrays), model.event_)

    def pairs(everything: bool) -> Iterator[Pair]:
        beside = () if case.labels == "none" else (0, 1)
        base = table()[: 1 if case.labels == "none" else 2]
        how = "replace-one" if case.replaced else "add-remove"
        given = (base, how, LOW, HIGH, everything, beside)
        yield from neighbours(*given, finite=True, last=case.last)

    covers = (f"estimators.{case.name}{case.told and '.' + case.told}",)
    title = f"estimators.{case.name}{case.told and ' ' + case.told}"
    return Path(title, case.adjacency, run, pairs, covers, steps=2 if case.replaced else 1)


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
    return [
        *map(estimator, ESTIMATORS),
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
    ]
