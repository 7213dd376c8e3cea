"""Calibration of plans: predicted intervals and upper bounds against what collections reached.

For each table of `benchmarks/tables.py` and each ε: a collection in one round is run on the table's
people and its accuracy measured on held-out rows; a plan is made from the in-house rows and a pilot
of 100 labelled ones, and another from the in-house rows alone. Prints one JSON line per case, then
a summary of the tables that settings were chosen on, of the others, and of all:

- covered: the share of cases in which what was reached lies in the interval of the pilot's plan;
- width: the median width of these intervals;
- bounded: the share of cases in which it lies below the upper bound of the plan without labels;
- tight: the share of cases in which this bound is within 0.10 of it.

`--cache DIR` keeps every case, so that an interrupted run goes on; clear it when `Collection` or
the plan changes. `--hindsight` prints how often a bound that is fitted to the record itself, one
number for each ε and kind of table, holds and is tight. `--record` prints the lines of
`tacit.plan.record` instead: means of the trials in `papers/results/tables.json`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tacit.plan import plan
from tacit.plan.record import EPSILONS, RECORD
from tacit.randomness import Seeded

import tacit
from tables import MOST_TEST, TABLES, TUNED, Table

PILOT, CLOSE = 100, 0.10
SKIPPED = ("wine",)
"""Wine has fewer in-house rows than a pilot."""

STUDY = Path(__file__).parents[1] / "papers" / "results" / "tables.json"


def divided(table: Table, sizes: tuple[int, int]) -> list[np.ndarray]:
    """Divide rows into in-house, people and test, as `tables.py` does with its first seed."""
    order = np.random.default_rng(0).permutation(len(table[0]))
    cuts = [sizes[0], sum(sizes), sum(sizes) + MOST_TEST]
    return np.split(order, [min(cut, len(order)) for cut in cuts])[:3]


def reached(table: Table, sizes: tuple[int, int], epsilon: float) -> dict[str, Any]:
    rows, labels = table
    inhouse, people, test = divided(table, sizes)
    options: dict[str, Any] = {"people": len(people), "classes": int(labels.max()) + 1}
    collection = tacit.Collection(epsilon=epsilon, **options).fit(rows.iloc[inhouse])
    model = collection.learn(collection.release(rows.iloc[people], labels[people], rng=Seeded(0)))
    accuracy = float((model.predict(rows.iloc[test]) == labels[test]).mean())
    return {**options, "reached": accuracy}


def planned(
    table: Table, sizes: tuple[int, int], epsilon: float, with_pilot: bool
) -> dict[str, Any]:
    rows, labels = table
    inhouse, people, _ = divided(table, sizes)
    known: dict[str, Any] = {"inhouse": rows.iloc[inhouse], "classes": int(labels.max()) + 1}
    if with_pilot:
        known |= {"pilot": rows.iloc[inhouse[:PILOT]], "labels": labels[inhouse[:PILOT]]}
    start = time.perf_counter()
    made = plan(epsilon=epsilon, people=len(people), **known)
    seconds = round(time.perf_counter() - start, 1)
    return {"low": made.accuracy.low, "high": made.accuracy.high, "seconds": seconds}


def kept(path: Path | None, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Read a result from the cache, or make and keep it."""
    if path is not None and path.exists():
        return dict(json.loads(path.read_text()))
    result = make()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result))
    return result


def case(name: str, table: Table, epsilon: float, cache: Path | None) -> dict[str, Any]:
    sizes, mark = TABLES[name][1], f"{name.replace(' ', '_')}-{epsilon:g}.json"
    at = (lambda kind: None) if cache is None else (lambda kind: cache / f"{kind}-{mark}")
    found = kept(at("reached"), lambda: reached(table, sizes, epsilon))
    pilot = kept(at("pilot"), lambda: planned(table, sizes, epsilon, True))
    bound = kept(at("inhouse"), lambda: planned(table, sizes, epsilon, False))
    head = {"table": name, "tuned": name in TUNED, "epsilon": epsilon}
    ends = {"low": pilot["low"], "high": pilot["high"], "bound": bound["high"]}
    seconds = [pilot["seconds"], bound["seconds"]]
    return {**head, "reached": found["reached"], **ends, "seconds": seconds}


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    covered = [one["low"] <= one["reached"] <= one["high"] for one in cases]
    return {
        "cases": len(cases),
        "covered": float(np.mean(covered)),
        "width": float(np.median([one["high"] - one["low"] for one in cases])),
        "bounded": float(np.mean([one["reached"] <= one["bound"] for one in cases])),
        "tight": float(np.mean([abs(one["bound"] - one["reached"]) <= CLOSE for one in cases])),
    }


