/* The questions of one sheet as a form, and a survey's reports in words. */

import { Complaint, find, focusOn, make } from "./page.js";
import { someOf } from "./preview.js";
import { dateAfter, isDate } from "./survey.js";
import { cost, factor, guess, percent, plural, surer } from "./words.js";

const MOST_BUTTONS = 24, SHOWN = 6;

const textOf = ({ text, name }) => text || name;
const headingOf = (question) => (question.option === undefined ? textOf(question)
  : `${textOf(question).replace(/\?$/, "")}: ${question.option}?`);
const unitOf = ({ unit }) => (unit ? `\u00a0${unit}` : "");
const day = (text) => new Date(`${text}T00:00Z`).toLocaleDateString("en", { dateStyle: "long", timeZone: "UTC" });

const bare = (number) => Number(number.toPrecision(6)).toLocaleString("en");

/** Formats a number with its unit, or the date that it stands for. */
function valued(question, number) {
  return question.kind === "date" ? day(dateAfter(question.first, number)) : `${bare(number)}${unitOf(question)}`;
}

/** Formats two numbers, with their unit once. */
function between(question, low, high, word) {
  return `${question.kind === "date" ? valued(question, low) : bare(low)} ${word} ${valued(question, high)}`;
}

// --- the form -----------------------------------------------------------------------------------

/** A form with the questions of the sheet that this browser drew. It stays in this object. */
export class Sheet {
  constructor(device, sheet) {
    Object.assign(this, { device, sheet });
    this.fields = device.asked(sheet).map(({ question }, at) => new Field(question, `ask-${at}`));
    const many = device.sheets.length > 1;
    find("fill").replaceChildren(...(many ? [make("p", { class: "hint" },
      "Your browser picked what you are asked, at random. Other people are asked something else.")] : []),
      ...this.fields.map((one) => one.element));
    find("fill").hidden = false;
  }

  /** Returns the answers; null if some are missing, which is said beside them. */
  take() {
    const missing = this.fields.filter((one) => !one.check());
    missing[0]?.focus();
    if (missing.length > 0) return null;
    const answers = Object.fromEntries(this.fields.map((one) => [one.question.name, one.value]));
    return { row: { sheet: this.sheet, answers } };
  }

  /** Makes elements that show every answer as it was given. */
  own() {
    return this.fields.flatMap((one) => [make("dt", {}, headingOf(one.question)), make("dd", {}, one.said)]);
  }

  /** Returns sentences on what the report would reveal. */
  told() {
    const { device, sheet } = this, parts = device.sheets[sheet], { epsilon } = device.costOf(sheet);
    return [
      ...(device.sheets.length > 1 ? ["What you were asked says nothing about you: it was picked before you answered."]
        : []),
      ...parts.flatMap((part) => part.measures.map(rounded).filter(Boolean)),
      ...parts.flatMap((part) => named(part)),
      `The report changes the odds of any other guess about you by a factor of at most ${factor(epsilon)} `
        + `(${cost(epsilon)}). ${surer(0.1, epsilon, "it")}`,
    ];
  }

  /** Forgets the answers. */
  clear() {
    this.fields.forEach((one) => one.clear());
  }
}

/** Says what happens to a number before the noise. */
function rounded({ kind, size, question }) {
  if (question.options) return "";
  const { lower, upper } = question, name = `“${headingOf(question)}”`;
  if (kind === "bins") return `Of your answer to ${name}, only the range that holds it is used, one of ${size}.`;
  const ends = size === 2 ? between(question, lower, upper, "or")
    : `one of ${size} values from ${between(question, lower, upper, "to")}`;
  return `Your answer to ${name} is first replaced at random by ${ends}, the nearer one more often`
    + `${kind === "moments" ? ". This is done twice" : ""}.`;
}

/** Says how often a report names the true answer. */
function named(part) {
  return part.grouped ? ofNumber(part) : ofSets(part);
}

