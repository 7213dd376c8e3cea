/* The mechanism on a person's device: encode a row, draw a report, ask the model. */

import { channelOf } from "./channels.js";
import { Graph } from "./onnx.js";
import { columnsOf } from "./rows.js";

const FAR = 2 ** 100;  // beyond every ball

/** Bytes of base64. */
export const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

const floatsOf = (text) => new Float32Array(bytesOf(text).buffer);

/** SHA-256 in hexadecimal. */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A described mechanism with its encoder's bytes, which must be those that it names. */
export async function deviceOf(described, encoder) {
  if (described.encoder !== null && (await sha256(encoder)) !== described.encoder) {
    throw new Error("The encoder is not the one that this collection names, so nothing was sent.");
  }
  const Kind = { latent: Latent, features: Features }[described.channel.kind] ?? Codebook;
  const device = new Kind(described, described.encoder === null ? null : new Graph(encoder));
  mustCost(device.epsilon, described.epsilon);
  return device;
}

/** The law that would be drawn from must cost what is stated, or less. */
export function mustCost(found, stated) {
  if (!(found <= stated * (1 + 1e-9))) {
    throw new Error("The noise is weaker than this collection states, so nothing was sent.");
  }
}

/** One codeword, or codeword and label, as one symbol through subset selection. */
class Codebook {
  constructor(described, graph) {
    this.graph = graph;
    this.channel = channelOf(described.channel);
    this.classes = described.labelled ? described.classes.length : 1;
    this.codewords = described.codewords;
    this.prototypes = bytesOf(described.prototypes);
    this.width = this.prototypes.length / described.codewords;
  }

  get epsilon() {
    return this.channel.epsilon;
  }

  /** The codeword of a row. */
  encode(row) {
    return this.graph.run(row).data[0];
  }

  symbol(codeword, label) {
    return codeword * this.classes + (label ?? 0);
  }

  /** The columns of one report. */
  release(codeword, label, rng) {
    return { symbols: this.channel.release(this.symbol(codeword, label), rng) };
  }

  /** What a codeword looks like, from 0 to 255. */
  prototype(codeword) {
    return this.prototypes.subarray(codeword * this.width, (codeword + 1) * this.width);
  }

  /** The place of the model's answer among its labels. */
  answer(codeword, ballot) {
    return ballot.codewords[codeword];
  }
}

/** A latent in whole grid steps within an ℓ1 ball, with noise, and a flipped label. */
class Latent {
  constructor(described, graph) {
    this.graph = graph;
    [this.step, this.radius] = described.channel.grid;
    this.noise = channelOf(described.channel.noise);
    this.flip = channelOf(described.channel.label);
  }

  get epsilon() {
    return (2 * this.radius) / this.noise.spread + (this.flip?.epsilon ?? 0);
  }

  /** Clipped grid steps of a row. */
  encode(row) {
    return clip(Array.from(this.graph.run(row).data, (value) => quantize(value, this.step)), this.radius);
  }

  release(steps, label, rng) {
    const flipped = this.flip ? { label: this.flip.release(label, rng) } : {};
    return { ...flipped, latent: this.noise.release(steps, rng) };
  }

  answer(steps, ballot) {
    return through(ballot.network, Float32Array.from(steps, (step) => step * this.step));
  }
}

/** Every number with its own noise, every category with its own flip. */
class Features {
  constructor(described) {
    const { steps, indicated, places, noise, flips, label } = described.channel;
    Object.assign(this, { steps, indicated, places, noise: channelOf(noise), flip: channelOf(label) });
    this.flips = flips.map(channelOf);
    this.numbers = columnsOf(described.schema).length - flips.length + indicated.length;
  }

  get epsilon() {
    const numbers = this.noise ? (this.numbers * this.steps) / this.noise.spread : 0;
    return [...this.flips, this.flip].reduce((sum, flip) => sum + (flip?.epsilon ?? 0), numbers);
  }

  encode({ numbers, codes }) {
    const missing = Array.from(numbers.data, Number.isNaN);
    const steps = Array.from(numbers.data, (value, at) => evenly((missing[at] ? 0.5 : value) * this.steps));
    const declared = this.places.slice(this.indicated.length);
    return {
      steps,
      codes: [
        ...this.indicated.map((at) => Number(missing[at])),
        ...Array.from(codes.data, (code, at) => (code < 0 ? declared[at] - 1 : code)),
      ],
    };
  }

  release({ steps, codes }, label, rng) {
    const report = {};
    if (this.noise) report.numbers = this.noise.release(steps, rng);
    // A column of one category says nothing; any other without its flip would go out in the clear.
    const flipped = (code, at) => (this.places[at] === 1 ? code : this.flips[at].release(code, rng));
    if (codes.length) report.codes = codes.map(flipped);
    if (this.flip) report.label = this.flip.release(label, rng);
    return report;
  }

  answer({ steps, codes }, ballot) {
    const hot = codes.flatMap((code, at) =>
      Array.from({ length: this.places[at] }, (_, place) => Number(place === code)));
    return through(ballot.network, Float32Array.from([...steps.map((s) => s / this.steps), ...hot]));
  }
}

/** The nearest whole number, halves to the even one. */
function evenly(value) {
  const below = Math.floor(value), rest = value - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
}

/** The nearest multiple of the grid step, as a whole number; halves go up. */
function quantize(value, step) {
  const finite = Number.isNaN(value) ? 0 : Math.min(Math.max(value, -FAR), FAR);
  const reach = 2 ** 40 * step;
  const half = Math.floor(Math.min(Math.max(finite, -reach), reach) * (2 / step));
  return Math.floor((half + 1) / 2);
}

const length = (steps) => steps.reduce((sum, step) => sum + Math.abs(step), 0);

/** Scaled towards zero until the ℓ1 norm is within the radius, decided in whole numbers. */
function clip(steps, radius) {
  const factor = Math.min(radius / Math.max(length(steps), 1), 1);
  let clipped = steps.map((step) => {
    const real = step * factor, nearest = Math.round(real);
    return Math.abs(real - nearest) <= 2 ** -20 ? nearest : Math.trunc(real);
  });
  while (length(clipped) > radius) clipped = clipped.map((step) => step - Math.sign(step));
  return clipped.map((step) => step + 0);  // no −0
}

/** The most probable class of a network of linear layers with ReLU between them. */
function through(network, inputs) {
  const center = floatsOf(network.center), spread = floatsOf(network.spread);
  let values = inputs.map((value, at) => (value - center[at]) / spread[at]);
  network.layers.forEach(({ weights, biases }, depth) => {
    const matrix = floatsOf(weights), next = floatsOf(biases);
    values.forEach((value, row) => {
      for (let to = 0; to < next.length; to++) next[to] += value * matrix[row * next.length + to];
    });
    values = depth < network.layers.length - 1 ? next.map((value) => Math.max(value, 0)) : next;
  });
  return values.reduce((best, value, at) => (value > values[best] ? at : best), 0);
}
