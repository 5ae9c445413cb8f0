// Forms that say what an order means before it is given (another SLO), and the division of a box's cores.

import { call } from "./api.js";
import { el } from "./dom.js";

const WAIT_MS = 350;

const slo = document.querySelector("[data-slo]");
if (slo) {
  const input = slo.closest("form").elements.namedItem("slo_ms");
  let timer = null;
  let asked = 0;
  async function look() {
    const mine = (asked += 1);
    const same = input.value === input.defaultValue || !input.checkValidity();
    slo.hidden = slo.hidden || same;
    if (same) return;
    let parts;
    try {
      const found = await call("GET", `${slo.dataset.slo}?ms=${encodeURIComponent(input.value)}`);
      const head = `${found.slo_ms} ms instead of ${found.now_ms} ms, by the profiles:`;
      parts = [el("strong", {}, head), el("ul", {}, found.consequences.map((line) => el("li", {}, line)))];
    } catch (error) {
      parts = [el("p", {}, [error.message, ...(error.errors ?? []).map((one) => one.detail)].join(" "))];
    }
    if (mine !== asked) return;
    slo.replaceChildren(...parts);
    slo.hidden = false;
  }
  input.addEventListener("input", () => { asked += 1; clearTimeout(timer); timer = setTimeout(look, WAIT_MS); });
}

const form = document.getElementById("divide");
if (form) {
  const { node, cpu_devices: division } = form.elements;
  // Without a division the order is to follow the box's settings again.
  const order = () => Object.assign(form.dataset, {
    api: form.dataset.path.replace("NODE", encodeURIComponent(node.value)),
    method: division.value.trim() ? "POST" : "DELETE",
  });
  for (const kind of ["focusin", "input", "change"]) form.addEventListener(kind, order);
  // A link in a box's card brings that box along.
  document.addEventListener("click", (event) => {
    const name = event.target.closest("[data-divide]")?.dataset.divide;
    if (!name) return;
    node.value = name;
    division.focus();
    order();
  });
}
