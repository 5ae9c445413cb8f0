// Drawing with Chart.js (a global, from django-unfold's packaged files). The data comes from series.js.

import { css } from "./colors.js";
import { el } from "./dom.js";
import { startDrag } from "./drag.js";
import { moment } from "./format.js";
import { drawMarks } from "./marks.js";
import { points, words } from "./series.js";
import { ACCURACY_AXIS, faded, ticks } from "./timechart.js";


// From the most accurate variant (teal) to the least (orange): a dip in accuracy is a change of colour.
export function variantColor(index, count) {
  const position = count > 1 ? index / (count - 1) : 0;
  const light = document.documentElement.dataset.theme === "dark" ? 52 : 42;
  return `hsl(${Math.round(178 - 153 * position)} 58% ${light}%)`;
}

// Ticks of the last seconds: minutes, or parts of one.
function minutes(length) {
  const step = length > 120 ? 60 : length > 30 ? 15 : 5;
  return Array.from({ length: Math.ceil(length / step) }, (_, i) => ({ value: -step * i })).reverse();
}
const before = (seconds) => (seconds === 0 ? "now" : seconds % 60 === 0 ? `${seconds / 60} min` : `${seconds} s`);
// Seconds before the end; of the history with times of day and dates.
const xAxis = (length, span) => ({
  type: "linear", min: 1 - length, max: 0, grid: { display: false }, border: { color: css("--line") },
  afterBuildTicks: (axis) => { axis.ticks = span ? ticks(span.end - length, span.end).map(({ value }) => ({ value: value - span.end })) : minutes(length); },
  ticks: { autoSkip: Boolean(span), maxRotation: 0, color: css("--muted"), font: { size: 10 }, callback: (v) => (span ? moment(span.end + v, length) : before(v)) },
});
const yAxis = (more = {}) => ({
  beginAtZero: true, grid: { color: css("--line"), lineWidth: 0.5 }, border: { display: false },
  ...more, ticks: { maxTicksLimit: 5, color: css("--muted"), font: { size: 10 }, ...more.ticks },
});
const line = (label, color, column, x, more = {}) => ({
  label, borderColor: color, backgroundColor: color, borderWidth: 1.6, pointRadius: 0, tension: 0,
  // Nulls are left out, not drawn: Chart.js bridges a gap by its length only between drawn points.
  data: x.flatMap((at, i) => (column[i] === null ? [] : [{ x: at, y: column[i] }])), ...more,
});

function datasets(kind, columns, context) {
  const { x } = columns;
  return drawnOf(kind, columns, x, context).map((set) => ({ ...set, spanGaps: 2.5 * (context.span?.step ?? 1) }));
}

function drawnOf(kind, columns, x, context) {
  if (kind === "demand") {
    return [
      line("throughput", css("--c-throughput"), columns.throughput, x, { borderWidth: 2 }),
      line("demand", css("--c-demand"), columns.demand, x, { fill: "origin", backgroundColor: context.soft("--c-demand"), borderWidth: 1.2 }),
    ];
  }
  if (kind === "accuracy") return [line("effective accuracy", css("--c-accuracy"), columns.accuracy, x, { borderWidth: 2 })];
  if (kind === "violations") {
    const drawn = [line("violations %", css("--c-violations"), columns.violations, x, { fill: "origin", backgroundColor: context.soft("--c-violations") })];
    if (context.slo) {
      drawn.push(line("p95 ms", css("--c-latency"), columns.p95, x, { yAxisID: "ms", borderWidth: 1.3 }));
      drawn.push(line("SLO ms", css("--c-latency"), x.map(() => context.slo), x, { yAxisID: "ms", borderDash: [4, 4], borderWidth: 1 }));
    }
    return drawn;
  }
  const order = context.variants ?? [];
  const names = [...new Set([...order, ...Object.keys(columns.byVariant)])];
  return names.filter((name) => columns.byVariant[name]).map((name) => {
    // Variants that were deleted since come last.
    const color = variantColor(names.indexOf(name), names.length);
    return line(name, color, columns.byVariant[name], x, { fill: "stack", backgroundColor: color, borderWidth: 0, stack: "answers" });
  });
}

