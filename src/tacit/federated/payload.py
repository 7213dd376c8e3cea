r"""What a client sends back: named arrays, a weight, and a declaration of what may be done to them.

A payload has parts ("update", "mask"), each one number for every parameter of the model. A phase
of an algorithm declares its parts beforehand, so the server never takes a client's word for them.
On the wire a part is float32 arrays under the names of the parameters; inside it is one vector.

Notes
-----
A reply is data from a stranger. `decode` gives a `Payload` or a `Rejected` with the reason, and
never raises: one bad reply must not stop a round.
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
"""One number for every parameter of a model, in the order of its layout."""

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
        """Where each parameter lies in the flat vector."""
        found, start = {}, 0
        for name, shape in self.shapes:
            found[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return found

    @cached_property
    def size(self) -> int:
        """Numbers in all."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    def unflatten(self, vector: Vector) -> Record:
        """Named views of a vector."""
        return {name: vector[self.spans[name]].reshape(shape) for name, shape in self.shapes}

    def flatten(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Vector:
        """One float32 vector of named arrays."""
        flat = [np.ravel(arrays[name]) for name, _ in self.shapes]
        return np.concatenate(flat).astype(np.float32, copy=False)


@dataclass(frozen=True)
class Part:
    """What one part of a payload is, and what may be done to it.

    Parameters
    ----------
    name : str
        Of the part.
    additive : bool
        The server needs only the weighted sum over clients: secure aggregation may hide the rest.
    clip_unit : str, optional
        Parts of one unit are bounded together, by one norm over all of them. None: no bound can be
        put on it, so no noise can hide it.
    noised : bool
        It depends on the client's data: under a guarantee it may leave only with noise.
    binary : bool
        Zeros and ones, eight to a byte on the wire.
    kept : str, optional
        A binary part that says where this one has values; elsewhere it is zero and is not sent.

    Notes
    -----
    The weight of a payload is a release as well. Where clients are to be protected it is 1 for all,
    or a public number.
    """

    name: str
    additive: bool = True
    clip_unit: str | None = "update"
    noised: bool = True
    binary: bool = False
    kept: str | None = None


@dataclass(frozen=True, eq=False)
class Payload:
    """Parts of one reply as flat vectors, and its weight in the mean."""

    parts: Mapping[str, Vector]
    weight: float = 1.0
    stated: tuple[float, float] | None = None
    """(ε, δ) that a silo says it has spent with this reply: its own word."""


@dataclass(frozen=True)
class Rejected:
    """A reply that does not count, and why."""

    reason: str


@dataclass(frozen=True)
class Limits:
    """What no honest reply exceeds: the size of a number, a weight, and a stated ε."""

    magnitude: float = 1e6
    weight: float = 1e9
    epsilon: float = 700.0

    def __post_init__(self) -> None:
        errors.positive("Limits", "magnitude", self.magnitude)
        errors.positive("Limits", "weight", self.weight)
        errors.positive("Limits", "epsilon", self.epsilon)


def norms(payload: Payload, declared: Sequence[Part]) -> dict[str, float]:
    r"""The :math:`\ell_2` norm of each clip unit, over all its parts together."""
    squares: dict[str, float] = {}
    for part in declared:
        if part.clip_unit is not None:
            flat = np.asarray(payload.parts[part.name], dtype=np.float64)
            squares[part.clip_unit] = squares.get(part.clip_unit, 0.0) + float(flat @ flat)
    return {unit: math.sqrt(square) for unit, square in squares.items()}


def encode(payload: Payload, declared: Sequence[Part], layout: Layout) -> Record:
    """Arrays for the wire: float32, packed bits for masks, only what is kept for sparse parts."""
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
    declared: Sequence[Part],
    layout: Layout,
    limits: Limits = Limits(),  # noqa: B008
    *,
    stated: object = None,
) -> Payload | Rejected:
    """Read a reply that anyone may have written: a payload as declared, or why it is none.

    Parameters
    ----------
    record, weight : object
        What came over the wire.
    declared : sequence of Part
        What the phase asked for.
    layout : Layout
        Of the model.
    limits : Limits
        Beyond these a reply is refused.
    stated : object
        What it says of its cost, None for nothing.
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
    limits: Limits = Limits(),  # noqa: B008
) -> tuple[float, float] | Rejected | None:
    """What anyone says to have spent: ε and δ, None where nothing is said, or why it is neither."""
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
    """Bytes of the arrays, without names and framing."""
    return sum(array.nbytes for array in record.values())


def _is_number(value: object) -> bool:
    """One that fits a float; NaN and infinity are left to comparisons."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return not isinstance(value, int) or abs(value) <= errors.LARGEST_INTEGER


def _read(
    record: Mapping[str, Any], part: Part, known: Mapping[str, Vector], layout: Layout
) -> Vector | Rejected:
    """One part as a vector; only types and shapes are looked at."""
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
