// The range of time of an application's charts: seconds as they come, or the history. The address holds it.

import { call } from "./api.js";
import { el, setText } from "./dom.js";
import { moment, percent } from "./format.js";
import { listMarks } from "./marks.js";
import * as timerange from "./timerange.js";

// Live figures up to here, the history beyond.
const LIVE_S = 300;
const POINTS = 300;
const MARKS_EVERY_S = 30;
const MOST_LISTED = 5;
export const YESTERDAY = "yesterday";
const RANGES = [[LIVE_S, "5 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"], [YESTERDAY, "yesterday"], [604800, "7 days"], [2592000, "30 days"], [7776000, "90 days"]];
const NAMES = ["demand", "throughput", "accuracy", "violations"];
const byId = (id) => document.getElementById(id);

// Begin and end, unix seconds; yesterday is the browser's day.
export function span(range, now) {
  if (range !== YESTERDAY) return timerange.span(range, now);
  const today = new Date(now * 1000).setHours(0, 0, 0, 0) / 1000;
  return { begin: new Date((today - 43200) * 1000).setHours(0, 0, 0, 0) / 1000, end: today };
}

// A range: {seconds} up to now, {begin, end}, or YESTERDAY.
export function parse(search) {
  return new URLSearchParams(search).get("range") === YESTERDAY ? YESTERDAY : timerange.parse(search, LIVE_S);
}

export const address = (range, path) => (range === YESTERDAY ? `${path}?range=${YESTERDAY}` : timerange.address(range, path, LIVE_S));

// The history's answer as columns for charts: x is seconds before the end.
export function columns(found) {
  const x = Array.from({ length: found.points }, (_, i) => (i + 0.5 - found.points) * found.step);
  return { x, p95: found.p95_ms, byVariant: found.by_variant, ...Object.fromEntries(NAMES.map((name) => [name, found[name]])) };
}

// Each variant's part of the answers, percent, the largest first.
export function shares(byVariant) {
  const sums = Object.entries(byVariant).map(([name, rates]) => [name, rates.reduce((sum, value) => sum + (value ?? 0), 0)]);
  const all = sums.reduce((sum, [, value]) => sum + value, 0);
  return all > 0 ? sums.filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]).map(([name, value]) => [name, (100 * value) / all]) : [];
}

export class Spans {
  // `board`: draws the charts; `name`: the application.
  constructor(board, name) {
    this.board = board;
    this.name = name;
    this.range = parse(location.search);
    this.found = null;
    this.marks = [];
    this.asked = 0;
    const now = () => Math.floor(board.serverNow());
    // Yesterday is moved and scaled as the range that it is.
    const plain = () => (this.range === YESTERDAY ? span(YESTERDAY, now()) : this.range);
    byId("app-ranges").append(...RANGES.map(([range, label]) => this.#button(label, () => this.set(range === YESTERDAY ? range : { seconds: range }), { "data-range": range, "data-testid": `range-${range}` })));
    byId("app-moves").append(...timerange.moves(plain, now).map(([label, title, range]) => this.#button(label, () => this.set(range()), { title, "aria-label": title, class: "quiet" })));
    board.zoom = (from, to) => this.set(timerange.chosen(this.end() + from, this.end() + to));
    addEventListener("popstate", () => { this.range = parse(location.search); this.read(); });
    this.read();
  }

  #button(label, act, more) {
    const button = el("button", { type: "button", ...more }, label);
    button.addEventListener("click", act);
    return button;
  }

  get live() {
    return Boolean(this.range.seconds) && this.range.seconds <= LIVE_S;
  }

  // The moment at the right edge of the charts.
  end() {
    return this.found?.span.end ?? this.board.end();
  }

  set(range) {
    this.range = range;
    history.pushState(null, "", address(range, location.pathname));
    this.read();
  }

  async read() {
    clearTimeout(this.timer);
    this.asked += 1;
    const { asked, range } = this;
    const chosen = range.seconds ?? range;
    for (const button of byId("app-ranges").children) button.setAttribute("aria-pressed", String(button.dataset.range === String(chosen)));
    const { begin, end } = span(range, Math.floor(this.board.serverNow()));
    if (this.live) { this.found = null; this.draw(); }
    const query = `begin=${begin}&end=${end}`;
    let step = MARKS_EVERY_S;
    try {
      const [marks, found] = await Promise.all([call("GET", `/api/v1/marks/?${query}`), this.live ? null : call("GET", `/api/v1/history/applications/${encodeURIComponent(this.name)}/?${query}&points=${POINTS}`)]);
      if (asked !== this.asked) return;
      this.marks = marks;
      if (found) {
        this.found = { columns: columns(found), span: { length: found.points * found.step, end: found.begin + found.points * found.step, step: found.step } };
        step = found.step;
      }
      this.draw();
      this.#list();
    } catch { /* the live badge says that the server is away */ }
    if (asked === this.asked && range.seconds) this.timer = setTimeout(() => this.read(), 1000 * Math.max(5, Math.min(60, step)));
  }

  mark(mark) {
    if (!this.range.seconds) return;
    this.marks = [mark, ...this.marks.filter((each) => each.id !== mark.id)].sort((a, b) => b.at - a.at);
    this.#list();
  }

  #list() {
    listMarks(byId("app-marks"), this.marks, MOST_LISTED);
    byId("app-marks-empty").hidden = this.marks.length > 0;
  }

  draw() {
    if (!this.live && !this.found) return;
    this.board.draw({ ...this.found, marks: this.marks, end: this.end(), seconds: this.range.seconds });
    const { byVariant } = this.found?.columns ?? this.board.window(this.name, this.range.seconds);
    const parts = shares(byVariant).map(([name, part]) => `${name} ${percent(part)} %`);
    const { begin, end } = span(this.range, Math.floor(this.board.serverNow()));
    setText(byId("app-range-shown"), this.live ? "" : `${moment(begin, 0)} to ${moment(end - 1, 0)}`);
    setText(byId("variant-shares"), parts.length ? `Answered in this window by: ${parts.join(", ")}.` : "No answers in this window: choose a longer one, or send a query with Try it, below.");
  }
}
