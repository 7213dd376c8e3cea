"""Every estimator whose fit moves bounded numbers, with small settings.

One line here, and the refuter replays a new estimator on hostile neighbours, it is saved and read
back, and its errors are searched for data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tacit.central import estimators


@dataclass(frozen=True)
class Case:
    """An estimator at one of its settings."""

    name: str
    told: str = ""
    """The algorithm, where each has a theorem of its own."""
    labels: str = "classes"
    """What it is fitted to beside the rows: "classes", "numbers" or "none"."""
    adjacency: str = "add-remove"
    replaced: bool = False
    """Whether pairs have a record replaced: a blank record cannot be given."""
    last: bool = False
    """Whether a record is added at the end only, as the order of records matters."""
    options: dict[str, Any] = field(default_factory=dict)

    def make(self, **given: Any) -> Any:
        return getattr(estimators, self.name)(**{**self.options, **given})


def case(name: str, told: str = "", **given: Any) -> Case:
    """A case; what is not one of its fields is an option of the estimator."""
    fields = {key: given.pop(key) for key in set(given) & {*Case.__dataclass_fields__}}
    return Case(name, told, **fields, options=given)


CLASSES: dict[str, Any] = {"classes": [0, 1]}
TARGET: dict[str, Any] = {"target_bounds": (-1, 1), "labels": "numbers"}
ALONE: dict[str, Any] = {"labels": "none"}
# A blank record cannot be given to these: two that differ are two steps apart.
TRAINED: dict[str, Any] = {"adjacency": "zero-out", "replaced": True, "batch_size": 41}
NETWORK: dict[str, Any] = {**TRAINED, "hidden_layer_sizes": (4,), "epochs": 2}
FOREST: dict[str, Any] = {**CLASSES, "n_estimators": 3, "max_depth": 2, "last": True}
DPRF: dict[str, Any] = {**FOREST, "n_estimators": 2, "delta": 0, "adjacency": "zero-out"}

ESTIMATORS = [
    case("LogisticRegression", "sgd", algorithm="sgd", steps=2, **CLASSES, **TRAINED),
    case("MLPClassifier", **CLASSES, **NETWORK),
    case("MLPRegressor", **TARGET, **NETWORK),
    *(
        case("LinearRegression", name, algorithm=name, **TARGET)
        for name in ("adassp", "functional", "gradient")
    ),
    case("Ridge", **TARGET),
    *(
        case("LogisticRegression", name, algorithm=name, **CLASSES)
        for name in ("gradient", "functional")
    ),
    case("RandomForestClassifier", **FOREST),
    case("RandomForestClassifier", "pure", **FOREST, delta=0),
    case("RandomForestClassifier", "dprf", algorithm="dprf", **DPRF),
    case("StandardScaler", **ALONE),
    case("MinMaxScaler", **ALONE),
    case("PCA", n_components=2, **ALONE),
    case("KMeans", n_clusters=2, **ALONE),
    case("LinearSVC", "output", algorithm="output", **CLASSES),
]
