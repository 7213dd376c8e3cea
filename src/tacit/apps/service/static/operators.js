/* The operators of Tacit's encoders, as ONNX (opset 17) defines them: (inputs, attributes) → output. */

import { broadcast, pick, places, size, strides, tensor } from "./tensors.js";

const unary = (rule, Kind) => ([x]) => {
  const data = new (Kind ?? x.data.constructor)(x.data.length);
  for (let at = 0; at < data.length; at++) data[at] = rule(x.data[at]);
  return tensor(x.dims, data);
};

const binary = (rule, Kind) => ([a, b]) => {
  const shape = broadcast(a.dims, b.dims);
  const data = new (Kind ?? a.data.constructor)(size(shape));
  const left = places(shape, strides(a.dims, shape)), right = places(shape, strides(b.dims, shape));
  for (let at = 0; at < data.length; at++) data[at] = rule(a.data[left[at]], b.data[right[at]]);
  return tensor(shape, data);
};

function where([test, a, b]) {
  const shape = broadcast(test.dims, a.dims, b.dims);
  const [yes, left, right] = [test, a, b].map((t) => places(shape, strides(t.dims, shape)));
  const data = new a.data.constructor(size(shape));
  for (let at = 0; at < data.length; at++) {
    data[at] = test.data[yes[at]] ? a.data[left[at]] : b.data[right[at]];
  }
  return tensor(shape, data);
}

function matmul([a, b]) {
  const [rows, inner] = a.dims.slice(-2), columns = b.dims.at(-1);
  const batch = broadcast(a.dims.slice(0, -2), b.dims.slice(0, -2));
  const starts = [a, b].map((t) => {
    const outer = t.dims.slice(0, -2), matrix = size(t.dims.slice(-2));
    return places(batch, strides(outer, batch)).map((place) => place * matrix);
  });
  const data = new Float32Array(size(batch) * rows * columns), sums = new Float64Array(columns);
  for (let part = 0, out = 0; part < starts[0].length; part++) {
    for (let row = 0; row < rows; row++, out += columns) {
      sums.fill(0);
      for (let k = 0; k < inner; k++) {
        const factor = a.data[starts[0][part] + row * inner + k];
        const from = starts[1][part] + k * columns;
        for (let column = 0; column < columns; column++) sums[column] += factor * b.data[from + column];
      }
      data.set(sums, out);
    }
  }
  return tensor([...batch, rows, columns], data);
}

// --- shapes -------------------------------------------------------------------------------------

function transpose([x], { perm }) {
  const step = strides(x.dims), shape = perm.map((axis) => x.dims[axis]);
  return pick(x, shape, places(shape, perm.map((axis) => step[axis])));
}

function reshape([x, wanted]) {
  const shape = [...wanted.data].map((length, axis) => (length === 0 ? x.dims[axis] : length));
  const known = shape.reduce((product, length) => (length < 0 ? product : product * length), 1);
  return tensor(shape.map((length) => (length < 0 ? x.data.length / known : length)), x.data);
}

function flatten([x], { axis = 1 }) {
  return tensor([size(x.dims.slice(0, axis)), size(x.dims.slice(axis))], x.data);
}

function unsqueeze([x, axes]) {
  const rank = x.dims.length + axes.data.length, remaining = [...x.dims];
  const added = new Set([...axes.data].map((axis) => (axis + rank) % rank));
  return tensor(Array.from({ length: rank }, (_, at) => (added.has(at) ? 1 : remaining.shift())), x.data);
}

function concat(inputs, { axis }) {
  const at = (axis + inputs[0].dims.length) % inputs[0].dims.length;
  const shape = [...inputs[0].dims];
  shape[at] = inputs.reduce((sum, x) => sum + x.dims[at], 0);
  const data = new inputs[0].data.constructor(size(shape));
  let to = 0;
  for (let outer = 0; outer < size(shape.slice(0, at)); outer++) {
    for (const x of inputs) {
      const length = size(x.dims.slice(at));
      data.set(x.data.subarray(outer * length, (outer + 1) * length), to);
      to += length;
    }
  }
  return tensor(shape, data);
}

function slice([x, starts, ends, axes]) {
  const shape = [...x.dims], step = strides(x.dims);
  let start = 0;
  [...axes.data].forEach((given, index) => {
    const axis = (given + shape.length) % shape.length, length = x.dims[axis];
    const bound = (at) => Math.min(Math.max(at < 0 ? at + length : at, 0), length);
    const from = bound(starts.data[index]);
    start += from * step[axis];
    shape[axis] = Math.max(bound(ends.data[index]) - from, 0);
  });
  return pick(x, shape, places(shape, step, start));
}

