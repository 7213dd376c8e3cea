/* ε in a picture: of 100 people like you, how many are suspected before and after a report. */

import { pieces, text } from "./language.js";
import { make } from "./page.js";
import { cost, factor, level, suspected } from "./words.js";

const ACROSS = 20, PEOPLE = 100, APART = 12;
export const BEFORE = 10;

/** Returns the sentence that the picture shows. */
export const told = (epsilon) =>
  text("risk-told", { people: PEOPLE, before: BEFORE, after: suspected(epsilon, PEOPLE, BEFORE) });

/** Makes the picture with its sentence, a word for the protection, and the number for those who want it. */
export function dots(epsilon) {
  const after = suspected(epsilon, PEOPLE, BEFORE), rows = PEOPLE / ACROSS;
  const picture = make("svg", { class: "dots", role: "img", viewBox: `0 0 ${ACROSS * APART} ${rows * APART}`,
    "aria-label": text("risk-dots", { people: PEOPLE, before: BEFORE, rings: after - BEFORE, empty: PEOPLE - after }) },
  ...Array.from({ length: PEOPLE }, (_, at) => make("circle", { cx: APART * (at % ACROSS + 0.5),
    cy: APART * (Math.floor(at / ACROSS) + 0.5), r: at < BEFORE ? 5 : at < after ? 3.75 : 4,
    class: at < BEFORE ? "before" : at < after ? "after" : "rest" })));
  return make("figure", { class: "risk" }, picture,
    make("figcaption", {}, make("p", {}, told(epsilon)),
      make("p", { class: "level" }, ...pieces("risk-level",
        { level: make("strong", {}, level(epsilon)), cost: cost(epsilon), factor: factor(epsilon) }))));
}
