"""What every classifier learned from reports stores, and how it is saved.

A model keeps the mechanism that it belongs to, and the very certificate of the reports that it was
learned from: learning is post-processing, and costs those who reported nothing more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tacit.local.inference.neural import Network
from tacit.local.inhouse import Protection
from tacit.privacy import artifact, codec
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee

Model = TypeVar("Model")

_NOT_STORED = ("inhouse", "device")
"""Rows must not go along; and where a model was fitted is nothing that it is."""


class Stored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the classifiers. Abstract: each has `kind`, `parts` and `from_parts` of its own."""

    certificate_: Certificate
    inhouse_: Protection
    """What protects the in-house rows that went into it, by mechanism or by teaching."""

    @property
    def inhouse_guarantee_(self) -> Guarantee:
        """Towards the in-house rows."""
        return self.inhouse_.guarantee

    @property
    def certificate(self) -> Certificate:
        """Of the reports that this was learned from, with what the model carries beside them."""
        return self.certificate_

    def save(self, path: str | Path) -> Path:
        """Write a directory for use in-house, without the reports."""
        check_is_fitted(self, "mechanism_")
        return artifact.save(self, path)

    def export(self, path: str | Path) -> Path:
        """Write what voters or the public get; refused where in-house rows would go with it."""
        check_is_fitted(self, "mechanism_")
        self.inhouse_.must_leave("a classifier that is handed out")
        return artifact.save(self, path)


def parts_of(model: Any, network: Network | None = None) -> tuple[dict[str, Any], codec.Arrays]:
    """What every classifier stores: its settings, its mechanism, and its network if it has one."""
    inner, weights = model.mechanism_.parts()
    given = {name: v for name, v in model.get_params().items() if name not in _NOT_STORED}
    parameters = {
        "settings": {name: codec.plain(value) for name, value in given.items()},
        "mechanism": {"kind": model.mechanism_.kind, "parameters": inner},
        "reports": model.reports_,
        "learned_from": model.certificate_.to_json(),
        "inhouse": model.inhouse_.to_plain(),
        "classes": model.classes_.tolist(),
    }
    arrays = codec.nested(weights, "mechanism")
    if network is not None:
        parameters["network"], own = network.parts()
        arrays |= codec.nested(own, "network")
    return parameters, arrays


def restored(
    kind: type[Model], parameters: dict[str, Any], arrays: codec.Arrays, *, network: bool = True
) -> Model:
    """Build a classifier from what `parts_of` gave, with or without a network."""
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in parameters["settings"].items()
    }
    model: Any = kind(**given)
    inner = parameters["mechanism"]
    weights = codec.part(arrays, "mechanism")
    model.mechanism_ = artifact.rebuild(inner["kind"], inner["parameters"], weights)
    model.classes_ = np.asarray(parameters["classes"])
    model.reports_ = int(parameters["reports"])
    model.certificate_ = Certificate.from_json(parameters["learned_from"])
    model.certificate_.verify()
    model.guarantee_ = model.certificate_.guarantee
    nested = model.mechanism_.inhouse_
    model.inhouse_ = Protection.from_plain(parameters["inhouse"], learned=nested.learned)
    model.inhouse_.must_hold(nested)
    if network:
        own = codec.part(arrays, "network")
        model.network_ = Network.from_parts(parameters["network"], own)
    return cast(Model, model)
