// Single queries of the last hour: the slowest and the refused, with where their time went.

import { call } from "./api.js";
import { el } from "./dom.js";
import { ms } from "./format.js";
import { stages } from "./stages.js";

const EVERY_MS = 10000;
const SHOWN = 8;
const TONES = { in_time: "ready", late: "draining", dropped: "failed", failed: "failed" };
const WORDS = { in_time: "in time", late: "late", dropped: "refused", failed: "failed" };
const box = document.getElementById("queries");
let shown = "";
let all = false;

function row(one) {
  const answered = one.variant !== "";
  return el("tr", { "data-testid": `query-${one.outcome}` },
    el("td", {}, el("time", { datetime: one.at }, new Date(one.at).toLocaleTimeString("en-GB", { hour12: false })), el("br"), el("span", { class: `badge ${TONES[one.outcome]}` }, WORDS[one.outcome])),
    el("td", { class: "num" }, ms(one.latency_ms), el("br"), el("span", { class: "muted small" }, `of ${ms(one.budget_ms)}`)),
    el("td", {}, answered ? stages([one.queue_ms, one.network_ms, one.batch_ms, one.model_ms]) : el("span", { class: "muted" }, "no device answered")),
    el("td", {}, answered ? one.variant : "–", el("br"), el("span", { class: "muted small" }, answered ? `${one.device}, batch of ${one.batch_rows}` : one.device)),
    el("td", {}, one.why));
}

function table(title, some, none) {
  const rows = all ? some : some.slice(0, SHOWN);
  return el("div", {}, el("h3", {}, title),
    rows.length === 0 ? el("div", { class: "card empty" }, none) : el("div", { class: "card scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ["Ended", "Latency", "Time in each stage", "Answered by", "Why"].map((name) => el("th", { class: name === "Latency" && "num" }, name)))),
      el("tbody", {}, rows.map(row)))));
}

const STAGES = [["queue_ms", "waited for a device"], ["network_ms", "lost time on the way to a device"], ["batch_ms", "waited for a batch"], ["model_ms", "lost time in the model"]];

// Where the time of late queries went, and how many were refused: the first words of a cause.
export function summary({ slowest, refused }) {
  const late = slowest.filter((one) => one.outcome !== "in_time");
  const longest = late.map((one) => STAGES.reduce((most, stage) => (one[stage[0]] > one[most[0]] ? stage : most), STAGES[0])[1]);
  const counts = [...Map.groupBy(longest, (words) => words)].map(([words, all]) => [all.length, words]).sort((a, b) => b[0] - a[0]);
  const parts = [...counts.map(([n, words]) => `${n} ${words}`), ...(refused.length ? [`${refused.length} ${refused.length === 1 ? "was" : "were"} refused`] : [])];
  return parts.length ? `Late or refused in the last hour, of the sampled queries: ${parts.join(", ")}.` : "No sampled query was late or refused in the last hour.";
}

function draw(found) {
  const told = document.getElementById("queries-summary");
  if (told) told.replaceChildren(summary(found), " ", el("a", { href: "#queries-title" }, "Single queries"));
  const more = Math.max(found.slowest.length, found.refused.length) > SHOWN;
  const button = more && el("button", { type: "button", "data-testid": "queries-all" }, all ? `Show ${SHOWN} of each` : "Show all");
  if (button) button.addEventListener("click", () => { all = !all; draw(found); box.querySelector("button")?.focus(); });
  box.replaceChildren(
    table("Slowest", found.slowest, "No query was answered in the last hour. Send one with Try it, above."),
    table("Refused", found.refused, "No query was refused in the last hour."), ...(button ? [button] : []));
}

async function read() {
  if (document.hidden) return;
  try {
    const found = await call("GET", box.dataset.queries);
    const text = JSON.stringify(found);
    if (text !== shown) draw(found);
    shown = text;
  } catch (problem) {
    if (shown === "") box.replaceChildren(el("div", { class: "card empty" }, problem.message));
  }
}

if (box) {
  read();
  setInterval(read, EVERY_MS);
  document.addEventListener("visibilitychange", read);
}
