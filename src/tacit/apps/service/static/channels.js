/* The channels, which draw everything that leaves the browser; each can state its exact law. */

import { Told } from "./language.js";
import { GroupedMean } from "./means.js";
import { Cost } from "./odds.js";
import { TOTAL, bernoulli, discreteLaplace, subset, uniformBelow } from "./randomness.js";

const MOST = 2 ** 32;  // categories that can be drawn from
const MOST_PARTITIONS = 2 ** 16;

/** Refuses a description that is not a valid law: its cost could not be computed. */
export function must(holds, what) {
  if (!holds) throw new Told("error-law", { what });
}

/** Refuses a channel that does not cover every value that a row can have. */
export function mustFit(holds) {
  if (!holds) throw new Told("error-fit");
}

const wholeFrom = (least, value, most) => Number.isSafeInteger(value) && least <= value && value <= most;

/** Refuses a value outside the categories, which would be sent without noise. */
function within(category, categories) {
  if (!wholeFrom(0, category, categories - 1)) {
    throw new Error(`channel: the value must be one of ${categories} categories, so nothing was sent.`);
  }
}

function choose(n, k) {
  let count = 1n;
  for (let at = 1n; at <= BigInt(k); at++) count = (count * (BigInt(n - k) + at)) / at;
  return count;
}

/** A category in, a sorted set of `size` categories out. */
export class SubsetSelection {
  constructor({ categories, size, inclusion }) {
    Object.assign(this, { categories, size, inclusion: BigInt(inclusion) });
    must(wholeFrom(2, categories, MOST), "categories");
    must(wholeFrom(1, size, categories - 1), "size");
    must(0n < this.inclusion && this.inclusion < TOTAL, "inclusion");
    // If the true category were named less often than by chance, its absence would give it away.
    must(this.cost.odds[0] >= this.cost.odds[1], "inclusion");
  }

  release(category, rng) {
    within(category, this.categories);
    const held = bernoulli(this.inclusion, rng);
    const others = subset(this.categories - 1, this.size - held, rng);
    const chosen = [...others].map((other) => other + (other >= category));
    if (held) chosen.push(category);
    return chosen.sort((a, b) => a - b);
  }

  /** P(set | category) as [numerator, denominator]. */
  probability(set, category) {
    const others = this.categories - 1;
    return set.includes(category)
      ? [this.inclusion, TOTAL * choose(others, this.size - 1)]
      : [TOTAL - this.inclusion, TOTAL * choose(others, this.size)];
  }

  /** The probabilities that a report holds the true category, and that it holds any other one. */
  get chances() {
    const own = Number(this.inclusion) / Number(TOTAL);
    return [own, (this.size - own) / (this.categories - 1)];
  }

  /** Returns how often the best guess among `count` equally likely categories is right.
   *
   * A share `none` of all sets holds none of them; for the other sets, the guess is any one that is
   * held. If the guess is about something else, with a known probability of each category, these laws
   * are mixed, and a mixture reveals less: no guess at one of `count` equally likely things is right
   * more often.
   */
  guess(count) {
    const [own] = this.chances, rest = this.categories - this.size;
    let none = 1;
    for (let at = 0; at < count; at++) none *= Math.max(rest - at, 0) / (this.categories - at);
    const outside = rest > 0 ? (none * (1 - own)) / rest : 0;
    return (this.categories / count) * (((1 - none) * own) / this.size + outside);
  }

  /** The cost of one report, from the law itself: a set with the true category against one without. */
  get cost() {
    const held = this.inclusion * BigInt(this.categories - this.size);
    return new Cost([held, (TOTAL - this.inclusion) * BigInt(this.size)]);
  }
}

/** A category of each partition in; a partition, and a set of its categories, out.
 *
 * The partition is drawn uniformly, whatever the categories are, so that it says nothing about them.
 */
export class Partitioned extends SubsetSelection {
  constructor({ partitions, law }) {
    super(law);
    this.partitions = partitions;
    must(wholeFrom(1, partitions, MOST_PARTITIONS), "partitions");
  }

  release(categories, rng) {
    if (categories.length !== this.partitions) throw new Error("channel: there must be one category per partition.");
    // All of them are checked, so that an error does not depend on the partition that is drawn.
    categories.forEach((category) => within(category, this.categories));
    const partition = uniformBelow(this.partitions, rng);
    return { partition, symbols: super.release(categories[partition], rng) };
  }

  /** P(partition, set | categories) as [numerator, denominator]. */
  probability({ partition, symbols }, categories) {
    const [top, bottom] = super.probability(symbols, categories[partition]);
    return [top, bottom * BigInt(this.partitions)];
  }
}

/** A category in, a category out: the true one with weight `keep`, each other one with `other`. */
export class RandomizedResponse {
  constructor({ categories, keep, other }) {
    Object.assign(this, { categories, keep: BigInt(keep), other: BigInt(other), size: 1 });
    must(wholeFrom(2, categories, MOST), "categories");
    must(0n < this.other && this.other <= this.keep, "weights");
    must(this.keep + BigInt(categories - 1) * this.other === TOTAL, "weights");
  }

  release(category, rng) {
    within(category, this.categories);
    const word = rng.word();
    if (word < this.keep) return category;
    const slot = Number((word - this.keep) / this.other);
    return slot + (slot >= category);
  }

  /** P(answer | category) as [numerator, denominator]. */
  probability(answer, category) {
    return [answer === category ? this.keep : this.other, TOTAL];
  }

  get chances() {
    return [this.keep, this.other].map((weight) => Number(weight) / Number(TOTAL));
  }

  get cost() {
    return new Cost([this.keep, this.other]);
  }
}

/** Whole numbers in, whole numbers with discrete Laplace noise out. */
export class DiscreteLaplace {
  constructor({ scale }) {
    this.scale = scale.map(BigInt);
    must(scale.length === 2 && this.scale.every((part) => part > 0n), "scale");
    must(64n * this.scale[0] < 2n ** 53n * this.scale[1], "scale");  // or sums would be rounded
  }

  release(values, rng) {
    return values.map((value) => value + discreteLaplace(this.scale, rng));
  }

  /** Returns the cost at this ℓ1 sensitivity: P(y | x) is proportional to e^(−|y − x|/t). */
  costOf(sensitivity) {
    return new Cost([1n, 1n], [BigInt(sensitivity) * this.scale[1], this.scale[0]]);
  }
}

const KINDS = {
  __proto__: null,  // otherwise the names of every object's properties would be kinds
  "subset-selection": SubsetSelection,
  "grouped-mean": GroupedMean,
  partitions: Partitioned,
  "randomized-response": RandomizedResponse,
  "discrete-laplace": DiscreteLaplace,
};

/** Makes the channel that a server describes, which must be of one of these kinds. */
export function channelOf(described, kinds = Object.keys(KINDS)) {
  must(kinds.includes(described?.kind), "kind");
  if (described.kind === "partitions") must(described.law?.kind === "subset-selection", "kind");
  return new KINDS[described.kind](described);
}
