/* Bar charts with intervals: a name, a bar from 0, a line for the interval, the numbers. */

import { make } from "./page.js";

const HEIGHT = 18;

/** Makes the rows of a chart; `most` is the share at its right end, `said` the numbers in other words. */
export function bars(entries, most) {
  return entries.flatMap(({ name, picture = "", share, interval: [low, high], said }) => [
    make("span", { class: "name", title: String(name) }, picture, String(name)),
    drawn(share ?? 0, low, high, most),
    make("span", { class: "value" }, make("strong", {}, said?.[0] ?? (share === null ? "unknown" : `${points(share)}\u00a0%`))),
    make("span", { class: "value" }, said?.[1] ?? `${points(low)} to ${points(high)}\u00a0%`),
  ]);
}

/** Returns the share at the right end of a chart of these entries. */
export const reach = (entries) => Math.min(1, 1.02 * Math.max(0.05, ...entries.map(({ interval }) => interval[1])));

const points = (share) => (100 * share).toFixed(1);

function drawn(share, low, high, most) {
  const at = (value) => `${(100 * Math.min(value, most)) / most}%`, middle = HEIGHT / 2;
  const tick = (value) => make("line",
    { class: "reach", x1: at(value), x2: at(value), y1: middle - 4, y2: middle + 4 });
  return make("svg", { height: HEIGHT, "aria-hidden": "true" },
    make("rect", { class: "track", width: "100%", height: HEIGHT, rx: 3 }),
    make("rect", { class: "bar", width: at(share), height: HEIGHT, rx: 3 }),
    make("line", { class: "reach", x1: at(low), x2: at(high), y1: middle, y2: middle }), tick(low), tick(high));
}
