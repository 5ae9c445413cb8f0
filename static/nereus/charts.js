// Drawing with Chart.js (a global, from django-unfold's packaged files), whose defaults are the theme's.

import { css } from "./colors.js";
import { el } from "./dom.js";
import { startDrag } from "./drag.js";
import { moment } from "./format.js";
import { drawMarks } from "./marks.js";
import { words } from "./series.js";

export const AXIS_PX = 46;
const TICKS_S = [10, 60, 120, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600];
const MOST_TICKS = 9;

function useTheme() {
  const { defaults } = globalThis.Chart ?? {};
  if (!defaults) return;
  Object.assign(defaults, { animation: false, maintainAspectRatio: false, color: css("--muted"), borderColor: css("--line") });
  defaults.font.size = 10;
  defaults.scale.grid.lineWidth = 0.5;
  defaults.plugins.legend.position = "bottom";
  Object.assign(defaults.plugins.legend.labels, { boxWidth: 10, boxHeight: 10, padding: 8 });
}
useTheme();
document.addEventListener("theme", useTheme);

export const faded = (color) => `color-mix(in srgb, ${color} 16%, transparent)`;
const titled = (text) => ({ display: true, text });
const yAxis = (more) => ({ beginAtZero: true, border: { display: false }, ...more, ticks: { maxTicksLimit: 5, ...more?.ticks } });

// From the most accurate variant (teal) to the least (orange): a dip in accuracy is a change of colour.
export function variantColor(index, count) {
  const position = count > 1 ? index / (count - 1) : 0;
  const light = document.documentElement.dataset.theme === "dark" ? 52 : 42;
  return `hsl(${Math.round(178 - 153 * position)} 58% ${light}%)`;
}

// Round local times between two moments.
function ticks(begin, end) {
  const step = TICKS_S.find((each) => (end - begin) / each <= MOST_TICKS) ?? Math.ceil((end - begin) / MOST_TICKS / 86400) * 86400;
  const zone = new Date(begin * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((begin - zone) / step) * step + zone; at <= end; at += step) found.push({ value: at });
  return found;
}

// Unix seconds as times of day and dates.
export const timeAxis = ({ begin, end }) => ({
  type: "linear", min: begin, max: end, grid: { display: false },
  afterBuildTicks: (axis) => { axis.ticks = ticks(axis.min, axis.max); },
  ticks: { maxRotation: 0, callback: function label(value) { return moment(value, this.max - this.min); } },
});
const fullTime = ([item]) => (item ? new Date(item.parsed.x * 1000).toLocaleString("en-GB", { hour12: false }) : "");
// A chart over time, in which the nearest point to the pointer's left and right is described.
export const overTime = (span, y, digits, unit = "") => ({
  interaction: { mode: "nearest", intersect: false, axis: "x" }, scales: { x: timeAxis(span), y: yAxis(y) },
  plugins: { tooltip: { callbacks: { title: fullTime, label: (item) => `${item.dataset.label}: ${item.parsed.y.toFixed(digits)}${unit}` } } },
});

const filled = (color) => ({ fill: "origin", borderWidth: 1.2, backgroundColor: faded(css(color)) });
// What a chart has for lines: label, column, colour and more of Chart.js' data set.
const KINDS = {
  demand: { y: { suggestedMax: 5 }, digits: 1, lines: (columns) => [
    ["throughput", columns.throughput, css("--c-throughput")], ["demand", columns.demand, css("--c-demand"), filled("--c-demand")]] },
  // Differences between good variants are small: the axis begins at 90, or lower where something is.
  accuracy: { y: { beginAtZero: false, suggestedMin: 90, suggestedMax: 100, max: 100.5, ticks: { includeBounds: false } }, digits: 2,
    lines: (columns) => [["effective accuracy", columns.accuracy, css("--c-accuracy")]] },
  violations: { y: { suggestedMax: 5 }, digits: 2, lines: (columns, { slo }) => [
    ["violations %", columns.violations, css("--c-violations"), filled("--c-violations")],
    ...(slo ? [["p95 ms", columns.p95, css("--c-latency"), { yAxisID: "ms", borderWidth: 1.3 }],
      ["SLO ms", columns.x.map(() => slo), css("--c-latency"), { yAxisID: "ms", borderDash: [4, 4], borderWidth: 1 }]] : [])] },
  variants: { y: { stacked: true }, digits: 1, lines: (columns, { variants }) => {
    // Variants that were deleted since come last.
    const names = [...new Set([...variants, ...Object.keys(columns.byVariant)])];
    return names.filter((name) => columns.byVariant[name]).map((name) => [name, columns.byVariant[name], variantColor(names.indexOf(name), names.length),
      { fill: "stack", borderWidth: 0, stack: "answers" }]);
  } },
};

