/* Odds compared with e^ε in integers, and the cost of several draws together. */

const BITS = 256n, ONE = 1n << BITS;
const MOST = 700;  // a larger ε protects nobody

/** Returns a number as the fraction of its decimal form: 0.1 is [1n, 10n]. */
export function rational(number) {
  const [digits, power = "0"] = String(number).split("e");
  const [whole, rest = ""] = digits.split(".");
  const shift = Number(power) - rest.length, top = BigInt(whole + rest);
  return shift >= 0 ? [top * 10n ** BigInt(shift), 1n] : [top, 10n ** BigInt(-shift)];
}

/** Returns 2^256 e^x for x = top/bottom ≥ 0, or a little less: every step rounds down. */
function expBelow(top, bottom) {
  let halvings = 0n;
  while (top > bottom << halvings) halvings++;
  const x = (top << BITS) / (bottom << halvings);
  let sum = ONE;
  for (let term = (ONE * x) >> BITS, k = 2n; term > 0n; term = ((term * x) >> BITS) / k, k++) sum += term;
  for (; halvings > 0n; halvings--) sum = (sum * sum) >> BITS;
  return sum;
}

/** Returns 2^256 e^ε or a little more. The error of `expBelow` is below 2^-230 of the value: each step
 * is off by one in 2^256, and each of ten squarings doubles that. */
export function expAbove(epsilon) {
  if (epsilon === 0) return ONE;
  const below = expBelow(...rational(Math.min(epsilon, MOST)));
  return below + (below >> 192n) + 1n;
}

/** Rounds top/bottom up to this number of digits, and returns the number that is printed. */
export function ceiling(top, bottom, digits) {
  if (top <= 0n) return 0;
  let power = String(top).length - String(bottom).length - digits;  // of the last digit, or one too low
  const scaled = () => (power >= 0 ? [top, bottom * 10n ** BigInt(power)] : [top * 10n ** BigInt(-power), bottom]);
  const up = ([a, b]) => (a + b - 1n) / b;
  if (up(scaled()) > 10n ** BigInt(digits)) power++;
  return Number(`${up(scaled())}e${power}`);
}

/** Returns a number that is at least the sum of two numbers, taken as decimals. */
export function sumAbove(first, second) {
  const [a, b] = rational(first), [c, d] = rational(second);
  return leastAbove(first + second, (number) => atLeast(number, [a * d + c * b, b * d]));
}

/** Whether a number, as a decimal, is at least top/bottom. */
export function atLeast(number, [top, bottom]) {
  const [a, b] = rational(number);
  return a * bottom >= top * b;
}

/** Returns the least number for which `holds`, near this one; it must hold for all larger numbers. */
function leastAbove(near, holds) {
  let least = near;
  while (least > 0 && holds(beside(least, -1n))) least = beside(least, -1n);
  while (!holds(least)) least = beside(least, 1n);
  return least;
}

/** Returns the next float up or down: the bits of positive floats are in order. */
function beside(number, step) {
  const bits = new BigInt64Array(new Float64Array([number]).buffer);
  bits[0] += step;
  return new Float64Array(bits.buffer)[0];
}

/** The cost of a draw: odds of two whole numbers, the larger first, times e^(a/b). */
export class Cost {
  constructor(odds, exponent = [0n, 1n]) {
    Object.assign(this, { odds, exponent });
  }

  /** Returns the cost of both draws: odds multiply, exponents add. */
  and({ odds: [top, bottom], exponent: [a, b] }) {
    const [c, d] = this.exponent;
    return new Cost([this.odds[0] * top, this.odds[1] * bottom], [a * d + c * b, b * d]);
  }

  /** Whether the cost is at most ε, exactly: compares the odds with e^(ε − exponent). */
  within(epsilon) {
    if (typeof epsilon !== "number" || !(epsilon >= 0 && epsilon <= MOST)) return false;
    const [top, bottom] = rational(epsilon), [a, b] = this.exponent;
    const remaining = top * b - a * bottom;
    return remaining >= 0n && this.odds[0] << BITS <= this.odds[1] * expBelow(remaining, bottom * b);
  }

  /** The least ε, as a number, that the cost provably does not exceed. */
  get epsilon() {
    const near = logarithm(this.odds[0]) - logarithm(this.odds[1]) + Number(this.exponent[0]) / Number(this.exponent[1]);
    return near > MOST ? near * (1 + 1e-9) : leastAbove(Math.max(near, 0), (epsilon) => epsilon > MOST || this.within(epsilon));
  }
}

/** Returns the logarithm of an integer of any length. */
function logarithm(number) {
  const bits = number.toString(2).length, shift = Math.max(bits - 64, 0);
  return Math.log(Number(number >> BigInt(shift))) + shift * Math.LN2;
}

export const FREE = new Cost([1n, 1n]);
