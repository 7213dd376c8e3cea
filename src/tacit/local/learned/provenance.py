"""Whether features are what this library wrote: their class, their methods, all they are made of.

Proofs about features speak of code. A subclass may have another `alone`, an instance may have a
method put on it, a part may be of somebody's class: each may do anything with the rows of a block.
So the library's own code paths for blocks are taken for exact classes only.
"""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_PLAIN = frozenset({int, float, bool, str, type(None)})
_CACHED = frozenset({"_code"})
"""What schemas keep beside their fields; features do not read it."""

_LAYERS = ("Sequential", "Linear", "ReLU", "Conv2d", "GroupNorm", "AvgPool2d", "Flatten")
"""Layers of torch in which no row of a batch meets another."""


_VOUCHED: set[type] = set()


def vouch(kind: type) -> type:
    """Declare that a class computes the vector of a row from that row alone.

    Blocks of rows are then given to it whole. Certificates state this as an assumption, as for any
    features that are not the library's own. It is for simulations that remember vectors.
    """
    _VOUCHED.add(kind)
    return kind


def takes_blocks(features: Any) -> bool:
    """Check whether features may take a block of rows: the library's own, or vouched for."""
    return type(features) in _VOUCHED or as_written(features)


def as_written(thing: Any) -> bool:
    """Check whether an object and all its parts are of this library's classes, unchanged."""
    kind = type(thing)
    if kind in _PLAIN:
        return True
    if kind is tuple:
        return all(map(as_written, thing))
    if kind is np.ndarray:
        return thing.dtype.kind in "biuf"
    if is_dataclass(kind) and _ours(kind):
        names = {one.name for one in fields(kind)}
        return vars(thing).keys() <= names | _CACHED and all(
            as_written(getattr(thing, name)) for name in names
        )
    torch = sys.modules.get("torch")
    if torch is None or not issubclass(kind, torch.nn.Module):
        return False
    return all(_layer(part, torch.nn) for part in torch.nn.Module.modules(thing))


def _ours(kind: type) -> bool:
    """Check whether a class is found under its own name in a module of this library."""
    home = sys.modules.get(kind.__module__)
    return kind.__module__.startswith("tacit.") and getattr(home, kind.__name__, None) is kind


def _layer(part: Any, nn: Any) -> bool:
    kind, kept = type(part), vars(part)
    known = _ours(kind) or kind in {getattr(nn, name) for name in _LAYERS}
    replaced = any(callable(getattr(kind, name, None)) for name in kept)
    hooked = kept["_forward_hooks"] or kept["_forward_pre_hooks"]
    weights = all(type(one) is nn.Parameter for one in kept["_parameters"].values())
    return bool(known and weights and not (replaced or hooked or kept["_buffers"]))
