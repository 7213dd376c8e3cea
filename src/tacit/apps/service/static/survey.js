/* A survey on a person's device: a sheet, the levels of answers, the report, and its exact law. */

import { channelOf, mustFit } from "./channels.js";
import { POINTS } from "./means.js";
import { FREE } from "./odds.js";
import { uniformBelow } from "./randomness.js";
import { evenly } from "./rows.js";

const DAY = 86_400_000, MOST_SIZE = 4096, MOST_STEPS = 2 ** 20, MOST_SHEETS = 2 ** 20;
const NUMERIC = ["mean", "moments", "bins"];
const whole = (least, value, most) => Number.isSafeInteger(value) && least <= value && value <= most;

/** Whether bounds lie this far apart: infinite ones would refuse some answers and not others, which shows. */
const isWidth = (width) => width > 0 && Number.isFinite(width);

/** Returns the day of a date like 2026-01-31, counted from 1970; NaN for anything else. */
const dayOf = (text) => (/^\d{4}-\d{2}-\d{2}$/.test(text) ? Date.parse(`${text}T00:00Z`) / DAY : NaN);

/** Whether a text is a date like 2026-01-31. */
export const isDate = (text) => Number.isFinite(dayOf(text));

/** Returns the date that is this many days after another. */
export const dateAfter = (first, days) => new Date((dayOf(first) + Math.round(days)) * DAY).toISOString().slice(0, 10);

/** Returns what is reported: each question, or each option of one with several answers. */
function variablesOf(questions) {
  const found = new Map();
  for (const [name, one] of Object.entries(questions)) {
    if (one.kind === "yes-no") found.set(name, { ...one, options: ["no", "yes"] });
    else if (one.kind === "one-of") found.set(name, one);
    else if (one.kind === "number") found.set(name, one);
    else if (one.kind === "date") found.set(name, { ...one, lower: 0, upper: dayOf(one.last) - dayOf(one.first) });
    else if (one.kind === "several-of") {
      for (const option of one.options) found.set(`${name}=${option}`, { ...one, option, options: ["no", "yes"] });
    }
  }
  found.forEach((one, name) => { one.name = name; });
  return found;
}

/** The levels of one variable in a report; numbers are rounded at random, so that their mean stays. */
class Measure {
  constructor([variable, kind, size], variables, steps) {
    this.question = variables.get(variable);
    Object.assign(this, { kind, size, steps });
    mustFit(this.question && whole(2, size, MOST_SIZE));
    const { options, lower, upper } = this.question;
    mustFit(options ? kind === "option" && size === options.length : NUMERIC.includes(kind) && isWidth(upper - lower));
  }

  get levels() {
    return this.kind === "moments" ? 2 * this.size - 1 : this.size;
  }

  /** Returns an answer as a whole number: the code of an option, or a position between the bounds. */
  encode(value) {
    const { options, lower, upper, first } = this.question;
    if (options) return options.indexOf(value);
    const number = Math.min(Math.max(first ? dayOf(value) - dayOf(first) : value, lower), upper);
    return Math.min(Math.max(evenly(((number - lower) / (upper - lower)) * this.steps), 0), this.steps);
  }

  /** Refuses what cannot be an encoded answer: it would choose the level without any noise. */
  must(raw) {
    const most = this.kind === "option" ? this.size - 1 : this.steps;
    if (!whole(0, raw, most)) throw new Error("survey: the answer must be one of those declared, so nothing was sent.");
  }

  /** Draws the level of an answer. All numbers are below 2^53, so whole numbers stay exact. */
  draw(raw, rng) {
    this.must(raw);
    if (this.kind === "option") return raw;
    if (this.kind === "bins") return this.#bin(raw);
    const [below, part] = this.#place(raw), up = () => Number(uniformBelow(this.steps, rng) < part);
    return this.kind === "mean" ? below + up() : 2 * below + up() + up();
  }

  /** P(level | answer) as [numerator, denominator]. */
  probability(level, raw) {
    this.must(raw);
    if (this.kind === "option") return [BigInt(level === raw), 1n];
    if (this.kind === "bins") return [BigInt(level === this.#bin(raw)), 1n];
    const [below, part] = this.#place(raw).map(BigInt), all = BigInt(this.steps), rest = all - part;
    const twice = this.kind === "moments", weights = twice ? [rest * rest, 2n * part * rest, part * part] : [rest, part];
    return [weights[level - Number(below) * (1 + twice)] ?? 0n, twice ? all * all : all];
  }

  #bin(raw) {
    return Math.min(Math.floor((raw * this.size) / this.steps), this.size - 1);
  }

  /** Returns the grid point below an answer, and how far it is from there to the next one, in steps. */
  #place(raw) {
    const position = raw * (this.size - 1);
    return [Math.floor(position / this.steps), position % this.steps];
  }
}

/** Measures that are released together: a set of joint symbols, or a group and a number. */
class Part {
  constructor({ measures, law }, variables, steps) {
    this.measures = measures.map((one) => new Measure(one, variables, steps));
    this.channel = channelOf(law, ["subset-selection", "grouped-mean"]);
    this.grouped = law.kind === "grouped-mean";
    mustFit(this.measures.length > 0);
    const kinds = this.measures.map(({ kind }) => kind), last = kinds.pop();
    mustFit(!this.grouped || (last === "mean" && kinds.every((kind) => kind === "option")));
    mustFit(this.channel.categories === this.measures.reduce((count, one) => count * one.levels, 1));
  }

