"""Per-example gradients written out: of one layer from its kept inputs, or of a whole module.

For what no rule of `layers` knows. Exact for every differentiable module, and slower: memory grows
with examples times parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vjp, vmap

from tacit.private_training.recording import Call, Loss, Site, Unfit

PerExample = dict[int, Tensor]
"""By the parameter's id, the gradients of every example, (n, …)."""

_VMAP_CANNOT = (RuntimeError, ValueError, NotImplementedError, TypeError)
_MOST_ENTRIES = 1 << 25
_AGREE = 1e-3


def of_site(site: Site, gradients: Iterator[Tensor | None], count: int) -> PerExample:
    """Of one layer, summed over its calls; its hooks must be off."""
    found: PerExample = {}
    for call in site.calls:
        arrived = [None if one is None else next(gradients) for one in call.outputs]
        if all(gradient is None for gradient in arrived):
            continue
        if not call.unchanged():
            raise Unfit(f"the input of {site.name} is overwritten later")
        for name, value in _of_call(site, call, arrived, count).items():
            key = id(site.trained[name])
            found[key] = found[key] + value if key in found else value
    return found


def _of_call(site: Site, call: Call, arrived: list[Tensor | None], count: int) -> dict[str, Tensor]:
    """The pull-back through this layer alone, mapped over the examples."""
    used = [i for i, gradient in enumerate(arrived) if gradient is not None]
    outputs = [call.outputs[i] for i in used]
    if any(one is None or one.dim() == 0 or len(one) != count for one in outputs):
        raise Unfit(f"{site.name} returns examples not on the first axis")
    parameters = {name: parameter.detach() for name, parameter in site.trained.items()}
    rows = {i: one.detach() for i, one in enumerate(call.slots) if _has_rows(one, count)}

    def pull_back(rows: dict[int, Tensor], pulled: list[Tensor]) -> Any:
        args, kwargs = call.with_rows({i: row[None] for i, row in rows.items()})

        def forward(parameters: dict[str, Tensor]) -> list[Tensor]:
            output = functional_call(site.layer, parameters, args, kwargs)
            made = output if isinstance(output, tuple | list) else [output]
            return [made[i][0] for i in used]

        made, pull, *_ = vjp(forward, parameters)
        return pull(pulled)[0], made

    try:
        with _quiet():
            gradients, made = vmap(pull_back)(rows, [g for g in arrived if g is not None])
    except _VMAP_CANNOT:
        raise Unfit(f"{site.name} cannot be mapped over examples") from None
    # The examples one by one must give what they gave together: else an axis was misread.
    if not all(map(_agree, made, outputs)):
        raise Unfit(f"{site.name} does not treat examples one by one")
    return dict(gradients)


def of_module(
    module: nn.Module, loss: Loss, trained: Sequence[nn.Parameter], batch: tuple[Tensor, ...]
) -> Iterator[tuple[Tensor, PerExample]]:
    """Losses and gradients of a few examples at a time, of the module as a whole."""
    step = max(1, _MOST_ENTRIES // sum(parameter.numel() for parameter in trained))
    for start in range(0, len(batch[0]), step):
        some = tuple(part[start : start + step] for part in batch)
        try:
            yield _mapped(module, loss, trained, some)
        except _VMAP_CANNOT:
            yield _looped(module, loss, trained, some)


class _Total(nn.Module):
    """The loss as a module, so that `functional_call` can put parameters below it."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, *example: Tensor) -> Tensor:
        return self._loss(self.module, *(part[None] for part in example)).sum()


def _mapped(
    module: nn.Module, loss: Loss, trained: Sequence[nn.Parameter], batch: tuple[Tensor, ...]
) -> tuple[Tensor, PerExample]:
    total, wanted = _Total(module, loss), set(map(id, trained))
    named = {name: p for name, p in total.named_parameters() if id(p) in wanted}
    parameters = {name: parameter.detach() for name, parameter in named.items()}

    def of_one(parameters: dict[str, Tensor], *example: Tensor) -> Tensor:
        value = functional_call(total, parameters, example)
        assert isinstance(value, Tensor)
        return value

    dims = (None, *[0] * len(batch))
    mapped = vmap(grad_and_value(of_one), dims, randomness="different")
    with _quiet():
        gradients, losses = mapped(parameters, *batch)
    return losses.detach(), {id(p): gradients[name] for name, p in named.items()}


def _looped(
    module: nn.Module, loss: Loss, trained: Sequence[nn.Parameter], batch: tuple[Tensor, ...]
) -> tuple[Tensor, PerExample]:
    losses, rows = [], []
    with torch.inference_mode(False), torch.enable_grad():
        for i in range(len(batch[0])):
            value = loss(module, *(part[i : i + 1] for part in batch)).sum()
            found = torch.autograd.grad(value, list(trained), allow_unused=True)
            losses.append(value.detach())
            rows.append([_dense(g, p) for g, p in zip(found, trained, strict=True)])
    columns = map(torch.stack, zip(*rows, strict=True))
    return torch.stack(losses), {id(p): c for p, c in zip(trained, columns, strict=True)}


@contextmanager
def _quiet() -> Iterator[None]:
    """A missing batching rule is slow, not wrong: no need to say so at every step."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


def _dense(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros_like(parameter)
    return gradient.to_dense() if gradient.is_sparse else gradient


def _has_rows(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == count


def _agree(first: Tensor, second: Tensor | None) -> bool:
    assert second is not None
    size = second.detach().abs().nan_to_num(0, 0, 0).max() if second.numel() else 0
    return torch.allclose(
        first, second.detach(), rtol=_AGREE, atol=_AGREE * float(size), equal_nan=True
    )