/** Says how a number is reported, and the answers that it is reported with. */
function ofNumber({ channel, measures }) {
  const [own, other] = channel.chances, { groups, symbols } = channel;
  const lines = [`The report holds one of ${symbols} numbers, drawn at random. Each of them can be drawn whatever you `
    + "answer; those near your answer more often."];
  if (groups === 1) return lines;
  const what = measures.length > 2 ? "combinations of answers" : "answers";
  return [`The report names one of ${groups.toLocaleString("en")} possible ${what}. It names yours ${percent(own)} `
    + `of the time, and each other one ${percent(other)} of the time.`, ...lines];
}

function ofSets({ channel, measures }) {
  const [own, other] = channel.chances, { size, categories } = channel;
  const what = measures.length > 1 ? "combinations of answers" : "answers";
  const lines = [`The report names ${size} of ${categories.toLocaleString("en")} possible ${what}. It names yours `
    + `${percent(own)} of the time, and each other one ${percent(other)} of the time.`];
  const alone = measures.length === 1 && measures[0].kind === "option";
  if (alone) lines.push(guess(channel.guess(categories), categories, "answer"));
  return lines;
}

/** One question, with its help, its unit and a place for what is wrong. */
class Field {
  constructor(question, id) {
    Object.assign(this, { question, id });
    const { options } = question;
    this.radios = Boolean(options) && options.length <= MOST_BUTTONS;
    this.inputs = this.radios ? this.#radios() : [options ? this.#select() : this.#input()];
    this.element = this.radios ? this.#fieldset() : this.#labelled();
    this.complaint = Complaint.make(`${id}-error`, this.radios ? this.element : this.inputs[0]);
    this.element.append(this.complaint.element);
    const described = [...this.element.querySelectorAll("small")].map((one) => one.id);
    this.#described = [...described, `${id}-error`].join(" ");
    (this.radios ? [this.element] : this.inputs).forEach((one) => one.setAttribute("aria-describedby", this.#described));
    this.element.addEventListener("input", () => this.complaint.element.hidden || this.check());
  }

  #described;

  #radios() {
    return this.question.options.map((option, at) => make("input",
      { type: "radio", name: this.id, id: `${this.id}-${at}`, value: option, autocomplete: "off" }));
  }

  #select() {
    const options = this.question.options.map((name) => make("option", { value: name }, name));
    return make("select", { id: this.id, autocomplete: "off" }, make("option", { value: "" }, "Choose…"), ...options);
  }

  #input() {
    const { kind, first, last } = this.question;
    if (kind === "date") return make("input", { type: "date", id: this.id, min: first, max: last, autocomplete: "off" });
    return make("input", { type: "text", id: this.id, inputmode: "decimal", autocomplete: "off" });
  }

  #fieldset() {
    const choices = this.inputs.map((input) =>
      make("span", {}, input, make("label", { for: input.id }, titled(input.value))));
    return make("fieldset", { class: "ask" }, make("legend", {}, headingOf(this.question)), ...this.#help(),
      make("div", { class: "choices" }, ...choices));
  }

  #labelled() {
    const { unit, kind } = this.question, [input] = this.inputs;
    const beside = unit && kind === "number" ? [make("span", { class: "unit", id: `${this.id}-unit` }, unit)] : [];
    return make("div", { class: "ask" }, make("label", { for: this.id }, headingOf(this.question)), ...this.#help(),
      make("div", { class: "entry" }, input, ...beside));
  }

  #help() {
    const { help, kind, lower, upper, first, last, option } = this.question;
    const bounds = kind === "number" ? between(this.question, lower, upper, "to")
      : kind === "date" && `${day(first)} to ${day(last)}`;
    const lines = [help, bounds && `From ${bounds}. An answer beyond counts as the nearest of these.`,
      option !== undefined && "You are asked about this one only."].filter(Boolean);
    return lines.map((line, at) => make("small", { id: `${this.id}-help-${at}` }, line));
  }

  /** The answer, as the schema has it; undefined if it is missing, NaN if it is not one. */
  get value() {
    if (this.radios) return this.inputs.find((one) => one.checked)?.value;
    const text = this.inputs[0].value.trim();
    if (text === "") return this.inputs[0].validity.badInput ? NaN : undefined;
    if (this.question.options) return text;
    return this.question.kind === "number" ? numberOf(text) : isDate(text) ? text : NaN;
  }

  /** The answer in words. */
  get said() {
    const { question, value } = this;
    if (question.options) return titled(value);
    if (question.kind === "date") return day(value);
    return `${value.toLocaleString("en", { maximumFractionDigits: 20 })}${unitOf(question)}`;
  }

  /** Whether there is an answer; if not, says so beside the question. */
  check() {
    const { value, question: { options, kind } } = this;
    const missing = options ? "Choose an answer." : `Give a ${kind}.`;
    const other = `This must be a ${kind}, like ${kind === "date" ? "2026-01-31" : "3 or 2.5"}.`;
    const wrong = value === undefined ? missing : Number.isNaN(value) ? other : "";
    return this.complaint.say(wrong);
  }

  focus() {
    focusOn(this.inputs[0], this.element);
  }

  clear() {
    this.inputs.forEach((one) => { if (this.radios) one.checked = false; else one.value = ""; });
    this.complaint.say("");
  }
}

