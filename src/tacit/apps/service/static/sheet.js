/* The questions of one sheet as a form, and a survey's reports in words. */

import { day, listed, number, numberIn, owners, quote, text } from "./language.js";
import { Complaint, find, focusOn, make } from "./page.js";
import { someOf } from "./preview.js";
import { dateAfter, isDate } from "./survey.js";
import { guess, names, reveals } from "./words.js";

const MOST_BUTTONS = 24, SHOWN = 6;

const askedIn = (question) => question.text || question.name;

/** Returns a question in words; of one with several answers, about one of them. */
function headingOf(question) {
  const asked = owners(askedIn(question));
  return question.option === undefined ? asked : text("question-option", { question: asked, option: owners(question.option) });
}

/** Shows a question, in whichever language it is. */
const headed = (element, question) => quote(element, askedIn(question), headingOf(question));

const unitOf = ({ unit }) => (unit ? `\u00a0${owners(unit)}` : "");
const bare = (value) => number(Number(value.toPrecision(6)));

/** Formats a number with its unit, or the date that it stands for. */
function valued(question, number) {
  return question.kind === "date" ? day(dateAfter(question.first, number)) : `${bare(number)}${unitOf(question)}`;
}

/** Returns two numbers for a sentence, with their unit once. */
const ends = (question, low, high) =>
  ({ low: question.kind === "date" ? valued(question, low) : bare(low), high: valued(question, high) });

// --- the form -----------------------------------------------------------------------------------

/** A form with the questions of the sheet that this browser drew. It stays in this object. */
export class Sheet {
  constructor(device, sheet) {
    Object.assign(this, { device, sheet });
    this.render();
  }

  /** Makes the form, in the language of now, with what is filled in already. */
  render() {
    const { device, sheet } = this, before = this.fields?.map((one) => one.given);
    this.fields = device.asked(sheet).map(({ question }, at) => new Field(question, `ask-${at}`));
    before?.forEach((given, at) => { this.fields[at].given = given; });
    const about = device.sheets.length > 1 ? [make("p", { class: "hint" }, text("asked-random"))] : [];
    find("fill").replaceChildren(...about, ...this.fields.map((one) => one.element));
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
    return this.fields.flatMap((one) => [headed(make("dt"), one.question), make("dd", {}, one.said)]);
  }

  /** Returns sentences on what the report would reveal. */
  told() {
    const { device, sheet } = this, parts = device.sheets[sheet], { epsilon } = device.costOf(sheet);
    return [
      ...(device.sheets.length > 1 ? [text("asked-says-nothing")] : []),
      ...parts.flatMap((part) => part.measures.map(rounded).filter(Boolean)),
      ...parts.flatMap((part) => named(part)),
      ...reveals(epsilon),
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
  const name = headingOf(question), both = ends(question, question.lower, question.upper);
  if (kind === "bins") return text("only-range", { name, count: size });
  const said = text(size === 2 ? "rounded-ends" : "rounded-values", { name, count: size, ...both });
  return kind === "moments" ? `${said} ${text("rounded-twice")}` : said;
}

/** Says how often a report names the true answer. */
function named(part) {
  return part.grouped ? ofNumber(part) : ofSets(part);
}

/** Says how a number is reported, and the answers that it is reported with. */
function ofNumber({ channel, measures }) {
  const lines = [text("number-drawn", { count: channel.symbols })], { groups } = channel;
  if (groups === 1) return lines;
  return [names(measures.length > 2 ? "names-combinations" : "names-answers", channel, groups), ...lines];
}

function ofSets({ channel, measures }) {
  const lines = [names(measures.length > 1 ? "names-combinations" : "names-answers", channel)], { categories } = channel;
  const alone = measures.length === 1 && measures[0].kind === "option";
  if (alone) lines.push(guess("guess-answer", channel.guess(categories), categories));
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
    const options = this.question.options.map((name) => quote(make("option", { value: name }), name));
    return make("select", { id: this.id, autocomplete: "off" }, make("option", { value: "" }, text("choose")), ...options);
  }

  #input() {
    const { kind, first, last } = this.question;
    if (kind === "date") return make("input", { type: "date", id: this.id, min: first, max: last, autocomplete: "off" });
    return make("input", { type: "text", id: this.id, inputmode: "decimal", autocomplete: "off" });
  }

