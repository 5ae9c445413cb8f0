// The overview's charts on one time axis: the range, what is read for it, and marks.

import { call } from "./api.js";
import { setText, toast } from "./dom.js";
import { moment } from "./format.js";
import { dot } from "./marks.js";
import { Ranged } from "./ranged.js";
import { slice } from "./slices.js";
import { AXIS_PX, TimeChart } from "./timechart.js";
import { chosen, LIVE_S, RANGES } from "./timerange.js";

const NAMES = ["demand", "throughput", "accuracy", "violations"];
const MOST_LISTED = 8;
const byId = (id) => document.getElementById(id);

export class Timeline extends Ranged {
  // `read(begin, end)`: called with each range that is read, for what else depends on it.
  constructor(board, read) {
    super(board, { ranges: RANGES, most: MOST_LISTED });
    this.also = read;
    this.columns = null;
    this.charts = [...document.querySelectorAll("[data-time]")].map((box) => new TimeChart(box, (begin, end) => this.set(chosen(begin, end))));
    byId("note-form")?.addEventListener("submit", (event) => { event.preventDefault(); this.#note(event.target); });
    this.read();
  }

  get live() {
    return Boolean(this.range.seconds) && this.range.seconds <= LIVE_S;
  }

  read() {
    const { begin, end } = this.span();
    setText(byId("range-shown"), this.range.seconds ? "" : `${moment(begin, 0)} to ${moment(end, 0)}`);
    this.also(begin, end);
    return this.request((query) => call("GET", `/api/v1/history/?${query}&points=${this.live ? 900 : 300}`), (found) => {
      const x = Array.from({ length: found.points }, (_, i) => found.begin + i * found.step + (found.step > 1 ? found.step / 2 : 0));
      this.columns = { x, step: found.step, ...Object.fromEntries(NAMES.map((name) => [name, found[name]])) };
      this.draw();
      // What follows the present is read again; seconds come by themselves.
      return this.live ? 30 : Math.max(10, Math.min(60, found.step));
    });
  }

  // Seconds that came since the range was read.
  follow() {
    if (!this.columns || !this.live || this.columns.step !== 1) return;
    const { columns, board } = this;
    const end = board.end();
    for (let at = Math.max(columns.x.at(-1) + 1, end - LIVE_S); at <= end; at += 1) this.#append(at);
    // Reports that were under way when the range was read.
    for (let back = 1; back <= 10 && back <= columns.x.length; back += 1) {
      const at = columns.x.length - back;
      if (columns.demand[at] === null) this.#fill(at, board.telemetry.now(columns.x[at], 1));
    }
    const old = columns.x.findIndex((at) => at >= end - this.range.seconds);
    if (old > 0) for (const name of ["x", ...NAMES]) columns[name].splice(0, old);
  }

  #append(at) {
    this.columns.x.push(at);
    for (const name of NAMES) this.columns[name].push(null);
    this.#fill(this.columns.x.length - 1, this.board.telemetry.now(at, 1));
  }

  #fill(index, figures) {
    if (figures) for (const name of NAMES) this.columns[name][index] = figures[name];
  }

  // Each chart by itself: they are the most work of a page that is live.
  draw() {
    if (!this.columns) return;
    slice("timeline", () => {
      this.follow();
      const { columns } = this;
      const shown = { ...this.span(), step: columns.step };
      this.charts.forEach((chart, i) => slice(`timeline, chart ${i}`, () => chart.draw(columns, shown, this.marks)));
      slice("timeline's marks", () => this.#lane(shown));
    });
  }

  // The most and the least of a column in the range.
  extremes(name) {
    const known = (this.columns?.[name] ?? []).filter((value) => value !== null);
    return known.length ? [Math.min(...known), Math.max(...known)] : [null, null];
  }

  mark(mark) {
    this.laneShown = null;
    super.mark(mark);
    this.draw();
  }

  #lane(shown) {
    const lane = byId("lane");
    const width = lane.clientWidth - AXIS_PX - 8;
    const key = JSON.stringify([Math.floor(shown.begin / Math.max(1, (shown.end - shown.begin) / width)), shown.end - shown.begin, width, this.marks.map((mark) => mark.id)]);
    if (key === this.laneShown) return;
    this.laneShown = key;
    lane.replaceChildren(...this.marks.flatMap((mark) => {
      const part = (mark.at - shown.begin) / (shown.end - shown.begin);
      if (part < 0 || part > 1) return [];
      const point = dot(mark, "markdot", { title: `${moment(mark.at, 0)} ${mark.text}` });
      point.style.left = `${AXIS_PX + part * width}px`;
      return [point];
    }));
  }

  async #note(form) {
    const { text } = form.elements;
    const button = form.querySelector("button");
    // A second click would make a second note.
    if (button.disabled) return;
    button.disabled = true;
    try {
      this.mark(await call("POST", "/api/v1/marks/", { text: text.value }));
      text.value = "";
    } catch (error) { toast([error.message, ...(error.errors ?? []).map((each) => each.detail)].join(" "), "bad"); }
    button.disabled = false;
  }
}
