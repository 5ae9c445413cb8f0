// Accuracy against throughput by device type: which variants are worth having, and which of them the plan uses.

import { call } from "./api.js";
import { css } from "./colors.js";
import { el } from "./dom.js";
import { ms, percent, rate } from "./format.js";

const box = document.getElementById("frontier");
const charts = [];
let found = [];

const note = (one) => (one.rate === 0 ? `plans do not count on it, as its p95 of ${ms(one.fastest_ms)} is over half of the SLO` : `${rate(one.rate)} items/s in batches of ${one.batch}`)
  + (one.share > 0 ? `; ${Math.round(one.share * 100)} % of the planned queries` : "") + (one.dominated ? "; another one is as good or better in both" : "");

function chart(canvas, points) {
  const able = points.filter((one) => one.rate > 0);
  const colour = (one) => css(one.dominated ? "--c-demand" : "--c-throughput");
  // Without those that are dominated: what a device can do at best.
  const best = able.filter((one) => !one.dominated).sort((a, b) => a.rate - b.rate);
  const xy = (one) => ({ x: one.rate, y: one.accuracy, one });
  return new globalThis.Chart(canvas, {
    type: "scatter",
    data: { datasets: [
      { label: "variants", data: able.map(xy), pointRadius: able.map((one) => (one.share > 0 ? 6 + 8 * one.share : 4)), pointStyle: able.map((one) => (one.dominated ? "crossRot" : "circle")), backgroundColor: able.map(colour), borderColor: able.map(colour) },
      { label: "frontier", data: best.map(xy), type: "line", stepped: "after", pointRadius: 0, borderWidth: 1, borderDash: [3, 3], borderColor: css("--c-throughput") },
    ] },
    options: {
      animation: false, maintainAspectRatio: false, responsive: true,
      plugins: { legend: { display: false }, tooltip: { filter: (item) => item.datasetIndex === 0, callbacks: { label: ({ raw }) => `${raw.one.variant}: ${percent(raw.one.accuracy, 2)} %, ${note(raw.one)}` } } },
      scales: {
        x: { type: "logarithmic", title: { display: true, text: "items/s of one device", color: css("--muted"), font: { size: 10 } }, grid: { color: css("--line"), lineWidth: 0.5 }, ticks: { color: css("--muted"), font: { size: 10 }, maxTicksLimit: 6 } },
        y: { title: { display: true, text: "% of best", color: css("--muted"), font: { size: 10 } }, grid: { color: css("--line"), lineWidth: 0.5 }, grace: "10%", ticks: { color: css("--muted"), font: { size: 10 }, maxTicksLimit: 5, callback: (v) => (v > 100 ? "" : v) } },
      },
    },
  });
}

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
    queueMicrotask(() => { if (globalThis.Chart) charts.push(chart(canvas, points)); });
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
