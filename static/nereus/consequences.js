// Forms that say what an order means before it is given: another SLO, another division of a box's cores.

import { call } from "./api.js";
import { el } from "./dom.js";

const WAIT_MS = 350;

// Functions that show in `box`, now and after a pause, what `address()` has to say; null: nothing. `head`: what stands above.
function preview(box, address, head) {
  let timer = null;
  let asked = 0;
  async function look() {
    const mine = (asked += 1);
    const url = address();
    box.hidden = box.hidden || url === null;
    if (url === null) return;
    let parts;
    try {
      const found = await call("GET", url);
      parts = [el("strong", {}, head(found)), el("ul", {}, found.consequences.map((line) => el("li", {}, line)))];
    } catch (error) {
      parts = [el("p", {}, [error.message, ...(error.errors ?? []).map((one) => one.detail)].join(" "))];
    }
    if (mine !== asked) return;
    box.replaceChildren(...parts);
    box.hidden = false;
  }
  return { look, soon: () => { asked += 1; clearTimeout(timer); timer = setTimeout(look, WAIT_MS); } };
}

const slo = document.querySelector("[data-slo]");
if (slo) {
  const input = slo.closest("form").elements.namedItem("slo_ms");
  const same = () => input.value === input.defaultValue || !input.checkValidity();
  const { soon } = preview(slo, () => (same() ? null : `${slo.dataset.slo}?ms=${encodeURIComponent(input.value)}`), (found) => `${found.slo_ms} ms instead of ${found.now_ms} ms, by the profiles:`);
  input.addEventListener("input", soon);
}

const form = document.getElementById("divide");
if (form) {
  const { node, cpu_devices: division } = form.elements;
  const box = form.querySelector("[data-consequences]");
  const path = () => form.dataset.path.replace("NODE", encodeURIComponent(node.value));
  const { look, soon } = preview(box, () => `${path()}?cpu_devices=${encodeURIComponent(division.value.trim())}`, () => "Before you order it:");
  // Without a division the order is to follow the box's settings again.
  const order = () => Object.assign(form.dataset, { api: path(), method: division.value.trim() ? "POST" : "DELETE" });
  for (const kind of ["input", "change"]) form.addEventListener(kind, () => { order(); soon(); });
  form.addEventListener("focusin", () => { order(); if (box.hidden) look(); });
  // A link in a box's card brings that box along.
  document.addEventListener("click", (event) => {
    const name = event.target.closest("[data-divide]")?.dataset.divide;
    if (!name) return;
    node.value = name;
    division.focus();
    order();
    look();
  });
}
