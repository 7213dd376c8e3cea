"""Look-ups of public indices in trained tables, such as positions and kinds of tokens.

Their result is the same for all rows, so it is a public value that depends on trained parameters,
and its gradients would be written out: examples times positions times width, and then once more for
the whole table. A look-up that is made for every row is book-kept like any other. So indices with
one row are repeated for all rows, where only broadcasting operators use the result: what they give
is the same.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx

from tacit.central.training.operators import argument, name_of


def looked_up_by_row(
    graph: fx.Graph, tables: Collection[fx.Node], rows: Collection[fx.Node]
) -> None:
    """Repeat public indices (1, …) into these tables for all rows."""
    count = next(iter(rows)).meta["val"].shape[0]
    with_rows = set(rows)
    for node in list(graph.nodes):
        if any(one in with_rows for one in node.all_input_nodes):
            with_rows.add(node)
        elif _looks_up(node, tables) and _broadcast(node, count):
            _repeat(graph, node, count)


def _looks_up(node: fx.Node, tables: Collection[fx.Node]) -> bool:
    return name_of(node) == "embedding" and argument(node, "weight") in tables


def _broadcast(node: fx.Node, count: int) -> bool:
    """Check whether all users would give the same if the result were repeated for all rows."""
    shape = node.meta["val"].shape
    return (
        len(shape) == 3
        and shape[0] == 1 != count
        and bool(node.users)
        and all(
            isinstance(user.target, torch._ops.OpOverload)
            and torch.Tag.pointwise in user.target.tags
            and user.meta["val"].shape == (count, *shape[1:])
            for user in node.users
        )
    )


def _repeat(graph: fx.Graph, node: fx.Node, count: int) -> None:
    indices = argument(node, "indices")
    sizes = [count, *indices.meta["val"].shape[1:]]
    with graph.inserting_before(node):
        repeated = graph.call_function(torch.ops.aten.expand.default, (indices, sizes))
    repeated.meta = {**indices.meta, "val": indices.meta["val"].expand(sizes)}
    node.replace_input_with(indices, repeated)
    node.meta = {**node.meta, "val": node.meta["val"].expand(count, *node.meta["val"].shape[1:])}
