// Accuracy against throughput by device type: which variants are worth having, and which of them the plan uses.

import { call } from "./api.js";
import { drawFrontier } from "./charts.js";
import { el } from "./dom.js";
import { ms, percent, rate } from "./format.js";

const box = document.getElementById("frontier");
const charts = [];
let found = [];

const note = (one) => (one.rate === 0 ? `plans do not count on it, as its p95 of ${ms(one.fastest_ms)} is over half of the SLO` : `${rate(one.rate)} items/s in batches of ${one.batch}`)
  + (one.share > 0 ? `; ${Math.round(one.share * 100)} % of the planned queries` : "") + (one.dominated ? "; dominated by another variant" : "");

function draw() {
  for (const one of charts.splice(0)) one.destroy();
  const types = [...new Set(found.map((one) => one.device_type))];
  if (types.length === 0) {
    box.replaceChildren(el("div", { class: "card empty" }, "No variant is profiled yet. Variants appear once measured; Tasks below shows the progress."));
    return;
  }
  box.replaceChildren(...types.map((type) => {
    const points = found.filter((one) => one.device_type === type);
    const canvas = el("canvas", { role: "img", "aria-label": `Accuracy against throughput on ${type}; the list below says the same` });
    const figure = el("figure", { class: "card chart", "data-testid": `frontier-${type}`, "data-points": points.length },
      el("figcaption", {}, type), el("div", { class: "canvas tall" }, canvas),
      el("ul", { class: "small frontier" }, points.map((one) => el("li", { class: one.dominated ? "muted" : null },
        one.share > 0 ? el("strong", {}, one.variant) : one.variant, ` ${percent(one.accuracy, 1)} %: ${note(one)}`))));
    queueMicrotask(() => { if (globalThis.Chart) charts.push(drawFrontier(canvas, points, (one) => `${one.variant}: ${percent(one.accuracy, 2)} %, ${note(one)}`)); });
    return figure;
  }));
}

async function read() {
  try {
    const { results } = await call("GET", box.dataset.frontier);
    if (JSON.stringify(results) === JSON.stringify(found) && charts.length) return;
    found = results;
    draw();
  } catch (problem) {
    if (found.length === 0) box.replaceChildren(el("div", { class: "card empty" }, problem.message));
  }
}

read();
document.addEventListener("refreshed", read);
document.addEventListener("theme", draw);
