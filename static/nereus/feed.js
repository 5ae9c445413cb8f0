// What happened, newest first, in words.

import { el, keepFocus } from "./dom.js";
import { moment, percent, rate } from "./format.js";
import { slice } from "./slices.js";

const KEEP = 80;
// Events that are known again: more than a snapshot repeats.
const KNOWN = 500;
// While demand rises there is a plan a second: one line, as in the history of plans.
const BY_DEMAND = ["burst", "overload"];
const RUN_GAP_S = 5;
const TRIGGERS = { period: "regular", burst: "burst", overload: "overload", change: "change", manual: "asked for" };

export class Feed {
  constructor(list) {
    this.list = list;
    this.entries = [];
    this.seen = new Set();
  }

  // `key` makes an event that comes twice (snapshot and live) one line; without a key it is always a new one.
  add(t, kind, tone, text, { key = null, href = null, run = null } = {}) {
    if (key !== null) {
      if (this.seen.has(key)) return;
      this.seen.add(key);
      if (this.seen.size > KNOWN) this.seen.delete(this.seen.values().next().value);
    }
    const last = run && this.entries.find((entry) => entry.kind === kind);
    const joins = last?.run && t >= last.t && t - last.t <= RUN_GAP_S;
    if (joins) Object.assign(last, { t, tone, text, href, count: last.count + 1 });
    else this.entries.push({ t, kind, tone, text, href, run, count: 1 });
    this.entries.sort((a, b) => b.t - a.t);
    this.entries.length = Math.min(this.entries.length, KEEP);
    // Once for all events that come together, as with a snapshot.
    slice("feed", () => this.#render());
  }

  plan(t, data) {
    const left = Object.entries(data.left_out ?? {});
    const why = [TRIGGERS[data.trigger] ?? data.trigger, data.detail].filter(Boolean).join(": ");
    const text = `Plan ${data.version} (${why}) serves ${rate(data.served)} of ${rate(data.demand)} items/s at ${percent(data.accuracy)} % accuracy`
      + (data.moves ? `; ${data.moves} ${data.moves === 1 ? "variant" : "variants"} to load` : "")
      + (left.length ? `; leaves out ${left.map(([name, value]) => `${rate(value)} items/s of ${name}`).join(", ")}` : "");
    this.add(t, "plan", left.length ? "draining" : "profiling", text, { key: `plan-${data.version}`, href: `/plans/${data.version}/`, run: BY_DEMAND.includes(data.trigger) });
  }

  profile(t, data) {
    const what = `${data.application}/${data.variant_name} on ${data.device_type}`;
    const entry = { done: ["ready", `Profiled ${what}`], failed: ["failed", `Profiling ${what} failed${data.detail ? `: ${data.detail}` : ""}`], cancelled: ["plain", `Profiling ${what} was cancelled`] }[data.state];
    if (entry) this.add(t, "profile", entry[0], entry[1], { key: `profile-${data.job}-${data.state}`, href: `/applications/${encodeURIComponent(data.application)}/` });
  }

  fault(t, data) {
    const what = `${data.application}/${data.variant_name} on ${data.device}`;
    this.add(t, "fault", data.cause === "crashed" ? "failed" : "draining", `${what}: ${data.detail}`, { key: `fault-${data.fault}`, href: `/applications/${encodeURIComponent(data.application)}/` });
  }

  #render() {
    keepFocus(this.list, () => this.list.replaceChildren(...this.entries.map((entry) => el("li", {},
      el("time", {}, moment(entry.t, 0)),
      el("span", { class: `badge ${entry.tone}` }, entry.kind),
      el("span", {}, entry.href ? el("a", { href: entry.href }, entry.text) : entry.text,
        entry.count > 1 && [" ", el("span", { class: "badge plain", title: "Demand left the plan's band repeatedly" }, `${entry.count} plans`)])))));
  }
}
