/* Examples of reports that could be sent. They are drawn like a report, and never sent. */

import { paint } from "./drawing.js";
import { number, owners, pieces, quote, text } from "./language.js";
import { make } from "./page.js";
import { SystemEntropy, subset } from "./randomness.js";
import { columnsOf, titleOf } from "./rows.js";

const SHOWN = 4, MOST_TILES = 6, MOST_LINES = 2;

const shownBy = (described, surveyed) =>
  ({ latent: latentOf, features: featuresOf, partitions: wayOf, survey: surveyed }[described.channel.kind] ?? setOf);

/** Makes elements that show a few example reports of this answer. */
export function examples(device, described, answer, surveyed) {
  const rng = new SystemEntropy(), encoded = device.encode(answer.row), show = shownBy(described, surveyed);
  return Array.from({ length: SHOWN }, (_, at) => {
    const report = device.release(encoded, answer.label, rng);
    return make("li", {}, make("span", { class: "count" }, text("example", { at: at + 1 })),
      show(report, device, described, encoded, answer));
  });
}

/** Makes elements that show all of one report, without the answer that it was drawn from. */
export const inFull = (report, device, described, surveyed) =>
  (described.channel.kind === "survey" ? surveyed(report, device) : shownBy(described)(report, device, described));

/** Says that a report pairs things that need not belong together; "" where it pairs nothing. */
export function mismatch(device, { classes, schema, labelled, channel }) {
  if (!labelled || channel.kind === "survey") return "";
  if (device.flip !== undefined) return text("mismatch-noise");
  const [first, second] = classes.map((name) => owners(name));
  return schema.image ? text("mismatch-drawing", { first, second }) : text("mismatch-group");
}

/** Makes a small picture of the answer as the encoder reads it; null for a form. */
export function own(described, answer) {
  const { image, lower, upper } = described.schema;
  if (!image) return null;
  const ink = answer.values.map((value) => (value - lower) / (upper - lower));
  return paint(make("canvas", { class: "tile large", role: "img", "aria-label": text("own-drawing") }), ink, image);
}

// --- one report ---------------------------------------------------------------------------------

function setOf({ symbols }, device, described, encoded, answer) {
  const mine = answer && device.symbol(encoded, answer.label), most = described.schema.image ? MOST_TILES : MOST_LINES;
  const shown = answer ? someOf(symbols, mine, most) : symbols;
  const tiles = shown.map((symbol) => {
    const codeword = Math.floor(symbol / device.classes);
    const figure = make("figure", { class: symbol === mine ? "mine" : "" },
      exampleOf(device, described.schema, codeword), make("figcaption", {}, paired(described, codeword, symbol)));
    if (symbol === mine) figure.lastChild.append(" ", make("strong", {}, text("yours")));
    return figure;
  });
  const more = symbols.length - shown.length;
  if (more > 0) tiles.push(make("span", { class: "more" }, text("more", { count: more })));
  return make("div", { class: described.schema.image ? "tiles" : "tiles rows" }, ...tiles);
}

/** Names a codeword, and the choice that is paired with it. */
function paired({ classes, labelled, schema }, codeword, symbol) {
  const at = codeword + 1, label = labelled ? owners(classes[symbol % classes.length]) : null;
  if (schema.image) return label === null ? text("sample", { at }) : text("sample-with", { label });
  return groupNamed(at, label);
}

const groupNamed = (at, label) => (label === null ? text("group", { at }) : text("group-with", { at, label }));

/** Names the way of sorting, and groups and choices in it. */
function wayOf({ partition, symbols }, device, described, encoded, answer) {
  const mine = answer && device.symbol(encoded[partition], answer.label);
  const some = answer ? someOf(symbols, mine, MOST_TILES) : symbols;
  const shown = some.map((symbol) => {
    const label = described.labelled ? owners(described.classes[symbol % device.classes]) : null;
    const name = groupNamed(Math.floor(symbol / device.classes) + 1, label);
    return make("li", {}, name, ...(symbol === mine ? [" ", make("strong", {}, text("yours"))] : []));
  });
  const more = symbols.length - some.length;
  if (more > 0) shown.push(make("li", { class: "more" }, text("more", { count: more })));
  return make("div", { class: "way" }, text("way", { at: partition + 1, all: device.partitions }), make("ul", {}, ...shown));
}

