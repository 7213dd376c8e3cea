r"""The sum of per-example gradients, each clipped: what one record can change is bounded.

.. math:: S = \sum_i g_i \min\!\left(1, \frac{C}{\|g_i\|}\right)

over the gradients of all trained parameters together, so that one record more or less moves S by
at most C in the Euclidean norm.

Notes
-----
The norm is overstated by a millionth and by a bound on its own rounding (see `layers`), so that a
clipped gradient is not longer than C. The sum is rounded too, relative to its own size, which one
record more regroups: `Schedule.rounding` leaves room for that, and certificates say so. An example
whose loss or gradient is not finite contributes exactly zero.

References
----------
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacit import errors
from tacit.private_training import alone
from tacit.private_training.layers import Pairs, Rule, scaled, squares
from tacit.private_training.recording import Loss, Site, Unfit, recorded, sites_of

_MARGIN = 1 + 1e-6
_LEAST = 2.0**-100


class Clipper:
    """Clipped sums for one module and one loss. `probing.clipper` makes one that was checked."""

    def __init__(self, where: str, module: nn.Module, loss: Loss) -> None:
        self.where, self.module, self.loss = where, module, loss
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.trained: list[nn.Parameter] = [parameter for _, parameter in named]
        self.sites: list[Site] = sites_of(module, self.trained)
        self.book_kept = True
        """False where the module can only be differentiated as a whole."""

    def sums(
        self, batch: tuple[Tensor, ...], clip_norm: float, microbatch: int | None = None
    ) -> tuple[Tensor, int]:
        """The clipped sum as one flat tensor, and how many examples were dropped.

        In float64 where it was made of several microbatches.
        """
        count, dropped = len(batch[0]), 0
        if count == 0:
            return self._empty().zero_(), 0
        block = block_for(count, self.trained[0].dtype)
        step, total = min(microbatch or count, block), None
        for start in range(0, count, step):
            flat = self._empty()
            some = tuple(part[start : start + step] for part in batch)
            dropped += self._add(flat, some, clip_norm, fresh=True)
            # In float64: running sums of float32 drift apart where one record is missing.
            total = flat if total is None else total.double().add_(flat)
        assert total is not None
        return total, dropped

    def views(self, flat: Tensor) -> list[Tensor]:
        """The flat tensor cut into the shapes of the trained parameters."""
        parts = torch.split(flat, [parameter.numel() for parameter in self.trained])
        return [part.view(p.shape) for part, p in zip(parts, self.trained, strict=True)]

    def _empty(self) -> Tensor:
        size = sum(parameter.numel() for parameter in self.trained)
        first = self.trained[0]
        return torch.empty(size, dtype=first.dtype, device=first.device)

    def _add(
        self, flat: Tensor, batch: tuple[Tensor, ...], clip_norm: float, *, fresh: bool
    ) -> int:
        if self.book_kept:
            try:
                losses = self.forward(batch)
                gradients = self.backward(losses.sum())
                return self.accumulate(flat, losses, gradients, clip_norm, fresh=fresh)
            except Unfit:
                pass
            finally:
                self.forget()
        if fresh:
            flat.zero_()
        return self._add_whole(flat, batch, clip_norm)

    def forward(self, batch: tuple[Tensor, ...]) -> Tensor:
        """One recorded pass; losses, checked for their shape."""
        with recorded(self.sites, self.trained):
            losses = self.loss(self.module, *batch)
        return checked_losses(self.where, losses, len(batch[0]))

    def backward(self, total: Tensor, *, again: bool = False) -> list[Tensor | None]:
        """Gradients at the recorded outputs, in the order of sites and calls."""
        edges = [edge for site in self.sites for call in site.calls for edge in call.edges]
        if not edges or not total.requires_grad:
            return [None] * len(edges)
        return list(torch.autograd.grad(total, edges, allow_unused=True, retain_graph=again))

    @torch.no_grad()
    def accumulate(
        self,
        flat: Tensor,
        losses: Tensor,
        gradients: list[Tensor | None],
        clip_norm: float,
        *,
        fresh: bool = False,
    ) -> int:
        """Norms of all examples, then the weighted sum of their gradients into `flat`.

        Where `flat` is fresh, what it holds counts for nothing.
        """
        kept, written = self._sorted_out(iter(gradients), len(losses))
        gradients.clear()  # what is not needed again may go
        norms = [rule.squared_norms(site.layer, site.trained, p) for site, rule, p in kept]
        norms += [squares(value) for value in written.values()]
        total = torch.stack(norms).sum(0) if norms else losses.new_zeros(len(losses)).double()
        weights, fine = factors(losses, total, clip_norm)
        views = self._views_by_id(flat)
        if fresh:
            written_over = {
                id(p) for s, rule, _ in kept if rule.overwrites for p in s.trained.values()
            }
            for key in views.keys() - written_over:
                views[key].zero_()
        dropped = len(losses) - int(fine.sum())
        while kept:
            site, rule, pairs = kept.pop()
            if dropped:
                pairs = [(_blank(inputs, fine), _blank(arrived, fine)) for inputs, arrived in pairs]
            sums = {name: views[id(parameter)] for name, parameter in site.trained.items()}
            rule.add(site.layer, sums, pairs, weights, fresh=fresh)
        self._add_written(views, written, weights, fine)
        return dropped

    def _sorted_out(
        self, arrived: Iterator[Tensor | None], count: int
    ) -> tuple[list[tuple[Site, Rule, Pairs]], alone.PerExample]:
        """Gradients at outputs, by layer with a rule; and those of the rest, written out."""
        kept: list[tuple[Site, Rule, Pairs]] = []
        written: alone.PerExample = {}
        for site in self.sites:
            if site.rule is None:
                for key, value in alone.of_site(site, arrived, count).items():
                    written[key] = written[key] + value if key in written else value
            elif pairs := site.pairs(arrived, count):
                kept.append((site, site.rule, pairs))
        return kept, written

    @torch.no_grad()
    def _add_whole(self, flat: Tensor, batch: tuple[Tensor, ...], clip_norm: float) -> int:
        dropped, views = 0, self._views_by_id(flat)
        for losses, written in alone.of_module(self.module, self.loss, self.trained, batch):
            total = torch.stack([squares(value) for value in written.values()]).sum(0)
            weights, fine = factors(losses, total, clip_norm)
            self._add_written(views, written, weights, fine)
            dropped += len(losses) - int(fine.sum())
        return dropped

    def _add_written(
        self, views: dict[int, Tensor], written: alone.PerExample, weights: Tensor, fine: Tensor
    ) -> None:
        for key, value in written.items():
            views[key] += scaled(_blank(value, fine), weights).sum(0)

    def _views_by_id(self, flat: Tensor) -> dict[int, Tensor]:
        return dict(zip(map(id, self.trained), self.views(flat), strict=True))

    def forget(self) -> None:
        """Let go of what was recorded."""
        for site in self.sites:
            site.calls = []


def block_for(size: float, dtype: torch.dtype) -> int:
    """Examples that are summed in one product; blocks are added up in float64."""
    if dtype == torch.float64:
        return 16384  # for memory alone: nothing drifts there
    return 1024 if size <= 4096 else 256


def factors(losses: Tensor, squared: Tensor, clip_norm: float) -> tuple[Tensor, Tensor]:
    """Clip factors, float64, and which examples are finite; zero for those that are not."""
    fine = torch.isfinite(losses.detach()) & torch.isfinite(squared)
    # A norm of zero gives an infinite quotient, which the clamp makes one.
    weights = (clip_norm / (squared.sqrt() * _MARGIN)).clamp_(max=1)
    # Factors are applied in float32, which below 2^-126 may double them: nothing is left of those.
    weights.masked_fill_(weights < _LEAST, 0)
    return weights.masked_fill_(~fine, 0), fine


def checked_losses(where: str, losses: Any, count: int) -> Tensor:
    """One number for every example, or a refusal."""
    if not isinstance(losses, Tensor):
        errors.refuse(where, "loss", "a tensor", type(losses).__name__)
    if losses.shape != (count,):
        remedy = "Return one number for every example, for example with reduction='none'."
        errors.refuse(where, "loss", f"of shape ({count},)", tuple(losses.shape), remedy)
    return losses


def _blank(rows: Tensor, fine: Tensor) -> Tensor:
    """Rows of dropped examples as zeros: zero times NaN would be NaN."""
    if rows.dtype.is_floating_point or rows.dtype.is_complex:
        return rows.masked_fill(~fine.view(-1, *[1] * (rows.dim() - 1)), 0)
    return rows


def flat_data(data: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Data as a tuple of tensors."""
    return (data,) if isinstance(data, Tensor) else tuple(data)
