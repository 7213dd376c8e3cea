"""Rules for torch's operators that keep rows apart: where the rows are in their results.

A rule refuses any call that reads or moves along the axis of rows. `rowwise` says what follows.

Derivatives must keep rows apart too. So `prod` and `cumprod` are not here: if there is a zero in
any row, torch uses another formula for all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from tacit.central.training.row_calls import Call, RowAxis, State, value_of

Rule = Callable[[Call], State]


def pointwise(call: Call) -> State:
    """Allow an operator whose results depend only on the elements at their place, broadcast."""
    return _aligned(call, call.node.all_input_nodes, call.out)


def _aligned(call: Call, values: Sequence[Any], out: tuple[int, ...]) -> State:
    """Return the state that all of these share when broadcast from the right."""
    shared: RowAxis | None = None
    for value in values:
        own = call.rows(value)
        if own is None:
            continue
        shape = call.shape(value)
        placed = replace(own, axis=own.axis + len(out) - len(shape))
        if out[placed.axis] != shape[own.axis] or shared not in (None, placed):
            call.refuse()
        shared = placed
    return shared


def _same(call: Call) -> State:
    """Allow operators that move no value; their other arguments give only a type or a shape."""
    return call.own()[0]


def _prelu(call: Call) -> State:
    call.public("weight")
    return call.own()[0]


def _reduced(call: Call) -> State:
    """Allow a reduction over axes other than that of the rows."""
    own, shape = call.single()
    dims = call.arg("dim")
    dims = [dims] if isinstance(dims, int) else dims
    if not dims:
        call.refuse()
    gone = {dim % len(shape) for dim in dims}
    if own.axis in gone:
        call.refuse()
    kept = call.arg("keepdim")
    state = own if kept else replace(own, axis=own.axis - sum(dim < own.axis for dim in gone))
    return _outputs(call, state)


def _outputs(call: Call, state: State) -> State:
    made = call.node.meta["val"]
    return [state] * len(made) if isinstance(made, list | tuple) else state


def _along(call: Call) -> State:
    """Allow an operation along an axis other than that of the rows (softmax, sort, slice)."""
    own, shape = call.single()
    dim = call.arg("dim")
    if dim is None or dim % len(shape) == own.axis:
        # x[:] is a slice of all rows.
        return own if call.name == "slice" and call.out == shape else call.refuse()
    return _outputs(call, own)


def _paired_along(call: Call) -> State:
    """Allow `gather` and `scatter` along another axis if indices and sources have the same rows."""
    own, shape = call.own()
    for value in call.node.all_input_nodes:
        if call.rows(value) != own or call.shape(value)[own.axis] != shape[own.axis]:
            call.refuse()
    return own if call.arg("dim") % len(shape) != own.axis else call.refuse()


def _indexed_along(call: Call) -> State:
    call.public("index")
    return _along(call)


def _selected(call: Call) -> State:
    """Allow one index of another axis, which is removed."""
    own, shape = call.single()
    dim = call.arg("dim") % len(shape)
    if dim == own.axis:
        call.refuse()
    return _outputs(call, replace(own, axis=own.axis - (dim < own.axis)))


def _rolled(call: Call) -> State:
    own, shape = call.single()
    dims = call.arg("dims")
    dims = [dims] if isinstance(dims, int) else dims
    if not dims or own.axis in {dim % len(shape) for dim in dims}:
        call.refuse()
    return own


def _reshaped(call: Call) -> State:
    """Allow a new shape if the rows are whole in one of its axes.

    In flat order there are `before` groups of n rows of `after` elements.
    """
    own, shape = call.single()
    out, count = call.out, call.states.count
    before = math.prod(shape[: own.axis]) * own.outer
    after = own.inner * math.prod(shape[own.axis + 1 :])
    for axis, size in enumerate(out):
        outer, rest = divmod(before, max(1, math.prod(out[:axis])))
        inner, odd = divmod(size, max(1, outer * count))
        if not rest and not odd and outer and inner * math.prod(out[axis + 1 :]) == after:
            return RowAxis(axis, outer, inner)
    return call.refuse()


def _permuted(call: Call) -> State:
    own, shape = call.single()
    order = list(range(len(shape)))
    if call.name == "permute":
        order = [dim % len(shape) for dim in call.arg("dims")]
    elif call.name in ("transpose", "swapaxes"):
        names = ("dim0", "dim1") if call.name == "transpose" else ("axis0", "axis1")
        first, second = (call.arg(name) % len(shape) for name in names)
        order[first], order[second] = order[second], order[first]
    elif call.name in ("mT", "t") and len(shape) > 1:
        order[-1], order[-2] = order[-2], order[-1]
    elif call.name in ("numpy_T", "T"):
        order.reverse()
    return replace(own, axis=order.index(own.axis))


def _expanded(call: Call) -> State:
    """Allow new axes and larger ones other than the rows'; `expand_as` takes only a shape."""
    return _aligned(call, [call.arg("self")], call.out)


