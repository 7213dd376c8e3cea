"""Checks on a module and its loss with made-up rows, before any record is read.

Everything here runs on rows that do not depend on the data: floats uniform in [0, 1), integers 0
or 1, of the data's shapes and types. So its decisions and refusals reveal nothing about a record.

Privacy does not rest on these checks, but on the structure of what runs (`rowwise`, `alone`). The
checks look for modules that this structure would misrepresent: whose gradients are not those of the
graph, or whose losses depend on the batch, which clipping per example cannot train.
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

from tacit.central.training.alone import Alone, quiet
from tacit.central.training.bookkeeping import Book
from tacit.central.training.clipping import BLOCK, Clipper, Way, checked_losses, flat_data
from tacit.central.training.layers import SUMMED
from tacit.central.training.precision import whole_products
from tacit.central.training.scaling import Clipped
from tacit.central.training.tracing import Loss, Total, Unfit, attributes_kept
from tacit.privacy import errors

_ROWS = 3
_STILL = {"rand": 0.3, "randn": 0.5, "bernoulli": 1.0, "uniform": 0.3, "normal": 0.5}
_SCALES = (0.0, 1.0, 100.0, 1e4)
_SEED = 20260
_CHECKPOINTING = "Gradient checkpointing needs use_reentrant=False."
_AGREE = 1e-3
_MOST = 256
"""Largest number of rows of a batch that is compared with its examples alone."""


def clipper(where: str, module: nn.Module, loss: Loss, like: tuple[Tensor, ...]) -> Clipper:
    """Build a `Clipper` that checks its module on rows like these, at every size it is used for."""
    refuse_structure(where, module)
    shapes = tuple(part[:0] for part in like)
    usual = min(max(len(like[0]), 1), BLOCK)

    def find(step: int) -> Way:
        with _checked(made):
            return _way(made, shapes, step)

    made = Clipper(where, module, loss, find, usual)
    with _checked(made):
        _usable(made, shapes)
    return made


@contextmanager
def _checked(made: Clipper) -> Iterator[None]:
    """Restore the module after passes on made-up rows; refuse a module that they change."""
    with attributes_kept(made.module), state_kept(made.module) as before:
        with _same_draws(made.trained[0].device), whole_products():
            yield
        after = _untrained(made.module)
        for name, old in before.items():
            if name not in after or not torch.equal(after[name], old):
                remedy = "State that depends on the data would be released without noise."
                errors.refuse(made.where, "module", "unchanged by a forward pass", name, remedy)


@contextmanager
def state_kept(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Undo what a pass writes into untrained state, which has no noise."""
    before = {name: one.detach().clone() for name, one in _untrained(module).items()}
    try:
        yield before
    finally:
        for name, one in _untrained(module).items():
            if name in before:
                one.data = before[name].clone()


def _untrained(module: nn.Module) -> dict[str, Tensor]:
    """Return buffers and frozen parameters."""
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
    r"""Sum per-example gradients, each clipped to `clip_norm`. Without noise, it is not private.

    .. math:: \sum_i g_i \min(1, C / \|g_i\|)

    Parameters
    ----------
    module : nn.Module
        The gradients are those of parameters that require one. The module is not changed.
    loss : callable
        `loss(module, *batch)` gives one number per example.
    batch : Tensor or tuple of Tensor
        Examples on the first axis.
    clip_norm : float
        Largest Euclidean norm of an example's gradient.
    microbatch : int, optional
        Largest number of examples at a time.

    Returns
    -------
    sums : list of Tensor
        One tensor per trained parameter, in their order.
    dropped : int
        Number of examples that were not finite and contributed nothing. In-house only.

    Notes
    -----
    Blanking one example moves the sums by at most `clip_norm`. Adding or removing one may move them
    further, because kernels round other rows differently in a batch of another size. The sums are
    raw: add noise.
    """
    where = "clipped_sum"
    bound = float(errors.positive(where, "clip_norm", clip_norm))
    if microbatch is not None:
        microbatch = errors.whole(where, "microbatch", microbatch, least=1)
    rows = checked_data(where, batch, module, least=0)
    made = clipper(where, module, loss, rows)
    made.prepare(len(rows[0]), microbatch)
    flat, dropped = made.sums(tuple(part.clone() for part in rows), bound, microbatch)
    return made.views(flat), dropped


