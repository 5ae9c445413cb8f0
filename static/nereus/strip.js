// The strip on every page: one line for each application with a bar a minute for the last hour. Worst first,
// quiet ones folded. A bar leads to that time on the application's page.

import { call } from "./api.js";
import { Bars, inTime, mark } from "./bars.js";
import { el, keepFocus, setText } from "./dom.js";
import { percent } from "./format.js";

const EVERY_MS = 30000;
const MINUTES = 60;
// Lines that show without unfolding.
const SHOWN = 4;
// Percent: an application with fewer violations and more accuracy is quiet.
const QUIET_VIOLATIONS = 1;
const QUIET_ACCURACY = 95;
// Seconds to each side of the minute that a bar leads to.
const AROUND = 120;

// Percent of what its queries could have had at best that an application lost, of the worse of hour and last minutes.
export function harm(row, last = 5) {
  const lost = (violations, accuracy) => (violations === null ? 0 : 100 - (100 - violations) * ((accuracy ?? 100) / 100));
  const recent = row.violations.map((value, i) => [value, row.accuracy[i]]).slice(-last).filter(([value]) => value !== null);
  const lately = recent.length ? recent.reduce((sum, [v, a]) => sum + lost(v, a), 0) / recent.length : 0;
  return Math.max(lately, lost(row.over.violations, row.over.accuracy));
}

export function quiet(row) {
  const recent = Math.max(row.over.violations ?? 0, ...row.violations.slice(-5).map((value) => value ?? 0));
  return recent <= QUIET_VIOLATIONS && (row.over.accuracy ?? 100) >= QUIET_ACCURACY;
}

export const sorted = (rows) => rows.map((row) => [harm(row), row]).sort((a, b) => b[0] - a[0] || a[1].name.localeCompare(b[1].name)).map(([, row]) => row);

// Whether an application is looked for: by its name or its group's.
export const matches = (row, wanted) => `${row.name}\n${row.group ?? ""}`.toLowerCase().includes(wanted);

// Folded applications by group, worst first, as `sorted` left them; without a group: the last.
export function folds(rows) {
  const groups = Map.groupBy(rows, (row) => row.group ?? "");
  return [...groups].sort((a, b) => (a[0] === "") - (b[0] === "")).map(([group, members]) => ({ group, members, text: summary(members) }));
}

function summary(rows) {
  const calm = rows.filter(quiet).length;
  const more = rows.length - calm;
  const named = (count, kind) => `${count} ${kind} ${count === 1 ? "application" : "applications"}`;
  return calm && more ? `${named(calm, "quiet")} and ${more} more` : calm ? named(calm, "quiet") : named(more, "more");
}

const folded = new Map(); // group -> its fold
const GROUP = "nereus-strip-group";
const lines = new Map(); // application -> its line
let data = null;

const page = (name) => `/applications/${encodeURIComponent(name)}/`;

// Only lines and folds of what is there stay, in a page that is open for months.
function forget(known, names) {
  const there = new Set(names);
  for (const name of known.keys()) if (!there.has(name)) known.delete(name);
}

function line(row) {
  if (!lines.has(row.name)) {
    const canvas = el("canvas", { class: "bars", "data-testid": `bars-${row.name}` });
    const figures = el("span", { class: "figures small" });
    const node = el("li", { "data-testid": `strip-${row.name}` }, el("a", { href: page(row.name) }, row.name), canvas, figures);
    lines.set(row.name, { node, figures, bars: new Bars(canvas, (begin, end) => { location.href = `${page(row.name)}?begin=${begin - AROUND}&end=${end + AROUND}`; }) });
  }
  const found = lines.get(row.name);
  setText(found.figures, words(row.over));
  return found;
}

const words = (over) => (over.violations === null ? "no queries" : `${percent(inTime(over.violations))} % in time · accuracy ${percent(over.accuracy)} %`);