  symbol(raws, rng) {
    return this.measures.reduce((symbol, one) => symbol * one.levels + one.draw(raws[one.question.name], rng), 0);
  }

  /** Returns the level of each measure in a released symbol. */
  levels(symbol) {
    const [group, point] = this.grouped ? this.channel.named(symbol) : [];
    let rest = this.grouped ? group * POINTS + point : symbol;
    const backwards = [...this.measures].reverse().map((one) => {
      const level = rest % one.levels;
      rest = (rest - level) / one.levels;
      return level;
    });
    return backwards.reverse();
  }

  /** P(set | answers) as [numerator, denominator]. */
  probability(set, raws) {
    return this.grouped ? this.#ofPoints(set, raws) : this.#ofSets(set, raws);
  }

  /** The mean over the two points that the number may be rounded to. */
  #ofPoints(set, raws) {
    const codes = this.measures.slice(0, -1).map((one) => [one.levels, raws[one.question.name]]), number = this.measures.at(-1);
    const group = codes.reduce((symbol, [levels, code]) => symbol * levels + code, 0), raw = raws[number.question.name];
    return Array.from({ length: POINTS }, (_, point) => point).reduce(([top, bottom], point) => {
      const [share, whole] = number.probability(point, raw);
      if (share === 0n) return [top, bottom];
      const [a, b] = this.channel.probability(set, group * POINTS + point);
      return [top * whole * b + share * a * bottom, bottom * whole * b];
    }, [0n, 1n]);
  }

  /** A set with the symbol in it, or without. */
  #ofSets(set, raws) {
    const outside = Array.from({ length: set.length + 1 }, (_, at) => at).find((at) => !set.includes(at));
    const [held, base] = this.channel.probability(set, set[0]), [missed, other] = this.channel.probability(set, outside);
    let own = 0n, scale = 1n;
    for (const symbol of set) {
      const levels = this.levels(symbol);
      const chances = this.measures.map((one, at) => one.probability(levels[at], raws[one.question.name]));
      own += chances.reduce((product, [top]) => product * top, 1n);
      scale = chances.reduce((product, [, bottom]) => product * bottom, 1n);
    }
    return [held * other * own + missed * base * (scale - own), base * other * scale];
  }
}

/** The mechanism: one sheet of several, and for each of its parts a set of symbols. */
export class Survey {
  constructor({ schema, channel: { steps, sheets }, labelled }) {
    mustFit(whole(1, steps, MOST_STEPS) && whole(1, sheets.length, MOST_SHEETS) && !labelled);
    const variables = variablesOf(schema.questions);
    this.sheets = sheets.map((parts) => parts.map((one) => new Part(one, variables, steps)));
    mustFit(this.sheets.every((parts) => parts.length > 0));
    this.width = Math.max(...this.sheets.map((parts) => parts.reduce((sum, one) => sum + one.channel.size, 0)));
  }

  /** The cost of one sheet: its parts together. */
  costOf(sheet) {
    return this.sheets[sheet].reduce((sum, one) => sum.and(one.channel.cost), FREE);
  }

  /** The cost of the sheet that costs most. */
  get cost() {
    const known = new Map();
    this.sheets.forEach((parts, at) => {
      const laws = parts.map(({ channel: { categories, size, inclusion, base, most } }) =>
        [categories, size, inclusion ?? [base, most]]).join(";");
      if (!known.has(laws)) known.set(laws, this.costOf(at));
    });
    return [...known.values()].reduce((most, one) => (one.epsilon > most.epsilon ? one : most));
  }

  /** Draws a sheet, before anything is asked. */
  assign(rng) {
    return uniformBelow(this.sheets.length, rng);
  }

  /** Returns what a sheet asks, each question once. */
  asked(sheet) {
    return this.sheets[sheet].flatMap((part) => part.measures);
  }

  /** Encodes the answers to the questions of a sheet. */
  encode({ sheet, answers }) {
    const pairs = this.asked(sheet).map((one) => [one.question.name, one.encode(answers[one.question.name])]);
    return { sheet, raws: Object.fromEntries(pairs) };
  }

  /** Draws the columns of one report; symbols of shorter sheets end in −1. */
  release({ sheet, raws }, _, rng) {
    this.asked(sheet).forEach((one) => one.must(raws[one.question.name]));
    const symbols = this.sheets[sheet].flatMap((part) => part.channel.release(part.symbol(raws, rng), rng));
    return { sheet, symbols: [...symbols, ...new Array(this.width - symbols.length).fill(-1)] };
  }

  /** Returns a report's set of symbols for each part of its sheet. */
  sets({ sheet, symbols }) {
    let from = 0;
    return this.sheets[sheet].map((part) => symbols.slice(from, (from += part.channel.size)));
  }

  /** P(report | answers) as [numerator, denominator]; the sheet is drawn uniformly. */
  probability(report, raws) {
    const sets = this.sets(report), parts = this.sheets[report.sheet];
    return parts.reduce(([top, bottom], part, at) => {
      const [a, b] = part.probability(sets[at], raws);
      return [top * a, bottom * b];
    }, [1n, BigInt(this.sheets.length)]);
  }
}
