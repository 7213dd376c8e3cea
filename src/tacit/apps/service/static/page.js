/* What both pages do with the document: elements, steps, messages, files. */

export const find = (id) => document.getElementById(id);

/** An element with attributes and children; a function among the attributes listens. */
export function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Shows one of the page's steps, and takes the reader there. */
export function step(id) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== id;
  document.body.dataset.step = id;
  const heading = find(id).querySelector("h2");
  heading?.setAttribute("tabindex", "-1");
  heading?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  say("");
  complain("");
}

/** Says in a word how things stand, also to those who listen. */
export const say = (text) => { find("status").textContent = text; };

/** One sentence on what went wrong. */
export function complain(text) {
  find("problem").textContent = text;
  find("problem").hidden = !text;
}

/** Runs what may fail; its sentence is shown. */
export async function attempt(work) {
  complain("");
  try {
    return await work();
  } catch (error) {
    say("");
    complain(error.message);
    return undefined;
  }
}

/** Hands a file to the person at the screen. */
export function save(name, content, type = "text/plain") {
  const address = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** This page's campaign: one name for it, however a link was written. */
export function campaignId() {
  const id = decodeURIComponent(location.pathname.split("/").filter(Boolean)[1]);
  if (!/^[\w-]{12}$/.test(id)) throw new Error("This link names no collection. Copy it again, whole.");
  return id;
}

/** A certificate's plain words as headings and lists; its first line is about the certificate. */
export function explained(text) {
  const [, ...lines] = text.split("\n").filter(Boolean);
  const found = [];
  for (const line of lines) {
    if (!line.startsWith(" ")) found.push(make("h3", {}, line), make("ul"));
    else found.at(-1).append(make("li", {}, line.replace(/^[\s-]+/, "")));
  }
  return found;
}