// One chart of [data-chart=KIND] on a time axis: lines over unix seconds, marks as vertical lines, drag to zoom.
export class TimeChart {
  // `zoom(begin, end)`: a part was chosen by dragging; `aligned`: with charts above and below, so without a legend.
  constructor(container, zoom, aligned) {
    Object.assign(this, { container, aligned, kind: KINDS[container.dataset.chart], canvas: container.querySelector("canvas"), visible: true });
    this.title = container.parentElement.querySelector("figcaption").textContent.trim().replace(/\s+/g, " ");
    this.note = el("span", { class: "empty small chart-note", hidden: true }, "no queries in this time; choose a longer range above");
    container.append(this.note);
    startDrag(container, () => this.chart, zoom);
    new IntersectionObserver(([entry]) => { this.visible = entry.isIntersecting; this.#paint(); }, { rootMargin: "200px" }).observe(container);
    document.addEventListener("theme", () => { this.#remove(); this.#paint(); });
  }

  #remove() {
    this.chart?.destroy();
    this.chart = null;
  }

  // `columns`: figures by name with `x`, unix seconds; `span`: {begin, end, step}; `context`: {marks, slo (ms), variants
  // (names, the most accurate first)}.
  draw(columns, span, context) {
    this.shown = [columns, span, context];
    this.#paint();
  }

  #paint() {
    if (!this.shown || !this.visible || document.visibilityState === "hidden") return;
    const [columns, span, context] = this.shown;
    const lines = this.kind.lines(columns, context);
    // An application's SLO may come later than its first figures.
    if (this.chart && Boolean(context.slo) !== this.slo) this.#remove();
    this.slo = Boolean(context.slo);
    if (!this.chart) this.#create(span, context, lines.length);
    let points = 0;
    // The same objects as before: for others Chart.js makes each point anew, and for the same ones keeps their radius.
    const before = new Map(this.chart.data.datasets.map((set) => [`${set.label} ${set.pointRadius}`, set]));
    this.chart.data.datasets = lines.map(([label, column, color, more]) => {
      // Nulls are left out, not drawn: Chart.js bridges a gap by its length only between drawn points.
      const data = columns.x.flatMap((at, i) => (column[i] === null ? [] : [{ x: at, y: column[i] }]));
      if (more?.yAxisID !== "ms") points = Math.max(points, data.length);
      const pointRadius = data.length === 1 ? 2 : 0;
      return Object.assign(before.get(`${label} ${pointRadius}`) ?? {}, { label, data, borderColor: color, backgroundColor: color, borderWidth: 1.8, pointRadius, spanGaps: 2.5 * span.step, ...more });
    });
    Object.assign(this.chart.options.scales.x, { min: span.begin, max: span.end });
    this.chart.update("none");
    this.container.dataset.points = points;
    this.note.hidden = points > 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", [`${this.title}, ${moment(span.begin, 0)} to ${moment(span.end, 0)}`, ...lines.map(([label, column]) => `${label}: ${words(column, this.kind.digits)}`)].join("; "));
  }

  #create(span, context, lines) {
    const options = overTime(span, this.kind.y, this.kind.digits);
    options.plugins.legend = { display: !this.aligned && (lines > 1 || this.kind === KINDS.variants) };
    options.scales.x.ticks.autoSkip = !this.aligned;
    if (this.aligned) {
      options.layout = { padding: { right: 8 } };
      options.scales.y.afterFit = (axis) => { axis.width = AXIS_PX; };
    }
    if (this.kind === KINDS.violations && context.slo) options.scales.ms = yAxis({ position: "right", suggestedMax: context.slo * 1.15, grid: { display: false } });
    const marks = { id: "marks", afterDatasetsDraw: (chart) => drawMarks(chart, this.shown[2].marks) };
    this.chart = new Chart(this.canvas, { type: "line", data: { datasets: [] }, plugins: [marks], options: { ...options, parsing: false, normalized: true } });
  }
}

// A band from p50 to p95 by batch size for each of `curves` ({name, points: [{batch, p50_ms, p95_ms}], color, measuring}),
// with the SLO and half of it, up to which plans use a batch.
export function drawLatencies(canvas, curves, slo) {
  globalThis.Chart.getChart(canvas)?.destroy();
  const last = Math.max(2, ...curves.flatMap((curve) => curve.points.map((point) => point.batch)));
  const sets = curves.flatMap(({ name, points, color, measuring }) => {
    const at = (key) => points.map((point) => ({ x: point.batch, y: point[key] }));
    const ink = { borderColor: color, backgroundColor: color };
    return [{ label: `${name} p50`, data: at("p50_ms"), ...ink, borderWidth: 1, pointRadius: 2, borderDash: [6, 4] },
      { label: `${name} p95`, data: at("p95_ms"), ...ink, borderWidth: 1.8, pointRadius: 3, borderDash: measuring ? [2, 3] : [], fill: "-1", backgroundColor: faded(color) }];
  });
  const flat = (label, y, borderDash) => ({ label, data: [{ x: 1, y }, { x: last, y }], borderColor: css("--c-violations"), backgroundColor: css("--c-violations"), borderWidth: 1, borderDash, pointRadius: 0 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", [`Latency by batch size, SLO ${slo} ms`, ...curves.map(({ name, points }) => `${name}: ${points.map((point) => `batch ${point.batch}: p95 ${point.p95_ms.toFixed(1)} ms`).join(", ")}`)].join("; "));
  return new globalThis.Chart(canvas, {
    type: "line", data: { datasets: [...sets, flat("SLO", slo, []), flat("SLO/2", slo / 2, [4, 4])] },
    options: {
      scales: {
        x: { type: "logarithmic", min: 1, max: last, title: titled("batch size (rows)"), grid: { display: false }, ticks: { callback: (v) => (Number.isInteger(Math.log2(v)) ? v : "") },
          afterBuildTicks: (axis) => { axis.ticks = Array.from({ length: Math.floor(Math.log2(last)) + 1 }, (_, i) => ({ value: 2 ** i })); } },
        y: yAxis({ title: titled("ms") }),
      },
      plugins: { legend: { labels: { boxHeight: 2, filter: (item) => !item.text.endsWith(" p50") } } },
    },
  });
}

// Accuracy over throughput of variants on a device of a type; the line is what a device can do at best.
export function drawFrontier(canvas, points, describe) {
  const able = points.filter((one) => one.rate > 0);
  const colour = able.map((one) => css(one.dominated ? "--c-demand" : "--c-throughput"));
  const best = able.filter((one) => !one.dominated).sort((a, b) => a.rate - b.rate);
  const xy = (one) => ({ x: one.rate, y: one.accuracy, one });
  return new globalThis.Chart(canvas, {
    type: "scatter",
    data: { datasets: [
      { label: "variants", data: able.map(xy), pointRadius: able.map((one) => (one.share > 0 ? 6 + 8 * one.share : 4)), pointStyle: able.map((one) => (one.dominated ? "crossRot" : "circle")), backgroundColor: colour, borderColor: colour },
      { label: "frontier", data: best.map(xy), type: "line", stepped: "after", pointRadius: 0, borderWidth: 1, borderDash: [3, 3], borderColor: css("--c-throughput") },
    ] },
    options: {
      plugins: { legend: { display: false }, tooltip: { filter: (item) => item.datasetIndex === 0, callbacks: { label: ({ raw }) => describe(raw.one) } } },
      scales: {
        x: { type: "logarithmic", title: titled("items/s of one device"), ticks: { maxTicksLimit: 6 } },
        y: { title: titled("% of best"), grace: "10%", ticks: { maxTicksLimit: 5, callback: (v) => (v > 100 ? "" : v) } },
      },
    },
  });
}
