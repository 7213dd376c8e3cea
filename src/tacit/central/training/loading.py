r"""Records of a map-style data set, sampled by the plan and fetched by torch's `DataLoader`.

The main process draws who is sampled, in which slot, and 192 random bits for every view of a
record. Workers fetch the records, and the main process puts them in their slots: blocks of one
fixed shape, blank where nobody is.

Each record is fetched by itself. Before `data_set[i]` runs, the generators of torch, numpy and
Python are set from the bits of that view, so what a record draws for its augmentation has no part
in what others draw. A record that cannot be fetched, or has another shape than was declared, is a
blank; nothing that it raises is shown.

Views. With several views, a record's loss is the mean over its views, and its gradient is clipped
once, after that mean. So a record moves a sum by at most C however many views it has, and the
accounting is that of one view [DBHSB22]_.

Notes
-----
The data set is code of its owner that runs on records, and is not proved to keep them apart:
certificates list as an assumption that what it gives for i depends on record i and these draws
only.

References
----------
.. [DBHSB22] De, Berrada, Hayes, Smith, Balle. Unlocking high-accuracy differentially private image
   classification through scale. 2022.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tacit.central.training import probing
from tacit.central.training.clipping import checked_losses, flat_data
from tacit.central.training.schedule import Schedule
from tacit.central.training.tracing import Loss
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness
from tacit.privacy.silence import watching

_WORDS = 3  # of 64 bits: one for each generator

ASSUMED = (
    "What the data set gives for a record depends on that record and the random draws made for it, "
    "and not on other records. Its code changes no setting of its process, such as torch's default "
    "type or device.",
)

Fetched = tuple[tuple[Tensor, ...], Tensor]
"""Rows of the records of a block, and which of them could be fetched."""


@dataclass
class MeanOverViews:
    """The loss of a record: the mean over its views, which are on the second axis of its rows."""

    loss: Loss
    views: int

    def __call__(self, module: nn.Module, *batch: Tensor) -> Tensor:
        flat = [part.flatten(0, 1) for part in batch]
        losses = checked_losses("TrainingLoop", self.loss(module, *flat), len(flat[0]))
        return losses.view(-1, self.views).mean(1)


@dataclass
class Loading:
    """A data set, what one of its records looks like, and how it is fetched."""

    data_set: Any
    example: tuple[Tensor, ...]
    views: int = 1
    workers: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    places: Sequence[int] = ()
    """The places of this process's records in the data set."""
    dropped: int = 0
    """Records that could not be fetched, counted each time they were sampled. In-house only."""

    @property
    def like(self) -> tuple[Tensor, ...]:
        """No rows, of the shapes and types that a block has."""
        many = (self.views,) if self.views > 1 else ()
        return tuple(part.new_empty(0, *many, *part.shape).to(self.device) for part in self.example)

    def loss(self, loss: Loss) -> Loss:
        """Return the loss of a record with all its views."""
        return loss if self.views == 1 else MeanOverViews(loss, self.views)

    def steps(
        self, plan: Schedule, stream: Randomness, size: int, count: int
    ) -> Iterator[Iterator[tuple[Tensor, ...]]]:
        """Yield the blocks of `count` steps, `size` slots each; the last tensor is who is there.

        All blocks of a step must be taken before the next one.
        """
        coming = _Coming(self, plan, stream, size, count)
        like = tuple(part.new_empty(part.shape) for part in map(Tensor.cpu, self.like))
        loader: DataLoader[Any] = DataLoader(
            _Fetch(self.data_set, self.example, self.views),
            batch_sampler=coming,
            collate_fn=_Stack(like),
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # so that it draws nothing from the caller's
        )
        fetched = iter(loader)
        for _ in range(count):
            yield (self._placed(coming, size, *next(fetched)) for _ in range(coming.blocks))

    def _placed(
        self, coming: _Coming, size: int, rows: tuple[Tensor, ...], fine: Tensor
    ) -> tuple[Tensor, ...]:
        self.dropped += int((~fine).sum())
        slots, fine = coming.slots.popleft().to(self.device), fine.to(self.device)
        there = torch.zeros(size, dtype=torch.bool, device=self.device)
        there[slots] = fine
        block = []
        for part in rows:
            arrived = part.to(self.device, non_blocking=True)
            block.append(arrived.new_zeros(size, *arrived.shape[1:]).index_copy_(0, slots, arrived))
        return (*block, there)


