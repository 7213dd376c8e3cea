"""Measure collections of pictures: accuracy, and the time of each step, one JSON line each.

    python benchmarks/pictures.py mnist fashion=fashion.npz cifar10=cifar10.npz --epsilon 1 2 4 8

A file holds `images` (n, height, width) or (n, height, width, channels), uint8, and `labels`;
`mnist` is the data set of that name. Rows are split by the seed into in-house rows without labels,
people and test rows. Settings of the library were chosen on seeds from 100; report others.
"""

import argparse
import json
import time

import numpy as np

import tacit

SIZES = {"mnist": (45_000, 13_500, 6_000)}
USUAL = (25_000, 13_000, 6_000)


def main() -> None:
    """Run every data set, ε and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="mnist, or NAME=FILE.npz")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1, 2, 4, 8])
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    parser.add_argument("--codebook", action="store_true", help="a codebook and its student")
    given = parser.parse_args()
    for data in given.data:
        name, images, labels = loaded(data)
        for seed in given.seed:
            for epsilon in given.epsilon:
                found = measured(images, labels, SIZES.get(name, USUAL), epsilon, seed, given)
                print(
                    json.dumps({"data": name, "epsilon": epsilon, "seed": seed} | found), flush=True
                )


def loaded(data: str) -> tuple[str, np.ndarray, np.ndarray]:
    """Return name, images and labels."""
    name, _, path = data.partition("=")
    if not path:
        known = tacit.datasets.load(name)
        return name, np.asarray(known.rows), np.asarray(known.labels)
    held = np.load(path)
    return name, held["images"], held["labels"].astype(np.int64)


def measured(images, labels, sizes, epsilon, seed, given):
    """Collect once; return accuracy and seconds."""
    order = np.random.default_rng(seed).permutation(len(images))
    inhouse, people, test = np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])
    settings = {"epsilon": epsilon, "people": len(people), "classes": int(labels.max()) + 1}
    marks = [time.perf_counter()]
    collection = (tacit.Codebook if given.codebook else tacit.Collection)(**settings)
    collection.fit(images[inhouse], seed=seed)
    marks.append(time.perf_counter())
    reports = collection.release(images[people], labels[people])
    marks.append(time.perf_counter())
    if given.codebook:
        model = tacit.StudentClassifier(inhouse=images[inhouse], seed=seed).fit(reports)
    else:
        model = collection.learn(reports)
    marks.append(time.perf_counter())
    right = model.predict(images[test]) == labels[test]
    seconds = dict(zip(("fit", "release", "learn"), np.diff(marks).round(1).tolist(), strict=True))
    return {"accuracy": round(float(right.mean()), 4), "seconds": seconds}


if __name__ == "__main__":
    main()