function scales(kind, length, context) {
  const x = xAxis(length, context.span);
  if (kind === "accuracy") return { x, y: yAxis(ACCURACY_AXIS) };
  if (kind === "variants") return { x, y: yAxis({ stacked: true }) };
  if (kind !== "violations") return { x, y: yAxis({ suggestedMax: 5 }) };
  const both = { x, y: yAxis({ suggestedMax: 5, max: undefined }) };
  if (context.slo) both.ms = yAxis({ position: "right", suggestedMax: context.slo * 1.15, grid: { display: false } });
  return both;
}

// One chart over the last minutes, or a part of the history. `context`: {slo (ms), variants (names, most accurate first),
// span (of the history: length, end and step in seconds), marks, end (the moment at the right edge, unix seconds)}.
export class LiveChart {
  // `zoom(from, to)`: a part was dragged over, seconds before the end.
  constructor(container, kind, zoom) {
    this.container = container;
    this.kind = kind;
    this.chart = null;
    this.marks = [];
    this.visible = true;
    this.note = el("span", { class: "empty small chart-note", hidden: true }, "no queries in this time");
    container.append(this.note);
    startDrag(container, () => this.chart, zoom);
    this.observer = new IntersectionObserver(([entry]) => { this.visible = entry.isIntersecting; }, { rootMargin: "200px" });
    this.observer.observe(container);
    this.repaint = () => { this.chart?.destroy(); this.chart = null; };
    document.addEventListener("theme", this.repaint);
  }

  destroy() {
    this.observer.disconnect();
    document.removeEventListener("theme", this.repaint);
    this.repaint();
  }

  draw(columns, context = {}) {
    if (!this.visible || document.visibilityState === "hidden") return;
    this.marks = context.marks ?? [];
    this.end = context.end;
    const shared = { ...context, soft: (name) => faded(css(name)) };
    const data = datasets(this.kind, columns, shared);
    // Axes are made once for a range, and for an application's SLO, which may come later than its first figures.
    const made = `${context.span ? `${context.span.end} ${context.span.length}` : `live ${columns.x.length}`} ${Boolean(context.slo)}`;
    if (made !== this.made) this.repaint();
    this.made = made;
    if (!this.chart) this.#create(context.span?.length ?? columns.x.length, shared, data.length);
    const hidden = this.chart.data.datasets.map((set, i) => [set.label, !this.chart.isDatasetVisible(i)]);
    // The same objects as before: for others Chart.js makes each point anew.
    const before = new Map(this.chart.data.datasets.map((set) => [set.label, set]));
    this.chart.data.datasets = data.map((set) => Object.assign(before.get(set.label) ?? {}, set));
    for (const [label, off] of hidden) {
      const index = data.findIndex((set) => set.label === label);
      if (off && index >= 0) this.chart.setDatasetVisibility(index, false);
    }
    this.chart.update("none");
    const drawn = { demand: columns.demand, accuracy: columns.accuracy, violations: columns.violations }[this.kind];
    const n = drawn ? points(drawn) : Object.values(columns.byVariant).reduce((most, column) => Math.max(most, points(column)), 0);
    this.container.dataset.points = n;
    this.container.dataset.updates = Number(this.container.dataset.updates ?? 0) + 1;
    this.note.hidden = n > 0;
    this.#describe(data, context);
  }

