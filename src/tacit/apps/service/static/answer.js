/* A person's answer: a drawing or a form, and a label. It stays in this object. */

import { Pad } from "./drawing.js";
import { number, owners, quote, text } from "./language.js";
import { Complaint, find, focusOn, make, say } from "./page.js";
import { columnsOf, problemWith, rowOf, titleOf } from "./rows.js";
import { either } from "./words.js";

const MOST_FIELDS = 200, MOST_BUTTONS = 24;

/** Whether a page can ask for rows of this schema. */
export const askable = (schema) => Boolean(schema.image) || columnsOf(schema).length <= MOST_FIELDS;

export class Answer {
  constructor(described, question) {
    this.question = question;
    this.schema = described.schema;
    this.frame = described.frame;
    this.classes = described.classes;
    const drawn = Boolean(this.schema.image);
    find("draw").hidden = !drawn;
    find("fill").hidden = drawn;
    if (drawn) this.#pad();
    if (this.classes) this.#asked();
    this.render();
  }

  /** Makes the form, in the language of now, with what is filled in already. */
  render() {
    const before = this.#given();
    if (this.pad) find("what").textContent = this.classes ? text("draw-one", { choices: this.#choices() }) : text("draw");
    else this.#fields();
    if (this.classes) this.#labels();
    before.forEach(([id, name, value]) => { find(id)[name] = value; });
  }

  /** What is filled in: ids of fields, and their values. */
  #given() {
    const fields = document.querySelectorAll("#fill :is(input, select), #choices :is(input, select)");
    return [...fields].map((one) => [one.id, ...(one.type === "radio" ? ["checked", one.checked] : ["value", one.value])]);
  }

  #choices() {
    return either(this.classes.map((name) => owners(name)));
  }

  #pad() {
    this.drawn = new Complaint(find("pad-error"), find("pad"));
    for (const event of ["pointerup", "keyup"]) {
      find("pad").addEventListener(event, () => this.drawn.element.hidden || this.#checkPad());
    }
    this.pad = new Pad(find("pad"), say);
    find("clear").addEventListener("click", () => {
      this.pad.clear();
      find("pad").focus();
      say(text("pad-cleared"));
    });
  }

  #fields() {
    this.columns = columnsOf(this.schema);
    this.complaints = [];
    find("fill").replaceChildren();
    this.inputs = this.columns.map((column, at) => {
      const id = `field-${at}`, hint = hintOf(column);
      const input = column.kind === "categorical" ? selectOf(column, id) : numberOf(column, id);
      const wrong = Complaint.make(`${id}-error`, input);
      const parts = [quote(make("label", { for: id }), column.name, titleOf(column)), input];
      if (hint) parts.push(make("small", { id: `${id}-hint` }, hint));
      input.setAttribute("aria-describedby", `${hint ? `${id}-hint ` : ""}${id}-error`);
      input.addEventListener("input", () => wrong.element.hidden || this.#checkField(at));
      this.complaints.push(wrong);
      find("fill").append(make("div", { class: "field" }, ...parts, wrong.element));
      return input;
    });
  }

  /** Shows the question that the label answers. */
  #asked() {
    find("label").hidden = false;
    this.labelled = new Complaint(find("label-error"), find("label"));
    find("label").addEventListener("input", () => this.labelled.element.hidden || this.#checkLabel());
  }

