// Variants side by side: accuracy, size, memory, capacity and latency by device type, and the share of the answers that
// each gave. The address holds which variants, and the range of time.

import { call } from "./api.js";
import { drawLatencies, overTime, variantColor } from "./charts.js";
import { css } from "./colors.js";
import { el, setText } from "./dom.js";
import { bytes, ms, percent, rate } from "./format.js";
import { live } from "./live.js";
import { shares } from "./series.js";

const POINTS = 120;
// Those that are compared while nobody has chosen.
const AT_FIRST = 3;
const SOON_MS = 1000;
const byId = (id) => document.getElementById(id);
const form = byId("compare-choice");
const charts = [];
let found = null;
let asked = 0;
let timer = null;

const boxes = () => [...form.querySelectorAll('[name="variant"]')];
const chosen = () => boxes().filter((box) => box.checked).map((box) => box.value);
const seconds = () => Number(form.elements.range.value);
const color = (name) => variantColor(boxes().findIndex((box) => box.value === name), boxes().length);

// --- figures ----------------------------------------------------------------------------------------------------------

// The rows of the table: a title, a cell for each variant, and which of the cells is best (null: none is).
export function rows({ variants, profiles, frontier, history }, names) {
  const parts = new Map(shares(history.by_variant));
  const share = (name) => (parts.size ? (parts.get(name) ?? 0) / 100 : null);
  const by = (list, pick) => {
    const known = list.map(pick);
    const best = Math.max(...known.filter((value) => value !== null));
    return known.filter((value) => value === best).length < known.length ? known.indexOf(best) : null;
  };
  const picked = names.map((name) => variants.find((one) => one.name === name)).filter(Boolean);
  const row = (title, text, pick) => ({ title, cells: picked.map(text), best: pick ? by(picked, pick) : null });
  const types = [...new Set(profiles.map((one) => one.device_type))].sort();
  const profile = (one, type) => profiles.find((each) => each.variant === one.name && each.device_type === type);
  const able = (one, type) => frontier.find((each) => each.variant === one.name && each.device_type === type);
  const less = (value) => (value === null || value === undefined ? null : -value);
  return [
    row("State", (one) => [one.state, one.pinned && "pinned", one.excluded && "excluded"].filter(Boolean).join(", ")),
    row("Accuracy", (one) => (one.accuracy === null ? "not known" : `${percent(one.accuracy, 2)} %, ${one.accuracy_source}`), (one) => one.accuracy),
    row("Of the best variant", (one) => (one.accuracy_normalized === null ? "–" : `${percent(one.accuracy_normalized, 2)} %`)),
    row("File", (one) => bytes(one.size_bytes), (one) => less(one.size_bytes)),
    ...types.flatMap((type) => [
      row(`${type}: memory`, (one) => bytes(profile(one, type)?.memory_bytes), (one) => less(profile(one, type)?.memory_bytes)),
      row(`${type}: capacity of one device`, (one) => capacity(one, profile(one, type), able(one, type)), (one) => able(one, type)?.rate ?? null),
      row(`${type}: p50 to p95, one row`, (one) => latency(profile(one, type)), (one) => less(single(profile(one, type))?.p95_ms)),
    ]),
    row("Share of the answers", (one) => (share(one.name) === null ? "no answers in this time" : `${percent(100 * share(one.name), 1)} %`), (one) => share(one.name)),
    row("Can run now on", (one) => one.warm_on.join(", ") || "no device"),
    row("Held or wanted by the plan on", (one) => one.resident_on.join(", ") || "no device"),
  ];
}

const single = (profile) => profile?.latencies.find((point) => !point.size && point.batch === 1);
const latency = (profile) => { const point = single(profile); return point ? `${ms(point.p50_ms)} to ${ms(point.p95_ms)}` : profile ? "not measured" : "no profile"; };

function capacity(one, profile, able) {
  if (!profile) return "no profile";
  if (profile.blocked) return `left out: it ${profile.blocked}`;
  if (!able) return one.excluded ? "excluded from plans" : "not planned yet";
  return able.rate > 0 ? `${rate(able.rate)} items/s in batches of ${able.batch}` : `too slow: p95 of its fastest batch is ${ms(able.fastest_ms)}`;
}

// --- drawing ----------------------------------------------------------------------------------------------------------