function gather([x, indices], { axis = 0 }) {
  const before = x.dims.slice(0, axis), length = x.dims[axis], after = x.dims.slice(axis + 1);
  const inner = size(after), from = [];
  for (let outer = 0; outer < size(before); outer++) {
    for (const index of indices.data) {
      const start = (outer * length + (index < 0 ? index + length : index)) * inner;
      for (let at = 0; at < inner; at++) from.push(start + at);
    }
  }
  return pick(x, [...before, ...indices.dims, ...after], from);
}

function oneHot([indices, depth, values]) {
  const width = depth.data[0], [off, on] = values.data;
  const data = new Float32Array(indices.data.length * width).fill(off);
  indices.data.forEach((index, row) => {
    data[row * width + (index < 0 ? index + width : index)] = on;
  });
  return tensor([...indices.dims, width], data);
}

// --- sums and extremes --------------------------------------------------------------------------

/** Reduces each run along an axis to one number, in double precision. */
function reduce(x, given, keep, rule, Kind = Float32Array) {
  const axis = (given + x.dims.length) % x.dims.length, length = x.dims[axis];
  const inner = size(x.dims.slice(axis + 1)), outer = size(x.dims.slice(0, axis));
  const data = new Kind(outer * inner), run = new Float64Array(length);
  for (let to = 0; to < data.length; to++) {
    const start = Math.floor(to / inner) * length * inner + (to % inner);
    for (let at = 0; at < length; at++) run[at] = x.data[start + at * inner];
    data[to] = rule(run);
  }
  return tensor(x.dims.flatMap((n, at) => (at !== axis ? [n] : keep ? [1] : [])), data);
}

const sum = (run) => run.reduce((total, value) => total + value, 0);
const norm = (run) => Math.sqrt(run.reduce((total, value) => total + value * value, 0));
const first = (run) => run.reduce((best, value, at) => (value < run[best] ? at : best), 0);

/** Turns each run along the last axis into probabilities, in double precision. */
function softmax([x], { axis = -1 }) {
  if (axis !== -1 && axis !== x.dims.length - 1) throw new Error("encoder: Softmax must be along the last axis.");
  const length = x.dims.at(-1), data = new Float32Array(x.data.length);
  for (let start = 0; start < data.length; start += length) {
    const run = Float64Array.from(x.data.subarray(start, start + length)), most = Math.max(...run);
    const odds = run.map((value) => Math.exp(value - most)), total = sum(odds);
    data.set(odds.map((odd) => odd / total), start);
  }
  return tensor(x.dims, data);
}

const reduceSum = ([x, axes], { keepdims = 1 }) => reduce(x, axes.data[0], keepdims, sum);
const reduceL2 = ([x], { axes, keepdims = 1 }) => reduce(x, axes[0], keepdims, norm);
const argMin = ([x], { axis = 0, keepdims = 1 }) => reduce(x, axis, keepdims, first, Float64Array);

// --- images, (n, channels, height, width) -------------------------------------------------------

/** Returns the height and width of the output of a window of this size. */
function windowed(x, { kernel_shape: kernel, strides: by = [1, 1], pads = [0, 0, 0, 0],
  dilations = [1, 1] }) {
  return [0, 1].map((axis) => {
    const room = x.dims[axis + 2] + pads[axis] + pads[axis + 2];
    return Math.floor((room - dilations[axis] * (kernel[axis] - 1) - 1) / by[axis]) + 1;
  });
}

/** Calls `visit(plane, spot, places)` for each window of each channel; a place outside is −1. */
function windows(x, attributes, visit) {
  const { kernel_shape: kernel, strides: by = [1, 1], pads = [0, 0], dilations = [1, 1] } = attributes;
  const [images, channels, height, width] = x.dims, shape = windowed(x, attributes);
  const found = new Int32Array(size(kernel));
  for (let plane = 0; plane < images * channels; plane++) {
    for (let spot = 0; spot < size(shape); spot++) {
      const top = Math.floor(spot / shape[1]) * by[0] - pads[0], left = (spot % shape[1]) * by[1] - pads[1];
      for (let cell = 0; cell < found.length; cell++) {
        const row = top + dilations[0] * Math.floor(cell / kernel[1]);
        const column = left + dilations[1] * (cell % kernel[1]);
        const inside = row >= 0 && row < height && column >= 0 && column < width;
        found[cell] = inside ? (plane * height + row) * width + column : -1;
      }
      visit(plane, spot, found);
    }
  }
}

