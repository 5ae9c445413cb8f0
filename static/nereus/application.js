// One application's page: live charts, profiling progress, latency curves.

import { call } from "./api.js";
import { drawLatencies, variantColor } from "./charts.js";
import { Dashboard } from "./dashboard.js";
import { el, setText } from "./dom.js";
import { bytes, percent, rate } from "./format.js";
import { live } from "./live.js";
import { shares } from "./series.js";
import { slice } from "./slices.js";
import { Timeline } from "./timeline.js";

const name = document.body.dataset.application;
// Seconds that charts show at first.
const STANDARD_S = 300;
const board = new Dashboard(live);
const measuring = new Map(); // job -> profile event
const drawn = new Map(); // variant -> its figure
const slo = JSON.parse(document.getElementById("slo-json").textContent);
const noCurves = document.getElementById("curves-empty");
const noCurvesYet = [...noCurves.childNodes];
let stored = []; // profiles, each with its place on the frontier
let snapshotTimer = null;
let asked = 0;

const timeline = new Timeline(board, { application: name, standard: STANDARD_S, drawn: answeredBy });

function answeredBy({ byVariant }) {
  const parts = shares(byVariant).map(([variant, part]) => `${variant} ${percent(part)} %`);
  setText(document.getElementById("variant-shares"), parts.length ? `Answered in this window by: ${parts.join(", ")}.` : "No answers in this window: choose a longer one, or send a query with Try it, below.");
}

// Curves hold for queries of any size; other size classes have a table.
const any = (points) => (points ?? []).filter((point) => !point.size);

async function readCurves() {
  const mine = asked += 1;
  const of = encodeURIComponent(name);
  try {
    const [profiles, frontier] = await Promise.all([call("GET", `/api/v1/profiles/?application=${of}&limit=500`), call("GET", `/api/v1/applications/${of}/frontier/?limit=500`)]);
    if (mine !== asked) return;
    stored = profiles.results.map((one) => ({ ...one, points: any(one.latencies), planned: frontier.results.find((each) => each.variant === one.variant && each.device_type === one.device_type) }));
    noCurves.replaceChildren(...noCurvesYet);
    drawCurves();
  } catch (problem) {
    if (mine === asked) Object.assign(noCurves, { textContent: problem.message, hidden: false });
  }
}

// Stored curves, and those being measured now, by variant.
function curves() {
  const by = new Map();
  const put = (curve) => by.set(curve.variant, [...(by.get(curve.variant) ?? []), curve]);
  const jobs = [...measuring.values()].filter((job) => any(job.points).length);
  for (const curve of stored) {
    if (!jobs.some((job) => job.variant_name === curve.variant && job.device_type === curve.device_type)) put(curve);
  }
  for (const job of jobs) {
    const points = any(job.points).map((point) => ({ batch: point.batch, p50_ms: point.p50_s * 1000, p95_ms: point.p95_s * 1000 }));
    put({ variant: job.variant_name, device_type: job.device_type, points, measuring: true });
  }
  return by;
}

function facts(curve) {
  if (curve.measuring) return `${curve.device_type}: being measured`;
  const { planned } = curve;
  const counted = !planned ? "not in plans" : planned.batch ? `plans count on batch ${planned.batch}, ${rate(planned.rate)} items/s` : "too slow: no batch has its p95 within half the SLO";
  return `${curve.device_type}: ${counted} · loads in ${curve.load_s.toFixed(2)} s · ${bytes(curve.memory_bytes)}`;
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
    figure.box.dataset.points = parts.reduce((sum, curve) => sum + curve.points.length, 0);
    slice(`curve of ${variant}`, () => { if (figure.node.isConnected) drawLatencies(figure.canvas, bands(parts), slo); });
  }
  noCurves.hidden = found.size > 0;
}

// A colour for each device type.
function bands(parts) {
  const types = [...new Set(parts.map((curve) => curve.device_type))];
  return parts.map((curve) => ({ ...curve, name: curve.device_type, color: variantColor(types.indexOf(curve.device_type), Math.max(types.length, 2)) }));
}

function curveFigure(curves, variant) {
  const [canvas, figureFacts] = [el("canvas"), el("div")];
  const box = el("div", { class: "canvas tall", "data-testid": `curve-${variant}`, "data-points": "0" }, canvas);
  const node = el("figure", { class: "card chart" }, el("figcaption", {}, variant), box, figureFacts);
  curves.append(node);
  return { node, box, canvas, facts: figureFacts, shown: null };
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
    timeline.draw();
  })
  .on("profile", profile)
  .on("mark", (data) => { if (timeline.range.seconds) timeline.mark(data); })
  .on("changed", () => {
    clearTimeout(snapshotTimer);
    snapshotTimer = setTimeout(() => live.send("snapshot"), 300);
  });

document.addEventListener("refreshed", () => { showProgress(); readCurves(); });
document.addEventListener("theme", drawCurves);
readCurves();
setInterval(() => { if (timeline.live) timeline.draw(); }, 1000);
