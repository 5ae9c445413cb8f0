// A row of bars on a canvas, one for each point of time: height is accuracy relative to the best, colour the share in
// time. Grey: no queries; nothing: no report.

import { css } from "./colors.js";
import { clock, percent } from "./format.js";

// Percent of accuracy at which a bar has its least height.
const LOWEST = 80;
export const inTime = (violations) => (violations === null ? null : 100 - violations);
// Percent of violations beyond which an application is marked.
const [MANY, SOME] = [5, 1];
export const tone = (violations) => (violations === null ? "--line" : violations > MANY ? "--c-violations" : violations > SOME ? "--warn" : "--good");
// The classes of a figure in words.
export const mark = (violations) => (violations > MANY ? "bad strong" : violations > SOME ? "warn strong" : "");

function words(row, data, index) {
  const at = clock(data.begin + index * data.step).slice(0, 5);
  if (row.demand[index] === null) return `${at}: no report`;
  if (row.violations[index] === null) return `${at}: no queries`;
  return `${at}: ${percent(inTime(row.violations[index]))} % in time, accuracy ${percent(row.accuracy[index])} %, ${percent(row.demand[index])} queries/s`;
}

export class Bars {
  // `open(begin, end)`: a bar was chosen.
  constructor(canvas, open) {
    this.canvas = canvas;
    this.at = null;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "slider");
    canvas.setAttribute("aria-valuemin", "1");
    const choose = () => { if (this.data && this.at !== null) open(this.data.begin + this.at * this.data.step, this.data.begin + (this.at + 1) * this.data.step); };
    const point = (event) => Math.max(0, Math.min(this.data.points - 1, Math.floor((event.offsetX / canvas.clientWidth) * this.data.points)));
    canvas.addEventListener("mousemove", (event) => { if (this.data) this.#move(point(event)); });
    canvas.addEventListener("mouseleave", () => this.#move(null));
    canvas.addEventListener("focus", () => { if (this.data && this.at === null) this.#move(this.data.points - 1); });
    canvas.addEventListener("blur", () => this.#move(null));
    canvas.addEventListener("click", choose);
    canvas.addEventListener("keydown", (event) => {
      if (!this.data) return;
      const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -Infinity, End: Infinity }[event.key];
      if (step) this.#move(Math.max(0, Math.min(this.data.points - 1, (this.at ?? this.data.points) + step)));
      else if (event.key === "Enter") choose();
      else return;
      event.preventDefault();
    });
  }

  #move(at) {
    if (at === this.at) return;
    this.at = at;
    this.#describe();
    this.draw();
  }

  #describe() {
    const at = this.at ?? this.data.points - 1;
    const text = words(this.row, this.data, at);
    this.canvas.setAttribute("aria-valuenow", String(at + 1));
    this.canvas.setAttribute("aria-valuemax", String(this.data.points));
    this.canvas.setAttribute("aria-valuetext", text);
    this.canvas.setAttribute("aria-label", this.row.name);
    this.canvas.title = text;
  }

  show(row, data) {
    this.row = row;
    this.data = data;
    this.#describe();
    this.draw();
  }

  draw() {
    const { canvas, row, data } = this;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!row || !width) return;
    const ratio = devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    // A canvas of another size is laid out anew, with the whole page.
    if (canvas.width !== wide) canvas.width = wide;
    if (canvas.height !== high) canvas.height = high;
    const brush = canvas.getContext("2d");
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.clearRect(0, 0, width, height);
    const step = width / data.points;
    for (let i = 0; i < data.points; i += 1) {
      if (row.demand[i] === null) continue;
      const known = row.accuracy[i] ?? null;
      const part = known === null ? 0.2 : Math.max(0.25, Math.min(1, (known - LOWEST) / (100 - LOWEST)));
      brush.fillStyle = css(tone(row.violations[i]));
      const tall = Math.max(3, part * (height - 2));
      brush.fillRect(i * step + 0.5, height - tall, Math.max(1, step - 1), tall);
      if (i === this.at) {
        brush.fillStyle = css("--ink");
        brush.fillRect(i * step, height - 1.5, step, 1.5);
      }
    }
  }
}
