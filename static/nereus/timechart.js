// One chart on the overview's shared time axis: lines over unix seconds, marks as vertical lines, drag to zoom.

import { css } from "./colors.js";
import { el } from "./dom.js";
import { startDrag } from "./drag.js";
import { moment } from "./format.js";
import { drawMarks } from "./marks.js";
import { words } from "./series.js";

export const AXIS_PX = 46;
const TICKS_S = [10, 60, 120, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600];
const MOST_TICKS = 9;
// Differences between good variants are small: the axis begins at 90, or lower where something is.
export const ACCURACY_AXIS = { beginAtZero: false, suggestedMin: 90, suggestedMax: 100, max: 100.5, ticks: { includeBounds: false } };
export const faded = (color) => `color-mix(in srgb, ${color} 16%, transparent)`;

// Round local times between two moments.
export function ticks(begin, end) {
  const step = TICKS_S.find((each) => (end - begin) / each <= MOST_TICKS) ?? Math.ceil((end - begin) / MOST_TICKS / 86400) * 86400;
  const zone = new Date(begin * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((begin - zone) / step) * step + zone; at <= end; at += step) found.push({ value: at });
  return found;
}

const xAxis = (span) => ({
  type: "linear", min: span.begin, max: span.end, grid: { display: false }, border: { color: css("--line") },
  afterBuildTicks: (axis) => { axis.ticks = ticks(axis.min, axis.max); },
  ticks: { autoSkip: false, maxRotation: 0, color: css("--muted"), font: { size: 10 }, callback: function label(value) { return moment(value, this.max - this.min); } },
});
const yAxis = (more) => ({
  beginAtZero: true, grid: { color: css("--line"), lineWidth: 0.5 }, border: { display: false }, afterFit: (axis) => { axis.width = AXIS_PX; },
  ...more, ticks: { maxTicksLimit: 4, color: css("--muted"), font: { size: 10 }, ...more.ticks },
});
const KINDS = {
  demand: { lines: [["throughput", "throughput", "--c-throughput"], ["demand", "demand", "--c-demand", true]], y: { suggestedMax: 5 }, digits: 1 },
  accuracy: { lines: [["effective accuracy", "accuracy", "--c-accuracy"]], y: ACCURACY_AXIS, digits: 2 },
  violations: { lines: [["violations %", "violations", "--c-violations", true]], y: { suggestedMax: 5 }, digits: 2 },
};

export class TimeChart {
  // `zoom(begin, end)`: a part was chosen by dragging.
  constructor(container, zoom) {
    this.container = container;
    this.kind = KINDS[container.dataset.time];
    this.marks = [];
    this.canvas = container.querySelector("canvas");
    this.title = this.canvas.getAttribute("aria-label");
    this.note = el("span", { class: "empty small chart-note", hidden: true }, "no queries in this time; choose a longer range above");
    container.append(this.note);
    startDrag(container, () => this.chart, zoom);
    document.addEventListener("theme", () => { this.chart?.destroy(); this.chart = null; });
  }

  // `columns`: figures by name with `x`, unix seconds; `span`: {begin, end, step}.
  draw(columns, span, marks) {
    if (document.visibilityState === "hidden") return;
    this.marks = marks;
    if (!this.chart) this.#create(span);
    let points = 0;
    const before = this.chart.data.datasets;
    this.chart.data.datasets = this.kind.lines.map(([label, name, color, filled], line) => {
      const data = columns.x.flatMap((at, i) => (columns[name][i] === null ? [] : [{ x: at, y: columns[name][i] }]));
      points = Math.max(points, data.length);
      const pointRadius = data.length === 1 ? 2 : 0;
      // The same object as before: for another one Chart.js makes each point anew, and for the same one keeps its radius.
      const kept = before[line]?.pointRadius === pointRadius ? before[line] : {};
      return Object.assign(kept, { label, data, borderColor: css(color), backgroundColor: filled ? faded(css(color)) : css(color), fill: filled ? "origin" : false, borderWidth: filled ? 1.2 : 1.8, pointRadius, spanGaps: 2.5 * span.step });
    });
    Object.assign(this.chart.options.scales.x, { min: span.begin, max: span.end });
    this.chart.update("none");
    this.container.dataset.points = points;
    this.note.hidden = points > 0;
    this.canvas.setAttribute("aria-label", [`${this.title}, ${moment(span.begin, 0)} to ${moment(span.end, 0)}`, ...this.kind.lines.map(([label, name]) => `${label}: ${words(columns[name], this.kind.digits)}`)].join("; "));
  }

  #create(span) {
    const lines = { id: "marks", afterDatasetsDraw: (chart) => drawMarks(chart, this.marks, (mark) => mark.at) };
    this.chart = new Chart(this.container.querySelector("canvas"), {
      type: "line", data: { datasets: [] }, plugins: [lines],
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
        interaction: { mode: "nearest", intersect: false, axis: "x" }, layout: { padding: { right: 8 } },
        scales: { x: xAxis(span), y: yAxis(this.kind.y) },
        plugins: {
          legend: { display: false },
          tooltip: { callbacks: { title: ([item]) => (item ? new Date(item.parsed.x * 1000).toLocaleString("en-GB", { hour12: false }) : ""), label: (item) => `${item.dataset.label}: ${item.parsed.y.toFixed(this.kind.digits)}` } },
        },
      },
    });
  }
}
