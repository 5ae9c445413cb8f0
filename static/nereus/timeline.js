// The overview's charts on one time axis: the range, what is read for it, and marks.

import { call } from "./api.js";
import { el, setText, toast } from "./dom.js";
import { moment } from "./format.js";
import { dot, listMarks } from "./marks.js";
import { slice } from "./slices.js";
import { AXIS_PX, TimeChart } from "./timechart.js";
import { address, chosen, LIVE_S, moves, parse, RANGES, span } from "./timerange.js";

const NAMES = ["demand", "throughput", "accuracy", "violations"];
const MOST_LISTED = 8;
const byId = (id) => document.getElementById(id);

export class Timeline {
  // `read(begin, end)`: called with each range that is read, for what else depends on it.
  constructor(board, read) {
    this.board = board;
    this.also = read;
    this.range = parse(location.search);
    this.columns = null;
    this.marks = [];
    this.asked = 0;
    this.charts = [...document.querySelectorAll("[data-time]")].map((box) => new TimeChart(box, (begin, end) => this.set(chosen(begin, end))));
    const now = () => Math.floor(board.serverNow());
    byId("ranges").append(...RANGES.map(([seconds, label]) => this.#button(label, () => this.set({ seconds }), { "data-seconds": seconds, "data-testid": `range-${seconds}` })));
    byId("moves").append(...moves(() => this.range, now).map(([label, title, range]) => this.#button(label, () => this.set(range()), { title, "aria-label": title, class: "quiet" })));
    byId("note-form")?.addEventListener("submit", (event) => { event.preventDefault(); this.#note(event.target); });
    addEventListener("popstate", () => { this.range = parse(location.search); this.read(); });
    this.read();
  }

  #button(label, act, more) {
    const button = el("button", { type: "button", ...more }, label);
    button.addEventListener("click", act);
    return button;
  }

  set(range) {
    this.range = range;
    history.pushState(null, "", address(range));
    this.read();
  }

  span() {
    return span(this.range, Math.floor(this.board.serverNow()));
  }

  get live() {
    return Boolean(this.range.seconds) && this.range.seconds <= LIVE_S;
  }

  async read() {
    clearTimeout(this.timer);
    this.asked += 1;
    const asked = this.asked;
    const { begin, end } = this.span();
    for (const button of byId("ranges").children) button.setAttribute("aria-pressed", String(Number(button.dataset.seconds) === this.range.seconds));
    setText(byId("range-shown"), this.range.seconds ? "" : `${moment(begin, 0)} to ${moment(end, 0)}`);
    const query = `begin=${begin}&end=${end}`;
    this.also(begin, end);
    try {
      const [found, marks] = await Promise.all([call("GET", `/api/v1/history/?${query}&points=${this.live ? 900 : 300}`), call("GET", `/api/v1/marks/?${query}`)]);
      if (asked !== this.asked) return;
      const x = Array.from({ length: found.points }, (_, i) => found.begin + i * found.step + (found.step > 1 ? found.step / 2 : 0));
      this.columns = { x, step: found.step, ...Object.fromEntries(NAMES.map((name) => [name, found[name]])) };
      this.marks = marks;
      this.draw();
      this.#list();
    } catch { /* the live badge says that the server is away */ }
    // What follows the present is read again; seconds come by themselves.
    const wait = this.columns && !this.live ? Math.max(10, Math.min(60, this.columns.step)) : 30;
    if (asked === this.asked && this.range.seconds) this.timer = setTimeout(() => this.read(), 1000 * wait);
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
    // One that is known already counts more than before.
    this.marks = [mark, ...this.marks.filter((each) => each.id !== mark.id)].sort((a, b) => b.at - a.at);
    this.laneShown = null;
    this.#list();
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

  #list() {
    listMarks(byId("marks"), this.marks, MOST_LISTED);
    byId("marks-empty").hidden = this.marks.length > 0;
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