/** Picks a few symbols at random, and always the person's own if it is there; the first few would look alike. */
export function someOf(symbols, mine, most) {
  const others = symbols.filter((symbol) => symbol !== mine), held = others.length < symbols.length;
  const picked = [...subset(others.length, Math.min(most - held, others.length), new SystemEntropy())];
  return [...picked.map((at) => others[at]), ...(held ? [mine] : [])].sort((a, b) => a - b);
}

/** Shows what a codeword stands for: a picture, or the centre of a group of rows. */
function exampleOf(device, schema, codeword) {
  const values = Array.from(device.prototype(codeword), (byte) => byte / 255);
  if (!schema.image) return listed(inWords(schema, values));
  const canvas = make("canvas", { class: "tile", role: "img", "aria-label": text("sample", { at: codeword + 1 }) });
  return paint(canvas, values, schema.image);
}

/** Lists every column with its value. */
const listed = (pairs) => make("dl", { class: "columns" },
  ...pairs.map(([title, value, column]) => make("div", {}, quote(make("dt"), column.name, title), make("dd", {}, value))));

const short = (value) => number(Number(value.toPrecision(3)));

const category = ({ categories }, at) => (at in categories ? owners(categories[at]) : text("other"));

/** Returns every column of a schema with a typical value, from the features of a codeword. */
export function inWords(schema, values) {
  const columns = columnsOf(schema), numbers = columns.filter((one) => one.kind === "continuous");
  const indicated = numbers.filter((one) => one.missing === "indicate").length;
  let at = numbers.length + indicated;
  const middle = (one) => one.lower + values[numbers.indexOf(one)] * (one.upper - one.lower);
  return columns.map((one) => {
    if (one.kind === "continuous") return [titleOf(one), short(middle(one)), one];
    const shares = values.slice(at, (at += one.categories.length + (one.unseen === "other")));
    return [titleOf(one), category(one, shares.indexOf(Math.max(...shares))), one];
  });
}

function latentOf({ latent, label }, device, described, encoded = [], answer = undefined) {
  const most = Math.max(...latent.map(Math.abs), ...encoded.map(Math.abs), 1);
  return make("div", { class: "tiles" }, ...(answer ? [levels(encoded, most, text("yours"))] : []), levels(latent, most, text("sent-caption")),
    labelled(label, described, answer));
}

/** Draws numbers as bars to the left and right of 0. */
function levels(values, most, caption) {
  const bar = (value, at) => make("rect", { class: "bar", height: 4, y: 6 * at,
    x: `${50 + 50 * Math.min(value / most, 0)}%`, width: `${(50 * Math.abs(value)) / most}%` });
  const height = 6 * values.length - 2;
  return make("figure", { class: "levels" }, make("svg", { height, "aria-hidden": "true" }, ...values.map(bar),
    make("line", { class: "zero", x1: "50%", x2: "50%", y1: 0, y2: height })), make("figcaption", {}, caption));
}

function featuresOf({ numbers = [], codes = [], label }, device, described, _, answer) {
  const { schema } = described;
  if (schema.image) {
    const canvas = make("canvas", { class: "tile", role: "img", "aria-label": text("noisy-picture") });
    return make("div", { class: "tiles" },
      paint(canvas, numbers.map((value) => value / device.steps), schema.image), labelled(label, described, answer));
  }
  const columns = columnsOf(schema), within = columns.filter((one) => one.kind === "continuous");
  const coded = columns.filter((one) => one.kind === "categorical");
  const said = (one) => {
    if (one.kind === "categorical") return category(one, codes[device.indicated.length + coded.indexOf(one)]);
    const at = within.indexOf(one), flag = device.indicated.indexOf(at);
    const value = short(one.lower + (numbers[at] / device.steps) * (one.upper - one.lower));
    return flag >= 0 && codes[flag] === 1 ? text("marked-unknown", { value }) : value;
  };
  return make("div", { class: "tiles rows" }, listed(columns.map((one) => [titleOf(one), said(one), one])),
    labelled(label, described, answer));
}

/** Says what the noise made of the choice. */
function labelled(label, { classes }, answer) {
  if (label === undefined) return "";
  const key = !answer ? "choice" : label === answer.label ? "choice-left" : "choice-turned";
  return make("span", { class: "choice" }, ...pieces(key, { choice: quote(make("strong"), classes[label]) }));
}