  #fieldset() {
    const choices = this.inputs.map((input) =>
      make("span", {}, input, titled(make("label", { for: input.id }), this.question, input.value)));
    return make("fieldset", { class: "ask" }, headed(make("legend"), this.question), ...this.#help(),
      make("div", { class: "choices" }, ...choices));
  }

  #labelled() {
    const { unit, kind } = this.question, [input] = this.inputs;
    const beside = unit && kind === "number" ? [quote(make("span", { class: "unit", id: `${this.id}-unit` }), unit)] : [];
    return make("div", { class: "ask" }, headed(make("label", { for: this.id }), this.question), ...this.#help(),
      make("div", { class: "entry" }, input, ...beside));
  }

  #help() {
    const { help, kind, first, last, option } = this.question;
    const { low, high } = kind === "date" ? { low: day(first), high: day(last) }
      : kind === "number" ? ends(this.question, this.question.lower, this.question.upper) : {};
    const own = [low && text("range-survey", { lower: low, upper: high }), option !== undefined && text("asked-option")];
    const lines = [help && quote(make("small"), help), ...own.map((line) => line && make("small", {}, line))].filter(Boolean);
    lines.forEach((line, at) => { line.id = `${this.id}-help-${at}`; });
    return lines;
  }

  /** What is filled in, as another form of the same question takes it. */
  get given() {
    return this.inputs.map((one) => (this.radios ? one.checked : one.value));
  }

  set given(before) {
    this.inputs.forEach((one, at) => { one[this.radios ? "checked" : "value"] = before[at]; });
  }

  /** The answer, as the schema has it; undefined if it is missing, NaN if it is not one. */
  get value() {
    if (this.radios) return this.inputs.find((one) => one.checked)?.value;
    const given = this.inputs[0].value.trim();
    if (given === "") return this.inputs[0].validity.badInput ? NaN : undefined;
    if (this.question.options) return given;
    return this.question.kind === "number" ? numberIn(given) : isDate(given) ? given : NaN;
  }

  /** The answer in words. */
  get said() {
    const { question, value } = this;
    if (question.options) return titleOf(question, value);
    return question.kind === "date" ? day(value) : `${number(value)}${unitOf(question)}`;
  }

  /** Whether there is an answer; if not, says so beside the question. */
  check() {
    const { value, question: { options, kind } } = this;
    const [missing, other] = options ? ["choose-answer"] : [`give-${kind}`, `like-${kind}`];
    const wrong = value === undefined ? missing : Number.isNaN(value) ? other : null;
    return this.complaint.say(wrong === null ? "" : text(wrong, { whole: 3, part: 2.5 }));
  }

  focus() {
    focusOn(this.inputs[0], this.element);
  }

  clear() {
    this.inputs.forEach((one) => { if (this.radios) one.checked = false; else one.value = ""; });
    this.complaint.say("");
  }
}

/** Whether yes and no are the page's own words. */
const plainly = ({ kind, option }) => kind === "yes-no" || option !== undefined;

/** Returns an option in words. */
const titleOf = (question, option) => (plainly(question) ? text(option) : owners(option));

/** Shows an option, in whichever language it is. */
function titled(element, question, option) {
  if (!plainly(question)) return quote(element, option);
  element.textContent = text(option);
  return element;
}

// --- reports in words ---------------------------------------------------------------------------

/** Says what a level of a measure stands for. */
function levelOf({ kind, size, question }, level) {
  const { options, lower, upper } = question, width = upper - lower;
  if (options) return titleOf(question, options[level]);
  const bound = (at) => lower + (width * at) / size, point = (at) => lower + (width * at) / (size - 1);
  if (kind === "bins") return text("between", ends(question, bound(level), bound(level + 1)));
  if (kind === "mean") return valued(question, point(level));
  return text("pair", ends(question, point(Math.floor(level / 2)), point(Math.ceil(level / 2))));
}

/** Names a symbol: the answer to one question, or the answers to several. */
function symbolOf({ measures }, levels) {
  const said = measures.map((one, at) => levelOf(one, levels[at]));
  // Where two could be mistaken for each other, the questions are named.
  const alike = measures.filter(({ question: { options } }) => options?.[0] === "no").length > 1
    || (measures.length > 1 && measures.some(({ kind }) => kind === "moments"));
  if (!alike) return listed(said).join("");
  return listed(said.map((answer, at) => text("named-answer", { question: headingOf(measures[at].question), answer }))).join("");
}

/** Makes elements that say what a report holds: all of it, or a few of the named answers. */
export function reportOf(report, device, most = Infinity) {
  const sets = device.sets(report), parts = device.sheets[report.sheet], short = most < Infinity && parts.length === 1;
  return make("div", { class: "way" }, ...parts.flatMap((part, at) => {
    const shown = sets[at].length > most ? someOf(sets[at], -1, most) : sets[at], more = sets[at].length - shown.length;
    const about = part.measures.map(({ question }) => text("quoted", { name: headingOf(question) }));
    return [...(short ? [] : [make("p", { class: "about" }, text("on", { names: listed(about).join("") }))]), make("ul", {},
      ...shown.map((symbol) => make("li", {}, symbolOf(part, part.levels(symbol)))),
      ...(more > 0 ? [make("li", { class: "more" }, text("more", { count: more }))] : []))];
  }));
}

/** Makes an example of a report, for the preview. */
export const exampleOf = (report, device) => reportOf(report, device, SHOWN);

/** Returns what taking part means, in the words of a survey. */
export function promises({ sheets }) {
  const { host } = location;
  return { sent: sheets.length === 1 ? text("sent-answers", { host })
    : `${text("sent-sheets", { count: sheets.length })} ${text("sent-sheet", { host })}` };
}
