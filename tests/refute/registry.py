"""Every path that states a guarantee, and the public names that must have one.

`missing` lists what is offered and not tried: a new statistic, algorithm, question, file format or
mechanism fails the suite until a path for it is registered here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path as File

import tacit
from tacit.central import estimators
from tacit.central import statistics as private_statistics
from tacit.central.estimators import linear, logistic, svm
from tacit.central.posteriors.models import MECHANISMS
from tacit.central.queries import model
from tacit.privacy import mechanisms

from . import (
    paths_devices,
    paths_federated,
    paths_in_order,
    paths_learned,
    paths_local,
    paths_loop,
    paths_posteriors,
    paths_queries,
    paths_statistics,
    paths_training,
)
from .refuter import Path
from .tape import SAMPLERS

ROOT = File(__file__).parents[2]

ELSEWHERE = {
    # Their own theorem, which is not about how far a number moves: gradient and curvature of one
    # record's loss, and how near the minimum is that was found (`test_perturbation`).
    "estimators.LogisticRegression.objective": "tests/central/estimators/test_logistic.py",
    "estimators.LinearSVC.objective": "tests/central/estimators/test_svm.py",
    "estimators.SVC": "tests/central/estimators/test_svm.py",
    # Nothing is proved, and that is what they state.
    "estimators.LinearSVC.dual": "tests/central/estimators/test_svm.py",
    # Their exact law over all neighbours, and draws against it.
    **{
        f"mechanisms.{name}": "tests/conformance/conftest.py"
        for name in mechanisms.__all__
        if name not in ("Channel", "FiniteChannel", "Mechanism")
    },
}
"""What is tried in another suite, by the file that does it."""

UNPROVEN = {"tacit.central.estimators.dual"}
"""Modules that draw noise and state that nothing is proved of it."""


def paths() -> list[Path]:
    """All of them."""
    rooms = (
        paths_statistics,
        paths_training,
        paths_in_order,
        paths_loop,
        paths_learned,
        paths_queries,
        paths_posteriors,
        paths_federated,
        paths_local,
        paths_devices,
    )
    return [path for room in rooms for path in room.paths()]


def offered() -> set[str]:
    """Public names that state a guarantee."""
    names = {
        f"private_statistics.{name}"
        for name in private_statistics.__all__
        if inspect.isfunction(getattr(private_statistics, name))
    }
    by_algorithm = {
        "LinearRegression": linear.ALGORITHMS,
        "LogisticRegression": logistic.ALGORITHMS,
        "LinearSVC": svm.ALGORITHMS,
        "RandomForestClassifier": ("pure", "dprf"),
    }
    for name in estimators.__all__:
        if name == "MostlyNoise":
            continue
        names |= {f"estimators.{name}.{a}" for a in by_algorithm.get(name, ()) if a != "auto"}
        if name not in by_algorithm or name == "RandomForestClassifier":
            names.add(f"estimators.{name}")
    names |= {f"queries.{kind.__name__}" for kind in _questions()}
    names |= {f"queries on {source}" for source in paths_queries.SOURCES}
    for kind in ("BetaBinomial", "DirichletMultinomial"):
        names |= {f"{kind}.{mechanism}" for mechanism in MECHANISMS}
    names |= {f"mechanisms.{name}" for name in ELSEWHERE_MECHANISMS}
    names |= {f"{name}.{draw}" for name, draw in _local()}
    return names | {
        "queries.Several",
        "Curator.above_threshold",
        "Codebook",
        "Collection",
        "Partitions",
        "VLM",
        "StudentClassifier",
        "Ballot",
        "private_training.train",
        "private_training.train_in_order",
        "private_training.TrainingLoop",
        "federated.ClientPrivacy",
        "federated.SecureClientPrivacy",
        "federated.Silo",
    }


ELSEWHERE_MECHANISMS = [
    name for name in mechanisms.__all__ if name not in ("Channel", "FiniteChannel", "Mechanism")
]


DRAWS = ("release", "report", "draw", "cast", "vote")
"""Names of methods with which a device draws what it sends."""
NOT_LOCAL = {"BetaBinomial", "DirichletMultinomial"}
"""Public classes of a curator with such a method; each is offered under another name above."""


def _local() -> Iterator[tuple[str, str]]:
    """Public classes that draw what people send, read off the public names: none is passed over."""
    packages = (tacit, importlib.import_module("tacit.service"))
    for package in packages:
        for name in package.__all__:
            kind = getattr(package, name)
            if not inspect.isclass(kind) or name in mechanisms.__all__ or name in NOT_LOCAL:
                continue
            for draw in DRAWS:
                if inspect.isfunction(getattr(kind, draw, None)):
                    yield name, draw


def _questions() -> Iterator[type]:
    for kind in vars(model).values():
        if inspect.isclass(kind) and issubclass(kind, model.Query):
            yield kind


def drawing() -> set[str]:
    """Functions of the library that draw noise: `module.qualname`, read off the sources."""
    found: set[str] = set()
    source = File(inspect.getfile(tacit)).parent
    for file in source.rglob("*.py"):
        module = "tacit." + ".".join(file.relative_to(source).with_suffix("").parts)
        if module.startswith("tacit.privacy.randomness") or module in UNPROVEN:
            continue
        found |= {f"{module}.{name}" for name in _callers(ast.parse(file.read_text()))}
    return found


def _callers(tree: ast.AST, inside: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{inside}.{node.name}".lstrip(".")
            if isinstance(node, ast.FunctionDef) and _draws(node):
                yield name
            yield from _callers(node, name)


def _draws(node: ast.FunctionDef) -> bool:
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in SAMPLERS
        for one in ast.walk(node)
    )
