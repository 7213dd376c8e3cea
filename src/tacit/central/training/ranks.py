r"""Several processes that share a training: sums over all of them, and noise that is added once.

Every process samples its own part of the records, and sums their clipped gradients. These sums are
added up in float64, so that each process has the whole sum. Then process r adds noise of the whole
standard deviation σC to its own slice of the entries, and sends this slice to the others:

.. math:: \tilde g_j = \sum_r s_{rj} + \sigma C \, z_j, \qquad z_j \text{ from the process that
          owns entry } j

So every entry has noise exactly once, rounded to the grid as by one process: the step is that of
one process on all records (`schedule`), and its accounting is unchanged. (With shares of noise in
every process, each share would need the standard deviation :math:`\sigma C / \sqrt R`, and a grid
of its own.) All processes get the same bits, and their weights stay equal.

Notes
-----
Coins and noise of a process come from its own stream, under its own key. The first process draws
the noisy count that moves an adaptive clip norm, and sends the new norm.

Processes see each other's sums without noise. They are one party: nothing is protected between
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.central.training.noise import Noise
from tacit.central.training.scaling import Tally
from tacit.privacy import errors

ASSUMED = (
    "All processes were given the same records in the same order, so that each record belongs to "
    "one process; and they are one party, which sees sums without noise.",
)


class Ranks(Protocol):
    """What processes that share a training do together; every call is made by all of them."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def add(self, tensor: Tensor) -> None:
        """Replace the tensor by the sum over all processes."""
        ...

    def send(self, tensor: Tensor, source: int) -> None:
        """Replace the tensor by that of one process."""
        ...


class Processes:
    """The processes of a group of torch.distributed."""

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist

        self._dist, self._group = dist, group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def add(self, tensor: Tensor) -> None:
        self._dist.all_reduce(tensor, group=self._group)

    def send(self, tensor: Tensor, source: int) -> None:
        first = self._dist.get_global_rank(self._group, source)
        self._dist.broadcast(tensor, first, group=self._group)


def together(
    ranks: Ranks, sums: Tensor, tally: Tally, noise: Noise, divisor: float
) -> tuple[Tensor, Tally]:
    """Add the sums and counts of all processes, and noise on sums once: each on its own slice."""
    whole = sums.double()
    ranks.add(whole)
    counts = torch.tensor([tally.dropped, tally.signs], device=sums.device)
    ranks.add(counts)
    slices = whole.tensor_split(ranks.size)
    own = slices[ranks.rank]
    if len(own):
        noise.add_to(own, divisor)
    for source, part in enumerate(slices):
        if len(part):
            ranks.send(part, source)
    dropped, signs = counts.tolist()
    return whole, Tally(dropped, signs)


def must_agree(where: str, ranks: Ranks | None, setting: str, device: torch.device) -> None:
    """Refuse, in all processes, settings that differ from those of the first.

    Every process adds the noise of its own settings to its slice, and the first states what ran.
    """
    if ranks is None:
        return
    own = torch.tensor(list(hashlib.sha256(setting.encode()).digest()), device=device)
    first = own.clone()
    ranks.send(first, 0)
    others = torch.tensor([int(not torch.equal(own, first))], device=device)
    ranks.add(others)
    if int(others):
        remedy = "Make the same call in all of them."
        errors.refuse(where, "settings", "the same in all processes", "others", remedy)


def of_first(ranks: Ranks, number: float, device: torch.device) -> float:
    """Return the number that the first process has."""
    shared = torch.tensor([number], dtype=torch.float64, device=device)
    ranks.send(shared, 0)
    return float(shared)


def decided(where: str, ranks: Ranks | None, decide: Callable[[], list[int]]) -> list[int]:
    """Have the first process decide, and tell the others; if it refuses, all do."""
    if ranks is None:
        return decide()
    device = getattr(ranks, "device", torch.device("cpu"))
    numbers: list[int] = []
    refusal: BaseException | None = None
    if ranks.rank == 0:
        try:
            numbers = decide()
        except BaseException as error:
            refusal = error
    count = torch.tensor([-1 if refusal else len(numbers)], device=device)
    ranks.send(count, 0)
    if refusal is not None:
        raise refusal
    if int(count) < 0:
        raise errors.TacitError(f"{where}: the first process was refused, which says why.")
    said = torch.tensor(numbers or [0] * int(count), device=device)
    ranks.send(said, 0)
    return [int(one) for one in said]


def ranks_of(where: str, group: Any) -> Ranks | None:
    """Return the processes of a group of torch.distributed, or what already is one; or None."""
    if group is None or all(hasattr(group, name) for name in ("add", "send", "rank", "size")):
        given: Ranks | None = None if group is None else group
        return given
    try:
        return Processes(group)
    except (RuntimeError, ValueError, TypeError) as error:
        remedy = (
            "Call torch.distributed.init_process_group first; pass torch.distributed.group.WORLD."
        )
        first = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:90]}"
        errors.refuse(where, "group", "a group that this process is in", first, remedy)
