"""The base of models learned from reports: what they store, and how they are saved.

A model keeps its mechanism and the certificate of the reports that it was learned from: learning is
post-processing, and costs those who reported nothing more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tacit.local.inference.neural import Network
from tacit.local.inhouse import Protection
from tacit.privacy import artifact, codec
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee

Model = TypeVar("Model")

_NOT_STORED = ("inhouse", "device")
"""Parameters that are not saved: in-house rows, and the device of the fit."""


class UnshownRows:
    """In-house rows as a parameter that nothing prints: neither a pipeline nor a notebook."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        return "…"


class Stored(BaseEstimator):  # type: ignore[misc]
    """Base of all models. Abstract: each has `kind`, `parts` and `from_parts` of its own."""

    certificate_: Certificate
    inhouse_: Protection
    """The protection of the in-house rows that the mechanism or the model was fitted on."""

    def _given(self) -> dict[str, Any]:
        """Return the parameters that are saved."""
        return {name: v for name, v in self.get_params().items() if name not in _NOT_STORED}

    def _stored_beside(self) -> dict[str, Any]:
        """Return JSON-ready data for `_restore_beside`: nothing, unless a subclass has some."""
        return {}

    def _restore_beside(self, parameters: dict[str, Any]) -> None:
        """Restore what `_stored_beside` returned."""

    def _forget_fit(self) -> None:
        """Make it unfitted until a fit succeeds, so that nothing is stated about another model."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    @property
    def inhouse_guarantee_(self) -> Guarantee:
        """The guarantee towards the in-house rows."""
        return self.inhouse_.guarantee

    @property
    def certificate(self) -> Certificate:
        """The certificate of the reports that the model was learned from."""
        return self.certificate_

    def save(self, path: str | Path) -> Path:
        """Write a directory for use in-house, without the reports."""
        check_is_fitted(self, "mechanism_")
        return artifact.save(self, path)

    def export(self, path: str | Path) -> Path:
        """Write what voters or the public get; refused if it would reveal in-house rows."""
        check_is_fitted(self, "mechanism_")
        self.inhouse_.must_leave("a model that is handed out")
        return artifact.save(self, path)


class TaughtOnRows(Stored):
    """Base of models with a parameter `inhouse`. Abstract."""

    _held: UnshownRows | None

    @property
    def inhouse(self) -> Any:
        """The in-house rows, or None."""
        return None if self._held is None else self._held.rows

    @inhouse.setter
    def inhouse(self, rows: Any) -> None:
        # The same wrapper stays: `sklearn.base.clone` asks for the very parameters that it gave.
        unshown = rows is None or isinstance(rows, UnshownRows)
        self._held = rows if unshown else UnshownRows(rows)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with in-house rows that are not printed (`UnshownRows.rows`)."""
        return {**super().get_params(deep), "inhouse": self._held}

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # Never the rows themselves.
        return f"{type(self).__name__}({'' if self._held is None else 'inhouse=…'})"


def parts_of(model: Any, network: Network | None = None) -> tuple[dict[str, Any], codec.Arrays]:
    """Return what every model stores: its settings and its mechanism."""
    inner, weights = model.mechanism_.parts()
    parameters = {
        "settings": {name: codec.plain(value) for name, value in model._given().items()},
        "mechanism": {"kind": model.mechanism_.kind, "parameters": inner},
        "reports": model.reports_,
        "learned_from": model.certificate_.to_json(),
        "inhouse": model.inhouse_.to_plain(),
        **model._stored_beside(),
    }
    if hasattr(model, "classes_"):
        parameters["classes"] = model.classes_.tolist()
    arrays = codec.nested(weights, "mechanism")
    if network is not None:
        parameters["network"], own = network.parts()
        arrays |= codec.nested(own, "network")
    return parameters, arrays


def restored(
    kind: type[Model], parameters: dict[str, Any], arrays: codec.Arrays, *, network: bool = True
) -> Model:
    """Restore what `mechanism_parts` stored."""
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in parameters["settings"].items()
    }
    model: Any = kind(**given)
    inner = parameters["mechanism"]
    weights = codec.part(arrays, "mechanism")
    model.mechanism_ = artifact.rebuild(inner["kind"], inner["parameters"], weights)
    if "classes" in parameters:
        model.classes_ = np.asarray(parameters["classes"])
    model.reports_ = int(parameters["reports"])
    model.certificate_ = Certificate.from_json(parameters["learned_from"])
    model.certificate_.verify()
    model.guarantee_ = model.certificate_.guarantee
    nested = model.mechanism_.inhouse_
    model.inhouse_ = Protection.from_plain(parameters["inhouse"], learned=nested.learned)
    model.inhouse_.must_hold(nested)
    model.inhouse_ = model.inhouse_.sharing(nested)
    model._restore_beside(parameters)
    if network:
        own = codec.part(arrays, "network")
        model.network_ = Network.from_parts(parameters["network"], own)
    return cast(Model, model)
