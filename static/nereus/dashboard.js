// Telemetry, cluster state and clock that the live pages share.

import { LiveChart } from "./charts.js";
import { Cluster } from "./cluster.js";
import { Telemetry } from "./series.js";
import { slice } from "./slices.js";

export const WINDOW_S = 300;
// Reports of a second arrive within the next one, and messages have those of a second; what is younger would look like a gap.
const SETTLE_S = 3;
export const NOW_S = 5;

export class Dashboard {
  constructor(live) {
    this.telemetry = new Telemetry();
    this.cluster = new Cluster();
    this.charts = new Map(); // container -> LiveChart
    this.zoom = null; // called with a part that was dragged over: seconds before the end of the charts
    live
      .on("history", (events) => {
        this.telemetry = new Telemetry();
        for (const { event, data } of events) this.#second(event, data);
      })
      .on("gateway_second", (data) => this.#second("gateway_second", data))
      .on("node_second", (data) => this.#second("node_second", data))
      .on("snapshot", (data) => this.cluster.applySnapshot(data, Date.now() / 1000));
  }

  #second(event, data) {
    if (event === "gateway_second") this.telemetry.addGatewaySecond(data);
    else if (event === "node_second") this.cluster.applyNodeSecond(data);
  }

  serverNow() {
    return Date.now() / 1000 + this.cluster.skew;
  }

  // The newest second that all reports should have arrived for.
  end() {
    return Math.floor(this.serverNow()) - SETTLE_S;
  }

  now(application = null) {
    return this.telemetry.now(this.end(), NOW_S, application);
  }

  // Draw in every [data-chart=KIND] under `root` from now on: the application's around it, else the whole cluster's.
  adopt(root) {
    for (const container of root.querySelectorAll("[data-chart]")) {
      if (!this.charts.has(container)) this.charts.set(container, new LiveChart(container, container.dataset.chart, (from, to) => this.zoom?.(from, to)));
    }
  }

  // Forget the charts under `root`, which is about to be replaced.
  release(root) {
    for (const [container, chart] of this.charts) {
      if (!root.contains(container)) continue;
      chart.destroy();
      this.charts.delete(container);
    }
  }

  // The last seconds of an application, or (null) of all.
  window(application, seconds = WINDOW_S) {
    return this.telemetry.window(this.end(), seconds, application);
  }

  // Draw the last `seconds`, or what the history has: {columns, span: {length, end, step}}; with marks, and the moment
  // at which the charts end.
  draw({ columns: found = null, span = null, marks = [], end = this.end(), seconds = WINDOW_S } = {}) {
    const columns = new Map();
    let count = 0;
    for (const [container, chart] of this.charts) {
      if (!chart.visible) continue;
      const application = container.closest("[data-application]")?.dataset.application ?? null;
      if (!columns.has(application)) columns.set(application, found ?? this.window(application, seconds));
      // One that is about to go is not drawn any more.
      slice(`chart ${count += 1}`, () => { if (this.charts.has(container)) chart.draw(columns.get(application), { ...this.#context(application), span, marks, end }); });
    }
  }

  #context(application) {
    if (application === null) return {};
    return { slo: this.cluster.applications.get(application)?.slo_ms, variants: this.cluster.variantsOf(application).map((variant) => variant.name) };
  }
}