def shared_out(call: Call) -> State:
    """Allow a trained value for every row, such as a class token: rows are on the only new axis.

    A public value may be treated as one with rows wherever it has n places.
    """
    own, out = call.shape(call.arg("self")), call.out
    lifted = (1,) * (len(out) - len(own)) + own
    new = [axis for axis, size in enumerate(out) if size == call.states.count != lifted[axis]]
    return RowAxis(new[0]) if len(new) == 1 else None


def _joined(call: Call) -> State:
    """Allow `cat` along another axis, and `stack` along a new one."""
    tensors, dim = call.arg("tensors"), call.arg("dim") % len(call.out)
    stacked = call.name == "stack"
    shared: RowAxis | None = None
    for value in tensors:
        own = call.rows(value)
        if own is not None and stacked:
            own = replace(own, axis=own.axis + (dim <= own.axis))
        if own is not None and shared not in (None, own):
            call.refuse()
        shared = own or shared
    return shared if shared is not None and shared.axis != dim else call.refuse()


def _product(call: Call) -> State:
    """Allow matrix products with rows outside of both matrices, or on an outer axis of one."""
    first, second = (call.arg(name) for name in _FACTORS[call.name])
    one, other = call.rows(first), call.rows(second)
    wide, high, out = call.shape(first), call.shape(second), call.out
    placed = []
    if one is not None:
        if one.axis == len(wide) - 1:
            call.refuse()
        # Counted from the right; a vector as the second factor removes the last axis.
        placed.append(replace(one, axis=one.axis + len(out) - len(wide) + (len(high) == 1)))
    if other is not None:
        if other.axis == max(0, len(high) - 2):
            call.refuse()
        if one is not None and other.axis == len(high) - 1:
            call.refuse()
        gone = len(wide) == 1 and other.axis < len(high) - 2
        placed.append(replace(other, axis=other.axis + len(out) - len(high) + gone))
    if one is not None and other is not None and one.axis >= len(wide) - 2:
        call.refuse()
    return _agreed(call, placed, (wide, one), (high, other))


def _agreed(
    call: Call, placed: list[RowAxis], *factors: tuple[tuple[int, ...], RowAxis | None]
) -> State:
    sizes = {shape[own.axis] for shape, own in factors if own is not None}
    if len(set(placed)) != 1 or sizes != {call.out[placed[0].axis]}:
        call.refuse()
    return placed[0]


def _added_product(call: Call) -> State:
    """Allow a product plus a term that is broadcast."""
    state = _product(call)
    added = _aligned(call, [call.arg("self")], call.out)
    return state if added in (None, state) else call.refuse()


def _linear(call: Call) -> State:
    call.public("weight", "bias")
    own, shape = call.own("input")
    return own if own.axis < len(shape) - 1 else call.refuse()


