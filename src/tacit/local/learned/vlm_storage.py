"""Storage of a variational mechanism as JSON and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data import schema
from tacit.local.inhouse import Protection
from tacit.local.learned import encoders, variational
from tacit.privacy import artifact, errors

if TYPE_CHECKING:
    from tacit.local.learned.vlm import VLM


def parts(mechanism: VLM) -> tuple[dict[str, Any], artifact.Arrays]:
    """Return parameters and weights; without weights and bounds for a channel-alone copy."""
    parameters: dict[str, Any] = {
        "epsilon": str(mechanism.epsilon),
        "latent_dimension": mechanism.latent_dimension,
        "radius": mechanism.radius,
        "pretraining_epsilon": mechanism.pretraining_epsilon,
        "classes": None if mechanism.classes is None else list(mechanism.classes),
        "label_share": str(mechanism.label_share),
        "noise": mechanism.noise,
        "delta": mechanism.delta,
        "likelihood": mechanism.likelihood,
        "grid": mechanism.ball.step,
        "unit": str(mechanism.unit),
        "spread": mechanism.spread_,
        "inhouse": mechanism.inhouse_.to_plain(),
    }
    if mechanism.encoder_ is None:
        return parameters, {}
    parameters["schema"] = mechanism.schema.to_plain()
    arrays = artifact.nested(encoders.to_arrays(mechanism.encoder_), "encoder")
    arrays |= artifact.nested(encoders.to_arrays(mechanism.decoder_), "decoder")
    return parameters, arrays


def rebuilt(kind: type[VLM], parameters: dict[str, Any], arrays: artifact.Arrays) -> VLM:
    """Rebuild what `parts` returned; refuse weights that are not finite."""
    settings = dict(parameters)
    stored, spread = settings.pop("schema", None), settings.pop("spread")
    protection = Protection.from_plain(settings.pop("inhouse"))
    for name in ("epsilon", "label_share"):
        settings[name] = errors.rational("VLM", name, settings[name])
    made = kind(**settings)
    made.spread_, made.losses_, made.inhouse_ = float(spread), [], protection
    if stored is None:
        return made._channel_alone()
    given = schema.from_plain(stored)
    if not all(bool(np.isfinite(array).all()) for array in arrays.values()):
        raise errors.InvalidData("VLM: weights must be finite. Was the file made by hand?")
    law = variational.law_of(given, made.likelihood)
    sizes = variational.sizes_for(given, made.latent_dimension, law)
    networks = [
        encoders.restore(lambda size=size: encoders.mlp(size), artifact.part(arrays, name))  # type: ignore[misc]
        for name, size in zip(("encoder", "decoder"), sizes, strict=True)
    ]
    made._set(given, *networks)
    return made
