r"""Sums of clipped per-example gradients, which bound what one record can change.

.. math:: S = \sum_i g_i \min\!\left(1, \frac{C}{\|g_i\|}\right)

over the gradients of all trained parameters together: blanking one record moves S by at most C in
the Euclidean norm. `scaling` has other factors, with bounds of the same kind.

Notes
-----
Rows are in slots, in blocks of one fixed shape; an empty slot holds zeros, and has weight zero.
Kernels work differently for other shapes and places, which moves the last bit of other rows, and a
steep network can amplify that without limit. So shapes and places must not depend on who is there
(`schedule` has the proof). Nothing here branches on values in a way that affects other rows.

The norm is overstated by a millionth and by a bound on its own rounding (see `layers`), so that a
clipped gradient is not longer than C. Sums are rounded too, relative to the size of their terms:
`schedule` has a bound on that, and `Schedule.rounding` reserves room for it. An example whose loss
or gradient is not finite, or on which an operator raises, contributes exactly zero.

References
----------
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from tacit.central.training.alone import Alone, quiet
from tacit.central.training.bookkeeping import Book, PerExample
from tacit.central.training.layers import SUMMED, Layer, Pairs, Summing, Sums, scaled, squares
from tacit.central.training.precision import whole_products
from tacit.central.training.scaling import SMALLEST, Clipped, Scaling, Tally, parts_of
from tacit.central.training.tracing import Loss
from tacit.privacy import errors

_MARGIN = 1 + 1e-6
_LEAST = 2.0**-100

BLOCK = 5 * SUMMED
"""Largest number of slots of a block, which is one pass. Blocks are added up in float64."""

NO_PARTS: Mapping[int, int] = {}
"""The parts of parameters, by id, if all are in one."""

Way = Book | Alone
"""A way to compute the gradients of blocks of one size."""


class Clipper:
    """Clipped sums for one module and one loss; `probing.clipper` makes a checked one.

    `find` decides how gradients of blocks of a size are computed, before any row is read; `usual`
    is the default size.
    """

    def __init__(
        self, where: str, module: nn.Module, loss: Loss, find: Callable[[int], Way], usual: int
    ) -> None:
        self.where, self.module, self.loss = where, module, loss
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.trained: list[nn.Parameter] = [parameter for _, parameter in named]
        self._find, self._usual = find, usual
        self._ways: dict[int, Way] = {}

    @property
    def book_kept(self) -> bool:
        """Return False if every example is differentiated alone."""
        ways = self._ways or {0: self.prepare(self._usual)}
        return all(isinstance(way, Book) for way in ways.values())

    def prepare(self, count: int, microbatch: int | None = None) -> Way:
        """Decide on made-up rows how to compute sums of `count` slots, or refuse."""
        return self._way(self.block_size(count, microbatch))

    def _way(self, step: int) -> Way:
        if step not in self._ways:
            self._ways[step] = self._find(step)
        return self._ways[step]

    def block_size(self, count: int, microbatch: int | None = None) -> int:
        """Return the slots of a block: all blocks are equal, and have two slots or more.

        With one row only, the axis of rows cannot be told from any other.
        """
        most = min(microbatch or count, BLOCK)
        blocks = -(-max(1, count) // max(1, most))
        return max(2, -(-max(1, count) // blocks))

    def sums(
        self,
        batch: tuple[Tensor, ...],
        clip_norm: float,
        microbatch: int | None = None,
        present: Tensor | None = None,
    ) -> tuple[Tensor, int]:
        """Compute the sum clipped to this norm, and the number of dropped examples."""
        total, tally = self.tallied(batch, Clipped((clip_norm,)), microbatch, present)
        return total, tally.dropped

    def tallied(
        self,
        batch: tuple[Tensor, ...],
        scaling: Scaling,
        microbatch: int | None = None,
        present: Tensor | None = None,
    ) -> tuple[Tensor, Tally]:
        """Compute the sum of scaled gradients as one flat tensor, and what is counted beside it.

        `present` says which slots are filled; by default all. Dropped rows may be blanked in place.
        The sum of several blocks is in float64.
        """
        count = len(batch[0])
        if count == 0:
            return self._empty().zero_(), Tally(0)
        step = self.block_size(count, microbatch)
        if present is None:
            present = torch.ones(count, dtype=torch.bool, device=batch[0].device)
        missing = -count % step
        rows = tuple(_padded(part, missing) for part in (*batch, present))
        blocks = (
            tuple(part[start : start + step] for part in rows) for start in range(0, count, step)
        )
        return self.tallied_blocks(blocks, step, scaling)

    def tallied_blocks(
        self, blocks: Iterable[tuple[Tensor, ...]], step: int, scaling: Scaling
    ) -> tuple[Tensor, Tally]:
        """Do the same with one block or more of `step` slots; of each, the last tensor says which
        are filled.
        """
        if min(scaling.bounds) < SMALLEST:
            remedy = "Such short gradients are lost in float32: scale the loss."
            errors.refuse(self.where, "clip_norm", "at least 1e-9", min(scaling.bounds), remedy)
        way, total, dropped, signs = self._way(step), None, 0, 0
        with whole_products():
            for *some, there in blocks:
                flat = self._empty()
                tally = self._safely(way, flat, tuple(some), there, scaling)
                dropped, signs = dropped + tally.dropped, signs + tally.signs
                # In float64: running sums of float32 would drift apart if one record is missing.
                total = flat if total is None else total.double().add_(flat)
        assert total is not None
        if scaling.unit != 1:
            total.mul_(scaling.unit)  # a power of two: exact
        return total, Tally(dropped, signs)

    def views(self, flat: Tensor) -> list[Tensor]:
        """Cut the flat tensor into the shapes of the trained parameters."""
        parts = torch.split(flat, [parameter.numel() for parameter in self.trained])
        return [part.view(p.shape) for part, p in zip(parts, self.trained, strict=True)]

    def give(self, flat: Tensor) -> None:
        """Set the gradients of the trained parameters, and nothing else, for an optimiser."""
        for parameter, part in zip(self.trained, self.views(flat), strict=True):
            parameter.grad = part

    def take_back(self) -> None:
        """Remove the gradients of the trained parameters."""
        for parameter in self.trained:
            parameter.grad = None

    def _empty(self) -> Tensor:
        size = sum(parameter.numel() for parameter in self.trained)
        first = self.trained[0]
        return torch.empty(size, dtype=first.dtype, device=first.device)

    def _safely(
        self, way: Way, flat: Tensor, batch: tuple[Tensor, ...], there: Tensor, scaling: Scaling
    ) -> Tally:
        """Leave out rows on which an operator raises (for example a label beyond the classes).

        If a blank row may raise, at some weights or draws and not at others, blanks alone are tried
        first, in all slots: if they raise, the block is zero, whoever is in it. If not, each row is
        tried with blanks beside it, and with the random draws that the block had, so whether it
        raises depends on that row alone. Once those rows are blank, nothing raises any more.
        """
        draws = _Draws(flat.device)
        if way.blanks_may_raise:
            nobody = torch.zeros_like(there)
            try:
                self._add(way, flat, tuple(map(torch.zeros_like, batch)), nobody, scaling)
            except Exception:  # caused by no row
                flat.zero_()
                return Tally(int(there.sum()))
            draws.repeat()
        try:
            return self._add(way, flat, batch, there, scaling)
        except Exception:  # whatever it is, it must not be revealed
            fine = there.clone()
            places = list(range(len(there)))
            fine[self._raising(way, batch, places, draws, scaling)] = False
        blank = tuple(_blanked(part, fine) for part in batch)
        draws.repeat()
        try:
            lost = int(there.sum()) - int(fine.sum())
            tally = self._add(way, flat, blank, fine, scaling)
            return Tally(lost + tally.dropped, tally.signs)
        except Exception:
            flat.zero_()
            return Tally(int(there.sum()))

    def _raising(
        self,
        way: Way,
        batch: tuple[Tensor, ...],
        places: list[int],
        draws: _Draws,
        scaling: Scaling,
    ) -> list[int]:
        """Find by bisection the slots among these on which a pass raises."""
        only = torch.zeros(len(batch[0]), dtype=torch.bool, device=batch[0].device)
        only[places] = True
        draws.repeat()
        try:
            # The whole pass, because norms and written-out gradients may raise too; its sum is not
            # used.
            blank = tuple(_blanked(part, only) for part in batch)
            self._add(way, self._empty(), blank, only, scaling)
        except Exception:
            half = len(places) // 2
            if half == 0:
                return places
            first = self._raising(way, batch, places[:half], draws, scaling)
            return first + self._raising(way, batch, places[half:], draws, scaling)
        return []

    def _add(
        self, way: Way, flat: Tensor, batch: tuple[Tensor, ...], there: Tensor, scaling: Scaling
    ) -> Tally:
        if isinstance(way, Book):
            return self.book(way, flat, batch, there, scaling)
        dropped, signs, flat = 0, 0, flat.zero_()
        for at in range(0, len(there), SUMMED):
            some = slice(at, at + SUMMED)
            part = torch.zeros_like(flat)
            rows = tuple(one[some] for one in batch)
            tally = self._add_alone(way, part, rows, there[some], scaling)
            dropped, signs = dropped + tally.dropped, signs + tally.signs
            flat += part
        return Tally(dropped, signs)

    def _add_alone(
        self, way: Alone, flat: Tensor, batch: tuple[Tensor, ...], there: Tensor, scaling: Scaling
    ) -> Tally:
        """Add slots that are summed together, as many at a time as memory allows."""
        dropped, signs, views = 0, 0, self._views_by_id(flat)
        part_of = parts_of(scaling, self.trained)
        step = way.block(self.trained, len(there))
        *parts, present = (_padded(part, -len(there) % step) for part in (*batch, there))
        for start in range(0, len(there), step):
            losses, gradients = way.run([part[start : start + step] for part in parts])
            filled = present[start : start + step]
            written = dict(zip(map(id, self.trained), gradients, strict=True))
            norms = [(part_of.get(key, 0), squares(value)) for key, value in written.items()]
            squared = _by_part(norms, len(scaling.bounds), losses)
            weights, fine, within = factors(losses, squared, scaling, filled)
            self._add_written(views, written, weights, part_of, fine)
            dropped += int(filled.sum()) - int(fine.sum())
            signs += within
        return Tally(dropped, signs)

    @torch.no_grad()
    def book(
        self, way: Book, flat: Tensor, batch: tuple[Tensor, ...], there: Tensor, scaling: Scaling
    ) -> Tally:
        """Measure all examples, then write the weighted sum of their gradients to `flat`."""
        part_of, parts = parts_of(scaling, self.trained), len(scaling.bounds)
        losses, squared, kept, written = self.measured(way, batch, part_of, parts)
        weights, fine, signs = factors(losses, squared, scaling, there)
        views, bad = self._views_by_id(flat), torch.nonzero(~fine).flatten()
        covered = {id(p) for one in kept if one.rule.overwrites for p in one.trained.values()}
        for key in views.keys() - covered:
            views[key].zero_()
        while kept:
            one = kept.pop()
            for pair in one.pairs:
                for part in pair:
                    _blank(part, bad)
            sums = {name: views[id(parameter)] for name, parameter in one.trained.items()}
            _add_by_parts(one, sums, weights[one.part])
        self._add_written(views, written, weights, part_of, fine)
        return Tally(int(there.sum()) - int(fine.sum()), signs)

    @torch.no_grad()
    def measured(
        self,
        way: Book,
        batch: tuple[Tensor, ...],
        part_of: Mapping[int, int] = NO_PARTS,
        parts: int = 1,
    ) -> tuple[Tensor, Tensor, list[_Summed], PerExample]:
        """Compute losses, squared norms (parts, n), and what gradients are made of.

        Gradients that are written out are measured here and added unchanged, never computed again.
        """
        losses, values, arrived = way.run(batch)
        with quiet():
            written = way.write_out(values, arrived) if way.written else {}
        groups, kept = way.pairs(values, arrived), []
        del values, arrived  # free what is not needed again
        for group, pairs in groups:
            small = group.rule.written(group.layer, group.trained, pairs)
            written |= {id(group.trained[name]): value for name, value in small.items()}
            summed = {name: p for name, p in group.trained.items() if name not in small}
            rule = cast(Summing, group.rule)  # a rule that sums, if anything is left for it
            for part, some in _split(summed, part_of).items():
                kept.append(_Summed(rule, group.layer, some, pairs, part))
        norms = [
            (one.part, one.rule.squared_norms(one.layer, one.trained, one.pairs)) for one in kept
        ]
        norms += [(part_of.get(key, 0), squares(value)) for key, value in written.items()]
        return losses, _by_part(norms, parts, losses), kept, written

    def _add_written(
        self,
        views: dict[int, Tensor],
        written: PerExample,
        weights: Tensor,
        part_of: Mapping[int, int],
        fine: Tensor,
    ) -> None:
        bad = torch.nonzero(~fine).flatten()
        for key, value in written.items():
            own = weights[part_of.get(key, 0)]
            _blank(value, bad)
            for at in range(0, len(value), SUMMED):
                some = slice(at, at + SUMMED)
                views[key] += scaled(value[some], own[some]).sum(0)

    def _views_by_id(self, flat: Tensor) -> dict[int, Tensor]:
        return dict(zip(map(id, self.trained), self.views(flat), strict=True))


class _Draws:
    """The state of torch's generator, so that a block that runs again draws the same numbers."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._state = torch.get_rng_state()
        self._there = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def repeat(self) -> None:
        torch.set_rng_state(self._state)
        if self._there is not None:
            torch.cuda.set_rng_state(self._there, self._device)


