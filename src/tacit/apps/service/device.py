"""The description that a page needs to draw a report or a vote: the channel in whole numbers.

Weights are decimal strings, because browsers read JSON numbers as float64. The description holds
nothing about anybody: all of it is in the artifact that participants receive.
"""

from __future__ import annotations

import base64
import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data import outcomes
from tacit.data.schema import ArraySchema, Schema
from tacit.local.additive_channels import FeatureChannel, LatentChannel
from tacit.local.channels import PartitionedChannel, ReportChannel, SymbolChannel
from tacit.local.inference.votes import Ballot
from tacit.local.learned.direct import STEPS
from tacit.local.surveys.channel import SurveyChannel
from tacit.local.surveys.parts import Part
from tacit.privacy import artifact, errors, events
from tacit.privacy.mechanisms import Channel, DiscreteLaplace, GroupedMean
from tacit.privacy.rounding import float_above

DEVICE, BALLOT = "tacit-device/1", "tacit-ballot/1"

_FAINT = 0.1
"""Share of the largest amount of ink below which a row or column of the mean image is margin."""


def describe(mechanism: Any, channel: ReportChannel, encoder: bytes | None) -> dict[str, Any]:
    """Describe rows, encoder and channel of a report, JSON-ready.

    The description's `channel` is None if pages cannot run it.

    Parameters
    ----------
    mechanism
        The campaign's mechanism, with its encoder.
    channel : ReportChannel
        The channel of a report.
    encoder : bytes or None
        The ONNX file that pages run; the description holds its hash.
    """
    return {
        "format": DEVICE,
        "kind": mechanism.kind,
        "artifact": artifact.fingerprint(mechanism),
        "epsilon": float(channel.guarantee.epsilon),  # type: ignore[attr-defined]
        "labelled": channel.labelled,
        "classes": None if channel.classes is None else list(channel.classes),
        "schema": mechanism.schema.to_plain(),
        "encoder": None if encoder is None else hashlib.sha256(encoder).hexdigest(),
        "channel": _channel(mechanism, channel, encoder),
        **_prototypes(mechanism, channel),
    }


def ballot(model: Any, ballot: Ballot, graph: bytes | None = None) -> dict[str, Any]:
    """Describe the model's answers and the channel of a vote on them, JSON-ready.

    `graph` is the model as an ONNX file, if it has one; the description holds its hash. All of
    `graph`, `codewords` and `network` are None if pages cannot run the model.
    """
    runs = hasattr(model, "table_") or hasattr(model, "level")  # others are run by their graph
    return {
        "format": BALLOT,
        "model": artifact.fingerprint(model),
        "epsilon": float_above(Fraction(ballot.epsilon)),
        "answers": [_plain(label) for label in model.classes_],
        "classes": None if ballot.classes is None else list(ballot.classes),
        "channel": _law(ballot.channel),
        "graph": None if graph is None else hashlib.sha256(graph).hexdigest(),
        **(_answering(model) if runs else {"codewords": None, "network": None}),
    }


def _channel(
    mechanism: Any, channel: ReportChannel, encoder: bytes | None
) -> dict[str, Any] | None:
    """Describe a channel; None if pages lack its noise or encoder, so that people use the CLI."""
    match channel:
        case FeatureChannel():
            return {
                "kind": "features",
                "steps": STEPS,
                "indicated": mechanism.indicated,
                "places": list(channel.places),
                "noise": _law(channel.noise),
                "flips": [_law(flip) for flip in channel.flips],
                "label": _law(channel.flip),
            }
        case SymbolChannel() if encoder is not None:
            return _law(channel.symbols)
        case PartitionedChannel() if encoder is not None:
            return {
                "kind": "partitions",
                "partitions": channel.partitions,
                "law": _law(channel.law),
            }
        case SurveyChannel():
            return {"kind": "survey", "steps": outcomes.STEPS, "sheets": _sheets(channel)}
        case LatentChannel() if encoder is not None and isinstance(channel.noise, DiscreteLaplace):
            return {
                "kind": "latent",
                "grid": [channel.ball.step, channel.ball.radius_steps],
                "noise": _law(channel.noise),
                "label": _law(channel.flip),
            }
    return None


