// What if: reads what the form changes, asks, and shows the plan and its promise as they come.

import { call, Problem } from "./api.js";
import { el, keepFocus, toast } from "./dom.js";
import { ms, percent, rate } from "./format.js";

const POLL_MS = 400;
// Items/s below which nothing is left out but a rounding error.
const NEGLIGIBLE = 1e-6;
// Applications that a sentence names.
const MOST_NAMED = 6;
const form = document.getElementById("imagine");
const answer = document.getElementById("answer");
let asked = 0;
// A pointer is down on the answer: a button that is replaced between press and release is not clicked.
let pressed = false;
answer?.addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { setTimeout(() => { pressed = false; }); });
const pause = (time) => new Promise((done) => { setTimeout(done, time); });

// Only what differs from the page: the rest may change elsewhere meanwhile.
export function readChanges(root) {
  const body = {};
  const factor = Number(root.querySelector('[name="demand_factor"]').value);
  if (factor !== 1) body.demand_factor = factor;
  for (const input of root.querySelectorAll("[data-change]")) {
    const { change, name } = input.dataset;
    const same = input.options ? [...input.options].every((o) => o.selected === o.defaultSelected) : input.value === input.defaultValue;
    if (same || input.value === "") continue;
    body[change] ??= {};
    body[change][name] = input.options ? input.value : Number(input.value);
  }
  for (const box of root.querySelectorAll("[data-list]:checked")) (body[box.dataset.list] ??= []).push(box.value);
  return body;
}