class _Summed(NamedTuple):
    """Parameters of a layer whose gradients are summed without being written out."""

    rule: Summing
    layer: Layer
    trained: dict[str, nn.Parameter]
    pairs: Pairs
    part: int


def _split(
    trained: dict[str, nn.Parameter], part_of: Mapping[int, int]
) -> dict[int, dict[str, nn.Parameter]]:
    """Separate the parameters of a layer that are in different parts."""
    made: dict[int, dict[str, nn.Parameter]] = {}
    for name, parameter in trained.items():
        made.setdefault(part_of.get(id(parameter), 0), {})[name] = parameter
    return made


def _by_part(norms: Sequence[tuple[int, Tensor]], parts: int, losses: Tensor) -> Tensor:
    """Add up squared norms that belong to one part, (parts, n) in float64."""
    of: list[list[Tensor]] = [[] for _ in range(parts)]
    for part, squared in norms:
        of[part].append(squared)
    nothing = torch.zeros(len(losses), dtype=torch.float64, device=losses.device)
    return torch.stack([torch.stack(own).sum(0) if own else nothing for own in of])


def _add_by_parts(one: _Summed, sums: Sums, weights: Tensor) -> None:
    """Sum `SUMMED` slots per product; all parts but the first have their own memory, then add."""
    for at in range(0, len(weights), SUMMED):
        some = slice(at, at + SUMMED)
        rows = [(inputs[some], outputs[some]) for inputs, outputs in one.pairs]
        make = torch.empty_like if one.rule.overwrites else torch.zeros_like
        part = {name: make(value) for name, value in sums.items()} if at else sums
        one.rule.add(one.layer, part, rows, weights[some], fresh=True)
        if at:
            for name, value in sums.items():
                value += part[name]


