/* Exact draws on the integers: the same samplers as in Python, on the browser's own entropy. */

export const BITS = 64n;
export const TOTAL = 1n << BITS;

/** Uniform 64-bit words from the browser's cryptographic generator. */
export class SystemEntropy {
  #words = new BigUint64Array(64);
  #used = 64;

  word() {
    if (this.#used === this.#words.length) {
      crypto.getRandomValues(this.#words);
      this.#used = 0;
    }
    const word = this.#words[this.#used];
    this.#words[this.#used++] = 0n;  // so that it cannot be read afterwards
    return word;
  }
}

/** Returns true with probability weight / 2^64; the weight is an integer. */
export const bernoulli = (weight, rng) => rng.word() < weight;

/** Draws uniformly from 0, …, bound − 1 for bound ≤ 2^32, without modulo bias (Lemire). */
export function uniformBelow(bound, rng) {
  const wide = BigInt(bound), reject = (1n << 32n) % wide;
  for (;;) {
    const product = (rng.word() & 0xffffffffn) * wide;
    if ((product & 0xffffffffn) >= reject) return Number(product >> 32n);
  }
}

/** Draws uniformly from 0n, …, bound − 1n for any bound, by rejection. */
export function uniformBelowBig(bound, rng) {
  const bits = (bound - 1n).toString(2).length;
  for (;;) {
    let value = 0n;
    for (let drawn = 0; drawn < bits; drawn += 64) value = (value << BITS) | rng.word();
    value = BigInt.asUintN(bits, value);
    if (value < bound) return value;
  }
}

/** Draws a uniformly random subset of 0, …, universe − 1 with `count` elements (Floyd). */
export function subset(universe, count, rng) {
  if (2 * count > universe) {
    const excluded = subset(universe, universe - count, rng);
    return new Set(Array.from({ length: universe }, (_, at) => at).filter((at) => !excluded.has(at)));
  }
  const chosen = new Set();
  for (let last = universe - count; last < universe; last++) {
    const pick = uniformBelow(last + 1, rng);
    chosen.add(chosen.has(pick) ? last : pick);
  }
  return chosen;
}

// --- discrete Laplace noise, from fair coins and whole numbers only (Canonne, Kamath, Steinke) ---

const bernoulliRational = (top, bottom, rng) => uniformBelowBig(bottom, rng) < top;

/** Returns true with probability exactly e^(−top/bottom). */
function bernoulliExp(top, bottom, rng) {
  for (; top > bottom; top -= bottom) if (!bernoulliExp(bottom, bottom, rng)) return false;
  let k = 1n;
  while (bernoulliRational(top, bottom * k, rng)) k += 1n;
  return k % 2n === 1n;
}

/** Draws k with P(k) proportional to e^(−|k| bottom/top): the scale is top/bottom. */
export function discreteLaplace([top, bottom], rng) {
  for (;;) {
    const rest = uniformBelowBig(top, rng);
    if (!bernoulliExp(rest, top, rng)) continue;
    let whole = 0n;
    while (bernoulliExp(1n, 1n, rng)) whole += 1n;
    const size = (rest + top * whole) / bottom, negative = bernoulli(TOTAL / 2n, rng);
    if (negative && size === 0n) continue;  // otherwise zero would be twice as likely
    return Number(negative ? -size : size);
  }
}