function table(names) {
  const known = names.filter((name) => found.variants.some((one) => one.name === name));
  byId("compare-table").replaceChildren(el("table", { class: "compact" },
    el("thead", {}, el("tr", {}, el("td", {}), known.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows(found, known).map((row) => el("tr", { "data-row": row.title }, el("th", { scope: "row" }, row.title),
      row.cells.map((cell, i) => el("td", {}, i === row.best ? el("strong", { title: "the best of these" }, cell) : cell)))))));
}

function latencies(names) {
  const slo = JSON.parse(byId("slo-json").textContent);
  const types = [...new Set(found.profiles.filter((one) => names.includes(one.variant)).map((one) => one.device_type))].sort();
  byId("compare-latency").replaceChildren(...(types.length ? types : [null]).map((type) => {
    if (type === null) return el("div", { class: "card empty" }, "Nothing is profiled yet. Curves appear once measured; Tasks below shows the progress.");
    const curves = found.profiles.filter((one) => one.device_type === type && names.includes(one.variant))
      .map((one) => ({ name: one.variant, color: color(one.variant), points: one.latencies.filter((point) => !point.size) }));
    const canvas = el("canvas");
    queueMicrotask(() => { if (globalThis.Chart && canvas.isConnected) charts.push(drawLatencies(canvas, curves, slo)); });
    return el("figure", { class: "card chart", "data-testid": `compare-latency-${type}`, "data-curves": curves.length }, el("figcaption", {}, type), el("div", { class: "canvas tall" }, canvas));
  }));
}

function shareChart(names) {
  const { history } = found;
  const box = byId("compare-share");
  const totals = Array.from({ length: history.points }, (_, i) => Object.values(history.by_variant).reduce((sum, rates) => sum + (rates[i] ?? 0), 0));
  const points = totals.flatMap((total, i) => (total > 0 ? [i] : []));
  const part = (of) => points.map((i) => ({ x: history.begin + (i + 0.5) * history.step, y: 100 * of.reduce((sum, name) => sum + (history.by_variant[name]?.[i] ?? 0), 0) / totals[i] }));
  const others = Object.keys(history.by_variant).filter((name) => !names.includes(name));
  const area = (label, data, ink) => ({ label, data, borderColor: ink, backgroundColor: ink, borderWidth: 0, pointRadius: points.length === 1 ? 3 : 0, fill: "stack", stack: "answers" });
  box.dataset.points = points.length;
  if (!globalThis.Chart) return;
  charts.push(new globalThis.Chart(box.querySelector("canvas"), {
    type: "line", data: { datasets: [...names.map((name) => area(name, part([name]), color(name))), ...(others.length ? [area("others", part(others), css("--line"))] : [])] },
    options: overTime({ begin: history.begin, end: history.begin + history.points * history.step }, { stacked: true, max: 100, title: { display: true, text: "%" } }, 1, " %"),
  }));
}

function draw() {
  for (const one of charts.splice(0)) one.destroy();
  const names = chosen();
  setText(byId("compare-note"), names.length < 2 ? "Choose two variants or more." : "Bold: the best of these.");
  for (const id of ["compare-table", "compare-latency", "compare-share"]) byId(id).closest(".card, section").hidden = names.length < 2 || !found;
  if (names.length < 2 || !found) return;
  table(names);
  latencies(names);
  shareChart(names);
}

// --- what is read -----------------------------------------------------------------------------------------------------

async function read() {
  clearTimeout(timer);
  timer = null;
  const mine = asked += 1;
  const name = encodeURIComponent(document.body.dataset.application);
  const of = `/api/v1/applications/${name}`;
  try {
    const [variants, profiles, frontier, history] = await Promise.all([call("GET", `${of}/variants/?limit=500`), call("GET", `/api/v1/profiles/?application=${name}&limit=500`), call("GET", `${of}/frontier/?limit=500`),
      call("GET", `/api/v1/history/applications/${name}/?seconds=${seconds()}&points=${POINTS}`)]);
    if (mine !== asked) return;
    found = { variants: variants.results, profiles: profiles.results, frontier: frontier.results, history };
    draw();
  } catch (problem) {
    setText(byId("compare-note"), problem.message);
  }
}

function begin() {
  const query = new URLSearchParams(location.search);
  const wanted = (query.get("variants") ?? "").split(",").filter(Boolean);
  boxes().forEach((box, i) => { box.checked = wanted.length ? wanted.includes(box.value) : i < AT_FIRST; });
  const range = [...form.elements.range.options].find((option) => option.value === query.get("range"));
  if (range) range.selected = true;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    history.replaceState(null, "", `?variants=${chosen().map(encodeURIComponent).join(",")}&range=${seconds()}`);
    if (event.target.name === "range") read();
    else draw();
  });
  document.addEventListener("theme", draw);
  live.on("changed", () => { timer ??= setTimeout(read, SOON_MS); }).on("plan", () => { timer ??= setTimeout(read, SOON_MS); });
  read();
}

if (form) begin();