def checked_data(where: str, data: Any, module: nn.Module, *, least: int = 1) -> tuple[Tensor, ...]:
    """Check that data are tensors of equal length on the module's device."""
    tensors = flat_data(data)
    if not tensors or not all(isinstance(part, Tensor) and part.dim() for part in tensors):
        given = [data] if isinstance(data, dict) else tensors
        kinds = [type(part).__name__ for part in given]
        remedy = "Put records on the first axis of tensors; the loss may build the module's input."
        errors.refuse(where, "data", "a tensor or a tuple of tensors", kinds, remedy)
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
    """Refuse modules whose layers are known not to work."""
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


def _usable(made: Clipper, like: tuple[Tensor, ...]) -> None:
    """Check that there is one loss per example, and that the losses use every parameter."""
    generator = torch.Generator().manual_seed(_SEED)
    for scale in _SCALES:
        rows = tuple(_made_up(part, generator, _ROWS, scale) for part in like)
        with torch.enable_grad():
            losses = checked_losses(made.where, made.loss(made.module, *rows), _ROWS)
            _reference(made, losses)
        with Still(), torch.no_grad():  # type: ignore[no-untyped-call]
            sizes = [made.loss(made.module, *(part[:n] for part in rows)) for n in (2, _ROWS)]
        if not _alike([sizes[0]], [sizes[1][:2]]):
            _refuse_mixed(made)


def _refuse_mixed(made: Clipper) -> None:
    remedy = (
        "The loss of one example depends on the others, so nothing bounds what one record changes. "
        "Keep records on the first axis (batch_first=True), and let no layer mix them."
    )
    errors.refuse(made.where, "loss", "of each example alone", "a mixed one", remedy)


def _way(made: Clipper, like: tuple[Tensor, ...], step: int) -> Way:
    """Choose book-keeping if it is proved and agrees with autograd, else each example alone."""
    total, generator = Total(made.module, made.loss), torch.Generator().manual_seed(_SEED)
    try:
        rows = tuple(_made_up(part, generator, step) for part in like)
        book = Book(total, made.trained, rows)
        if _agrees(made, book, like, step):
            _try_blanks(made, book, like, step)
            return book
    except Unfit:
        pass
    count = Alone.block(made.trained, min(step, SUMMED))
    try:
        rows = tuple(_made_up(part, generator, count) for part in like)
        alone = Alone(total, made.trained, tuple(part[:1] for part in rows))
        alone.run(tuple(torch.zeros_like(part) for part in rows))
        _refuse_company(made, alone, like, step)
    except errors.TacitError:
        raise
    except Exception as error:  # traced, but it cannot be mapped; the rows are made up
        reason = str(error) if isinstance(error, Unfit) else _first_line(error)
        remedy = (
            "Use torch's operators, without reading values (item, numpy, if) or writing state. "
            "Instead of pack_padded_sequence, which reads lengths, run on padded rows and mask."
        )
        condition = "one whose gradient of one example can be traced and mapped"
        errors.refuse(made.where, "module", condition, reason, remedy)
    return alone


def _try_blanks(made: Clipper, book: Book, like: tuple[Tensor, ...], step: int) -> None:
    """Refuse a module that raises on blanks, which fill the empty slots."""
    blank = tuple(torch.zeros_like(_made_up(part, torch.Generator(), step)) for part in like)
    nobody = torch.zeros(step, dtype=torch.bool, device=made.trained[0].device)
    flat = torch.zeros(sum(one.numel() for one in made.trained), dtype=made.trained[0].dtype)
    try:
        made.book(book, flat.to(nobody.device), blank, nobody, Clipped((1.0,)))
    except Exception as error:  # the rows are made up
        remedy = "Rows of zeros fill a batch: the module and its loss must accept them."
        condition = "one that can be evaluated on rows of zeros"
        errors.refuse(made.where, "module", condition, _first_line(error), remedy)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:90]}"


def _refuse_company(made: Clipper, alone: Alone, like: tuple[Tensor, ...], step: int) -> None:
    """Refuse losses that differ in a batch and alone: they have no gradient per example.

    A loss that hides this here is still differentiated alone.
    """
    generator = torch.Generator().manual_seed(_SEED + 1)
    count = min(max(step, _ROWS + 1), _MOST)
    block = Alone.block(made.trained, count)
    for scale in _SCALES:
        rows = tuple(_made_up(part, generator, count, scale) for part in like)
        with Still(), torch.no_grad():  # type: ignore[no-untyped-call]
            together = checked_losses(made.where, made.loss(made.module, *rows), count)
            starts = range(0, count, block)
            parts = [alone.run([part[at : at + block] for part in rows])[0] for at in starts]
        if not _alike([torch.cat(parts)], [together]):
            _refuse_mixed(made)


