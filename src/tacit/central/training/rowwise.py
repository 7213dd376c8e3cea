r"""A proof, node by node, that a graph of losses keeps its examples apart and in place.

Every value of the graph is *public* (it depends only on weights, constants and random draws), or
has *rows*: on one axis, of size outer · n · inner, the part of index (·, i, ·) depends only on
example i and public values. Inputs have rows on axis 0; each operator must have a rule that says on
which axis its result has rows; the losses must have rows on axis 0 again. Nothing is proved for an
operator without a rule, or for one that reads or moves along the axis of rows.

Why no module can slip through
------------------------------
1. This graph runs on records, not the module: it has no attributes, caches, counters, globals,
   hooks or decisions, and its operators are those that were verified, at exactly the shape that was
   verified. It writes nothing, so no pass leaves anything to the next.
2. By induction over the nodes, row i of every value depends only on example i and public values.
   The table contains only operators whose definition implies this, whatever the values are; a
   permutation, a sort, a reduction or a slice along the axis of rows is refused for all inputs, not
   only for those of a probe. An unknown operator, or one of another library, is refused.
3. Losses are summed, so the gradient at row i of a value is that of loss i alone: the derivative of
   an operator that keeps rows apart keeps them apart. Operators here are torch's own, and so are
   their derivatives: of a function with a custom derivative, only the operators of its forward pass
   remain.
4. Norms and sums are taken of those rows (`bookkeeping`), by rules that use row i of an input and
   row i of a gradient for example i. So what is added for example i is bounded by what was measured
   for it, even if a trace misrepresented the module: then training might be wrong, which probes
   look for, but not less private.

This assumes that torch's operators do what their definition says, and that with equal shapes,
strides and types the bits of row i depend only on row i and public values, and not on the *values*
of other rows (`tests/central/training/test_kernels.py` tests this). Uninitialised memory is
refused: it could hold anybody's rows.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor, fx

from tacit.central.training.lookups import SAME
from tacit.central.training.operators import name_of, refuse_draws_by_value
from tacit.central.training.row_calls import Call, RowAxis, State, value_of
from tacit.central.training.row_rules import RULES, pointwise, shared_out
from tacit.central.training.tracing import Unfit, refuse_trapping

_UNINITIALISED = ("empty", "resize", "as_strided", "set_", "rnn_flatten")


def verified(graph: fx.Graph, batch: Sequence[fx.Node], trained: Sequence[fx.Node]) -> States:
    """Return the states of all nodes; raise `Unfit` if they cannot be proved."""
    count = value_of(batch[0]).shape[0]
    states = States(count, set(trained))
    for node in graph.nodes:
        if node.op == "placeholder":
            states.of[node] = RowAxis(0) if node in batch else None
        elif node.op == "get_attr":
            states.of[node] = None
        elif node.op == "call_function":
            states.of[node] = states.call(node)
        elif node.op == "output":
            (losses,) = node.args
            if states.of.get(losses) != RowAxis(0):
                raise Unfit("its losses are not in the order of the rows")
        else:
            raise Unfit(f"{node.op} is not an operator")
    return states


class States:
    """The state of every node, and which nodes depend on trained parameters."""

    def __init__(self, count: int, trained: set[fx.Node]) -> None:
        self.count, self.trained = count, trained
        self.of: dict[fx.Node, State] = {}

    def call(self, node: fx.Node) -> State:
        """Return the state of an operator's result."""
        if node.target is torch._C._set_grad_enabled:
            return None
        state = self._taken(node) if node.target is operator.getitem else self._called(node)
        if state is None and any(one in self.trained for one in node.all_input_nodes):
            self.trained.add(node)
        return state

    def _taken(self, node: fx.Node) -> State:
        value, place = node.args
        assert isinstance(value, fx.Node)
        assert isinstance(place, int)
        states = self.of[value]
        return states[place] if isinstance(states, list) else states

    def _called(self, node: fx.Node) -> State:
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            raise Unfit(f"{node.target} is not an operator of torch")
        name = node.target.overloadpacket.__name__
        if node.target._schema.is_mutable or any(word in name for word in _UNINITIALISED):
            raise Unfit(f"{name} uses memory that others have written")
        refuse_draws_by_value(node)
        inputs, call = node.all_input_nodes, Call(self, node, name)
        if all(self.of[one] is None for one in inputs):
            return self._public(call)
        if any(isinstance(self.of[one], list) for one in inputs):
            raise Unfit(f"{name} takes several values at once")
        refuse_trapping(node, name)
        simple = torch.Tag.pointwise in node.target.tags
        rule = pointwise if simple else RULES.get(name)
        if rule is None:
            raise Unfit(f"{name} is not known to keep rows apart")
        try:
            state = rule(call)
        except (TypeError, IndexError, KeyError, AttributeError, ValueError, ZeroDivisionError):
            raise Unfit(f"{name} is called in an unknown way") from None
        self._check_places(node, name, state)
        return state

    def _public(self, call: Call) -> State:
        """Allow trained values that are given to every row: directly, or looked up in a table."""
        if call.name == "expand" and call.node.all_input_nodes[0] in self.trained:
            return shared_out(call)
        if call.name == "embedding" and call.arg("weight") in self.trained:
            indices = source = call.arg("indices")
            while name_of(source) in SAME:
                source = source.all_input_nodes[0]
            if name_of(source) == "expand" and value_of(source).shape == value_of(indices).shape:
                self.of[indices] = shared_out(Call(self, source, "expand"))
            return self.of[indices]
        return None

    def _check_places(self, node: fx.Node, name: str, stated: State) -> None:
        """Check that rows are where the rule says, in what the operator really gives.

        A rule may have overlooked a form of its operator, such as a loss without an axis of rows.
        """
        made = value_of(node)
        several = isinstance(stated, list)
        if several != isinstance(made, list | tuple) or (several and len(stated) != len(made)):
            raise Unfit(f"{name} is called in an unknown way")
        pairs = zip(stated, made, strict=True) if several else [(stated, made)]
        for state, value in pairs:
            if isinstance(state, RowAxis):
                size = state.outer * self.count * state.inner
                if state.axis >= value.dim() or value.shape[state.axis] != size:
                    raise Unfit(f"{name} does not give rows where they should be")

    def split(self, value: Tensor, rows: RowAxis) -> Tensor:
        """Return a view or copy with examples on the first axis, then outer and inner."""
        if rows.outer == rows.inner == 1:
            return value.movedim(rows.axis, 0)
        parts = (rows.outer, self.count, rows.inner)
        shape = value.shape
        apart = value.reshape(*shape[: rows.axis], *parts, *shape[rows.axis + 1 :])
        return apart.movedim(rows.axis + 1, 0)