function conv([x, weights, bias], attributes) {
  const [images, channels] = x.dims, [filters, each] = weights.dims, shape = windowed(x, attributes);
  const cells = size(weights.dims.slice(2)), area = size(shape);
  const perGroup = filters / (attributes.group ?? 1);
  const sums = new Float64Array(images * filters * area);
  windows(x, attributes, (plane, spot, found) => {
    const image = Math.floor(plane / channels), channel = plane % channels;
    const start = Math.floor(channel / each) * perGroup;
    for (let filter = start; filter < start + perGroup; filter++) {
      let total = 0;
      const from = (filter * each + (channel % each)) * cells;
      for (let cell = 0; cell < cells; cell++) {
        if (found[cell] >= 0) total += x.data[found[cell]] * weights.data[from + cell];
      }
      sums[(image * filters + filter) * area + spot] += total;
    }
  });
  if (bias) sums.forEach((_, at) => { sums[at] += bias.data[Math.floor(at / area) % filters]; });
  return tensor([images, filters, ...shape], Float32Array.from(sums));
}

const pool = (rule) => ([x], attributes) => {
  const found = [];
  windows(x, attributes, (plane, spot, cells) => {
    const inside = Array.from(cells).filter((at) => at >= 0).map((at) => x.data[at]);
    found.push(rule(inside, attributes.count_include_pad ? cells.length : inside.length));
  });
  return tensor([...x.dims.slice(0, 2), ...windowed(x, attributes)], Float32Array.from(found));
};

const averagePool = pool((inside, count) => sum(inside) / count);
const maxPool = pool((inside) => Math.max(...inside));

/** Calls `rule(values)` for each plane of an image, or run of a row. */
function planes(x, rule) {
  const length = size(x.dims.slice(2));
  for (let plane = 0; plane < size(x.dims.slice(0, 2)); plane++) {
    rule(x.data.subarray(plane * length, (plane + 1) * length), plane, length);
  }
}

function globalAveragePool([x]) {
  const data = new Float32Array(size(x.dims.slice(0, 2)));
  planes(x, (values, plane, length) => { data[plane] = sum(values) / length; });
  return tensor([...x.dims.slice(0, 2), ...x.dims.slice(2).fill(1)], data);
}

function instanceNormalization([x, scale, shift], { epsilon = 1e-5 }) {
  const data = new Float32Array(x.data.length);
  planes(x, (values, plane, length) => {
    const mean = sum(values) / length;
    const spread = values.reduce((total, value) => total + (value - mean) ** 2, 0) / length;
    const factor = scale.data[plane % x.dims[1]] / Math.sqrt(spread + epsilon);
    values.forEach((value, at) => {
      data[plane * length + at] = (value - mean) * factor + shift.data[plane % x.dims[1]];
    });
  });
  return tensor(x.dims, data);
}

export const OPERATORS = {
  Add: binary((a, b) => a + b),
  Sub: binary((a, b) => a - b),
  Mul: binary((a, b) => a * b),
  Div: binary((a, b) => a / b),
  Pow: binary((a, b) => a ** b),
  Max: binary((a, b) => Math.max(a, b)),
  Greater: binary((a, b) => a > b, Uint8Array),
  GreaterOrEqual: binary((a, b) => a >= b, Uint8Array),
  Where: where,
  MatMul: matmul,
  Identity: ([x]) => x,
  Sqrt: unary(Math.sqrt),
  Cos: unary(Math.cos),
  Exp: unary(Math.exp),
  Tanh: unary(Math.tanh),
  Sigmoid: unary((value) => 1 / (1 + Math.exp(-value))),
  Relu: unary((value) => (value < 0 ? 0 : value)),
  LeakyRelu: ([x], { alpha = 0.01 }) => unary((value) => (value < 0 ? alpha * value : value))([x]),
  Elu: ([x], { alpha = 1 }) => unary((value) => (value < 0 ? alpha * Math.expm1(value) : value))([x]),
  Clip: ([x, low, high]) => unary((value) => Math.min(Math.max(value, low.data[0]), high.data[0]))([x]),
  IsNaN: unary(Number.isNaN, Uint8Array),
  Cast: unary(Number, Float32Array),
  Shape: ([x]) => tensor([x.dims.length], Float64Array.from(x.dims)),
  Transpose: transpose,
  Reshape: reshape,
  Flatten: flatten,
  Unsqueeze: unsqueeze,
  Concat: concat,
  Slice: slice,
  Gather: gather,
  OneHot: oneHot,
  Softmax: softmax,
  ReduceSum: reduceSum,
  ReduceL2: reduceL2,
  ArgMin: argMin,
  Conv: conv,
  AveragePool: averagePool,
  MaxPool: maxPool,
  GlobalAveragePool: globalAveragePool,
  InstanceNormalization: instanceNormalization,
};
