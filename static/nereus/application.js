// One application's page: live charts, profiling progress, latency curves.

import { drawCurve } from "./charts.js";
import { Dashboard } from "./dashboard.js";
import { el } from "./dom.js";
import { bytes, rate } from "./format.js";
import { live } from "./live.js";
import { slice } from "./slices.js";
import { Spans } from "./spans.js";

const name = document.body.dataset.application;
const board = new Dashboard(live);
const measuring = new Map(); // job -> profile event
const drawn = new Map(); // variant -> its figure
const slo = JSON.parse(document.getElementById("slo-json").textContent);
let snapshotTimer = null;

board.adopt(document);
const spans = new Spans(board, name);

function stored() {
  return JSON.parse(document.getElementById("curves-json").textContent);
}

// Stored curves, and those being measured now, by variant.
function curves() {
  const by = new Map();
  const put = (curve) => by.set(curve.variant, [...(by.get(curve.variant) ?? []), curve]);
  // Curves hold for queries of any size; other size classes have a table.
  const any = (job) => (job.points ?? []).filter((point) => !point.size);
  const jobs = [...measuring.values()].filter((job) => any(job).length);
  for (const curve of stored()) {
    if (!jobs.some((job) => job.variant_name === curve.variant && job.device_type === curve.device_type)) put(curve);
  }
  for (const job of jobs) {
    const points = any(job).map((point) => ({ batch: point.batch, p50_ms: point.p50_s * 1000, p95_ms: point.p95_s * 1000 }));
    put({ variant: job.variant_name, device_type: job.device_type, points, measuring: true });
  }
  return by;
}

function facts(curve) {
  if (curve.measuring) return `${curve.device_type}: being measured`;
  const planned = curve.batch ? `plans count on batch ${curve.batch}, ${rate(curve.rate)} items/s` : "too slow: no batch has its p95 within half the SLO";
  return `${curve.device_type}: ${planned} · loads in ${curve.load_s.toFixed(2)} s · ${bytes(curve.memory_bytes)}`;
}

// Figures stay as long as their variant does; a chart is redrawn only when its curves have changed.
function drawCurves() {
  const box = document.getElementById("curves");
  const found = curves();
  for (const [variant, figure] of drawn) {
    if (found.has(variant)) continue;
    figure.node.remove();
    drawn.delete(variant);
  }
  for (const [variant, parts] of found) {
    if (!drawn.has(variant)) drawn.set(variant, curveFigure(box, variant));
    const figure = drawn.get(variant);
    const shown = JSON.stringify([document.documentElement.dataset.theme, parts]);
    if (figure.shown === shown) continue;
    figure.shown = shown;
    figure.facts.replaceChildren(...parts.map((curve) => el("p", { class: "small muted" }, facts(curve))));
    slice(`curve of ${variant}`, () => { if (figure.node.isConnected) drawCurve(figure.canvas, parts, slo); });
  }
  document.getElementById("curves-empty").hidden = found.size > 0;
}

function curveFigure(box, variant) {
  const canvas = el("div", { class: "canvas tall", "data-testid": `curve-${variant}`, "data-points": "0" }, el("canvas"));
  const figureFacts = el("div");
  const node = el("figure", { class: "card chart" }, el("figcaption", {}, variant), canvas, figureFacts);
  box.append(node);
  return { node, canvas, facts: figureFacts, shown: null };
}

// Progress in the variant's row; the row itself is the server's and may be replaced at any time.
function showProgress() {
  for (const box of document.querySelectorAll("[data-profile]")) {
    const jobs = [...measuring.values()].filter((job) => String(job.variant) === box.dataset.profile);
    if (jobs.length === 0) continue;
    box.hidden = false;
    box.replaceChildren(...jobs.map((job) => el("div", { class: "job", "data-job": job.job, "data-phase": job.phase },
      el("progress", { max: 1, value: Number(job.progress) || 0 }),
      el("span", { class: "small muted" }, ` ${job.device_type}: ${job.phase} ${Math.round((Number(job.progress) || 0) * 100)} %`))));
  }
}

function profile(data) {
  if (data.application !== name) return;
  if (["queued", "running"].includes(data.state)) measuring.set(data.job, data);
  else measuring.delete(data.job);
  showProgress();
  if (data.points?.length) drawCurves();
}

live
  .on("snapshot", (data) => {
    const open = new Set(data.jobs.map((job) => job.job));
    for (const job of measuring.keys()) if (!open.has(job)) measuring.delete(job);
    for (const job of data.jobs) if (!measuring.has(job.job)) profile(job);
    spans.draw();
  })
  .on("profile", profile)
  .on("mark", (data) => spans.mark(data))
  .on("changed", () => {
    clearTimeout(snapshotTimer);
    snapshotTimer = setTimeout(() => live.send("snapshot"), 300);
  });

document.addEventListener("refreshed", () => { showProgress(); drawCurves(); });
document.addEventListener("theme", drawCurves);
drawCurves();
setInterval(() => { if (spans.live) spans.draw(); }, 1000);
