"""Fitted estimators taken apart into JSON and arrays, and put together again.

What is stored may be published. So it is what is named here and nothing else: parameters, which
are public, what a fit released, and its certificate. `clipped_` stays in the house. A ledger, its
account, a generator and a device are of the machine that fitted, and stay there too.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors
from tacit.privacy.artifact import Arrays
from tacit.privacy.certificate import Certificate

if TYPE_CHECKING:
    from tacit.central.estimators.base import PrivateEstimator
    from tacit.central.estimators.forest.tree import Tree

KIND = "estimator"

NOT_STORED = ("ledger", "account", "rng", "device")

_LINE = ("coef_", "intercept_")
_FITTED: dict[str, tuple[str, ...]] = {
    "KMeans": ("cluster_centers_", "counts_", "n_iter_"),
    "LinearRegression": _LINE,
    "LinearSVC": ("classes_", *_LINE),
    "LogisticRegression": ("classes_", *_LINE),
    "MLPClassifier": ("classes_", "coefs_", "intercepts_"),
    "MLPRegressor": ("coefs_", "intercepts_"),
    "MinMaxScaler": ("data_min_", "data_max_", "data_range_", "scale_", "min_"),
    "PCA": (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "mean_",
        "n_components_",
        "noise_variance_",
    ),
    "RandomForestClassifier": ("classes_", "estimators_"),
    "Ridge": _LINE,
    "SVC": ("classes_", "features_", "weights_"),
    "StandardScaler": ("mean_", "scale_", "var_", "n_samples_seen_"),
}
"""What each class releases. Everything else that a fit leaves in it is not stored."""

_COLUMNS, _NAMES = "n_features_in_", "feature_names_in_"
_MOST_COLUMNS = 2**24
_REMEDY = "Numbers, text, lists and arrays of them have a form that can be read back."


def parts(fitted: PrivateEstimator) -> tuple[dict[str, Any], Arrays]:
    """Parameters, what was released, and the certificate."""
    name = type(fitted).__name__
    if _class_of(name) is not type(fitted):
        remedy = "Save what it holds by your own means."
        errors.refuse("save", "estimator", f"one of {', '.join(_FITTED)}", name, remedy)
    writer = _Writer()
    settings = {
        key: writer.plain(f"settings.{key}", value)
        for key, value in fitted.get_params(deep=False).items()
        if key not in NOT_STORED
    }
    released = (*_FITTED[name], _COLUMNS, *([_NAMES] if hasattr(fitted, _NAMES) else []))
    parameters = {
        "class": name,
        "settings": settings,
        "fitted": {key: writer.plain(f"fitted.{key}", getattr(fitted, key)) for key in released},
        "certificate": fitted.certificate_.to_json(),
    }
    return parameters, writer.arrays


def rebuilt(parameters: dict[str, Any], arrays: Arrays) -> PrivateEstimator:
    """What `parts` took apart; what does not fit together is refused."""
    name, reader = parameters["class"], _Reader(arrays)
    kind = _class_of(name)
    settings = {key: reader.value(value) for key, value in parameters["settings"].items()}
    if unknown := set(settings) - {*kind._get_param_names()} | {*settings} & {*NOT_STORED}:
        errors.refuse(name, "parameters", "those that it has", sorted(unknown))
    fitted = {key: reader.value(value) for key, value in parameters["fitted"].items()}
    needed = {*_FITTED[name], _COLUMNS}
    if not needed <= set(fitted) <= needed | {_NAMES}:
        errors.refuse(name, "fitted values", f"exactly {sorted(needed)}", sorted(fitted))
    errors.whole(name, _COLUMNS, fitted[_COLUMNS], least=1, most=_MOST_COLUMNS)
    made: PrivateEstimator = kind(**settings)
    for key, value in fitted.items():
        setattr(made, key, value)
    made.certificate_ = Certificate.from_json(parameters["certificate"])
    made.certificate_.verify()
    made.event_ = made.certificate_.event
    _try(made)
    return made


def _class_of(name: Any) -> Any:
    """The class of that name: one of a few, and never what a file says it is."""
    from tacit.central import estimators

    return getattr(estimators, errors.choice("estimator", "class", name, tuple(_FITTED)))


def _try(made: Any) -> None:
    """Use it once: arrays that do not fit each other are found here, not by its user."""
    rows = np.zeros((1, getattr(made, _COLUMNS)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of columns that these rows do not have
        made.predict(rows) if hasattr(made, "predict") else made.transform(rows)


class _Writer:
    """Values as JSON-ready data; arrays of numbers are put aside, under the name of their place."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}

    def plain(self, place: str, value: Any) -> Any:
        """With a tag where JSON has no such thing."""
        from tacit.central.estimators.forest.tree import Tree

        if isinstance(value, Enum):
            return str(value.value)
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        if isinstance(value, Fraction):
            return {"fraction": str(value)}
        if isinstance(value, list) and value and isinstance(value[0], Tree):
            return {"trees": self.plain(place, _packed(value))}
        if isinstance(value, list | tuple):
            return self._sequence(place, value)
        if isinstance(value, dict) or type(value).__name__ in _records():
            return self._record(place, value)
        if hasattr(value, "__array__"):
            return self._array(place, np.asarray(value))
        errors.refuse("save", place, "finite numbers or text", type(value).__name__, _REMEDY)

    def _sequence(self, place: str, value: list[Any] | tuple[Any, ...]) -> Any:
        items = [self.plain(f"{place}.{at}", item) for at, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items

    def _record(self, place: str, value: Any) -> Any:
        fields = value
        if not isinstance(value, dict):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        inner = {key: self.plain(f"{place}.{key}", item) for key, item in fields.items()}
        return {"record": inner, "of": "dict" if fields is value else type(value).__name__}

    def _array(self, place: str, value: npt.NDArray[Any]) -> Any:
        if value.dtype.kind in "OU":
            words = [self.plain(place, item) for item in value.tolist()]
            return {"words": words, "of": "object" if value.dtype.kind == "O" else "text"}
        _must_be_numbers("save", place, value)
        # Products of matrices round differently by the order in memory: it is kept.
        column_major = value.flags.f_contiguous and not value.flags.c_contiguous
        native = value.astype(value.dtype.newbyteorder("="), copy=False)
        self.arrays[place] = native.T if column_major else native
        return {"array": place, "transposed": True} if column_major else {"array": place}


class _Reader:
    """The other way round."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def value(self, plain: Any) -> Any:
        """What was written so; tags of no known use are refused."""
        if isinstance(plain, list):
            return [self.value(item) for item in plain]
        if not isinstance(plain, dict):
            return plain
        match plain:
            case {"fraction": str(text), **rest} if not rest:
                return errors.rational("estimator", "fraction", text)
            case {"tuple": list(items), **rest} if not rest:
                return tuple(self.value(item) for item in items)
            case {"array": str(name), **rest} if rest in ({}, {"transposed": True}):
                array = _must_be_numbers("estimator", name, self.arrays[name]).copy()
                return array.T if rest else array
            case {"words": list(words), "of": "object" | "text" as kind, **rest} if not rest:
                return np.array(words, dtype=object if kind == "object" else str)
            case {"record": dict(fields), "of": str(name), **rest} if not rest:
                return self._record(name, {key: self.value(item) for key, item in fields.items()})
            case {"trees": packed, **rest} if not rest:
                return _grown(self.value(packed))
        errors.refuse("estimator", "values", "of a known form", sorted(plain))

    def _record(self, name: str, fields: dict[str, Any]) -> Any:
        if name == "dict":
            return fields
        return _records()[errors.choice("estimator", "record", name, tuple(_records()))](**fields)


def _records() -> dict[str, Any]:
    from tacit.central.estimators.base import Box
    from tacit.central.estimators.fourier import Fourier

    return {"Box": Box, "Fourier": Fourier}


def _must_be_numbers(where: str, name: str, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8 or not np.isfinite(value).all():
        errors.refuse(where, name, "finite numbers of 64 bits or less", value.dtype.name)
    return value


def _packed(trees: list[Tree]) -> dict[str, npt.NDArray[Any]]:
    """All trees in one array a field: they have the same levels, here one after the other."""
    return {
        "features": np.array([np.concatenate(tree.features) for tree in trees]),
        "cuts": np.array([np.concatenate(tree.cuts) for tree in trees]),
        **{
            name: np.array([getattr(tree, name) for tree in trees])
            for name in ("chances", "counts", "records", "noise")
        },
    }


def _grown(packed: dict[str, npt.NDArray[Any]]) -> list[Tree]:
    from tacit.central.estimators.forest.tree import Tree

    nodes = packed["features"].shape[1]
    ends = [2**level - 1 for level in range(1, (nodes + 1).bit_length() - 1)]
    if nodes + 1 != packed["chances"].shape[1]:
        errors.refuse("estimator", "trees", "complete", nodes)
    return [
        Tree(
            tuple(np.split(packed["features"][at], ends)),
            tuple(np.split(packed["cuts"][at], ends)),
            packed["chances"][at],
            packed["counts"][at],
            float(packed["records"][at]),
            float(packed["noise"][at]),
        )
        for at in range(len(packed["features"]))
    ]
