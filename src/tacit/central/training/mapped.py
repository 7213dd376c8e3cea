"""Operators that `vmap` keeps apart: a graph of one row may be mapped if it has no others.

`vmap` maps an operator by one of torch's own rules, and some rules fold all rows into one space of
indices, or pass their kernel one piece of memory: an index or a shape that the kernel does not
check may then reach another row. So a graph is admitted by the operators that it consists of.

1. Values that depend on no row, and on no draw, are the same for all rows: their operators are not
   mapped.
2. Families of operators without indices: elementwise, along the row's own axes, products,
   reductions, and rearrangements by constants.
3. Operators that check each index against the row's own axis, and raise.
4. Look-ups in a public table. (`vmap` stacks tables that depend on rows, so that an index beyond
   one table is in the next.)
5. Derivatives that take indices, or the shape of saved values, unchecked: only if these are what
   the forward operator in the same graph took and gave. Autograd calls them in this way.

Everything else is refused, including uninitialised memory, writes, and draws that depend on values.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from tacit.central.training.operators import (
    argument,
    is_random,
    name_of,
    refuse_draws_by_value,
)
from tacit.central.training.row_rules import RULES
from tacit.central.training.tracing import Unfit, refuse_trapping

_FORBIDDEN = ("resize", "as_strided", "set_", "record_stream")
_OVERWRITES = ("fill", "bernoulli", "uniform", "normal_functional", "exponential", "zero", "copy")

_FAMILIES = """
_to_copy clone copy detach alias lift_fresh_copy contiguous fill zero
zeros_like ones_like full_like new_zeros new_ones new_full
empty_like new_empty new_empty_strided

floor_divide elu_backward gelu_backward hardtanh_backward hardswish hardswish_backward
hardsigmoid_backward leaky_relu_backward softplus_backward softshrink_backward
hardshrink_backward mish_backward
log_sigmoid_forward log_sigmoid_backward _prelu_kernel _prelu_kernel_backward
glu glu_backward _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl
_thnn_fused_gru_cell _thnn_fused_gru_cell_backward
mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward
binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits
soft_margin_loss soft_margin_loss_backward
complex real imag polar view_as_real view_as_complex _conj resolve_conj resolve_neg

view reshape _unsafe_view permute transpose t squeeze unsqueeze expand repeat
slice select split split_with_sizes unsafe_split unsafe_split_with_sizes unbind cat stack
constant_pad_nd flip roll diagonal diag_embed unfold movedim tril triu
select_backward slice_backward diagonal_backward
select_scatter slice_scatter diagonal_scatter
reflection_pad1d reflection_pad2d reflection_pad3d reflection_pad1d_backward
reflection_pad2d_backward reflection_pad3d_backward
replication_pad1d replication_pad2d replication_pad3d replication_pad1d_backward
replication_pad2d_backward replication_pad3d_backward
pixel_shuffle pixel_unshuffle im2col col2im

sum mean amax amin aminmax max min argmax argmin var std var_mean std_mean logsumexp prod any all
norm linalg_vector_norm nansum count_nonzero median nanmedian kthvalue mode
cumsum cumprod logcumsumexp cummax cummin sort argsort topk
_softmax _log_softmax _safe_softmax

_weight_norm _weight_norm_interface
mm bmm addmm baddbmm mv addmv dot vdot addr matmul linear _trilinear linalg_cross _cdist_forward
convolution
_fft_r2c _fft_c2r _fft_c2c

