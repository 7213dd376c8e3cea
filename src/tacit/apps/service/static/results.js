/* Results for their owner: what sets a group apart, what accuracy has to beat, and a table of all estimates. */

import { bytesOf } from "./device.js";
import { columnsOf, titleOf } from "./rows.js";
import { inWords } from "./preview.js";

const MOST_WORDS = 2, APART = 0.1;

/** Returns what sets each group apart from the mean of all groups; null where rows are not tables. */
export function groupsOf({ schema, prototypes, codewords }) {
  if (schema.kind !== "table" || prototypes === null) return null;
  const bytes = bytesOf(prototypes), width = bytes.length / codewords;
  const rows = Array.from({ length: codewords }, (_, at) =>
    Array.from(bytes.subarray(at * width, (at + 1) * width), (byte) => byte / 255));
  const mean = rows[0].map((_, at) => rows.reduce((sum, row) => sum + row[at], 0) / codewords);
  return rows.map((row) => wordsOf(schema, row, mean));
}

/** Names the columns in which a row is farthest from the mean, with its values. */
function wordsOf(schema, row, mean) {
  const columns = columnsOf(schema), said = new Map(inWords(schema, row));
  const numbers = columns.filter((one) => one.kind === "continuous");
  let at = numbers.length + numbers.filter((one) => one.missing === "indicate").length;
  const apart = columns.map((one) => {
    const name = titleOf(one);
    if (one.kind === "continuous") {
      const gap = row[numbers.indexOf(one)] - mean[numbers.indexOf(one)];
      return { gap: Math.abs(gap), text: `${gap > 0 ? "high" : "low"} ${name} (${said.get(name)})` };
    }
    const from = at;
    at += one.categories.length + (one.unseen === "other");
    const gaps = row.slice(from, at).map((share, place) => share - mean[from + place]);
    return { gap: Math.max(...gaps.map(Math.abs)), text: `${name} ${said.get(name)}` };
  });
  const most = apart.filter(({ gap }) => gap >= APART).sort((a, b) => b.gap - a.gap).slice(0, MOST_WORDS);
  return most.map(({ text }) => text).join(", ") || "like the others";
}

/** Returns the label with the largest share, which accuracy has to beat; null without labels. */
export const largest = ({ classes }) =>
  classes.reduce((most, one) => (most === null || one.share > most.share ? one : most), null);

/** Writes the estimates as a table: what is estimated, of what, the value, and the ends of its interval. */
export function asTable(summary) {
  const rows = [["estimate", "of", "value", "low", "high"]];
  const add = (estimate, of, value, [low, high]) => rows.push([estimate, of, value, low, high]);
  for (const one of summary.classes ?? []) add("share of label", one.class, one.share, one.interval);
  for (const one of summary.codewords ?? []) add("share of group", one.codeword + 1, one.share, one.interval);
  const { accuracy } = summary;
  if (accuracy) {
    add("accuracy", "", accuracy.accuracy, accuracy.interval);
    for (const one of accuracy.by_class) add("recall of label", one.class, one.accuracy, one.interval);
  }
  for (const { question, value, groups, interval } of summary.answers ?? []) {
    if (interval === undefined) continue;
    if (groups === undefined) add(question, "", value, interval);
    else for (const [name, own] of Object.entries(groups)) add(question, name, own, interval[name]);
  }
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** Quotes a cell; a text that a spreadsheet would take for a formula gets a quote mark before it. */
function cell(value) {
  if (typeof value === "number") return String(value);
  const text = String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&");
  return `"${text.replaceAll('"', '""')}"`;
}
