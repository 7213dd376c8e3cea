/* A pad to draw on, with pointer or keyboard, and the picture that the encoder gets from it. */

import { text } from "./language.js";

const SIDE = 280, CELLS = 14, CELL = SIDE / CELLS, PEN = 22, FINE = 8, INK = 25;
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Pad {
  constructor(canvas, said) {
    this.canvas = canvas;
    this.said = said;
    canvas.width = canvas.height = SIDE;
    this.ink = new OffscreenCanvas(SIDE, SIDE).getContext("2d", { willReadFrequently: true });
    Object.assign(this.ink, { lineWidth: PEN, lineCap: "round", lineJoin: "round" });
    this.cursor = [Math.floor(CELLS / 2), Math.floor(CELLS / 2)];
    this.keys = false;
    this.clear();
    this.#listen();
  }

  clear() {
    this.ink.clearRect(0, 0, SIDE, SIDE);
    this.empty = true;
    this.#paint();
  }

  #listen() {
    const pad = this.canvas;
    let last = null;
    const place = (event) => {
      const frame = pad.getBoundingClientRect();
      return [((event.clientX - frame.left) * SIDE) / frame.width, ((event.clientY - frame.top) * SIDE) / frame.height];
    };
    pad.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      pad.setPointerCapture(event.pointerId);
      this.keys = false;
      last = place(event);
      this.#line(last, last);
    });
    pad.addEventListener("pointermove", (event) => {
      if (last === null) return;
      for (const one of event.getCoalescedEvents?.() ?? [event]) {
        const next = place(one);
        this.#line(last, next);
        last = next;
      }
    });
    for (const end of ["pointerup", "pointercancel"]) pad.addEventListener(end, () => { last = null; });
    pad.addEventListener("keydown", (event) => this.#key(event));
    pad.addEventListener("blur", () => { this.keys = false; this.#paint(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  #key(event) {
    const move = MOVES[event.key];
    if (!move && event.key !== " ") return;
    event.preventDefault();
    if (move && this.keys) {
      this.cursor = this.cursor.map((at, axis) => Math.min(Math.max(at + move[axis], 0), CELLS - 1));
    }
    this.keys = true;
    if (event.key === " ") this.#cell(!this.filled);
    else if (event.shiftKey) this.#cell(true);
    this.#paint();
    const [column, row] = this.cursor;
    this.said(text(this.filled ? "pad-filled" : "pad-empty", { row: row + 1, column: column + 1 }));
  }

  /** Whether the cell under the cursor has ink. */
  get filled() {
    const [x, y] = this.cursor.map((at) => Math.floor((at + 0.5) * CELL));
    return this.ink.getImageData(x, y, 1, 1).data[3] > 0;
  }

  #cell(fill) {
    const [x, y] = this.cursor.map((at) => at * CELL);
    if (fill) this.ink.fillRect(x, y, CELL, CELL);
    else this.ink.clearRect(x, y, CELL, CELL);
    this.empty = !this.#alpha().some((value) => value > 0);
  }

  #line([x, y], [toX, toY]) {
    this.ink.beginPath();
    this.ink.moveTo(x, y);
    this.ink.lineTo(toX, toY);
    this.ink.stroke();
    this.empty = false;
    this.#paint();
  }

  #paint() {
    const seen = this.canvas.getContext("2d"), color = getComputedStyle(this.canvas).color;
    seen.globalCompositeOperation = "source-over";
    seen.clearRect(0, 0, SIDE, SIDE);
    seen.drawImage(this.ink.canvas, 0, 0);
    seen.globalCompositeOperation = "source-in";
    seen.fillStyle = color;
    seen.fillRect(0, 0, SIDE, SIDE);
    if (!this.keys) return;
    seen.globalCompositeOperation = "source-over";
    seen.strokeStyle = getComputedStyle(this.canvas).outlineColor;
    seen.lineWidth = 3;
    const [column, row] = this.cursor;
    seen.strokeRect(column * CELL + 1.5, row * CELL + 1.5, CELL - 3, CELL - 3);
  }

  #alpha() {
    const { data } = this.ink.getImageData(0, 0, SIDE, SIDE);
    return Uint8Array.from({ length: SIDE * SIDE }, (_, at) => data[4 * at + 3]);
  }

  /** Ink from 0 to 1, row by row: cropped, scaled to a share of the frame, its weight centred. */
  picture([height, width], share) {
    const ink = extent(this.#alpha());
    // A small mark is not blown up to a blot.
    const least = SIDE / 4, across = Math.max(ink.width, least), down = Math.max(ink.height, least);
    const scale = FINE * share * Math.min(width / across, height / down);
    const start = (from, length, weight, room) => {
      const centred = room / 2 - (weight - from) * scale, slack = room - length * scale;
      return Math.min(Math.max(centred, Math.min(slack, 0)), Math.max(slack, 0));
    };
    const fine = new OffscreenCanvas(width * FINE, height * FINE).getContext("2d");
    fine.imageSmoothingQuality = "high";
    fine.drawImage(this.ink.canvas, ink.left, ink.top, ink.width, ink.height,
      start(ink.left, ink.width, ink.x, width * FINE), start(ink.top, ink.height, ink.y, height * FINE),
      ink.width * scale, ink.height * scale);
    return averaged(fine.getImageData(0, 0, width * FINE, height * FINE), width, height);
  }
}

/** Returns the bounding box of the ink, and its centre of mass. */
function extent(alpha) {
  let [left, top, right, bottom, weight, x, y] = [SIDE, SIDE, 0, 0, 0, 0, 0];
  alpha.forEach((value, at) => {
    if (value < 32) return;
    const column = at % SIDE, row = Math.floor(at / SIDE);
    left = Math.min(left, column);
    right = Math.max(right, column + 1);
    top = Math.min(top, row);
    bottom = Math.max(bottom, row + 1);
    weight += value;
    x += value * (column + 0.5);
    y += value * (row + 0.5);
  });
  return { left, top, width: right - left, height: bottom - top, x: x / weight, y: y / weight };
}

function averaged({ data }, width, height) {
  const means = new Float64Array(width * height);
  for (let at = 0; at < data.length / 4; at++) {
    const column = Math.floor((at % (width * FINE)) / FINE), row = Math.floor(at / (width * FINE * FINE));
    means[row * width + column] += data[4 * at + 3] / 255 / FINE ** 2;
  }
  return Array.from(means);
}

/** Paints numbers from 0 to 1 on a canvas, one pixel per number, dark on the light paper of tiles. */
export function paint(canvas, values, [height, width]) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  values.forEach((value, at) => {
    image.data.set([INK, INK, INK, 255 * Math.min(Math.max(value, 0), 1)], 4 * at);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}
