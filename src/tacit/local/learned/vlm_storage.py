"""Storage of a variational mechanism as JSON and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data import schema
from tacit.local.inhouse import Protection
from tacit.local.learned import encoders, variational
from tacit.privacy import codec, errors

if TYPE_CHECKING:
    from tacit.local.learned.vlm import VLM


_SETTINGS = (
    "epsilon",
    "latent_dimension",
    "radius",
    "pretraining_epsilon",
    "classes",
    "label_share",
    "noise",
    "delta",
    "likelihood",
    "unit",
)


def parts(mechanism: VLM) -> tuple[dict[str, Any], codec.Arrays]:
    """Return parameters and weights; without weights and bounds for a channel-alone copy."""
    parameters: dict[str, Any] = {
        **codec.settings(mechanism, _SETTINGS),
        "grid": mechanism.ball.step,
        "spread": mechanism.spread_,
        "inhouse": mechanism.inhouse_.to_plain(),
    }
    if mechanism.encoder_ is None:
        return parameters, {}
    parameters["schema"] = mechanism.schema.to_plain()
    arrays = codec.nested(encoders.to_arrays(mechanism.encoder_), "encoder")
    arrays |= codec.nested(encoders.to_arrays(mechanism.decoder_), "decoder")
    return parameters, arrays


def rebuilt(kind: type[VLM], parameters: dict[str, Any], arrays: codec.Arrays) -> VLM:
    """Rebuild what `parts` returned; refuse weights that are not finite."""
    settings = dict(parameters)
    stored, spread = settings.pop("schema", None), settings.pop("spread")
    protection = Protection.from_plain(settings.pop("inhouse"))
    made = kind(**codec.exact("VLM", settings, "epsilon", "label_share"))
    made.spread_, made.losses_, made.inhouse_ = float(spread), [], protection
    if stored is None:
        return made._channel_alone()
    given = schema.from_plain(stored)
    if not all(bool(np.isfinite(array).all()) for array in arrays.values()):
        raise errors.InvalidData("VLM: weights must be finite. Was the file made by hand?")
    law = variational.law_of(given, made.likelihood)
    sizes = variational.sizes_for(given, made.latent_dimension, law)
    networks = [
        encoders.restore(lambda size=size: encoders.mlp(size), codec.part(arrays, name))  # type: ignore[misc]
        for name, size in zip(("encoder", "decoder"), sizes, strict=True)
    ]
    made._set(given, *networks)
    return made
