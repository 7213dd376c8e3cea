"""A verified graph with its book-keeping: where trained parameters meet rows.

A *site* is a node with rows that takes a trained parameter, or a public value computed from some.
If the site is a known kind of layer (`layers`), norms and weighted sums follow from its input and
the gradient of its output. At other sites each example's gradient is written out, by `torch.func`
on that one operator. Parameters never require a gradient: only gradients at the sites' outputs are
computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import vjp, vmap

from tacit.central.training import layers
from tacit.central.training.alone import dense
from tacit.central.training.layers import Layer, Pairs, Rule
from tacit.central.training.lookups import looked_up_by_row
from tacit.central.training.mapped import refuse_unknown
from tacit.central.training.operators import argument, blanks_may_raise, is_random, name_of
from tacit.central.training.row_calls import Call, RowAxis
from tacit.central.training.rowwise import States, verified
from tacit.central.training.tied import Tied
from tacit.central.training.tracing import Total, Unfit, losses_graph, state_of

PerExample = dict[int, Tensor]
"""Gradients of each example, (n, …), by the parameter's id."""

Kept = list[tuple["Group", Pairs]]

_WEIGHTS = ("weight", "bias")
_PRODUCTS = {
    "linear": ("input", "weight", "bias"),
    "addmm": ("mat1", "mat2", "self"),
    "mm": ("self", "mat2", None),
    "matmul": ("self", "other", None),
}
"""Operators that are linear layers, with their arguments for input, weight and bias."""
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_NORMS = ("layer_norm", "rms_norm", "group_norm", "instance_norm")


