/* The languages of the participant's page: sentences from a catalogue, numbers and dates by locale.
 *
 * A sentence is a whole one, with named places such as {count}. Where it depends on a number, the
 * catalogue has a form for each category of the language's plural rules, chosen by {count}.
 */

import english from "./texts/en.js";

/** Every language with a catalogue, by its own name. */
export const LANGUAGES = { en: "English", de: "Deutsch", fr: "Français", es: "Español", ar: "العربية" };

const RIGHT_TO_LEFT = /^(ar|arc|ckb|dv|fa|he|ks|ku-arab|nqo|pa-arab|ps|sd|syr|ug|ur|yi)(-|$)/i;
const STORED = "tacit-language";
const START = "\u2068", END = "\u2069";  // what lies between does not change the order of what lies around

let tag = "en", locale = "en", catalogue = english;

const baseOf = (language) => language.toLowerCase().split("-")[0];
export const directionOf = (language) => (RIGHT_TO_LEFT.test(language) ? "rtl" : "ltr");

/** The language that is spoken now. */
export const spoken = () => tag;

/** Returns the language that was chosen in this tab, or else the first that the browser asks for and there is. */
export function wanted() {
  const stored = sessionStorage.getItem(STORED);
  if (stored in LANGUAGES) return stored;
  return navigator.languages.map(baseOf).find((language) => language in LANGUAGES) ?? "en";
}

/** Remembers a choice, in this tab only. */
export const choose = (language) => sessionStorage.setItem(STORED, language);

/** Speaks a language from now on. Numbers and dates are written as in the browser's own region. */
export async function speak(language) {
  const { default: texts } = language === "en" ? { default: english } : await import(`./texts/${language}.js`);
  [tag, catalogue] = [language, texts];
  locale = globalThis.navigator?.languages?.find((one) => baseOf(one) === language) ?? language;
}

// --- numbers and dates --------------------------------------------------------------------------

const HUGE = 1e15;

/** Formats a number with all of its digits, a very large one with its power of ten. */
export const number = (value) => new Intl.NumberFormat(locale, Math.abs(value) < HUGE ? { maximumFractionDigits: 20 }
  : { notation: "scientific", maximumFractionDigits: 20 }).format(value);

/** Formats a share as a percentage with so many decimals. */
export const share = (value, digits) => new Intl.NumberFormat(locale,
  { style: "percent", minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);

export const day = (text) =>
  new Date(`${text}T00:00Z`).toLocaleDateString(locale, { dateStyle: "long", timeZone: "UTC" });

export const moment = (text) => new Date(text).toLocaleString(locale, { dateStyle: "long", timeStyle: "short" });

/** Joins texts or elements, of which all hold or any one may hold, as a list of them is written. */
export function listed(items, type = "conjunction") {
  const parts = new Intl.ListFormat(locale, { type }).formatToParts(items.map((_, at) => String(at)));
  return parts.map((part) => (part.type === "element" ? items[Number(part.value)] : part.value));
}

/** Writes Arabic and Persian digits and marks in the Western way. */
const western = (text) => text.replace(/[٠-٩]/g, (digit) => digit.charCodeAt(0) - 0x660)
  .replace(/[۰-۹]/g, (digit) => digit.charCodeAt(0) - 0x6f0).replace(/٫/g, ".").replace(/٬/g, ",").replace("−", "-")
  .replace(/[\u200e\u200f\u061c]/g, "").replace(/\s/g, " ");

/** Reads a number with a decimal point or comma; digits are in groups only as the language has it. NaN for anything else. */
export function numberIn(text) {
  const parts = new Intl.NumberFormat(locale).formatToParts(12345.6);
  const [group, point] = ["group", "decimal"].map((kind) => western(parts.find(({ type }) => type === kind)?.value ?? ""));
  let plain = western(text.trim());
  if (group && new RegExp(`^[-+]?\\d{1,3}([${group}]\\d{3})+([${point}]\\d*)?$`).test(plain)) plain = plain.replaceAll(group, "");
  plain = plain.replace(",", ".");
  return /^[-+]?(\d+\.?\d*|\.\d+)$/.test(plain) ? Number(plain) : NaN;
}

// --- sentences ----------------------------------------------------------------------------------

function template(key, { count }) {
  const found = catalogue[key];
  if (typeof found === "string") return found;
  return found[new Intl.PluralRules(locale).select(count)] ?? found.other;
}

/** Keeps a text of another direction from changing the order of the sentence around it. */
const apart = (text) => (directionOf(tag) === "rtl" || /[\u0590-\u08ff\ufb1d-\ufefc]/.test(text)
  ? `${START}${text}${END}` : text);

function filled(value) {
  if (value instanceof Object) return value;  // an element
  return apart(typeof value === "number" ? number(value) : String(value));
}

/** Returns a sentence in parts: texts, and the elements that stand in it. */
export const pieces = (key, values = {}) => template(key, values).split(/\{(\w+)\}/)
  .map((part, at) => (at % 2 ? filled(values[part]) : part));

/** Returns a sentence as text. */
export const text = (key, values) => pieces(key, values).join("");

export const knows = (key) => key in catalogue;

/** Returns the key of an English sentence, as servers send them; undefined if it is in no catalogue. */
export const keyOf = (sentence, start) =>
  Object.keys(english).find((key) => key.startsWith(start) && english[key] === sentence);

/** An error with a sentence for people. */
export class Told extends Error {
  constructor(key, values) {
    super(text(key, values));
  }
}

/** Returns what people are told about an error: its sentence, or the server's reason in their language. */
export function worded(error) {
  if (error instanceof Told) return error.message;
  if (error.status === undefined) return text("error-broken", { detail: error.message });
  const key = error.code === "unreachable" ? "error-unreachable" : `server-${error.code}`;
  return knows(key) ? text(key) : text("error-answered", { status: error.status });
}

// --- what the owner has written -----------------------------------------------------------------

let words = {}, written = "en";

/** Takes the owner's texts, and the language that they are in where they are not translated. */
export function hear({ title, purpose, question, about: { language, texts } }) {
  written = language;
  const found = Object.keys(texts).find((one) => one.toLowerCase() === locale.toLowerCase())
    ?? Object.keys(texts).find((one) => baseOf(one) === tag);
  const given = baseOf(language) === tag ? {} : texts[found] ?? {};
  words = { ...given.words };
  for (const [name, own] of Object.entries({ title, purpose, question })) if (given[name]) words[own] = given[name];
}

/** Returns the owner's word, name or question in the person's language, if the owner has given it there. */
export const owners = (word, otherwise = String(word)) => (Object.hasOwn(words, word) ? words[word] : otherwise);

/** Shows a text of the owner, and marks it where it is in another language than the page. */
export function quote(element, word, shown = owners(word)) {
  element.textContent = shown;
  if (!Object.hasOwn(words, word) && baseOf(written) !== tag) Object.assign(element, { lang: written, dir: directionOf(written) });
  else for (const name of ["lang", "dir"]) element.removeAttribute(name);
  return element;
}

/** Writes the page's own texts, which its elements name, and the language of the page. */
export function translate(page = document) {
  Object.assign(page.documentElement, { lang: tag, dir: directionOf(tag) });
  for (const element of page.querySelectorAll("[data-text]")) element.textContent = text(element.dataset.text);
  for (const element of page.querySelectorAll("[data-label]")) element.setAttribute("aria-label", text(element.dataset.label));
}
