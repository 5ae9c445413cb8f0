// The range of time of an application's charts: seconds as they come, or the history. The address holds it.

import { call } from "./api.js";
import { el, setText } from "./dom.js";
import { moment, percent } from "./format.js";

// Live figures up to here, the history beyond.
const LIVE_S = 300;
const POINTS = 300;
export const YESTERDAY = "yesterday";
const RANGES = [[LIVE_S, "5 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"], [YESTERDAY, "yesterday"], [604800, "7 days"], [2592000, "30 days"], [7776000, "90 days"]];
const NAMES = ["demand", "throughput", "accuracy", "violations"];

// Begin and end, unix seconds; yesterday is the browser's day.
export function span(range, now) {
  if (range !== YESTERDAY) return { begin: now - range, end: now };
  const today = new Date(now * 1000).setHours(0, 0, 0, 0) / 1000;
  return { begin: new Date((today - 43200) * 1000).setHours(0, 0, 0, 0) / 1000, end: today };
}

export function parse(search) {
  const asked = new URLSearchParams(search).get("range");
  return RANGES.find(([range]) => String(range) === asked)?.[0] ?? LIVE_S;
}

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
    this.asked = 0;
    const choice = document.getElementById("app-ranges");
    choice.append(...RANGES.map(([range, label]) => {
      const button = el("button", { type: "button", "data-range": range, "data-testid": `range-${range}` }, label);
      button.addEventListener("click", () => this.set(range));
      return button;
    }));
    addEventListener("popstate", () => { this.range = parse(location.search); this.read(); });
    this.read();
  }

  get live() {
    return this.range === LIVE_S;
  }

  set(range) {
    this.range = range;
    history.pushState(null, "", range === LIVE_S ? location.pathname : `?range=${range}`);
    this.read();
  }

  async read() {
    clearTimeout(this.timer);
    this.asked += 1;
    const { asked, range } = this;
    for (const button of document.getElementById("app-ranges").children) button.setAttribute("aria-pressed", String(button.dataset.range === String(range)));
    this.found = null;
    if (this.live) { this.draw(); return; }
    const { begin, end } = span(range, Math.floor(this.board.serverNow()));
    let step = 10;
    try {
      const found = await call("GET", `/api/v1/history/applications/${encodeURIComponent(this.name)}/?begin=${begin}&end=${end}&points=${POINTS}`);
      if (asked !== this.asked) return;
      this.found = { columns: columns(found), span: { length: found.points * found.step, end: found.begin + found.points * found.step, step: found.step } };
      step = found.step;
      this.draw();
    } catch { /* the live badge says that the server is away */ }
    if (asked === this.asked && range !== YESTERDAY) this.timer = setTimeout(() => this.read(), 1000 * Math.max(5, Math.min(60, step)));
  }

  draw() {
    if (!this.live && !this.found) return;
    this.board.draw(this.found);
    const { byVariant } = this.found?.columns ?? this.board.window(this.name);
    const parts = shares(byVariant).map(([name, part]) => `${name} ${percent(part)} %`);
    const { begin, end } = span(this.range, Math.floor(this.board.serverNow()));
    setText(document.getElementById("app-range-shown"), this.live ? "" : `${moment(begin, 0)} to ${moment(end - 1, 0)}`);
    setText(document.getElementById("variant-shares"), parts.length ? `Answered in this time by: ${parts.join(", ")}.` : "No answers in this time: choose a longer one, or send a query with Try it, below.");
  }
}