@dataclass
class Group:
    """All calls of one layer with a rule."""

    rule: Rule
    layer: Layer
    trained: dict[str, nn.Parameter]
    inputs: list[tuple[int, RowAxis]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Written:
    """A site whose gradients are written out."""

    node: fx.Node
    output: int
    rows: dict[fx.Node, int]
    public: dict[fx.Node, int]
    """Values computed from trained parameters, which receive the gradient."""
    fixed: dict[fx.Node, int]


class Book:
    """The losses of a batch of one fixed shape, and each example's part of the gradient."""

    def __init__(
        self, total: Total, trained: Sequence[nn.Parameter], batch: Sequence[Tensor]
    ) -> None:
        state = state_of(total)
        self._state = list(state.values())
        made = losses_graph(total, batch)
        inputs = [node for node in made.graph.nodes if node.op == "placeholder"]
        ids = {id(one): node for one, node in zip(self._state, inputs, strict=False)}
        self._of = {ids[id(one)]: one for one in trained}
        rows = inputs[len(state) :]
        looked_up_by_row(made.graph, self._of, rows)
        self.states = verified(made.graph, rows, list(self._of))
        apart = {node for node, state in self.states.of.items() if state is not None}
        self.blanks_may_raise = blanks_may_raise(made.graph, list(self._of), apart)
        self._made, self._kept = made, _Kept(made.graph)
        self.groups, self.written = self._sites()
        self._public = _Public(made, self.states, self._of, self.written)
        self._kept.finish()
        made.recompile()
        self.outputs = self._kept.outputs

    def _sites(self) -> tuple[list[Group], list[Written]]:
        states, nodes = self.states, list(self._made.graph.nodes)
        sites = [
            node
            for node in nodes
            if node.op == "call_function"
            and states.of.get(node) is not None
            and any(one in states.trained for one in node.all_input_nodes)
        ]
        keys = _untied({node: _key(states, node, self._of) for node in sites}, states, self._of)
        groups: dict[Any, Group] = {}
        written = []
        for node in sites:
            output = self._kept.leaf(node, states)
            if keys[node] is None:
                written.append(self._written(node, output))
            else:
                if keys[node] not in groups:
                    groups[keys[node]] = self._group(
                        [one for one in sites if keys[one] == keys[node]]
                    )
                group = groups[keys[node]]
                source = Call(states, node, name_of(node))
                value = source.arg(_input_of(name_of(node)))
                group.inputs.append((self._kept.value(value), states.of[value]))
                group.outputs.append(output)
        return list(groups.values()), written

    def _group(self, nodes: list[fx.Node]) -> Group:
        """Return the group of these calls, of one kind or of a table that is tied."""
        tables = [one for one in nodes if name_of(one) == "embedding"]
        products = [one for one in nodes if name_of(one) == "linear"]
        node = (products or nodes)[0]
        call, name = Call(self.states, node, name_of(node)), name_of(node)
        arguments = {one.name: call.arg(one.name) for one in node.target._schema.arguments}  # type: ignore[union-attr]
        names = dict(zip(_WEIGHTS, _PRODUCTS.get(name, ("", *_WEIGHTS))[1:], strict=True))
        trained = {
            key: self._of[arguments[theirs]]
            for key, theirs in names.items()
            if arguments.get(theirs) in self._of
        }
        rule: Rule
        if products and tables:
            padding = argument(tables[0], "padding_idx")
            rule, layer = Tied(), Layer(padding_index=None if padding < 0 else padding)
        elif name in _PRODUCTS:
            rule, layer = layers.linear(transposed=name != "linear")
        elif name == "embedding":
            rule, layer = layers.embedding(arguments["padding_idx"])
        elif name in _CONVOLUTIONS:
            weight = arguments["weight"].meta["val"]
            blank = torch.zeros(weight.shape, dtype=weight.dtype, device=self._state[0].device)
            rule, layer = layers.convolution(blank, arguments)
        else:
            rule, layer = layers.norm(name, arguments)
        return Group(rule, layer, trained)

    def _written(self, node: fx.Node, output: int) -> Written:
        states, places = self.states, {one: self._kept.value(one) for one in node.all_input_nodes}
        if isinstance(node.meta["val"], list | tuple):
            raise Unfit(f"{name_of(node)} has trained parameters and several outputs")

        def those(wanted: Callable[[fx.Node], bool]) -> dict[fx.Node, int]:
            return {one: place for one, place in places.items() if wanted(one)}

        return Written(
            node,
            output,
            those(lambda one: states.of[one] is not None),
            those(lambda one: one in states.trained),
            those(lambda one: states.of[one] is None and one not in states.trained),
        )

    def run(self, batch: Sequence[Tensor]) -> tuple[Tensor, list[Any], list[Tensor | None]]:
        """Compute losses, inputs of sites, and gradients of the summed losses at their outputs."""
        with torch.inference_mode(False), torch.enable_grad():
            losses, outputs, values = self._made(*(one.detach() for one in self._state), *batch)
            if not losses.requires_grad or not outputs:
                return losses.detach(), values, [None] * len(outputs)
            gradients = torch.autograd.grad(losses.sum(), outputs, allow_unused=True)
        return losses.detach(), values, list(gradients)

    def pairs(self, values: list[Any], arrived: list[Tensor | None]) -> Kept:
        """Return inputs and output gradients of layers with a rule, examples first."""
        kept: Kept = []
        for group in self.groups:
            pairs = []
            for (place, rows), output in zip(group.inputs, group.outputs, strict=True):
                gradient = arrived[output]
                if gradient is not None:
                    own = self.states.of[self.outputs[output]]
                    inputs = self.states.split(values[place].detach(), rows)
                    pairs.append((dense(inputs), dense(self.states.split(gradient, own))))
            if pairs:
                kept.append((group, pairs))
        return kept

    def write_out(self, values: list[Any], arrived: list[Tensor | None]) -> PerExample:
        """Compute each example's gradients at the other sites."""
        by_node: dict[fx.Node, Tensor] = {}
        for site in self.written:
            gradient = arrived[site.output]
            if gradient is not None:
                for node, value in self._of_site(site, values, gradient).items():
                    by_node[node] = by_node[node] + value if node in by_node else value
        gradients = self._public.pulled(by_node, [one.detach() for one in self._state])
        return {key: dense(value) for key, value in gradients.items()}

    def _of_site(self, site: Written, values: list[Any], gradient: Tensor) -> dict[fx.Node, Tensor]:
        """Pull gradients back through one operator, mapped over the examples."""
        states, node = self.states, site.node
        rows = {one: values[place].detach() for one, place in site.rows.items()}
        public = {one: values[place].detach() for one, place in site.public.items()}
        fixed = {one: values[place] for one, place in site.fixed.items()}
        axes = {one: states.of[one] for one in (*rows, node)}

        def pull_back(rows: dict[fx.Node, Tensor], pulled: Tensor) -> Any:
            own = {one: _merged(row, axes[one]) for one, row in rows.items()}

            def forward(public: dict[fx.Node, Tensor]) -> Tensor:
                given = {**own, **public, **fixed}
                args, kwargs = fx.node.map_arg(
                    (_args_of_one(node, axes[node]), node.kwargs), given.__getitem__
                )
                made: Tensor = node.target(*args, **kwargs)  # type: ignore[operator]
                return made

            _, pull, *_ = vjp(forward, public)
            return pull(_merged(pulled, axes[node]))[0]

        parts = {one: states.split(value, axes[one]) for one, value in rows.items()}
        mapped = vmap(pull_back, randomness="different")
        gradients: dict[fx.Node, Tensor] = mapped(parts, states.split(gradient, axes[node]))
        return gradients


class _Kept:
    """Additional outputs of a graph: those of sites, as leaves, and the inputs of sites."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self.outputs: list[fx.Node] = []
        self._leaves: list[fx.Node] = []
        self._values: dict[fx.Node, int] = {}

    def leaf(self, node: fx.Node, states: States) -> int:
        """Make this node a leaf, at which gradients can be computed."""
        with self._graph.inserting_after(node):
            leaf = self._graph.call_function(_leaf, (node,))
        node.replace_all_uses_with(leaf, delete_user_cb=lambda user: user is not leaf)
        leaf.meta, states.of[leaf] = dict(node.meta), states.of[node]
        self.outputs.append(node)
        self._leaves.append(leaf)
        return len(self._leaves) - 1

    def value(self, node: fx.Node) -> int:
        return self._values.setdefault(node, len(self._values))

    def finish(self) -> None:
        (output,) = (node for node in self._graph.nodes if node.op == "output")
        output.args = ((output.args[0], self._leaves, list(self._values)),)


class _Public:
    """Gradients of values computed from trained parameters alone, pulled back to these."""

    def __init__(
        self,
        made: fx.GraphModule,
        states: States,
        of: dict[fx.Node, nn.Parameter],
        written: Iterable[Written],
    ) -> None:
        self._of = of
        wanted = {one for site in written for one in site.public}
        self._ends = [node for node in states.of if node in wanted and node not in of]
        inputs = [node for node in states.of if node.op == "placeholder"]
        needed = _behind(self._ends)
        if any(states.of[node] is not None for node in needed):
            raise Unfit("trained parameters are changed by the shape of rows")
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in (*inputs, *(one for one in states.of if one in needed and one not in inputs)):
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output([copies[node] for node in self._ends])
        # Only what depends on trained parameters is differentiated.
        refuse_unknown(copies[node] for node in copies if node in states.trained)
        if any(map(is_random, graph.nodes)):
            raise Unfit("trained parameters are changed at random")
        self._made = fx.GraphModule(made, graph)
        self._places = {node: place for place, node in enumerate(inputs)}
        self._inputs = len(inputs)

    def pulled(self, gradients: dict[fx.Node, Tensor], state: list[Tensor]) -> PerExample:
        """Return each example's gradients, by the parameters themselves."""
        by_id = {id(self._of[node]): value for node, value in gradients.items() if node in self._of}
        ends = [node for node in self._ends if node in gradients]
        if not ends:
            return by_id
        blank: list[Any] = [*state, *[None] * (self._inputs - len(state))]
        trained = [state[self._places[node]] for node in self._of]

        def forward(trained: list[Tensor]) -> list[Tensor]:
            given = list(blank)
            for node, value in zip(self._of, trained, strict=True):
                given[self._places[node]] = value
            made = self._made(*given)
            return [made[self._ends.index(node)] for node in ends]

        _, pull, *_ = vjp(forward, trained)
        (pulled,) = vmap(pull)([gradients[node] for node in ends])
        for node, value in zip(self._of, pulled, strict=True):
            key = id(self._of[node])
            by_id[key] = by_id[key] + value if key in by_id else value
        return by_id


def _behind(ends: Sequence[fx.Node]) -> set[fx.Node]:
    """Return these nodes and all that they are computed from."""
    behind, waiting = set[fx.Node](), list(ends)
    while waiting:
        node = waiting.pop()
        if node not in behind:
            behind.add(node)
            waiting += node.all_input_nodes
    return behind


def _key(states: States, node: fx.Node, of: dict[fx.Node, nn.Parameter]) -> Any:
    """Return a key that all calls of one layer with a rule share; None if no rule applies."""
    name, call = name_of(node), Call(states, node, name_of(node))
    if name not in (*_PRODUCTS, "embedding", *_CONVOLUTIONS, *_NORMS):
        return None
    rows = states.of[call.arg(_input_of(name))]
    if name in _PRODUCTS:
        weights = [call.arg(one) for one in _PRODUCTS[name][1:] if one is not None]
    else:
        kept = ("weight",) if name in ("embedding", "rms_norm") else _WEIGHTS
        weights = [call.arg(key) for key in kept]
    public = [one for one in node.all_input_nodes if one in states.trained]
    if not isinstance(rows, RowAxis) or not all(one in of and one in weights for one in public):
        return None
    given = [one for one in (*node.args, *node.kwargs.values()) if isinstance(one, fx.Node)]
    if len(given) != len(set(given)):
        # A weight that is also the bias: its two gradients add up before they are squared.
        return None
    if name in _PRODUCTS and name != "linear" and not _is_layer(call, weights):
        return None
    plain = rows == RowAxis(0)
    if name in (*_CONVOLUTIONS, "group_norm", "instance_norm") and not plain:
        return None
    others = [repr(one) for one in node.args if not isinstance(one, fx.Node)]
    return (name, *weights, *others, repr(node.kwargs))


def _input_of(name: str) -> str:
    """Return the argument that a layer gets rows in."""
    return "indices" if name == "embedding" else _PRODUCTS.get(name, ("input",))[0]


def _is_layer(call: Call, weights: list[Any]) -> bool:
    """Check that a product is with a matrix, and what is added is a vector over its columns."""
    weight, *bias = weights
    vector = all(one in call.states.of and call.shape(one) == call.out[-1:] for one in bias)
    plain = call.name != "addmm" or call.arg("beta") == call.arg("alpha") == 1
    return len(call.shape(weight)) == 2 and call.rows(weight) is None and vector and plain


def _untied(
    keys: dict[fx.Node, Any], states: States, of: dict[fx.Node, nn.Parameter]
) -> dict[fx.Node, Any]:
    """Write out layers that share a parameter: there are cross terms between them.

    There is a rule for a table that is one kind of embedding and one linear layer.
    """
    made = {node: None for node in states.trained if node not in of}
    while True:
        users: dict[fx.Node, set[Any]] = {node: set() for node in of}
        for node, key in {**made, **keys}.items():
            for one in node.all_input_nodes:
                users.get(one, set()).add(key)
        joint = {
            key: both for shared in users.values() if (both := _tied(shared)) for key in shared
        }
        if joint:
            keys = {node: joint.get(key, key) for node, key in keys.items()}
            continue
        tied = {
            node: None
            for node, key in keys.items()
            if key is not None and any(len(users.get(one, ())) > 1 for one in key)
        }
        if not tied:
            return keys
        keys = {**keys, **tied}


def _tied(keys: set[Any]) -> Any:
    """Return one key for a linear layer and an embedding that share their weight."""
    if None in keys or sorted(key[0] for key in keys) != ["embedding", "linear"]:
        return None
    table, product = sorted(keys, key=lambda key: str(key[0]))
    return ("tied", *product[1:]) if table[1] is product[1] else None


def _leaf(value: Tensor) -> Tensor:
    """Start differentiation here, unless it has started before."""
    return value if value.requires_grad else value.requires_grad_()


def _merged(row: Tensor, rows: RowAxis) -> Tensor:
    """Reshape one example as the operator takes it: its axis has outer · inner places."""
    if rows.outer == rows.inner == 1:
        return row.unsqueeze(rows.axis)
    return row.flatten(rows.axis, rows.axis + 1)


def _args_of_one(node: fx.Node, rows: RowAxis) -> tuple[Any, ...]:
    if name_of(node) != "expand":
        return node.args
    sizes = list(node.args[1])  # type: ignore[arg-type]
    sizes[rows.axis] = rows.outer * rows.inner
    return (node.args[0], sizes, *node.args[2:])