  #labels() {
    this.labelled.say("");
    if (this.classes.length > MOST_BUTTONS) {
      const options = this.classes.map((name, at) => quote(make("option", { value: at }), name));
      find("choices").replaceChildren(make("select", { id: "choice", "aria-label": text("label"), autocomplete: "off" },
        make("option", { value: "" }, text("choose")), ...options));
      return;
    }
    find("choices").replaceChildren(...this.classes.map((name, at) => {
      const input = make("input",
        { type: "radio", name: "choice", value: at, id: `choice-${at}`, autocomplete: "off" });
      return make("span", {}, input, quote(make("label", { for: `choice-${at}` }), name));
    }));
  }

  /** The index of the chosen label; null if the survey asks for none. */
  get label() {
    if (!this.classes) return null;
    const chosen = document.querySelector("input[name=choice]:checked, #choice");
    return chosen && chosen.value !== "" ? Number(chosen.value) : undefined;
  }

  #value(input) {
    if (input.tagName === "SELECT") return input.value === "" ? undefined : Number(input.value);
    if (input.validity.badInput) return NaN;
    return input.value.trim() === "" ? null : Number(input.value);
  }

  #values() {
    if (!this.pad) return this.inputs.map((input) => this.#value(input));
    const { lower, upper, image } = this.schema;
    return this.pad.picture(image, this.frame).map((ink) => lower + ink * (upper - lower));
  }

  #checkPad() {
    return this.drawn.say(this.pad.empty ? text("pad-missing") : "");
  }

  #checkField(at) {
    const column = this.columns[at], value = this.#value(this.inputs[at]);
    const missing = value === undefined && text("choose-column", { name: titleOf(column) });
    return this.complaints[at].say(missing || problemWith(column, value));
  }

  #checkLabel() {
    return this.labelled.say(this.label === undefined ? text("choose-label", { question: find("question").textContent }) : "");
  }

  /** Returns the row and label; null if something is missing, which is said beside it. */
  take() {
    const wrong = [];
    if (this.pad) {
      if (!this.#checkPad()) wrong.push([find("pad"), find("draw")]);
    } else {
      this.inputs.forEach((input, at) => { if (!this.#checkField(at)) wrong.push([input, input.parentElement]); });
    }
    if (this.classes && !this.#checkLabel()) wrong.push([find("choices").querySelector("input, select"), find("label")]);
    if (wrong.length > 0) {
      focusOn(...wrong[0]);
      return null;
    }
    const values = this.#values();
    return { values, row: rowOf(this.schema, values), label: this.label };
  }

  /** Makes elements that show every answer as it was given. */
  own() {
    const said = this.pad ? [] : this.columns.map((column, at) =>
      make("div", {}, quote(make("dt"), column.name, titleOf(column)), this.#said(this.inputs[at])));
    if (!this.classes) return said;
    const asked = this.question ? quote(make("dt"), this.question) : make("dt", {}, find("question").textContent);
    return [...said, make("div", {}, asked, quote(make("dd"), this.classes[this.label]))];
  }

  #said(input) {
    if (input.tagName === "SELECT") return make("dd", {}, input.selectedOptions[0].textContent);
    return make("dd", {}, input.value.trim() === "" ? text("not-known") : number(Number(input.value)));
  }

  /** Forgets what was drawn or filled in. */
  clear() {
    this.pad?.clear();
    this.inputs?.forEach((input) => { input.value = ""; });
    document.querySelectorAll("input[name=choice]").forEach((input) => { input.checked = false; });
    if (find("choice")) find("choice").value = "";
    [this.drawn, this.labelled, ...(this.complaints ?? [])].forEach((one) => one?.say(""));
  }
}

function hintOf(column) {
  if (column.kind === "categorical") return "";
  const { lower, upper, outside, missing } = column;
  return [text("range", { lower, upper }), ...(outside === "clip" ? [text("range-clip")] : []),
    ...(missing === "indicate" ? [text("may-be-empty")] : [])].join(" ");
}

function numberOf(column, id) {
  const bounds = column.outside === "refuse" ? { min: column.lower, max: column.upper } : {};
  return make("input", { type: "number", id, step: "any", inputmode: "decimal", autocomplete: "off",
    ...bounds, required: column.missing !== "indicate" });
}

function selectOf(column, id) {
  const options = column.categories.map((name, at) => quote(make("option", { value: at }), name));
  if (column.unseen === "other") options.push(make("option", { value: -1 }, text("other-unknown")));
  return make("select", { id, required: true, autocomplete: "off" }, make("option", { value: "" }, text("choose")), ...options);
}
