/* ε in a picture: of 100 people like you, how many are suspected before and after a report. */

import { make } from "./page.js";
import { cost, factor, level, suspected } from "./words.js";

const ACROSS = 20, PEOPLE = 100, APART = 12;
export const BEFORE = 10;

/** Returns the sentence that the picture shows. */
export const told = (epsilon) => `Suppose that somebody wants to find out something about you. Of ${PEOPLE} people like you, `
  + `about ${BEFORE} are suspected anyway; after your report, at most ${suspected(epsilon, PEOPLE, BEFORE)}.`;

/** Makes the picture with its sentence, a word for the protection, and the number for those who want it. */
export function dots(epsilon) {
  const after = suspected(epsilon, PEOPLE, BEFORE), rows = PEOPLE / ACROSS;
  const picture = make("svg", { class: "dots", role: "img", viewBox: `0 0 ${ACROSS * APART} ${rows * APART}`,
    "aria-label": `${PEOPLE} dots: ${BEFORE} are full, ${after - BEFORE} have a thick ring, ${PEOPLE - after} are empty.` },
  ...Array.from({ length: PEOPLE }, (_, at) => make("circle", { cx: APART * (at % ACROSS + 0.5),
    cy: APART * (Math.floor(at / ACROSS) + 0.5), r: at < BEFORE ? 5 : at < after ? 3.75 : 4,
    class: at < BEFORE ? "before" : at < after ? "after" : "rest" })));
  return make("figure", { class: "risk" }, picture,
    make("figcaption", {}, make("p", {}, told(epsilon)),
      make("p", { class: "level" }, "Protection: ", make("strong", {}, level(epsilon)),
        ` (${cost(epsilon)}; any odds change by a factor of at most ${factor(epsilon)})`)));
}
