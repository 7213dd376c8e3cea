"""A copy shares nothing that can change, or it is found out."""

from __future__ import annotations

import copy
import enum
import functools
import logging
import types
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit.privacy.copies import shared


class Itself:
    def __deepcopy__(self, memo: object) -> Itself:
        return self


class ByName:
    """What `copy` takes for a global, which has no copies."""

    __slots__ = ("kept",)

    def __reduce_ex__(self, protocol: Any) -> str:
        return "by_name"


class Disguised(Itself):
    """Answers for its class with one that copies may share."""

    __class__ = property(lambda self: type(len))  # type: ignore[assignment]


class Same(torch.Tensor):
    def __deepcopy__(self, memo: object) -> Same:
        return self


class Number(np.float64):
    """A number with attributes, as any subclass has."""

    def __deepcopy__(self, memo: object) -> Number:
        return self


class Library(types.ModuleType):
    def __deepcopy__(self, memo: object) -> Library:
        return self


class Colour(enum.Enum):
    RED = 1


def module(**attributes: Any) -> nn.Module:
    made = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    made.__dict__.update(attributes)
    return made


KEPT: list[int] = []


@pytest.mark.parametrize(
    "attribute",
    [
        Itself(),
        ByName(),
        Disguised(),
        torch.zeros(3).as_subclass(Same),
        {"deep": [(1, Itself())]},
        np.array([Itself(), 1], object),
        KEPT.append,
        functools.lru_cache(len),
        Number(1.0),
        Library("state"),
    ],
    ids=[
        *("object", "slots", "disguised", "tensor", "nested", "array", "method", "cache"),
        *("number", "library"),
    ],
)
def test_a_plain_attribute_that_is_not_copied_is_found(attribute: Any) -> None:
    made = module(extra=attribute)
    assert shared(made, copy.deepcopy(made))


def test_a_weak_way_back_to_the_original_is_found() -> None:
    """`copy.deepcopy` leaves weak references as they are."""
    made = module()
    made.__dict__["original"] = weakref.ref(made)
    assert shared(made, copy.deepcopy(made))
    made.__dict__["original"] = weakref.WeakValueDictionary({1: made[0]})
    assert shared(made, copy.deepcopy(made))


def test_memory_that_two_tensors_share_is_found() -> None:
    one = torch.zeros(8)
    assert shared([one[:2]], [one[4:]])
    array = np.zeros(8)
    assert shared([array[:2]], [array[4:]])
    assert not shared([one], [one.clone()])


@pytest.mark.parametrize(
    "attribute",
    [
        *(1, "a", (1, (2, 3)), [1, {"a": {2}}], torch.float32, torch.device("cpu"), torch.relu),
        *(lambda x: x, nn.Linear, Colour.RED, logging.getLogger("a"), np.float32(1), np.add),
        *(functools.partial(torch.relu), torch.Generator(), torch.zeros(3), np.zeros(3), None),
        *(torch.zeros(2).to_sparse(), torch.Tensor.relu, torch.Tensor.__add__),
    ],
)
def test_what_is_copied_or_cannot_change_is_not(attribute: Any) -> None:
    made = module(extra=attribute)
    assert not shared(made, copy.deepcopy(made))


@pytest.mark.parametrize(
    "made",
    [
        nn.TransformerEncoderLayer(4, 2),
        nn.LSTM(2, 2),
        nn.LazyLinear(3),
        nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)),
    ],
    ids=["transformer", "lstm", "lazy", "spectral"],
)
def test_ordinary_modules_are_copied_whole(made: nn.Module) -> None:
    assert not shared(made, copy.deepcopy(made))
    assert shared(made, made)
