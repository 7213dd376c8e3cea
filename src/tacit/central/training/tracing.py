"""Traces of a module and its loss: a graph of operators that is inspected, and run in its place.

Python runs once, on fake tensors, which have a shape and no values: what it reads, keeps, counts or
decides cannot depend on a record, and is gone when records come. What remains is a graph of torch's
operators (aten) at one fixed shape, without writes: in-place operators become their functional
siblings, or the graph is not used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call, functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.central.training.precision import whole_products
from tacit.central.training.recurrent import DEFINITIONS

Loss = Callable[..., Tensor]
"""`loss(module, *batch)` gives one number per example."""


class Unfit(Exception):
    """A module cannot be handled in this way; the message says why in a few words."""


class Total(nn.Module):
    """The loss as a module, so that `functional_call` can replace its tensors."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, *batch: Tensor) -> Tensor:
        return self._loss(self.module, *batch)


def state_of(total: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers: the inputs of a graph that precede the batch."""
    return {**dict(total.named_parameters()), **dict(total.named_buffers())}


def losses_graph(total: Total, batch: Sequence[Tensor]) -> fx.GraphModule:
    """Trace the losses of a batch, in operators as a user calls them (`linear`, not `addmm`)."""
    names = list(state_of(total))

    def losses(*flat: Tensor) -> Any:
        state = dict(zip(names, flat, strict=False))
        return _checked(functional_call(total, state, flat[len(names) :]), len(batch[0]))

    return _traced(total, losses, batch, pre_dispatch=True)


def gradient_graph(
    total: Total, trained: Sequence[Tensor], example: Sequence[Tensor]
) -> fx.GraphModule:
    """Trace loss and gradients of one example, with backward pass, hooks and custom functions."""
    state = state_of(total)
    wanted = [list(map(id, state.values())).index(id(one)) for one in trained]

    def joint(*flat: Tensor) -> list[Tensor]:
        values = [one.detach() for one in flat]
        leaves = [values[i].requires_grad_() for i in wanted]
        tensors = dict(zip(state, values, strict=False))
        with torch.enable_grad():
            loss = _checked(functional_call(total, tensors, tuple(values[len(state) :])), 1).sum()
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        dense = [
            torch.zeros_like(leaf) if one is None else one.to_dense() if one.is_sparse else one
            for one, leaf in zip(gradients, leaves, strict=True)
        ]
        return [loss.detach(), *dense]

    # Attention and recurrent cells become plain products, which `vmap` can map.
    with sdpa_kernel(SDPBackend.MATH), _plain_cells():
        return _mappable(_traced(total, joint, example, pre_dispatch=False))


def outputs_graph(module: nn.Module, row: Tensor) -> fx.GraphModule:
    """Trace a module's output for one row as the batch; inputs are its state, then the row."""
    names = list(state_of(module))

    def outputs(*flat: Tensor) -> Any:
        with torch.no_grad():
            output = functional_call(module, dict(zip(names, flat, strict=False)), flat[-1:])
        if not isinstance(output, Tensor) or output.shape[:1] != (1,):
            raise Unfit("its outputs have no axis of rows")
        return output

    with sdpa_kernel(SDPBackend.MATH), _plain_cells():
        return _mappable(_traced(module, outputs, [row], pre_dispatch=False))


def _mappable(made: fx.GraphModule) -> fx.GraphModule:
    """Replace views by reshapes: mapped values may have other strides than traced ones."""
    for node in made.graph.nodes:
        if node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
            node.target = torch.ops.aten.reshape.default
    made.recompile()
    return made


def _as_written() -> AbstractContextManager[Any]:
    """Run compiled parts uncompiled, without importing the compiler: that takes seconds."""
    compiler = sys.modules.get("torch._dynamo")
    if compiler is None:
        return nullcontext()
    made: AbstractContextManager[Any] = compiler.config.patch(error_on_nested_fx_trace=False)
    return made


@contextmanager
def _plain_cells() -> Iterator[None]:
    """Trace recurrent layers cell by cell, without oneDNN's and cuDNN's operators for them."""
    enabled = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_cudnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled[0])
        torch._C._set_cudnn_enabled(enabled[1])