def record_line(name: str, table: Table, study: dict[str, Any]) -> str:
    """Return the line of a table in `tacit.plan.record`: means of the study's trials."""
    rows, labels = table
    _, people, test = divided(table, TABLES[name][1])
    means = {
        one["epsilon"]: one["accuracy"]["mean"]
        for one in study["results"]
        if (one["task"], one["mechanism"]) == (name, "partitions")
    }
    values = ", ".join(f"{means[epsilon]:.2f}" for epsilon in EPSILONS)
    largest = np.bincount(labels[test]).max() / len(test)
    sizes = f"{rows.shape[1]}, {labels.max() + 1}, {len(people)}, {largest:.2f}"
    return f'    Measured("{name}", {sizes}, ({values})),'


def hindsight() -> dict[str, Any]:
    """Return the most cases in which bounds are tight, if a tenth of all cases may exceed them."""
    kinds: dict[tuple[str, float], list[float]] = {}
    for one in RECORD:
        kind = "two" if one.classes == 2 else "clusters" if one.columns >= 60 else "more"
        for epsilon, reached in zip(EPSILONS, one.reached, strict=True):
            kinds.setdefault((kind, epsilon), []).append(reached)
    cases, tight = sum(map(len, kinds.values())), {0: 0}  # by how many cases exceed their bound
    for values in map(np.array, kinds.values()):
        options = [
            (int((values > bound + 1e-9).sum()), int((abs(bound - values) <= CLOSE + 1e-9).sum()))
            for bound in np.arange(0.3, 1.0, 0.005)
        ]
        found: dict[int, int] = {}
        for exceeded, before in tight.items():
            for more, own in options:
                found[exceeded + more] = max(found.get(exceeded + more, 0), before + own)
        tight = found
    allowed = cases // 10
    most = max(count for exceeded, count in tight.items() if exceeded <= allowed)
    return {"cases": cases, "held": cases - allowed, "tight": most}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", help="names, separated by commas; default: all")
    parser.add_argument("--epsilons", default="1,2,4,8")
    parser.add_argument("--cache", type=Path, help="a directory for results")
    parser.add_argument("--record", action="store_true", help="print the record and nothing else")
    parser.add_argument("--hindsight", action="store_true", help="bounds fitted to the record")
    arguments = parser.parse_args()
    if arguments.hindsight:
        print(json.dumps(hindsight()))
        return
    warnings.simplefilter("ignore")
    cases: list[dict[str, Any]] = []
    every = [name for name in TABLES if arguments.record or name not in SKIPPED]
    for name in arguments.tables.split(",") if arguments.tables else every:
        try:
            table = TABLES[name][0]()
        except (ImportError, OSError, tacit.errors.TacitError) as error:
            print(json.dumps({"table": name, "skipped": str(error).splitlines()[0]}), flush=True)
            continue
        if arguments.record:
            print(record_line(name, table, json.loads(STUDY.read_text())), flush=True)
            continue
        for epsilon in map(float, arguments.epsilons.split(",")):
            cases.append(case(name, table, epsilon, arguments.cache))
            print(json.dumps(cases[-1]), flush=True)
    for words, chosen in (("tuned", [True]), ("others", [False]), ("all", [True, False])):
        if mine := [one for one in cases if one["tuned"] in chosen]:
            print(json.dumps({"summary": words, **summary(mine)}), flush=True)


if __name__ == "__main__":
    main()
