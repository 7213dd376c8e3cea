"""What every classifier learned from reports stores, and how it is saved.

A model keeps the mechanism that it belongs to, and the very certificate of the reports that it was
learned from: learning is post-processing, and costs those who reported nothing more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tacit import artifact
from tacit.certificate import Certificate


class Stored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the classifiers. Abstract: each has `kind`, `parts` and `from_parts` of its own."""

    certificate_: Certificate

    @property
    def certificate(self) -> Certificate:
        """Of the reports that this was learned from, with what the model carries beside them."""
        return self.certificate_

    def save(self, path: str | Path) -> Path:
        """Write a directory, without the reports. With in-house rows' likeness, keep it inside."""
        check_is_fitted(self, "mechanism_")
        return artifact.save(self, path)


def mechanism_parts(model: Any) -> tuple[dict[str, Any], artifact.Arrays]:
    """What every classifier stores: its settings, and the mechanism that it belongs to."""
    inner, weights = model.mechanism_.parts()
    settings = {
        name: _plain(value) for name, value in model.get_params().items() if name != "inhouse"
    }
    parameters = {
        "settings": settings,
        "mechanism": {"kind": model.mechanism_.kind, "parameters": inner},
        "reports": model.reports_,
        "learned_from": model.certificate_.to_json(),
        "classes": model.classes_.tolist(),
    }
    return parameters, artifact.nested(weights, "mechanism")


def restore_mechanism(model: Any, parameters: dict[str, Any], arrays: artifact.Arrays) -> None:
    """The other way round."""
    inner = parameters["mechanism"]
    weights = artifact.part(arrays, "mechanism")
    model.mechanism_ = artifact.rebuild(inner["kind"], inner["parameters"], weights)
    model.classes_ = np.asarray(parameters["classes"])
    model.reports_ = int(parameters["reports"])
    model.certificate_ = Certificate.from_json(parameters["learned_from"])
    model.certificate_.verify()
    model.guarantee_ = model.certificate_.guarantee


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