// The applications' health in a page's own table.
function showHealth(page) {
  for (const node of page.querySelectorAll("[data-health]")) {
    const over = data.applications.find((row) => row.name === node.dataset.health)?.over ?? { violations: null };
    setText(node, words(over));
    node.className = `small ${mark(over.violations)}`.trim();
  }
}

function fold(group) {
  if (!folded.has(group)) {
    const [text, list] = [el("summary", { class: "small" }), el("ul")];
    const node = el("details", { "data-testid": `strip-group-${group}` }, text, list);
    node.addEventListener("toggle", () => { if (data) render(); });
    folded.set(group, { node, text, list });
  }
  return folded.get(group);
}

// The choice of a group, where there are any.
function choice() {
  const select = document.getElementById("strip-group");
  const names = [...new Set(data.applications.map((row) => row.group).filter(Boolean))].sort();
  const known = [...select.options].slice(1).map((option) => option.value);
  if (JSON.stringify(known) !== JSON.stringify(names)) {
    const before = select.options.length ? select.value : sessionStorage.getItem(GROUP) ?? "";
    select.replaceChildren(el("option", { value: "" }, "all groups"), ...names.map((name) => el("option", { value: name }, name)));
    select.value = names.includes(before) ? before : "";
  }
  select.hidden = names.length === 0;
  return select.value;
}

function render() {
  const box = document.getElementById("strip");
  const wanted = document.getElementById("strip-search").value.trim().toLowerCase();
  const group = choice();
  const rows = sorted(data.applications).filter((row) => (!group || row.group === group) && matches(row, wanted));
  const loud = wanted || group ? rows.slice(0, 20) : rows.filter((row) => !quiet(row)).slice(0, SHOWN);
  const rest = folds(rows.filter((row) => !loud.includes(row)));
  const plain = rest.find((each) => each.group === "");
  const others = document.getElementById("strip-rest");
  keepFocus(box, () => document.getElementById("strip-loud").replaceChildren(...loud.map((row) => line(row).node)));
  const shown = [...loud];
  const fill = (list, open, members) => { keepFocus(list, () => list.replaceChildren(...(open ? members.map((row) => line(row).node) : []))); if (open) shown.push(...members); };
  const groups = rest.filter((each) => each.group !== "");
  for (const each of groups) {
    const part = fold(each.group);
    setText(part.text, `${each.group}: ${each.text}`);
    fill(part.list, part.node.open, each.members);
  }
  const nodes = groups.map((each) => fold(each.group).node);
  const place = document.getElementById("strip-groups");
  // Folds that stay where they are keep the focus.
  if (nodes.length !== place.children.length || nodes.some((node, i) => place.children[i] !== node)) place.replaceChildren(...nodes);
  others.parentElement.hidden = !plain;
  setText(document.getElementById("strip-count"), plain?.text ?? "");
  fill(others, others.parentElement.open, plain?.members ?? []);
  box.hidden = data.applications.length === 0;
  for (const row of shown) line(row).bars.show(row, data);
}

async function read() {
  if (document.visibilityState === "hidden") return;
  try {
    data = await call("GET", `/api/v1/history/applications/?seconds=${MINUTES * 60}&points=${MINUTES}`);
    forget(lines, data.applications.map((row) => row.name));
    forget(folded, data.applications.map((row) => row.group ?? ""));
    render();
    showHealth(document);
  } catch { /* the live badge says that the server is away */ }
}

export function startStrip() {
  if (!document.getElementById("strip")) return;
  document.getElementById("strip-search").addEventListener("input", () => { if (data) render(); });
  document.getElementById("strip-group").addEventListener("change", (event) => {
    sessionStorage.setItem(GROUP, event.target.value);
    if (data) render();
  });
  document.getElementById("strip-rest").parentElement.addEventListener("toggle", () => { if (data) render(); });
  document.addEventListener("theme", () => { if (data) render(); });
  document.addEventListener("fetched", ({ detail }) => { if (data) showHealth(detail); });
  addEventListener("resize", () => { if (data) render(); });
  read();
  setInterval(read, EVERY_MS);
}
