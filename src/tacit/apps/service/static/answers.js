/* Answers about a survey, for its owner: shares and numbers with intervals, and a box for questions. */

import { bars, reach } from "./bars.js";
import { find, make } from "./page.js";
import { dateAfter } from "./survey.js";
import { percent } from "./words.js";

const MOST_EXAMPLES = 5;

/** Shows an answer about each question, and who learns what. */
export function showAnswers(summary, schema) {
  find("answers").replaceChildren(...summary.answers.map((one) => {
    const { text, help } = schema.questions[one.name];
    return make("section", {}, make("h3", {}, text || one.name), ...(help ? [make("p", { class: "hint" }, help)] : []),
      make("p", { class: "hint" }, make("code", {}, one.question)),
      ...(one.problem === undefined ? answerOf(one, one.question, schema) : [make("p", {}, one.problem)]));
  }));
  const known = summary.answers.find((one) => one.covers);
  find("confidence").textContent = "";
  find("answers-cover").textContent = known ? known.covers.replace(/ (It|Each) holds.*$/, "")
    + ` Each interval holds by itself with ${percent(summary.confidence)} confidence.` : "";
  find("draft").hidden = summary.closed;
  find("who").replaceChildren(
    make("li", {}, make("strong", {}, "You, who see the reports: "), `${summary.guarantee}, for each person.`),
    make("li", {}, make("strong", {}, "Readers, who see answers only: "), summary.readers));
}

/** Fills the box with examples of questions that this survey's sheets can answer. */
export function offerExamples(schema) {
  const offered = examplesOf(schema).slice(0, MOST_EXAMPLES).map((text) => make("button",
    { type: "button", class: "plain example", click: () => { find("asked").value = text; find("asked").focus(); } }, text));
  find("examples").replaceChildren(...offered);
}

/** Asks the owner's question, and shows the answer or what is wrong with the question. */
export async function ask(api, schema) {
  const question = find("asked").value.trim();
  find("ask-problem").hidden = true;
  find("asked").removeAttribute("aria-invalid");
  try {
    const found = await api.json(`/answer?question=${encodeURIComponent(question)}`);
    find("asked-answer").replaceChildren(make("h3", {}, question), ...answerOf(found, question, schema),
      make("p", { class: "hint" }, found.covers), make("p", { class: "hint" }, `Readers: ${found.readers}`));
  } catch (error) {
    if (error.status !== 422) throw error;
    find("asked-answer").replaceChildren();
    find("ask-problem").textContent = error.message.replace(/^ask: question/, "The question").replace(/^\w+: /, "");
    find("ask-problem").hidden = false;
    find("asked").setAttribute("aria-invalid", "true");
    find("asked").focus();
  }
}

/** Lists the estimates of an answer, which is one number or one for each group. */
function entriesOf({ value, groups, standard_error: errors, interval }) {
  if (groups === undefined) return [{ name: "", value, error: errors, interval }];
  return Object.entries(groups).map(([name, own]) =>
    ({ name, value: own, error: errors[name], interval: interval[name] }));
}

/** Makes the elements of an answer: bars for shares and bounded numbers, else a table. */
function answerOf(found, question, schema) {
  const entries = entriesOf(found);
  if (/^(shares?|table) /i.test(question)) return [chart(entries.map(asShare))];
  const scale = scaleOf(question, schema);
  if (scale && entries.every(({ value }) => value !== null)) return [chart(entries.map((one) => onScale(one, scale)), 1)];
  return [tableOf(entries)];
}

const chart = (entries, most = reach(entries)) =>
  make("div", { class: entries.some(({ name }) => name) ? "bars" : "bars alone" }, ...bars(entries, most));
const within = (low, value, high) => Math.min(Math.max(value, low), high);

const asShare = ({ name, value, interval: [low, high] }) =>
  ({ name, share: value, interval: [low ?? 0, high ?? 1].map((end) => within(0, end, 1)) });

/** Returns the bounds of the number that a mean or a quantile is about, and how it is written. */
function scaleOf(question, { questions }) {
  const [, name] = /^(?:means?|median|quantile \S+)(?: of)? (\S+)/i.exec(question) ?? [], asked = questions[name];
  if (asked?.kind === "number") {
    return { ...asked, say: rounded, unit: asked.unit ? `\u00a0${asked.unit}` : "" };
  }
  if (asked?.kind !== "date") return null;
  return { lower: 0, upper: (Date.parse(asked.last) - Date.parse(asked.first)) / 86_400_000,
    say: (days) => dateAfter(asked.first, days), unit: "" };
}

function onScale({ name, value, interval: [low, high] }, { lower, upper, say, unit }) {
  const at = (number) => within(0, (number - lower) / (upper - lower), 1);
  const ends = [low ?? lower, high ?? upper];
  return { name, share: at(value), interval: ends.map(at), said: [`${say(value)}${unit}`, `${say(ends[0])} to ${say(ends[1])}`] };
}

const rounded = (value) => (value === null ? "unknown" : Number(value.toPrecision(3)).toLocaleString("en"));

function tableOf(entries) {
  const cells = ({ name, value, error, interval: [low, high] }) =>
    [name, rounded(value), rounded(error),
      low === null || high === null ? "any" : `${rounded(low)} to ${rounded(high)}`];
  const row = (tag, texts) => make("tr", {}, ...texts.map((text) => make(tag, {}, text)));
  const head = make("thead", {}, row("th", ["", "Value", "Standard error", "Interval"]));
  const rows = make("tbody", {}, ...entries.map((one) => row("td", cells(one))));
  return make("div", { class: "scroll" }, make("table", {}, head, rows));
}

/** Lists questions by group, tables and quantiles that the sheets allow. */
function examplesOf({ questions, sheets }) {
  const grouping = (name) => ["yes-no", "one-of"].includes(questions[name]?.kind);
  const found = sheets.flatMap((sheet) => {
    const parts = sheet.map((one) => one.split(":")), [group] = parts.find(([name]) => grouping(name)) ?? [];
    return parts.flatMap(([name, how = "mean"]) => {
      if (!questions[name] || name === group) return [];
      const by = group === undefined ? "" : ` by ${group}`;
      if (grouping(name)) return [`table of ${group} and ${name}`];
      if (questions[name].kind === "several-of") return [`share of ${name}`];
      return [`${how === "bins" ? "median" : "mean"} ${name}${by}`];
    });
  });
  const shares = Object.keys(questions).filter(grouping).map((name) => `share of ${name}`);
  return [...new Set([...found.filter((one) => / (by|and) /.test(one)), ...found, ...shares])];
}