def _sheets(channel: SurveyChannel) -> list[list[dict[str, Any]]]:
    """List what each part of each sheet measures, and the law of the set that is released."""
    return [
        [
            {"measures": [one.to_plain() for one in part.measures], "law": _law_of(part)}
            for part in parts
        ]
        for parts in channel.sheets
    ]


def _law_of(part: Part) -> dict[str, Any] | None:
    """List the integers that a part is drawn with; of a grouped mean, the most of each weight."""
    law = part.law
    if not isinstance(law, GroupedMean):
        return _law(law)
    return {
        "kind": "grouped-mean",
        "groups": law.groups,
        "base": [str(weight) for weight in law.base],
        "most": [str(weight) for weight in law.most],
    }


def _law(channel: Channel | None) -> dict[str, Any] | None:
    """List the integers that a channel draws with."""
    if channel is None:
        return None
    event = channel.event
    match event:
        case events.SubsetSelection():
            return {
                "kind": "subset-selection",
                "categories": event.categories,
                "size": event.size,
                "inclusion": str(event.inclusion),
            }
        case events.RandomizedResponse():
            return {
                "kind": "randomized-response",
                "categories": event.categories,
                "keep": str(event.keep),
                "other": str(event.other),
            }
        case events.Laplace():
            scale = Fraction(event.scale)
            return {
                "kind": "discrete-laplace",
                "scale": [str(scale.numerator), str(scale.denominator)],
            }
    errors.refuse("device", "event", "one that pages support", type(event).__name__)


def _prototypes(mechanism: Any, channel: ReportChannel) -> dict[str, Any]:
    """Describe each codeword's picture, in bytes, and the share of the frame that it fills."""
    if channel.symbols is None:
        cells = None
        if isinstance(channel, PartitionedChannel):
            cells = channel.law.categories // channel.class_count
        return {"codewords": cells, "prototypes": None, "frame": _frame(mechanism.schema, None)}
    shown = np.clip(mechanism.prototypes_, 0, 1)
    return {
        "codewords": mechanism.codewords_,
        "prototypes": _base64(np.rint(255 * shown).astype(np.uint8)),
        "frame": _frame(mechanism.schema, np.average(shown, axis=0, weights=_weights(mechanism))),
    }


def _weights(mechanism: Any) -> npt.NDArray[np.float64]:
    return np.asarray(mechanism.counts_ + 1.0)


def _frame(schema: Schema, mean: npt.NDArray[Any] | None) -> float | None:
    """Return the longer side of a drawing as a share of the frame; by default MNIST's."""
    if not isinstance(schema, ArraySchema) or schema.image is None:
        return None
    if mean is None:
        return 20 / 28
    picture = mean.reshape(schema.image)
    inked = [picture.sum(axis=axis) for axis in (0, 1)]
    return float(max(np.mean(ink > _FAINT * ink.max()) for ink in inked))


def _answering(model: Any) -> dict[str, Any]:
    """Describe how the model answers: a label per codeword, or the layers of a network."""
    if hasattr(model, "table_"):
        return {"codewords": model.codeword_answers().tolist(), "network": None}
    network = model.network_
    if model.level != "latent" or not model.rule.most_probable:
        return {"codewords": None, "network": None}
    layers = zip(network.weights, network.biases, strict=True)
    return {
        "codewords": None,
        "network": {
            "center": _floats(network.center),
            "spread": _floats(network.spread),
            "layers": [{"weights": _floats(w), "biases": _floats(b)} for w, b in layers],
        },
    }


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _floats(array: npt.NDArray[Any]) -> str:
    return _base64(np.ascontiguousarray(array, "<f4"))


def _base64(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()
