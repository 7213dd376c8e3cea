"""Collections whose in-house rows are protected: what may leave, at several central ε.

    python benchmarks/protected.py pen_strokes adult --epsilon 2 --central 1 5 --seed 0 1

Prints one JSON line per table, ε, central ε and seed: accuracy, or the area under the ROC curve for
two classes, of the label table of a protected codebook and of the model of protected partitions, in
one round and in two. Bounds are taken from the in-house rows, as if they were public. Settings were
chosen on `pen_strokes` and `adult` with seed 0.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import tacit
from tacit_papers.data import tables
from tacit_papers.parts.table_case import Case, bounds, split

DELTA = 1e-5


def score(case: Case, model: Any) -> float:
    """Measure the area under the curve for two classes, else the accuracy."""
    from sklearn.metrics import roc_auc_score

    likely = model.predict_proba(case.test)
    if case.classes == 2:
        return float(roc_auc_score(case.truth, likely[:, 1]))
    return float((likely.argmax(axis=1) == case.truth).mean())


def measured(case: Case, epsilon: float, central: float, seed: int) -> dict[str, float]:
    """Collect with a codebook, and with partitions in one round and in two."""
    settings: dict[str, Any] = {"epsilon": epsilon, "people": len(case.labels)}
    settings |= {"classes": case.classes, "central_epsilon": central, "central_delta": DELTA}
    declared = bounds(case.inhouse)
    codebook = tacit.Codebook(**settings).fit(case.inhouse, schema=declared, seed=seed)
    reports = codebook.release(case.people, case.labels)
    results = {"codebook": score(case, tacit.NoiseAwareClassifier().fit(reports))}
    for rounds in (1, 2):
        collection = tacit.Collection(**settings, rounds=rounds)
        collection.fit(case.inhouse, schema=declared, seed=seed)
        gathered: list[Any] = []
        for number, part in enumerate(np.array_split(np.arange(len(case.labels)), rounds)):
            collection = collection.adapt(model) if number else collection  # noqa: F821
            gathered.append(collection.release(case.people.take(part), case.labels[part]))
            model = collection.learn(gathered)
        results[f"partitions, rounds={rounds}"] = score(case, model)
    return results


def main() -> None:
    """Measure every table, ε, central ε and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[2.0])
    parser.add_argument("--central", nargs="+", type=float, default=[1.0, 5.0])
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    given = parser.parse_args()
    for name in given.tables:
        table = tables.load(name)
        for seed in given.seed:
            case = split(table, seed)
            for epsilon in given.epsilon:
                for central in given.central:
                    result = measured(case, epsilon, central, seed)
                    head = {"table": name, "epsilon": epsilon, "central": central, "seed": seed}
                    print(
                        json.dumps(head | {k: round(v, 3) for k, v in result.items()}), flush=True
                    )


if __name__ == "__main__":
    main()
