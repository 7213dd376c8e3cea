"""Storage of a codebook as JSON and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.data import schema
from tacit.data.outcomes import Numeric
from tacit.local.inhouse import Protection
from tacit.local.learned import features, quantizer
from tacit.local.learned.quantizer import Projection, Quantizer
from tacit.privacy import codec, errors

if TYPE_CHECKING:
    from tacit.local.learned.codebook import Codebook

_SETTINGS = ("epsilon", "classes", "people", "subset_size", "unit")
_FLOATS = ("mean", "matrix", "cells", "prototypes", "links")
_WHOLE = ("groups", "counts")


def parts(mechanism: Codebook) -> tuple[dict[str, Any], codec.Arrays]:
    """Return parameters and weights; without weights and bounds for a channel-alone copy."""
    parameters: dict[str, Any] = {
        **codec.settings(mechanism, _SETTINGS),
        "codewords": mechanism.codewords_,
        "inhouse": mechanism.inhouse_.to_plain(),
    }
    if mechanism.outcome is not None:
        parameters["outcome"] = mechanism.outcome.to_plain()
    stored = mechanism.quantizer_
    if stored is None:
        return parameters, {"counts": mechanism.counts_}
    settings, weights = mechanism.features_.parts()
    parameters["schema"] = mechanism.schema.to_plain()
    parameters["features"] = {"kind": mechanism.features_.kind, "settings": settings}
    arrays: codec.Arrays = {
        "cells": stored.cells,
        "groups": stored.groups,
        "mean": stored.projection.mean,
        "counts": mechanism.counts_,
        "prototypes": mechanism.prototypes_,
        **codec.nested(weights, "features"),
    }
    optional = {"matrix": stored.projection.matrix, "links": mechanism.links_}
    if mechanism.count_variance_.any():
        optional["count_variance"] = mechanism.count_variance_
    arrays |= {name: array for name, array in optional.items() if array is not None}
    return parameters, arrays


def rebuilt(kind: type[Codebook], parameters: dict[str, Any], arrays: codec.Arrays) -> Codebook:
    """Rebuild what `parts` returned; refuse arrays that do not fit each other."""
    settings = {name: parameters[name] for name in (*_SETTINGS, "codewords")}
    settings["outcome"] = Numeric.from_plain(parameters.get("outcome"))
    made = kind(**codec.exact("Codebook", settings, "epsilon"))
    made.inhouse_ = Protection.from_plain(parameters["inhouse"])
    # In the types that encoding assumes: narrower ones would overflow for some rows.
    floats = {name: arrays[name].astype(np.float32) for name in _FLOATS if name in arrays}
    whole = {
        name: errors.integers("Codebook", arrays[name], lower=0)
        for name in _WHOLE
        if name in arrays
    }
    made.counts_, made.links_ = whole["counts"], floats.get("links")
    made.codewords_ = len(made.counts_)
    made.count_variance_ = _count_variance(made.codewords_, arrays)
    if "schema" not in parameters:
        return made._channel_alone()
    made.prototypes_ = floats["prototypes"]
    given = schema.from_plain(parameters["schema"])
    described, weights = parameters["features"], codec.part(arrays, "features")
    made.features = features.from_parts(described["kind"], given, described["settings"], weights)
    projection = Projection(floats["mean"], floats.get("matrix"))
    restored = Quantizer(projection, floats["cells"], whole["groups"])
    quantizer.must_fit(made.features, restored, arrays)
    made._set(given, made.features, restored)
    return made


def _count_variance(codewords: int, arrays: codec.Arrays) -> npt.NDArray[np.float64]:
    """Read the variance of the noise of the counts; 0 where the counts have none."""
    if "count_variance" not in arrays:
        return np.zeros(codewords)
    variance = arrays["count_variance"].astype(np.float64)
    if variance.shape != (codewords,) or not bool((np.isfinite(variance) & (variance >= 0)).all()):
        raise errors.InvalidData("Codebook: count_variance must be a finite number per codeword.")
    return variance