  // What the chart shows, in words.
  #describe(data, context) {
    const canvas = this.container.querySelector("canvas");
    const title = this.container.parentElement.querySelector("figcaption")?.textContent.trim().replace(/\s+/g, " ") ?? "";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", [`${title}, ${context.span ? `until ${moment(context.span.end, 0)}` : "last minutes"}`, ...data.map((set) => `${set.label}: ${words(set.data.map((point) => point.y))}`)].join("; "));
  }

  #create(length, context, count) {
    this.chart = new Chart(this.container.querySelector("canvas"), {
      type: "line",
      data: { datasets: [] },
      plugins: [{ id: "marks", afterDatasetsDraw: (chart) => drawMarks(chart, this.marks, (mark) => mark.at - this.end) }],
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
        interaction: { mode: "nearest", intersect: false, axis: "x" },
        scales: scales(this.kind, length, context),
        plugins: {
          legend: { display: count > 1 || this.kind === "variants", position: "bottom", labels: { boxWidth: 10, boxHeight: 10, color: css("--muted"), font: { size: 10 }, padding: 8 } },
          tooltip: { callbacks: { title: ([item]) => (item ? (context.span ? moment(context.span.end + item.parsed.x, 0) : `${Math.abs(item.parsed.x)} s ago`) : ""), label: (item) => `${item.dataset.label}: ${item.parsed.y === null ? "–" : item.parsed.y.toFixed(1)}` } },
        },
      },
    });
  }
}

// Latency by batch size, with the SLO and half of it. `curves`: [{device_type, points: [{batch, p50_ms, p95_ms}]}].
export function drawCurve(container, curves, sloMs) {
  Chart.getChart(container.querySelector("canvas"))?.destroy();
  const types = [...new Set(curves.map((curve) => curve.device_type))];
  const batches = curves.flatMap((curve) => curve.points.map((point) => point.batch));
  const last = Math.max(1, ...batches);
  const sets = curves.flatMap((curve) => {
    const color = variantColor(types.indexOf(curve.device_type), Math.max(types.length, 2));
    const at = (key) => curve.points.map((point) => ({ x: point.batch, y: point[key] }));
    const more = { borderColor: color, backgroundColor: color, borderWidth: 1.8, pointRadius: 3, tension: 0 };
    return [
      { label: `p95 ${curve.device_type}`, data: at("p95_ms"), ...more, borderDash: curve.measuring ? [2, 3] : [] },
      { label: `p50 ${curve.device_type}`, data: at("p50_ms"), ...more, borderWidth: 1, pointRadius: 2, borderDash: [6, 4] },
    ];
  });
  const flat = (label, y, dash) => ({ label, data: [{ x: 1, y }, { x: Math.max(last, 2), y }], borderColor: css("--c-violations"), backgroundColor: css("--c-violations"), borderWidth: 1, borderDash: dash, pointRadius: 0 });
  container.dataset.points = batches.length;
  const canvas = container.querySelector("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", [`Latency by batch size, SLO ${sloMs} ms`, ...curves.map((curve) => `${curve.device_type}: ${curve.points.map((point) => `batch ${point.batch}: p95 ${point.p95_ms.toFixed(1)} ms`).join(", ")}`)].join("; "));
  new Chart(canvas, {
    type: "line",
    data: { datasets: [...sets, flat("SLO", sloMs, []), flat("SLO/2", sloMs / 2, [4, 4])] },
    options: {
      animation: false, responsive: true, maintainAspectRatio: false,
      scales: {
        x: { type: "logarithmic", min: 1, max: Math.max(last, 2), title: { display: true, text: "batch size (rows)", color: css("--muted"), font: { size: 10 } }, grid: { display: false }, ticks: { color: css("--muted"), font: { size: 10 }, callback: (v) => (Number.isInteger(Math.log2(v)) ? v : "") }, afterBuildTicks: (axis) => { axis.ticks = [1, 2, 4, 8, 16, 32, 64, 128, 256].filter((v) => v <= Math.max(last, 2)).map((value) => ({ value })); } },
        y: yAxis({ title: { display: true, text: "ms", color: css("--muted"), font: { size: 10 } } }),
      },
      plugins: { legend: { position: "bottom", labels: { boxWidth: 10, boxHeight: 2, color: css("--muted"), font: { size: 10 }, padding: 8 } } },
    },
  });
}
