"""Storage of partitions as JSON and arrays."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.data import schema
from tacit.data.outcomes import Numeric
from tacit.data.schema import Schema
from tacit.local.inhouse import Protection
from tacit.local.learned import features, private_partitions
from tacit.local.learned.cells import Cells
from tacit.local.learned.features import Features
from tacit.local.learned.private_partitions import RowModel
from tacit.local.learned.quantizer import Projection
from tacit.privacy import codec, errors

if TYPE_CHECKING:
    from tacit.local.learned.partitions import Partitions

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_SETTINGS = ("epsilon", "classes", "people", "partitions", "unit")
_WEIGHTS = ("centres", "offsets", "mean", "matrix")


def parts(mechanism: Partitions) -> tuple[dict[str, Any], codec.Arrays]:
    """Return parameters and weights; without weights and bounds for a channel-alone copy."""
    parameters: dict[str, Any] = {
        **codec.settings(mechanism, _SETTINGS),
        "codewords": mechanism.codewords_,
        "seeded": mechanism.seeded_,
        "inhouse": mechanism.inhouse_.to_plain(),
        **_outcome(mechanism),
    }
    if mechanism.cells_ is None:
        return parameters, {"codewords": np.array([mechanism.codewords_])}
    settings, weights = mechanism.features_.parts()
    parameters["schema"] = mechanism.schema.to_plain()
    parameters["features"] = {"kind": mechanism.features_.kind, "settings": settings}
    parameters["blocks"] = [[block.start, block.stop] for block in mechanism.blocks_]
    assert mechanism.projection_.matrix is not None
    arrays: codec.Arrays = {
        "centres": mechanism.cells_.centres,
        "offsets": mechanism.cells_.offsets,
        "mean": mechanism.projection_.mean,
        "matrix": mechanism.projection_.matrix,
        **codec.nested(weights, "features"),
    }
    if mechanism.cells_.groups is not None:
        arrays["groups"] = mechanism.cells_.groups
    if mechanism.synthetic_ is not None:
        kind, own = mechanism.synthetic_.parts()
        parameters["synthetic"] = {"features": kind, "split": mechanism.split_}
        arrays |= codec.nested(own, "synthetic")
    return parameters, arrays


def _outcome(mechanism: Partitions) -> dict[str, Any]:
    if mechanism.outcome is None:
        return {}
    # A solver elsewhere may end in another optimum: the law is stored, not computed again.
    base = list(mechanism.mean_law().base) if mechanism.contrasting else None
    return {"outcome": mechanism.outcome.to_plain(), "mean_base": base}


def rebuilt(kind: type[Partitions], parameters: dict[str, Any], arrays: codec.Arrays) -> Partitions:
    """Rebuild what `parts` returned; refuse arrays that do not fit each other."""
    settings = {name: parameters[name] for name in (*_SETTINGS, "codewords")}
    settings["outcome"] = Numeric.from_plain(parameters.get("outcome"))
    made = kind(**codec.exact("Partitions", settings, "epsilon"))
    if (base := parameters.get("mean_base")) is not None:
        made._mean_base = tuple(base)
    made.inhouse_ = Protection.from_plain(parameters["inhouse"])
    made.seeded_ = bool(parameters["seeded"])
    made.synthetic_, made.split_ = None, {}
    if "schema" not in parameters:
        made.codewords_ = errors.whole("Partitions", "codewords", made.codewords, least=2)
        return made._channel_alone()
    given = schema.from_plain(parameters["schema"])
    _restore_synthetic(made, given, parameters, arrays)
    described, weights = parameters["features"], codec.part(arrays, "features")
    learned = features.from_parts(described["kind"], given, described["settings"], weights)
    made.blocks_ = tuple(slice(int(a), int(b)) for a, b in parameters["blocks"])
    own = {name: np.asarray(arrays[name], np.float32) for name in _WEIGHTS}
    groups = np.asarray(arrays["groups"], np.int64) if "groups" in arrays else None
    if not _fit(made, learned, own, groups):
        raise errors.InvalidData(
            "Partitions: weights must fit each other. Was the file made by hand?"
        )
    cells = Cells(own["centres"], own["offsets"], groups)
    made._set(given, learned, Projection(own["mean"], own["matrix"]), cells)
    return made


def _restore_synthetic(
    made: Partitions, given: Schema, parameters: dict[str, Any], arrays: codec.Arrays
) -> None:
    """Restore the model of rows; refuse a guarantee without it, or about another split."""
    proved = [part.certificate for part in made.inhouse_.parts if part.proved]
    if "synthetic" in parameters:
        described, own = parameters["synthetic"], codec.part(arrays, "synthetic")
        made.synthetic_ = RowModel.from_parts(given, described["features"], own)
        made.split_ = {str(name): float(part) for name, part in described["split"].items()}
        private_partitions.must_be_charged(made.split_, proved)
    elif proved:
        stated = str(made.inhouse_.guarantee)
        errors.refuse("Partitions", "inhouse", "without a guarantee: cells have no noise", stated)


def _fit(
    made: Partitions, learned: Features, own: Mapping[str, Floats], groups: Integers | None
) -> bool:
    """Compare the shapes of weights, before anything is encoded."""
    sizes = (made.partitions, made.codewords)
    if groups is not None:
        sizes = (1 if len(own["centres"]) == 1 else made.partitions, groups.shape[-1])
    width = own["matrix"].shape[-1] if own["matrix"].ndim == 2 else -1
    ends = [0, *(block.stop for block in made.blocks_)]
    return (
        own["mean"].shape == (learned.dimension,)
        and own["matrix"].shape == (learned.dimension, width)
        and own["centres"].shape == (*sizes, width)
        and own["offsets"].shape == sizes
        and (groups is None or _groups_fit(made, groups))
        and [block.start for block in made.blocks_] == ends[:-1]
        and all(start < stop for start, stop in itertools.pairwise(ends))
        and ends[-1] == width
        and all(bool(np.isfinite(array).all()) for array in own.values())
    )


def _groups_fit(made: Partitions, groups: Integers) -> bool:
    shaped = groups.ndim == 2 and len(groups) == made.partitions and groups.size > 0
    return bool(shaped and groups.min() >= 0 and groups.max() + 1 == made.codewords)