native_layer_norm native_group_norm native_batch_norm _fused_rms_norm
avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward
_adaptive_avg_pool2d _adaptive_avg_pool3d
max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d
upsample_linear1d upsample_nearest1d upsample_bilinear2d upsample_nearest2d upsample_bicubic2d
upsample_trilinear3d upsample_nearest3d
upsample_linear1d_backward upsample_nearest1d_backward upsample_bilinear2d_backward
upsample_nearest2d_backward upsample_bicubic2d_backward upsample_trilinear3d_backward
upsample_nearest3d_backward
"""

_CHECKED_INDICES = """
gather scatter scatter_add index index_put index_select index_add
value_selecting_reduction_backward
nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward
"""

_MATRIX_BY_MATRIX = """
_linalg_check_errors _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd
linalg_cholesky_ex linalg_inv_ex linalg_lu_factor_ex linalg_matrix_exp linalg_pinv linalg_qr
linalg_solve_triangular
"""

_KNOWN = frozenset((_FAMILIES + _CHECKED_INDICES + _MATRIX_BY_MATRIX).split())

_COMPOSED = frozenset(
    (
        *("linalg_inv", "linalg_solve", "linalg_norm", "linalg_matrix_norm", "outer", "kron"),
        *("block_diag", "diag", "repeat_interleave"),
    )
)
"""Operators that torch decomposes into those above before it maps them."""

_PUBLIC = {"embedding": "weight", "bucketize": "boundaries"}
"""Operators with one operand that must not depend on a row."""

_POOL = "self kernel_size stride padding dilation ceil_mode indices=#1"
_CONVOLUTION = "input weight stride padding dilation transposed output_padding groups"

_PAIRED = {
    "embedding_dense_backward": {"embedding": "indices num_weights=weight.length"},
    "max_pool2d_with_indices_backward": {"max_pool2d_with_indices": _POOL},
    "max_pool3d_with_indices_backward": {"max_pool3d_with_indices": _POOL},
    "adaptive_max_pool2d_backward": {"adaptive_max_pool2d": "self indices=#1"},
    "adaptive_max_pool3d_backward": {"adaptive_max_pool3d": "self indices=#1"},
    "_adaptive_avg_pool2d_backward": {"_adaptive_avg_pool2d": "self"},
    "_adaptive_avg_pool3d_backward": {"_adaptive_avg_pool3d": "self"},
    "_softmax_backward_data": {"_softmax": "output=#0 dim", "_safe_softmax": "output=#0 dim"},
    "_log_softmax_backward_data": {"_log_softmax": "output=#0 dim"},
    "convolution_backward": {"convolution": _CONVOLUTION},
    "native_layer_norm_backward": {
        "native_layer_norm": "input normalized_shape mean=#1 rstd=#2",
    },
    "native_group_norm_backward": {"native_group_norm": "input N C HxW group mean=#1 rstd=#2"},
    "native_batch_norm_backward": {"native_batch_norm": "input save_mean=#1 save_invstd=#2"},
    "_fused_rms_norm_backward": {"_fused_rms_norm": "input normalized_shape rstd=#1"},
    "_weight_norm_interface_backward": {
        "_weight_norm_interface": "saved_v=v saved_g=g saved_norms=#1 dim",
    },
    "unfold_backward": {"unfold": "input_sizes=self.shape dim=dimension size step"},
    "linalg_lu_solve": {
        "linalg_lu_factor_ex": "LU.shape=A.shape pivots=#1",
        "_linalg_det": "LU.shape=A.shape pivots=#2",
        "_linalg_solve_ex": "LU.shape=A.shape pivots=#2",
        "_linalg_slogdet": "LU.shape=A.shape pivots=#3",
    },
}
"""For each derivative and forward operator, the arguments that must be what the forward operator
took (`name`, or `name=theirs`), gave (`name=#place`), or took the shape or length of."""

_SAME_VALUES = ("detach", "alias", "clone")


def refuse_crossing(graph: fx.Graph, rows: Sequence[fx.Node]) -> set[fx.Node]:
    """Refuse graphs of one row that may not stay apart; return the nodes that are mapped."""
    mapped = set(rows)
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if node.op != "call_function":
            raise Unfit(f"{node.op} is not an operator")
        if node.target is not operator.getitem:
            _refuse_unfit(node)
        if is_random(node) or any(one in mapped for one in node.all_input_nodes):
            mapped.add(node)
            if node.target is not operator.getitem and not _keeps_apart(node, mapped, graph):
                raise Unfit(f"{name_of(node)} is not known to keep mapped rows apart")
    return mapped


def refuse_unknown(nodes: Iterable[fx.Node]) -> None:
    """Refuse operators on public values whose derivatives may not keep rows apart.

    The derivative of an operator that is known here or in `row_rules` is known here, or uses what
    the forward operator gave.
    """
    for node in nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        name, tags = name_of(node), getattr(node.target, "tags", ())
        known = any(name in some for some in (_KNOWN, _COMPOSED, _PUBLIC, RULES))
        if not known and torch.Tag.pointwise not in tags:
            raise Unfit(f"{name} is not known to have a derivative that keeps rows apart")


def _refuse_unfit(node: fx.Node) -> None:
    """Refuse uninitialised memory, which could hold anybody's rows, and divisions that may trap."""
    name, target = name_of(node), node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        raise Unfit(f"{name} is not an operator of torch")
    refuse_trapping(node, name)
    refuse_draws_by_value(node)
    if "empty" in name and not all(name_of(user) in _OVERWRITES for user in node.users):
        raise Unfit(f"{name} gives uninitialised memory")
    if target._schema.is_mutable or any(word in name for word in _FORBIDDEN):
        raise Unfit(f"{name} uses memory that others have written")