def _convolution(call: Call) -> State:
    call.public("weight", "bias")
    own, shape = call.own("input")
    whole = len(shape) == len(call.shape(call.arg("weight")))
    return own if own.axis == 0 and whole else call.refuse()


def _embedding(call: Call) -> State:
    call.public("weight")
    # The derivative would count tokens over the batch.
    return call.refuse() if call.arg("scale_grad_by_freq") else call.own("indices")[0]


def _normalised_last(call: Call) -> State:
    call.public("weight", *(["bias"] if call.name == "layer_norm" else []))
    own, shape = call.own("input")
    kept = len(shape) - len(call.arg("normalized_shape"))
    return own if own.axis < kept else call.refuse()


def _normalised_channels(call: Call) -> State:
    call.public("weight", "bias")
    own, _ = call.own("input")
    if call.name == "instance_norm":
        call.public("running_mean", "running_var")
        if not call.arg("use_input_stats") or call.arg("running_mean") is not None:
            call.refuse()
    return own if own.axis == 0 else call.refuse()


def _spatial(axes: int) -> Rule:
    """Make the rule of operators on the last axes of (rows, channels, …)."""

    def rule(call: Call) -> State:
        value = call.node.args[0]
        own = call.rows(value)
        others = [one for one in call.node.all_input_nodes if one is not value]
        if own is None or any(call.rows(one) is not None for one in others):
            call.refuse()
        shape = call.shape(value)
        return _outputs(call, own) if own.axis < len(shape) - axes else call.refuse()

    return rule


def _padded(call: Call) -> State:
    own, shape = call.single()
    return own if own.axis < len(shape) - len(call.arg("pad")) // 2 else call.refuse()


def _channel_drop(call: Call) -> State:
    own, _ = call.own("input")
    return own if own.axis == 0 else call.refuse()


def _alone_loss(call: Call) -> State:
    """Allow losses without reduction: classes on axis 1, rows on axis 0."""
    call.public("weight")
    if call.arg("reduction") != 0:
        call.refuse()
    own, _ = call.own()
    same = call.rows(call.arg("target")) == own
    return own if same and own.axis == 0 else call.refuse()


def _pointwise_loss(call: Call) -> State:
    return pointwise(call) if call.arg("reduction") == 0 else call.refuse()


def _attention(call: Call) -> State:
    out = call.out
    state = _aligned(call, call.node.all_input_nodes, out)
    names = ("query", "key", "value")
    for name in names:
        own, shape = call.own(name)
        if len(shape) != len(out) or own.axis >= len(shape) - 2:
            call.refuse()
    return state


def _similar(call: Call) -> State:
    """Allow the cosine of two values along an axis that is removed."""
    shapes = [call.shape(call.arg(name)) for name in ("x1", "x2")]
    wide = tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    own = _aligned(call, [call.arg("x1"), call.arg("x2")], wide)
    dim = call.arg("dim") % len(wide)
    return call.refuse() if own.axis == dim else replace(own, axis=own.axis - (dim < own.axis))


def _einsum(call: Call) -> State:
    """Allow it if one letter is that of the rows in the result and in all operands with rows."""
    equation = call.arg("equation").replace(" ", "")
    if "." in equation or "->" not in equation:
        call.refuse()
    inputs, result = equation.split("->")
    placed = set()
    for letters, value in zip(inputs.split(","), call.arg("tensors"), strict=True):
        own = call.rows(value)
        if own is not None:
            letter = letters[own.axis]
            if letters.count(letter) > 1 or letter not in result:
                call.refuse()
            placed.add(replace(own, axis=result.index(letter)))
    return placed.pop() if len(placed) == 1 else call.refuse()