def _traced(
    total: nn.Module, function: Callable[..., Any], batch: Sequence[Tensor], *, pre_dispatch: bool
) -> fx.GraphModule:
    tracer = make_fx(
        function,
        decomposition_table=DEFINITIONS if pre_dispatch else None,
        tracing_mode="fake",
        pre_dispatch=pre_dispatch,
        _allow_non_fake_inputs=True,
    )
    try:
        # Fake tensors that Python keeps must not outlive the trace.
        with (
            attributes_kept(total),
            _as_written(),
            torch.inference_mode(False),
            torch.enable_grad(),
            whole_products(),
        ):
            made = tracer(*state_of(total).values(), *batch)
    except Unfit:
        raise
    except Exception as error:  # whatever Python does when it cannot see values
        raise Unfit(_first_words(error)) from error
    if not pre_dispatch:
        made = _functional(made, [*state_of(total).values(), *batch])
    made.graph.set_codegen(fx.graph.CodeGen())
    _without_writes(made.graph)
    made.recompile()
    return made


def _functional(made: fx.GraphModule, inputs: Sequence[Tensor]) -> fx.GraphModule:
    """Remove writes into the graph's own memory; writes into inputs stay, and are refused."""
    if not any(_writes(node) for node in made.graph.nodes):
        return made
    try:
        with torch.no_grad():
            plain = functionalize(made, remove="mutations")
            return make_fx(plain, tracing_mode="fake", _allow_non_fake_inputs=True)(
                *(one.detach() for one in inputs)
            )
    except Exception as error:
        raise Unfit(_first_words(error)) from error


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


@contextmanager
def attributes_kept(module: nn.Module) -> Iterator[None]:
    """Restore the attributes of all layers that a pass has set."""
    kept = [(layer, dict(vars(layer))) for layer in module.modules()]
    registered = ("_parameters", "_buffers", "_modules")
    inner = [{name: dict(before[name]) for name in registered} for _, before in kept]
    try:
        yield
    finally:
        for (layer, before), entries in zip(kept, inner, strict=True):
            vars(layer).clear()
            vars(layer).update(before)
            for name in registered:
                now = vars(layer)[name]
                now.clear()
                now.update(entries[name])


def _without_writes(graph: fx.Graph) -> None:
    """Replace x.relu_() by relu(x), if nothing else can see the memory of x."""
    for node in list(graph.nodes):
        if not _writes(node):
            continue
        schema = node.target._schema
        target, name = node.args[0] if node.args else None, schema.name.split("::")[1]
        if name == "detach_":  # writes no memory
            node.target = torch.ops.aten.detach.default
            continue
        if not isinstance(target, fx.Node) or not _is_fresh(target) or not name.endswith("_"):
            raise Unfit(f"{name} writes into memory that is used elsewhere")
        packet = getattr(torch.ops.aten, name[:-1], None)
        sibling = getattr(packet, schema.overload_name or "default", None)
        if sibling is None:
            raise Unfit(f"{name} has no form without writes")
        node.target = sibling


def _is_fresh(node: fx.Node) -> bool:
    """Check whether an operator has just made this tensor, and nothing has a view of it."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target.overloadpacket.__name__
    makes = torch.Tag.pointwise in node.target.tags or name in _MAKERS
    return makes and not any(map(_may_be_view, node.users))


def _may_be_view(user: fx.Node) -> bool:
    if not isinstance(user.target, torch._ops.OpOverload):
        return user.op == "call_function"
    schema = user.target._schema
    return any(one.alias_info is not None for one in schema.returns) and not schema.is_mutable


_MAKERS = frozenset(
    (
        *("linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "embedding", "clone", "copy"),
        *("conv1d", "conv2d", "conv3d", "convolution", "cat", "stack", "masked_fill", "scatter"),
        *("layer_norm", "group_norm", "instance_norm", "native_layer_norm", "index_put"),
        *("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "fill", "zero"),
    )
)


def refuse_trapping(node: fx.Node, name: str) -> None:
    """Refuse integer division unless the divisor is a constant other than 0 and −1.

    The smallest integer divided by −1 overflows, and on some processors that ends the process.
    """
    made = node.meta.get("val")
    if name not in _WHOLE_DIVISIONS or not isinstance(made, Tensor):
        return
    if made.dtype.is_floating_point or made.dtype.is_complex:
        return
    divisor = node.args[1] if len(node.args) > 1 else None
    if name in ("gcd", "lcm") or not isinstance(divisor, int) or divisor in (0, -1):
        raise Unfit(f"{name} may divide whole numbers by zero or minus one")


_WHOLE_DIVISIONS = frozenset(
    ("div", "divide", "floor_divide", "remainder", "fmod", "gcd", "lcm", "__mod__")
)


def _checked(losses: Any, count: int) -> Tensor:
    if not isinstance(losses, Tensor) or losses.shape != (count,):
        raise Unfit("its losses are not one number per row")
    return losses


def _first_words(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:90]}" if text else type(error).__name__
