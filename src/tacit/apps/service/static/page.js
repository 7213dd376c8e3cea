/* Helpers of both pages: elements, steps, messages, files. */

import { Told } from "./language.js";

export const find = (id) => document.getElementById(id);

/** Makes an element with attributes and children; a function among the attributes is a listener. */
export function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line", "circle"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Shows one of the page's steps, and moves focus and view to it.
 *
 * A step forward is a new entry of the browser's history, so that Back returns from it; any other
 * takes the place of the current entry.
 */
export function step(id, { forward = false, vote = false } = {}) {
  const state = { ...history.state, step: id, vote };
  if (forward) history.pushState(state, "");
  else history.replaceState(state, "");
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== id;
  document.body.dataset.step = id;
  const heading = find(id).querySelector("h2");
  heading?.setAttribute("tabindex", "-1");
  heading?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  say("");
  complain("");
}

/** Shows a short status, which screen readers announce. */
export const say = (text) => { find("status").textContent = text; };

/** Shows a sentence about what went wrong; "" removes it. */
export function complain(text) {
  find("problem").textContent = text;
  find("problem").hidden = !text;
}

/** What is wrong with one field: said beside it, tied to it, and removed when it is mended. */
export class Complaint {
  constructor(element, marked) {
    Object.assign(this, { element, marked });
  }

  /** Makes a place for it. */
  static make(id, marked) {
    return new Complaint(make("p", { class: "error", id, "aria-live": "polite", hidden: true }), marked);
  }

  /** Says this sentence; "" removes it. Returns whether nothing is wrong. */
  say(text) {
    this.element.textContent = text;
    this.element.hidden = !text;
    if (text) this.marked.setAttribute("aria-invalid", "true");
    else this.marked.removeAttribute("aria-invalid");
    return !text;
  }
}

/** Moves focus to a field, in the middle of the view together with what is wrong with it. */
export function focusOn(input, around) {
  input.focus({ preventScroll: true });
  around.scrollIntoView({ block: around.offsetHeight < innerHeight ? "center" : "end" });
}

/** Runs work that may fail, and shows what is said about the error. */
export async function attempt(work, said = (error) => error.message) {
  complain("");
  try {
    return await work();
  } catch (error) {
    say("");
    complain(said(error));
    return undefined;
  }
}

/** Saves a file on the person's device. */
export function save(name, content, type = "text/plain") {
  const address = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Returns the id of this page's campaign, the same for every spelling of the link. */
export function campaignId() {
  const id = decodeURIComponent(location.pathname.split("/").filter(Boolean)[1]);
  if (!/^[\w-]{12}$/.test(id)) throw new Told("error-link");
  return id;
}

/** Returns a list, or the list inside its last item. */
function listAt(list, inside) {
  const item = list.lastElementChild;
  if (!inside || item === null) return list;
  if (item.lastElementChild === null) item.append(make("ul"));
  return item.lastElementChild;
}

/** Turns a certificate's explanation into headings and lists; its first line is a title. */
export function explained(text) {
  const [, ...lines] = text.split("\n").filter(Boolean);
  const elements = [];
  for (const line of lines) {
    if (!line.startsWith(" ")) elements.push(make("h3", {}, line), make("ul"));
    else listAt(elements.at(-1), /^ {3,}- /.test(line)).append(make("li", {}, line.replace(/^[\s-]+/, "")));
  }
  return elements;
}
