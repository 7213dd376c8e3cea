/* Odds against e^ε, decided in whole numbers; and what several parts cost together. */

const BITS = 256n, ONE = 1n << BITS;
const MOST = 700;  // beyond it ε protects nobody

/** A number as the decimal that it is written as: 0.1 is [1n, 10n]. */
function rational(number) {
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

  /** ε as a number, to show. */
  get epsilon() {
    return logarithm(this.odds[0]) - logarithm(this.odds[1]) + Number(this.exponent[0]) / Number(this.exponent[1]);
  }
}

/** Of a whole number of any length. */
function logarithm(number) {
  const bits = number.toString(2).length, shift = Math.max(bits - 64, 0);
  return Math.log(Number(number >> BigInt(shift))) + shift * Math.LN2;
}

export const FREE = new Cost([1n, 1n]);
