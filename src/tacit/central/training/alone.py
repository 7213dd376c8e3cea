"""Gradients of each example alone, for modules whose graph is not proved to keep rows apart.

The gradient of *one* example is traced, with one row as the batch, so that it is a function of that
row alone. Only this list of torch's operators remains of the module, and `vmap` runs it on all
slots. So nothing of the module can look across rows: no attribute, buffer, cache, counter, hook,
routing or function with its own rule for batches. Torch's own rules cannot either: only operators
that they are known to keep apart are admitted (`mapped`). Anything that cannot be traced or mapped
is refused beforehand.

This is correct for every differentiable module, but slower: memory grows with slots times
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import vmap

from tacit.central.training.mapped import refuse_crossing
from tacit.central.training.operators import blanks_may_raise
from tacit.central.training.tracing import Total, gradient_graph, state_of

_MOST_ENTRIES = 1 << 25


class Alone:
    """Losses and gradients of examples, each by itself."""

    def __init__(
        self, total: Total, trained: Sequence[nn.Parameter], example: Sequence[Tensor]
    ) -> None:
        self._state = list(state_of(total).values())
        self._made = gradient_graph(total, trained, example)
        inputs = [node for node in self._made.graph.nodes if node.op == "placeholder"]
        mapped = refuse_crossing(self._made.graph, inputs[len(self._state) :])
        wanted = {id(one) for one in trained}
        moving = [n for n, one in zip(inputs, self._state, strict=False) if id(one) in wanted]
        self.blanks_may_raise = blanks_may_raise(self._made.graph, moving, mapped)

    @staticmethod
    def block(trained: Sequence[nn.Parameter], most: int) -> int:
        """Return the number of examples to differentiate at a time."""
        return max(1, min(most, _MOST_ENTRIES // sum(one.numel() for one in trained)))

    @torch.no_grad()
    def run(self, batch: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Compute losses (n,), and gradients (n, …) in the order of the trained parameters."""
        state = [one.detach() for one in self._state]

        def of_one(*example: Tensor) -> list[Tensor]:
            results: list[Tensor] = self._made(*state, *(part[None] for part in example))
            return results

        with torch.inference_mode(False), quiet():
            losses, *gradients = vmap(of_one, randomness="different")(*batch)
        return losses, [dense(one) for one in gradients]


def dense(value: Tensor) -> Tensor:
    """Give every number its own memory, so that rows can be blanked in place."""
    return value if value.numel() == 0 or 0 not in value.stride() else value.contiguous()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings about missing batching rules, which are slow but not wrong."""
    say: Callable[[bool], None] = torch._C._functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]
    say(False)
    try:
        yield
    finally:
        say(True)
