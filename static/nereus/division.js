// The form that divides a box's cores says what that means before it is ordered.

import { call } from "./api.js";
import { el } from "./dom.js";

const WAIT_MS = 350;
const form = document.getElementById("divide");
const box = form?.querySelector("[data-consequences]");
let timer = null;
let asked = 0;

const path = () => form.dataset.path.replace("NODE", encodeURIComponent(form.elements.namedItem("node").value));
const wanted = () => form.elements.namedItem("cpu_devices").value.trim();

async function look() {
  const mine = asked += 1;
  form.dataset.api = path();
  // Without a division the order is to follow the box's settings again.
  form.dataset.method = wanted() ? "POST" : "DELETE";
  let shown;
  try {
    const found = await call("GET", `${path()}?cpu_devices=${encodeURIComponent(wanted())}`);
    shown = el("ul", {}, found.consequences.map((line) => el("li", {}, line)));
  } catch (error) {
    shown = el("p", {}, [String(error?.message ?? error), ...(error?.errors ?? []).map((one) => one.detail)].join(" "));
  }
  if (mine !== asked) return;
  box.replaceChildren(el("strong", {}, "Before you order it:"), shown);
  box.hidden = false;
}

// A link in a box's card brings that box along.
document.addEventListener("click", (event) => {
  const name = event.target.closest("[data-divide]")?.dataset.divide;
  if (!name || !form) return;
  form.elements.namedItem("node").value = name;
  form.elements.namedItem("cpu_devices").focus();
  look();
});
function edited() {
  asked += 1;
  clearTimeout(timer);
  form.dataset.api = path();
  form.dataset.method = wanted() ? "POST" : "DELETE";
  timer = setTimeout(look, WAIT_MS);
}

form?.addEventListener("input", edited);
form?.addEventListener("change", edited);
form?.addEventListener("focusin", () => { if (box.hidden) look(); });
