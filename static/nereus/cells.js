// The cluster map: a cell for each device, by node, coloured by use, by application or by state. A chosen cell shows
// what the device hosts.

import { el, setText } from "./dom.js";
import { bytes } from "./format.js";
import { DeviceDetail, fresh, sensed, used } from "./map.js";

// Many changes at once, as when a site's nodes return together, are drawn together.
const GATHER_MS = 250;
const KEY = "nereus-map-color";
const STATES = { up: "--good", starting: "--info", draining: "--warn", down: "--c-violations" };

// Degrees Celsius at which a colour begins.
const WARMTH = [[-Infinity, "--good"], [70, "--warn"], [85, "--c-violations"]];

// A tint of a colour: as much of it as leaves the text on it readable in both themes.
const TINT = 45;
const tint = (color, percent = TINT) => `color-mix(in srgb, ${color} ${Math.round(percent)}%, var(--card))`;

// A colour for a name, the same on every page.
export function nameColor(name) {
  let hash = 7;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) % 3600;
  return tint(`hsl(${hash / 10} 60% 50%)`);
}

export class ClusterMap {
  constructor(container, cluster) {
    this.container = container;
    this.cluster = cluster;
    this.cells = new Map(); // device ref -> its elements
    this.timer = null;
    this.now = 0;
    this.detail = new DeviceDetail(document.getElementById("device-detail"), cluster);
    this.select = document.getElementById("map-color");
    try { this.select.value = localStorage.getItem(KEY) ?? "use"; } catch { /* private browsing */ }
    if (!this.select.value) this.select.value = "use";
    this.select.addEventListener("change", () => {
      try { localStorage.setItem(KEY, this.select.value); } catch { /* private browsing */ }
      this.#legend();
      this.tick(this.now);
    });
    document.addEventListener("theme", () => this.tick(this.now));
    container.addEventListener("keydown", (event) => this.#walk(event));
  }

  // Render soon; `drawn` is called afterwards.
  renderSoon(drawn) {
    this.timer ??= setTimeout(() => { this.render(); drawn(); }, GATHER_MS);
  }

  render() {
    clearTimeout(this.timer);
    this.timer = null;
    const focused = this.container.contains(document.activeElement) && document.activeElement.dataset.ref;
    this.cells.clear();
    this.index = this.cluster.index();
    const nodes = [...this.cluster.nodes.values()];
    if (nodes.length === 0) {
      this.container.replaceChildren(el("div", { class: "card empty", "data-testid": "map-empty" }, el("strong", {}, "No nodes yet. "), "Create a ", el("a", { href: "/nodes/" }, "join token"), " and start a node daemon with it."));
      return;
    }
    this.container.replaceChildren(...nodes.map((node) => this.#node(node)));
    this.cells.get(focused || [...this.cells.keys()][0])?.button.setAttribute("tabindex", "0");
    if (focused) this.cells.get(focused)?.button.focus();
    this.detail.render(this.index);
    this.#legend();
  }

  #node(node) {
    const devices = this.index.devices.get(node.name) ?? [];
    return el("section", { class: "cellnode", "data-testid": `map-node-${node.name}` },
      el("header", {}, el("a", { href: "/nodes/", class: "small" }, node.name),
        node.state !== "approved" && el("span", { class: `badge ${node.state}` }, node.state === "pending" ? "waits for approval" : node.state),
        !node.connected && el("span", { class: "badge down" }, "not connected")),
      el("div", { class: "cells" }, devices.length ? devices.map((device) => this.#cell(device)) : el("span", { class: "muted small" }, "no devices")));
  }

  #cell(device) {
    const use = el("span", { class: "cell-use" }, "–");
    const memory = el("span", { class: "cell-memory" });
    const button = el("button", { type: "button", class: "cell", tabindex: "-1", "data-ref": device.ref, "data-testid": `device-${device.ref}`, "data-state": device.state, "aria-expanded": String(this.detail.ref === device.ref), "aria-controls": "device-detail" }, use, memory);
    button.addEventListener("click", () => this.#choose(device.ref));
    const hosted = this.cluster.hosted(device.ref, this.index.placements.get(device.ref) ?? []);
    this.cells.set(device.ref, { device, button, use, memory, hosted });
    return button;
  }

  // Show a device; the one that is shown goes away.
  #choose(ref) {
    this.detail.show(ref, this.index, this.now);
    for (const [each, cell] of this.cells) cell.button.setAttribute("aria-expanded", String(each === this.detail.ref));
  }

  // One stop for the tabulator; arrows walk over devices, up and down over nodes.
  #walk(event) {
    const all = [...this.cells.values()].map((cell) => cell.button);
    const at = all.indexOf(document.activeElement);
    if (at < 0) return;
    if (event.key === "Escape" && this.detail.ref !== null) return this.#choose(this.detail.ref);
    const cells = [...this.cells.values()];
    const begin = (index) => cells.findIndex((cell) => cell.device.node === cells[index]?.device.node);
    const below = cells.findIndex((cell, i) => i > at && cell.device.node !== cells[at].device.node);
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -at, End: all.length - 1 - at, ArrowUp: begin(Math.max(0, begin(at) - 1)) - at, ArrowDown: below < 0 ? 0 : below - at };
    const step = moves[event.key];
    if (step === undefined) return;
    event.preventDefault();
    all[at].tabIndex = -1;
    const next = all[Math.max(0, Math.min(all.length - 1, at + step))];
    next.tabIndex = 0;
    next.focus();
  }

  #color(cell, busy, celsius) {
    if (this.select.value === "temperature") return Number.isFinite(celsius) ? tint(`var(${WARMTH.findLast(([from]) => celsius >= from)[1]})`) : "var(--faint)";
    if (this.select.value === "state") return tint(`var(${STATES[cell.device.state] ?? "--muted"})`);
    if (this.select.value === "application") {
      const main = cell.hosted.reduce((most, each) => ((each.time_share ?? 0) > (most?.time_share ?? -1) ? each : most), null);
      return main ? nameColor(main.application) : "var(--faint)";
    }
    if (busy === null) return "var(--faint)";
    return tint(`var(${busy > 0.97 ? "--c-violations" : busy > 0.85 ? "--warn" : "--c-throughput"})`, 10 + (TINT - 10) * busy);
  }

  // Figures of the last second; old ones are not shown as if they were current.
  tick(serverNow) {
    this.now = serverNow;
    for (const [ref, cell] of this.cells) {
      const second = fresh(this.cluster.seconds.get(ref), serverNow);
      const busy = second ? used(second) : null;
      setText(cell.use, cell.device.state === "up" || second ? (second ? String(Math.round(100 * busy)) : "–") : { down: "✕", starting: "…", draining: "↓" }[cell.device.state] ?? "–");
      const color = this.#color(cell, busy, second?.celsius);
      if (cell.color !== color) { cell.color = color; cell.button.style.background = color; }
      const part = second && cell.device.memory_bytes ? Math.min(1, second.memory_bytes / cell.device.memory_bytes) : 0;
      const width = `${Math.round(100 * part)}%`;
      if (cell.width !== width) { cell.width = width; cell.memory.style.width = width; }
      const text = this.#words(cell, second);
      if (cell.text !== text) { cell.text = text; cell.button.title = text; cell.button.setAttribute("aria-label", text); }
    }
    this.detail.tick(serverNow);
  }

  #words({ device, hosted }, second) {
    return [`${device.ref}, ${device.type}, ${device.state}`,
      second ? `${Math.round(100 * used(second))} % busy` : "no figures now",
      second && bytes(second.memory_bytes) !== "–" && `${bytes(second.memory_bytes)}${device.memory_bytes ? ` of ${bytes(device.memory_bytes)}` : ""}`,
      second && sensed(second.celsius, "°C", "temperature"),
      second && sensed(second.watts, "W", "power"),
      hosted.length > 0 && hosted.map((each) => `${each.application}/${each.variant_name}`).join(", ")].filter(Boolean).join(" · ");
  }

  #legend() {
    const box = document.getElementById("map-legend");
    const key = (color, text) => { const dot = el("span", { class: "dot" }); dot.style.background = color; return el("span", {}, dot, ` ${text}`); };
    if (this.select.value === "state") box.replaceChildren(...Object.entries(STATES).map(([state, color]) => key(tint(`var(${color})`), state)));
    else if (this.select.value === "temperature") box.replaceChildren(key(tint("var(--good)"), "below 70 °C"), key(tint("var(--warn)"), "from 70 °C"), key(tint("var(--c-violations)"), "from 85 °C"), key("var(--faint)", "unknown: its box has no sensor that can be read"));
    else if (this.select.value === "use") box.replaceChildren(key(tint("var(--c-throughput)"), "busy, %"), key(tint("var(--warn)"), "over 85 %"), key(tint("var(--c-violations)"), "over 97 %"));
    else {
      const names = [...new Set([...this.cells.values()].flatMap((cell) => cell.hosted.map((each) => each.application)))].sort();
      box.replaceChildren(...names.slice(0, 12).map((name) => key(nameColor(name), name)), ...(names.length > 12 ? [el("span", {}, `and ${names.length - 12} more`)] : []));
    }
  }
}
