// The times of one query's stages, side by side: <div data-stages="queue,network,batch,model"> in milliseconds.

import { el } from "./dom.js";
import { ms } from "./format.js";

const NAMES = ["queue", "network", "batch", "model"];

export function stages(times) {
  const total = times.reduce((sum, time) => sum + time, 0) || 1;
  const parts = times.map((time, i) => {
    const part = el("span", { class: `stage ${NAMES[i]}`, title: `${NAMES[i]} ${ms(time)}` });
    part.style.flexGrow = String(Math.max(time / total, 0));
    return part;
  });
  const words = times.map((time, i) => el("span", { class: `stage-word ${NAMES[i]}` }, `${NAMES[i]} ${ms(time)}`));
  return [el("div", { class: "stage-bar", "aria-hidden": "true" }, parts), el("div", { class: "stage-words small muted" }, words)];
}

function fill() {
  for (const box of document.querySelectorAll("[data-stages]:empty")) box.append(...stages(box.dataset.stages.split(",").map(Number)));
}

fill();
document.addEventListener("refreshed", fill);
