/* Arrays with a shape: float32 in Float32Array, whole numbers in Float64Array, yes or no in bytes. */

export const tensor = (dims, data) => ({ dims, data });

export const size = (dims) => dims.reduce((product, length) => product * length, 1);

/** Steps from one element to the next along each axis; 0 where an axis is repeated. */
export function strides(dims, shape = dims) {
  const found = new Array(shape.length).fill(0);
  let step = 1;
  for (let axis = dims.length - 1, at = shape.length - 1; axis >= 0; axis--, at--) {
    if (dims[axis] !== 1) found[at] = step;
    step *= dims[axis];
  }
  return found;
}

/** The shape that several shapes are repeated to. */
export function broadcast(...shapes) {
  const rank = Math.max(...shapes.map((dims) => dims.length));
  return Array.from({ length: rank }, (_, at) => {
    const lengths = shapes.map((dims) => dims[dims.length - rank + at] ?? 1);
    const length = lengths.find((one) => one !== 1) ?? 1;
    if (lengths.some((one) => one !== 1 && one !== length)) {
      throw new Error(`encoder: shapes ${shapes.join(" and ")} do not fit.`);
    }
    return length;
  });
}

/** Places of the elements of `shape` in an array with these strides, in order. */
export function places(shape, step, start = 0) {
  const found = new Int32Array(size(shape));
  const index = new Array(shape.length).fill(0);
  for (let at = 0, place = start; at < found.length; at++) {
    found[at] = place;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      place += step[axis];
      if (++index[axis] < shape[axis]) break;
      place -= step[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return found;
}

/** The elements at these places, with this shape. */
export function pick(source, shape, where) {
  const data = new source.data.constructor(where.length);
  for (let at = 0; at < where.length; at++) data[at] = source.data[where[at]];
  return tensor(shape, data);
}