def factors(
    losses: Tensor, squared: Tensor, scaling: Scaling, there: Tensor
) -> tuple[Tensor, Tensor, int]:
    """Return factors (parts, n) in float64, which examples count, and the sum of their signs.

    The others have factor zero, in all parts.
    """
    fine = torch.isfinite(losses.detach()) & torch.isfinite(squared).all(0) & there
    norms = squared.sqrt() * _MARGIN
    weights = scaling.factors(norms)
    # Factors are applied in float32, which may double those below 2^-126: set them to zero.
    weights.masked_fill_(weights < _LEAST, 0)
    return weights.masked_fill_(~fine, 0), fine, scaling.signs(norms, fine)


def checked_losses(where: str, losses: Any, count: int) -> Tensor:
    """Check that there is one loss per example."""
    if not isinstance(losses, Tensor):
        remedy = "Add up several losses, with their weights: there is one number per example."
        errors.refuse(where, "loss", "a tensor", type(losses).__name__, remedy)
    if losses.shape != (count,):
        remedy = "Return one number per example, for instance with reduction='none'."
        errors.refuse(where, "loss", f"of shape ({count},)", tuple(losses.shape), remedy)
    return losses


def _blank(rows: Tensor, bad: Tensor) -> None:
    """Zero rows in place: zero times NaN is NaN, and a copy might have another layout."""
    if rows.dtype.is_floating_point or rows.dtype.is_complex:
        rows.index_fill_(0, bad, 0)


def _blanked(rows: Tensor, kept: Tensor) -> Tensor:
    """Return a copy in which all rows but these are blank."""
    return rows.masked_fill(~kept.view(-1, *[1] * (rows.dim() - 1)), 0)


def _padded(rows: Tensor, missing: int) -> Tensor:
    """Append this many blank rows."""
    return rows if missing == 0 else torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


def flat_data(data: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return data as a tuple of tensors."""
    return (data,) if isinstance(data, Tensor) else tuple(data)
