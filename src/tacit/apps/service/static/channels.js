/* The channels: what leaves the browser is drawn here, and every one can state its exact law. */

import { Cost } from "./odds.js";
import { TOTAL, bernoulli, discreteLaplace, subset } from "./randomness.js";

const MOST = 2 ** 32;  // categories that can be drawn from

/** A described law that is none is refused: what it would cost is not what it tells. */
function must(holds, what) {
  if (!holds) throw new Error(`The server describes noise that is none (${what}), so nothing was sent.`);
}

const wholeFrom = (least, value, most) => Number.isSafeInteger(value) && least <= value && value <= most;

/** What is not among the categories would go out as it is. */
function within(category, categories) {
  if (!wholeFrom(0, category, categories - 1)) {
    throw new Error(`channel: there is no such category among ${categories}, so nothing was sent.`);
  }
}

function choose(n, k) {
  let found = 1n;
  for (let at = 1n; at <= BigInt(k); at++) found = (found * (BigInt(n - k) + at)) / at;
  return found;
}

/** A category in, a sorted set of `size` categories out. */
export class SubsetSelection {
  constructor({ categories, size, inclusion }) {
    Object.assign(this, { categories, size, inclusion: BigInt(inclusion) });
    must(wholeFrom(2, categories, MOST), "categories");
    must(wholeFrom(1, size, categories - 1), "size");
    must(0n < this.inclusion && this.inclusion < TOTAL, "inclusion");
    // Named less often than by chance, the own category would be told by its absence.
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

  /** The chance that a report holds its own category, and that it holds any other one. */
  get chances() {
    const own = Number(this.inclusion) / Number(TOTAL);
    return [own, (this.size - own) / (this.categories - 1)];
  }

  /** How often the best guess among `count` equally likely categories is right.
   *
   * Of all sets, a share `none` holds none of them; in the others, any that is held is the guess.
   * Knowing how likely each category is for something that is guessed can only mix these laws,
   * and a mixture tells less: no guess at one of `count` equally likely things is right more often.
   */
  guess(count) {
    const [own] = this.chances, rest = this.categories - this.size;
    let none = 1;
    for (let at = 0; at < count; at++) none *= Math.max(rest - at, 0) / (this.categories - at);
    const outside = rest > 0 ? (none * (1 - own)) / rest : 0;
    return (this.categories / count) * (((1 - none) * own) / this.size + outside);
  }

  /** What one report costs, from the law itself: a set with the own category against one without. */
  get cost() {
    const held = this.inclusion * BigInt(this.categories - this.size);
    return new Cost([held, (TOTAL - this.inclusion) * BigInt(this.size)]);
  }
}

/** A category in, a category out: the true one with weight `keep`, any other with `other`. */
export class RandomizedResponse {
  constructor({ categories, keep, other }) {
    Object.assign(this, { categories, keep: BigInt(keep), other: BigInt(other), size: 1 });
    must(wholeFrom(2, categories, MOST), "categories");
    must(0n < this.other && this.other <= this.keep, "weights");
    must(this.keep + BigInt(categories - 1) * this.other === TOTAL, "sum of weights");
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

  /** For values that differ by at most so much in all: P(y | x) is proportional to e^(−|y − x|/t). */
  costOf(sensitivity) {
    return new Cost([1n, 1n], [BigInt(sensitivity) * this.scale[1], this.scale[0]]);
  }
}

const KINDS = {
  __proto__: null,  // or every object's own names would be kinds
  "subset-selection": SubsetSelection,
  "randomized-response": RandomizedResponse,
  "discrete-laplace": DiscreteLaplace,
};

/** The channel that a server describes, of one of these kinds. */
export function channelOf(described, kinds = Object.keys(KINDS)) {
  must(kinds.includes(described?.kind), "kind");
  return new KINDS[described.kind](described);
}
