"""Estimators of the study: ours with each algorithm, scikit-learn's, and diffprivlib's."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tacit.central import estimators
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness
from tacit_papers.parts import classifier_peer
from tacit_papers.parts.classifier_data import Case, Encoding, RowsAndTargets

TACIT, PEER, PLAIN = "tacit", "diffprivlib", "scikit-learn"

CLASSIFIERS: dict[str, tuple[str, ...]] = {
    "LogisticRegression": ("gradient", "objective", "functional", "sgd"),
    "LinearSVC": ("objective", "output"),
    "SVC": ("objective", "output"),
    "RandomForestClassifier": ("histograms", "random-splits", "dprf"),
    "MLPClassifier": ("dp-sgd",),
}
REGRESSORS: dict[str, tuple[str, ...]] = {
    "LinearRegression": ("gradient", "adassp", "functional"),
    "Ridge": ("gradient", "adassp", "functional"),
    "MLPRegressor": ("dp-sgd",),
}
"""Our estimators with their algorithms. "dual" of the support vector machines has no proof."""

PEERS: dict[str, tuple[str, ...]] = {
    "accuracy": ("LogisticRegression", "RandomForestClassifier", "GaussianNB"),
    "r2": ("LinearRegression",),
}
"""Estimators of diffprivlib, by measure."""

_TREES = ("RandomForestClassifier",)
_COMPONENTS = 300
_AUTO = "gradient"
"""The algorithm that "auto" of `LogisticRegression` stands for where there is a δ."""


def known(case: Case) -> dict[str, tuple[str, ...]]:
    """Return the estimators that fit the target, with their algorithms."""
    return CLASSIFIERS if case.classes else REGRESSORS


def encoding(case: Case, estimator: str) -> Encoding:
    """Return the encoding that suits an estimator, in any library."""
    return case.numbered if estimator in _TREES else case.indicators


def is_default(estimator: str, algorithm: str) -> bool:
    """Say whether this algorithm is the default."""
    parameters = inspect.signature(getattr(estimators, estimator)).parameters
    if "algorithm" not in parameters:
        return True
    default = parameters["algorithm"].default
    return algorithm == (_AUTO if default == "auto" else default)


def ours(
    case: Case, estimator: str, algorithm: str, epsilon: float, delta: float, rng: Randomness
) -> Any:
    """Make one of our estimators with this algorithm, and its defaults otherwise."""
    kind = getattr(estimators, estimator)
    takes, rows = inspect.signature(kind).parameters, encoding(case, estimator)
    # A tree cuts a column within its bounds; what is linear measures rows from their middle.
    bounds = (rows.lower, rows.upper) if estimator in _TREES else rows.centred
    common = {"epsilon": epsilon, "bounds": bounds, "delta": delta, "rng": rng}
    possible = {
        "algorithm": algorithm,
        # Of a network it is the norm of its private components, of which there are none.
        "norm": None if "components" in takes else rows.norm,
        "classes": list(range(len(case.classes))),
        "target_bounds": case.target_bounds,
    }
    return kind(**common, **{name: value for name, value in possible.items() if name in takes})


def plain(estimator: str, columns: int, seed: int) -> Any:
    """Make scikit-learn's counterpart, without privacy.

    That of `SVC` is a linear machine on landmarks of the same kernel: the exact one takes minutes.
    """
    from sklearn import ensemble, kernel_approximation, linear_model, neural_network, pipeline, svm

    match estimator:
        case "LogisticRegression":
            return linear_model.LogisticRegression(max_iter=1000)
        case "LinearSVC":
            return svm.LinearSVC(random_state=seed)
        case "SVC":
            landmarks = kernel_approximation.Nystroem(
                gamma=3 / columns, n_components=_COMPONENTS, random_state=seed
            )
            return pipeline.make_pipeline(landmarks, svm.LinearSVC(random_state=seed))
        case "RandomForestClassifier":
            return ensemble.RandomForestClassifier(random_state=seed)
        case "MLPClassifier":
            return neural_network.MLPClassifier(early_stopping=True, random_state=seed)
        case "MLPRegressor":
            return neural_network.MLPRegressor(early_stopping=True, random_state=seed)
        case "Ridge":
            return linear_model.Ridge()
    return linear_model.LinearRegression()


def fitted(model: Any, train: RowsAndTargets) -> tuple[Any, bool]:
    """Fit a model; return it, and whether it warned that ε leaves mostly noise."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*train)
    return model, any(issubclass(one.category, estimators.MostlyNoise) for one in caught)


class Peer:
    """diffprivlib in a Python interpreter that has it.

    Parameters
    ----------
    python : path
        The interpreter.
    """

    def __init__(self, python: str | Path) -> None:
        self.python = str(python)
        self.version = str(self._asked({})["version"])

    @staticmethod
    def here() -> Peer | None:
        """Return diffprivlib in this Python, or None where it is not installed."""
        return Peer(sys.executable) if find_spec(PEER) else None

    def score(
        self,
        case: Case,
        parts: tuple[RowsAndTargets, RowsAndTargets],
        estimator: str,
        epsilon: float,
        seed: int,
    ) -> float:
        """Fit an estimator and return its score on the test rows."""
        rows = encoding(case, estimator)
        request = {
            "model": estimator,
            "epsilon": epsilon,
            "seed": seed,
            "lower": rows.lower.tolist(),
            "upper": rows.upper.tolist(),
            "norm": float(rows.norm or np.linalg.norm(rows.upper)),
            "classes": list(range(len(case.classes))),
            "target_bounds": case.target_bounds,
        }
        train, test = parts
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.npz"
            np.savez(path, X=train.X, y=train.y, test_X=test.X, test_y=test.y)
            return float(self._asked({**request, "rows": str(path)})["score"])

    def _asked(self, request: Mapping[str, Any]) -> dict[str, Any]:
        command = [self.python, str(Path(classifier_peer.__file__))]
        try:
            done = subprocess.run(
                command, input=json.dumps(request), capture_output=True, text=True, check=True
            )
            return dict(json.loads(done.stdout))
        except (OSError, ValueError, subprocess.CalledProcessError) as failed:
            said = (getattr(failed, "stderr", None) or str(failed)).strip().splitlines()[-1:]
            remedy = f"It says: {' '.join(said)}"
            errors.refuse("study", "--peer", "a Python with diffprivlib", self.python, remedy)
