r"""Payloads: the named arrays and the weight that a client sends, and how they may be processed.

A payload has parts ("update", "mask"), each with one number per parameter of the model. A phase of
an algorithm declares its parts beforehand, so the server never relies on a client for them. On the
wire a part is a set of float32 arrays named after the parameters; in memory it is one vector.

Notes
-----
A reply is untrusted data. `decode` returns a `Payload`, or a `Rejected` with the reason, and never
raises: one bad reply must not stop a round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors

Vector = npt.NDArray[Any]
"""One number per parameter of a model, in the order of its layout."""

Record = dict[str, npt.NDArray[Any]]
"""Arrays as they travel, by "part/parameter"."""


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's parameters, in the order of the flat vector.

    Examples
    --------
    >>> layout = Layout((("weight", (2, 3)), ("bias", (2,))))
    >>> layout.size
    8
    >>> layout.unflatten(np.arange(8.0))["bias"]
    array([6., 7.])
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @cached_property
    def spans(self) -> dict[str, slice]:
        """The slice of each parameter in the flat vector."""
        spans, start = {}, 0
        for name, shape in self.shapes:
            spans[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return spans

    @cached_property
    def size(self) -> int:
        """Number of parameters."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    def unflatten(self, vector: Vector) -> Record:
        """Split a vector into named views."""
        return {name: vector[self.spans[name]].reshape(shape) for name, shape in self.shapes}

    def flatten(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Vector:
        """Join named arrays into one float32 vector."""
        flat = [np.ravel(arrays[name]) for name, _ in self.shapes]
        return np.concatenate(flat).astype(np.float32, copy=False)


@dataclass(frozen=True)
class PayloadPart:
    """The declaration of one part of a payload: its type, and how it may be processed.

    Parameters
    ----------
    name : str
        Name of the part.
    additive : bool
        The server needs only the weighted sum over clients; secure aggregation may hide the rest.
    clip_unit : str, optional
        Parts of one unit are clipped together, by one norm over all of them. None means that the
        part cannot be bounded, so no noise can hide it.
    noised : bool
        The part depends on the client's data; under a guarantee it may leave only with noise.
    binary : bool
        The part holds zeros and ones, packed eight to a byte on the wire.
    kept : str, optional
        Name of a binary part that marks where this part has values. Elsewhere it is zero and is
        not sent.

    Notes
    -----
    The weight of a payload is a release as well. Where clients are protected it is 1 for all of
    them, or a public number.
    """

    name: str
    additive: bool = True
    clip_unit: str | None = "update"
    noised: bool = True
    binary: bool = False
    kept: str | None = None


@dataclass(frozen=True, eq=False)
class Payload:
    """The parts of one reply as flat vectors, and its weight in the mean."""

    parts: Mapping[str, Vector]
    weight: float = 1.0
    stated: tuple[float, float] | None = None
    """(ε, δ) that a silo claims to have spent with this reply."""


@dataclass(frozen=True)
class Rejected:
    """The reason why a reply does not count."""

    reason: str


@dataclass(frozen=True)
class ReplyLimits:
    """Limits that no honest reply exceeds: the magnitude of a number, the weight, a stated ε."""

    magnitude: float = 1e6
    weight: float = 1e9
    epsilon: float = 700.0

    def __post_init__(self) -> None:
        errors.positive("ReplyLimits", "magnitude", self.magnitude)
        errors.positive("ReplyLimits", "weight", self.weight)
        errors.positive("ReplyLimits", "epsilon", self.epsilon)


def norms(payload: Payload, declared: Sequence[PayloadPart]) -> dict[str, float]:
    r"""Compute the :math:`\ell_2` norm of each clip unit, over all its parts together."""
    squares: dict[str, float] = {}
    for part in declared:
        if part.clip_unit is not None:
            flat = np.asarray(payload.parts[part.name], dtype=np.float64)
            squares[part.clip_unit] = squares.get(part.clip_unit, 0.0) + float(flat @ flat)
    return {unit: math.sqrt(square) for unit, square in squares.items()}


def encode(payload: Payload, declared: Sequence[PayloadPart], layout: Layout) -> Record:
    """Encode for the wire: float32, packed bits for masks, only kept values for sparse parts."""
    sent: Record = {}
    for part in declared:
        vector = payload.parts[part.name]
        mask = None if part.kept is None else payload.parts[part.kept]
        for name, shape in layout.shapes:
            span = layout.spans[name]
            value: npt.NDArray[Any]
            if part.binary:
                value = np.packbits(vector[span] != 0)
            elif mask is not None:
                value = vector[span][mask[span] != 0].astype(np.float32)
            else:
                value = vector[span].astype(np.float32, copy=False).reshape(shape)
            sent[f"{part.name}/{name}"] = value
    return sent


def decode(
    record: object,
    weight: object,
    declared: Sequence[PayloadPart],
    layout: Layout,
    limits: ReplyLimits = ReplyLimits(),  # noqa: B008
    *,
    stated: object = None,
) -> Payload | Rejected:
    """Decode an untrusted reply into a payload as declared, or into the reason for rejecting it.

    Parameters
    ----------
    record, weight : object
        What arrived over the wire.
    declared : sequence of PayloadPart
        What the phase asked for.
    layout : Layout
        Layout of the model.
    limits : ReplyLimits
        A reply beyond these is rejected.
    stated : object
        The cost that the reply states; None if it states none.
    """
    if not _is_number(weight) or not 0 < weight <= limits.weight:  # type: ignore[operator]
        return Rejected(f"its weight is no number above 0 and up to {limits.weight:g}")
    cost = read_statement(stated, limits)
    if isinstance(cost, Rejected):
        return cost
    wanted = {f"{part.name}/{name}" for part in declared for name, _ in layout.shapes}
    if not isinstance(record, Mapping) or set(record) != wanted:
        return Rejected("its arrays have other names than asked for")
    parts: dict[str, Vector] = {}
    # Masks first: they say how long the other parts are.
    for part in sorted(declared, key=lambda part: not part.binary):
        flat = _read(record, part, parts, layout)
        if isinstance(flat, Rejected):
            return flat
        # Written so that NaN fails too.
        if not float(np.abs(flat).max(initial=0)) <= limits.magnitude:
            what = f"beyond {limits.magnitude:g}" if np.isfinite(flat).all() else "not finite"
            return Rejected(f"{part.name} has numbers that are {what}")
        parts[part.name] = flat
    return Payload(parts, float(weight), cost)  # type: ignore[arg-type]


def read_statement(
    stated: object,
    limits: ReplyLimits = ReplyLimits(),  # noqa: B008
) -> tuple[float, float] | Rejected | None:
    """Read an untrusted statement of cost: (ε, δ), None if absent, or why it is rejected."""
    if stated is None:
        return None
    pair = list(stated) if isinstance(stated, tuple | list) else []
    if len(pair) != 2 or not all(map(_is_number, pair)):
        return Rejected("its stated cost is no epsilon and delta")
    epsilon, delta = float(pair[0]), float(pair[1])
    # Written so that NaN fails too.
    if not (0 <= epsilon <= limits.epsilon and 0 <= delta < 1):
        return Rejected(f"its stated cost is no epsilon up to {limits.epsilon:g} and delta below 1")
    return epsilon, delta


def nbytes(record: Mapping[str, npt.NDArray[Any]]) -> int:
    """Count the bytes of the arrays, without names and framing."""
    return sum(array.nbytes for array in record.values())


def _is_number(value: object) -> bool:
    """Return whether a value is a number that fits a float; NaN and infinity pass."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return not isinstance(value, int) or abs(value) <= errors.LARGEST_INTEGER


def _read(
    record: Mapping[str, Any], part: PayloadPart, known: Mapping[str, Vector], layout: Layout
) -> Vector | Rejected:
    """Read one part as a vector; only types and shapes are checked."""
    flat = np.zeros(layout.size, dtype=np.float32)
    dtype = np.uint8 if part.binary else np.float32
    for name, shape in layout.shapes:
        array, span = record[f"{part.name}/{name}"], layout.spans[name]
        size = span.stop - span.start
        mask = None if part.kept is None else known[part.kept][span] != 0
        fitting: tuple[int, ...] = shape
        if part.binary:
            fitting = (-(-size // 8),)
        elif mask is not None:
            fitting = (int(mask.sum()),)
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            return Rejected(f"{part.name} of {name} is not an array of {np.dtype(dtype).name}")
        if array.shape != fitting:
            return Rejected(f"{part.name} of {name} has another shape than the model")
        if part.binary:
            flat[span] = np.unpackbits(array, count=size)
        elif mask is not None:
            flat[span][mask] = array
        else:
            flat[span] = array.ravel()
    return flat
