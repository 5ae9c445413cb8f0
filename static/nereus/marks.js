// Marks of events: plans that moved variants, members that were lost, faults, uploads, changes by people and notes, in charts and as a list.

import { css } from "./colors.js";
import { el, keepFocus } from "./dom.js";
import { moment } from "./format.js";

const COLORS = { plan: "--c-accuracy", lost: "--c-violations", back: "--good", upload: "--c-latency", change: "--accent", note: "--warn" };
const colorOf = (mark) => COLORS[mark.kind] ?? "--muted";

// A point in a mark's colour: text in it would be too pale.
export function dot(mark, name, more = {}) {
  const node = el("span", { class: name, ...more });
  node.style.background = `var(${colorOf(mark)})`;
  return node;
}

// A dashed line for each mark, on an axis of unix seconds.
export function drawMarks({ ctx, chartArea, scales }, marks) {
  for (const mark of marks) {
    const x = scales.x.getPixelForValue(mark.at);
    if (x < chartArea.left || x > chartArea.right) continue;
    ctx.save();
    ctx.strokeStyle = css(colorOf(mark));
    ctx.setLineDash([3, 3]);
    ctx.beginPath();
    ctx.moveTo(x, chartArea.top);
    ctx.lineTo(x, chartArea.bottom);
    ctx.stroke();
    ctx.restore();
  }
}

// The latest marks in words.
export function listMarks(box, marks, most) {
  const row = (mark) => el("li", { "data-testid": `mark-${mark.id}` }, el("time", {}, moment(mark.at, 0)), el("span", { class: "badge plain" }, dot(mark, "dot"), ` ${mark.kind}`),
    el("span", {}, mark.link ? el("a", { href: mark.link }, mark.text) : mark.text, mark.by && el("span", { class: "muted" }, ` (${mark.by})`)));
  keepFocus(box, () => box.replaceChildren(...marks.slice(0, most).map(row),
    ...(marks.length > most ? [el("li", { class: "muted small" }, `and ${marks.length - most} more in this time`)] : [])));
}
