// Charts on one time axis: the range with its buttons, the address that holds it, what is read for it, and marks.

import { call } from "./api.js";
import { AXIS_PX, TimeChart } from "./charts.js";
import { el, setText, toast } from "./dom.js";
import { moment } from "./format.js";
import { dot, listMarks } from "./marks.js";
import { columns, follow } from "./series.js";
import { slice } from "./slices.js";
import { address, chosen, LIVE_S, moves, parse, RANGES, span, YESTERDAY } from "./timerange.js";

const POINTS = 300;
const MOST_LISTED = 8;
const byId = (id) => document.getElementById(id);

function button(text, act, more) {
  const node = el("button", { type: "button", ...more }, text);
  node.addEventListener("click", act);
  return node;
}

export class Timeline {
  // `application`: its name; null: the whole cluster. `standard`: seconds of an address without a range. `reads(begin,
  // end)` and `drawn(columns)` are called with each range that is read, and whenever charts are drawn.
  constructor(board, { application = null, standard, reads = () => {}, drawn = () => {} } = {}) {
    Object.assign(this, { board, application, standard, reads, drawn, marks: [], columns: null, asked: 0, range: parse(location.search, standard) });
    const now = () => Math.floor(board.serverNow());
    // Yesterday is moved and scaled as the range that it is.
    const plain = () => (this.range === YESTERDAY ? span(YESTERDAY, now()) : this.range);
    byId("ranges").append(...RANGES.map(([range, text]) => button(text, () => this.set(range === YESTERDAY ? range : { seconds: range }), { "data-range": range, "data-testid": `range-${range}` })));
    byId("moves").append(...moves(plain, now).map(([text, title, range]) => button(text, () => this.set(range()), { title, "aria-label": title, class: "quiet" })));
    this.charts = [...document.querySelectorAll("[data-chart]")].map((box) => new TimeChart(box, (begin, end) => this.set(chosen(begin, end)), application === null));
    byId("note-form")?.addEventListener("submit", (event) => { event.preventDefault(); this.#note(event.target); });
    addEventListener("popstate", () => { this.range = parse(location.search, standard); this.read(); });
    this.read();
  }

  // Whether seconds are shown, and follow the present.
  get live() {
    return Boolean(this.range.seconds) && this.range.seconds <= LIVE_S;
  }

  set(range) {
    this.range = range;
    history.pushState(null, "", address(range, location.pathname, this.standard));
    this.read();
  }

  span() {
    return span(this.range, Math.floor(this.board.serverNow()));
  }

  async read() {
    clearTimeout(this.timer);
    this.asked += 1;
    const { asked, range } = this;
    for (const each of byId("ranges").children) each.setAttribute("aria-pressed", String(each.dataset.range === String(range.seconds ?? range)));
    const { begin, end } = this.span();
    setText(byId("range-shown"), range.seconds ? "" : `${moment(begin, 0)} to ${moment(end - 1, 0)}`);
    this.reads(begin, end);
    const query = `begin=${begin}&end=${end}`;
    const of = this.application === null ? "" : `applications/${encodeURIComponent(this.application)}/`;
    try {
      const [marks, found] = await Promise.all([call("GET", `/api/v1/marks/?${query}`), call("GET", `/api/v1/history/${of}?${query}&points=${this.live ? LIVE_S : POINTS}`)]);
      if (asked !== this.asked) return;
      this.marks = marks;
      this.columns = columns(found);
      this.#list();
      this.draw();
    } catch { /* the live badge says that the server is away */ }
    // What follows the present is read again; seconds come by themselves.
    const wait = this.live ? 30 : Math.max(10, Math.min(60, this.columns?.step ?? 30));
    if (asked === this.asked && range.seconds) this.timer = setTimeout(() => this.read(), 1000 * wait);
  }

  // Each chart by itself: they are the most work of a page that is live.
  draw() {
    if (!this.columns) return;
    slice("timeline", () => {
      const { board, columns } = this;
      if (this.live && columns.step === 1) follow(columns, this.range.seconds, board.end(), (at) => board.telemetry.now(at, 1, this.application));
      const shown = { ...this.span(), step: columns.step };
      const { cluster } = board;
      const context = { marks: this.marks, slo: cluster.applications.get(this.application)?.slo_ms, variants: cluster.variantsOf(this.application).map((variant) => variant.name) };
      this.charts.forEach((chart, i) => slice(`timeline, chart ${i}`, () => chart.draw(columns, shown, context)));
      slice("timeline's marks", () => this.#lane(shown));
      this.drawn(columns);
    });
  }

  // The most and the least of a column in the range.
  extremes(name) {
    const known = (this.columns?.[name] ?? []).filter((value) => value !== null);
    return known.length ? [Math.min(...known), Math.max(...known)] : [null, null];
  }

  // One that is known already counts more than before.
  mark(mark) {
    this.marks = [mark, ...this.marks.filter((each) => each.id !== mark.id)].sort((a, b) => b.at - a.at);
    this.laneShown = null;
    this.#list();
    this.draw();
  }

  #list() {
    listMarks(byId("marks"), this.marks, MOST_LISTED);
    byId("marks-empty").hidden = this.marks.length > 0;
  }

  #lane(shown) {
    const lane = byId("lane");
    if (!lane) return;
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
    const send = form.querySelector("button");
    // A second click would make a second note.
    if (send.disabled) return;
    send.disabled = true;
    try {
      this.mark(await call("POST", "/api/v1/marks/", { text: text.value }));
      text.value = "";
    } catch (error) { toast([error.message, ...(error.errors ?? []).map((each) => each.detail)].join(" "), "bad"); }
    send.disabled = false;
  }
}