def _indexed(call: Call) -> State:
    """Allow x[:, index] with public indices, and x[arange(n), index] with one index per row."""
    own, shape = call.own()
    indices = list(call.arg("indices"))
    given = [place for place, one in enumerate(indices) if one is not None]
    if len(given) == 1 and given[0] != own.axis and call.rows(indices[given[0]]) is None:
        index = call.shape(indices[given[0]])
        boolean = value_of(indices[given[0]]).dtype in (torch.bool, torch.uint8)
        if boolean:
            call.refuse()
        return replace(own, axis=own.axis + (len(index) - 1) * (given[0] < own.axis))
    if given == [0, 1] and own == RowAxis(0) and len(shape) >= 2:
        each, chosen = indices
        counted = each.target is torch.ops.aten.arange.default and each.args[0] == shape[0]
        if counted and call.rows(chosen) == RowAxis(0) and call.shape(chosen) == (shape[0],):
            return own
    return call.refuse()


def _fresh(call: Call) -> State:
    """Allow new values in the shape of another, without its content: they are public."""
    return None if len(call.node.all_input_nodes) == 1 else call.refuse()


_FACTORS = {
    "matmul": ("self", "other"),
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "mv": ("self", "vec"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
}


def _table() -> dict[str, Rule]:
    kinds: dict[Rule, str] = {
        _same: "clone contiguous detach alias to type_as _to_copy float double half long int "
        "lift_fresh_copy lift_fresh",
        _prelu: "prelu",
        pointwise: "relu relu6 selu celu elu silu mish gelu hardtanh hardswish hardsigmoid "
        "leaky_relu softplus softsign threshold tanhshrink softshrink hardshrink log_sigmoid "
        "square dropout alpha_dropout bernoulli rrelu where masked_fill isfinite isnan isinf "
        "true_divide multiply subtract divide greater less not_equal clip expm1 arctan2 "
        "logical_and logical_or logical_not negative absolute xlogy",
        _reduced: "sum mean amax amin var std logsumexp norm linalg_vector_norm any all "
        "argmax argmin max min median nansum count_nonzero mode kthvalue",
        _along: "softmax log_softmax _softmax _log_softmax cumsum logcumsumexp sort "
        "argsort topk slice narrow split split_with_sizes chunk tensor_split unsafe_chunk glu",
        _indexed_along: "index_select",
        _paired_along: "gather take_along_dim scatter scatter_add",
        _selected: "select unbind",
        _rolled: "flip roll",
        _reshaped: "view reshape _unsafe_view flatten unflatten squeeze unsqueeze",
        _permuted: "permute transpose swapaxes mT t numpy_T T",
        _expanded: "expand expand_as",
        _joined: "cat stack concat concatenate",
        _product: "matmul mm bmm mv",
        _added_product: "addmm baddbmm",
        _linear: "linear",
        _convolution: "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
        "convolution",
        _embedding: "embedding",
        _normalised_last: "layer_norm rms_norm",
        _normalised_channels: "group_norm instance_norm",
        _spatial(1): "max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d "
        "upsample_linear1d upsample_nearest1d",
        _spatial(2): "max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d tril triu "
        "max_pool2d_with_indices upsample_bilinear2d upsample_nearest2d upsample_bicubic2d",
        _spatial(3): "max_pool3d avg_pool3d adaptive_avg_pool3d pixel_shuffle pixel_unshuffle",
        _padded: "pad constant_pad_nd",
        _channel_drop: "feature_dropout feature_alpha_dropout",
        _alone_loss: "cross_entropy_loss nll_loss nll_loss_nd",
        _pointwise_loss: "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
        "binary_cross_entropy_with_logits kl_div soft_margin_loss poisson_nll_loss",
        _attention: "scaled_dot_product_attention",
        _similar: "cosine_similarity",
        _einsum: "einsum",
        _indexed: "index",
        _fresh: "zeros_like ones_like full_like rand_like randn_like randint_like new_zeros "
        "new_ones new_full",
    }
    return {name: rule for rule, names in kinds.items() for name in names.split()}


RULES = _table()
