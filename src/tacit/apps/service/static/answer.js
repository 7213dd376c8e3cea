/* A person's answer: a drawing or a form, and a label. It stays in this object. */

import { Pad } from "./drawing.js";
import { Complaint, find, focusOn, make, say } from "./page.js";
import { columnsOf, problemWith, rowOf, titleOf } from "./rows.js";

const MOST_FIELDS = 200, MOST_BUTTONS = 24;

/** Whether a page can ask for rows of this schema. */
export const askable = (schema) => Boolean(schema.image) || columnsOf(schema).length <= MOST_FIELDS;

export class Answer {
  constructor(described) {
    this.schema = described.schema;
    this.frame = described.frame;
    this.classes = described.classes;
    const drawn = Boolean(this.schema.image);
    find("draw").hidden = !drawn;
    find("fill").hidden = drawn;
    if (drawn) this.#pad(described);
    else this.#fields();
    this.#labels();
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
      say("The pad is empty.");
    });
    if (this.classes) find("what").textContent = `Draw one of these: ${this.classes.join(", ")}.`;
  }

  #fields() {
    this.columns = columnsOf(this.schema);
    this.complaints = [];
    this.inputs = this.columns.map((column, at) => {
      const id = `field-${at}`, hint = hintOf(column);
      const input = column.kind === "categorical" ? selectOf(column, id) : numberOf(column, id);
      const wrong = Complaint.make(`${id}-error`, input);
      const parts = [make("label", { for: id }, titleOf(column)), input];
      if (hint) parts.push(make("small", { id: `${id}-hint` }, hint));
      input.setAttribute("aria-describedby", `${hint ? `${id}-hint ` : ""}${id}-error`);
      input.addEventListener("input", () => wrong.element.hidden || this.#checkField(at));
      this.complaints.push(wrong);
      find("fill").append(make("div", { class: "field" }, ...parts, wrong.element));
      return input;
    });
  }

  #labels() {
    find("label").hidden = !this.classes;
    if (!this.classes) return;
    this.labelled = new Complaint(find("label-error"), find("label"));
    find("label").addEventListener("input", () => this.labelled.element.hidden || this.#checkLabel());
    if (this.classes.length > MOST_BUTTONS) {
      const options = this.classes.map((name, at) => make("option", { value: at }, String(name)));
      find("choices").append(make("select", { id: "choice", "aria-label": "Label", autocomplete: "off" },
        make("option", { value: "" }, "Choose…"), ...options));
      return;
    }
    this.classes.forEach((name, at) => {
      const input = make("input",
        { type: "radio", name: "choice", value: at, id: `choice-${at}`, autocomplete: "off" });
      find("choices").append(make("span", {}, input, make("label", { for: `choice-${at}` }, String(name))));
    });
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
    return this.drawn.say(this.pad.empty ? "Draw something first." : "");
  }

  #checkField(at) {
    const column = this.columns[at], value = this.#value(this.inputs[at]);
    const missing = value === undefined && `Choose an answer for “${titleOf(column)}”.`;
    return this.complaints[at].say(missing || problemWith(column, value));
  }

  #checkLabel() {
    return this.labelled.say(this.label === undefined ? `Choose an answer to “${find("question").textContent}”` : "");
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
    const said = this.pad ? [] : this.columns.map((column, at) => [titleOf(column), this.#said(this.inputs[at])]);
    if (this.classes) said.push([find("question").textContent, String(this.classes[this.label])]);
    return said.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  }

  #said(input) {
    return input.tagName === "SELECT" ? input.selectedOptions[0].textContent : input.value.trim() || "not known";
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
  const range = `From ${column.lower} to ${column.upper}.`;
  const beyond = column.outside === "clip" ? " A value outside counts as the nearest of these." : "";
  return range + beyond + (column.missing === "indicate" ? " Leave it empty if you do not know." : "");
}

function numberOf(column, id) {
  const bounds = column.outside === "refuse" ? { min: column.lower, max: column.upper } : {};
  return make("input", { type: "number", id, step: "any", inputmode: "decimal", autocomplete: "off",
    ...bounds, required: column.missing !== "indicate" });
}

function selectOf(column, id) {
  const options = column.categories.map((name, at) => make("option", { value: at }, name));
  if (column.unseen === "other") options.push(make("option", { value: -1 }, "Other, or I do not know"));
  return make("select", { id, required: true, autocomplete: "off" }, make("option", { value: "" }, "Choose…"), ...options);
}