def _keeps_apart(node: fx.Node, mapped: Collection[fx.Node], graph: fx.Graph) -> bool:
    assert isinstance(node.target, torch._ops.OpOverload)
    name = name_of(node)
    if name in _PUBLIC:
        return argument(node, _PUBLIC[name]) not in mapped
    if name == "_cdist_backward":
        return _distances_fit(node)
    if name in _PAIRED:
        return any(_follows(node, one, _PAIRED[name].get(name_of(one))) for one in graph.nodes)
    return name in _KNOWN or is_random(node) or torch.Tag.pointwise in node.target.tags


def _distances_fit(node: fx.Node) -> bool:
    """Check shapes, because autograd calls it a second time with its operands exchanged."""
    grad, first, second, saved = (_shape(node.args[place]) for place in (0, 1, 2, 4))
    same = first[:-2] == second[:-2] and first[-1] == second[-1]
    return same and grad == saved == [*first[:-1], second[-2]]


def _follows(node: fx.Node, forward: fx.Node, pairs: str | None) -> bool:
    """Check whether a derivative takes what this forward operator took and gave."""
    if pairs is None or not isinstance(forward.target, torch._ops.OpOverload):
        return False
    made = forward.meta["val"]
    grown = list((made[0] if isinstance(made, list | tuple) else made).shape)
    if name_of(node).endswith(("_backward", "_data")) and _shape(node.args[0]) != grown:
        return False
    for pair in pairs.split():
        own, _, theirs = pair.partition("=")
        if not _is(_taken(node, own), forward, theirs or own):
            return False
    return True


def _is(value: Any, forward: fx.Node, theirs: str) -> bool:
    if theirs.startswith("#"):
        if isinstance(forward.meta["val"], list | tuple):
            taken = isinstance(value, fx.Node) and value.target is operator.getitem
            return taken and value.args == (forward, int(theirs[1:]))
        return value is forward
    expected = _taken(forward, theirs)
    return value is expected if isinstance(expected, fx.Node) else bool(value == expected)


def _taken(node: fx.Node, wanted: str) -> Any:
    """Return an argument, or its shape or length."""
    name, _, size = wanted.partition(".")
    value = _source(argument(node, name))
    return value if not size else _shape(value) if size == "shape" else _shape(value)[0]


def _shape(value: Any) -> list[int]:
    return list(value.meta["val"].shape)


def _source(value: Any) -> Any:
    """Return the node that computed these values."""
    while isinstance(value, fx.Node) and name_of(value) in _SAME_VALUES:
        value = value.args[0]
    return value
