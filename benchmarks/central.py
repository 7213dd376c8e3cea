"""Accuracy of classifiers learned from local reports if the in-house rows are protected too.

    python benchmarks/central.py codebook
    python benchmarks/central.py vlm --device cuda
    python benchmarks/central.py basis

The protocol is that of `tacit study collect --data mnist`: 45,000 in-house images without labels,
13,500 people, 2,500 test images, means over random splits with their standard errors. Central ε is
the cost, at δ = 1e-5, of everything learned from the in-house images. The results here are not in
the records of that study.

codebook: scattering features, K by the rule. `table` is the label table over the codebook, and
`private_student` a network trained on the in-house images with DP-Adam, for a fifth more of central
ε and δ; both may leave the house. `student` is trained on them without noise and stays in-house.
People get the private encoder in all cases.

vlm: one mechanism for each ε, the first of the lists in `vlm.py`, since each further one that is
fitted in-house would cost its own budget. `joint` is DP-Adam on encoder and decoder from synthetic
strokes, `random` the same from random weights, `paper` the two-stage training, which is unproven,
`infinity` training without central noise.

The shares, the number of cells and the steps of the private codebook, and the batch size, epochs
and learning rate of DP-Adam were chosen on split 0, which is not among the default splits.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
DELTA = 1e-5
SHARE = 0.2
LOCAL = {
    "codebook": (1.0, 2.0, 4.0, 6.0, 10.0),
    "vlm": (1.0, 2.0, 4.0, 6.0, 8.0, 10.0),
}


class CachedScattering:
    """Scattering features that are computed once for each image, whatever the order of images."""

    kind = "scattering"

    def __init__(self, images: Any, path: Path) -> None:
        from tacit.local.learned import scattering

        self.dimension, self.transform_new = scattering.dimension((28, 28)), scattering.transform
        rows = images.reshape(len(images), -1).astype(np.float32) / 255
        self.index = {row.tobytes(): place for place, row in enumerate(rows)}
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            blocks = [scattering.transform(rows[s : s + 2048], (28, 28)) for s in starts(rows)]
            np.save(path, np.concatenate([block.astype(np.float16) for block in blocks]))
        self.known = np.load(path)

    def transform(self, rows: Any) -> Any:
        places = [self.index.get(row.tobytes(), -1) for row in rows.numbers]
        if min(places) < 0:
            return self.transform_new(rows.numbers, (28, 28))
        return self.known[places].astype(np.float32)

    def parts(self) -> Any:
        return {}, {}


def starts(rows: Any) -> range:
    return range(0, len(rows), 2048)


def codebook(args: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    import tacit
    from tacit.data import datasets

    data = datasets.load("mnist")
    images, labels, split = data.rows.reshape(len(data), -1), data.labels, data.collection(seed)
    inhouse, people, test = split.inhouse, split.people, split.test
    features = CachedScattering(images, args.vectors / "scattering.npy")
    lines = []
    for central in args.central:
        for epsilon in args.epsilons:
            target = {} if central == np.inf else {"central_epsilon": central}
            if target:
                target["central_delta"] = DELTA
            mechanism = tacit.Codebook(
                epsilon=epsilon, people=len(people), classes=10, features=features, **target
            )
            mechanism.fit(images[inhouse], image=(28, 28), seed=seed, public_features=True)
            reports = mechanism.release(images[people], labels[people])
            table = tacit.NoiseAwareClassifier(seed=seed).fit(reports)
            student = tacit.StudentClassifier(inhouse=images[inhouse], seed=seed).fit(reports)
            line = {
                "central": central,
                "epsilon": epsilon,
                "codewords": mechanism.codewords_,
                "table": table.score(images[test], labels[test]),
                "student": student.score(images[test], labels[test]),
            }
            if target:
                taught = tacit.StudentClassifier(
                    inhouse=images[inhouse],
                    seed=seed,
                    central_epsilon=SHARE * central,
                    central_delta=SHARE * DELTA,
                ).fit(reports)
                line["private_student"] = taught.score(images[test], labels[test])
            lines.append(line)
            say(f"split {seed}: {line}, for the in-house rows {mechanism.inhouse_.guarantee}")
    return lines


def vlm(args: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    import vlm as study
    from tacit.local.learned.vlm import VLM
    from tacit.privacy.randomness import Seeded

    data, fits, lines = study.split(seed), {}, []
    for central in args.central:
        for epsilon in args.epsilons:
            candidate = (study.SMALL if epsilon < study.ENOUGH else study.LARGE)[0]
            line: dict[str, Any] = {"central": central, "epsilon": epsilon}
            ways = ("infinity",) if central == np.inf else args.ways
            for way in ways:
                if (central, candidate, way) not in fits:
                    fit = fitted(VLM, study, data, seed, args, central, candidate, way)
                    fits[central, candidate, way] = fit
                one = fits[central, candidate, way]
                rng = Seeded(np.random.default_rng([seed, round(1000 * epsilon)]))
                columns = study.released(one, data.people[1], epsilon, rng)
                network = study.learned(one, columns, epsilon, seed, args.device)
                line[way] = float(
                    study.correct(network, one.features(one.test), data.test[1]).mean()
                )
            lines.append(line)
            say(f"split {seed}: {line}")
    return lines


def fitted(VLM, study, data, seed, args, central, candidate, way):
    from dataclasses import asdict

    settings = {"epsilon": 1, "classes": 10, "label_share": 0.5, **asdict(candidate)}
    fit: dict[str, Any] = {"seed": seed, "device": args.device}
    if way == "infinity":
        fit |= {"epochs": 30, "batch_size": 256}
    else:
        settings |= {"central_epsilon": central, "central_delta": DELTA}
        fit |= {"random": {"public_rows": None}, "paper": {"two_stage": "paper"}}.get(way, {})
        fit |= {name: value for name, value in args.training.items() if value is not None}
    mechanism = VLM(**settings).fit(data.inhouse, **fit)
    mechanism = mechanism.on(args.device)
    images = (data.inhouse[: study.POINTS], data.people[0], data.voters[0], data.test[0])
    return study.Encoded(candidate, mechanism, *(mechanism.encode(part) for part in images))


def basis(args: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """Measure the share of the variance of in-house features in public directions."""
    from tacit.data import datasets
    from tacit.local.learned import private_quantizer

    data = datasets.load("mnist")
    features = CachedScattering(data.rows, args.vectors / "scattering.npy")
    inhouse = data.collection(seed).inhouse[:10_000]
    seen = features.known[np.sort(inhouse)].astype(np.float32)
    seen -= seen.mean(axis=0)
    strokes = private_quantizer.public_axes(data.schema, features, seed).directions
    random = np.linalg.qr(np.random.default_rng(seed).standard_normal(strokes.shape))[0]
    total = float((seen**2).sum())
    return [
        {"epsilon": 0, "directions": strokes.shape[1]}
        | {
            name: float(((seen @ axes.astype(np.float32)) ** 2).sum()) / total
            for name, axes in (("strokes", strokes), ("random", random))
        }
    ]


def summary(runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    lines = []
    for same in zip(*runs, strict=True):
        line: dict[str, Any] = {}
        for name in same[0]:
            values = np.array([run[name] for run in same], float)
            line[name] = round(float(values.mean()), 4) if np.isfinite(values[0]) else "infinity"
            if len(values) > 1 and name not in ("epsilon", "central", "codewords", "directions"):
                line[f"{name}_se"] = round(float(values.std(ddof=1) / np.sqrt(len(values))), 4)
        lines.append(line)
    return lines


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=("codebook", "vlm", "basis"))
    parser.add_argument("--central", type=float, nargs="+", default=[np.inf, 5.0, 1.0])
    parser.add_argument("--epsilons", type=float, nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--ways", nargs="+", default=["joint", "random", "paper"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--vectors", type=Path, default=Path(".bench/vectors"))
    args = parser.parse_args()
    args.epsilons = args.epsilons or LOCAL.get(args.study, ())
    args.training = {n: getattr(args, n) for n in ("epochs", "batch_size", "learning_rate")}
    warnings.simplefilter("ignore")
    study = {"codebook": codebook, "vlm": vlm, "basis": basis}[args.study]
    lines = summary([study(args, seed) for seed in args.seeds])
    print(json.dumps({"study": args.study, "results": lines}, indent=1))


if __name__ == "__main__":
    main()
