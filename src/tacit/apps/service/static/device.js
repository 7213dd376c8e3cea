/* The mechanism on a person's device: encode a row, draw a report, apply the model. */

import { channelOf, mustFit } from "./channels.js";
import { Told } from "./language.js";
import { FREE, sumAbove } from "./odds.js";
import { Graph } from "./onnx.js";
import { columnsOf, evenly } from "./rows.js";
import { Survey } from "./survey.js";

const FAR = 2 ** 100;  // beyond every ball
const SETS = ["subset-selection"], FLIPS = ["randomized-response"], NOISE = ["discrete-laplace"];

/** Decodes base64. */
export const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

const floatsOf = (text) => new Float32Array(bytesOf(text).buffer);

/** SHA-256 in hexadecimal. */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Makes the described mechanism with its encoder, whose hash must be the described one. */
export async function deviceOf(described, encoder) {
  if (described.encoder !== null && (await sha256(encoder)) !== described.encoder) {
    throw new Told("error-encoder");
  }
  const Kind = KINDS[described.channel.kind];
  mustFit(Kind);
  const device = new Kind(described, described.encoder === null ? null : new Graph(encoder));
  mustCost(device.cost, described.epsilon);
  return device;
}

/** Refuses a law that would cost more than is stated. */
export function mustCost(cost, stated) {
  if (!cost.within(stated)) {
    throw new Told("error-weaker");
  }
}

/** Refuses a description of a campaign that contradicts its channel or itself. */
export function mustAgree(campaign, described, device) {
  const { epsilon, vote_epsilon: vote, total_epsilon: total, delta, certificate } = campaign;
  const same = `${described.classes}` === `${campaign.classes}` && described.labelled === campaign.labelled;
  if (!same || described.artifact !== campaign.artifact.sha256 || described.epsilon !== epsilon) {
    throw new Told("error-two-mechanisms");
  }
  const costs = [epsilon, vote ?? 0, total].every(isCost) ? sumAbove(epsilon, vote ?? 0) : NaN;
  // With a δ, less than the sum can be proved, but not in a browser, which lacks such noise. Without
  // one, no total below the sum of both decimals is accepted; a last digit above it is rounding.
  const adds = costs >= 0 && total >= epsilon && (delta > 0 || (total >= costs && total <= costs * (1 + 1e-9)));
  const { epsilon: certified, delta: allowed } = certificate.guarantee;
  if (!adds || certified !== total || (allowed ?? 0) !== delta || (device && delta > 0)) {
    throw new Told("error-total");
  }
}

const isCost = (number) => typeof number === "number" && number >= 0 && number <= 10_000;

/** Makes the channel of a vote: right or wrong, for each class or for all together. */
export function votesOf({ channel, classes, epsilon }) {
  const made = channelOf(channel, [...SETS, ...FLIPS]);
  mustFit(made.categories === 2 * (classes?.length ?? 1));
  mustCost(made.cost, epsilon);
  return made;
}

/** Makes the graph of a model, whose hash must be the described one; null if the model has none. */
export async function modelOf(ballot, fetched) {
  if (ballot.graph === null) return null;
  const bytes = await fetched();
  if ((await sha256(bytes)) !== ballot.graph) {
    throw new Told("error-model");
  }
  return new Graph(bytes);
}

/** Makes the channel that flips a label; null if no label is sent. */
function labelOf(law, { labelled, classes }) {
  mustFit(Boolean(law) === labelled);
  if (!labelled) return null;
  const flip = channelOf(law, FLIPS);
  mustFit(flip.categories === classes.length);
  return flip;
}

/** A codeword, or a codeword with a label, as one symbol of a set. */
class Symbols {
  constructor(described, graph, kinds) {
    this.graph = graph;
    this.channel = channelOf(described.channel, kinds);
    this.classes = described.labelled ? described.classes.length : 1;
    this.codewords = described.codewords;
    mustFit(Number.isSafeInteger(this.codewords) && this.channel.categories === this.codewords * this.classes);
  }

  get cost() {
    return this.channel.cost;
  }

  symbol(codeword, label) {
    return codeword * this.classes + (label ?? 0);
  }
}

/** Several ways to divide rows into cells; a report names one way, and a set of its symbols. */
class Partitions extends Symbols {
  constructor(described, graph) {
    super(described, graph, ["partitions"]);
    this.partitions = this.channel.partitions;
  }

  /** Returns the cell of a row in every partition. */
  encode(row) {
    return Array.from(this.graph.run(row).data);
  }

  release(cells, label, rng) {
    return this.channel.release(cells.map((cell) => this.symbol(cell, label)), rng);
  }
}

