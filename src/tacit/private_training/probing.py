"""Checks on a module and its loss before any record is looked at, with made-up rows.

Everything here runs on rows that do not depend on the data: floats uniform in [0, 1), integers 0
or 1, of the data's shapes and types. So whatever it decides or refuses, it tells nothing of a
record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils._python_dispatch import TorchDispatchMode

from tacit import errors
from tacit.private_training.clipping import Clipper, checked_losses, flat_data
from tacit.private_training.recording import Loss, Unfit

_ROWS = 3
_STILL = {"rand": 0.3, "randn": 0.5, "bernoulli": 1.0, "uniform": 0.3, "normal": 0.5}
_SCALES = (0.0, 1.0, 100.0, 1e4)
_COMPANY = ((2, 1), (3, 0), (7, 4))  # rows in all, and the place of the one that is looked at
_SEED = 20260
_AGREE = 1e-3


def clipper(where: str, module: nn.Module, loss: Loss, like: tuple[Tensor, ...]) -> Clipper:
    """A `Clipper` that has been checked on rows like these."""
    refuse_structure(where, module)
    made = Clipper(where, module, loss)
    with state_kept(module) as before:
        _probe(made, like)
        after = _untrained(module)
        for name, old in before.items():
            if name not in after or not torch.equal(after[name], old):
                remedy = "What it keeps of the data would be released without noise."
                errors.refuse(where, "module", "unchanged by a forward pass", name, remedy)
    return made


@contextmanager
def state_kept(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Whatever a pass writes into what is not trained is taken back: it has no noise."""
    before = {name: one.detach().clone() for name, one in _untrained(module).items()}
    try:
        yield before
    finally:
        for name, one in _untrained(module).items():
            if name in before:
                one.data = before[name].clone()


def _untrained(module: nn.Module) -> dict[str, Tensor]:
    """Buffers, and parameters that are frozen."""
    frozen = {name: one for name, one in module.named_parameters() if not one.requires_grad}
    return {**frozen, **dict(module.named_buffers())}


def clipped_sum(
    module: nn.Module,
    loss: Loss,
    batch: Tensor | tuple[Tensor, ...],
    clip_norm: float,
    *,
    microbatch: int | None = None,
) -> tuple[list[Tensor], int]:
    r"""Sum of per-example gradients, each clipped to `clip_norm`: no noise, nothing private yet.

    .. math:: \sum_i g_i \min(1, C / \|g_i\|)

    Parameters
    ----------
    module : nn.Module
        Parameters that require a gradient count; it is left as it was.
    loss : callable
        `loss(module, *batch)` gives one number for every example.
    batch : Tensor or tuple of Tensor
        Examples on the first axis.
    clip_norm : float
        The Euclidean norm that no example's gradient exceeds.
    microbatch : int, optional
        At most so many examples at a time.

    Returns
    -------
    sums : list of Tensor
        In the order of the trained parameters.
    dropped : int
        How many examples were not finite, and contributed nothing. In-house only.

    Notes
    -----
    One example more or less moves the sums by at most `clip_norm`. They are raw: add noise.
    """
    where = "clipped_sum"
    bound = float(errors.positive(where, "clip_norm", clip_norm))
    if microbatch is not None:
        microbatch = errors.whole(where, "microbatch", microbatch, least=1)
    rows = checked_data(where, batch, module, least=0)
    made = clipper(where, module, loss, rows)
    flat, dropped = made.sums(rows, bound, microbatch)
    return made.views(flat), dropped


def checked_data(where: str, data: Any, module: nn.Module, *, least: int = 1) -> tuple[Tensor, ...]:
    """Tensors of equal length on the module's device."""
    tensors = flat_data(data)
    if not tensors or not all(isinstance(part, Tensor) and part.dim() for part in tensors):
        kinds = [type(part).__name__ for part in tensors]
        errors.refuse(where, "data", "a tensor or a tuple of tensors", kinds, "Convert them first.")
    lengths = [len(part) for part in tensors]
    if len(set(lengths)) > 1:
        errors.refuse(where, "data", "tensors of one length", lengths)
    if lengths[0] < least:
        raise errors.InvalidData(f"{where}: data must not be empty.")
    devices = {str(one.device) for one in (*tensors, *module.parameters())}
    if len(devices) > 1:
        remedy = "Move both to one device."
        errors.refuse(where, "data", "on the module's device", sorted(devices), remedy)
    return tensors


def refuse_structure(where: str, module: nn.Module) -> None:
    """What can be refused by looking at the layers."""
    for name, layer in module.named_modules():
        reason = _unfit_for_privacy(layer)
        if reason:
            shown = f"{type(layer).__name__} at {name or 'the top'}"
            errors.refuse(where, "module", reason[0], shown, reason[1])
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        errors.refuse(where, "module", "one with parameters that require a gradient", 0)
    kinds = {(str(p.dtype), str(p.device)) for p in trained}
    if len(kinds) > 1 or trained[0].dtype not in (torch.float32, torch.float64):
        condition = "of float32 or float64 parameters, all of one type on one device"
        errors.refuse(where, "module", condition, sorted(kinds))


def _unfit_for_privacy(layer: nn.Module) -> tuple[str, str] | None:
    if isinstance(layer, _BatchNorm):
        return "without batch normalisation", "Its statistics mix examples: use GroupNorm."
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
        return "without running statistics", "They carry data without noise: switch them off."
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        if layer.max_norm is not None:
            return "without max_norm", "It rewrites weights by looking at data: leave it out."
        if layer.scale_grad_by_freq:
            return "without scale_grad_by_freq", "It mixes examples: leave it out."
    return None


