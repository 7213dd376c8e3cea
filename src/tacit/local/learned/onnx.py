r"""Encoders as ONNX graphs, for a person's device without Python or torch.

A graph takes checked rows, `numbers` (n, p) in [0, 1] with NaN where missing and `codes` (n, q)
with −1 where missing or unseen, and gives what the noise is then applied to: a codeword, or a
vector that is still to be put on its grid. Noise is not part of a graph: it has to come from the
device's own entropy.

Notes
-----
Graphs are written node by node. `Value` stands for an array that is not computed yet, so that
`scattering.scatter` writes its own graph. The result is checked, and the same for the same weights.
Sums are taken in another order than by numpy or torch: the last digits differ, and a point that is
as near to one cell as to another can change its codeword.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.schema import ArraySchema, Rows, Schema
from tacit.local.learned import patches, scattering, signals
from tacit.local.learned.cells import Cells
from tacit.local.learned.features import Features
from tacit.local.learned.scales import MOST_UNITS
from tacit.privacy import errors

OPSET, IR_VERSION = 17, 8
"""Old enough for runtimes on phones and in browsers."""

_FLOAT = 1  # ONNX's number for float32
_END = np.iinfo(np.int64).max


def vectors_graph(
    schema: Schema, features: Features, mean: npt.NDArray[Any], matrix: npt.NDArray[Any]
) -> Value:
    """Start a graph of rows with their projected features, in which cells are defined."""
    x = apply_features(features, schema, *Graph().rows(schema))
    return (x - _float32(mean)) @ _float32(matrix)


def codebook_encoder(
    z: Value, cells: npt.NDArray[Any], groups: npt.NDArray[Any] | None = None
) -> bytes:
    r"""Export rows with vectors z to `codeword`, int64 (n,): nearest cell, and its group.

    .. math:: g\Bigl(\arg\min_k \|c_k\|^2 - 2\,z \cdot c_k\Bigr)

    Parameters
    ----------
    z : Value
        See `vectors_graph`.
    cells : array, (k, d)
        c, in the space of z.
    groups : array of int, (k,), optional
        g: the codeword of each cell; by default its index.
    """
    graph = z.graph
    centres = np.asarray(cells, np.float64)
    scores = z @ _float32(-2 * centres.T) + _float32((centres**2).sum(axis=1))
    codeword = graph.node("ArgMin", scores, axis=1, keepdims=0)
    if groups is not None:
        codeword = graph.node("Gather", np.asarray(groups, np.int64), codeword)
    return graph.finish("codeword", codeword, whole=True)


def partitions_encoder(z: Value, cells: Cells) -> bytes:
    """Export rows with vectors z to `cells`, int64 (n, P): the cell in every partition."""
    graph = z.graph
    count, each, width = cells.centres.shape
    flat = cells.centres.reshape(-1, width)
    scores = z @ _float32(-flat.T) + _float32(cells.offsets.ravel())
    apart = scores.reshape(-1, count, each)
    small = graph.node("ArgMin", apart, axis=2, keepdims=0)
    if cells.groups is None:
        return graph.finish("cells", small, whole=count)
    places = (np.arange(cells.partitions) * each).astype(np.int64)
    joined = graph.node("Gather", cells.groups.ravel(), small + places, axis=0)
    return graph.finish("cells", joined, whole=cells.partitions)


def network_encoder(schema: Schema, network: Any, name: str = "latent") -> bytes:
    """Export a torch network on rows in the layout of `encoders.front_end`: float32 (n, d)."""
    graph = Graph()
    return graph.finish(name, apply_network(network, row_layout(schema, *graph.rows(schema))))


def features_encoder(schema: Schema, features: Features) -> bytes:
    """Export rows to `features`, float32 (n, D)."""
    graph = Graph()
    return graph.finish("features", apply_features(features, schema, *graph.rows(schema)))


def run(model: bytes, rows: Rows, block: int = 512) -> npt.NDArray[Any]:
    """Run a graph on rows with ONNX Runtime, in one thread and in blocks."""
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = {entry.name for entry in session.get_inputs()}
    pieces = []
    for start in range(0, len(rows), block):
        chosen = rows[start : start + block]
        feed = {"numbers": chosen.numbers, "codes": chosen.codes}
        (piece,) = session.run(None, {name: feed[name] for name in names})
        pieces.append(np.asarray(piece))
    return np.concatenate(pieces)


# --- graphs ----------------------------------------------------------------------------------


class Graph:
    """Nodes and constants in the order in which they are added."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def rows(self, schema: Schema) -> tuple[Value | None, Value | None]:
        """Add the inputs `numbers` and `codes`; None if the schema has no such columns."""
        array = isinstance(schema, ArraySchema)
        numbers = schema.width if isinstance(schema, ArraySchema) else len(schema.continuous)
        codes = 0 if array else len(schema.names) - numbers
        return (
            self._input("numbers", numbers, np.float32) if numbers else None,
            self._input("codes", codes, np.int64) if codes else None,
        )

    def _input(self, name: str, width: int, dtype: type[Any]) -> Value:
        from onnx import helper

        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, ["rows", width]))
        return Value(self, name)

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> Value:
        """Add one operator applied to values, arrays and numbers."""
        from onnx import helper

        names = [self._name(value) for value in inputs]
        result = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, names, [result], **attributes))
        return Value(self, result)

    def _name(self, value: Any) -> str:
        if isinstance(value, Value):
            return value.name
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        key = (array.dtype.str, array.shape, array.tobytes())
        return self._constants.setdefault(key, f"c{len(self._constants)}")

    def sqrt(self, value: Value) -> Value:
        return self.node("Sqrt", value)

    def concat(self, values: Sequence[Value], axis: int = 0) -> Value:
        return self.node("Concat", *values, axis=axis) if len(values) > 1 else values[0]

    def finish(self, name: str, result: Value, *, whole: bool | int = False) -> bytes:
        """Return the checked model with one output: float32 (n, d), int64 (n,) or (n, whole)."""
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        self._nodes.append(helper.make_node("Identity", [result.name], [name]))
        kind = TensorProto.FLOAT
        shape: list[Any] = ["rows", None]
        if whole:
            kind, shape = TensorProto.INT64, ["rows"] if whole is True else ["rows", whole]
        weights = [
            numpy_helper.from_array(np.frombuffer(data, dtype).reshape(shape_), constant)
            for (dtype, shape_, data), constant in self._constants.items()
        ]
        output = helper.make_tensor_value_info(name, kind, shape)
        graph = helper.make_graph(self._nodes, "encoder", self._inputs, [output], weights)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], producer_name="tacit")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))


