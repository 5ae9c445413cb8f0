// The settings form says what another SLO means before it is saved.

import { call } from "./api.js";
import { el } from "./dom.js";

const WAIT_MS = 350;
const box = document.querySelector("[data-slo]");
const input = box?.closest("form").elements.namedItem("slo_ms");
let timer = null;
let asked = 0;

async function look() {
  const mine = asked += 1;
  if (input.value === input.defaultValue || !input.checkValidity()) { box.hidden = true; return; }
  try {
    const found = await call("GET", `${box.dataset.slo}?ms=${encodeURIComponent(input.value)}`);
    if (mine !== asked) return;
    box.replaceChildren(el("strong", {}, `${found.slo_ms} ms instead of ${found.now_ms} ms, by the profiles:`),
      el("ul", {}, found.consequences.map((line) => el("li", {}, line))));
    box.hidden = false;
  } catch {
    box.hidden = true; // Saving says what is wrong with it.
  }
}

input?.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, WAIT_MS); });