const titled = (option) => (["yes", "no"].includes(option) ? option[0].toUpperCase() + option.slice(1) : option);

/** Reads a number with a decimal point or comma; NaN for anything else. */
function numberOf(text) {
  const plain = text.replace(",", ".").replace("−", "-");
  return /^[-+]?(\d+\.?\d*|\.\d+)$/.test(plain) ? Number(plain) : NaN;
}

// --- reports in words ---------------------------------------------------------------------------

/** Says what a level of a measure stands for. */
function levelOf({ kind, size, question }, level) {
  const { options, lower, upper } = question, width = upper - lower;
  if (options) return titled(options[level]);
  const bound = (at) => lower + (width * at) / size, point = (at) => lower + (width * at) / (size - 1);
  if (kind === "bins") return between(question, bound(level), bound(level + 1), "to");
  if (kind === "mean") return valued(question, point(level));
  return between(question, point(Math.floor(level / 2)), point(Math.ceil(level / 2)), "and");
}

/** Names a symbol: the answer to one question, or the answers to several. */
function symbolOf({ measures }, levels) {
  const said = measures.map((one, at) => levelOf(one, levels[at]));
  // Where two could be mistaken for each other, the questions are named.
  const alike = measures.filter(({ question: { options } }) => options?.[0] === "no").length > 1
    || measures.some(({ kind }) => kind === "moments");
  if (!alike) return said.join(" and ");
  return said.map((one, at) => `${headingOf(measures[at].question)} ${one}`).join("; ");
}

/** Makes elements that say what a report holds: all of it, or a few of the named answers. */
export function reportOf(report, device, most = Infinity) {
  const sets = device.sets(report), parts = device.sheets[report.sheet], short = most < Infinity && parts.length === 1;
  return make("div", { class: "way" }, ...parts.flatMap((part, at) => {
    const shown = sets[at].length > most ? someOf(sets[at], -1, most) : sets[at], more = sets[at].length - shown.length;
    const about = part.measures.map(({ question }) => `“${headingOf(question)}”`).join(" and ");
    return [...(short ? [] : [make("p", { class: "about" }, `On ${about}:`)]), make("ul", {},
      ...shown.map((symbol) => make("li", {}, symbolOf(part, part.levels(symbol)))),
      ...(more > 0 ? [make("li", { class: "more" }, `and ${more.toLocaleString("en")} more`)] : []))];
  }));
}

/** Makes an example of a report, for the preview. */
export const exampleOf = (report, device) => reportOf(report, device, SHOWN);

/** Returns what taking part means, in the words of a survey. */
export function promises({ sheets }) {
  const picks = sheets.length > 1 ? `There are ${plural(sheets.length, "short sheet")} of questions. Your browser picks `
    + "one at random, before you answer, and asks you only what is on it. It then sends the number of the sheet, and"
    : "Your browser sends";
  const list = `a list of possible answers, chosen at random, to ${location.host}.`;
  return { sent: `${picks} ${list} Yours may or may not be on the list.` };
}
