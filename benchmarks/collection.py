"""Accuracy after local reports, by the protocol of "Learning to Noise", section 4.1.

    python benchmarks/collection.py clean --features scattering
    python benchmarks/collection.py clean --features invariant --device cuda
    python benchmarks/collection.py adult
    python benchmarks/collection.py novel --features invariant --device cuda

MNIST: 45,000 training images without labels are in-house, 13,500 people report one labelled image
each (1,500 more are kept for validation and not used), 2,500 test images are classified in the
clean. Novel class: eight ninths of the training images of 0 to 8 are in-house, nine in ten of the
people with a 9 report without a label, 9s and others of the test set are told apart half and half.
Adult: 24,000 in-house rows without labels, 12,000 people, the rest for testing.

Each figure is a mean over seeds (random splits), with its standard error. The number of codewords
follows from ε, people and classes; no label of an in-house row is used. Projected features of all
images are computed once a split and kept in --vectors; data are read from $TACIT_DATA.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit.learned import features as features_of
from tacit.learned import quantizer
from tacit.learned.codebook import DEFAULTS

DATA = Path(os.environ.get("TACIT_DATA", "../shared/data"))
EPSILONS = {"clean": (1, 2, 4, 6, 10), "adult": (1, 2, 4, 8), "novel": (1, 2, 4, 10)}
PRIVATE = (2 / 0.7, 4.0, 4 / 0.7, 6.0, 6 / 0.7, 10.0)
SHARE = 0.7


@dataclass(frozen=True)
class Vectors:
    """Features that are computed already: rows are their own vectors."""

    dimension: int
    kind: str = "vectors"

    def transform(self, rows: Any) -> Any:
        return rows.numbers

    def parts(self) -> Any:
        return {}, {}


def mnist() -> tuple[Any, Any]:
    def read(name: str, offset: int) -> Any:
        with gzip.open(DATA / "mnist" / name) as file:
            return np.frombuffer(file.read(), np.uint8, offset=offset)

    images = [read(f"{part}-images-idx3-ubyte.gz", 16) for part in ("train", "t10k")]
    labels = [read(f"{part}-labels-idx1-ubyte.gz", 8) for part in ("train", "t10k")]
    return np.concatenate(images).reshape(-1, 28, 28), np.concatenate(labels).astype(int)


def split(study: str, labels: Any, seed: int) -> tuple[Any, Any, Any]:
    """In-house, people, test: indices into 60,000 training and 10,000 test images."""
    rng = np.random.default_rng(seed)
    if study == "clean":
        order = rng.permutation(60_000)
        return order[:45_000], order[45_000:58_500], 60_000 + rng.permutation(10_000)[:2_500]
    others = rng.permutation(np.flatnonzero(labels[:60_000] != 9))
    nines = rng.permutation(np.flatnonzero(labels[:60_000] == 9))
    test = 60_000 + np.flatnonzero(labels[60_000:] == 9)
    rest = 60_000 + np.flatnonzero(labels[60_000:] != 9)
    test = np.concatenate([test, rng.permutation(rest)[: len(test)]])
    return others[: len(others) * 8 // 9], nines[: len(nines) * 9 // 10], test


def vectors(args: argparse.Namespace, study: str, images: Any, inhouse: Any, seed: int) -> Any:
    """Projected features of all images, learned on the in-house ones."""
    path = args.vectors / f"{args.features}-{study}-{seed}.npy"
    if path.is_file():
        return np.load(path).astype(np.float32)
    schema = tacit.ArraySchema(784, 0, 255, image=(28, 28))
    rows = schema.rows(images)
    components, damped, _ = DEFAULTS[args.features]
    if args.features == "invariant":
        from tacit.learned import invariant

        learned: Any = invariant.fit(schema, rows[inhouse], seed, device=args.device)
    else:
        learned = features_of.fit(args.features, schema, rows[inhouse], seed)
    projection = quantizer.fit_projection(learned, rows[inhouse], components, damped, seed)
    found = quantizer.project(learned, rows, projection)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, found.astype(np.float16))
    return found


def codebook(found: Any, **settings: Any) -> Any:
    """A codebook on vectors, with bounds that none of them passes."""
    bound = float(np.abs(found).max())
    schema = tacit.ArraySchema(found.shape[1], -bound, bound)
    return tacit.Codebook(features=Vectors(found.shape[1]), **settings), schema


def clean(args: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    images, labels = mnist()
    inhouse, people, test = split("clean", labels, seed)
    found = vectors(args, "clean", images, inhouse, seed)
    lines = []
    for epsilon in sorted({*args.epsilons, *(PRIVATE if args.private else ())}):
        mechanism, schema = codebook(
            found, epsilon=epsilon, people=len(people), classes=10, grouping="linked"
        )
        mechanism.fit(found[inhouse], schema=schema, seed=seed)
        reports = mechanism.release(found[people], labels[people])
        table = tacit.NoiseAwareClassifier(seed=seed).fit(reports)
        student = tacit.StudentClassifier(inhouse=found[inhouse], seed=seed).fit(reports)
        private = table.for_private_points(SHARE * epsilon)
        points = private.mechanism_.release(found[test])
        lines.append(
            {
                "epsilon": epsilon,
                "codewords": mechanism.codewords_,
                "table": table.score(found[test], labels[test]),
                "student": student.score(found[test], labels[test]),
                "private": private.score(points, labels[test]),
                "laplace_ceiling": tacit.ceilings.laplace(10, SHARE * epsilon),
                "universal_ceiling": tacit.ceilings.universal(10, SHARE * epsilon),
            }
        )
    return lines


def novel(args: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    images, labels = mnist()
    inhouse, people, test = split("novel", labels, seed)
    found = vectors(args, "novel", images, inhouse, seed)
    lines = []
    for epsilon in args.epsilons:
        mechanism, schema = codebook(found, epsilon=epsilon, grouping="compact")
        mechanism.fit(found[inhouse], schema=schema, seed=seed)
        learner = tacit.NovelClassClassifier(inhouse=found[inhouse])
        learner.fit(mechanism.release(found[people]))
        accuracy = learner.score(found[test], (labels[test] == 9).astype(int))
        lines.append({"epsilon": epsilon, "codewords": mechanism.codewords_, "accuracy": accuracy})
    return lines


def adult(args: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    import pandas as pd
    from sklearn.metrics import roc_auc_score

    table = pd.read_parquet(DATA / "adult" / "adult.parquet").drop(columns=["split", "fnlwgt"])
    labels = (table.pop("income") == ">50K").to_numpy().astype(int)
    order = np.random.default_rng(seed).permutation(len(table))
    inhouse, people, test = order[:24_000], order[24_000:36_000], order[36_000:]
    lines = []
    for epsilon in args.epsilons:
        mechanism = tacit.Codebook(epsilon=epsilon, people=len(people), classes=2)
        mechanism.fit(table.iloc[inhouse], seed=seed)
        reports = mechanism.release(table.iloc[people], labels[people])
        plain = tacit.NoiseAwareClassifier(seed=seed).fit(reports)
        student = tacit.StudentClassifier(inhouse=table.iloc[inhouse], seed=seed).fit(reports)
        lines.append(
            {
                "epsilon": epsilon,
                "codewords": mechanism.codewords_,
                "table_auc": roc_auc_score(
                    labels[test], plain.predict_proba(table.iloc[test])[:, 1]
                ),
                "student_auc": roc_auc_score(
                    labels[test], student.predict_proba(table.iloc[test])[:, 1]
                ),
            }
        )
    return lines


def summary(runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    lines = []
    for same in zip(*runs, strict=True):
        line: dict[str, Any] = {}
        for name in same[0]:
            values = np.array([run[name] for run in same], float)
            line[name] = round(float(values.mean()), 4)
            if name not in ("epsilon", "codewords") and "ceiling" not in name:
                error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
                line[f"{name}_se"] = round(float(error), 4)
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=("clean", "adult", "novel"))
    parser.add_argument("--features", default="scattering", choices=("scattering", "invariant"))
    parser.add_argument("--epsilons", type=float, nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--private", action="store_true", help="more ε for private accuracy")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--vectors", type=Path, default=Path(".bench/vectors"))
    args = parser.parse_args()
    args.epsilons = args.epsilons or EPSILONS[args.study]
    warnings.simplefilter("ignore")
    study = {"clean": clean, "adult": adult, "novel": novel}[args.study]
    lines = summary([study(args, seed) for seed in args.seeds])
    features = "quantile" if args.study == "adult" else args.features
    print(json.dumps({"study": args.study, "features": features, "results": lines}, indent=1))


if __name__ == "__main__":
    main()
