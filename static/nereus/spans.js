// The range of time of an application's charts: seconds as they come, or the history.

import { call } from "./api.js";
import { setText } from "./dom.js";
import { moment, percent } from "./format.js";
import { Ranged } from "./ranged.js";
import { chosen, YESTERDAY } from "./timerange.js";

// Live figures up to here, the history beyond.
const LIVE_S = 300;
const POINTS = 300;
const MOST_LISTED = 5;
const RANGES = [[LIVE_S, "5 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"], [YESTERDAY, "yesterday"], [604800, "7 days"], [2592000, "30 days"], [7776000, "90 days"]];
const NAMES = ["demand", "throughput", "accuracy", "violations"];

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

export class Spans extends Ranged {
  // `board`: draws the charts; `name`: the application.
  constructor(board, name) {
    super(board, { prefix: "app-", ranges: RANGES, standard: LIVE_S, path: location.pathname, most: MOST_LISTED });
    this.name = name;
    this.found = null;
    board.zoom = (from, to) => this.set(chosen(this.end() + from, this.end() + to));
    this.read();
  }

  get live() {
    return Boolean(this.range.seconds) && this.range.seconds <= LIVE_S;
  }

  // The moment at the right edge of the charts.
  end() {
    return this.found?.span.end ?? this.board.end();
  }

  read() {
    const { live } = this;
    if (live) { this.found = null; this.draw(); }
    return this.request((query) => (live ? null : call("GET", `/api/v1/history/applications/${encodeURIComponent(this.name)}/?${query}&points=${POINTS}`)), (found) => {
      if (found) this.found = { columns: columns(found), span: { length: found.points * found.step, end: found.begin + found.points * found.step, step: found.step } };
      this.draw();
      return found ? Math.max(5, Math.min(60, found.step)) : 30;
    });
  }

  mark(mark) {
    if (this.range.seconds) super.mark(mark);
  }

  draw() {
    if (!this.live && !this.found) return;
    this.board.draw({ ...this.found, marks: this.marks, end: this.end(), seconds: this.range.seconds });
    const { byVariant } = this.found?.columns ?? this.board.window(this.name, this.range.seconds);
    const parts = shares(byVariant).map(([name, part]) => `${name} ${percent(part)} %`);
    const { begin, end } = this.span();
    setText(this.byId("range-shown"), this.live ? "" : `${moment(begin, 0)} to ${moment(end - 1, 0)}`);
    setText(document.getElementById("variant-shares"), parts.length ? `Answered in this window by: ${parts.join(", ")}.` : "No answers in this window: choose a longer one, or send a query with Try it, below.");
  }
}
