/* Examples of reports that could be sent. They are drawn like a report, and never sent. */

import { paint } from "./drawing.js";
import { make } from "./page.js";
import { SystemEntropy, subset } from "./randomness.js";
import { columnsOf } from "./rows.js";

const SHOWN = 4, MOST_TILES = 6, MOST_LINES = 3;

/** Makes elements that show a few example reports of this answer. */
export function examples(device, described, answer, surveyed) {
  const rng = new SystemEntropy(), encoded = device.encode(answer.row);
  const show = { latent: latentOf, features: featuresOf, partitions: wayOf, survey: surveyed }[described.channel.kind] ?? setOf;
  return Array.from({ length: SHOWN }, (_, at) => {
    const report = device.release(encoded, answer.label, rng);
    return make("li", {}, make("span", { class: "count" }, `Example ${at + 1}`),
      show(report, device, described, encoded, answer));
  });
}

/** Makes a small picture of the answer as the encoder reads it; null for a form. */
export function own(described, answer) {
  const { image, lower, upper } = described.schema;
  if (!image) return null;
  const ink = answer.values.map((value) => (value - lower) / (upper - lower));
  return paint(make("canvas", { class: "tile large", role: "img", "aria-label": "Your drawing" }), ink, image);
}

// --- one report ---------------------------------------------------------------------------------

function setOf({ symbols }, device, described, encoded, answer) {
  const mine = device.symbol(encoded, answer.label), names = described.classes;
  const shown = someOf(symbols, mine, described.schema.image ? MOST_TILES : MOST_LINES);
  const tiles = shown.map((symbol) => {
    const codeword = Math.floor(symbol / device.classes), label = names?.[symbol % device.classes];
    const caption = [label === undefined ? `Group ${codeword + 1}` : String(label)];
    if (symbol === mine) caption.push(make("strong", {}, "yours"));
    return make("figure", { class: symbol === mine ? "mine" : "" },
      exampleOf(device, described.schema, codeword), make("figcaption", {}, ...caption));
  });
  const more = symbols.length - shown.length;
  if (more > 0) tiles.push(make("span", { class: "more" }, `and ${more} more`));
  return make("div", { class: "tiles" }, ...tiles);
}

/** Names the way of sorting, and groups and choices in it. */
function wayOf({ partition, symbols }, device, described, encoded, answer) {
  const mine = device.symbol(encoded[partition], answer.label);
  const shown = someOf(symbols, mine, MOST_TILES).map((symbol) => {
    const label = described.classes?.[symbol % device.classes];
    const name = `group ${Math.floor(symbol / device.classes) + 1}${label === undefined ? "" : ` with “${label}”`}`;
    return make("li", {}, name, ...(symbol === mine ? [" ", make("strong", {}, "yours")] : []));
  });
  const more = symbols.length - shown.length;
  if (more > 0) shown.push(make("li", { class: "more" }, `and ${more} more`));
  return make("div", { class: "way" }, `Way ${partition + 1} of ${device.partitions}:`, make("ul", {}, ...shown));
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
  if (!schema.image) return make("span", { class: "summary" }, inWords(schema, values));
  const canvas = make("canvas", { class: "tile", role: "img", "aria-label": `Sample ${codeword + 1}` });
  return paint(canvas, values, schema.image);
}

function inWords(schema, values) {
  const columns = columnsOf(schema), numbers = columns.filter((one) => one.kind === "continuous");
  const indicated = numbers.filter((one) => one.missing === "indicate").length;
  let at = numbers.length + indicated;
  const middle = (one) => one.lower + values[numbers.indexOf(one)] * (one.upper - one.lower);
  return columns.slice(0, 4).map((one) => {
    if (one.kind === "continuous") return `${one.name} ${Number(middle(one).toPrecision(3))}`;
    const shares = values.slice(at, (at += one.categories.length + (one.unseen === "other")));
    return `${one.name} ${one.categories[shares.indexOf(Math.max(...shares))] ?? "other"}`;
  }).join(", ");
}

function latentOf({ latent, label }, device, described, encoded) {
  const most = Math.max(...latent.map(Math.abs), ...encoded.map(Math.abs), 1);
  return make("div", { class: "tiles" }, levels(encoded, most, "yours"), levels(latent, most, "sent"),
    labelled(label, described));
}

/** Draws numbers as bars to the left and right of 0. */
function levels(values, most, caption) {
  const bar = (value, at) => make("rect", { class: "bar", height: 4, y: 6 * at,
    x: `${50 + 50 * Math.min(value / most, 0)}%`, width: `${(50 * Math.abs(value)) / most}%` });
  const height = 6 * values.length - 2;
  return make("figure", { class: "levels" }, make("svg", { height, "aria-hidden": "true" }, ...values.map(bar),
    make("line", { class: "zero", x1: "50%", x2: "50%", y1: 0, y2: height })), make("figcaption", {}, caption));
}

function featuresOf({ numbers = [], codes = [], label }, device, described) {
  const { schema } = described;
  if (schema.image) {
    const canvas = make("canvas", { class: "tile", role: "img", "aria-label": "A noisy picture" });
    return make("div", { class: "tiles" },
      paint(canvas, numbers.map((value) => value / device.steps), schema.image), labelled(label, described));
  }
  const columns = columnsOf(schema), within = columns.filter((one) => one.kind === "continuous");
  const parts = within.map((one, at) => {
    const value = one.lower + (numbers[at] / device.steps) * (one.upper - one.lower);
    return `${one.name} ${Number(value.toPrecision(3))}`;
  });
  columns.filter((one) => one.kind === "categorical").forEach((one, at) => {
    parts.push(`${one.name} ${one.categories[codes[device.indicated.length + at]] ?? "other"}`);
  });
  return make("div", { class: "tiles" }, make("span", { class: "summary" }, parts.join(", ")),
    labelled(label, described));
}

const labelled = (label, { classes }) => (label === undefined ? "" : make("strong", {}, String(classes[label])));