class _Coming:
    """Who is in the next blocks, as the loader's workers are ahead of the steps."""

    def __init__(
        self, loading: Loading, plan: Schedule, stream: Randomness, size: int, steps: int
    ) -> None:
        self._loading, self._plan, self._stream = loading, plan, stream
        self._size, self._steps = size, steps
        self.blocks = -(-plan.slots // size)
        self.slots: deque[Tensor] = deque()

    def __iter__(self) -> Iterator[list[tuple[int, Any]]]:
        for _ in range(self._steps):
            chosen, slots = self._plan.layout(self._stream)
            for block in range(self.blocks):
                inside = slots // self._size == block
                self.slots.append(slots[inside] - block * self._size)
                yield self._asked(chosen[inside].tolist())

    def __len__(self) -> int:
        return self._steps * self.blocks

    def _asked(self, chosen: list[int]) -> list[tuple[int, Any]]:
        views, places = self._loading.views, self._loading.places
        words = self._stream.words(len(chosen) * views * _WORDS).reshape(-1, views, _WORDS)
        return [(places[one], own) for one, own in zip(chosen, words, strict=True)]


class _Fetch(Dataset[Any]):
    """The data set, asked for records by place and random words; what it raises is silence."""

    def __init__(self, data_set: Any, example: tuple[Tensor, ...], views: int) -> None:
        self._data_set, self._example, self._views = data_set, example, views

    def __getitems__(self, asked: list[tuple[int, Any]]) -> list[tuple[Tensor, ...] | None]:
        found: list[tuple[Tensor, ...] | None] = []
        with watching() as watch, _own_draws():
            for place, words in asked:
                found.append(None)
                with watch.silent():
                    seen = [self._view(place, own) for own in words]
                    parts = zip(*seen, strict=True)
                    found[-1] = tuple(
                        torch.stack(part) if self._views > 1 else part[0] for part in parts
                    )
        return found

    def _view(self, place: int, words: Any) -> tuple[Tensor, ...]:
        _draw_from(words)
        given = self._data_set[place]
        parts = given if isinstance(given, tuple | list) else (given,)
        return tuple(_plain(part, like) for part, like in zip(parts, self._example, strict=True))


def _plain(given: Any, like: Tensor) -> Tensor:
    """Copy what was given into a tensor of the declared shape and type.

    So no layout (sparse, for instance) and no subclass can raise where the record is used.
    """
    given = torch.as_tensor(given).detach()
    if given.shape != like.shape:
        raise ValueError  # within the silence: this record is a blank
    made = torch.empty_like(like)
    made.copy_(given)  # what a subclass returns here is not used
    return made


class _Stack:
    """Stack the records of a block; those that could not be fetched are blanks."""

    def __init__(self, like: tuple[Tensor, ...]) -> None:
        self._like = like

    def __call__(self, found: list[tuple[Tensor, ...] | None]) -> Fetched:
        fine = torch.tensor([one is not None for one in found], dtype=torch.bool)
        blank = tuple(part.new_zeros(part.shape[1:]) for part in self._like)
        rows = [blank if one is None else one for one in found]
        if not rows:
            return self._like, fine
        return tuple(torch.stack(part) for part in zip(*rows, strict=True)), fine


@contextmanager
def _own_draws() -> Iterator[None]:
    """Put the generators of torch, numpy and Python back afterwards."""
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        random.setstate(kept[2])


def _draw_from(words: Any) -> None:
    """Set the generators that transforms draw from; only the CPU's, which fetches."""
    torch.default_generator.manual_seed(int(words[0] >> np.uint64(1)))
    np.random.seed(words[1:2].view(np.uint32))  # noqa: NPY002
    random.seed(int(words[2]))


def rows_of(
    where: str, module: nn.Module, data: Any, example: Any, views: int, workers: int
) -> tuple[tuple[Tensor, ...], Loading | None]:
    """Return tensors and no loading; or no rows, like those of a data set, and how to load them."""
    views = errors.whole(where, "views", views, least=1, most=1024)
    workers = errors.whole(where, "workers", workers, least=0, most=1024)
    _refuse_others(where, data)
    if type(data) is TensorDataset and example is None and views == 1 and not workers:
        data = data.tensors
    if isinstance(data, Tensor | tuple | list) or not hasattr(data, "__getitem__"):
        if views > 1 or workers or example is not None:
            given = "views, workers and example"
            remedy = "Tensors are taken as they are: draw views in a data set of torch.utils.data."
            errors.refuse(where, given, "left out if data are tensors", type(data).__name__, remedy)
        return probing.checked_data(where, data, module), None
    loading = _loading(where, module, data, example)
    loading.views, loading.workers = views, workers
    probing.checked_data(where, loading.like, module, least=0)
    return loading.like, loading


def _loading(where: str, module: nn.Module, data: Any, example: Any) -> Loading:
    if example is None:
        remedy = "Pass tensors like those of one record, for instance zeros: no record is read."
        errors.refuse(where, "example", "given for a data set", None, remedy)
    parts = flat_data(example)
    if not parts or not all(isinstance(part, Tensor) for part in parts):
        kinds = [type(part).__name__ for part in parts]
        errors.refuse(where, "example", "a tensor or a tuple of tensors", kinds)
    try:
        records = len(data)
    except TypeError:
        remedy = "Poisson samples need the number of records."
        errors.refuse(where, "data", "a data set with a length", type(data).__name__, remedy)
    if records < 1:
        raise errors.InvalidData(f"{where}: data must not be empty.")
    blank = tuple(torch.zeros(part.shape, dtype=part.dtype) for part in parts)
    first = next(module.parameters(), torch.zeros(0))
    return Loading(data, blank, device=first.device, places=range(records))


def _refuse_others(where: str, data: Any) -> None:
    """Refuse what cannot be sampled, with the way that is left."""
    if isinstance(data, IterableDataset):
        remedy = (
            "Poisson samples need every record at every step. Read it into tensors and use "
            "train_in_order, which takes records in their order."
        )
        errors.refuse(where, "data", "a map-style data set", type(data).__name__, remedy)
    if isinstance(data, DataLoader):
        remedy = "Pass its data set, and `workers`: the loop samples by itself."
        errors.refuse(where, "data", "a data set", type(data).__name__, remedy)
    if isinstance(data, Mapping):
        remedy = "Records have places from 0; the loss may build the module's input."
        errors.refuse(where, "data", "tensors or a map-style data set", "a mapping", remedy)
