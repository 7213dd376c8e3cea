"""Properties of torch's operators beyond shapes: which of them draw, and which may raise.

Two things must not depend on one row: how many random numbers a pass draws, because all other rows
would then get different ones; and whether a blank row raises, because a block would then be zero
depending on whether it holds a blank.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from tacit.central.training.tracing import Unfit

_FIXED_DRAWS = frozenset(
    (
        *("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm"),
        *("bernoulli", "uniform", "normal", "normal_functional", "exponential", "cauchy"),
        *("geometric", "log_normal", "dropout", "native_dropout", "alpha_dropout"),
        *("feature_dropout", "feature_alpha_dropout", "scaled_dot_product_attention"),
    )
)
"""Random operators whose number of draws depends only on their shape."""

_EVERYTHING = "*"

_CHECKED = {
    name: operand
    for operand, names in {
        "indices": "embedding embedding_dense_backward index index_put take_along_dim "
        "value_selecting_reduction_backward",
        "index": "gather scatter scatter_add index_select index_add",
        "target": "cross_entropy_loss nll_loss nll_loss_nd nll_loss_forward nll_loss_backward "
        "nll_loss2d_forward nll_loss2d_backward",
        _EVERYTHING: "binary_cross_entropy normal",
    }.items()
    for name in names.split()
}
"""The operand whose values an operator checks, and for which it raises."""


def name_of(node: fx.Node) -> str:
    """Return the operator's name without its overload, or that of a Python function."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet))


def argument(node: fx.Node, name: str) -> Any:
    """Return an argument of an operator by its name, or its default."""
    for place, one in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if one.name == name:
            if place < len(node.args):
                return node.args[place]
            return node.kwargs.get(name, one.default_value)
    raise Unfit(f"{name_of(node)} has no argument {name}")


def is_random(node: fx.Node) -> bool:
    """Check whether an operator may draw from the generator."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    taken = any("Generator" in str(one.type) for one in node.target._schema.arguments)
    return taken or torch.Tag.nondeterministic_seeded in node.target.tags


def refuse_draws_by_value(node: fx.Node) -> None:
    """Refuse random operators whose number of draws depends on the values that they get.

    Poisson and gamma variates are drawn by rejection, and a randomized ReLU draws only for negative
    numbers: one row would shift all draws after its own.
    """
    if not is_random(node):
        return
    name = name_of(node)
    still = name == "rrelu" and argument(node, "training") is False
    if not still and (name not in _FIXED_DRAWS or "Tensor" in _bounds(node, name)):
        raise Unfit(f"{name} may draw a number of times that depends on values")


def _bounds(node: fx.Node, name: str) -> str:
    """Return the overload of random integers: if their bounds are tensors, values are read."""
    assert isinstance(node.target, torch._ops.OpOverload)
    return node.target._overloadname if name == "randint_like" else ""


def blanks_may_raise(
    graph: fx.Graph, trained: Collection[fx.Node], apart: Collection[fx.Node]
) -> bool:
    """Check whether blank rows may raise at some weights or draws, and not at others.

    `apart` are the nodes that depend on rows. If what an operator checks depends neither on trained
    parameters nor on draws, it is the same for a blank row in every step, and was tried before the
    first one. An operator that does not depend on rows raises whoever is there.
    """
    moving = set(trained)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node in apart and any(one in moving for one in _checked_by(node)):
            return True
        if is_random(node) or any(one in moving for one in node.all_input_nodes):
            moving.add(node)
    return False


def _checked_by(node: fx.Node) -> list[fx.Node]:
    name = name_of(node)
    if name == "bernoulli":  # `self` holds the probability unless another argument does
        kind: str | None = {"default": "self", "Tensor": "p"}.get(node.target._overloadname)  # type: ignore[union-attr]
    elif "linalg" in name and name != "linalg_vector_norm":
        kind = _EVERYTHING
    else:
        kind = _CHECKED.get(name)
    if kind is None:
        return []
    if kind == _EVERYTHING:
        return node.all_input_nodes
    given = argument(node, kind)
    parts = given if isinstance(given, list | tuple) else [given]
    return [one for one in parts if isinstance(one, fx.Node)]
