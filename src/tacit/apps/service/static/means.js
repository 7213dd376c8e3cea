/* A group and a number in one report: the law of GroupedMean, built in whole numbers and fractions. */

import { must } from "./channels.js";
import { Cost } from "./odds.js";
import { BITS, TOTAL as WORD } from "./randomness.js";

const TOTAL = 1n << 52n, HALF = 32, MOST_GROUPS = 4096;
export const POINTS = 2 * HALF + 1;

const sum = (weights) => weights.reduce((a, b) => a + b, 0n);
const larger = (a, b) => (a > b ? a : b), smaller = (a, b) => (a < b ? a : b);

/** A group and a point of the grid in (65 c + p), one symbol out, which names a group and a number.
 *
 * Each symbol has its base in every group; the own group has further weight on an interval of symbols, placed so
 * that the mean is the point. `most` is the largest weight of each symbol.
 */
export class GroupedMean {
  constructor({ groups, base, most }) {
    must(Number.isSafeInteger(groups) && 1 <= groups && groups <= MOST_GROUPS, "groups");
    must([base, most].every((one) => Array.isArray(one) && one.length === POINTS), "weights");
    Object.assign(this, { groups, size: 1, base: base.map(BigInt), most: most.map(BigInt) });
    must(this.base.every((low, at) => 0n <= low && low <= this.most[at] && low === this.base[POINTS - 1 - at]), "weights");
    must(this.most.every((high, at) => high === this.most[POINTS - 1 - at] && (high === 0n) === (this.base[at] === 0n)),
      "weights");
    this.ends = this.base.reduce((ends, low, at) => [...ends, ends[at] + this.most[at] - low], [0n]);
    this.width = TOTAL - BigInt(groups) * sum(this.base);
    this.last = this.ends[POINTS] - this.width;
    must(this.width >= 0n && this.last >= 0n && this.#moment(this.last) > 0n, "weights");
    this.kept = this.base.flatMap((low, at) => (low ? [at] : []));
    this.symbols = this.kept.length;
    this.rows = new Map();
  }

  /** How many values it takes. */
  get categories() {
    return this.groups * POINTS;
  }

  /** The weights of the symbols of the own group, for a point, and what base weights are multiplied with. */
  row(point) {
    if (!this.rows.has(point)) {
      const [top, scale] = this.#place(BigInt(Math.abs(point - HALF)));
      const row = this.#row(top, scale), own = this.kept.map((at) => row[point < HALF ? POINTS - 1 - at : at]);
      this.rows.set(point, { own, others: this.kept.map((at) => this.base[at] * scale), scale });
    }
    return this.rows.get(point);
  }

  /** Draws a symbol: a uniform number is compared with sums of weights, with as many bits as that takes. */
  release(value, rng) {
    const group = Math.floor(value / POINTS), { own, others, scale } = this.row(value % POINTS);
    const all = TOTAL * scale, sums = [];
    let edge = 0n;
    for (let part = 0; part < this.groups; part++) for (const weight of part ? others : own) sums.push((edge += weight));
    sums.pop();
    for (let bits = BITS, drawn = rng.word(); ; bits += BITS, drawn = drawn * WORD + rng.word()) {
      const floors = sums.map((one) => (one << bits) / all);
      if (floors.includes(drawn)) continue;  // open on which side of the edge the number lies
      return [this.#symbol(group, floors.filter((one) => one < drawn).length)];
    }
  }

  /** Returns the symbol at a place: those of the own group come first, then those of the others. */
  #symbol(group, place) {
    const which = Math.floor(place / this.symbols), named = which === 0 ? group : which - (which <= group);
    return named * this.symbols + (place % this.symbols);
  }

  /** P(symbol | value) as [numerator, denominator]. */
  probability([released], value) {
    const group = Math.floor(value / POINTS), { own, others, scale } = this.row(value % POINTS);
    const symbol = released % this.symbols, named = Math.floor(released / this.symbols);
    return [(named === group ? own : others)[symbol], TOTAL * scale];
  }

  /** Returns the group that a symbol names, and the point of the grid that its number stands for. */
  named(symbol) {
    return [Math.floor(symbol / this.symbols), this.kept[symbol % this.symbols]];
  }

  /** The probabilities that a report names the own group, and that it names any other one. */
  get chances() {
    const other = Number(sum(this.base)) / Number(TOTAL);
    return [1 - (this.groups - 1) * other, other];
  }

  /** The cost of one report: the symbol whose largest weight is most above its base. */
  get cost() {
    return this.kept.reduce((worst, at) => {
      const odds = [this.most[at], this.base[at]];
      return worst === null || odds[0] * worst.odds[1] > worst.odds[0] * odds[1] ? new Cost(odds) : worst;
    }, null);
  }

  /** Returns the weights beside those of the base, times `scale`, of an interval that starts at top/scale. */
  #row(top, scale) {
    const stop = top + this.width * scale;
    return this.base.map((low, at) => {
      const inside = smaller(this.ends[at + 1] * scale, stop) - larger(this.ends[at] * scale, top);
      return low * scale + larger(inside, 0n);
    });
  }

  #moment(start) {
    return this.#row(start, 1n).reduce((total, weight, at) => total + weight * BigInt(at - HALF), 0n);
  }

  /** Returns where the interval starts, as [numerator, denominator], for a mean of step/HALF of the largest. */
  #place(step) {
    if (step === 0n) return reduced(this.last, 2n);
    const half = BigInt(HALF), target = this.#moment(this.last) * step;  // over HALF
    let low = 0n, high = this.last;
    while (low < high) {
      const middle = (low + high) / 2n;
      if (this.#moment(middle) * half >= target) high = middle;
      else low = middle + 1n;
    }
    const beyond = this.#moment(low) * half - target;
    if (beyond === 0n) return [low, 1n];
    const slope = (this.#moment(low) - this.#moment(low - 1n)) * half;
    return reduced(low * slope - beyond, slope);
  }
}

function reduced(top, bottom) {
  let [a, b] = [top, bottom];
  while (b) [a, b] = [b, a % b];
  return [top / a, bottom / a];
}
