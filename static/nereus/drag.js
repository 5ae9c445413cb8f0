// Dragging over a chart chooses a part of its time axis.

import { el } from "./dom.js";

const LEAST_DRAG_PX = 6;

// `chart()`: the chart that is drawn now, or null; `zoom(from, to)`: values of its x axis.
export function startDrag(container, chart, zoom) {
  const canvas = container.querySelector("canvas");
  const shade = el("div", { class: "drag", hidden: true });
  container.append(shade);
  let from = null;
  const at = (event) => {
    const { left, right } = chart().chartArea;
    return Math.max(left, Math.min(right, event.clientX - canvas.getBoundingClientRect().left));
  };
  const value = (x) => Math.round(chart().scales.x.getValueForPixel(x));
  canvas.addEventListener("pointerdown", (event) => {
    if (!chart() || event.button !== 0) return;
    from = at(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (from === null || !chart()) return;
    const to = at(event);
    const { top, bottom } = chart().chartArea;
    shade.hidden = Math.abs(to - from) < LEAST_DRAG_PX;
    Object.assign(shade.style, { left: `${Math.min(from, to)}px`, width: `${Math.abs(to - from)}px`, top: `${top}px`, height: `${bottom - top}px` });
  });
  const end = (event) => {
    const to = from === null || !chart() ? null : at(event);
    const chosen = to !== null && Math.abs(to - from) >= LEAST_DRAG_PX && event.type === "pointerup" ? [value(Math.min(from, to)), value(Math.max(from, to))] : null;
    from = null;
    shade.hidden = true;
    if (chosen) zoom(...chosen);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}