def _alike(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=_slack(a), equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )


def _slack(values: Tensor) -> float:
    """Return a tolerance for rounding, relative to the largest finite value."""
    finite = values[torch.isfinite(values)]
    return 1e-5 * (1 + float(finite.abs().max())) if finite.numel() else 1e-5


def _reference(made: Clipper, losses: Tensor) -> Tensor:
    """Compute autograd's gradient of the summed loss; every trained parameter must have one."""
    gradients: list[Tensor | None] = [None] * len(made.trained)
    if losses.requires_grad:
        try:
            gradients = list(torch.autograd.grad(losses.sum(), made.trained, allow_unused=True))
        except RuntimeError as error:  # the rows are made up
            condition = "one that torch.autograd.grad can differentiate"
            errors.refuse(made.where, "module", condition, _first_line(error), _CHECKPOINTING)
    for name, gradient in zip(made.names, gradients, strict=True):
        if gradient is None:
            remedy = f"Set requires_grad to False, or use it. {_CHECKPOINTING}"
            errors.refuse(made.where, "module", "one whose loss uses every parameter", name, remedy)
    dense = [g.to_dense() if g.is_sparse else g for g in gradients if g is not None]
    return torch.cat([gradient.flatten() for gradient in dense])


def _agrees(made: Clipper, book: Book, like: tuple[Tensor, ...], step: int) -> bool:
    """Check whether unclipped sums, and norms, agree with autograd on the module itself."""
    generator = torch.Generator().manual_seed(_SEED)
    there = torch.ones(step, dtype=torch.bool, device=made.trained[0].device)
    compared: list[tuple[Tensor, ...]] = []
    for scale in _SCALES:
        rows = tuple(_made_up(part, generator, step, scale) for part in like)
        with _same_draws(there.device), torch.enable_grad():
            losses = checked_losses(made.where, made.loss(made.module, *rows), step)
            reference = _reference(made, losses)
        if not bool(torch.isfinite(losses).all() & torch.isfinite(reference).all()):
            continue  # such extreme examples are dropped: there is nothing to compare
        flat = torch.zeros_like(reference)
        try:
            with _same_draws(there.device), quiet():
                made.book(book, flat, rows, there, Clipped((float("inf"),)))
        except (RuntimeError, ValueError, NotImplementedError, TypeError):
            return False
        size = float(reference.abs().max())
        if not torch.allclose(flat, reference, rtol=_AGREE, atol=_AGREE * size):
            return False
        compared.append(rows)
    return all(_norms_agree(made, book, rows) for rows in compared)


def _norms_agree(made: Clipper, book: Book, rows: tuple[Tensor, ...]) -> bool:
    """Check that norms of a few examples are not below autograd's on each of them alone.

    Sums can agree where norms do not. Norms are rounded up, so they may be larger.
    """
    with Still(), quiet():  # type: ignore[no-untyped-call]
        _, squared, _, _ = made.measured(book, rows)
        try:
            with torch.enable_grad():
                alone = [
                    made.loss(made.module, *(part[i : i + 1] for part in rows)).sum()
                    for i in range(min(_ROWS, len(rows[0])))
                ]
                true = torch.stack([_reference(made, one).double().norm() for one in alone])
        except (RuntimeError, ValueError, IndexError):
            return True  # it cannot run on one row: there is nothing to compare with
    norms = squared[0, : len(true)].sqrt()
    return bool((norms >= true * (1 - _AGREE) - _AGREE * true.max()).all())


def _made_up(
    like: Tensor, generator: torch.Generator, count: int = _ROWS, scale: float = 0.0
) -> Tensor:
    """Make rows uniform in [0, 1), or normal with this scale; integers are 0 or 1."""
    shape = (count, *like.shape[1:])
    if like.is_floating_point() and scale:
        rows = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    elif like.is_floating_point():
        rows = torch.rand(shape, generator=generator, dtype=torch.float64)
    else:
        rows = torch.randint(0, 2, shape, generator=generator)
    return rows.to(dtype=like.dtype, device=like.device)


class Still(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which random draws are constants, to compare losses of batches of any size."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        result = func(*args, **(kwargs or {}))
        for kind, value in _STILL.items():
            if name.rstrip("_").removesuffix("_like") == kind:
                return result.fill_(value)
        return result


@contextmanager
def _same_draws(device: torch.device) -> Iterator[None]:
    """Repeat the module's own random draws (dropout), and restore the generator afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(_SEED)
        yield
