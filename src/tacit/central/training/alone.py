"""Every example differentiated alone: for modules whose graph is not proved to keep rows apart.

The gradient of *one* example is traced, with one row as the batch: what it computes is a function
of that row, as there is no other. Of the module only this list of torch's operators is left, and
`vmap` runs it on all slots. `vmap` maps each operator over rows by torch's own rules, so nothing of
the module is there to look across: no attribute, buffer, cache, counter, hook, routing or function
with a rule of its own for batches. What cannot be traced, or mapped, is refused beforehand.

Right for every differentiable module, and slower: memory grows with slots times parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, fx, nn
from torch.func import vmap

from tacit.central.training.tracing import Total, Unfit, gradient_graph, refuse_trapping, state_of

_MOST_ENTRIES = 1 << 25
_FORBIDDEN = ("resize", "as_strided", "set_", "record_stream")
_OVERWRITES = ("fill", "bernoulli", "uniform", "normal_functional", "exponential", "zero", "copy")


class Alone:
    """Losses and gradients of examples, each by itself."""

    def __init__(
        self, total: Total, trained: Sequence[nn.Parameter], example: Sequence[Tensor]
    ) -> None:
        self._state = list(state_of(total).values())
        self._made = gradient_graph(total, trained, example)
        _refuse_unknown(self._made.graph)

    @staticmethod
    def block(trained: Sequence[nn.Parameter], most: int) -> int:
        """Examples at a time."""
        return max(1, min(most, _MOST_ENTRIES // sum(one.numel() for one in trained)))

    @torch.no_grad()
    def run(self, batch: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Losses (n,), and gradients (n, …) in the order of the trained parameters."""
        state = [one.detach() for one in self._state]

        def of_one(*example: Tensor) -> list[Tensor]:
            found: list[Tensor] = self._made(*state, *(part[None] for part in example))
            return found

        with torch.inference_mode(False), quiet():
            losses, *gradients = vmap(of_one, randomness="different")(*batch)
        return losses, [dense(one) for one in gradients]


def _refuse_unknown(graph: fx.Graph) -> None:
    """Memory that nobody has written could hold anybody's rows; whole divisions may trap."""
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            name = target.overloadpacket.__name__
            refuse_trapping(node, name)
            known = target.namespace in ("aten", "prims") and not target._schema.is_mutable
            if "empty" in name:
                known = known and all(_overwrites(user) for user in node.users)
            if known and not any(word in name for word in _FORBIDDEN):
                continue
        elif getattr(target, "__name__", "") == "getitem":
            continue
        raise Unfit(f"{target} is no operator that can be mapped over examples")


def _overwrites(node: fx.Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet is not None and packet.__name__ in _OVERWRITES


def dense(value: Tensor) -> Tensor:
    """Memory of its own for every number, so that rows can be blanked in place."""
    return value if value.numel() == 0 or 0 not in value.stride() else value.contiguous()


@contextmanager
def quiet() -> Iterator[None]:
    """A missing batching rule is slow, not wrong: no need to say so at every step."""
    say: Callable[[bool], None] = torch._C._functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]
    say(False)
    try:
        yield
    finally:
        say(True)
