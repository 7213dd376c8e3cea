/* A row as encoders take it: numbers in [0, 1], NaN if missing, and codes, −1 if missing. */

import { owners, text } from "./language.js";
import { tensor } from "./tensors.js";

/** Rounds to the nearest whole number, halves to the even one. */
export function evenly(value) {
  const below = Math.floor(value), rest = value - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
}

/** Returns the columns of a schema; those of an array are all alike. */
export function columnsOf(schema) {
  if (schema.kind === "table") return schema.columns;
  return Array.from({ length: schema.width }, (_, at) => ({
    kind: "continuous", name: schema.columns?.[at] ?? text("number-name", { at: at + 1 }),
    lower: schema.lower, upper: schema.upper, outside: schema.outside, missing: "refuse",
  }));
}

/** Returns a column's name as a person reads it: the owner's own words, or "education num" for "education_num". */
export const titleOf = ({ name }) => owners(name, name.replace(/[_\s.-]+/g, " ").trim() || name);

const scaled = (value, { lower, upper }) =>
  Math.min(Math.max((value - lower) / (upper - lower), 0), 1);

/** Makes one row; values are numbers or null, codes whole numbers or −1, in the schema's order. */
export function rowOf(schema, values) {
  const columns = columnsOf(schema), numbers = [], codes = [];
  columns.forEach((column, at) => {
    if (column.kind === "categorical") codes.push(values[at]);
    else numbers.push(values[at] === null ? NaN : scaled(values[at], column));
  });
  return {
    numbers: tensor([1, numbers.length], Float32Array.from(numbers)),
    codes: tensor([1, codes.length], Float64Array.from(codes)),
  };
}

/** Returns why a value cannot be in a column, in one sentence; "" if it can. */
export function problemWith(column, value) {
  const name = titleOf(column), { lower, upper } = column;
  if (column.kind === "categorical") return value >= 0 || column.unseen === "other" ? "" : text("choose-column", { name });
  if (value === null) return column.missing === "indicate" ? "" : text("fill-in", { name });
  if (!Number.isFinite(value)) return text("must-be-number", { name });
  const outside = value < lower || value > upper;
  return outside && column.outside === "refuse" ? text("must-be-within", { name, lower, upper }) : "";
}
