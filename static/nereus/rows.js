// The overview's applications: one compact row each over the range of the charts, worst first.

import { call } from "./api.js";
import { Bars, inTime, mark } from "./bars.js";
import { el, keepFocus, setText } from "./dom.js";
import { ms, percent, rate } from "./format.js";
import { slice } from "./slices.js";
import { matches, sorted } from "./strip.js";

const POINTS = 60;
// Rows whose bars are drawn in one go.
const TOGETHER = 10;
// Rows that show at first.
const SHOWN = 12;
const byId = (id) => document.getElementById(id);

export class ApplicationRows {
  // `open(begin, end)`: a bar was chosen.
  constructor(cluster, open) {
    this.cluster = cluster;
    this.open = open;
    this.rows = new Map(); // application -> its parts
    this.data = { begin: 0, step: 1, points: 1, applications: [] };
    this.asked = 0;
    this.all = false;
    byId("applications-all").addEventListener("click", () => { this.all = !this.all; this.render(); });
    byId("applications-search").addEventListener("input", () => this.render());
    addEventListener("resize", () => this.render());
    document.addEventListener("theme", () => this.render());
  }

  async read(begin, end) {
    this.asked += 1;
    const asked = this.asked;
    try {
      const found = await call("GET", `/api/v1/history/applications/?begin=${begin}&end=${end}&points=${POINTS}`);
      if (asked !== this.asked) return;
      const there = new Set(found.applications.map((row) => row.name));
      for (const name of this.rows.keys()) if (!there.has(name) && !this.cluster.applications.has(name)) this.rows.delete(name);
      this.data = found;
      this.render();
    } catch { /* the live badge says that the server is away */ }
  }

  #row(name) {
    if (!this.rows.has(name)) {
      const canvas = el("canvas", { class: "bars" });
      const cells = Object.fromEntries(["demand", "accuracy", "inTime", "p95"].map((key) => [key, el("td", { class: "num" })]));
      const slo = el("span", { class: "muted small" });
      const state = el("span", { class: "badge" });
      const node = el("tr", { "data-testid": `application-${name}`, "data-application": name },
        el("td", {}, el("a", { href: `/applications/${encodeURIComponent(name)}/`, class: "strong" }, name), " ", slo, " ", state),
        ...Object.values(cells), el("td", { class: "wide" }, canvas));
      this.rows.set(name, { node, cells, slo, state, bars: new Bars(canvas, this.open) });
    }
    return this.rows.get(name);
  }

  #fill(row) {
    const parts = this.#row(row.name);
    const application = this.cluster.applications.get(row.name);
    const over = row.over;
    setText(parts.slo, application ? `SLO ${ms(application.slo_ms)}` : this.cluster.known ? "deleted" : "");
    setText(parts.state, application?.state ?? "");
    parts.state.className = `badge ${application?.state ?? ""}`;
    parts.state.hidden = !application || application.state === "active";
    setText(parts.cells.demand, rate(over.demand));
    setText(parts.cells.accuracy, percent(over.accuracy));
    setText(parts.cells.inTime, percent(inTime(over.violations), 2));
    parts.cells.inTime.className = `num ${mark(over.violations)}`;
    setText(parts.cells.p95, ms(over.p95_ms));
    return parts;
  }

  render() {
    const wanted = byId("applications-search").value.trim().toLowerCase();
    const empty = { demand: null, throughput: null, accuracy: null, violations: null, p95_ms: null };
    const known = new Set(this.data.applications.map((row) => row.name));
    const points = () => new Array(this.data.points).fill(null);
    const idle = [...this.cluster.applications.keys()].filter((name) => !known.has(name)).map((name) => ({ name, over: empty, demand: points(), violations: points(), accuracy: points() }));
    const found = sorted([...this.data.applications, ...idle]).filter((row) => matches({ ...row, group: this.cluster.applications.get(row.name)?.group }, wanted));
    const rows = this.all ? found : found.slice(0, SHOWN);
    const button = byId("applications-all");
    button.hidden = found.length <= SHOWN;
    setText(button, this.all ? `Show the first ${SHOWN}` : `Show all ${found.length}`);
    const parts = rows.map((row) => this.#fill(row));
    const nodes = parts.map((part) => part.node);
    const body = byId("applications");
    // Rows that stay where they are keep the focus.
    if (nodes.length !== body.children.length || nodes.some((node, i) => body.children[i] !== node)) keepFocus(body, () => body.replaceChildren(...nodes));
    byId("applications-empty").hidden = !this.cluster.known || this.cluster.applications.size + known.size > 0;
    byId("applications-table").hidden = nodes.length === 0 && !wanted;
    const { data } = this;
    for (let first = 0; first < rows.length; first += TOGETHER) {
      slice(`rows from ${first}`, () => rows.slice(first, first + TOGETHER).forEach((row, i) => parts[first + i].bars.show(row, data)));
    }
  }
}
