/* A person's answer: a drawing or a form, and a label. It stays in this object. */

import { Pad } from "./drawing.js";
import { find, make, say } from "./page.js";
import { columnsOf, problemWith, rowOf } from "./rows.js";

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
    this.pad = new Pad(find("pad"), say);
    find("clear").addEventListener("click", () => {
      this.pad.clear();
      find("pad").focus();
      say("The pad is empty.");
    });
    if (this.classes) find("what").textContent = `Draw one of these: ${this.classes.join(", ")}.`;
  }

  #fields() {
    this.inputs = columnsOf(this.schema).map((column, at) => {
      const id = `field-${at}`, hint = hintOf(column);
      const input = column.kind === "categorical" ? selectOf(column, id) : numberOf(column, id);
      const parts = [make("label", { for: id }, column.name), input];
      if (hint) {
        input.setAttribute("aria-describedby", `${id}-hint`);
        parts.push(make("small", { id: `${id}-hint` }, hint));
      }
      find("fill").append(make("div", { class: "field" }, ...parts));
      return input;
    });
  }

  #labels() {
    find("label").hidden = !this.classes;
    if (!this.classes) return;
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

  #values() {
    if (this.pad) {
      const { lower, upper, image } = this.schema;
      return this.pad.picture(image, this.frame).map((ink) => lower + ink * (upper - lower));
    }
    return this.inputs.map((input) => {
      if (input.tagName === "SELECT") return input.value === "" ? undefined : Number(input.value);
      if (input.validity.badInput) return NaN;
      return input.value.trim() === "" ? null : Number(input.value);
    });
  }

  /** Returns the row and label; throws one sentence about whatever is missing. */
  take() {
    if (this.pad?.empty) throw new Error("Draw something first.");
    const values = this.#values();
    if (!this.pad) {
      columnsOf(this.schema).forEach((column, at) => {
        const value = values[at] ?? (column.kind === "categorical" ? -2 : null);
        const problem = value === -2 ? `Choose an answer for “${column.name}”.` : problemWith(column, value);
        if (problem) {
          this.inputs[at].focus();
          throw new Error(problem);
        }
      });
    }
    const { label } = this;
    if (label === undefined) throw new Error(`Choose an answer to “${find("question").textContent}”`);
    return { values, row: rowOf(this.schema, values), label };
  }

  /** Forgets what was drawn or filled in. */
  clear() {
    this.pad?.clear();
    this.inputs?.forEach((input) => { input.value = ""; });
    document.querySelectorAll("input[name=choice]").forEach((input) => { input.checked = false; });
    if (find("choice")) find("choice").value = "";
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
