// The strip on every page: one line for each application with a bar a minute for the last hour. Those that hurt first,
// quiet ones folded. A bar leads to that time on the overview.

import { call } from "./api.js";
import { Bars, inTime } from "./bars.js";
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

const lines = new Map(); // application -> its line
let data = null;

const go = (begin, end) => { location.href = `/?begin=${begin - AROUND}&end=${end + AROUND}`; };

function line(row) {
  if (!lines.has(row.name)) {
    const canvas = el("canvas", { class: "bars", "data-testid": `bars-${row.name}` });
    const figures = el("span", { class: "figures small" });
    const node = el("li", { "data-testid": `strip-${row.name}` }, el("a", { href: `/applications/${encodeURIComponent(row.name)}/` }, row.name), canvas, figures);
    lines.set(row.name, { node, figures, bars: new Bars(canvas, go) });
  }
  const found = lines.get(row.name);
  setText(found.figures, row.over.violations === null ? "no queries" : `${percent(inTime(row.over.violations))} % in time · accuracy ${percent(row.over.accuracy)} %`);
  return found;
}

function render() {
  const box = document.getElementById("strip");
  const wanted = document.getElementById("strip-search").value.trim().toLowerCase();
  const rows = sorted(data.applications).filter((row) => row.name.toLowerCase().includes(wanted));
  const loud = wanted ? rows.slice(0, 20) : rows.filter((row) => !quiet(row)).slice(0, SHOWN);
  const rest = rows.filter((row) => !loud.includes(row));
  const fold = document.getElementById("strip-rest");
  keepFocus(box, () => document.getElementById("strip-loud").replaceChildren(...loud.map((row) => line(row).node)));
  fold.parentElement.hidden = rest.length === 0;
  const calm = rest.filter(quiet).length;
  const more = [calm && `${calm} quiet`, rest.length > calm && `${rest.length - calm} more`].filter(Boolean).join(", ");
  setText(document.getElementById("strip-count"), `${more} ${rest.length === 1 ? "application" : "applications"}`);
  keepFocus(fold, () => fold.replaceChildren(...(fold.parentElement.open ? rest.map((row) => line(row).node) : [])));
  box.hidden = data.applications.length === 0;
  for (const row of fold.parentElement.open ? rows : loud) line(row).bars.show(row, data);
}

async function read() {
  if (document.visibilityState === "hidden") return;
  try {
    data = await call("GET", `/api/v1/history/applications/?seconds=${MINUTES * 60}&points=${MINUTES}`);
    render();
  } catch { /* the live badge says that the server is away */ }
}

export function startStrip() {
  if (!document.getElementById("strip")) return;
  document.getElementById("strip-search").addEventListener("input", () => { if (data) render(); });
  document.getElementById("strip-rest").parentElement.addEventListener("toggle", () => { if (data) render(); });
  document.addEventListener("theme", () => { if (data) render(); });
  addEventListener("resize", () => { if (data) render(); });
  read();
  setInterval(read, EVERY_MS);
}
