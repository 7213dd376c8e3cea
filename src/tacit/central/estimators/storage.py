"""Fitted estimators taken apart into JSON and arrays, and put together again.

What is stored may be published. So it is parameters, which are public, what a fit released, which
each class names in `_stored`, and its certificate; nothing else. `clipped_` stays in-house. A
ledger, its account, a generator and a device belong to the machine that fitted, and stay there too.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors
from tacit.privacy.certificate import Certificate
from tacit.privacy.codec import Arrays, Reader, Writer

if TYPE_CHECKING:
    from tacit.central.estimators.base import PrivateEstimator
    from tacit.central.estimators.forest.tree import Tree

KIND = "estimator"

NOT_STORED = ("ledger", "account", "rng", "device")

_COLUMNS, _NAMES = "n_features_in_", "feature_names_in_"
_MOST_COLUMNS = 2**24


def parts(fitted: PrivateEstimator) -> tuple[dict[str, Any], Arrays]:
    """Parameters, what was released, and the certificate."""
    name = type(fitted).__name__
    if name not in _known() or _class_of(name) is not type(fitted):
        remedy = "Save what it holds by your own means."
        errors.refuse("save", "estimator", f"one of {', '.join(_known())}", name, remedy)
    writer = Writer(_records())
    settings = {
        key: writer.plain(f"settings.{key}", value)
        for key, value in fitted.get_params(deep=False).items()
        if key not in NOT_STORED
    }
    released = (*fitted._stored, _COLUMNS, *([_NAMES] if hasattr(fitted, _NAMES) else []))
    parameters = {
        "class": name,
        "settings": settings,
        "fitted": {key: _written(writer, key, getattr(fitted, key)) for key in released},
        "certificate": fitted.certificate_.to_json(),
    }
    return parameters, writer.arrays


def rebuilt(parameters: dict[str, Any], arrays: Arrays) -> PrivateEstimator:
    """Rebuild what `parts` took apart; refuse what does not fit together."""
    name, reader = parameters["class"], Reader("estimator", arrays, _records())
    kind = _class_of(name)
    settings = {key: reader.value(value) for key, value in parameters["settings"].items()}
    if unknown := set(settings) - {*kind._get_param_names()} | {*settings} & {*NOT_STORED}:
        errors.refuse(name, "parameters", "those that it has", sorted(unknown))
    fitted = {key: _read(reader, value) for key, value in parameters["fitted"].items()}
    needed = {*kind._stored, _COLUMNS}
    if not needed <= set(fitted) <= needed | {_NAMES}:
        errors.refuse(name, "fitted values", f"exactly {sorted(needed)}", sorted(fitted))
    errors.whole(name, _COLUMNS, fitted[_COLUMNS], least=1, most=_MOST_COLUMNS)
    estimator: PrivateEstimator = kind(**settings)
    for key, value in fitted.items():
        setattr(estimator, key, value)
    estimator.certificate_ = Certificate.from_json(parameters["certificate"])
    estimator.certificate_.verify()
    estimator.event_ = estimator.certificate_.event
    _try(estimator)
    return estimator


def _known() -> tuple[str, ...]:
    """List the names of the estimators: all public names except that of a warning."""
    from tacit.central import estimators

    return tuple(name for name in vars(estimators)["__all__"] if name != "MostlyNoise")


def _class_of(name: Any) -> Any:
    """Return the estimator of that name; a file cannot name any other class."""
    from tacit.central import estimators

    return getattr(estimators, errors.choice("estimator", "class", name, _known()))


def _try(estimator: Any) -> None:
    """Use it once: arrays that do not fit each other are found here, not by its user."""
    rows = np.zeros((1, getattr(estimator, _COLUMNS)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of columns that these rows do not have
        estimator.predict(rows) if hasattr(estimator, "predict") else estimator.transform(rows)


def _records() -> dict[str, Any]:
    from tacit.central.estimators.base import Box
    from tacit.central.estimators.fourier import Fourier

    return {"Box": Box, "Fourier": Fourier}


def _written(writer: Writer, key: str, value: Any) -> Any:
    from tacit.central.estimators.forest.tree import Tree

    place = f"fitted.{key}"
    if isinstance(value, list) and value and isinstance(value[0], Tree):
        return {"trees": writer.plain(place, _packed(value))}
    return writer.plain(place, value)


def _read(reader: Reader, plain: Any) -> Any:
    if isinstance(plain, dict) and set(plain) == {"trees"}:
        return _grown(reader.value(plain["trees"]))
    return reader.value(plain)


def _packed(trees: list[Tree]) -> dict[str, npt.NDArray[Any]]:
    """Store all trees in one array per field, one after the other: they have the same levels."""
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