const share = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(2)}%`);
const between = (figure, text) => (figure ? [text(figure.expected), " ", el("span", { class: "muted small" }, `${text(figure.interval[0])} – ${text(figure.interval[1])}`)] : ["–"]);
const cell = (text, ...more) => el("td", { class: `num ${more.join(" ")}`.trim() }, text);
const mix = (variants) => Object.entries(variants).map(([name, v]) => `${name} ${rate(v.rate)}/s on ${v.devices} ${v.devices === 1 ? "device" : "devices"}`).join(", ") || "nothing";

function pair(before, after, text, testid) {
  return [cell(text(before)), el("td", { class: "num then", "data-testid": testid }, text(after))];
}

// Headings, and whether figures are below.
const headings = (heads) => heads.map(([text, figures]) => el("th", { class: figures && "num" }, text));

// Applications that the plan serves otherwise, as its table shows them.
export function otherwise(found) {
  const shown = (one) => JSON.stringify([ms(one?.slo_ms), rate(one?.demand), rate(one?.left_out), mix(one?.variants ?? {})]);
  return Object.entries(found.plan.applications).filter(([name, now]) => shown(now) !== shown(found.present_plan.applications?.[name])).map(([name]) => name);
}

// Those first that are served otherwise.
function planTable(found, changed) {
  const before = found.present_plan.applications ?? {};
  const entries = Object.entries(found.plan.applications).sort(([one], [other]) => changed.includes(other) - changed.includes(one));
  const rows = entries.map(([name, now]) => {
    const was = before[name] ?? { variants: {} };
    return el("tr", { "data-testid": `plan-of-${name}` }, el("td", { class: "strong" }, name), ...pair(was.slo_ms, now.slo_ms, ms), ...pair(was.demand, now.demand, rate), ...pair(was.left_out, now.left_out, rate, `left-out-${name}`), el("td", { class: "small muted" }, mix(was.variants)), el("td", { class: "small then" }, mix(now.variants)));
  });
  const heads = [["Application"], ["SLO now", 1], ["then", 1], ["Planned demand now, items/s", 1], ["then", 1], ["Left out now, items/s", 1], ["then", 1], ["Served now by"], ["then by"]];
  return el("div", { class: "card scroll" }, el("table", { class: "compact answer", "data-testid": "what-if-plan" }, el("thead", {}, el("tr", {}, headings(heads))), el("tbody", {}, rows)));
}

function promiseTable(found) {
  const names = [...new Set([...Object.keys(found.present_promise), ...Object.keys(found.promise)])].sort();
  const rows = names.map((name) => {
    const was = found.present_promise[name];
    const now = found.promise[name];
    const cells = [["accuracy", (v) => percent(v, 2), 1], ["violations", share, -1]].flatMap(([figure, text, good]) => {
      const change = was?.[figure] && now?.[figure] ? good * (now[figure].expected - was[figure].expected) : 0;
      const tone = Math.abs(change) < 5e-4 ? "" : change > 0 ? "better" : "worse";
      return [cell(between(was?.[figure], text)), el("td", { class: `num then ${tone}`, "data-testid": `then-${figure}-${name}` }, between(now?.[figure], text))];
    });
    return el("tr", {}, el("td", { class: "strong" }, name), cells);
  });
  const heads = [["Application"], ["Accuracy now, % of best", 1], ["then", 1], ["Violations now", 1], ["then", 1]];
  const how = `Expected, with the interval that should hold in 90% of windows of ${found.plan.window_s} s: ${found.plan.windows} windows simulated; arrivals ${found.plan.arrivals}.`;
  return el("div", {}, el("div", { class: "card scroll" }, el("table", { class: "compact answer", "data-testid": "what-if-promise" }, el("thead", {}, el("tr", {}, headings(heads))), el("tbody", {}, rows))), el("p", { class: "muted small" }, how));
}

const sum = (plan, figure) => Object.values(plan.applications).reduce((all, one) => all + one[figure], 0);

// The answer in a sentence: what the changes do to the accuracy that is planned, and to what is left out.
export function headline(found) {
  const { plan, present_plan: now } = found;
  const [before, after] = [percent(now.accuracy, 2), percent(plan.accuracy, 2)];
  const accuracy = before === after ? `accuracy stays at ${after}%` : `accuracy ${plan.accuracy > now.accuracy ? "rises" : "falls"} from ${before}% to ${after}%`;
  const [was, is] = [now, plan].map((one) => sum(one, "left_out"));
  if (is <= NEGLIGIBLE) return `All demand is served${was > NEGLIGIBLE ? `, ${rate(was)} items/s of which are left out now` : ""}; ${accuracy}.`;
  const missing = Object.entries(plan.applications).filter(([, one]) => one.left_out > NEGLIGIBLE).sort((a, b) => b[1].left_out - a[1].left_out);
  const listed = missing.slice(0, MOST_NAMED).map(([name, one]) => `${rate(one.left_out)} of ${name}`).join(", ") + (missing.length > MOST_NAMED ? ", …" : "");
  return `${rate(is)} of ${rate(sum(plan, "demand"))} items/s are left out (${listed}), ${was > NEGLIGIBLE ? rate(was) : "none"} now; ${accuracy}.`;
}

// The demand that both columns are for.
export function base({ measured, seconds, items_per_s }) {
  const busy = Object.entries(items_per_s).filter(([, items]) => items > NEGLIGIBLE).sort((a, b) => b[1] - a[1]);
  const listed = busy.slice(0, MOST_NAMED).map(([name, items]) => `${rate(items)} items/s of ${name}`).join(", ") + (busy.length > MOST_NAMED ? ", …" : "");
  return `Both columns are for the demand of the ${seconds} s before ${new Date(measured).toLocaleTimeString()}: ${listed || "none"}.`;
}

async function apply(id, force = false) {
  const orders = "Apply SLOs, pinned and excluded variants, and cordons? Demand and devices stay as they are.";
  if (!force && !confirm(orders)) return;
  try {
    await call("POST", `${form.dataset.ask}${id}/apply/`, force ? { force: true } : {});
    toast("Applied; a new plan is made");
    show(await call("GET", `${form.dataset.ask}${id}/`));
  } catch (error) {
    const alone = error.errors?.some((e) => e.field === "force");
    if (alone && confirm(`${error.message}\n\nCordon it all the same?`)) apply(id, true);
    else if (!alone) toast(error.message, "bad", 12);
  }
}

// The question in words: what the answer is about stands above it, whatever the form says by now.
export function question(changes) {
  const each = (entries, text) => Object.entries(entries ?? {}).map(([name, value]) => text(name, value));
  return [
    changes.demand_factor !== undefined && changes.demand_factor !== 1 && `demand times ${changes.demand_factor}`,
    ...each(changes.demand, (name, value) => `${rate(value)} items/s of ${name}`),
    ...each(changes.slo_ms, (name, value) => `${name} within ${ms(value)}`),
    ...each(changes.add_devices, (name, value) => `${value} more of ${name}`),
    ...(changes.cordon ?? []).map((name) => `without node ${name}`),
    ...(changes.remove_devices ?? []).map((name) => `without ${name}`),
    ...each(changes.variants, (name, value) => `${name}: ${value}`),
  ].filter(Boolean).join(", ") || "everything as it is";
}

// The stage that a what-if without an answer has reached. One whose plan is made may wait for its simulation.
export function stage(found) {
  if (found.state === "planning") return "Planning …";
  if (found.state === "simulating") return found.progress > 0 ? "Simulating what to expect …" : "Queued: the plan is ready and waits for its simulation …";
  return "Queued: it waits for its plan …";
}

function cancelButton(id) {
  const button = el("button", { type: "button", "data-testid": "what-if-cancel" }, "Cancel");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await call("DELETE", `${form.dataset.ask}${id}/`);
      form.querySelector('[type="submit"]').focus();
    } catch (error) {
      toast(error.message, "bad", 12);
    }
  });
  return button;
}

function show(found) {
  const parts = [el("h2", {}, "The answer"), el("p", { "data-testid": "what-if-question" }, "What if: ", el("strong", {}, question(found.changes)), "?")];
  const planned = Object.keys(found.plan).length > 0;
  if (found.error) parts.push(el("div", { class: "notice bad", "data-testid": "what-if-failed" }, found.error));
  else if (found.state !== "done") parts.push(el("p", {}, el("progress", { max: 1, value: found.progress, "aria-label": "Simulation", "data-testid": "what-if-progress" }), el("span", { class: "muted small", "data-testid": "what-if-stage" }, stage(found)), " ", ...(found.state === "planning" ? [] : [cancelButton(found.id)])));
  if (planned) {
    parts.push(el("p", { class: "strong", "data-testid": "what-if-sentence" }, headline(found)));
    parts.push(el("p", { class: "muted small", "data-testid": "what-if-base" }, base(found.plan.base)));
    const changed = otherwise(found);
    const listed = changed.slice(0, MOST_NAMED).join(", ") + (changed.length > MOST_NAMED ? ` and ${changed.length - MOST_NAMED} more` : "");
    parts.push(el("p", { "data-testid": "what-if-otherwise" }, changed.length ? `Changes for ${listed}.` : "No application is served differently."));
    if (found.state === "done") parts.push(promiseTable(found));
    parts.push(planTable(found, changed));
    const reasons = found.plan.reasons.map((text) => el("li", {}, text));
    if (reasons.length) parts.push(el("details", { class: "card" }, el("summary", {}, "Why this plan"), el("ul", { class: "reasons" }, reasons)));
  }
  if (found.applied) parts.push(el("p", { class: "notice good", "data-testid": "what-if-applied" }, "Applied."));
  else if (planned && found.applicable && "mayApply" in form.dataset) {
    const button = el("button", { type: "button", class: "primary", "data-testid": "what-if-apply" }, "Apply");
    button.addEventListener("click", async () => {
      button.disabled = true;
      await apply(found.id);
      button.disabled = false;
    });
    parts.push(el("div", { class: "actions" }, button, " ", el("span", { class: "muted small" }, "Refused if anything has changed since this answer was computed.")));
  } else if (planned && !found.applicable && found.state !== "failed") parts.push(el("p", { class: "muted small", "data-testid": "what-if-imagined" }, "Nothing to apply: demand and devices are only imagined."));
  answer.hidden = false;
  answer.dataset.state = found.state;
  keepFocus(answer, () => answer.replaceChildren(...parts));
}

// `follow`: scroll to the answer once its plan is there.
async function ask(follow = false) {
  const box = form.querySelector("[data-form-error]");
  box.hidden = true;
  const button = form.querySelector('[type="submit"]');
  const mine = (asked += 1);
  try {
    showFactor();
    button.disabled = true;
    let found;
    try { found = await call("POST", form.dataset.ask, readChanges(form)); } finally { button.disabled = false; }
    for (;;) {
      while (pressed) await pause(POLL_MS / 8);
      if (mine !== asked) return;
      show(found);
      const planned = Object.keys(found.plan).length > 0;
      if (follow) answer.scrollIntoView({ block: "start" });
      follow = follow && !planned;
      if (found.state === "done" || found.state === "failed") return;
      await pause(POLL_MS);
      found = await call("GET", `${form.dataset.ask}${found.id}/`);
    }
  } catch (error) {
    const lines = error instanceof Problem ? error.errors.map((e) => el("li", {}, `${e.field}: ${e.detail}`)) : [];
    box.replaceChildren(lines.length ? "This cannot be imagined:" : error.message, el("ul", {}, lines));
    box.hidden = false;
  }
}

function showFactor() {
  document.getElementById("factor-shown").textContent = Number(form.elements.demand_factor.value).toFixed(1);
}

if (form) {
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  form.addEventListener("input", showFactor);
  form.addEventListener("change", showFactor);
  form.addEventListener("reset", () => setTimeout(showFactor));
  // Browsers bring a form's values back, with a page that was left or loaded again.
  addEventListener("pageshow", () => setTimeout(showFactor));
  showFactor();
  // A link asks what would be without a device.
  const gone = new URLSearchParams(location.search).get("remove");
  const choice = gone && form.querySelector(`[data-list="remove_devices"][value="${CSS.escape(gone)}"]`);
  if (choice) {
    choice.checked = true;
    choice.closest("details").open = true;
    choice.closest("label").scrollIntoView({ block: "center" });
    if (!form.querySelector('[type="submit"]').disabled) ask(true);
  }
}
