/* Runs the encoders that Tacit writes, directly from their ONNX file.
 *
 * ONNX Runtime Web could run them too, but it takes about ten megabytes, and it is WebAssembly, which
 * the page's content security policy forbids. These graphs use a few dozen operators.
 */

import { OPERATORS } from "./operators.js";
import { tensor } from "./tensors.js";

const FLOAT = 1, INT64 = 7;

/** A graph to run; an unknown operator is refused before anything runs. */
export class Graph {
  constructor(bytes) {
    const model = readModel(new Uint8Array(bytes));
    this.nodes = model.nodes;
    this.constants = model.constants;
    this.inputs = model.inputs;
    this.output = model.output;
    for (const node of this.nodes) {
      if (!OPERATORS[node.operator]) throw new Error(`encoder: unknown operator ${node.operator}.`);
    }
  }

  /** Returns the output for the tensors `numbers` (n, p) and `codes` (n, q); unused ones are ignored. */
  run(feed) {
    const values = new Map(this.constants);
    for (const name of this.inputs) values.set(name, feed[name]);
    for (const { operator, inputs, outputs, attributes } of this.nodes) {
      values.set(outputs[0], OPERATORS[operator](inputs.map((name) => values.get(name)), attributes));
    }
    return values.get(this.output);
  }
}

// --- protocol buffers ---------------------------------------------------------------------------

/** Yields the fields of a message: the field's number, and its value as a number or as bytes. */
function* fields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = view.getUint8(at++);
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
    }
  };
  while (at < bytes.length) {
    const key = Number(varint()), kind = key & 7;
    if (kind === 0) {
      yield [key >> 3, Number(varint())];
    } else if (kind === 5) {
      yield [key >> 3, view.getFloat32(at, true)];
      at += 4;
    } else if (kind === 2) {
      const length = Number(varint());
      if (length > bytes.length - at) throw new Error("encoder: the file is cut short.");
      yield [key >> 3, bytes.subarray(at, at + length)];
      at += length;
    } else throw new Error("encoder: the file is damaged.");
  }
}

const text = (bytes) => new TextDecoder().decode(bytes);

/** Reads repeated whole numbers, which come one by one or packed. */
function whole(value) {
  if (!(value instanceof Uint8Array)) return [value];
  const numbers = [];
  let number = 0n, shift = 0n;
  for (const byte of value) {
    number |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) {
      numbers.push(Number(BigInt.asIntN(64, number)));
      number = shift = 0n;
    }
  }
  return numbers;
}

function readModel(bytes) {
  for (const [field, value] of fields(bytes)) if (field === 7) return readGraph(value);
  throw new Error("encoder: the file holds no graph.");
}

function readGraph(bytes) {
  const graph = { nodes: [], constants: new Map(), inputs: [], output: null };
  for (const [field, value] of fields(bytes)) {
    if (field === 1) graph.nodes.push(readNode(value));
    else if (field === 5) graph.constants.set(...readTensor(value));
    else if (field === 11) graph.inputs.push(nameOf(value));
    else if (field === 12) graph.output = nameOf(value);
  }
  return graph;
}

function nameOf(bytes) {
  for (const [field, value] of fields(bytes)) if (field === 1) return text(value);
  throw new Error("encoder: a value has no name.");
}

function readNode(bytes) {
  const node = { operator: "", inputs: [], outputs: [], attributes: {} };
  for (const [field, value] of fields(bytes)) {
    if (field === 1) node.inputs.push(text(value));
    else if (field === 2) node.outputs.push(text(value));
    else if (field === 4) node.operator = text(value);
    else if (field === 5) Object.assign(node.attributes, readAttribute(value));
  }
  return node;
}

function readAttribute(bytes) {
  let name = "", scalar, list = [];
  for (const [field, value] of fields(bytes)) {
    if (field === 1) name = text(value);
    else if (field === 2 || field === 3) scalar = value;
    else if (field === 8) list.push(...whole(value));
  }
  return { [name]: scalar ?? list };
}

function readTensor(bytes) {
  let name = "", kind, raw = new Uint8Array();
  const dims = [];
  for (const [field, value] of fields(bytes)) {
    if (field === 1) dims.push(...whole(value));
    else if (field === 2) kind = value;
    else if (field === 8) name = text(value);
    else if (field === 9) raw = value;
  }
  return [name, tensor(dims, numbersOf(raw.slice().buffer, kind))];
}

function numbersOf(buffer, kind) {
  if (kind === FLOAT) return new Float32Array(buffer);
  if (kind === INT64) return Float64Array.from(new BigInt64Array(buffer), Number);
  throw new Error(`encoder: unknown type of numbers ${kind}.`);
}
