// The drawer at the bottom: work in the background, who asked for it, for how long, its log, and ending it.

import { call } from "./api.js";
import { el, keepFocus, setText, toast } from "./dom.js";
import { age, clock } from "./format.js";
import { live } from "./live.js";

const EVERY_MS = { open: 3000, closed: 20000 };
const SOON_MS = 400;
const LINES = 40;
const MOST_LOGS = 200;
const OPEN = "nereus-tasks";
const LOGS = "nereus-task-logs";
const TONES = { running: "profiling", waiting: "plain", done: "ready", failed: "failed", cancelled: "plain" };
const drawer = document.getElementById("tasks");
const logs = new Map(); // key -> lines since this tab was opened
let listed = [];
let timer = null;

function log(key, text) {
  const lines = logs.get(key) ?? [];
  if (lines.at(-1)?.text === text) return;
  lines.push({ t: Date.now() / 1000, text });
  logs.set(key, lines.slice(-LINES));
}

// Logs of tasks that are listed no more go, the oldest first, once there are many.
function forgetOld() {
  const there = new Set(listed.map((task) => task.key));
  for (const key of logs.keys()) if (logs.size > MOST_LOGS && !there.has(key)) logs.delete(key);
}

async function cancel(task, button) {
  if (!confirm(`Stop this task? ${task.consequence}`)) return;
  button.disabled = true;
  try {
    await call("DELETE", task.cancel);
    toast(`${task.title}: stopped`);
  } catch (problem) {
    toast(problem.message, "bad", 12);
  }
  read();
}

function row(task) {
  const lines = logs.get(task.key) ?? [];
  const button = task.cancel && el("button", { type: "button", "data-testid": `cancel-${task.key}` }, task.kind === "drain" ? "Uncordon" : "Cancel");
  if (button) button.addEventListener("click", () => cancel(task, button));
  const seconds = (task.until ? Date.parse(task.until) : Date.now()) / 1000 - Date.parse(task.since) / 1000;
  return el("tr", { "data-testid": `task-${task.key}` },
    el("td", {}, el("span", { class: `badge ${TONES[task.state]}` }, task.state)),
    el("td", {}, el("strong", {}, task.kind), " ", task.application ? el("a", { href: `/applications/${encodeURIComponent(task.application)}/` }, task.title) : task.title,
      task.progress !== null && el("progress", { max: 1, value: task.progress, "aria-label": task.title })),
    el("td", {}, task.by), el("td", { class: "num" }, age(seconds)),
    el("td", {}, task.detail, lines.length > 0 && el("details", { id: `log-${task.key}` }, el("summary", { class: "small", "data-testid": `log-of-${task.key}` }, `log, ${lines.length} ${lines.length === 1 ? "line" : "lines"}`),
      el("pre", { class: "code small" }, lines.map((line) => `${clock(line.t)} ${line.text}`).join("\n")))),
    el("td", { class: "row-actions" }, button || null));
}

function draw() {
  const busy = listed.filter((task) => task.until === null);
  setText(document.getElementById("tasks-count"), String(busy.length));
  setText(document.getElementById("tasks-now"), busy.length ? `${busy[0].kind}: ${busy[0].title}${busy.length > 1 ? ` and ${busy.length - 1} more` : ""}` : "No background tasks");
  if (!drawer.open) return;
  const box = document.getElementById("tasks-list");
  const opened = new Set([...box.querySelectorAll("details[open]")].map((one) => one.id));
  keepFocus(box, () => box.replaceChildren(listed.length === 0
    ? el("p", { class: "empty" }, "Nothing is running, and nothing ended in the last hour. Uploads, profiling, solves, what-ifs and drains appear here.")
    : el("table", { class: "compact" }, el("thead", {}, el("tr", {}, ["State", "Task", "By", "For", "Detail", "Actions"].map((name) => el("th", { class: name === "For" && "num" }, name === "Actions" ? el("span", { class: "unseen" }, name) : name)))), el("tbody", {}, listed.map(row)))));
  for (const one of box.querySelectorAll("details")) one.open = opened.has(one.id);
}

async function read() {
  clearTimeout(timer);
  timer = setTimeout(read, drawer.open ? EVERY_MS.open : EVERY_MS.closed);
  if (document.hidden) return;
  try {
    listed = (await call("GET", drawer.dataset.tasks)).results;
    // Profiling tells by events, the others by what they are each time.
    for (const task of listed) if (task.kind !== "profiling") log(task.key, task.detail);
    forgetOld();
    draw();
  } catch { /* the server is away: the badge says so */ }
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(read, SOON_MS);
}

// Lines that were logged on the tab's pages before.
function remembered() {
  try { return JSON.parse(sessionStorage.getItem(LOGS) ?? "[]"); } catch { return []; }
}

export function startTasks() {
  if (!drawer) return;
  for (const [key, lines] of remembered()) logs.set(key, lines);
  addEventListener("pagehide", () => { try { sessionStorage.setItem(LOGS, JSON.stringify([...logs])); } catch { /* private browsing, or full */ } });
  drawer.open = sessionStorage.getItem(OPEN) === "1";
  drawer.addEventListener("toggle", () => { sessionStorage.setItem(OPEN, drawer.open ? "1" : "0"); read(); });
  drawer.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !drawer.open) return;
    drawer.open = false;
    drawer.querySelector("summary").focus();
  });
  live
    .on("profile", (data) => {
      const last = data.points?.at(-1);
      log(`profiling:${data.job}`, `${data.phase || data.state} ${Math.round((data.progress || 0) * 100)} %${last ? `; batch ${last.batch}: p95 ${(last.p95_s * 1000).toFixed(2)} ms` : ""}${data.detail ? `; ${data.detail}` : ""}`);
      soon();
    })
    .on("changed", soon);
  document.addEventListener("visibilitychange", read);
  read();
}
