/* Odds against e^ε, decided in whole numbers; and what several parts cost together. */

const BITS = 256n, ONE = 1n << BITS;
const MOST = 700;  // beyond it ε protects nobody

/** A number as the decimal that it is written as: 0.1 is [1n, 10n]. */
export function rational(number) {
  const [digits, power = "0"] = String(number).split("e");
  const [whole, rest = ""] = digits.split(".");
  const shift = Number(power) - rest.length, top = BigInt(whole + rest);
  return shift >= 0 ? [top * 10n ** BigInt(shift), 1n] : [top, 10n ** BigInt(-shift)];
}

/** 2^256 e^x for x = top/bottom ≥ 0, or a little less: every step rounds down. */
function expBelow(top, bottom) {
  let halvings = 0n;
  while (top > bottom << halvings) halvings++;
  const x = (top << BITS) / (bottom << halvings);
  let sum = ONE;
  for (let term = (ONE * x) >> BITS, k = 2n; term > 0n; term = ((term * x) >> BITS) / k, k++) sum += term;
  for (; halvings > 0n; halvings--) sum = (sum * sum) >> BITS;
  return sum;
}

/** 2^256 e^ε or a little more. What `expBelow` rounds off is less than 2^-230 of it: a step is off by
 * one in 2^256, and ten squarings double that as often. */
export function expAbove(epsilon) {
  if (epsilon === 0) return ONE;
  const found = expBelow(...rational(Math.min(epsilon, MOST)));
  return found + (found >> 192n) + 1n;
}

/** Round top/bottom up to this number of digits, and return the number that is printed. */
export function ceiling(top, bottom, digits) {
  if (top <= 0n) return 0;
  let power = String(top).length - String(bottom).length - digits;  // of the last digit, or one too low
  const scaled = () => (power >= 0 ? [top, bottom * 10n ** BigInt(power)] : [top * 10n ** BigInt(-power), bottom]);
  const up = ([a, b]) => (a + b - 1n) / b;
  if (up(scaled()) > 10n ** BigInt(digits)) power++;
  return Number(`${up(scaled())}e${power}`);
}

/** The sum of two numbers as decimals, as a number that is not below it. */
export function sumAbove(first, second) {
  const [a, b] = rational(first), [c, d] = rational(second);
  return leastAbove(first + second, (number) => atLeast(number, [a * d + c * b, b * d]));
}

/** Whether a number, as a decimal, is at least top/bottom. */
export function atLeast(number, [top, bottom]) {
  const [a, b] = rational(number);
  return a * bottom >= top * b;
}

/** The least number near this one for which it holds, where it holds for all larger ones. */
function leastAbove(near, holds) {
  let found = near;
  while (found > 0 && holds(beside(found, -1n))) found = beside(found, -1n);
  while (!holds(found)) found = beside(found, 1n);
  return found;
}

/** The next number up or down; a positive one's bits count them. */
function beside(number, step) {
  const bits = new BigInt64Array(new Float64Array([number]).buffer);
  bits[0] += step;
  return new Float64Array(bits.buffer)[0];
}

/** What a draw costs: odds of two whole numbers, the larger first, and an exponent a/b beside them. */
export class Cost {
  constructor(odds, exponent = [0n, 1n]) {
    Object.assign(this, { odds, exponent });
  }

  /** The cost of both draws: odds multiply, exponents add up. */
  and({ odds: [top, bottom], exponent: [a, b] }) {
    const [c, d] = this.exponent;
    return new Cost([this.odds[0] * top, this.odds[1] * bottom], [a * d + c * b, b * d]);
  }

  /** Whether it is at most ε, exactly: the odds against e^(ε − exponent). */
  within(epsilon) {
    if (typeof epsilon !== "number" || !(epsilon >= 0 && epsilon <= MOST)) return false;
    const [top, bottom] = rational(epsilon), [a, b] = this.exponent;
    const left = top * b - a * bottom;
    return left >= 0n && this.odds[0] << BITS <= this.odds[1] * expBelow(left, bottom * b);
  }

  /** ε as a number that it does not exceed, the least one within what can be decided. */
  get epsilon() {
    const near = logarithm(this.odds[0]) - logarithm(this.odds[1]) + Number(this.exponent[0]) / Number(this.exponent[1]);
    return near > MOST ? near * (1 + 1e-9) : leastAbove(Math.max(near, 0), (epsilon) => epsilon > MOST || this.within(epsilon));
  }
}

/** Of a whole number of any length. */
function logarithm(number) {
  const bits = number.toString(2).length, shift = Math.max(bits - 64, 0);
  return Math.log(Number(number >> BigInt(shift))) + shift * Math.LN2;
}

export const FREE = new Cost([1n, 1n]);