def _probe(made: Clipper, like: tuple[Tensor, ...]) -> None:
    """One example must not depend on the others, and book-keeping must agree with autograd."""
    generator = torch.Generator().manual_seed(_SEED)
    device = made.trained[0].device
    for scale in _SCALES:
        rows = tuple(_made_up(part, generator, _ROWS, scale) for part in like)
        with _same_draws(device), torch.enable_grad():
            losses = checked_losses(made.where, made.loss(made.module, *rows), _ROWS)
            reference = _reference(made, losses)
        with _same_draws(device):
            # Both ways must agree, as one record may send a batch the long way round.
            made.book_kept = made.book_kept and _agrees(made, rows, reference)
    with _same_draws(device):
        made.book_kept = _kept_apart(made, like, generator) and made.book_kept
    made.forget()


def _kept_apart(made: Clipper, like: tuple[Tensor, ...], generator: torch.Generator) -> bool:
    """Whether gradients of one row are the same alone and among others: many or few, near or far.

    Where its loss is not, the module is refused. Gradients that mix examples (a hook over the
    batch) do no harm where examples are differentiated one by one.
    """
    apart = True
    for scale in _SCALES:
        one = tuple(_made_up(part, generator, 1, scale) for part in like)
        alone = _seen_of(made, one, 0)
        for count, place in _COMPANY:
            rest = [_made_up(part, generator, count - 1, scale) for part in like]
            joined = tuple(
                torch.cat([others[:place], mine, others[place:]])
                for mine, others in zip(one, rest, strict=True)
            )
            among = _seen_of(made, joined, place)
            if not _alike(alone[:1], among[:1]):
                remedy = "It depends on the others: nothing bounds what one record changes."
                errors.refuse(made.where, "loss", "of each example alone", "a mixed one", remedy)
            apart = apart and _alike(alone, among)
    return apart


def _seen_of(made: Clipper, rows: tuple[Tensor, ...], place: int) -> list[Tensor]:
    """The loss of a row, and what arrives of the sum at its part of every recorded output."""
    count = len(rows[0])
    with Still():  # type: ignore[no-untyped-call]
        try:
            losses = made.forward(rows)
            arrived = made.backward(losses.sum())
        except Unfit:
            with torch.no_grad():
                return [checked_losses(made.where, made.loss(made.module, *rows), count)[place]]
        finally:
            made.forget()
    kept = [one for one in arrived if one is not None and one.dim() and len(one) == count]
    return [losses.detach()[place], *(one[place] for one in kept)]


def _alike(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=_slack(a), equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )


def _slack(values: Tensor) -> float:
    """For rounding, relative to the largest of them that is a number."""
    finite = values[torch.isfinite(values)]
    return 1e-5 * (1 + float(finite.abs().max())) if finite.numel() else 1e-5


def _reference(made: Clipper, losses: Tensor) -> Tensor:
    """Autograd's gradient of the summed loss; every trained parameter must have one."""
    found: list[Tensor | None] = [None] * len(made.trained)
    if losses.requires_grad:
        found = list(torch.autograd.grad(losses.sum(), made.trained, allow_unused=True))
    for name, gradient in zip(made.names, found, strict=True):
        if gradient is None:
            remedy = "Set requires_grad to False, or use it."
            errors.refuse(made.where, "module", "one whose loss uses every parameter", name, remedy)
    dense = [g.to_dense() if g.is_sparse else g for g in found if g is not None]
    return torch.cat([gradient.flatten() for gradient in dense])


def _agrees(made: Clipper, rows: tuple[Tensor, ...], reference: Tensor) -> bool:
    """Whether recorded outputs belong to examples row by row, and sums are autograd's."""
    flat = torch.zeros_like(reference)
    try:
        losses = made.forward(rows)
        if not bool(torch.isfinite(losses).all() & torch.isfinite(reference).all()):
            return True  # far out: such examples are dropped, and there is nothing to compare
        for i in range(_ROWS):
            for gradient in made.backward(losses[i], again=True):
                if gradient is not None and not _only_row(gradient, i):
                    return False
        made.accumulate(flat, losses, made.backward(losses.sum()), float("inf"))
    except Unfit:
        return False
    size = float(reference.abs().max())
    return torch.allclose(flat, reference, rtol=_AGREE, atol=_AGREE * size)


def _only_row(gradient: Tensor, row: int) -> bool:
    if gradient.dim() == 0 or len(gradient) != _ROWS:
        return False
    others = torch.cat([gradient[:row], gradient[row + 1 :]])
    return not bool(others.any())


def _made_up(
    like: Tensor, generator: torch.Generator, count: int = _ROWS, scale: float = 0.0
) -> Tensor:
    """Uniform in [0, 1), or normal of this scale; whole numbers are 0 or 1."""
    shape = (count, *like.shape[1:])
    if like.is_floating_point() and scale:
        rows = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    elif like.is_floating_point():
        rows = torch.rand(shape, generator=generator, dtype=torch.float64)
    else:
        rows = torch.randint(0, 2, shape, generator=generator)
    return rows.to(dtype=like.dtype, device=like.device)


class Still(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Random draws become constants, so that losses of batches of any size can be compared."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        found = func(*args, **(kwargs or {}))
        for kind, value in _STILL.items():
            if name.rstrip("_").removesuffix("_like") == kind:
                return found.fill_(value)
        return found


@contextmanager
def _same_draws(device: torch.device) -> Iterator[None]:
    """The module's own randomness (dropout) repeats, and is as before afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(_SEED)
        yield
