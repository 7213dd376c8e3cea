/* Results for their owner: what sets a group apart, and what accuracy has to beat. */

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