class Value:
    """An array that a graph will compute, with the operations of numpy that encoders use."""

    __array_ufunc__ = None  # numpy then leaves `array @ value` to this class

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __matmul__(self, other: Any) -> Value:
        return self.graph.node("MatMul", self, other)

    def __rmatmul__(self, other: Any) -> Value:
        return self.graph.node("MatMul", other, self)

    def __add__(self, other: Any) -> Value:
        return self.graph.node("Add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.graph.node("Sub", self, other)

    def __mul__(self, other: Any) -> Value:
        return self.graph.node("Mul", self, other)

    def __truediv__(self, other: Any) -> Value:
        return self.graph.node("Div", self, other)

    def reshape(self, *shape: int) -> Value:
        return self.graph.node("Reshape", self, np.array(shape, np.int64))

    def sum(self, axis: int) -> Value:
        return self.graph.node("ReduceSum", self, np.array([axis], np.int64), keepdims=0)

    def __getitem__(self, key: Any) -> Value:
        """Slice leading axes, or, after an ellipsis, trailing axes."""
        parts = key if isinstance(key, tuple) else (key,)
        first = -(len(parts) - 1) if parts[0] is Ellipsis else 0
        slices = parts[1:] if parts[0] is Ellipsis else parts
        cuts = [(first + i, s) for i, s in enumerate(slices) if s != slice(None)]
        starts = np.array([s.start or 0 for _, s in cuts], np.int64)
        stops = np.array([_END if s.stop is None else s.stop for _, s in cuts], np.int64)
        axes = np.array([axis for axis, _ in cuts], np.int64)
        return self.graph.node("Slice", self, starts, stops, axes)


# --- features --------------------------------------------------------------------------------


def apply_features(
    features: Any, schema: Schema, numbers: Value | None, codes: Value | None
) -> Value:
    """Add the nodes of `features.transform`."""
    if features.kind == "scattering":
        assert numbers is not None
        return _scattering(features, numbers)
    if features.kind == "patches":
        assert numbers is not None
        return _patches(features, numbers)
    if features.kind == "signals":
        assert numbers is not None
        told = _of_signals(features, numbers)
        return apply_features(features.scales, features.scales.quantile.schema, told, None)
    if features.kind == "random":
        base = apply_features(features.base, schema, numbers, codes)
        angles = base @ features.weights + features.phases
        return base.graph.node("Cos", angles) * float(np.sqrt(2 / features.dimension))
    if features.kind == "scales":
        first = apply_features(features.quantile, schema, numbers, codes)
        if not features.mean.size:
            return first
        assert numbers is not None
        missing = first.graph.node("IsNaN", numbers)
        second = (first.graph.node("Where", missing, 0.5, numbers) - features.mean) * features.unit
        most = np.float32(MOST_UNITS)
        return first.graph.concat([first, first.graph.node("Clip", second, -most, most)], axis=1)
    if features.kind == "quantile":
        levels = None if numbers is None else _levels(features, numbers)
        centred: Value = row_layout(schema, numbers, codes, levels) - features.offset
        scaled: Value = centred * features.scale
        return scaled
    layout = row_layout(schema, numbers, codes)
    return layout if features.kind == "raw" else apply_network(features.encoder, layout)


def row_layout(
    schema: Schema, numbers: Value | None, codes: Value | None, shown: Value | None = None
) -> Value:
    """Add numbers (or `shown` in their place), indicators of missing ones, and one-hot codes."""
    parts: list[Value] = []
    if numbers is not None:
        graph, indicated = numbers.graph, _indicated(schema)
        parts.append(numbers if shown is None else shown)
        if indicated:
            missing = graph.node("IsNaN", numbers)
            parts = [graph.node("Where", missing, 0.5, *parts)]
            marks = graph.node("Gather", missing, np.array(indicated, np.int64), axis=1)
            parts.append(graph.node("Cast", marks, to=_FLOAT))
    if codes is not None and not isinstance(schema, ArraySchema):
        for index, column in enumerate(schema.categorical):
            slots = len(column.categories) + (column.unseen == "other")
            code = codes.graph.node("Gather", codes, np.int64(index), axis=1)
            # −1 counts from the end: the last place is for missing or unseen values.
            parts.append(_one_hot(code, slots))
    return parts[0].graph.concat(parts, axis=1)


def _indicated(schema: Schema) -> list[int]:
    if isinstance(schema, ArraySchema):
        return []
    return [i for i, column in enumerate(schema.continuous) if column.missing == "indicate"]


def _one_hot(code: Value, slots: int) -> Value:
    depth, values = np.array([slots], np.int64), np.array([0, 1], np.float32)
    return code.graph.node("OneHot", code, depth, values, axis=-1)


def _levels(features: Any, numbers: Value) -> Value:
    """Average the shares of quantiles below, and up to, each number."""
    graph = numbers.graph
    column = graph.node("Unsqueeze", numbers, np.array([2], np.int64))
    counts = [
        graph.node("Cast", graph.node(test, column, features.quantiles), to=_FLOAT).sum(2)
        for test in ("Greater", "GreaterOrEqual")
    ]
    return (counts[0] + counts[1]) / float(2 * features.quantiles.shape[1])


def _scattering(features: Any, numbers: Value) -> Value:
    """Move images to the last axis for scattering, and back to the first one."""
    graph = numbers.graph
    stacked = graph.node("Transpose", numbers, perm=[1, 0]).reshape(*features.image, -1)
    channels: Value = scattering.scatter(stacked, scattering.bank(*features.image), graph)
    return graph.node("Transpose", channels.reshape(features.dimension, -1), perm=[1, 0])


def _of_signals(features: Any, numbers: Value) -> Value:
    """Move signals to the last axis, and what is told of them back to the first one."""
    graph = numbers.graph
    stacked = graph.node("Transpose", numbers, perm=[1, 0])
    told: Value = signals.describe(stacked, features.signal, graph)
    return graph.node("Transpose", told, perm=[1, 0])


def _patches(features: Any, numbers: Value) -> Value:
    """Add local filters as convolutions; normalising a patch is linear but for one quotient."""
    graph, (height, width, channels) = numbers.graph, features.schema.colour
    side, stride = patches.SIDE, patches.STRIDE
    images = graph.node(
        "Transpose", numbers.reshape(-1, height, width, channels), perm=[0, 3, 1, 2]
    )
    # A patch is (channel, down, across), as in `patches.transform`.
    kernels = features.filters.T.reshape(-1, channels, side, side)
    even = np.full((1, channels, side, side), 1 / (channels * side * side), np.float32)
    settings: dict[str, Any] = {"strides": [stride, stride], "kernel_shape": [side, side]}
    settings |= {"pads": [0, 0, 0, 0], "dilations": [1, 1], "group": 1}
    mean = graph.node("Conv", images, even, **settings)
    square = graph.node("Conv", images * images, even, **settings)
    spread = graph.sqrt(graph.node("Relu", square - mean * mean)) + np.float32(patches.FLOOR)
    sums = kernels.sum(axis=(1, 2, 3)).reshape(1, -1, 1, 1)
    centred = graph.node("Conv", images, _float32(kernels), **settings) - mean * _float32(sums)
    responses = centred / spread - features.bias.reshape(1, -1, 1, 1)
    limit, minus = np.float32(patches.THRESHOLD), np.float32(-1)
    both = [graph.node("Relu", part - limit) for part in (responses, responses * minus)]
    sizes = [(size - side) // stride + 1 for size in (height, width)]
    pooled = [_quarters(part, sizes, len(features.bias)) for part in both]
    return graph.concat([*pooled, _quarters(images, [height, width], channels)], axis=1)


def _quarters(maps: Value, sizes: Sequence[int], channels: int) -> Value:
    """Average maps (n, F, height, width) over quarters, as rows (n, quarters · F)."""
    graph = maps.graph
    shares = []
    for size in sizes:
        parts = np.array_split(np.arange(size), patches.QUARTERS)
        share = np.zeros((len(parts), size), np.float32)
        for index, part in enumerate(parts):
            share[index, part] = 1 / len(part)
        shares.append(share)
    across = maps @ np.ascontiguousarray(shares[1].T)
    down = shares[0] @ across
    last = graph.node("Transpose", down, perm=[0, 2, 3, 1])
    return last.reshape(-1, patches.QUARTERS**2 * channels)


# --- torch networks --------------------------------------------------------------------------


def apply_network(network: Any, x: Value) -> Value:
    """Add the nodes of a torch network in evaluation mode; refuse unknown layers.

    A network is a layer, a `Sequential`, or an encoder of images with `image`, `layers` and `unit`.
    """
    if hasattr(network, "layers") and hasattr(network, "image"):
        vectors = apply_network(network.layers, x.reshape(-1, 1, *network.image))
        return _unit(vectors) if network.unit else vectors
    kind = type(network).__name__
    if kind == "Sequential":
        for layer in network:
            x = apply_network(layer, x)
        return x
    if kind not in _LAYERS:
        errors.refuse("onnx", "layer", "one of " + ", ".join(sorted(_LAYERS)), kind)
    return _LAYERS[kind](network, x)


def _unit(x: Value) -> Value:
    """Scale rows to norm 1, as torch's `normalize` does."""
    norm = x.graph.node("ReduceL2", x, axes=[1], keepdims=1)
    return x / x.graph.node("Max", norm, 1e-12)


def _linear(layer: Any, x: Value) -> Value:
    product = x @ _weights(layer.weight).T.copy()
    return product if layer.bias is None else product + _weights(layer.bias)


def _convolution(layer: Any, x: Value) -> Value:
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        errors.refuse("onnx", "padding", "zeros, in numbers", layer.padding_mode)
    biases = [] if layer.bias is None else [_weights(layer.bias)]
    pads = [*layer.padding, *layer.padding]
    shape = {"kernel_shape": list(layer.kernel_size), "strides": list(layer.stride)}
    more = {"pads": pads, "dilations": list(layer.dilation), "group": layer.groups}
    return x.graph.node("Conv", x, _weights(layer.weight), *biases, **shape, **more)


def _group_norm(layer: Any, x: Value) -> Value:
    """Add group norm as instance normalisation of groups, which older runtimes support."""
    groups, graph = layer.num_groups, x.graph
    ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    flat = graph.node("Reshape", x, np.array([0, groups, -1], np.int64))
    normal = graph.node("InstanceNormalization", flat, ones, zeros, epsilon=layer.eps)
    back = graph.node("Reshape", normal, graph.node("Shape", x))
    if layer.weight is None:
        return back
    return back * _weights(layer.weight)[:, None, None] + _weights(layer.bias)[:, None, None]


def _pool(operator: str) -> Callable[[Any, Value], Value]:
    def pool(layer: Any, x: Value) -> Value:
        size, stride, pad = (_pair(v) for v in (layer.kernel_size, layer.stride, layer.padding))
        if layer.ceil_mode or _pair(getattr(layer, "dilation", 1)) != [1, 1]:
            errors.refuse("onnx", "pooling", "without ceil_mode and dilation", operator)
        counted = {} if operator == "MaxPool" else {"count_include_pad": layer.count_include_pad}
        shape = {"kernel_shape": size, "strides": stride, "pads": pad + pad}
        return x.graph.node(operator, x, **shape, **counted)

    return pool


def _adaptive(layer: Any, x: Value) -> Value:
    if _pair(layer.output_size) != [1, 1]:
        errors.refuse("onnx", "output_size", "1", layer.output_size)
    return x.graph.node("GlobalAveragePool", x)


def _flatten(layer: Any, x: Value) -> Value:
    if (layer.start_dim, layer.end_dim) != (1, -1):
        errors.refuse("onnx", "Flatten", "from 1 to -1", (layer.start_dim, layer.end_dim))
    return x.graph.node("Flatten", x, axis=1)


def _simple(operator: str, *attributes: tuple[str, str]) -> Callable[[Any, Value], Value]:
    def apply(layer: Any, x: Value) -> Value:
        given = {theirs: float(getattr(layer, ours)) for theirs, ours in attributes}
        return x.graph.node(operator, x, **given)

    return apply


_LAYERS: Mapping[str, Callable[[Any, Value], Value]] = {
    "Linear": _linear,
    "Conv2d": _convolution,
    "GroupNorm": _group_norm,
    "AvgPool2d": _pool("AveragePool"),
    "MaxPool2d": _pool("MaxPool"),
    "AdaptiveAvgPool2d": _adaptive,
    "Flatten": _flatten,
    "ReLU": _simple("Relu"),
    "LeakyReLU": _simple("LeakyRelu", ("alpha", "negative_slope")),
    "ELU": _simple("Elu", ("alpha", "alpha")),
    "Tanh": _simple("Tanh"),
    "Sigmoid": _simple("Sigmoid"),
    "Identity": lambda layer, x: x,
    "Dropout": lambda layer, x: x,
}


def _weights(tensor: Any) -> npt.NDArray[np.float32]:
    return _float32(tensor.detach().cpu().numpy())


def _float32(array: Any) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(array, np.float32)


def _pair(size: Any) -> list[int]:
    return list(size) if isinstance(size, tuple | list) else [size, size]
