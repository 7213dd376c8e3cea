/* People over time: totals at the ends of days, as lines and as a table. */

import { make } from "./page.js";

const SERIES = [["invited", "Invited"], ["opened", "Opened the page"], ["answered", "Answered"], ["withdrawn", "Withdrew"]];
const HEIGHT = 200, TOP = 12, BOTTOM = 26, LEFT = 8, RIGHT = 64, GAP = 15, DAY = 86_400_000;

/** Makes the chart and the table of a timeline, for a box of this width. */
export function timelineOf(timeline, width, now = Date.now()) {
  const shown = SERIES.filter(([name]) => timeline[name].people > 0);
  const dated = shown.some(([name]) => timeline[name].days.length > 0);
  return [
    make("ul", { class: "key-of" }, ...SERIES.map(([name, said]) => make("li", { class: name },
      `${said}: `, make("strong", {}, count(timeline[name].people))))),
    ...(dated ? [chart(timeline, shown, width, now), table(timeline, shown)] : []),
    make("p", { class: "hint" }, dated ? timeline.words
      : `A chart begins once ${timeline.least} people have done the same before the end of a day. ${timeline.words}`),
  ];
}

const count = (people) => people.toLocaleString("en");
const end = (day) => Date.parse(`${day}T00:00Z`) + DAY;

function chart(timeline, shown, width, now) {
  const days = shown.flatMap(([name]) => timeline[name].days.map(({ day }) => end(day)));
  const first = Math.min(...days) - DAY, last = Math.max(now, ...days);
  const most = Math.max(...shown.map(([name]) => timeline[name].people));
  const x = (time) => LEFT + ((width - LEFT - RIGHT) * (time - first)) / (last - first);
  const y = (people) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - people / most);
  const labels = apart(shown.map(([name]) => y(timeline[name].people)));
  const lines = shown.flatMap(([name], place) => {
    const { people, days: known } = timeline[name];
    const points = [[first, 0], ...known.map((one) => [end(one.day), one.people]), [last, people]];
    return [
      element("polyline", { class: name, points: points.map(([time, total]) => `${x(time)},${y(total)}`).join(" ") }),
      ...known.map((one) => element("circle", { class: name, cx: x(end(one.day)), cy: y(one.people), r: 3 })),
      element("text", { class: name, x: width - RIGHT + 6, y: labels[place] + 4 }, count(people)),
    ];
  });
  const axis = HEIGHT - BOTTOM;
  const when = (time) => new Date(time).toLocaleDateString("en", { day: "numeric", month: "short", timeZone: "UTC" });
  return element("svg", { class: "timeline", width: "100%", height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" },
    element("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: axis, y2: axis }), ...lines,
    element("text", { class: "axis", x: LEFT, y: HEIGHT - 8 }, when(first)),
    element("text", { class: "axis end", x: width - RIGHT, y: HEIGHT - 8 }, when(last)));
}

/** Moves labels apart that would cover each other: up, and down again where there is no room. */
function apart(heights) {
  const placed = [...heights], upwards = [...heights.keys()].sort((a, b) => heights[b] - heights[a]);
  let last = HEIGHT;
  for (const at of upwards) placed[at] = last = Math.min(placed[at], last - GAP);
  last = TOP - GAP;
  for (const at of upwards.reverse()) placed[at] = last = Math.max(placed[at], last + GAP);
  return placed;
}

function table(timeline, shown) {
  const days = [...new Set(shown.flatMap(([name]) => timeline[name].days.map(({ day }) => day)))].sort();
  const total = ([name], day) => timeline[name].days.find((one) => one.day === day)?.people;
  const row = (tag, cells, more = {}) => make("tr", {}, ...cells.map((cell) => make(tag, more, cell)));
  return make("details", {}, make("summary", {}, "As a table"), make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, row("th", ["By the end of (UTC)", ...shown.map(([, said]) => said)], { scope: "col" })),
    make("tbody", {}, ...days.map((day) => row("td", [day, ...shown.map((one) => {
      const people = total(one, day);
      return people === undefined ? "" : count(people);
    })])), row("td", ["Now", ...shown.map(([name]) => count(timeline[name].people))])))));
}

function element(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
