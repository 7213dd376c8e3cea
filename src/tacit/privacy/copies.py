"""A check that a deep copy of a user's module shares no state with its original.

Passes over rows run on copies, so that what a pass writes is discarded with its copy. This needs a
real copy: `__deepcopy__` and `__reduce_ex__` of any part may return the part itself, and then one
pass affects the next.

Notes
-----
`shared` follows whatever an object refers to, weakly too: attributes, slots, items, the objects of
bound methods, the memory of tensors and arrays. It stops at functions, classes, members of
enumerations, loggers and Python modules. State that is kept there (a global, a closure, a class
attribute) is outside the module, and no copy covers it.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import gc
import logging
import re
import sys
import types
import weakref
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np

_OUTSIDE = (type, enum.Enum, np.dtype)
_FIXED: frozenset[Any] = frozenset(
    {
        *(int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented)),
        *(types.FunctionType, types.ModuleType, logging.Logger, logging.RootLogger),
        *(types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType),
        *(range, slice, property, re.Pattern, fractions.Fraction, decimal.Decimal),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
        *(np.ufunc, types.CodeType, types.GenericAlias),
        *set(np.sctypeDict.values()),
    }
)
_FROZEN: frozenset[Any] = frozenset(
    {
        *(tuple, frozenset, weakref.ref, weakref.KeyedRef),
        *(types.MethodType, types.BuiltinMethodType, types.MethodWrapperType),
    }
)


class _Kinds(NamedTuple):
    """Types of objects that copies may share."""

    outside: tuple[type, ...]
    """Classes and their members, and number types, which are shared by design."""
    fixed: frozenset[Any]
    """Exact types that cannot change and refer to nothing that can, or belong to the program."""
    frozen: frozenset[Any]
    """Exact types that cannot change, but may refer to what can."""


def shared(original: Any, copied: Any) -> bool:
    """Check whether anything that can change is reachable from both objects."""
    torch = sys.modules.get("torch")  # if it is not loaded, there are no tensors
    # Treat tensor subclasses that override torch functions as plain tensors.
    plainly = nullcontext() if torch is None else torch._C.DisableTorchFunctionSubclass()
    with plainly:
        (ours, our_memory), (theirs, their_memory) = _state(original), _state(copied)
    return not ours.keys().isdisjoint(theirs) or not our_memory.isdisjoint(their_memory)


def _state(root: Any) -> tuple[dict[int, Any], set[int]]:
    """Return the objects that can change, by their id, and the memory of tensors and arrays."""
    mutable: dict[int, Any] = {}
    passed: dict[int, Any] = {}
    memory: set[int] = set()
    kinds, waiting = _kinds("torch" in sys.modules), [root]
    while waiting:
        one = waiting.pop()
        # By the type itself: an object can report any `__class__`.
        kind = type(one)
        if kind in kinds.fixed or id(one) in mutable or id(one) in passed:
            continue
        if issubclass(kind, kinds.outside):
            continue
        # Kept, so that no id is reused for another object during the search.
        (passed if kind in kinds.frozen else mutable)[id(one)] = one
        memory |= _memory(one, kind)
        waiting += _referents(one, kind)
    return mutable, memory


@cache
def _kinds(with_torch: bool) -> _Kinds:
    if not with_torch:
        return _Kinds(_OUTSIDE, _FIXED, _FROZEN)
    import torch
    from torch._ops import OpOverload, OpOverloadPacket

    plain = {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme}
    outside = (*_OUTSIDE, OpOverload, OpOverloadPacket)
    return _Kinds(outside, _FIXED | plain, _FROZEN | {torch.Size})


def _memory(one: Any, kind: type) -> set[int]:
    if issubclass(kind, np.ndarray):
        return {one.__array_interface__["data"][0]} if one.size else set()
    torch = sys.modules.get("torch")
    if torch is None or not issubclass(kind, torch.Tensor):
        return set()
    try:
        return {one.untyped_storage().data_ptr()} - {0}
    except (RuntimeError, NotImplementedError):  # sparse: no storage of its own
        return set()


def _referents(one: Any, kind: type) -> Iterable[Any]:
    if issubclass(kind, weakref.ref):
        return [weakref.ref.__call__(one), *gc.get_referents(one)]
    if issubclass(kind, np.ndarray):
        inside = one.ravel().tolist() if one.dtype.hasobject and one.dtype.names is None else []
        return [*inside, one.base, getattr(one, "__dict__", None)]
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        return [one.__dict__, one.grad if one.is_leaf else None]
    if torch is not None and issubclass(kind, torch.nn.Module):
        # A scripted module keeps its tensors where the garbage collector does not look.
        inside = torch.nn.Module
        return [*gc.get_referents(one), *inside.parameters(one), *inside.buffers(one)]
    return gc.get_referents(one)
