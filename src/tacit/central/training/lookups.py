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

SAME = ("to", "contiguous", "alias")
"""Operators that give what they get, in another type or layout."""


def looked_up_by_row(
    graph: fx.Graph, tables: Collection[fx.Node], rows: Collection[fx.Node]
) -> None:
    """Repeat public indices (1, …) into these tables for all rows."""
    count = next(iter(rows)).meta["val"].shape[0]
    with_rows = set(rows)
    for node in list(graph.nodes):
        if any(one in with_rows for one in node.all_input_nodes):
            with_rows.add(node)
        elif name_of(node) == "embedding" and argument(node, "weight") in tables:
            _repeat(graph, node, _until_broadcast(node, count), count)


def _until_broadcast(node: fx.Node, count: int) -> list[fx.Node]:
    """List nodes that may be repeated: all users would give the same. None if one would not."""
    shape = node.meta["val"].shape
    if len(shape) != 3 or shape[0] != 1 or count == 1 or not node.users:
        return []
    found = [node]
    for user in node.users:
        if not isinstance(user.target, torch._ops.OpOverload):
            return []
        broadcast = torch.Tag.pointwise in user.target.tags
        if broadcast and user.meta["val"].shape == (count, *shape[1:]):
            continue
        further = _until_broadcast(user, count) if name_of(user) in SAME else []
        if not further:
            return []
        found += further
    return found


def _repeat(graph: fx.Graph, node: fx.Node, repeated: list[fx.Node], count: int) -> None:
    if not repeated:
        return
    indices = argument(node, "indices")
    sizes = [count, *indices.meta["val"].shape[1:]]
    with graph.inserting_before(node):
        wide = graph.call_function(torch.ops.aten.expand.default, (indices, sizes))
    wide.meta = {**indices.meta, "val": indices.meta["val"].expand(sizes)}
    node.replace_input_with(indices, wide)
    for one in repeated:
        value = one.meta["val"]
        one.meta = {**one.meta, "val": value.expand(count, *value.shape[1:])}
