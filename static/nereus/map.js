// One device in full: its figures and what it hosts. Rebuilt when the state changes; each second only figures move.

import { call } from "./api.js";
import { variantColor } from "./charts.js";
import { el, setText } from "./dom.js";
import { bytes, percent, rate } from "./format.js";

const STALE_S = 7;
const HOUR_S = 3600;
// A device's last second, unless it is too old to show.
export const fresh = (second, serverNow) => (second && serverNow - second.t <= STALE_S ? second : null);
export const used = (second) => Math.min(1, second.busy + second.profiling);
export const sensed = (value, unit, name) => (Number.isFinite(value) ? `${percent(value, 0)} ${unit}` : `${name} unknown`);

// The least and the most of a device's column, in words.
export function spread(column, unit, name) {
  const values = column.filter((value) => value !== null);
  if (!values.length) return `${name} unknown`;
  const [least, most] = [Math.min(...values), Math.max(...values)].map((value) => percent(value, 0));
  return `${name} ${least === most ? least : `${least} to ${most}`} ${unit}`;
}

export class DeviceDetail {
  constructor(container, cluster) {
    this.container = container;
    this.cluster = cluster;
    this.parts = null; // elements of the shown device that move each second
    this.ref = null;
  }

  // Show a device; the one that is shown goes away.
  show(ref, index, serverNow) {
    this.ref = this.ref === ref ? null : ref;
    this.render(index);
    this.tick(serverNow);
    this.#readHour();
  }

  async #readHour() {
    const { ref } = this;
    if (ref === null) return;
    this.hour = "";
    try {
      const path = ref.split("/").map(encodeURIComponent).join("/");
      const found = await call("GET", `/api/v1/history/devices/${path}/?seconds=${HOUR_S}&points=60`);
      this.hour = [spread(found.busy, "%", "busy"), spread(found.celsius, "°C", "temperature"), spread(found.watts, "W", "power")].join(" · ");
    } catch (problem) {
      this.hour = problem.status === 404 ? "nothing is known" : problem.message;
    }
    if (ref === this.ref) setText(this.parts?.hour, this.hour);
  }

  render(index) {
    this.index = index;
    this.parts = null;
    const device = this.ref === null ? null : this.cluster.devices.get(this.ref);
    this.container.replaceChildren(...(device ? [this.#device(device)] : []));
  }

  #device(device) {
    const bar = el("progress", { max: 1, value: 0 });
    const busy = el("span", { class: "small" }, "–");
    const facts = el("div", { class: "facts" }, "no figures yet");
    const hour = el("span", { "data-testid": "device-hour" }, this.hour ?? "");
    const hosted = this.cluster.hosted(device.ref, this.index.placements.get(device.ref) ?? []);
    const residents = hosted.map((resident) => ({ resident, figure: el("span", { class: "facts" }) }));
    const rows = residents.map(({ resident, figure }) => this.#resident(resident, figure));
    this.parts = { bar, busy, facts, hour, residents };
    return el("article", { class: "card device", "data-testid": "device-detail", "data-state": device.state },
      el("header", {},
        el("strong", {}, device.ref),
        el("span", {}, el("span", { class: "muted small" }, `${device.type} `), el("span", { class: `badge ${device.state}` }, device.state))),
      device.detail && device.state !== "up" && el("p", { class: "small muted" }, device.detail),
      el("div", { class: "util" }, bar, busy),
      facts,
      el("div", { class: "facts" }, "Last hour: ", hour),
      el("p", { class: "small" }, el("a", { href: `/what-if/?remove=${encodeURIComponent(device.ref)}`, "data-testid": "without-device" }, "What if it were gone?")),
      rows.length ? rows : el("p", { class: "small muted" }, "Runs nothing."));
  }

  #resident(resident, figure) {
    const variants = this.index.variants.get(resident.application) ?? [];
    const index = variants.findIndex((variant) => variant.id === resident.variant);
    const dot = el("span", { class: "dot" });
    dot.style.background = index < 0 ? "var(--muted)" : variantColor(index, variants.length);
    const normalized = this.cluster.normalized(variants[index], variants);
    const state = resident.leaving ? "standby" : resident.warm ? null : "loading";
    return el("div", { class: `resident${resident.leaving ? " leaving" : ""}`, "data-variant": resident.variant_name },
      dot,
      el("span", {}, el("strong", {}, resident.variant_name), " ",
        resident.application && el("a", { class: "muted", href: `/applications/${encodeURIComponent(resident.application)}/` }, resident.application), " ",
        state && el("span", { class: `badge ${state === "loading" ? "profiling" : "draining"}` }, state)),
      el("span", { class: "num", title: "accuracy, percent of the application's best variant" }, normalized === null ? "–" : `${percent(normalized)} %`),
      figure);
  }

  // Figures of the last second; old ones are not shown as if they were current.
  tick(serverNow) {
    if (!this.parts) return;
    const { bar, busy, facts, residents } = this.parts;
    const second = fresh(this.cluster.seconds.get(this.ref), serverNow);
    const part = second ? used(second) : 0;
    bar.value = part;
    bar.className = part > 0.97 ? "full" : part > 0.8 ? "busy" : "";
    setText(busy, second ? `${Math.round(part * 100)} % busy` : "–");
    setText(facts, second
      ? [`${second.queued_rows} queued`, bytes(second.memory_bytes), sensed(second.celsius, "°C", "temperature"), sensed(second.watts, "W", "power"), second.profiling > 0 ? `profiling ${Math.round(second.profiling * 100)} %` : null, second.plan_version ? `plan ${second.plan_version}` : null].filter(Boolean).join(" · ")
      : "no figures now");
    const ran = new Map((second?.variants ?? []).map((v) => [v.variant, v]));
    for (const { resident, figure } of residents) setText(figure, residentFigures(resident, ran.get(resident.variant), second));
  }
}

function residentFigures(resident, ran, second) {
  const planned = resident.leaving ? "kept warm" : `${rate(resident.rate)} items/s planned`;
  if (!second) return planned;
  const now = ran ? `${rate(ran.rows)} items/s now` : "idle now";
  const batch = ran && ran.batches > 0 ? ` · batch ${(ran.rows / ran.batches).toFixed(1)}` : "";
  const drift = ran && ran.drift > 1.25 ? ` · ${ran.drift.toFixed(2)}× its profile` : "";
  return `${now} · ${planned}${batch}${drift}`;
}
