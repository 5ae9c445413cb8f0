// The live page.

import { ClusterMap } from "./cells.js";
import { Dashboard } from "./dashboard.js";
import { setText } from "./dom.js";
import { age, ms, percent, rate } from "./format.js";
import { live } from "./live.js";
import { ApplicationRows } from "./rows.js";
import { slice } from "./slices.js";
import { Timeline } from "./timeline.js";

const byId = (id) => document.getElementById(id);
const board = new Dashboard(live);
const { cluster } = board;
const map = new ClusterMap(byId("map"), cluster);
const rows = new ApplicationRows(cluster, (begin, end) => timeline.set({ begin, end }));
const timeline = new Timeline(board, { reads: (begin, end) => rows.read(begin, end) });
// After so long a page without a report has missed some.
const FIRST_REPORT_MS = 10000;
let snapshotTimer = null;

// --- numbers --------------------------------------------------------------------------------------------------------

function kpi(name, text, tone = "") {
  const node = byId(`kpi-${name}`);
  setText(node, text);
  node.dataset.tone = tone;
}

function slowest() {
  let worst = null;
  for (const application of cluster.applications.values()) {
    const p95 = board.now(application.name)?.p95;
    if (p95 && (!worst || p95 / application.slo_ms > worst.share)) worst = { share: p95 / application.slo_ms, p95, application };
  }
  return worst;
}

function gatewaysConnected() {
  const n = [...cluster.gateways.values()].filter((gateway) => gateway.connected).length;
  return `${n} gateway${n === 1 ? "" : "s"} connected`;
}

function numbers() {
  const now = board.now();
  const [, peak] = timeline.extremes("demand");
  const [low] = timeline.extremes("accuracy");
  const [, most] = timeline.extremes("violations");
  kpi("demand", rate(now?.demand));
  setText(byId("note-demand"), now ? `highest ${rate(peak)} in the charts` : performance.now() < FIRST_REPORT_MS ? "waiting for a report" : "no gateway reports");
  kpi("throughput", rate(now?.throughput));
  setText(byId("note-throughput"), now ? gatewaysConnected() : "\u00a0");
  kpi("accuracy", percent(now?.accuracy));
  setText(byId("note-accuracy"), low === null ? "nothing served in the charts" : `lowest ${percent(low)} in the charts`);
  kpi("violations", percent(now?.violations, 2), now?.violations > 5 ? "bad" : now?.violations > 1 ? "warn" : "");
  setText(byId("note-violations"), most === null ? "nothing served in the charts" : `highest ${percent(most, 2)} % in the charts`);
  const worst = slowest();
  kpi("latency", worst ? `${Math.round(worst.share * 100)} %` : "–", worst?.share > 1 ? "bad" : "");
  setText(byId("note-latency"), worst ? `${worst.application.name}: ${ms(worst.p95)} of ${ms(worst.application.slo_ms)}` : "\u00a0");
  kpi("plan", cluster.plan ? String(cluster.plan.version) : "–");
  setText(byId("note-plan"), cluster.plan ? `${age(board.serverNow() - cluster.plan.created)} old · ${cluster.plan.trigger}` : cluster.known ? "no plan yet" : "\u00a0");
}

function askSnapshot() {
  clearTimeout(snapshotTimer);
  snapshotTimer = setTimeout(() => live.send("snapshot"), 300);
}

// --- events ---------------------------------------------------------------------------------------------------------

function structure() {
  rows.render();
  slice("map", () => { map.render(); map.tick(board.serverNow()); });
  tick();
}

function tick() {
  slice("numbers", numbers);
  slice("map's figures", () => map.tick(board.serverNow()));
  timeline.draw();
}

live
  .on("snapshot", structure)
  .on("plan", (data) => { if (cluster.applyPlan(data, board.serverNow())) structure(); })
  .on("device_state", (data) => {
    if (!cluster.applyDeviceState(data)) return askSnapshot(); // a device that just joined
    map.renderSoon(() => map.tick(board.serverNow()));
  })
  .on("member", (data) => {
    if (!cluster.applyMember(data)) askSnapshot();
    map.renderSoon(() => map.tick(board.serverNow()));
  })
  .on("mark", (data) => timeline.mark(data))
  .on("changed", askSnapshot);

setInterval(tick, 1000);