/** One set of codewords, each with a picture or a typical row. */
class Codebook extends Symbols {
  constructor(described, graph) {
    super(described, graph, SETS);
    this.prototypes = bytesOf(described.prototypes);
    this.width = this.prototypes.length / described.codewords;
    mustFit(Number.isSafeInteger(this.width));
  }

  /** Returns the codeword of a row. */
  encode(row) {
    return this.graph.run(row).data[0];
  }

  /** Draws the columns of one report. */
  release(codeword, label, rng) {
    return { symbols: this.channel.release(this.symbol(codeword, label), rng) };
  }

  /** Returns a codeword's picture, from 0 to 255. */
  prototype(codeword) {
    return this.prototypes.subarray(codeword * this.width, (codeword + 1) * this.width);
  }

  /** Returns the index of the model's answer among its labels. */
  answer(codeword, ballot) {
    return ballot.codewords[codeword];
  }
}

/** A latent in whole grid steps within an ℓ1 ball, with noise, and a flipped label. */
class Latent {
  constructor(described, graph) {
    this.graph = graph;
    [this.step, this.radius] = described.channel.grid;
    mustFit(Number.isFinite(this.step) && this.step > 0 && Number.isSafeInteger(this.radius) && this.radius > 0);
    this.noise = channelOf(described.channel.noise, NOISE);
    this.flip = labelOf(described.channel.label, described);
  }

  get cost() {
    return this.noise.costOf(2 * this.radius).and(this.flip?.cost ?? FREE);
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
    const { steps, noise, flips, label } = described.channel;
    Object.assign(this, { steps, ...placesOf(described) });
    mustFit(Number.isSafeInteger(steps) && steps > 0 && Boolean(noise) === this.numbers > 0);
    this.noise = noise && channelOf(noise, NOISE);
    // A column of one category says nothing; any other without its flip would go out in the clear.
    mustFit(flips.length === this.places.length);
    this.flips = this.places.map((count, at) => (count === 1 ? null : channelOf(flips[at], FLIPS)));
    mustFit(this.flips.every((flip, at) => !flip || flip.categories === this.places[at]));
    this.flip = labelOf(label, described);
  }

  get cost() {
    const numbers = this.noise ? this.noise.costOf(this.numbers * this.steps) : FREE;
    return [...this.flips, this.flip].reduce((sum, flip) => sum.and(flip?.cost ?? FREE), numbers);
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
    if (codes.length) report.codes = codes.map((code, at) => this.flips[at]?.release(code, rng) ?? 0);
    if (this.flip) report.label = this.flip.release(label, rng);
    return report;
  }

  answer({ steps, codes }, ballot) {
    const hot = codes.flatMap((code, at) =>
      Array.from({ length: this.places[at] }, (_, place) => Number(place === code)));
    return through(ballot.network, Float32Array.from([...steps.map((s) => s / this.steps), ...hot]));
  }
}

/** Returns what a schema's channel must cover: numbers, which of them may be missing, categories. */
function placesOf({ schema, channel }) {
  const columns = columnsOf(schema), coded = columns.filter((one) => one.kind === "categorical");
  const numbers = columns.filter((one) => one.kind !== "categorical");
  const indicated = numbers.flatMap((one, at) => (one.missing === "indicate" ? [at] : []));
  const declared = coded.map((one) => one.categories.length + (one.unseen === "other"));
  const places = [...indicated.map(() => 2), ...declared];
  mustFit(`${channel.indicated}` === `${indicated}` && `${channel.places}` === `${places}`);
  return { numbers: numbers.length, indicated, places };
}

const KINDS = { __proto__: null, latent: Latent, features: Features, partitions: Partitions,
  "subset-selection": Codebook, survey: Survey };

/** Returns the nearest multiple of the grid step, as a whole number; halves go up. */
function quantize(value, step) {
  const finite = Number.isNaN(value) ? 0 : Math.min(Math.max(value, -FAR), FAR);
  const reach = 2 ** 40 * step;
  const half = Math.floor(Math.min(Math.max(finite, -reach), reach) * (2 / step));
  return Math.floor((half + 1) / 2);
}

const length = (steps) => steps.reduce((sum, step) => sum + Math.abs(step), 0);

/** Scales towards zero until the ℓ1 norm is within the radius, checked in whole numbers. */
function clip(steps, radius) {
  const factor = Math.min(radius / Math.max(length(steps), 1), 1);
  let clipped = steps.map((step) => {
    const real = step * factor, nearest = Math.round(real);
    return Math.abs(real - nearest) <= 2 ** -20 ? nearest : Math.trunc(real);
  });
  while (length(clipped) > radius) clipped = clipped.map((step) => step - Math.sign(step));
  return clipped.map((step) => step + 0);  // no −0
}

/** Returns the most probable class of a network of linear layers with ReLU between them. */
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
