"""Conversion of an anonymizing encoder to JSON and arrays, and back."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.anonymize.labelling import Classes
from tacit.anonymize.rows import RowReader
from tacit.data import labels, schema
from tacit.local.inhouse import Protection
from tacit.privacy import codec, errors

if TYPE_CHECKING:
    from tacit.anonymize.encoder import AnonymizingEncoder

_SETTINGS = ("strength", "training", "dropout", "dimensions", "styles", "unit", "seed")
_SHAPES = ("encoder", "branches")


def plain(settings: dict[str, Any]) -> bool:
    """Return whether encoder and branches are this library's layers, which do not mix rows."""
    return all(isinstance(settings[name], list | tuple) for name in _SHAPES)


def parts(fitted: AnonymizingEncoder) -> tuple[dict[str, Any], codec.Arrays]:
    """Return parameters and weights; refuse a user's own modules, which cannot be rebuilt."""
    settings = fitted.settings_  # as fitted: parameters may have been changed since
    if not plain(settings):
        remedy = "Save your own module with torch, and its class yourself."
        errors.refuse("save", "encoder and branches", "sizes of layers", "a module", remedy)
    reader, classes, local = fitted.reader_, fitted.classes_, fitted.local_
    parameters = {
        **{name: _plain(settings[name]) for name in _SETTINGS},
        **{name: [int(size) for size in settings[name]] for name in _SHAPES},
        "epsilon": None if local is None else codec.plain(local.epsilon),
        "schema": reader.schema.to_plain(),
        "regular": codec.plain(classes.regular),
        "private": codec.plain([*classes.private.items()]),
        "inhouse": fitted.inhouse_.to_plain(),
    }
    weights = {name: tensor.numpy() for name, tensor in fitted.networks_.state_dict().items()}
    arrays: codec.Arrays = {
        "center": reader.center,
        "spread": reader.spread,
        **codec.nested(weights, "networks"),
    }
    if hasattr(fitted, "prototypes_"):
        arrays["prototypes"] = fitted.prototypes_
    return parameters, arrays


def rebuilt(
    kind: type[AnonymizingEncoder], parameters: dict[str, Any], arrays: codec.Arrays
) -> AnonymizingEncoder:
    """Rebuild an encoder from its parts; refuse weights that do not fit or are not finite."""
    import torch

    from tacit.anonymize.fitting import Fitted, FittingProblem
    from tacit.anonymize.training import TrainingRows

    for name, array in arrays.items():
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            errors.refuse("AnonymizingEncoder", name, "finite numbers", array.dtype.name)
    settings: dict[str, Any] = {name: parameters[name] for name in _SETTINGS}
    settings |= {name: tuple(parameters[name]) for name in _SHAPES}
    if (epsilon := parameters["epsilon"]) is not None:
        settings["epsilon"] = errors.rational("AnonymizingEncoder", "epsilon", epsilon)
    encoder = kind(**settings, device="cpu")
    floats = [arrays[name].astype(np.float32) for name in ("center", "spread")]
    reader = RowReader(schema.from_plain(parameters["schema"]), *floats)
    declared = {name: labels.declare("AnonymizingEncoder", v) for name, v in parameters["private"]}
    classes = Classes(labels.declare("AnonymizingEncoder", parameters["regular"]), declared)
    empty = TrainingRows(torch.empty(0), torch.empty(0), ())
    problem = FittingProblem(encoder, reader, classes, empty, empty, "cpu")
    weights = {k: torch.tensor(a) for k, a in codec.part(arrays, "networks").items()}
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, but not used
        networks = problem.untrained()
    try:
        networks.load_state_dict(weights)
    except RuntimeError:
        errors.refuse("AnonymizingEncoder", "weights", "of the stated layers", "others")
    encoder._check()
    encoder._take(problem, Fitted(networks.eval(), arrays.get("prototypes")), False)
    encoder.inhouse_ = Protection.from_plain(parameters["inhouse"])
    if encoder.inhouse_.proved:  # no encoder that this library fits has a guarantee for them
        errors.refuse("AnonymizingEncoder", "in-house guarantee", "none", "one")
    return encoder


def nameless(fitted: AnonymizingEncoder) -> AnonymizingEncoder:
    """Return a copy that encodes and predicts the task, without anything about people."""
    import torch

    copied = copy.copy(fitted)
    copied.networks_ = copy.copy(fitted.networks_)
    copied.networks_._modules = {**fitted.networks_._modules, "private": torch.nn.ModuleList()}
    copied.classes_ = Classes(fitted.classes_.regular, {})
    copied.__dict__.pop("prototypes_", None)
    return copied


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    whole = float(value) == int(value) and not isinstance(value, float)
    return int(value) if whole else float(value)
