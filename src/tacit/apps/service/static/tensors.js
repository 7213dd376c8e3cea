/* Arrays with a shape: float32 in Float32Array, integers in Float64Array, booleans in bytes. */

export const tensor = (dims, data) => ({ dims, data });

export const size = (dims) => dims.reduce((product, length) => product * length, 1);

/** Returns the steps from one element to the next along each axis; 0 for a repeated axis. */
export function strides(dims, shape = dims) {
  const steps = new Array(shape.length).fill(0);
  let step = 1;
  for (let axis = dims.length - 1, at = shape.length - 1; axis >= 0; axis--, at--) {
    if (dims[axis] !== 1) steps[at] = step;
    step *= dims[axis];
  }
  return steps;
}

/** Returns the shape that several shapes are broadcast to. */
export function broadcast(...shapes) {
  const rank = Math.max(...shapes.map((dims) => dims.length));
  return Array.from({ length: rank }, (_, at) => {
    const lengths = shapes.map((dims) => dims[dims.length - rank + at] ?? 1);
    const length = lengths.find((one) => one !== 1) ?? 1;
    if (lengths.some((one) => one !== 1 && one !== length)) {
      throw new Error(`encoder: shapes must match, got ${shapes.join(" and ")}.`);
    }
    return length;
  });
}

/** Returns the places of the elements of `shape` in an array with these strides, in order. */
export function places(shape, step, start = 0) {
  const all = new Int32Array(size(shape));
  const index = new Array(shape.length).fill(0);
  for (let at = 0, place = start; at < all.length; at++) {
    all[at] = place;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      place += step[axis];
      if (++index[axis] < shape[axis]) break;
      place -= step[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return all;
}

/** Returns the elements at these places, with this shape. */
export function pick(source, shape, where) {
  const data = new source.data.constructor(where.length);
  for (let at = 0; at < where.length; at++) data[at] = source.data[where[at]];
  return tensor(shape, data);
}
