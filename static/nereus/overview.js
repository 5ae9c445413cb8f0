// The live page.

import { Dashboard, WINDOW_S } from "./dashboard.js";
import { el, setText } from "./dom.js";
import { Feed } from "./feed.js";
import { age, ms, percent, rate } from "./format.js";
import { live } from "./live.js";
import { ClusterMap } from "./map.js";

const byId = (id) => document.getElementById(id);
const board = new Dashboard(live);
const { cluster } = board;
const map = new ClusterMap(byId("map"), cluster);
const feed = new Feed(byId("feed"));
let shownApplications = null;
let snapshotTimer = null;

board.adopt(document);

// --- applications ---------------------------------------------------------------------------------------------------

const CHARTS = [["demand", "Demand and throughput", "queries/s"], ["accuracy", "Effective accuracy", "% of best"], ["violations", "SLO violations and p95", "% / ms"], ["variants", "Answers by variant", "/s"]];

function renderApplications() {
  const names = [...cluster.applications.keys()];
  // Charts are kept as long as the applications stay the same: redrawing them all would flicker.
  const key = JSON.stringify([...cluster.applications.values()].map((a) => [a.name, a.slo_ms, a.state]));
  if (key === shownApplications) return;
  shownApplications = key;
  const box = byId("applications");
  board.release(box);
  if (names.length === 0) {
    box.replaceChildren(el("div", { class: "card empty", "data-testid": "applications-empty" }, el("strong", {}, "No applications yet. "), el("a", { href: "/applications/" }, "Create one"), " and upload ONNX variants for it."));
    return;
  }
  box.replaceChildren(...names.map((name) => {
    const application = cluster.applications.get(name);
    return el("section", { class: "app-live", "data-application": name, "data-testid": `application-${name}` },
      el("header", {},
        el("h3", {}, el("a", { href: `/applications/${encodeURIComponent(name)}/` }, name)),
        el("span", { class: "badge plain" }, `SLO ${ms(application.slo_ms)}`),
        application.state !== "active" && el("span", { class: `badge ${application.state}` }, application.state),
        el("span", { class: "figures", "data-figures": name })),
      el("div", { class: "charts four" }, CHARTS.map(([kind, title, unit]) =>
        el("figure", { class: "card chart" },
          el("figcaption", {}, title, " ", el("span", { class: "unit" }, unit)),
          el("div", { class: "canvas", "data-chart": kind, "data-testid": `chart-${kind}-${name}`, "data-points": "0" }, el("canvas"))))));
  }));
  board.adopt(box);
}

function applicationFigures() {
  for (const box of document.querySelectorAll("[data-figures]")) {
    const now = board.now(box.dataset.figures);
    const parts = now
      ? [[rate(now.demand), "queries/s"], [rate(now.throughput), "answers/s"], [now.accuracy === null ? "–" : `${percent(now.accuracy)} %`, "accuracy"], [now.violations === null ? "–" : `${percent(now.violations)} %`, "violations"], [ms(now.p95), "p95"]]
      : [["–", "no gateway reports"]];
    box.replaceChildren(...parts.map(([value, label]) => el("span", {}, el("b", {}, value), ` ${label}`)));
  }
}

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
  const past = board.telemetry.window(board.end(), WINDOW_S);
  const peak = Math.max(0, ...past.demand.filter((v) => v !== null));
  const low = past.accuracy.filter((v) => v !== null);
  const all = board.telemetry.now(board.end(), WINDOW_S);
  kpi("demand", rate(now?.demand));
  setText(byId("note-demand"), now ? `peak ${rate(peak)} in 5 min` : "no gateway reports");
  kpi("throughput", rate(now?.throughput));
  setText(byId("note-throughput"), now ? gatewaysConnected() : "\u00a0");
  kpi("accuracy", percent(now?.accuracy));
  setText(byId("note-accuracy"), low.length ? `lowest second ${percent(Math.min(...low))} in 5 min` : "nothing served yet");
  kpi("violations", percent(now?.violations, 2), now?.violations > 5 ? "bad" : now?.violations > 1 ? "warn" : "");
  setText(byId("note-violations"), all?.violations === null || !all ? "nothing served yet" : `${percent(all.violations, 2)} % over 5 min`);
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
  renderApplications();
  map.render();
  tick();
}

function tick() {
  numbers();
  applicationFigures();
  map.tick(board.serverNow());
  board.draw();
}

live
  .on("snapshot", (data) => {
    for (const { t, event, data: what } of data.recent ?? []) feed[event](t, what);
    structure();
  })
  .on("plan", (data) => {
    if (!cluster.applyPlan(data, board.serverNow())) return;
    feed.plan(cluster.plan.created, cluster.plan);
    structure();
  })
  .on("device_state", (data) => {
    if (!cluster.devices.has(data.device)) return askSnapshot(); // a device that just joined
    if (cluster.applyDeviceState(data)) feed.add(board.serverNow(), "device", data.state, `${data.device} is ${data.state}${data.detail ? `: ${data.detail}` : ""}`, { href: "/nodes/" });
    map.renderSoon(() => map.tick(board.serverNow()));
    })
  .on("member", (data) => {
    const changed = cluster.applyMember(data);
    if (changed === null) askSnapshot();
    if (changed === "lag") feed.add(board.serverNow(), data.kind, data.behind_since ? "down" : "up", `${data.kind} ${data.name} ${data.behind_since ? "does not take over the current configuration" : "has the current configuration again"}`, { href: "/nodes/" });
    else feed.add(board.serverNow(), data.kind, data.connected ? "up" : "down", `${data.kind} ${data.name} ${data.connected ? "is connected" : "has disconnected"} (${data.state})`, { href: "/nodes/" });
    map.renderSoon(() => map.tick(board.serverNow()));
    })
  .on("profile", (data) => {
    cluster.applyProfile(data);
    feed.profile(board.serverNow(), data);
  })
  .on("fault", (data) => {
    feed.fault(board.serverNow(), data);
    })
  .on("changed", askSnapshot);

setInterval(tick, 1000);
