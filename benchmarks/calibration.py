"""Calibration of models learned from reports: how sure they are, against how often they are right.

    python benchmarks/calibration.py --tables breast_cancer,credit --epsilons 1,4 --trials 2

For each table of `benchmarks/tables.py` and each ε, a collection in one round is run on the table's
people and measured on held-out rows. Prints one JSON line per case: accuracy; then Brier score,
log loss and expected calibration error of the model's probabilities, and of those before they are
raised to a power (`tacit.inference.tempering`); and the power. The Brier score is summed over the
classes; that of the class shares alone stands beside it. The calibration error is the mean
distance, over ten bins of equal width, of how probable answers were said to be and how often they
were right.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from tacit.randomness import Seeded

import tacit
from plan import divided
from tables import TABLES, TUNED, Table

BINS = 10
Reals = npt.NDArray[np.float64]


def calibration_error(probable: Reals, labels: npt.NDArray[np.int64]) -> float:
    """Return the expected calibration error of the most probable class."""
    confidence, right = probable.max(axis=1), probable.argmax(axis=1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [
        np.abs(confidence[bins == index].mean() - right[bins == index].mean())
        * (bins == index).mean()
        for index in np.unique(bins)
    ]
    return float(np.sum(gaps))


def scores(probable: Reals, labels: npt.NDArray[np.int64]) -> dict[str, float]:
    true = np.eye(probable.shape[1])[labels]
    own = np.maximum(probable[np.arange(len(labels)), labels], 1e-9)
    return {
        "brier": round(float(((probable - true) ** 2).sum(axis=1).mean()), 4),
        "log_loss": round(float(-np.log(own).mean()), 4),
        "error": round(calibration_error(probable, labels), 4),
    }


def case(name: str, table: Table, epsilon: float, seed: int) -> dict[str, Any]:
    rows, labels = table
    inhouse, people, test = divided(table, TABLES[name][1])
    options: dict[str, Any] = {"people": len(people), "classes": int(labels.max()) + 1}
    collection = tacit.Collection(epsilon=epsilon, **options).fit(rows.iloc[inhouse], seed=seed)
    reports = collection.release(rows.iloc[people], labels[people], rng=Seeded(seed))
    model: Any = collection.learn(reports)
    before = model.mixture_.predict_proba(model.mechanism_.vectors(rows.iloc[test]))
    shares = np.tile(np.bincount(labels[people], minlength=options["classes"]), (len(test), 1))
    return {
        "table": name,
        "tuned": name in TUNED,
        "epsilon": epsilon,
        "seed": seed,
        "accuracy": round(float((before.argmax(axis=1) == labels[test]).mean()), 4),
        "shares_alone": scores(shares / len(people), labels[test])["brier"],
        "power": round(model.sharpness_, 3),
        "before": scores(before, labels[test]),
        "model": scores(model.predict_proba(rows.iloc[test]), labels[test]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", help="names, separated by commas; default: all")
    parser.add_argument("--epsilons", default="1,2,4,8")
    parser.add_argument("--trials", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.tables.split(",") if given.tables else TABLES:
        try:
            table = TABLES[name][0]()
        except (ImportError, OSError, tacit.errors.TacitError) as error:
            print(json.dumps({"table": name, "skipped": str(error).splitlines()[0]}), flush=True)
            continue
        for epsilon in map(float, given.epsilons.split(",")):
            for seed in range(given.trials):
                print(json.dumps(case(name, table, epsilon, seed)), flush=True)


if __name__ == "__main__":
    main()
