"""What went through the layers: hooks that keep inputs and the places of output gradients.

While a pass is recorded no parameter requires a gradient, so autograd computes none for weights:
only gradients at the layers' outputs are asked for. Flags and hooks are put back whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.private_training.layers import Rule, rule_of

Loss = Callable[..., Tensor]
"""`loss(module, *batch)`: one number for every example."""


class Unfit(Exception):
    """A layer was called in a way that cannot be book-kept; the whole module is differentiated."""


@dataclass(frozen=True)
class Call:
    """One call of one layer."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Tensor | None]
    edges: list[GradientEdge]
    versions: list[int]

    @property
    def slots(self) -> list[Any]:
        """Everything it was called with, in order."""
        return [*self.args, *self.kwargs.values()]

    def with_rows(self, rows: dict[int, Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with other values in some slots."""
        filled = [rows.get(i, one) for i, one in enumerate(self.slots)]
        place = len(self.args)
        return tuple(filled[:place]), dict(zip(self.kwargs, filled[place:], strict=True))

    def unchanged(self) -> bool:
        """Whether nothing was written into the inputs since."""
        return self.versions == _versions(self.slots)


@dataclass
class Site:
    """A layer whose gradients are computed by themselves: by a rule, or by `torch.func`."""

    name: str
    layer: nn.Module
    trained: dict[str, nn.Parameter]
    rule: Rule | None
    calls: list[Call] = field(default_factory=list)

    def keep(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        """The forward hook."""
        if torch.is_grad_enabled():
            output = self._differentiable(output)
            outputs = list(output) if isinstance(output, tuple | list) else [output]
            if not all(one is None or isinstance(one, Tensor) for one in outputs):
                raise Unfit(f"{self.name} returns something else than tensors")
            # The edge, not the tensor: what is written into an output later does not move it.
            edges = [get_gradient_edge(one) for one in outputs if one is not None]
            kept = outputs if self.rule is None else []
            versions = _versions([*args, *kwargs.values()])
            self.calls.append(Call(args, kwargs, kept, edges, versions))
        return output

    def _differentiable(self, output: Any) -> Any:
        """Make the output of a first layer the start of a graph, at no cost but one addition."""
        if isinstance(output, tuple | list):
            return type(output)(map(self._differentiable, output))
        if not isinstance(output, Tensor) or output.requires_grad:
            return output
        if not output.is_floating_point():
            raise Unfit(f"{self.name} returns integers")
        zero = torch.zeros((), dtype=output.dtype, device=output.device, requires_grad=True)
        # A layer with a rule has just made its output: nobody else holds it.
        return output + zero if self.rule is None else output.add_(zero)

    def pairs(self, gradients: Iterator[Tensor | None], count: int) -> list[tuple[Tensor, Tensor]]:
        """Input and output gradient of every call that reached the loss."""
        assert self.rule is not None
        found = []
        for call in self.calls:
            inputs = call.slots[0]
            gradient = next(gradients)
            if len(inputs) != count or not self.rule.fits(self.layer, inputs):
                raise Unfit(f"{self.name} is called with examples not on the first axis")
            if not call.unchanged():
                raise Unfit(f"the input of {self.name} is overwritten later")
            if gradient is not None:
                found.append((inputs.detach(), gradient))
        return found


def sites_of(module: nn.Module, trained: Sequence[nn.Parameter]) -> list[Site]:
    """Walk the tree: known kinds, else whatever owns parameters, with all below it."""
    wanted = set(map(id, trained))
    sites: list[Site] = []

    def visit(name: str, layer: nn.Module) -> None:
        rule = rule_of(layer)
        owns = any(id(parameter) in wanted for parameter in layer.parameters(recurse=False))
        if owns or (rule is not None):
            below = layer.named_parameters(remove_duplicate=False)
            mine = {key: p for key, p in below if id(p) in wanted}
            if mine:
                sites.append(Site(name or type(layer).__name__, layer, mine, rule))
            return
        for key, child in layer.named_children():
            visit(f"{name}.{key}".lstrip("."), child)

    visit("", module)
    return _untied(sites)


def _untied(sites: list[Site]) -> list[Site]:
    """A parameter of two layers has cross terms between them: both are written out."""
    unique = list({id(site.layer): site for site in sites}.values())
    seen: dict[int, int] = {}
    for site in unique:
        for key in set(map(id, site.trained.values())):
            seen[key] = seen.get(key, 0) + 1
    for site in unique:
        if any(seen[id(parameter)] > 1 for parameter in site.trained.values()):
            site.rule = None
    return unique


@contextmanager
def recorded(sites: Sequence[Site], trained: Sequence[nn.Parameter]) -> Iterator[None]:
    """Hooks on, gradients of parameters off; everything as before afterwards."""
    handles = []
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        for site in sites:
            site.calls = []
            handles.append(site.layer.register_forward_hook(site.keep, with_kwargs=True))
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for handle in handles:
            handle.remove()
        for parameter in trained:
            parameter.requires_grad_(True)


def _versions(values: list[Any]) -> list[int]:
    return [one._version for one in values if isinstance(one, Tensor)]
